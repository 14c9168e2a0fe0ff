"""Jobs made of steps, each step in a process forked from this one, which has imported everything already."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

MEMORY_LIMIT = 8 * 2**30  # bytes of address space


@dataclass(frozen=True)
class Step:
    """Work for a process of its own, which must end within ``seconds``; its result goes through JSON."""

    work: Callable[[], Any]
    seconds: float


@dataclass(frozen=True)
class Died:
    """What a step that gave no result died of."""

    cause: str


#: Yields steps, is sent the result of each.
Job = Generator[Step, Any, None]


@dataclass
class _Running:
    job: Job
    process: int
    pipe: int
    deadline: float


def run(jobs: Iterable[Job], workers: int) -> None:
    """Run the jobs, as many at once as there are workers."""
    waiting = iter(jobs)
    running: list[_Running] = []
    try:
        while True:
            while len(running) < workers and (job := next(waiting, None)) is not None:
                _advance(running, job, None)
            if not running:
                return
            soonest = min(one.deadline for one in running) - time.monotonic()
            ready = wait([one.pipe for one in running], timeout=max(0.0, soonest))
            for one in [one for one in running if one.pipe in ready or one.deadline <= time.monotonic()]:
                running.remove(one)
                _advance(running, one.job, _finish(one, late=one.pipe not in ready))
    finally:
        for one in running:  # left only by an interruption
            _finish(one, late=True)


def _advance(running: list[_Running], job: Job, result: Any) -> None:
    try:
        step = job.send(result)
    except StopIteration:
        return
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        _work(step, theirs)
    os.close(theirs)
    running.append(_Running(job, process, ours, time.monotonic() + step.seconds))


def _work(step: Step, pipe: int) -> None:
    """In the child: work silently, hand over the result, and leave without any clearing up."""
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        result = json.dumps(step.work()).encode()
        with os.fdopen(pipe, "wb") as file:
            file.write(result)
        code = 0
    finally:
        os._exit(code)


def _finish(one: _Running, *, late: bool) -> Any:
    if late:
        os.kill(one.process, signal.SIGKILL)
    with os.fdopen(one.pipe, "rb") as file:
        said = file.read()
    _, status = os.waitpid(one.process, 0)
    if late:
        return Died("time limit")
    code = os.waitstatus_to_exitcode(status)
    return json.loads(said) if code == 0 else Died(f"exit code {code}")
