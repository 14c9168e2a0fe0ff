"""Faults of attention and its masks known from public bug reports: the reported input and others of its kind.

With queries and keys 0 every visible key weighs the same, so an output is the mean of the visible values and can
be worked out in the head.
"""

import ast
import math

import naive
import pytest
import torch
from conftest import ROOT
from naive import column
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from attnkit import (
    AdditiveAttention,
    KVCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    linear_attention,
    nadaraya_watson,
    padding_mask,
    sliding_window_mask,
    tiled_attention,
)

Y, N = True, False
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def means(mask: Tensor, values: list[float]) -> Tensor:
    """Output, one number per query, where every visible key weighs the same."""
    q, k = (torch.zeros(n, 1, dtype=torch.float64) for n in mask.shape[-2:])
    out = attention(q, k, column(*values), mask)[0]
    assert torch.allclose(tiled_attention(q, k, column(*values), mask, block=2), out, atol=1e-15, rtol=0)
    return out[..., 0]


def exactly(actual: Tensor, *wanted: float) -> None:
    torch.testing.assert_close(actual, torch.tensor(wanted, dtype=actual.dtype), atol=1e-15, rtol=0)


DEAD_ROWS = [
    ([[Y, Y], [N, N]], [1.0, 3.0], [2.0, 0.0]),  # as reported
    ([[Y, N, Y], [N, N, N], [N, Y, Y]], [0.0, 3.0, 9.0], [4.5, 0.0, 6.0]),
    ([[N, N, N], [N, N, N]], [5.0, 7.0, 9.0], [0.0, 0.0]),
    ([[N, N], [Y, N], [Y, Y]], [4.0, 8.0], [0.0, 4.0, 6.0]),  # causal, one token late
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("mask", "values", "wanted"), DEAD_ROWS)
def test_dead_row_gives_zero_and_finite_gradients(mask, values, wanted, dtype):
    mask = torch.tensor(mask)
    q, k = (torch.zeros(n, 1, dtype=dtype, requires_grad=True) for n in mask.shape)
    v = column(*values, dtype=dtype).requires_grad_()
    out, weights = attention(q, k, v, mask)
    assert not weights[~mask.any(-1)].any()
    for result in (out, tiled_attention(q, k, v, mask, block=1)):
        assert result[:, 0].tolist() == wanted
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), (q, k, v)))


@pytest.mark.parametrize(("mask", "values", "wanted"), DEAD_ROWS)
def test_dead_row_of_additive_attention_too(mask, values, wanted):
    mask = torch.tensor(mask)
    module = AdditiveAttention(1, 1, 3).double()
    out, weights = module(
        torch.zeros(len(mask), 1).double(), torch.zeros(len(values), 1).double(), column(*values), mask
    )
    exactly(out[:, 0], *wanted)
    assert not weights[~mask.any(-1)].any()
    out.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("T", "S", "offset", "wanted"),
    [
        (2, 4, 0, [0, 0.5]),  # as reported
        (2, 4, 2, [1, 1.5]),  # as reported
        (3, 5, 2, [1, 1.5, 2]),
        (1, 4, 3, [1.5]),  # a decoding step
        (4, 2, 0, [0, 0.5, 0.5, 0.5]),
        (4, 2, -2, [0, 0, 0, 0.5]),  # the last rows aligned: the first two see nothing
    ],
)
def test_causal_with_unequal_lengths_is_aligned_as_the_offset_says(T, S, offset, wanted):
    exactly(means(causal_mask(T, S, offset=offset), [float(j) for j in range(S)]), *wanted)


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (torch.ones(3, 3).tril().bool(), [0, 0.5, 1]),  # as reported
        (torch.tensor([[N, Y, Y], [Y, N, Y], [Y, N, N]]), [1.5, 1, 0]),
        (sliding_window_mask(3, window=2), [0, 0.5, 1.5]),
        (padding_mask([2], 3)[0, 0].expand(3, 3), [0.5, 0.5, 0.5]),
    ],
)
def test_polarity_true_means_may_see_as_in_sdpa_and_opposite_to_mha(mask, wanted):
    exactly(means(mask, [0, 1, 2]), *wanted)
    zeros, v = torch.zeros(1, 3, 1), torch.arange(3.0).view(1, 3, 1)
    exactly(scaled_dot_product_attention(zeros, zeros, v, attn_mask=mask)[0, :, 0].double(), *wanted)
    torchs = nn.MultiheadAttention(1, 1, bias=False, batch_first=True)
    for weight in torchs.parameters():
        nn.init.ones_(weight)
    with torch.no_grad():
        exactly(torchs(zeros, zeros, v, attn_mask=~mask)[0][0, :, 0].double(), *wanted)


@pytest.mark.parametrize(
    ("lengths", "wanted"),
    [
        ([2], [[0, 0.5, 0.5, 0.5]]),  # as reported
        ([1, 3], [[0, 0, 0, 0], [0, 0.5, 1, 1]]),
        ([4, 0], [[0, 0.5, 1, 1.5], [0, 0, 0, 0]]),
    ],
)
def test_padding_hides_keys_and_makes_no_nan_of_padded_queries(lengths, wanted):
    mask = padding_mask(lengths, 4) & causal_mask(4)
    out = means(mask, [0, 1, 2, 3])
    assert out.shape == (len(lengths), 1, 4)
    for sequence, row in zip(out[:, 0], wanted):
        exactly(sequence, *row)


