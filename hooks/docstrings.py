"""Griffe extension: what the API reference makes of the sections of a docstring."""

import re
import textwrap
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^( *)Example:$", re.M)
_SOURCE = re.compile(r"^( *)Source:\n((?:\1 +\S.*(?:\n|\Z))+)", re.M)


def readable(docstring: str) -> str:
    """A docstring with the sections that Griffe does not know written as what it knows."""
    docstring = _EXAMPLE.sub(r"\1Examples:", docstring)
    return _SOURCE.sub(lambda source: f"{source[1]}**Source:** {textwrap.dedent(source[2])}", docstring)


class Sections(Extension):
    """Show ``Example:`` as code and ``Source:`` as a paragraph, where Griffe would draw a box."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
