"""``python -m benchmarks.mutants [module …]``: judge the mutants and write ``benchmarks/mutants.md``."""

import argparse
import os
import sys
from pathlib import Path

os.environ.update({"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"})  # before torch and matplotlib are imported

from benchmarks.mutants import report
from benchmarks.mutants.results import Results
from benchmarks.mutants.run import Run, every_mutant


def main(arguments: list[str]) -> int:
    """Return 0 when the table is written."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", help="modules of attnkit, such as rotary; all unless given")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (%(default)s)")
    parser.add_argument("--only", choices=("tests", "pages"), help="judge by one of the two")
    parser.add_argument("--table", action="store_true", help="write the table of what is known, and judge nothing")
    chosen = parser.parse_args(arguments)
    root = Path.cwd()
    if not chosen.table:
        os.nice(10)
        judges = [chosen.only] if chosen.only else ["tests", "pages"]
        Run(root, chosen.modules, lambda line: print(line, file=sys.__stderr__, flush=True)).go(chosen.workers, judges)
    found = every_mutant(root, [])
    results = Results(root / ".cache/mutants/verdicts.jsonl")
    equal = report.equivalents(root, found, results)
    (root / "benchmarks/mutants.md").write_text(report.table(found, results, equal), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
