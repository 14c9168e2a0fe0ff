"""The table of the mutants, as Markdown."""

import tomllib
from pathlib import Path

from benchmarks.mutants.results import Results
from benchmarks.mutants.rules import Mutant


def equivalents(root: Path, found: list[Mutant], results: Results) -> set[str]:
    """Keys of the mutants proved equivalent in ``benchmarks/mutants/equivalent.toml``.

    Raises:
        ValueError: an entry has no proof, fits no mutant, or fits only mutants that a test kills.
    """
    keys = set()
    file = root / "benchmarks/mutants/equivalent.toml"
    for entry in tomllib.loads(file.read_text(encoding="utf-8")).get("equivalent", []):
        for change in entry["changes"]:
            fitting = [m for m in found if (m.module, m.text, m.change) == (entry["module"], entry["line"], change)]
            alive = {m.key for m in fitting if not _killed(m, results)}
            if not alive or not entry["proof"].strip():
                what = "lacks a proof" if alive else "is killed by a test" if fitting else "fits no mutant"
                raise ValueError(f"{entry['module']}: {change} in {entry['line']!r} {what}")
            keys |= alive
    return keys


def _killed(mutant: Mutant, results: Results) -> bool:
    verdict = results.get(mutant.key, "tests")
    return verdict is not None and verdict.by is not None


def table(found: list[Mutant], results: Results, equal: set[str]) -> str:
    """Module by module: how many mutants, and the share that was killed; then the survivors by line."""
    lines = [
        "| module | mutants | equivalent | input checks | killed by tests | by the pages, input checks left out |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    modules = sorted({mutant.module for mutant in found})
    for module in [*modules, "all"]:
        own = [m for m in found if module in ("all", m.module)]
        proper = [m for m in own if m.key not in equal]
        checks = [m for m in proper if m.check]
        cells = (
            f"`{module}`" if module != "all" else "**all**",
            len(own),
            len(own) - len(proper),
            len(checks),
            _share(proper, results, "tests"),
            _share([m for m in proper if not m.check], results, "pages"),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", *_survivors(found, results, equal), ""])


def _share(chosen: list[Mutant], results: Results, judge: str) -> str:
    verdicts = [verdict for m in chosen if (verdict := results.get(m.key, judge)) is not None]
    if not verdicts:
        return "–"
    killed = sum(verdict.by is not None for verdict in verdicts)
    return f"{killed} of {len(verdicts)} = {int(1000 * killed / len(verdicts)) / 10:.1f} %"


def _survivors(found: list[Mutant], results: Results, equal: set[str]) -> list[str]:
    lines = []
    for judge, title in (("tests", "Survived the tests"), ("pages", "Survived the pages, input checks left out")):
        if not any(results.get(m.key, judge) for m in found):
            continue  # nobody was asked: "None." would say that none survived
        lines += [f"## {title}", ""]
        none = len(lines)
        for module in sorted({m.module for m in found}):
            alive = [
                f"line {m.line}, {m.rule}: `{m.change if len(m.change) < 90 else m.change[:89] + '…'}`"
                for m in found
                if m.module == module and m.key not in equal and not (judge == "pages" and m.check)
                if (verdict := results.get(m.key, judge)) is not None and verdict.by is None
            ]
            if alive:
                summary = f"<summary>{module}: {len(alive)}</summary>"
                lines += [f'<details markdown="1">{summary}', "", *(f"- {one}" for one in alive), "", "</details>", ""]
        if len(lines) == none:
            lines += ["None.", ""]
    return lines
