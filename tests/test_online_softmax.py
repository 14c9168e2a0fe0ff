"""Tiled attention: by hand, against the naive form and torch's in float64, and what it never holds.

The axes have different primes throughout: B = 2, H = 3, T = 5, S = 7, d_k = 11, d_v = 13.
"""

import math
import re

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnkit.masks import causal_mask, padding_mask, sliding_window_mask
from attnkit.online_softmax import merge_partials, tiled_attention
from attnkit.scaled_dot_product import attention, attention_scores

INF = float("inf")
HALF = [torch.float16, torch.bfloat16]
BLOCKS = [1, 2, 3, 5, 7, 100]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def qkv(seed=0):
    return randn(2, 3, 5, 11, seed=seed), randn(2, 3, 7, 11, seed=seed + 1), randn(2, 3, 7, 13, seed=seed + 2)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def some(*shape, seed=9):
    """About half of the entries; some queries see nothing."""
    return randn(*shape, seed=seed) > 0


def exactly(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def partial(q, k, v):
    return attention_scores(q, k).logsumexp(-1), attention(q, k, v)[0]


# Numbers that can be checked by hand


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_scores_of_log_one_two_three_give_sixths(block):
    logs = column(0.0, math.log(2), math.log(3))
    exactly(tiled_attention(column(1.0), logs, column(0.0, 3.0, 6.0), block=block), column(4.0))
    exactly(tiled_attention(column(1.0), logs.flip(0), column(6.0, 3.0, 0.0), block=block), column(4.0))


def test_the_scale_is_one_over_the_root_of_the_width_of_a_key():
    q = torch.tensor([[2 * math.log(3), 0, 0, 0]], dtype=torch.float64)
    exactly(tiled_attention(q, torch.eye(2, 4, dtype=torch.float64), column(4.0, 8.0), block=1), column(5.0))


@pytest.mark.parametrize("block", [1, 2])
def test_dead_row(block):
    q, k, v = (x.requires_grad_() for x in (torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])))
    out = tiled_attention(q, k, v, torch.tensor([[True, True], [False, False]]), block=block)
    assert out.tolist() == [[2.0], [0.0]]
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert v.grad.tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize(("offset", "expected"), [(0, [0.0, 0.5]), (2, [1.0, 1.5]), (-1, [0.0, 0.0])])
def test_causal_with_more_keys_than_queries(offset, expected):
    zeros = torch.zeros(4, 1)
    mask = causal_mask(2, 4, offset=offset)
    for block in (1, 2, 3, 4):
        assert (
            tiled_attention(zeros[:2], zeros, torch.arange(4.0)[:, None], mask, block=block).flatten().tolist()
            == expected
        )


# Against the naive form and torch, in float64


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "mask",
    [
        None,
        causal_mask(5, 7, offset=2),
        causal_mask(5, 7, offset=-3),
        sliding_window_mask(5, 7, window=2, offset=2),
        padding_mask([0, 4], 7),
        some(2, 3, 5, 7),
        some(5, 7),
        some(5, 1),
        some(7),
        some(2, 1, 1, 7),
        torch.tensor(True),
        torch.tensor(False),
        torch.zeros(5, 7, dtype=torch.bool),
    ],
    ids=lambda mask: "none" if mask is None else "x".join(map(str, mask.shape)) + f"-{mask.sum()}",
)
def test_any_mask_and_any_block_give_the_output_and_gradients_of_the_naive_form(mask, block):
    ours, theirs = [[x.requires_grad_() for x in qkv()] for _ in range(2)]
    cotangent = randn(2, 3, 5, 13, seed=5)
    out, expected = tiled_attention(*ours, mask, block=block), attention(*theirs, mask)[0]
    exactly(out, expected)
    for a, b in zip(torch.autograd.grad(out, ours, cotangent), torch.autograd.grad(expected, theirs, cotangent)):
        exactly(a, b)


def test_it_equals_torch():
    q, k, v = qkv()
    mask = some(2, 1, 5, 7)
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(q, k, v, mask)
    exactly(tiled_attention(q, k, v, mask, block=3), expected)


def test_gradients_equal_finite_differences():
    inputs = [x[0, :2].requires_grad_() for x in qkv()]
    assert torch.autograd.gradcheck(lambda q, k, v: tiled_attention(q, k, v, some(2, 5, 7), block=3), inputs)


