"""Run a trained page with other seeds and report, claim by claim, what was measured.

    python benchmarks/seeds.py gallery/4_recurrence/adding_problem.py --seeds 10

The page must hold one line ``seed = 0``. The report is Markdown, on standard output. Claims of a page
that stopped at a false one are counted up to there.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def run(page, seed):
    """Output, error, and seconds of the page with its seed line replaced."""
    source, lines = re.subn(r"^seed = \d+$", f"seed = {seed}", page.read_text(), flags=re.MULTILINE)
    if lines != 1:
        raise SystemExit(f"{page} must hold exactly one line 'seed = 0', found {lines}")
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=source,
        text=True,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    )
    failure = (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""
    return done.stdout, failure, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--seeds", type=int, default=10, help="run seeds 0 to this, exclusive")
    arguments = parser.parse_args()

    measured, failures, seconds = {}, {}, []
    for seed in range(arguments.seeds):
        output, failure, duration = run(arguments.page, seed)
        seconds.append(duration)
        if failure:
            failures[seed] = failure
        for statement, result in re.findall(r"^✓ (.+?)   (.+)$", output, flags=re.MULTILINE):
            measured.setdefault(statement, []).append(result)

    passed = arguments.seeds - len(failures)
    print(
        f"{arguments.page}: {passed} of {arguments.seeds} seeds pass, {min(seconds):.1f} to {max(seconds):.1f} s each\n"
    )
    print("| claim | held | measured | allowed |\n|---|---|---|---|")
    for statement, results in measured.items():
        # "0.0019 < 0.01", "off by 3e-07, allowed 1e-06" or "true in all 5 cases"
        parts = [re.fullmatch(r"(?:off by )?(\S+?),? ((?:allowed|<|>) .+)", result) for result in results]
        if all(parts):
            numbers = sorted((part[1] for part in parts), key=float)
            print(f"| {statement} | {len(results)} | {numbers[0]} to {numbers[-1]} | {parts[0][2]} |")
        else:
            print(f"| {statement} | {len(results)} | {results[0]} | |")
    for seed, failure in failures.items():
        print(f"\nseed {seed}: {failure}")


if __name__ == "__main__":
    main()
