"""The gallery scripts as judges: run one as the build does, without drawing its figures to a file."""

import warnings
from pathlib import Path


def run(script: Path) -> None:
    """Run the script; whatever would stop the build raises."""
    import matplotlib.pyplot as plt

    from attnkit import claims

    claims.records.clear()
    space = {"__name__": "__main__", "__file__": str(script)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(script.read_text(encoding="utf-8"), script, "exec"), space)
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if not figures or not all(figure.get_label() for figure in figures):
        raise RuntimeError("a figure is missing, or its description")
    if not claims.records:
        raise RuntimeError("no claim was made")


def killer(script: Path) -> str | None:
    """What stopped the script, if anything did."""
    try:
        run(script)
    except BaseException as error:  # SystemExit too: a script that leaves early has not been checked
        return type(error).__name__
    return None
