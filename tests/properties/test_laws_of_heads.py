"""Laws of heads: split, merge, repeat and share, for all leading axes and widths; after each a case by hand."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import DTYPES, STRIDES, leading, randn, restrided, seeds, sizes

from attnkit import Head, MultiHeadAttention, attention, causal_mask, merge_heads, repeat_heads, split_heads

heads = st.integers(1, 4)


def close(actual, wanted):
    torch.testing.assert_close(actual, wanted, atol=1e-13, rtol=0)


@given(leading, sizes, sizes, heads, st.sampled_from(DTYPES), st.sampled_from(STRIDES), seeds)
def test_split_and_merge_undo_each_other(axes, T, d, H, dtype, how, seed):
    x = restrided(randn(seed, *axes, T, H * d, dtype=dtype), how)
    split = split_heads(x, H)
    assert split.shape == (*axes, H, T, d)
    assert torch.equal(merge_heads(split), x)
    for h in range(H):
        assert torch.equal(split[..., h, :, :], x[..., h * d : (h + 1) * d])
    y = restrided(randn(seed, *axes, H, T, d, dtype=dtype), how)
    assert torch.equal(split_heads(merge_heads(y), H), y)


def test_split_by_hand():
    assert split_heads(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), 2).tolist() == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]


@given(leading, sizes, sizes, sizes, sizes, heads, st.integers(1, 3), seeds)
def test_repeated_heads_are_the_grouped_computation(axes, T, S, d_k, d_v, n_kv, group, seed):
    """Queries in groups of their own axis, one key head for each group, give the same without a copy."""
    q = randn(seed, *axes, n_kv * group, T, d_k)
    k, v = randn(seed + 1, *axes, n_kv, S, d_k), randn(seed + 2, *axes, n_kv, S, d_v)
    repeated, _ = attention(q, repeat_heads(k, n_kv * group), repeat_heads(v, n_kv * group))
    grouped, _ = attention(q.unflatten(-3, (n_kv, group)), k.unsqueeze(-3), v.unsqueeze(-3))
    close(grouped.flatten(-4, -3), repeated)


def test_repeated_heads_by_hand():
    assert repeat_heads(torch.tensor([10, 20]).view(2, 1, 1), 6).flatten().tolist() == [10, 10, 10, 20, 20, 20]


@given(st.integers(0, 4), st.integers(0, 4), heads, st.integers(1, 3), st.integers(0, 3), st.integers(0, 3), seeds)
def test_a_module_is_its_heads_added_up(B, T, n_kv, group, d_k, d_v, seed):
    """Concatenating heads and mixing is adding up each head's own share of the output."""
    assume(d_k and d_v)  # torch warns where a layer without weights is initialised
    torch.manual_seed(seed)
    H, x = n_kv * group, randn(seed, B, T, 5)
    module = MultiHeadAttention(5, H, n_kv, d_k=d_k, d_v=d_v).double()
    out, weights = module(x, mask=causal_mask(T))
    assert weights.shape == (B, H, T, T)
    total = torch.zeros_like(x)
    for h in range(H):
        rows, shared = slice(h * d_k, (h + 1) * d_k), h // group
        keys, values = slice(shared * d_k, (shared + 1) * d_k), slice(shared * d_v, (shared + 1) * d_v)
        q, k, v = (x @ w.T for w in (module.query.weight[rows], module.key.weight[keys], module.value.weight[values]))
        head, weights_of_head = attention(q, k, v, causal_mask(T))
        close(weights[:, h], weights_of_head)
        total = total + head @ module.output.weight[:, h * d_v : (h + 1) * d_v].T
    close(out, total)


def test_a_module_by_hand():
    module = MultiHeadAttention(2, 2)
    for weight in module.parameters():
        torch.nn.init.eye_(weight)
    torch.nn.init.zeros_(module.query.weight)  # every token weighs the same
    assert module(torch.tensor([[2.0, 10.0], [4.0, 30.0]]))[0].tolist() == [[3.0, 20.0], [3.0, 20.0]]


@given(st.integers(0, 6), st.integers(1, 6), seeds)
def test_a_causal_head_computes_a_prefix_from_the_prefix_alone(T, n, seed):
    torch.manual_seed(seed)
    head = Head(3, 2, 4, context=6).double()
    x = randn(seed, 2, T, 3)
    close(head(x[:, :n])[0], head(x)[0][:, :n])


def test_a_causal_head_by_hand():
    head = Head(1, 1, context=2)
    for weight in head.parameters():
        torch.nn.init.ones_(weight)
    out, _ = head(torch.tensor([[0.0], [0.0]]))
    assert out.flatten().tolist() == [0.0, 0.0]
    torch.nn.init.zeros_(head.query.weight)
    assert head(torch.tensor([[2.0], [6.0]]))[0].flatten().tolist() == [2.0, 4.0]


@given(st.integers(1, 9), st.integers(1, 9))
def test_numbers_of_heads_that_do_not_fit_are_both_named(a, b):
    assume(a % b)
    for call in (
        lambda: split_heads(torch.zeros(2, a), b),
        lambda: repeat_heads(torch.zeros(b, 2, 1), a),
        lambda: MultiHeadAttention(a, b),
        lambda: MultiHeadAttention(a, a, b),
    ):
        with pytest.raises(ValueError, match=rf"\b({a}\b.*\b{b}|{b}\b.*\b{a})\b"):
            call()
