"""The tests as judges: collected once by pytest, run in forked processes."""

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants.trace import Lines, lines_run

_USES = re.compile(r"^\s*(from|import) attnkit\b", re.MULTILINE)


class Suite:
    """Every test of the project that imports attnkit, and the doctests; a pytest plugin.

    A test that starts another process is left out: that one would see the package as it is on disk.
    """

    def __init__(self, root: Path, judge: Callable[["Suite"], None]) -> None:
        self.root, self.judge = root, judge
        self.items: dict[str, pytest.Item] = {}
        self._failed = self._skipped = False

    def collect(self) -> int:
        """Let pytest collect, then call ``judge``."""
        quiet = ["-q", "--capture=sys", "-p", "no:cacheprovider", f"--basetemp={self.root}/.cache/mutants/tmp"]
        return pytest.main(quiet, plugins=[self])  # what pyproject.toml names, and no test of another environment

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items if self._uses(item.path)}
        self.judge(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed
        self._skipped |= report.skipped

    def _uses(self, file: Path) -> bool:
        return self.root / "attnkit" in file.parents or _USES.search(file.read_text(encoding="utf-8")) is not None

    def killer(self, names: list[str]) -> str | None:
        """The first of these tests that fails."""
        for name in names:
            self._run(self.items[name])
            if self._failed:
                return name
        return None

    def measure(self, names: list[str]) -> dict[str, Any]:
        """Of each test that passes in a forked process: the lines it runs, and its seconds."""
        sys.addaudithook(_forbid_processes)
        measured: dict[str, tuple[Lines, float]] = {}
        for name in names:
            result = lines_run(self.root / "attnkit", lambda item=self.items[name]: self._run(item))
            if not self._failed and not self._skipped:
                measured[name] = result
        return measured

    def _run(self, item: pytest.Item) -> None:
        import numpy as np
        import torch

        self._failed = self._skipped = False
        for seed in (random.seed, np.random.seed, torch.manual_seed):  # the same for every mutant
            seed(0)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)


def _forbid_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"):
        raise PermissionError(f"{event} in {os.getpid()}: another process would not hold the mutant")
