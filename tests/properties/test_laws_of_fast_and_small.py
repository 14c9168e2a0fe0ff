"""Laws of what makes attention fast and small: tiles, partitions, caches, states; after each a number by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive import column
from strategies import DTYPES, STRIDES, allowed, inputs, leading, randn, restrided, seeds, sizes

from attnkit import (
    KVCache,
    attention,
    attention_scores,
    causal_mask,
    delta_rule,
    elu_plus_one,
    linear_attention,
    merge_partials,
    tiled_attention,
)

INF = float("inf")


def close(actual, wanted, atol=1e-12):
    torch.testing.assert_close(actual, wanted, atol=atol, rtol=0)


@given(inputs(DTYPES), st.integers(1, 6), st.sampled_from(STRIDES))
def test_tiles_of_any_size_are_attention(call, block, how):
    q, k, v, mask = call
    largest = v.abs().max().item() if v.numel() else 1.0
    out = tiled_attention(*(restrided(x, how) for x in (q, k, v)), mask, block=block)
    assert out.dtype == v.dtype
    close(out.double(), attention(*call)[0].double(), 2 * allowed(v.dtype, largest))


def test_tiles_by_hand():
    out = tiled_attention(column(1), column(0, math.log(3)), column(8, 4), block=1)
    assert out.item() == pytest.approx(5.0, abs=1e-14)


def partial(q, k, v, mask):
    scores = attention_scores(q, k).masked_fill(~mask, -INF)
    return scores.logsumexp(-1), attention(q, k, v, mask)[0]


@given(inputs(), st.lists(st.integers(0, 5), max_size=3), st.permutations(range(4)))
def test_any_partition_of_the_keys_merges_to_the_whole_in_any_order(call, cuts, order):
    q, k, v, mask = call
    S = k.shape[-2]
    mask = mask.broadcast_to(*mask.shape[:-2], q.shape[-2], S)
    edges = sorted(min(cut, S) for cut in cuts)
    spans = [slice(a, b) for a, b in zip([0, *edges], [*edges, S])]
    merged = (torch.full(q.shape[:-1], -INF, dtype=torch.float64), q.new_zeros(*q.shape[:-1], v.shape[-1]))
    for span in (spans[i] for i in order if i < len(spans)):
        piece = partial(q, k[..., span, :], v[..., span, :], mask[..., span])
        merged = merge_partials(merged, piece)
    for ours, whole in zip(merged, partial(*call)):
        close(ours, whole)


def test_a_partition_by_hand():
    # masses 1 and 3 at values 8 and 4
    lse, out = merge_partials((torch.tensor([0.0]), column(8)), (torch.tensor([math.log(3)]), column(4)))
    assert (lse.item(), out.item()) == pytest.approx((math.log(4), 5.0), abs=1e-6)


@given(leading, st.lists(st.integers(0, 3), max_size=4), sizes, sizes, seeds)
def test_any_chunking_through_a_cache_is_the_whole(axes, chunks, d_k, d_v, seed):
    T = sum(chunks)
    q, k, v = (randn(seed + n, *axes, T, d) for n, d in enumerate((d_k, d_k, d_v)))
    cache, parts = KVCache(), [q.new_zeros(*axes, 0, d_v)]
    for chunk in zip(*(x.split(chunks, dim=-2) for x in (q, k, v))) if chunks else ():
        n = len(cache)
        keys, values = cache.append(*chunk[1:])
        mask = causal_mask(chunk[0].shape[-2], len(cache), offset=n)
        parts.append(attention(chunk[0], keys, values, mask)[0])
    assert len(cache) == T
    close(torch.cat(parts, dim=-2), attention(q, k, v, causal_mask(T))[0])


def test_a_cache_by_hand():
    cache = KVCache()
    outputs = []
    for t, value in enumerate([2.0, 4.0, 9.0]):
        k, v = cache.append(column(0), column(value))
        outputs.append(attention(column(0), k, v, causal_mask(1, t + 1, offset=t))[0].item())
    assert outputs == pytest.approx([2.0, 3.0, 5.0], abs=1e-14)


@given(leading, st.integers(0, 9), sizes, sizes, st.sampled_from(STRIDES), seeds)
def test_linear_attention_as_a_recurrence_is_the_parallel_form_and_a_masked_matrix(axes, T, d_k, d_v, how, seed):
    q, k, v = (randn(seed + n, *axes, T, d) for n, d in enumerate((d_k, d_k, d_v)))
    out = linear_attention(*(restrided(x, how) for x in (q, k, v)))
    phi_q, phi_k = elu_plus_one(q), elu_plus_one(k)
    state, mass = q.new_zeros(*axes, d_k, d_v), q.new_zeros(*axes, d_k)
    for t in range(T):
        state = state + phi_k[..., t, :, None] * v[..., t, None, :]
        mass = mass + phi_k[..., t, :]
        total = (phi_q[..., t, :] * mass).sum(-1, keepdim=True)
        wanted = (phi_q[..., t, None, :] @ state).squeeze(-2) / total.masked_fill(total == 0, 1.0)
        close(out[..., t, :], wanted)
    weights = (phi_q @ phi_k.mT).tril()
    total = weights.sum(-1, keepdim=True)
    close(out, weights @ v / total.masked_fill(total == 0, 1.0))


def test_linear_attention_by_hand():
    q = torch.zeros(3, 2, dtype=torch.float64)  # φ(0) = 1: running means
    assert linear_attention(q, q, column(2, 4, 9)).flatten().tolist() == pytest.approx([2, 3, 5], abs=1e-14)


@given(inputs(DTYPES))
def test_linear_attention_over_all_keys_lies_in_the_hull_of_the_values(call):
    q, k, v, _ = call
    out = linear_attention(q, k, v, causal=False)
    assert out.dtype == v.dtype
    if q.shape[-1] and k.shape[-2] and out.numel():
        slack = allowed(v.dtype, v.abs().max().item())
        low, high = v.double().amin(-2, keepdim=True), v.double().amax(-2, keepdim=True)
        assert (out.double() >= low - slack).all()
        assert (out.double() <= high + slack).all()
    else:
        assert not out.any()


@given(leading, sizes, st.integers(1, 4), sizes, seeds)
def test_the_delta_rule_recalls_what_was_written_last_and_writes_nothing_at_beta_zero(axes, T, d_k, d_v, seed):
    q, k, v = (randn(seed + n, *axes, T, d) for n, d in enumerate((d_k, d_k, d_v)))
    unit = torch.nn.functional.normalize(k, dim=-1)
    close(delta_rule(unit, unit, v, torch.ones(T)), v)
    assert not delta_rule(q, k, v, torch.zeros(T)).any()
    first, second = delta_rule(q, unit, v, torch.full((T,), 0.5)), delta_rule(q, unit, 2 * v, torch.full((T,), 0.5))
    close(second, 2 * first)  # linear in the values


def test_the_delta_rule_by_hand():
    # towards 8 by halves: 4, then 4 + (8 − 4)/2
    k = column(1, 1)
    assert delta_rule(k, k, column(8, 8), torch.tensor(0.5)).flatten().tolist() == [4.0, 6.0]


@given(leading, sizes, sizes, sizes, sizes, st.integers(1, 4), seeds)
def test_shapes_are_kept_whatever_is_empty(axes, T, S, d_k, d_v, block, seed):
    q, k, v = randn(seed, *axes, T, d_k), randn(seed, *axes, S, d_k), randn(seed, *axes, S, d_v)
    assert tiled_attention(q, k, v, block=block).shape == (*axes, T, d_v)
    assert linear_attention(q, k, v, causal=False).shape == (*axes, T, d_v)
    assert linear_attention(k, k, v).shape == (*axes, S, d_v)
    assert delta_rule(k, k, v, torch.ones(S)).shape == (*axes, S, d_v)
