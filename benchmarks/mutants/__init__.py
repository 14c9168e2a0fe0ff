"""Break attnkit in every single place, and see whether a test and a published claim notice.

``python -m benchmarks.mutants`` (``make mutants``) writes ``benchmarks/mutants.md``. Neither mutmut nor
cosmic-ray fits: both judge a mutant by one command, in a fresh process that would import PyTorch again
(seconds for each of some thousand mutants), and neither can hold it against the gallery scripts apart
from the tests.
"""
