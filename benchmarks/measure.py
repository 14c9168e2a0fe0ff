"""Time a command as a whole process: wall clock, processor time of it and all it starts, peak memory."""

import ctypes
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # Linux: processes that outlive their parent become ours, and so countable


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Attributes:
        wall: seconds from start to end.
        cpu: processor seconds, user and system, of the process and all its descendants.
        memory: MiB at the peak of the largest single process.
    """

    wall: float
    cpu: float
    memory: float


def run(command: list[str], folder: Path, **environment: str) -> Cost:
    """Run ``command`` in ``folder`` once.

    Raises:
        RuntimeError: it failed; the message holds the end of what it said.
    """
    print("measuring", " ".join(Path(part).name for part in command), file=sys.stderr)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = folder / "benchmark.log"
    with log.open("wb") as out:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    usages = [usage]
    while True:
        try:
            usages.append(os.wait4(-1, 0)[2])
        except ChildProcessError:  # none is left
            break
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')[-3000:]}")
    return Cost(wall, sum(u.ru_utime + u.ru_stime for u in usages), max(u.ru_maxrss for u in usages) / 1024)
