"""Run the gallery: one process per script, as many at once as there are cores, failures never kept."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

from tqdm import tqdm

from hooks import plugin
from hooks.store import Record, Store
from hooks.worker import RESULT, work

TIME_LIMIT = 120.0  # seconds; a script sets its own with  # mkdocs_gallery_time_limit = 300
MEMORY_LIMIT = 16.0  # GiB of address space, likewise      # mkdocs_gallery_memory_limit = 32


@dataclass(frozen=True)
class Failure:
    """Why a script cannot be published."""

    script: Path
    what: str
    line: int | None = None
    traceback: str = ""

    def report(self, root: Path) -> str:
        """A few lines a person can act on, the traceback below."""
        place = self.script.relative_to(root).as_posix() + (f", line {self.line}" if self.line else "")
        return f"{place}\n    {self.what}\n{self.traceback}".rstrip()


@dataclass
class _Running:
    script: Path
    stage: Path
    process: multiprocessing.process.BaseProcess
    time_limit: float
    started: float
    before: dict[str, str]
    timed_out: bool = False


def run(store: Store, scripts: list[Path], *, jobs: int, say: Callable[[str], None]) -> list[Failure]:
    """Run ``scripts``, longest first; publish each that succeeds and report the others.

    Args:
        store: where records and outputs live.
        scripts: what to run.
        jobs: how many at once.
        say: called with a line when a script starts and when it ends.

    Returns:
        The failures, in the order of ``scripts``.
    """
    stages = store.cache / "stage"
    shutil.rmtree(stages, ignore_errors=True)  # of a build that was killed
    stages.mkdir(parents=True)

    def seconds(script: Path) -> float:
        record = store.read(script)
        return record.seconds if record else float("inf")

    queue = sorted(scripts, key=seconds)  # the longest is taken first, from the end
    running: list[_Running] = []
    failures: dict[Path, Failure] = {}
    bar = tqdm(total=len(scripts), unit="script", disable=None, leave=False)  # None: only on a terminal

    def tell(line: str) -> None:
        with tqdm.external_write_mode():
            say(line)

    try:
        while queue or running:
            while queue and len(running) < jobs:
                running.append(_start(store, queue.pop(), stages))
                tell(f"{running[-1].script.stem}: running")
            wait([one.process.sentinel for one in running], timeout=0.2)
            for one in running:
                if time.monotonic() - one.started > one.time_limit and one.process.is_alive():
                    one.timed_out = True
                    _kill(one)
            for one in [one for one in running if not one.process.is_alive()]:
                running.remove(one)
                bar.update()
                outcome = _finish(store, one)
                shutil.rmtree(one.stage, ignore_errors=True)
                took = time.monotonic() - one.started
                if isinstance(outcome, Failure):
                    failures[one.script] = outcome
                    tell(f"{one.script.stem}: FAILED after {took:.1f} s")
                else:
                    tell(f"{one.script.stem}: {took:.1f} s, {len(outcome.claims)} claims hold")
    finally:
        bar.close()
        for one in running:  # left only by an interruption
            _kill(one)
        shutil.rmtree(stages, ignore_errors=True)
    return [failures[script] for script in scripts if script in failures]


def default_jobs() -> int:
    """ATTNKIT_JOBS, or as many as this process may use cores.

    Raises:
        ValueError: ATTNKIT_JOBS is not a positive whole number.
    """
    wanted = os.environ.get("ATTNKIT_JOBS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wanted.isdigit() or int(wanted) < 1:
        raise ValueError(f"ATTNKIT_JOBS must be a whole number of at least 1, got {wanted!r}")
    return int(wanted)


def _start(store: Store, script: Path, stages: Path) -> _Running:
    before = store.snapshot(script)
    store.forget(script)
    stage = Path(tempfile.mkdtemp(prefix=f"{script.stem}-", dir=stages))
    memory = int(plugin.header(script, "memory_limit", MEMORY_LIMIT) * 2**30)
    process = _context().Process(target=work, args=(script, store.root, stage, memory))
    process.start()
    return _Running(script, stage, process, plugin.header(script, "time_limit", TIME_LIMIT), time.monotonic(), before)


def _finish(store: Store, one: _Running) -> Record | Failure:
    one.process.join()
    seconds = time.monotonic() - one.started
    log = (one.stage / "log.txt").read_text(encoding="utf-8", errors="replace")[-2000:] if one.stage.exists() else ""
    if one.timed_out:
        return Failure(one.script, f"took longer than {one.time_limit:g} s and was stopped", traceback=log)
    try:
        result = json.loads((one.stage / RESULT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Failure(
            one.script, f"its process ended before the script did: {_ending(one.process.exitcode)}", traceback=log
        )
    if not result["ok"]:
        return Failure(one.script, result["what"], result["line"], result["traceback"])
    try:
        return store.publish(one.script, one.stage, result=result, seconds=seconds, before=one.before)
    except OSError as error:
        return Failure(one.script, f"its outputs could not be stored: {error}")


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


def _kill(one: _Running) -> None:
    """End the process and whatever it started (it leads a process group of its own)."""
    if hasattr(os, "killpg") and one.process.pid is not None:
        try:
            os.killpg(one.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            one.process.kill()
    else:
        one.process.kill()
    one.process.join()


def _context() -> ForkServerContext | SpawnContext:
    """Processes that start clean, from a server that has imported the slow libraries already."""
    # One thread and a fixed hash seed each; set before the server starts, so that it inherits them.
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "agg"})
    os.environ["PYTHONUTF8"] = "1"  # claims are printed with a tick
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a preview would take new files in attnkit for an edit
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "matplotlib.pyplot", "mkdocs_gallery.gen_gallery"])
    return context