def test_padding_changes_no_real_token():
    x = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module = MultiHeadAttention(6, 2).double()
    for n in (1, 3, 4):
        padded = module(x, mask=padding_mask([n, n], 5) & causal_mask(5))[0]
        torch.testing.assert_close(padded[:, :n], module(x[:, :n], mask=causal_mask(n))[0], atol=1e-14, rtol=0)


@pytest.mark.parametrize(("T", "S", "offset"), [(5, 5, 0), (2, 7, 5), (7, 3, -1)])
def test_option_that_asks_for_nothing_changes_nothing(T, S, offset):
    generator = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(3, n, 4, dtype=torch.float64, generator=generator) for n in (T, S, S))
    mask = causal_mask(T, S, offset=offset)
    plain = attention(q, k, v, mask)[0]
    for same in (
        {"bias": None},
        {"bias": torch.zeros(T, S).double()},
        {"scale": 0.5},
        {"scale": None, "softcap": None},
    ):
        assert torch.equal(attention(q, k, v, mask, **same)[0], plain)
    out, weights = attention(q, k, v, mask)
    assert torch.equal(weights @ v, out), "the weights returned are not those used"
    assert torch.equal(attention(q.requires_grad_(), k, v, mask)[0], plain)


@pytest.mark.parametrize(
    ("d_model", "n_heads", "d_k", "wanted"),
    [
        (8, 2, None, 0.8807971),  # as reported: 1/(1 + e^−2), scores 4/√4 and 0
        (8, 8, None, 0.9820138),  # heads of width 1: 1/(1 + e^−4)
        (8, 2, 16, 0.7310586),  # heads wider than their share: 1/(1 + e^−1)
        (64, 1, None, 0.6224593),  # one head: 1/(1 + e^−1/2)
    ],
)
def test_scale_is_the_root_of_a_heads_width_not_of_the_models(d_model, n_heads, d_k, wanted):
    module = MultiHeadAttention(d_model, n_heads, d_k=d_k)
    for projection in (module.query, module.key):
        nn.init.zeros_(projection.weight)
        projection.weight.data[0, 0] = 1.0  # the first feature of head 0 is that of the token
    x = torch.zeros(2, d_model)
    x[0, 0] = 2.0
    weights = module(x)[1]
    assert weights[0, 0, 0].item() == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize(("n_keys", "n_values"), [(5, 6), (6, 5), (1, 3), (3, 0)])
def test_lengths_of_keys_and_values_that_differ_are_named(n_keys, n_values):
    q, k, v = torch.zeros(2, 3), torch.zeros(n_keys, 3), torch.zeros(n_values, 3)
    calls = {
        "attention": lambda: attention(q, k, v),
        "tiled": lambda: tiled_attention(q, k, v, block=2),
        "linear": lambda: linear_attention(q, k, v, causal=False),
        "additive": lambda: AdditiveAttention(3, 3, 2)(q, k, v),
        "cache": lambda: KVCache().append(k, v),
        "smoothing": lambda: nadaraya_watson(q, k, v, 1.0),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"\b{n_keys}\b.*\b{n_values}\b"):
            pytest.fail(f"{name} returned {call()}")


@pytest.mark.parametrize(
    ("dtype", "score"),
    [
        (torch.float16, -60000.0),  # as reported, near the end of its range
        (torch.float16, -1e4),  # a constant in wide use
        (torch.bfloat16, -1e9),
        (torch.bfloat16, -3e38),
        (torch.float32, -1e9),
        (torch.float32, -3e38),
    ],
)
def test_fill_is_minus_infinity_whatever_the_visible_scores(dtype, score):
    """The only visible key scores as low as a finite fill would; it must still have all the weight."""
    q, k = column(1.0, dtype=dtype), column(score, 0.0, dtype=dtype)
    v, mask = column(3.0, 5.0, dtype=dtype), torch.tensor([Y, N])
    out, weights = attention(q, k, v, mask)
    assert weights.tolist() == [[1.0, 0.0]]
    assert out.item() == tiled_attention(q, k, v, mask, block=1).item() == 3.0


def test_fill_is_nowhere_a_large_finite_number():
    """Every constant that attnkit fills in is 0, 1 or ±∞, and none of its numbers is large enough to serve as one."""
    for module in (ROOT / "attnkit").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                assert abs(node.value) <= 10000.0, f"{module.name}, line {node.lineno}: {node.value}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "masked_fill" in node.func.attr:
                fill = (
                    ast.unparse(node.args[1]).replace("float('-inf')", "-math.inf").replace("float('inf')", "math.inf")
                )
                assert fill in ("0.0", "1.0", "math.inf", "-math.inf"), f"{module.name}, line {node.lineno}: {fill}"


@pytest.mark.parametrize(("T", "S", "d_k", "d_v"), [(2, 3, 4, 1), (3, 2, 1, 5), (4, 4, 2, 3)])
def test_widths_and_lengths_may_all_differ(T, S, d_k, d_v):
    generator = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(n, d, dtype=torch.float64, generator=generator) for n, d in ((T, d_k), (S, d_k), (S, d_v)))
    wanted = naive.attention(q.tolist(), k.tolist(), v.tolist(), [[Y] * S] * T)
    exactly(attention(q, k, v)[0].flatten(), *(x for row in wanted for x in row))


def test_widths_by_hand_with_d_k_three_and_d_v_one():
    # scores ln 3 and 0: weights 3/4 and 1/4, and 3/4 · 4 + 1/4 · 8 = 5
    q = torch.tensor([[1.0, 0, 0]], dtype=torch.float64)
    k = torch.tensor([[math.log(3) * 3**0.5, 7, 7], [0, 7, 7]], dtype=torch.float64)
    exactly(attention(q, k, column(4, 8))[0][0], 5.0)
