"""Figures as the site wants them: one SVG for light and dark, with alternative text and a size."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from attnkit.plot import INK
from hooks import pages

# In an <img> the scheme of the reader's system decides; without support the light ink is used.
_TWO_SCHEMES = "<style>svg{color:#24292f}@media (prefers-color-scheme:dark){svg{color:#d5d8de}}</style>"
_PX_PER_PT = 96 / 72
_EMBEDDED = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")


class FigureError(ValueError):
    """A figure cannot be published; the message says what it lacks."""


def scrape(block: Any, script: Any, **_: Any) -> str:
    """Save the open figures of a code block and return the Markdown that shows them (plugin interface)."""
    import matplotlib.pyplot as plt

    markdown = ""
    for number in plt.get_fignums():
        figure = plt.figure(number)
        if not (alt := description(figure)):
            raise FigureError(pages.UNDESCRIBED)
        path = Path(next(script.run_vars.image_path_iterator)).with_suffix(".svg")
        width, height = save(figure, path)
        source = path.relative_to(script.gallery.generated_dir).as_posix()
        markdown += f"\n{pages.image(alt, source, width, height)}\n"
    plt.close("all")
    return markdown


def description(figure: Figure) -> str:
    """What the figure says of itself, on one line; empty if it says nothing."""
    return " ".join(str(figure.get_label()).split())


def save(figure: Figure, path: Path) -> tuple[int, int]:
    """Save a figure as the site wants it; return its size in CSS pixels."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return finish(path)


def finish(path: Path) -> tuple[int, int]:
    """Make an SVG of matplotlib follow the reader's colour scheme; return its size in CSS pixels."""
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r">\s+<", "><", svg).replace(INK, "currentColor")
    svg, found = re.subn(r"(<svg\b[^>]*>)", lambda tag: tag[1] + _TWO_SCHEMES, svg, count=1)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if not found or box is None:
        raise FigureError(f"{path.name} is not an SVG with a viewBox")
    svg = _EMBEDDED.sub(lambda png: _smaller(png[0]), svg)
    path.write_text(svg, encoding="utf-8")
    return round(float(box[1]) * _PX_PER_PT), round(float(box[2]) * _PX_PER_PT)


def _smaller(png: str) -> str:
    """The same pixels with a byte each: a colour map has 256 colours, and matplotlib stores four bytes."""
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA"))
    palette, index = np.unique(pixels.reshape(-1, 4), axis=0, return_inverse=True)
    if len(palette) > 256:
        return png
    image = Image.fromarray(index.reshape(pixels.shape[:2]).astype(np.uint8), mode="L")
    image.putpalette(palette[:, :3].tobytes())
    packed = io.BytesIO()
    image.save(packed, "PNG", optimize=True, transparency=palette[:, 3].tobytes())
    return min(png, base64.b64encode(packed.getvalue()).decode(), key=len)
