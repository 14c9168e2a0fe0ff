"""Figures: the palette, the style sheet that repeats it, and the heatmap, cell by cell."""

import itertools
import re

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from attnkit import plot
from attnkit.plot import heatmap


@pytest.fixture
def ax():
    return Figure().add_subplot()


@pytest.fixture(scope="module")
def style():
    with mpl.style.context("attnkit.paper", after_reset=True):
        yield mpl.rcParams.copy()


def luminance(colour):
    """Relative luminance, WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


# Palette and style


def test_the_palette_is_okabe_and_itos():
    assert plot.PALETTE == (plot.BLUE, plot.VERMILLION, plot.GREEN, plot.PURPLE)
    assert [colour.upper() for colour in plot.PALETTE] == ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]


@pytest.mark.parametrize("colour", plot.PALETTE)
@pytest.mark.parametrize("page", ["#ffffff", "#1e2129"])
def test_every_colour_reads_on_the_light_page_and_on_the_dark_one(colour, page):
    assert contrast(colour, page) >= 3.0  # WCAG 2.2, success criterion 1.4.11


def test_ink_is_a_colour_that_nothing_else_uses():
    assert re.fullmatch(r"#[0-9a-f]{6}", plot.INK)
    assert plot.INK not in ("#000000", "#ffffff", *plot.PALETTE)


def test_the_style_sheet_repeats_palette_and_ink(style):
    cycle = style["axes.prop_cycle"].by_key()
    assert [to_hex(colour) for colour in cycle["color"]] == [colour.lower() for colour in plot.PALETTE]
    assert len(set(cycle["linestyle"])) == len(plot.PALETTE)
    inked = ["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor"]
    assert {to_hex(style[key]) for key in [*inked, "grid.color"]} == {plot.INK}


def test_the_style_sheet_keeps_text_readable_on_a_phone(style):
    sizes = ["font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"]
    assert all(float(style[key]) >= 9.5 for key in sizes)
    assert style["figure.figsize"][0] == 4.8


def test_the_style_sheet_leaves_the_background_to_the_page(style):
    assert {style[key] for key in ("figure.facecolor", "axes.facecolor", "savefig.facecolor")} == {"none"}


def test_the_style_sheet_makes_drawings_reproducible(style):
    assert style["svg.hashsalt"] == "attnkit"
    assert style["svg.fonttype"] == "path"
    assert style["image.cmap"] == "cividis"


# heatmap


def test_queries_run_down_and_keys_to_the_right(ax):
    weights = torch.arange(15.0).view(3, 5)
    image = heatmap(ax, weights)
    assert np.array_equal(image.get_array(), weights.numpy())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    left, right, bottom, top = image.get_extent()
    assert (left, right) == (-0.5, 4.5)
    assert (bottom, top) == (2.5, -0.5)
    assert ax.get_aspect() == 1.0
    assert image in ax.images


def test_weights_start_at_zero_and_signed_data_are_symmetric(ax):
    data = torch.tensor([[-3.0, 0.5], [1.0, 2.0]])
    image = heatmap(ax, data.abs())
    assert (image.get_clim(), image.get_cmap().name) == ((0.0, 3.0), "cividis")
    image = heatmap(ax, data, signed=True)
    assert (image.get_clim(), image.get_cmap().name) == ((-3.0, 3.0), "RdBu_r")
    assert image.to_rgba(0.0)[:3] == pytest.approx((1.0, 1.0, 1.0), abs=0.04)
    red, _, blue, _ = image.to_rgba(2.0)
    assert red > blue


def test_limits_that_are_given_are_kept(ax):
    data = torch.tensor([[0.25, 0.5]])
    assert heatmap(ax, data, vmax=1.0).get_clim() == (0.0, 1.0)
    assert heatmap(ax, data, vmin=0.1).get_clim() == (0.1, 0.5)
    assert heatmap(ax, data, signed=True, vmax=2.0).get_clim() == (-2.0, 2.0)
    assert heatmap(ax, data, signed=True, vmin=-1.0, vmax=2.0).get_clim() == (-1.0, 2.0)


def test_cells_are_not_blurred(ax):
    assert heatmap(ax, torch.eye(3)).get_interpolation() == "none"


def test_labels_are_put_on_their_axes(ax):
    heatmap(ax, torch.zeros(2, 3), x=["a", "b", "c"], y=("q", "r"), xlabel="symbol", ylabel="step")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["q", "r"]
    assert (ax.get_xticks().tolist(), ax.get_yticks().tolist()) == ([0, 1, 2], [0, 1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("symbol", "step")


def test_labels_may_be_a_string_or_numbers(ax):
    heatmap(ax, torch.zeros(2, 3), x="abc", y=range(5, 7))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["5", "6"]


def test_there_is_no_frame_around_the_cells(ax):
    heatmap(ax, torch.eye(3))
    assert not any(spine.get_visible() for spine in ax.spines.values())
    ax.figure.draw_without_rendering()
    assert all(line.get_markersize() == 0 for line in (*ax.get_xticklines(), *ax.get_yticklines()))


def test_numbers_stand_in_their_own_cells_and_only_if_asked_for(ax):
    heatmap(ax, torch.tensor([[0.0, 0.125, 1.0], [0.5, 0.375, 0.25]]), annotate=".3f")
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {
        (0, 0): "0.000",
        (1, 0): "0.125",
        (2, 0): "1.000",
        (0, 1): "0.500",
        (1, 1): "0.375",
        (2, 1): "0.250",
    }
    assert {(text.get_ha(), text.get_va()) for text in ax.texts} == {("center", "center")}
    assert len(heatmap(Figure().add_subplot(), torch.eye(2)).axes.texts) == 0


@pytest.mark.parametrize("signed", [False, True])
def test_every_number_has_the_better_of_two_contrasts_on_its_cell(ax, signed):
    data = torch.linspace(-1 if signed else 0, 1, 101)[None]
    image = heatmap(ax, data, signed=signed, annotate=".2f")
    for text, value in zip(ax.texts, data[0].tolist(), strict=True):
        cell = image.to_rgba(value)[:3]
        other = "white" if text.get_color() == "black" else "black"
        assert {text.get_color(), other} == {"black", "white"}
        assert contrast(text.get_color(), cell) >= contrast(other, cell)
        assert contrast(text.get_color(), cell) >= 4.5


@pytest.mark.parametrize("colour", list(itertools.product((0.0, 0.035, 0.04045, 0.06, 0.2, 0.5, 0.9, 1.0), repeat=3)))
def test_luminance_is_that_of_the_guidelines(colour):
    assert plot._luminance((*colour, 1.0)) == pytest.approx(luminance(colour), abs=1e-15)


@pytest.mark.parametrize(
    ("colour", "expected"),
    [("#000000", 0.0), ("#ffffff", 1.0), ("#ff0000", 0.2126), ("#00ff00", 0.7152), ("#0000ff", 0.0722)],
)
def test_luminance_of_pure_colours(colour, expected):
    assert plot._luminance(to_rgb(colour)) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("grey", range(256))
def test_text_takes_the_better_contrast_on_every_grey(grey):
    cell = (grey / 255,) * 3
    assert plot._readable_on(cell) == max(("black", "white"), key=lambda text: contrast(text, cell))


@pytest.mark.parametrize(
    "weights",
    [
        torch.eye(3, requires_grad=True),
        torch.eye(3, dtype=torch.bfloat16),
        torch.eye(3, dtype=torch.bool),
        torch.eye(3, dtype=torch.int64),
        np.eye(3),
        np.eye(3).tolist(),
        torch.eye(6)[::2, ::2],
    ],
)
def test_whatever_holds_a_matrix_may_be_drawn(ax, weights):
    assert np.array_equal(heatmap(ax, weights, annotate=".0f").get_array(), np.eye(3))


def test_a_matrix_of_zeros_may_be_drawn(ax):
    for signed in (False, True):
        heatmap(ax, torch.zeros(2, 3), annotate=".1f", signed=signed)
    ax.figure.canvas.draw()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5)])
def test_only_a_matrix_may_be_drawn(ax, shape):
    with pytest.raises(ValueError, match=rf"^weights must have shape \(T, S\) .*got {re.escape(str(shape))}$"):
        heatmap(ax, torch.zeros(shape))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_a_matrix_without_cells_is_an_error_that_names_it(ax, shape):
    with pytest.raises(ValueError, match=rf"^weights must .* at least one cell, got {re.escape(str(shape))}$"):
        heatmap(ax, torch.zeros(shape))


def test_labels_must_match_the_cells(ax):
    for x, y in itertools.product((2, 3, 4), (2, 3)):
        if (x, y) == (3, 2):
            continue
        name, got, size = ("y", y, 2) if y != 2 else ("x", x, 3)
        with pytest.raises(ValueError, match=f"^{name} must hold one label per cell: got {got} for {size}$"):
            heatmap(ax, torch.zeros(2, 3), x=range(x), y=range(y))


def test_cells_are_square_whatever_the_reader_has_set(ax):
    with mpl.rc_context({"image.aspect": "auto"}):
        heatmap(ax, torch.eye(2))
    assert ax.get_aspect() == 1