@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives_equal_finite_differences(masked):
    inputs = [x[0, :2, :, :3].requires_grad_() for x in qkv()]
    mask = some(2, 5, 7) if masked else None
    assert torch.autograd.gradgradcheck(lambda q, k, v: tiled_attention(q, k, v, mask, block=3), inputs)


def test_gradients_of_inputs_that_do_not_want_any_are_left_out():
    q, k, v = qkv()
    v.requires_grad_()
    (gradient,) = torch.autograd.grad(tiled_attention(q, k, v, block=2).sum(), v)
    weights = attention(q, k, v)[1]
    exactly(gradient, weights.sum(-2).unsqueeze(-1).expand(2, 3, 7, 13))
    assert not tiled_attention(q, k, v.detach(), block=2).requires_grad


@pytest.mark.parametrize("shapes", [((3, 5), (1, 7), (7,)), ((5,), (2, 1, 7), (3, 7)), ((2, 3, 5), (7,), (7,))])
def test_leading_axes_broadcast_and_their_gradients_are_summed(shapes):
    inputs = [randn(*shape, width, seed=i) for i, (shape, width) in enumerate(zip(shapes, (11, 11, 13)))]
    ours, theirs = [[x.clone().requires_grad_() for x in inputs] for _ in range(2)]
    out, expected = tiled_attention(*ours, block=3), attention(*theirs)[0]
    exactly(out, expected)
    cotangent = randn(*expected.shape, seed=5)
    for a, b in zip(torch.autograd.grad(out, ours, cotangent), torch.autograd.grad(expected, theirs, cotangent)):
        exactly(a, b)


def test_a_mask_may_add_leading_axes():
    q, k, v = (x[0, 0] for x in qkv())
    mask = some(2, 3, 5, 7)
    exactly(tiled_attention(q, k, v, mask, block=2), attention(q, k, v, mask)[0])


# Where a running softmax goes wrong


@pytest.mark.parametrize("block", BLOCKS)
def test_a_first_tile_that_is_fully_masked_leaves_no_trace(block):
    q, k, v = qkv()
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, :3] = False
    exactly(tiled_attention(q, k, v, mask, block=block), attention(q, k[..., 3:, :], v[..., 3:, :])[0])


def test_a_masked_tile_in_the_middle_leaves_no_trace():
    q, k, v = qkv()
    seen = torch.tensor([True, True, False, False, True, True, True])
    exactly(tiled_attention(q, k, v, seen, block=2), attention(q, k[..., seen, :], v[..., seen, :])[0])


@pytest.mark.parametrize("direction", [1, -1])
def test_scores_far_beyond_the_range_of_exp_rise_or_fall_from_tile_to_tile(direction):
    scores = direction * torch.arange(-3000.0, 3001.0, 1000.0, dtype=torch.float64)
    for block in BLOCKS:
        out = tiled_attention(column(1.0), scores[:, None], column(*range(7)), block=block)
        exactly(out, column(6.0 if direction == 1 else 0.0))


def test_very_low_scores_alone_still_make_a_mixture():
    exactly(tiled_attention(column(1.0), column(-5000.0, -5000.0), column(2.0, 4.0), block=1), column(3.0))


def test_two_lengths_in_a_row():
    for S in (7, 11, 7):
        q, k, v = randn(5, 11), randn(S, 11, seed=1), randn(S, 13, seed=2)
        exactly(tiled_attention(q, k, v, block=4), attention(q, k, v)[0])


def test_nothing_to_look_at_or_nobody_who_looks():
    q, k, v = qkv()
    assert torch.equal(tiled_attention(q, k[..., :0, :], v[..., :0, :], block=2), torch.zeros(2, 3, 5, 13).double())
    assert tiled_attention(q[..., :0, :], k, v, block=2).shape == (2, 3, 0, 13)
    assert tiled_attention(q[:0], k[:0], v[:0], block=2).shape == (0, 3, 5, 13)
    exactly(tiled_attention(q[..., :0], k[..., :0], v, block=2), v.mean(-2, keepdim=True).expand(2, 3, 5, 13))
    assert tiled_attention(q, k, v[..., :0], block=2).shape == (2, 3, 5, 0)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_does_not_overflow_and_keeps_its_dtype(dtype):
    q, k, v = (x.to(dtype) for x in (column(336.0), column(-328.0, 328.0), column(1.0, 3.0)))
    out = tiled_attention(q, k, v, block=1)
    assert out.dtype == dtype
    assert out.item() == 3.0
    q, k, v = (x.to(dtype).requires_grad_() for x in qkv())
    out = tiled_attention(q, k, v, block=3)
    exactly(out.double(), attention(q.double(), k.double(), v.double())[0].to(dtype).double(), atol=1e-2)
    out.sum().backward()
    assert all(x.grad.dtype == dtype and x.grad.isfinite().all() for x in (q, k, v))


