"""Run and check the gallery without MkDocs: ``python -m hooks [name …] [--jobs N] [--list] [--why]``."""

import argparse
import sys
from pathlib import Path

from hooks import engine, pages, plugin
from hooks.store import Store


def main(arguments: list[str]) -> int:
    """Return 0 if every chosen script is, or now was, good; 1 if one failed; 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m hooks", description="Run and check the gallery.")
    parser.add_argument("names", nargs="*", help="scripts to run, such as rotary; all unless given")
    parser.add_argument("--jobs", type=int, default=engine.default_jobs(), help="how many at once (%(default)s)")
    parser.add_argument("--list", action="store_true", help="list the scripts and stop")
    parser.add_argument("--why", action="store_true", help="say why each would run, or that it would not, and stop")
    chosen = parser.parse_args(arguments)
    root = Path.cwd()
    every = {script.stem: script for script in plugin.scripts(root)}
    unknown = sorted(set(chosen.names) - every.keys())
    if unknown:
        parser.error(f"no script is named {', '.join(unknown)}; --list shows all {len(every)}")
    if chosen.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {chosen.jobs}")
    scripts = [script for stem, script in every.items() if not chosen.names or stem in chosen.names]
    if chosen.list:
        print(*(script.relative_to(root).as_posix() for script in scripts), sep="\n")
        return 0
    store = Store(root, plugin.options(root))
    with store.lock(print):
        return _check(store, scripts, chosen.why, chosen.jobs, everything=scripts == list(every.values()))


def _check(store: Store, scripts: list[Path], why: bool, jobs: int, *, everything: bool) -> int:
    reasons = {script: store.why(script, store.read(script)) for script in scripts}
    if why:
        for script, reason in reasons.items():
            print(f"{script.stem}: {reason or 'up to date'}")
        return 0
    failures = engine.run(store, [s for s in scripts if reasons[s]], jobs=jobs, say=print)
    for failure in failures:
        print(f"\n{failure.report(store.root)}", file=sys.stderr)
    if not failures and everything:
        store.sweep([record for script in scripts if (record := store.read(script))])
        pages.write_index(store.root / plugin.GALLERY, scripts, store.docs / "gallery")
    print(f"{len(scripts) - len(failures)} of {len(scripts)} scripts are good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
