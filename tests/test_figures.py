"""A figure is one SVG for both colour schemes, with a size and the same bytes every time."""

import base64
import io

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from attnkit import plot
from hooks import figures


@pytest.fixture
def drawn(tmp_path):
    """A function that draws a figure afresh and returns its file, finished, and its size."""

    def draw(name):
        with mpl.rc_context(), plt.style.context("attnkit.paper"):
            fig, ax = plt.subplots()
            ax.plot([0, 1], label="line")
            ax.fill_between([0, 1], [0, 1])
            ax.legend()
            fig.savefig(tmp_path / name, metadata={"Date": None, "Creator": None})
            plt.close(fig)
        return tmp_path / name, figures.finish(tmp_path / name)

    return draw


def test_ink_becomes_the_text_colour_of_the_readers_scheme(drawn):
    svg = drawn("a.svg")[0].read_text(encoding="utf-8")
    assert plot.INK not in svg
    assert "currentColor" in svg
    assert "@media (prefers-color-scheme:dark)" in svg


def test_the_size_is_that_of_the_style_in_css_pixels(drawn):
    assert drawn("a.svg")[1] == (461, 288)  # 4.8 by 3 inches at 96 pixels


def test_two_drawings_give_the_same_bytes(drawn):
    assert drawn("a.svg")[0].read_bytes() == drawn("b.svg")[0].read_bytes()


def test_no_date_and_no_version_is_left(drawn):
    svg = drawn("a.svg")[0].read_text(encoding="utf-8")
    assert "<metadata" not in svg
    assert "<!--" not in svg


def test_a_file_that_is_no_figure_is_an_error(tmp_path):
    (tmp_path / "x.svg").write_text("<p>", encoding="utf-8")
    with pytest.raises(figures.FigureError, match=r"x\.svg is not an SVG"):
        figures.finish(tmp_path / "x.svg")


def test_pixels_in_a_figure_take_a_byte_each_and_keep_their_colours():
    colours = np.random.default_rng(0).integers(0, 256, (200, 4), dtype=np.uint8)
    pixels = colours[np.random.default_rng(1).integers(0, 200, (48, 48))]
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    before = base64.b64encode(stored.getvalue()).decode()
    after = figures._smaller(before)
    assert len(after) < len(before)
    assert (np.asarray(Image.open(io.BytesIO(base64.b64decode(after))).convert("RGBA")) == pixels).all()
