"""Faults of positions known from public bug reports: the reported input and others of its kind."""

import math

import naive
import pytest
import torch

from attnkit import (
    alibi_bias,
    alibi_slopes,
    attention,
    padding_mask,
    positions_from_mask,
    rotate,
    sinusoidal_encoding,
)

LAYOUTS = ["interleaved", "half"]


def close(actual: torch.Tensor, wanted, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(wanted, dtype=actual.dtype), atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        ("interleaved", [-1.14264, 1.922076, 2.959851, 4.0298]),
        ("half", [-1.984111, 1.959901, 2.462378, 4.0198]),
    ],
)
def test_rotary_layouts_turn_the_pairs_they_name(layout, wanted):
    x = torch.arange(1.0, 5.0, dtype=torch.float64)[None]
    close(rotate(x, torch.tensor([1]), layout=layout)[0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("layout", "wanted"),
    # With base 1 all pairs turn alike; a quarter turn makes (−b, a) of (a, b).
    [("interleaved", [-2, 1, -4, 3, -6, 5]), ("half", [-4, -5, -6, 1, 2, 3])],
)
def test_rotary_layouts_by_a_quarter_turn(layout, wanted):
    x = torch.arange(1.0, 7.0, dtype=torch.float64)[None]
    close(rotate(x, torch.tensor([math.pi / 2], dtype=torch.float64), base=1.0, layout=layout)[0], wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("d", "position"), [(2, 3.0), (6, -2.0), (10, 0.5), (8, 4096.0)])
def test_rotary_layouts_equal_complex_numbers(layout, d, position):
    x = [float(2 * i - 3) for i in range(d)]
    turned = rotate(torch.tensor([x]).double(), torch.tensor([position]).double(), layout=layout)
    close(turned[0], naive.rotated(x, position, layout), atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_axis_is_that_of_tokens_not_of_heads(layout):
    turned = rotate(torch.ones(2, 2, 2, dtype=torch.float64), layout=layout)  # (H, T, d)
    for head in turned:
        close(head, [[1, 1], [-0.3011687, 1.381773]], atol=1e-6)


@pytest.mark.parametrize(("B", "H", "T"), [(1, 5, 3), (2, 3, 1), (4, 2, 7)])
def test_rotary_axis_with_more_heads_or_more_tokens(B, H, T):
    token = torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    turned = rotate(token.expand(B, H, T, 4))
    for p in range(T):
        wanted = torch.tensor(naive.rotated(token.tolist(), p, "interleaved"), dtype=torch.float64)
        close(turned[:, :, p], wanted.expand(B, H, 4))


@pytest.mark.parametrize(
    ("d_model", "base", "position", "wanted"),
    [
        (4, 10000.0, 1, [0.841471, 0.540302, 0.00999983, 0.99995]),  # as reported: speeds 1 and 1/100
        (4, 16.0, 2, [math.sin(2), math.cos(2), math.sin(0.5), math.cos(0.5)]),  # 1 and 1/4
        (6, 8.0, 4, [math.sin(4), math.cos(4), math.sin(2), math.cos(2), math.sin(1), math.cos(1)]),  # 1, 1/2, 1/4
        (2, 7.0, 3, [math.sin(3), math.cos(3)]),  # the first pair has speed 1 whatever the base
    ],
)
def test_sinusoid_exponent_falls_by_pairs(d_model, base, position, wanted):
    close(sinusoidal_encoding(torch.tensor([float(position)]).double(), d_model, base)[0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("d_model", "wanted"),
    [
        (5, [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]),  # as reported
        (1, [0.841471]),
        (3, [0.841471, 0.540302, math.sin(10000 ** (-2 / 3))]),
        (7, [f(10000 ** (-2 * i / 7)) for i in range(4) for f in (math.sin, math.cos)][:7]),
    ],
)
def test_odd_width_ends_with_a_sine_without_its_cosine(d_model, wanted):
    close(sinusoidal_encoding(torch.tensor([1.0]).double(), d_model)[0], wanted, atol=1e-6)


@pytest.mark.parametrize(("n_heads", "first"), [(8, 1 / 2), (4, 1 / 4), (2, 1 / 16), (16, 2**-0.5)])
def test_alibi_start_is_the_ratio_of_the_slopes_not_one(n_heads, first):
    slopes = alibi_slopes(n_heads)
    assert slopes[0] == pytest.approx(first, rel=1e-6)
    assert slopes[-1] == pytest.approx(1 / 256, rel=1e-6)  # whatever the number of heads
    close(slopes[1:] / slopes[:-1], [first] * (n_heads - 1), atol=1e-6)
    close(alibi_bias(n_heads, 2)[:, 1, 0], -slopes, atol=0)


@pytest.mark.parametrize(
    ("n_heads", "wanted"),
    [
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),  # as reported
        (3, [1 / 16, 1 / 256, 1 / 4]),
        (5, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2]),
        (12, [2**-h for h in range(1, 9)] + [2 ** -(h + 0.5) for h in range(4)]),
    ],
)
def test_alibi_of_six_heads_is_that_of_four_and_of_every_other_of_eight(n_heads, wanted):
    close(alibi_slopes(n_heads), wanted, atol=1e-8)


@pytest.mark.parametrize(
    ("valid", "wanted"),
    [
        ([0, 0, 1, 1, 1], [0, 1, 2]),  # as reported
        ([0, 1], [0]),
        ([1, 1, 1], [0, 1, 2]),
        ([0, 0, 0], []),
    ],
)
def test_left_padding_does_not_shift_positions(valid, wanted):
    mask = torch.tensor(valid).bool()
    assert positions_from_mask(mask)[mask].tolist() == wanted


@pytest.mark.parametrize("pad", [1, 2, 5])
def test_left_padding_changes_no_output(pad):
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(pad))
    padded = torch.cat([torch.full((pad, 6), 9.0).double(), x])
    valid = torch.arange(pad + 4) >= pad
    turned = rotate(padded, positions_from_mask(valid))
    wanted, _ = attention(rotate(x), rotate(x), x, padding_mask([4], 4)[0, 0])
    close(attention(turned, turned, padded, valid)[0][pad:], wanted)
