"""What the kernel of a lab does before the first cell: one thread, warnings as errors, figures for the site."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from IPython.core.getipython import get_ipython
from matplotlib.figure import Figure

from hooks import figures


def prepare() -> None:
    """Make this kernel give the same outputs on every run."""
    torch.set_num_threads(1)
    warnings.filterwarnings("error", module="__main__")
    shell: Any = get_ipython()
    shell.run_line_magic("config", "InlineBackend.figure_formats = ['svg']")
    shell.run_line_magic("matplotlib", "inline")
    shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, drawn)


def drawn(figure: Figure) -> tuple[str, dict[str, Any]]:
    """The figure as the site's SVG; its description and size as metadata of the output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        width, height = figures.save(figure, path)
        alt = figures.description(figure)
        return path.read_text(encoding="utf-8"), {"alt": alt, "width": width, "height": height}
