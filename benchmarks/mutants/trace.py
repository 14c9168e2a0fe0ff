"""Which lines of attnkit a call runs, and how long it takes."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

Lines = dict[str, list[int]]


def lines_run(package: Path, call: Callable[[], None]) -> tuple[Lines, float]:
    """The lines of each module of ``package`` that ``call`` runs, and the seconds it took."""
    found: set[tuple[str, int]] = set()

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        found.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local(frame, event, argument) if frame.f_code.co_filename.startswith(prefix) else None

    prefix = f"{package}/"
    start = time.perf_counter()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(None)
    lines: Lines = {}
    for file, line in sorted(found):
        lines.setdefault(Path(file).stem, []).append(line)
    return lines, time.perf_counter() - start
