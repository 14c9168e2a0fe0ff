"""The built site in a real browser."""