def test_strided_inputs():
    q, k, v = (x.mT.contiguous().mT for x in qkv())
    exactly(tiled_attention(q, k, v, block=3), attention(q, k, v)[0])


# What it holds and what it multiplies


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that is made."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in given:
            self.size = max(self.size, out.untyped_storage().nbytes() // out.element_size())
        return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("T", [128, 512, 509])
def test_no_tensor_is_larger_than_a_tile_per_head_forwards_and_backwards(T, masked):
    q, k, v = (randn(3, T, 2, seed=i).requires_grad_() for i in range(3))
    mask = causal_mask(T) if masked else None
    with Largest() as largest:
        tiled_attention(q, k, v, mask, block=32).sum().backward()
    assert largest.size == 3 * 32**2 if 2 * T <= 32**2 else 3 * 2 * T
    with Largest() as largest:
        attention(q, k, v, mask)
    assert largest.size == 3 * T * T


def multiplications(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("mask", "tiles"),
    [
        (None, 16),
        (causal_mask(32), 10),
        (sliding_window_mask(32, window=8), 7),
        (sliding_window_mask(32, window=10), 9),
        (torch.zeros(32, 32, dtype=torch.bool), 0),
    ],
)
def test_tiles_in_which_nothing_can_be_seen_are_skipped(mask, tiles):
    q, k, v = randn(32, 11), randn(32, 11, seed=1), randn(32, 13, seed=2)
    assert multiplications(lambda: tiled_attention(q, k, v, mask, block=8)) == tiles * 8 * 8 * (11 + 13)


# Errors


@pytest.mark.parametrize("block", [0, -3])
def test_a_block_holds_at_least_one_token(block):
    with pytest.raises(ValueError, match=f"^block must be at least 1, got {block}$"):
        tiled_attention(*qkv(), block=block)


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q, k, v[..., :3, :], None),
        lambda q, k, v: (q, k[..., :3], v, None),
        lambda q, k, v: (q[0, 0, 0], k, v, None),
        lambda q, k, v: (q, k[0, 0, :, 0], v, None),
        lambda q, k, v: (q.long(), k, v, None),
        lambda q, k, v: (q.float(), k, v, None),
        lambda q, k, v: (q, k, v.float(), None),
        lambda q, k, v: (q, k[:, :2], v[:, :2], None),
        lambda q, k, v: (q, k, v, some(7, 5)),
        lambda q, k, v: (q, k, v, some(5)),
        lambda q, k, v: (q, k, v, some(11, 1, 5, 7)),
    ],
)
def test_what_does_not_fit_is_refused_with_the_words_of_attention(change):
    arguments = change(*qkv())
    with pytest.raises((TypeError, ValueError)) as expected:
        attention(*arguments)
    with pytest.raises(expected.type, match=f"^{re.escape(str(expected.value))}$"):
        tiled_attention(*arguments, block=3)


def test_a_mask_is_boolean():
    with pytest.raises(TypeError, match=r"^mask must be boolean \(True: may see\), got torch.float32$"):
        tiled_attention(*qkv(), torch.zeros(5, 7), block=3)


def test_values_need_two_axes():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"^v must have shape \(\.\.\., tokens, features\), got \(7,\)$"):
        tiled_attention(q, k, v[0, 0, :, 0], block=3)


def test_values_whose_batch_does_not_fit_are_refused_and_the_error_names_both():
    q, k, _ = qkv()
    with pytest.raises(ValueError, match=r"^leading axes of q and v do not broadcast: q has \(2, 3\), v has \(5, 3\)$"):
        tiled_attention(q, k, randn(5, 3, 7, 13), block=3)


# merge_partials


