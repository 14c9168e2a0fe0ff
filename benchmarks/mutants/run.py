"""Judge every mutant: by the tests that run its lines, and by the gallery scripts that do, cheapest first.

The cheapest page is the one that has noticed most mutants of the module per second so far; with none, the fastest.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutants import patch, report, scripts
from benchmarks.mutants.fork import Died, Job, Step, run
from benchmarks.mutants.results import Results, Verdict, digest
from benchmarks.mutants.rules import Mutant, mutants
from benchmarks.mutants.suite import Suite
from benchmarks.mutants.trace import lines_run

SLOWEST_BASELINE = 900.0  # seconds, traced
PATIENCE = 5.0  # a mutant may take so many times as long as the module itself, and ten seconds more


@dataclass(frozen=True)
class Judge:
    """A test or a script, the file it stands in, the lines it runs, and its seconds."""

    name: str
    file: Path
    lines: dict[str, list[int]]
    seconds: float

    def runs(self, mutant: Mutant) -> bool:
        """Whether it can notice the mutant at all."""
        first, last = mutant.span
        lines = self.lines.get(mutant.module, [])
        return bool(lines) if last == 0 else any(first <= line <= last for line in lines)


class Run:
    """One run over the mutants of some modules; verdicts that still stand are kept."""

    def __init__(self, root: Path, modules: list[str], say: Callable[[str], None]) -> None:
        self.root, self.say = root, say
        self.cache = root / ".cache" / "mutants"
        self.results = Results(self.cache / "verdicts.jsonl")
        self.mutants = every_mutant(root, modules)
        self.equal = report.equivalents(root, every_mutant(root, []), self.results)
        self.judges: dict[str, list[Judge]] = {"tests": [], "pages": []}
        pages = [(mutant.module, self.results.get(mutant.key, "pages")) for mutant in self.mutants]
        self.kills = Counter((module, verdict.by) for module, verdict in pages if verdict is not None)

    def go(self, workers: int, judges: list[str]) -> None:
        """Judge what is not judged yet, in an order that makes a part of it representative."""

        def judge(suite: Suite) -> None:
            self._preload()
            run(self._measurements(suite), workers)
            order = random.Random(0).sample(self.mutants, len(self.mutants))
            todo = [(kind, mutant) for mutant in order for kind in judges]
            # The tests keep an eye on the proofs; a page could find nothing, and all of them would run.
            todo = [(kind, mutant) for kind, mutant in todo if kind == "tests" or mutant.key not in self.equal]
            # No page is expected to notice that bad input is let through: that is for the tests.
            todo = [(kind, mutant) for kind, mutant in todo if kind == "tests" or not mutant.check]
            self.say(f"{len(todo)} verdicts")
            run(self._counted([self._verdict(suite, mutant, kind) for kind, mutant in todo]), workers)

        Suite(self.root, judge).collect()

    def _preload(self) -> None:
        """What every child would otherwise import for itself."""
        import importlib

        import matplotlib.pyplot as plt
        import torch

        torch.set_num_threads(1)
        plt.style.use("attnkit.paper")
        for file in (self.root / "attnkit").glob("*.py"):
            importlib.import_module(f"attnkit.{file.stem}" if file.stem != "__init__" else "attnkit")

    def _counted(self, jobs: list[Job]) -> Iterator[Job]:
        for number, job in enumerate(jobs):
            if number % 100 == 0:
                self.say(f"{number} of {len(jobs)}")
            yield job

    def _verdict(self, suite: Suite, mutant: Mutant, kind: str) -> Job:
        judges = self._able(mutant, kind)
        held = self.results.get(mutant.key, kind)
        files = sorted({judge.file for judge in judges})
        if held is not None:
            proof = [self.root / held.by.split("::")[0]] if held.by else files
            if all(file.exists() for file in proof) and held.proof == digest(*proof):
                return
        own = f"test_{mutant.module}.py"
        if kind == "tests":
            judges.sort(key=lambda j: (j.seconds > 0.5, j.file.name != own, j.seconds))
        else:
            judges.sort(key=lambda j: (-self.kills[mutant.module, j.name] / j.seconds, j.seconds))
        if held is not None:  # what killed it before it was edited will do so again
            judges.sort(key=lambda j: j.name != held.by)
        for step, names in self._steps(suite, mutant, kind, judges):
            said = yield step
            if said is not None:
                by, how = (names[0], said.cause) if isinstance(said, Died) else said
                proof = digest(self.root / by.split("::")[0])
                self.results.add(Verdict(mutant.key, kind, by, how, proof))
                if kind == "pages":
                    self.kills[mutant.module, by] += 1
                return
        self.results.add(Verdict(mutant.key, kind, None, "", digest(*files)))

    def _able(self, mutant: Mutant, kind: str) -> list[Judge]:
        """Those that run the lines; for a constant or a class, all in a file where one runs the module."""
        able = [judge for judge in self.judges[kind] if judge.runs(mutant)]
        if mutant.span[1] == 0:
            files = {judge.file for judge in able}
            able = [judge for judge in self.judges[kind] if judge.file in files]
        return able

    def _steps(self, suite: Suite, mutant: Mutant, kind: str, judges: list[Judge]) -> Iterator[tuple[Step, list[str]]]:
        if kind == "tests" and judges:
            names = [judge.name for judge in judges]

            def test() -> Any:
                try:
                    patch.apply(mutant)
                except Exception as error:  # it cannot even be imported
                    return names[0], type(error).__name__
                killer = suite.killer(names)
                return killer and (killer, "failed")

            yield Step(test, 10 + PATIENCE * sum(judge.seconds for judge in judges)), names
        if kind == "pages":
            for judge in judges:

                def page(judge: Judge = judge) -> Any:
                    try:
                        patch.apply(mutant)
                    except Exception as error:
                        return judge.name, type(error).__name__
                    how = scripts.killer(judge.file)
                    return how and (judge.name, how)

                yield Step(page, 10 + PATIENCE * judge.seconds), [judge.name]

    def _measurements(self, suite: Suite) -> list[Job]:
        files: dict[Path, list[str]] = {}
        for name, item in suite.items.items():
            files.setdefault(Path(item.path), []).append(name)
        pages = sorted((self.root / "gallery").glob("*/*.py"))
        jobs = [self._measure("pages", page, lambda page=page: self._page(page)) for page in pages]
        return jobs + [
            self._measure("tests", file, lambda names=names: suite.measure(names)) for file, names in files.items()
        ]

    def _page(self, page: Path) -> dict[str, Any]:
        name = page.relative_to(self.root).as_posix()
        return {name: lines_run(self.root / "attnkit", lambda: scripts.run(page))}

    def _measure(self, kind: str, file: Path, work: Callable[[], Any]) -> Job:
        package = sorted((self.root / "attnkit").glob("*.py"))
        name = file.relative_to(self.root).as_posix().replace("/", "-")
        kept = self.cache / "lines" / f"{name}-{digest(file, *package)}.json"
        if kept.exists():
            measured = json.loads(kept.read_text(encoding="utf-8"))
        else:
            measured = yield Step(work, SLOWEST_BASELINE)
            if isinstance(measured, Died):
                self.say(f"{name}: judges nothing, for without any mutant it ended by {measured.cause}")
                return
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(measured), encoding="utf-8")
        self.judges[kind] += [Judge(name, file, lines, seconds) for name, (lines, seconds) in measured.items()]


def every_mutant(root: Path, modules: list[str]) -> list[Mutant]:
    """The mutants of the modules, or of all, module by module."""
    files = sorted((root / "attnkit").glob("*.py"))
    unknown = sorted(set(modules) - {file.stem for file in files})
    if unknown:
        raise ValueError(f"modules must be among {', '.join(f.stem for f in files)}; got {', '.join(unknown)}")
    chosen = [file for file in files if not modules or file.stem in modules]
    return [mutant for file in chosen for mutant in mutants(file.stem, file.read_text(encoding="utf-8"), str(file))]
