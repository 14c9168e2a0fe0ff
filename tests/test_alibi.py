"""ALiBi: by hand, against a loop, and by its laws.

The axes have different primes throughout: B = 2, H = 3, T = 5, S = 7.
"""

import pytest
import torch

from attnkit.alibi import alibi_bias, alibi_slopes
from attnkit.masks import causal_mask
from attnkit.scaled_dot_product import attention


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=0.0):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# By hand


def test_eight_heads_start_at_a_half():
    # CASES 15; a sequence that starts at 1 is a common slip
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_six_heads_are_four_and_every_other_of_eight():
    # CASES 16; a plain geometric sequence of six is a common slip
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


@pytest.mark.parametrize(
    ("n_heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
        (5, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1]),
        (7, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3, 2**-5]),
    ],
)
def test_few_heads_by_hand(n_heads, slopes):
    assert alibi_slopes(n_heads).tolist() == slopes


def test_sixteen_heads_and_twelve_share_the_first_of_sixteen():
    sixteen, twelve = alibi_slopes(16), alibi_slopes(12)
    exactly(sixteen, 2 ** (-torch.arange(1, 17) / 2), atol=1e-7)
    assert twelve.tolist() == alibi_slopes(8).tolist() + sixteen[[0, 2, 4, 6]].tolist()


def test_the_bias_by_hand():
    assert alibi_bias(2, 2)[0].tolist() == [[0, 2**-4], [-(2**-4), 0]]
    assert alibi_bias(1, 1, 3, offset=2)[0].tolist() == [[-(2**-7), -(2**-8), 0]]


# Against a loop


@pytest.mark.parametrize("offset", [0, 2, -3])
def test_the_bias_is_minus_slope_times_distance(offset):
    bias, slopes = alibi_bias(3, 5, 7, offset=offset), alibi_slopes(3)
    assert bias.shape == (3, 5, 7)
    for h in range(3):
        for i in range(5):
            for j in range(7):
                assert bias[h, i, j] == -slopes[h] * (i + offset - j)


# Laws


def test_under_a_causal_softmax_the_keys_position_is_enough():
    q, k, v = randn(2, 3, 5, 11), randn(2, 3, 5, 11, seed=1), randn(2, 3, 5, 13, seed=2)
    by_key = alibi_slopes(3)[:, None, None] * torch.arange(5)
    out, weights = attention(q, k, v, causal_mask(5), bias=alibi_bias(3, 5))
    same_out, same_weights = attention(q, k, v, causal_mask(5), bias=by_key)
    exactly(weights, same_weights, atol=1e-15)
    exactly(out, same_out, atol=1e-14)


def test_equal_scores_fall_by_the_same_factor_with_each_token():
    zeros = torch.zeros(3, 7, 1, dtype=torch.float64)
    _, weights = attention(zeros, zeros, zeros, causal_mask(7), bias=alibi_bias(3, 7).double())
    ratio = weights[:, -1, :-1] / weights[:, -1, 1:]
    exactly(ratio, torch.exp(-alibi_slopes(3).double())[:, None].expand(3, 6), atol=1e-14)


def test_each_length_in_a_row_is_the_corner_of_a_longer_one():
    # CASES 29: no table of the first length
    longest = alibi_bias(3, 13)
    for T in (7, 11, 7):
        assert torch.equal(alibi_bias(3, T), longest[:, :T, :T])


def test_decoding_with_an_offset_takes_the_rows_of_the_whole():
    whole = alibi_bias(3, 7)
    assert torch.equal(alibi_bias(3, 2, 7, offset=5), whole[:, 5:])
    assert torch.equal(alibi_bias(3, 1, 7, offset=6), whole[:, 6:])


def test_the_default_dtype_is_used_and_half_precision_queries_take_the_bias():
    assert alibi_bias(3, 5).dtype == torch.float32
    q = randn(3, 5, 11).half()
    out, _ = attention(q, q, q, causal_mask(5), bias=alibi_bias(3, 5))
    assert out.dtype == torch.float16


def test_no_queries_or_no_keys_give_an_empty_bias():
    assert alibi_bias(3, 0, 7).shape == (3, 0, 7)
    assert alibi_bias(3, 5, 0).shape == (3, 5, 0)


# Errors


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="n_heads must be at least 1, got 0"):
        alibi_slopes(0)
    with pytest.raises(ValueError, match="n_heads must be at least 1, got -2"):
        alibi_bias(-2, 5)
    with pytest.raises(ValueError, match="T and S must be at least 0, got T = -1, S = 7"):
        alibi_bias(3, -1, 7)


@pytest.mark.parametrize("sizes", [(-1, 3), (3, -1)])
def test_one_token_less_than_none_is_named(sizes):
    with pytest.raises(ValueError, match=f"got T = {sizes[0]}, S = {sizes[1]}"):
        alibi_bias(2, *sizes)
