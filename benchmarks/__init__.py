"""What is measured, each with the command that measures it."""
