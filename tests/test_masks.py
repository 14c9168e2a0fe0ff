"""Masks: drawn by hand, against the inequality that defines each, and in the attention they serve."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from attnkit.masks import causal_mask, padding_mask, sliding_window_mask

# T and S, both orders and equal, among them empty axes.
SIZES = [(5, 7), (7, 5), (5, 5), (1, 7), (7, 1), (0, 5), (5, 0), (0, 0)]
OFFSETS = [-9, -5, -2, -1, 0, 1, 2, 5, 9]


def drawn(picture):
    """A mask from its picture: x is visible, a dot is not."""
    return torch.tensor([[c == "x" for c in row] for row in picture.split()])


# causal_mask


def test_a_causal_mask_is_lower_triangular_with_its_diagonal():
    assert torch.equal(causal_mask(5), drawn("x.... xx... xxx.. xxxx. xxxxx"))


def test_a_causal_mask_with_more_keys_starts_top_left_unless_offset():
    assert torch.equal(causal_mask(3, 5), drawn("x.... xx... xxx.."))
    assert torch.equal(causal_mask(3, 5, offset=2), drawn("xxx.. xxxx. xxxxx"))
    assert torch.equal(causal_mask(3, 5, offset=-1), drawn("..... x.... xx..."))


def test_a_causal_mask_with_fewer_keys():
    assert torch.equal(causal_mask(5, 3), drawn("x.. xx. xxx xxx xxx"))
    assert torch.equal(causal_mask(5, 3, offset=3 - 5), drawn("... ... x.. xx. xxx"))


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize(("T", "S"), SIZES)
def test_a_causal_mask_is_its_inequality(T, S, offset):
    mask = causal_mask(T, S, offset=offset)
    assert mask.dtype == torch.bool
    assert mask.shape == (T, S)
    assert mask.tolist() == [[j <= i + offset for j in range(S)] for i in range(T)]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize(("T", "S"), SIZES)
def test_a_causal_mask_equals_tril(T, S, offset):
    assert torch.equal(causal_mask(T, S, offset=offset), torch.ones(T, S, dtype=torch.bool).tril(offset))


def test_the_rows_of_a_cached_step_are_the_last_rows_of_the_whole_mask():
    for T in (1, 3, 7):
        assert torch.equal(causal_mask(T, 7, offset=7 - T), causal_mask(7)[7 - T :])


def test_two_lengths_in_a_row():
    for T in (7, 11, 7):
        assert torch.equal(causal_mask(T), torch.ones(T, T, dtype=torch.bool).tril())
        assert sliding_window_mask(T, window=3).sum() == 3 * T - 3
        assert padding_mask([T - 2], T).sum() == T - 2


def test_a_mask_belongs_to_its_caller():
    first = causal_mask(3)
    first[:] = False
    assert causal_mask(3).sum() == 6


def test_polarity_against_both_of_torchs_conventions():
    zeros = torch.zeros(1, 3, 1)
    v = torch.tensor([[[0.0], [1.0], [2.0]]])
    assert scaled_dot_product_attention(zeros, zeros, v, attn_mask=causal_mask(3)).flatten().tolist() == [0, 0.5, 1]
    mha = nn.MultiheadAttention(1, 1, bias=False, batch_first=True)
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
        mha.out_proj.weight.fill_(1.0)
        out, _ = mha(v, v, v, attn_mask=~causal_mask(3))
    assert out.flatten().tolist() == [0.0, 0.5, 1.0]


def test_polarity_of_all_three_masks_is_the_same():
    # The first query and the first key always see each other; the future and the padding are hidden.
    for mask in (causal_mask(3), sliding_window_mask(3, window=2), padding_mask([1], 3)[0, 0]):
        assert mask[0, 0]
        assert not mask[0, 2]


# sliding_window_mask


def test_a_window_of_three_holds_the_own_key_and_two_before():
    assert torch.equal(sliding_window_mask(5, window=3), drawn("x.... xx... xxx.. .xxx. ..xxx"))


def test_a_window_with_an_offset():
    assert torch.equal(sliding_window_mask(3, 5, window=2, offset=2), drawn(".xx.. ..xx. ...xx"))
    assert torch.equal(sliding_window_mask(4, 3, window=2, offset=-2), drawn("... ... x.. xx."))
    assert torch.equal(sliding_window_mask(3, 2, window=2, offset=1), drawn("xx .x .."))


@pytest.mark.parametrize("window", [1, 2, 3, 11])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize(("T", "S"), SIZES)
def test_a_window_is_its_inequality(T, S, offset, window):
    mask = sliding_window_mask(T, S, window=window, offset=offset)
    assert mask.dtype == torch.bool
    assert mask.shape == (T, S)
    assert mask.tolist() == [[0 <= i + offset - j < window for j in range(S)] for i in range(T)]


def test_a_window_counts_its_keys():
    assert sliding_window_mask(11, window=5).sum(-1).tolist() == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5]


def test_a_window_of_one_is_the_diagonal_and_a_long_one_is_causal():
    assert torch.equal(sliding_window_mask(7, window=1), torch.eye(7, dtype=torch.bool))
    assert torch.equal(sliding_window_mask(7, window=7), causal_mask(7))
    assert not torch.equal(sliding_window_mask(7, window=6), causal_mask(7))


def test_a_window_is_what_is_causal_now_and_was_not_causal_one_window_ago():
    for offset in OFFSETS:
        expected = causal_mask(5, 7, offset=offset) & ~causal_mask(5, 7, offset=offset - 3)
        assert torch.equal(sliding_window_mask(5, 7, window=3, offset=offset), expected)


# padding_mask


def test_padding_by_hand():
    mask = padding_mask([3, 0, 5, 1], 5)
    assert mask.shape == (4, 1, 1, 5)
    assert torch.equal(mask[:, 0, 0], drawn("xxx.. ..... xxxxx x...."))


def test_padding_broadcasts_over_heads_and_queries_and_combines_with_causal():
    mask = causal_mask(5) & padding_mask([2, 4], 5)
    assert mask.shape == (2, 1, 5, 5)
    assert torch.equal(mask[0, 0], drawn("x.... xx... xx... xx... xx..."))
    assert torch.equal(mask[1, 0], drawn("x.... xx... xxx.. xxxx. xxxx."))


@pytest.mark.parametrize(
    "lengths",
    [
        [3, 5],
        (3, 5),
        torch.tensor([3, 5]),
        torch.tensor([3, 5], dtype=torch.int32),
        torch.tensor([3, 5], dtype=torch.uint8),
        np.array([3, 5]),
        torch.tensor([3, 0, 5])[::2],
    ],
)
def test_lengths_may_be_any_integers(lengths):
    assert torch.equal(padding_mask(lengths, 7)[:, 0, 0], drawn("xxx.... xxxxx.."))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_lengths_in_a_narrow_dtype_may_meet_more_keys_than_it_can_count(dtype):
    mask = padding_mask(torch.tensor([0, 1, 101], dtype=dtype), 307)
    assert mask.shape == (3, 1, 1, 307)
    assert mask.sum(-1).flatten().tolist() == [0, 1, 101]


def test_padding_of_no_sequences_and_of_no_keys():
    assert padding_mask([], 5).shape == (0, 1, 1, 5)
    assert padding_mask(torch.zeros(0, dtype=torch.long), 5).shape == (0, 1, 1, 5)
    assert padding_mask([0, 0, 0], 0).shape == (3, 1, 1, 0)
    assert padding_mask([], 5).dtype == torch.bool


# Errors


@pytest.mark.parametrize(("T", "S"), [(-1, None), (-1, 5), (5, -2)])
def test_sizes_must_not_be_negative(T, S):
    where = re.escape(f"T and S must be at least 0, got T = {T}, S = {T if S is None else S}")
    with pytest.raises(ValueError, match=f"^{where}$"):
        causal_mask(T, S)
    with pytest.raises(ValueError, match=f"^{where}$"):
        sliding_window_mask(T, S, window=3)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_must_hold_a_key(window):
    with pytest.raises(ValueError, match=f"^window must be at least 1, got {window}$"):
        sliding_window_mask(5, window=window)


@pytest.mark.parametrize("lengths", [[1.0, 2.0], torch.tensor([1.5]), torch.tensor([1 + 0j]), [True, False]])
def test_lengths_must_be_integers(lengths):
    dtype = torch.as_tensor(lengths).dtype
    with pytest.raises(TypeError, match=f"^lengths must be integers, got {dtype}$"):
        padding_mask(lengths, 5)


@pytest.mark.parametrize("lengths", [[[1, 2], [3, 4]], torch.zeros(2, 0, dtype=torch.long), torch.tensor(3)])
def test_lengths_must_have_one_axis(lengths):
    shape = re.escape(str(tuple(torch.as_tensor(lengths).shape)))
    with pytest.raises(ValueError, match=rf"^lengths must have shape \(batch,\), got {shape}$"):
        padding_mask(lengths, 5)


@pytest.mark.parametrize("lengths", [[3, 6], [-1, 2]])
def test_lengths_must_lie_within_the_keys(lengths):
    with pytest.raises(ValueError, match=rf"^lengths must lie between 0 and S = 5, got {re.escape(str(lengths))}$"):
        padding_mask(lengths, 5)


@pytest.mark.parametrize("sizes", [(-1, 3), (3, -1)])
def test_one_token_less_than_none_is_named(sizes):
    with pytest.raises(ValueError, match=f"got T = {sizes[0]}, S = {sizes[1]}"):
        causal_mask(*sizes)