def test_masses_one_and_three_mix_one_to_three():
    first = torch.tensor([0.0]), torch.tensor([[8.0, 0.0]])
    second = torch.tensor([3.0]).log(), torch.tensor([[4.0, 4.0]])
    lse, out = merge_partials(first, second)
    exactly(lse, torch.tensor([4.0]).log(), atol=1e-6)
    exactly(out, torch.tensor([[5.0, 3.0]]), atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2)])
def test_partials_merge_to_the_whole_in_any_order(order):
    q, k, v = qkv()
    cuts = [slice(2), slice(2, 3), slice(3, None)]
    parts = [partial(q, k[..., cut, :], v[..., cut, :]) for cut in cuts]
    a, b, c = (parts[i] for i in order)
    for merged in (merge_partials(merge_partials(a, b), c), merge_partials(a, merge_partials(b, c))):
        exactly(merged, partial(q, k, v))


def test_no_keys_at_all_is_the_neutral_element_on_both_sides():
    whole = partial(*qkv())
    nothing = torch.full_like(whole[0], -INF), torch.zeros_like(whole[1])
    for merged in (merge_partials(whole, nothing), merge_partials(nothing, whole)):
        exactly(merged, whole, atol=0)
    exactly(merge_partials(nothing, nothing), nothing, atol=0)


def test_gradients_stay_finite_where_a_query_has_seen_nothing():
    lse = [torch.tensor([-INF, 0.0], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    out = [randn(2, 3, seed=i).requires_grad_() for i in range(2)]
    merged_lse, merged = merge_partials((lse[0], out[0]), (lse[1], out[1]))
    (merged.sum() + merged_lse[1]).backward()
    assert merged[0].tolist() == [0.0] * 3
    assert all(x.grad.isfinite().all() for x in (*lse, *out))


def test_gradients_through_a_merge_are_those_of_the_whole():
    ours, theirs = [[x.requires_grad_() for x in qkv()] for _ in range(2)]
    q, k, v = ours
    _, merged = merge_partials(partial(q, k[..., :3, :], v[..., :3, :]), partial(q, k[..., 3:, :], v[..., 3:, :]))
    cotangent = randn(2, 3, 5, 13, seed=5)
    expected = torch.autograd.grad(attention(*theirs)[0], theirs, cotangent)
    for a, b in zip(torch.autograd.grad(merged, ours, cotangent), expected):
        exactly(a, b)


def test_very_large_and_very_small_masses_do_not_overflow():
    lse, out = merge_partials((column(5000.0)[0], column(1.0)), (column(4999.0)[0], column(3.0)))
    exactly(lse, torch.tensor([5000 + math.log1p(math.exp(-1))], dtype=torch.float64), atol=1e-12)
    exactly(out, column((1 + 3 * math.exp(-1)) / (1 + math.exp(-1))))


def test_partials_of_different_shape_are_refused_and_the_error_names_both():
    lse, out = torch.zeros(5), torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"^lse of second must have shape \(5,\), got \(5, 1\)$"):
        merge_partials((lse, out), (lse[:, None], out))
    with pytest.raises(ValueError, match=r"^out of first and second differ in shape: \(5, 3\) and \(7, 3\)$"):
        merge_partials((lse, out), (torch.zeros(7), torch.zeros(7, 3)))


def test_two_parts_of_the_same_weight_are_averaged():
    lse, out = merge_partials((torch.zeros(1), torch.tensor([[1.0]])), (torch.zeros(1), torch.tensor([[3.0]])))
    torch.testing.assert_close(lse, torch.tensor([2.0]).log())
    torch.testing.assert_close(out, torch.tensor([[2.0]]))


def test_the_gradient_reaches_every_query_of_a_sequence_longer_than_wide():
    q, k, v = (torch.randn(7, 2, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(3))
    q.requires_grad_()
    (tiled,) = torch.autograd.grad(tiled_attention(q, k, v, block=2).sum(), q)
    (whole,) = torch.autograd.grad(attention(q, k, v)[0].sum(), q)
    torch.testing.assert_close(tiled, whole)


def test_keys_and_values_whose_leading_axes_differ_are_named_though_each_fits_the_queries():
    with pytest.raises(ValueError, match="leading axes of k and v do not broadcast"):
        tiled_attention(torch.zeros(1, 4, 2), torch.zeros(2, 4, 2), torch.zeros(3, 4, 2), block=2)
