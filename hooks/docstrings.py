"""Griffe extension: what the API reference makes of the sections of a docstring."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.M)


class Sections(Extension):
    """Read ``Example:`` as a section of code; Griffe knows it by the name ``Examples:`` only."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
