"""Faults of heads known from public bug reports: their order, their views, widths that differ, lengths in a row."""

import pytest
import torch
from torch import nn

from attnkit import (
    Head,
    KVCache,
    MultiHeadAttention,
    Transformer,
    attention,
    causal_mask,
    merge_heads,
    repeat_heads,
    split_heads,
)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize(
    ("held", "n_heads", "wanted"),
    [
        ([10, 20], 4, [10, 10, 20, 20]),  # as reported
        ([1, 2, 3], 6, [1, 1, 2, 2, 3, 3]),
        ([1, 2], 6, [1, 1, 1, 2, 2, 2]),
        ([7], 3, [7, 7, 7]),
    ],
)
def test_gqa_order_gives_neighbouring_query_heads_one_key_head(held, n_heads, wanted):
    v = torch.tensor(held, dtype=torch.float64).view(-1, 1, 1).expand(-1, 3, 1)
    q, k = torch.zeros(n_heads, 1, 2).double(), torch.zeros(n_heads, 3, 2).double()
    out, _ = attention(q, k, repeat_heads(v, n_heads))
    torch.testing.assert_close(out.flatten(), torch.tensor(wanted).double(), atol=1e-14, rtol=0)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 2), (6, 3), (6, 1)])
def test_gqa_order_in_the_module_is_that_of_its_matrices_repeated(n_heads, n_kv_heads):
    """Full attention whose key and value matrices hold each shared head once per query head, side by side."""
    grouped = MultiHeadAttention(12, n_heads, n_kv_heads).double()
    full = MultiHeadAttention(12, n_heads).double()
    state = grouped.state_dict()
    for name in ("key.weight", "value.weight"):
        heads = state[name].unflatten(0, (n_kv_heads, -1))
        state[name] = torch.cat([heads[h * n_kv_heads // n_heads] for h in range(n_heads)])
    full.load_state_dict(state)
    for ours, wanted in zip(grouped(randn(2, 5, 12)), full(randn(2, 5, 12))):
        torch.testing.assert_close(ours, wanted, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("x", "n_heads", "wanted"),
    [
        ([[1, 2, 3, 4], [5, 6, 7, 8]], 2, [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]),  # as reported
        ([[1, 2, 3], [4, 5, 6]], 3, [[[1], [4]], [[2], [5]], [[3], [6]]]),
        ([[1, 2], [3, 4], [5, 6]], 1, [[[1, 2], [3, 4], [5, 6]]]),
        ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], 2, [[[[1], [3]], [[2], [4]]], [[[5], [7]], [[6], [8]]]]),
    ],
)
def test_heads_by_view_keep_tokens_apart(x, n_heads, wanted):
    x = torch.tensor(x)
    assert split_heads(x, n_heads).tolist() == wanted
    assert torch.equal(merge_heads(split_heads(x, n_heads)), x)


def test_two_lengths_in_a_row_are_each_right():
    """Nothing of the first length is kept: each result is that of a fresh copy with the same weights."""
    tokens = torch.arange(11) % 5
    model = Transformer(5, 12, 3, 2, positions="rotary").double()
    learned = Transformer(5, 12, 3, 2, context=16).double()
    modules = [
        (MultiHeadAttention(12, 3).double(), lambda n: randn(2, 11, 12)[:, :n]),
        (Head(12, 4, context=11).double(), lambda n: randn(2, 11, 12)[:, :n]),
        (model, lambda n: tokens[:n]),
        (learned, lambda n: tokens[:n]),
    ]
    for module, batch in modules:
        first, second, again = (module(batch(n))[0] for n in (7, 11, 7))
        assert torch.equal(first, again), module
        assert second.shape[-2] == 11
        if not isinstance(module, MultiHeadAttention):  # causal: the longer text begins like the shorter one
            torch.testing.assert_close(second[..., :7, :], first, atol=1e-13, rtol=0)


def test_two_lengths_in_a_row_through_caches():
    model = Transformer(5, 12, 3, 2, positions="rotary").double()
    tokens = torch.arange(11) % 5
    whole = model(tokens)[0]
    for cuts in ((7, 4), (1, 9, 1), (4, 7)):
        caches = [KVCache(), KVCache()]
        parts = [model(part, caches)[0] for part in tokens.split(cuts)]
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-13, rtol=0)


@pytest.mark.parametrize(
    ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v"), [(5, 4, 2, 3, 2), (7, 2, 1, 1, 6), (3, 6, 3, 4, 1)]
)
def test_widths_that_differ_in_a_module_equal_a_loop_over_its_heads(d_model, n_heads, n_kv_heads, d_k, d_v):
    module = MultiHeadAttention(d_model, n_heads, n_kv_heads, d_k=d_k, d_v=d_v, bias=True).double()
    x, memory = randn(4, d_model), randn(1, 6, d_model)[0]
    q, k, v = module.query(x), module.key(memory), module.value(memory)
    heads = []
    for h in range(n_heads):
        shared = h * n_kv_heads // n_heads
        ours = q[:, h * d_k : (h + 1) * d_k]
        theirs, values = k[:, shared * d_k : (shared + 1) * d_k], v[:, shared * d_v : (shared + 1) * d_v]
        heads.append(torch.softmax(ours @ theirs.T / d_k**0.5, dim=-1) @ values)
    wanted = torch.cat(heads, dim=-1) @ module.output.weight.T + module.output.bias
    torch.testing.assert_close(module(x, memory)[0], wanted, atol=1e-14, rtol=0)


def test_widths_of_one_head_by_hand():
    """d_model 2, d_k 1, d_v 3: queries are 0, so each token gets the mean of the values of those before it."""
    head = Head(2, 1, 3, context=4)
    nn.init.zeros_(head.query.weight)
    head.value.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    out, weights = head(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    assert out.tolist() == [[2.0, 0.0, 2.0], [1.0, 2.0, 3.0]]
    assert torch.equal(weights > 0, causal_mask(2))
