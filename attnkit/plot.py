r"""What the figures share: four colours that everyone can tell apart, and the annotated heatmap.

The rest of the look is ``paper.mplstyle``, loaded by ``plt.style.use("attnkit.paper")``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

__all__ = ["BLUE", "GREEN", "INK", "PALETTE", "PURPLE", "VERMILLION", "heatmap"]

INK = "#010203"
"""Text and axes; the site shows it in the page's own text colour."""

BLUE = "#0072B2"
"""The first colour of the palette."""

VERMILLION = "#D55E00"
"""The second colour."""

GREEN = "#009E73"
"""The third colour."""

PURPLE = "#CC79A7"
"""The fourth colour."""

PALETTE = (BLUE, VERMILLION, GREEN, PURPLE)
"""From Okabe and Ito (2008), "Color universal design"; each reads on white and on near-black."""


def heatmap(
    ax: Axes,
    weights: Any,
    *,
    x: Sequence[Any] | None = None,
    y: Sequence[Any] | None = None,
    annotate: str | None = None,
    signed: bool = False,
    vmin: float | None = None,
    vmax: float | None = None,
    xlabel: str = "key",
    ylabel: str = "query",
) -> AxesImage:
    r"""Draw a matrix with queries downwards and keys to the right, as the equation is written.

    Weights get a scale that starts at 0 and grows evenly in lightness; signed data get a diverging
    one, white at 0.

    Args:
        ax: where to draw.
        weights: shape (T, S); a tensor or an array.
        x: S tick labels; numbers without them.
        y: T tick labels; numbers without them.
        annotate: format of a number in each cell, such as ``".2f"``; none unless given.
        signed: whether the sign of the data matters.
        vmin: value of the lowest colour; 0, or minus ``vmax`` for signed data, unless given.
        vmax: value of the highest colour; the largest magnitude unless given.
        xlabel: name of the horizontal axis.
        ylabel: name of the vertical axis.

    Returns:
        The image, for ``figure.colorbar``.

    Raises:
        ValueError: ``weights`` is not a matrix or has no cells, or the labels do not match its size.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> image = heatmap(plt.figure().gca(), torch.eye(2), annotate=".0f")
        >>> image.get_clim()
        (0.0, 1.0)
    """
    cells = torch.as_tensor(weights).detach().double()
    if cells.ndim != 2 or cells.numel() == 0:
        raise ValueError(f"weights must have shape (T, S) with at least one cell, got {tuple(cells.shape)}")
    for name, labels, size in (("y", y, cells.shape[0]), ("x", x, cells.shape[1])):
        if labels is not None and len(labels) != size:
            raise ValueError(f"{name} must hold one label per cell: got {len(labels)} for {size}")
    vmax = float(cells.abs().max()) if vmax is None else vmax
    vmin = (-vmax if signed else 0.0) if vmin is None else vmin
    # interpolation="none" stores one pixel per cell and lets the viewer scale it without blur.
    image = ax.imshow(
        cells.numpy(),
        cmap="RdBu_r" if signed else "cividis",
        vmin=vmin,
        vmax=vmax,
        interpolation="none",
        aspect="equal",
    )
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if x is not None:
        ax.set_xticks(range(len(x)), x)
    if y is not None:
        ax.set_yticks(range(len(y)), y)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if annotate is not None:
        colours = image.to_rgba(cells.numpy())
        for (i, j), value in np.ndenumerate(cells.numpy()):
            ax.text(j, i, format(value, annotate), ha="center", va="center", color=_readable_on(colours[i, j]))
    return image


def _readable_on(rgba: Any) -> str:
    """Black or white, whichever has more contrast (WCAG 2.2)."""
    luminance = _luminance(rgba)
    contrast = {"black": (luminance + 0.05) / 0.05, "white": 1.05 / (luminance + 0.05)}
    return max(contrast, key=contrast.__getitem__)


def _luminance(rgba: Any) -> float:
    """Relative luminance (WCAG 2.2): 0 for black, 1 for white."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgba[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
