"""Laws of masks, for all lengths (T ≠ S, none, one), windows and offsets; after each a mask written out by hand."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import inputs, randn, seeds, sizes

from attnkit import attention, causal_mask, padding_mask, sliding_window_mask

offsets = st.integers(-7, 7)
windows = st.integers(1, 8)


def drawn(mask):
    """A mask as text: # may see, . may not."""
    return ["".join("#" if cell else "." for cell in row) for row in mask.tolist()]


@given(sizes, sizes, offsets, windows)
def test_masks_are_their_inequalities(T, S, offset, window):
    distance = torch.tensor([[i + offset - j for j in range(S)] for i in range(T)]).view(T, S)
    assert torch.equal(causal_mask(T, S, offset=offset), distance >= 0)
    assert torch.equal(sliding_window_mask(T, S, window=window, offset=offset), (distance >= 0) & (distance < window))


def test_masks_by_hand():
    assert drawn(causal_mask(2, 4, offset=2)) == ["###.", "####"]
    assert drawn(sliding_window_mask(3, 4, window=2, offset=1)) == ["##..", ".##.", "..##"]


@given(sizes, sizes, offsets, windows)
def test_a_window_composed_with_causal_is_the_window(T, S, offset, window):
    near = sliding_window_mask(T, S, window=window, offset=offset)
    causal = causal_mask(T, S, offset=offset)
    assert torch.equal(near & causal, near)
    assert torch.equal(near, causal & ~causal_mask(T, S, offset=offset - window))
    assert (near.sum(-1) <= window).all()
    assert torch.equal(sliding_window_mask(T, S, window=100, offset=offset), causal)


def test_a_window_composed_by_hand():
    assert drawn(causal_mask(3) & ~causal_mask(3, offset=-1)) == ["#..", ".#.", "..#"]


@given(sizes, sizes, offsets, st.integers(0, 4), windows)
def test_an_offset_shifts_the_queries(T, S, offset, shift, window):
    """Query i with offset + s is query i + s: both masks depend on i + offset − j alone."""
    for mask, options in ((causal_mask, {}), (sliding_window_mask, {"window": window})):
        later = mask(T, S, offset=offset + shift, **options)
        assert torch.equal(later, mask(T + shift, S, offset=offset, **options)[shift:])
        assert torch.equal(later[:, shift:], mask(T, max(S - shift, 0), offset=offset, **options))


def test_an_offset_by_hand():
    assert drawn(causal_mask(2, 2, offset=-1)) == ["..", "#."]


@given(inputs(), offsets, st.integers(0, 4), seeds)
def test_a_changed_key_changes_no_query_before_it(call, offset, changed, seed):
    q, k, v, _ = call
    T, S = q.shape[-2], k.shape[-2]
    mask = causal_mask(T, S, offset=offset)
    other_k, other_v = k.clone(), v.clone()
    other_k[..., changed:, :] = randn(seed, *k[..., changed:, :].shape)
    other_v[..., changed:, :] = 1e6
    before = slice(0, max(changed - offset, 0))  # queries with i + offset < changed
    assert torch.equal(
        attention(q, other_k, other_v, mask)[0][..., before, :], attention(q, k, v, mask)[0][..., before, :]
    )


def test_a_changed_key_by_hand():
    zeros, v = torch.zeros(3, 1), torch.tensor([[2.0], [4.0], [1e6]])
    assert attention(zeros, zeros, v, causal_mask(3))[0][:2, 0].tolist() == [2.0, 3.0]


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(5, 7))
def test_padding_counts_the_valid_tokens_and_they_come_first(lengths, S):
    mask = padding_mask(lengths, S)
    assert mask.shape == (len(lengths), 1, 1, S)
    assert mask.sum(-1).flatten().tolist() == lengths
    assert not (mask[..., 1:] & ~mask[..., :-1]).any()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 3), seeds)
def test_padded_sequences_give_what_each_gives_alone(lengths, n_heads, seed):
    """Ragged sequences in one tensor, the rest NaN-free noise: the real tokens' outputs are those without padding."""
    q, k, v = (randn(seed + n, len(lengths), n_heads, 5, 3) for n in range(3))
    out, _ = attention(q, k, v, padding_mask(lengths, 5))
    for sequence, n in enumerate(lengths):
        alone, _ = attention(q[sequence], k[sequence, :, :n], v[sequence, :, :n])
        torch.testing.assert_close(out[sequence], alone, atol=1e-13, rtol=0)


def test_padding_by_hand():
    assert drawn(padding_mask([0, 2, 3], 3)[:, 0, 0]) == ["...", "##.", "###"]
