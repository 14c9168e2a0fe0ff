"""Laws of positions: rotations, sinusoids and ALiBi, for all shapes, layouts and positions; after each a number."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import DTYPES, STRIDES, leading, randn, restrided, seeds, sizes

from attnkit import (
    alibi_bias,
    alibi_slopes,
    attention_scores,
    positions_from_mask,
    rotary_frequencies,
    rotate,
    sinusoidal_encoding,
)

layouts = st.sampled_from(("interleaved", "half"))
halves = st.integers(0, 4)
shifts = st.integers(-1000, 1000)


def close(actual, wanted, atol=1e-11):
    torch.testing.assert_close(actual, wanted, atol=atol, rtol=0)


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


def places(seed, n):
    """Positions, whole and broken, of both signs."""
    return 100 * randn(seed, n)


QUARTER = math.pi / 2


@given(leading, sizes, halves, layouts, seeds)
def test_a_rotation_keeps_lengths_and_angles(axes, T, half, layout, seed):
    x, y = randn(seed, *axes, T, 2 * half), randn(seed + 1, *axes, T, 2 * half)
    at = places(seed, T)
    turned_x, turned_y = (rotate(z, at, layout=layout) for z in (x, y))
    close((turned_x * turned_y).sum(-1), (x * y).sum(-1))
    close(turned_x.norm(dim=-1), x.norm(dim=-1))


def test_a_rotation_by_hand():
    close(rotate(float64(3, 4)[None], float64(QUARTER)), float64(-4, 3)[None])


@given(leading, sizes, sizes, halves, layouts, shifts, seeds)
def test_scores_of_rotated_tokens_depend_on_position_differences_alone(axes, T, S, half, layout, shift, seed):
    q, k = randn(seed, *axes, T, 2 * half), randn(seed + 1, *axes, S, 2 * half)

    def scores(start):
        queries = rotate(q, torch.arange(T) + start, layout=layout)
        return attention_scores(queries, rotate(k, torch.arange(S) + start, layout=layout))

    close(scores(shift), scores(0))


def test_scores_of_rotated_tokens_by_hand():
    # a unit vector against itself, d positions away: cos d
    one = float64(1, 0).expand(3, 2)
    close(attention_scores(rotate(one), rotate(one), scale=1.0)[2], float64(math.cos(2), math.cos(1), 1))


@given(leading, sizes, halves, layouts, seeds)
def test_rotations_compose_by_adding_positions_and_are_undone_by_the_negative(axes, T, half, layout, seed):
    x, first, second = randn(seed, *axes, T, 2 * half), places(seed, T), places(seed + 1, T)
    twice = rotate(rotate(x, first, layout=layout), second, layout=layout)
    close(twice, rotate(x, first + second, layout=layout))
    close(rotate(rotate(x, first, layout=layout), -first, layout=layout), x)
    assert torch.equal(rotate(x, torch.zeros(T), layout=layout), x)


def test_rotations_compose_by_hand():
    close(rotate(rotate(float64(3, 4)[None], float64(QUARTER)), float64(QUARTER)), float64(-3, -4)[None])


@given(leading, sizes, halves, seeds)
def test_layouts_are_permutations_of_each_other(axes, T, half, seed):
    """Evens first, then odds, turns the interleaved layout into the half layout."""
    x, at = randn(seed, *axes, T, 2 * half), places(seed, T)
    order = torch.arange(2 * half).view(half, 2).T.flatten()
    assert torch.equal(rotate(x, at)[..., order], rotate(x[..., order], at, layout="half"))


def test_layouts_by_hand():
    x, at = float64(1, 2, 3, 4)[None], float64(QUARTER)
    close(rotate(x, at, base=1.0), float64(-2, 1, -4, 3)[None])
    close(rotate(x, at, base=1.0, layout="half"), float64(-3, -4, 1, 2)[None])


@given(leading, sizes, halves, halves, layouts, st.sampled_from(DTYPES), seeds)
def test_partial_rotation_turns_the_first_features_and_leaves_the_rest(axes, T, half, rest, layout, dtype, seed):
    x = randn(seed, *axes, T, 2 * half + rest, dtype=dtype)
    turned = rotate(x, layout=layout, rotary_dim=2 * half)
    assert turned.dtype == dtype
    assert torch.equal(turned[..., 2 * half :], x[..., 2 * half :])
    assert torch.equal(turned[..., : 2 * half], rotate(x[..., : 2 * half], layout=layout))


def test_partial_rotation_by_hand():
    close(rotate(float64(3, 4, 5)[None], float64(QUARTER), rotary_dim=2), float64(-4, 3, 5)[None])


@given(leading, sizes, halves, layouts, st.sampled_from(DTYPES), st.sampled_from(STRIDES), seeds)
def test_dtype_and_strides_change_a_rotation_by_its_rounding_only(axes, T, half, layout, dtype, how, seed):
    """In half precision: the float64 result of the same numbers, rounded once."""
    x = randn(seed, *axes, T, 2 * half, dtype=dtype)
    turned = rotate(restrided(x, how), layout=layout)
    assert torch.equal(turned, rotate(x, layout=layout))
    wide = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32)
    largest = 1 + (x.abs().max().item() if x.numel() else 0)
    close(turned.double(), rotate(x.double(), layout=layout), 2 * largest * (torch.finfo(dtype).eps + 8 * wide.eps))


@given(st.integers(1, 4), st.integers(1, 3), sizes, halves, seeds)
def test_positions_of_each_sequence_broadcast_over_heads(B, H, T, half, seed):
    x, at = randn(seed, B, H, T, 2 * half), places(seed, B * T).view(B, 1, T)
    together = rotate(x, at)
    for b in range(B):
        for h in range(H):
            close(together[b, h], rotate(x[b, h], at[b, 0]), 1e-13)


def test_frequencies_by_hand():
    assert rotary_frequencies(6, 8.0, dtype=torch.float64).tolist() == pytest.approx([1, 0.5, 0.25], abs=1e-15)


@given(leading, st.integers(1, 9), shifts, seeds)
def test_a_shifted_sinusoid_is_a_rotated_one(axes, d_model, shift, seed):
    """PE(p + s): each pair (sine, cosine) turned by −s ω; and each has length 1."""
    at = 100 * randn(seed, *axes)
    encoding = sinusoidal_encoding(at, 2 * d_model)
    shifted = sinusoidal_encoding(at + shift, 2 * d_model)
    turned = rotate(encoding.unsqueeze(-2), torch.tensor([-shift])).squeeze(-2)
    close(shifted, turned)
    close(encoding.square().sum(-1), torch.full(axes, float(d_model), dtype=torch.float64))


def test_a_sinusoid_by_hand():
    close(sinusoidal_encoding(float64(QUARTER), 4, base=4.0), float64(1, 0, 0.5**0.5, 0.5**0.5)[None])


@given(st.integers(1, 70))
def test_slopes_have_their_closed_form_and_no_two_heads_one(n_heads):
    slopes = alibi_slopes(n_heads).double()
    power = 2 ** int(math.log2(n_heads))
    for h, slope in enumerate(slopes.tolist()):
        exponent = -8 * (h + 1) / power if h < power else -8 * (2 * (h - power) + 1) / (2 * power)
        assert slope == pytest.approx(2**exponent, rel=1e-6)
    assert slopes.unique().numel() == n_heads, "two heads alike"


def test_slopes_by_hand():
    assert alibi_slopes(3).tolist() == [1 / 16, 1 / 256, 1 / 4]


@given(st.integers(1, 12), sizes, sizes, st.integers(-9, 9))
def test_alibi_depends_on_query_minus_key_alone(n_heads, T, S, offset):
    bias = alibi_bias(n_heads, T, S, offset=offset)
    assert bias.shape == (n_heads, T, S)
    assert torch.equal(bias[:, 1:, 1:], bias[:, :-1, :-1])  # constant along diagonals
    longer = alibi_bias(n_heads, T + 2, S, offset=offset - 2)
    assert torch.equal(longer[:, 2:], bias)
    for h, slope in enumerate(alibi_slopes(n_heads)):
        distance = torch.tensor([[i + offset - j for j in range(S)] for i in range(T)]).view(T, S)
        close(bias[h], -slope * distance, 1e-6)


def test_alibi_by_hand():
    assert alibi_bias(2, 2, 3, offset=1)[0].tolist() == [[-1 / 16, 0, 1 / 16], [-2 / 16, -1 / 16, 0]]


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 4))
def test_left_padding_shifts_no_position(valid, pad):
    mask = torch.tensor(valid, dtype=torch.bool)
    padded = torch.cat([torch.zeros(pad, dtype=torch.bool), mask])
    assert positions_from_mask(mask)[mask].tolist() == list(range(sum(valid)))
    assert torch.equal(positions_from_mask(padded)[pad:], positions_from_mask(mask))


def test_left_padding_by_hand():
    assert positions_from_mask(torch.tensor([False, True, False, True])).tolist() == [0, 0, 0, 1]


@given(st.integers(1, 9), st.integers(0, 9))
def test_sizes_that_do_not_fit_a_rotation_are_both_named(T, other):
    assume(other not in (1, T))
    with pytest.raises(ValueError, match=rf"\b{T}\b.*\b{other}\b"):
        rotate(torch.zeros(T, 2), torch.zeros(other))
    if other % 2 or other > T:
        with pytest.raises(ValueError, match=rf"\b{other}\b.*\b{T}\b"):
            rotate(torch.zeros(2, T), rotary_dim=other)
