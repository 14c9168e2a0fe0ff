"""What the API reference makes of the sections of a docstring."""

from hooks.docstrings import readable

DOCSTRING = """Add.

Source:
    Somebody (2000), "A title: with a colon",
    section 2.

Example:
    >>> 1 + 1
    2
"""


def test_an_example_becomes_a_section_of_code_and_a_source_a_paragraph():
    assert readable(DOCSTRING) == (
        'Add.\n\n**Source:** Somebody (2000), "A title: with a colon",\nsection 2.\n\nExamples:\n    >>> 1 + 1\n    2\n'
    )


def test_a_source_at_the_end_is_read_to_its_end():
    assert readable("Add.\n\nSource:\n    Somebody (2000).") == "Add.\n\n**Source:** Somebody (2000)."


def test_words_that_are_no_section_stay():
    assert readable("For example:\nSource: none.") == "For example:\nSource: none."
