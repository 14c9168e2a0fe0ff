"""Scaled dot-product attention: by hand, against torch's own in float64, and by the laws it obeys.

The axes have different primes throughout: B = 2, H = 3, T = 5, S = 7, d_k = 11, d_v = 13.
"""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from attnkit.masks import causal_mask, padding_mask
from attnkit.scaled_dot_product import attention, attention_scores

INF = float("inf")
HALF = [torch.float16, torch.bfloat16]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def qkv(seed=0):
    return randn(2, 3, 5, 11, seed=seed), randn(2, 3, 7, 11, seed=seed + 1), randn(2, 3, 7, 13, seed=seed + 2)


def column(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)[:, None]


def random_mask(*shape, seed=9):
    """About half of the entries; every query sees at least the first key."""
    mask = randn(*shape, seed=seed) > 0
    mask[..., 0] = True
    return mask


def torch_attention(q, k, v, mask=None, **kwargs):
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **kwargs)


def exactly(actual, expected, atol=1e-14):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# Numbers that can be checked by hand


def test_scores_by_hand():
    q, k = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[2.0, 0.0, 0.0, 1.0], [0.0, -1.0, 1.0, 0.0]])
    assert attention_scores(q, k).tolist() == [[3.0, 0.5]]
    assert attention_scores(q, k, 1.0).tolist() == [[6.0, 1.0]]
    assert attention_scores(q, k, scale=-0.5).tolist() == [[-3.0, -0.5]]


def test_scores_of_log_two_give_thirds():
    # Scores [[0, ln 2], [0, 0]], from one feature and keys 0 and 1.
    out, weights = attention(column(math.log(2), 0.0), column(0.0, 1.0), column(3.0, 9.0))
    exactly(weights, torch.tensor([[1 / 3, 2 / 3], [1 / 2, 1 / 2]], dtype=torch.float64))
    exactly(out, column(7.0, 6.0))


def test_the_scale_is_one_over_the_root_of_the_width_of_a_key():
    # d_k = 4, d_v = 1, S = 2: the dot product 2 ln 3 becomes ln 3.
    q = torch.tensor([[2 * math.log(3), 0, 0, 0]], dtype=torch.float64)
    out, _ = attention(q, torch.eye(2, 4, dtype=torch.float64), column(4.0, 8.0))
    exactly(out, column(5.0))


def test_a_scale_that_is_given_replaces_the_default():
    q, k, v = column(math.log(3)), column(0.0, 2.0), column(0.0, 1.0)
    exactly(attention(q, k, v, scale=0.5)[0], column(3 / 4))
    exactly(attention(q, k, v, scale=0.0)[0], column(1 / 2))


# Against torch, in float64


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_torch(masked, scale):
    q, k, v = qkv()
    mask = random_mask(2, 3, 5, 7) if masked else None
    exactly(attention(q, k, v, mask, scale=scale)[0], torch_attention(q, k, v, mask, scale=scale))


def test_a_bias_equals_torch_float_mask():
    q, k, v = qkv()
    bias = randn(3, 5, 7, seed=4)
    exactly(attention(q, k, v, bias=bias)[0], torch_attention(q, k, v, bias))


def test_the_causal_mask_equals_torch_is_causal():
    q, k, v = qkv()
    exactly(attention(q, k, v, causal_mask(5, 7))[0], torch_attention(q, k, v, is_causal=True))


def test_a_dead_row_is_zero_in_torch_too():
    q, k, v = qkv()
    mask = random_mask(5, 7)
    mask[3] = False
    exactly(attention(q, k, v, mask)[0], torch_attention(q, k, v, mask))


def test_gradients_equal_torch():
    mask, bias = random_mask(5, 7), randn(3, 5, 7, seed=4)
    cotangent = randn(2, 3, 5, 13, seed=5)
    inputs = [*qkv(), bias]
    ours = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.clone().requires_grad_() for x in inputs]
    out, _ = attention(*ours[:3], mask, bias=ours[3])
    expected = torch_attention(*theirs[:3], theirs[3].masked_fill(~mask, -INF))
    for a, b in zip(torch.autograd.grad(out, ours, cotangent), torch.autograd.grad(expected, theirs, cotangent)):
        exactly(a, b)


# Laws


def test_weights_are_those_used_and_are_on_the_simplex():
    q, k, v = qkv()
    out, weights = attention(q, k, v, random_mask(5, 7))
    assert weights.shape == (2, 3, 5, 7)
    assert out.shape == (2, 3, 5, 13)
    assert torch.equal(out, weights @ v)
    assert (weights >= 0).all()
    exactly(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))


def test_weights_equal_the_formula_entry_by_entry():
    q, k, v = randn(5, 11), randn(7, 11, seed=1), randn(7, 13, seed=2)
    _, weights = attention(q, k, v)
    for i in range(5):
        powers = [math.exp(sum(q[i, d] * k[j, d] for d in range(11)) / math.sqrt(11)) for j in range(7)]
        exactly(weights[i], torch.tensor(powers, dtype=torch.float64) / sum(powers))


def test_permuting_the_queries_permutes_the_rows():
    q, k, v = qkv()
    order = torch.tensor([3, 0, 4, 1, 2])
    out, weights = attention(q, k, v)
    permuted_out, permuted_weights = attention(q[..., order, :], k, v)
    exactly(permuted_out, out[..., order, :])
    exactly(permuted_weights, weights[..., order, :])


def test_permuting_keys_and_values_together_changes_no_output():
    q, k, v = qkv()
    mask, order = random_mask(5, 7), torch.tensor([6, 2, 0, 5, 1, 4, 3])
    out, weights = attention(q, k, v, mask)
    permuted_out, permuted_weights = attention(q, k[..., order, :], v[..., order, :], mask[:, order])
    exactly(permuted_out, out)
    exactly(permuted_weights, weights[..., order])


def test_a_constant_added_to_every_key_changes_no_weight_but_one_added_to_every_query_does():
    q, k, v = qkv()
    constant = randn(11, seed=5)
    _, weights = attention(q, k, v)
    exactly(attention(q, k + constant, v)[1], weights)
    assert (attention(q + constant, k, v)[1] - weights).abs().max() > 0.1


def test_values_are_mixed_linearly_and_never_compared():
    q, k, v = qkv()
    other = randn(2, 3, 7, 13, seed=6)
    out, weights = attention(q, k, v)
    mixed, same_weights = attention(q, k, 2 * v - other)
    assert torch.equal(same_weights, weights)
    exactly(mixed, 2 * out - attention(q, k, other)[0])
    v.requires_grad_()
    assert not attention(q, k, v)[1].requires_grad


def test_every_output_lies_between_the_smallest_and_the_largest_value():
    q, k, v = qkv()
    out, _ = attention(5 * q, k, v)
    assert (out <= v.amax(-2, keepdim=True) + 1e-15).all()
    assert (out >= v.amin(-2, keepdim=True) - 1e-15).all()


def test_masking_keys_equals_deleting_them():
    q, k, v = qkv()
    seen = torch.tensor([True, False, True, True, False, False, True])
    out, weights = attention(q, k, v, seen)
    out_without, weights_without = attention(q, k[..., seen, :], v[..., seen, :])
    exactly(out, out_without)
    exactly(weights[..., seen], weights_without)
    assert (weights[..., ~seen] == 0).all()


# Order: scale, softcap, bias, mask, softmax


def test_the_softcap_bounds_the_scaled_scores():
    # q·k = 12, scaled to 3, capped at 2: 2 tanh(3/2).
    _, weights = attention(column(6.0), column(2.0, 0.0), column(1.0, 0.0), scale=0.25, softcap=2.0)
    capped = 2 * math.tanh(1.5)
    exactly(weights, torch.tensor([[math.exp(capped), 1.0]], dtype=torch.float64) / (math.exp(capped) + 1))


def test_a_large_softcap_changes_nothing():
    q, k, v = qkv()
    exactly(attention(q, k, v, softcap=1e9)[0], attention(q, k, v)[0])


def test_the_bias_is_added_after_the_softcap_and_after_the_scale():
    bias = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)
    zero = column(0.0)
    for options in ({}, {"softcap": 0.1}, {"scale": 0.01}):
        exactly(attention(zero, column(0.0, 0.0), column(0.0, 4.0), bias=bias, **options)[0], column(3.0))


def test_the_mask_comes_after_softcap_and_bias():
    # Had the mask come first, the cap would turn −inf into −2 and the bias would bring the key back.
    mask = torch.tensor([True, False])
    q, k, v = column(1.0), column(1.0, 1.0), column(5.0, 7.0)
    out, weights = attention(q, k, v, mask, bias=torch.tensor([0.0, 1e9]), softcap=2.0)
    assert weights.tolist() == [[1.0, 0.0]]
    assert out.item() == 5.0


def test_the_mask_comes_before_the_softmax_so_that_rows_still_sum_to_one():
    q, k, v = qkv()
    _, weights = attention(q, k, v, causal_mask(5, 7))
    exactly(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    assert (weights.masked_select(~causal_mask(5, 7)) == 0).all()
    assert (weights.masked_select(causal_mask(5, 7)) > 0).all()


# Reduced bug reports, by their kind


def leaves(*tensors):
    return [x.clone().requires_grad_() for x in tensors]


def test_dead_row():
    q, k, v = leaves(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]))
    out, weights = attention(q, k, v, torch.tensor([[True, True], [False, False]]))
    assert out.tolist() == [[2.0], [0.0]]
    assert weights.tolist() == [[0.5, 0.5], [0.0, 0.0]]
    (out.sum() + weights.square().sum()).backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert v.grad.tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"bias": torch.zeros(7)}, {"scale": 1e4}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
def test_dead_row_in_every_dtype_and_with_every_option(dtype, options):
    q, k, v = leaves(*(x.to(dtype) for x in qkv()))
    mask = padding_mask([0, 7], 7)
    out, weights = attention(q, k, v, mask, **options)
    assert (out[0] == 0).all()
    assert (weights[0] == 0).all()
    assert (weights[1].sum(-1) > 0.99).all()
    out.sum().backward()
    assert all((x.grad[0] == 0).all() and x.grad.isfinite().all() for x in (q, k, v))
    assert v.grad[1].abs().sum() > 0


def test_dead_row_before_the_first_key_of_a_causal_mask():
    v = column(1.0, 2.0, 6.0)
    out, _ = attention(torch.zeros(3, 1).double(), torch.zeros(3, 1).double(), v, causal_mask(3, offset=-1))
    assert out.flatten().tolist() == [0.0, 1.0, 1.5]


def test_dead_row_made_by_a_bias_of_minus_infinity():
    q, k, v = leaves(randn(2, 1), randn(3, 1, seed=1), column(1.0, 2.0, 6.0))
    bias = torch.tensor([[-INF, -INF, -INF], [0.0, 0.0, -INF]], dtype=torch.float64, requires_grad=True)
    out, weights = attention(q, k, v, bias=bias)
    assert out[0].item() == 0.0
    assert weights[:, 2].tolist() == [0.0, 0.0]
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, bias))


def test_dead_row_made_by_mask_and_bias_together():
    bias = torch.tensor([-INF, 0.0])
    out, weights = attention(
        torch.zeros(1, 1), torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([True, False]), bias=bias
    )
    assert out.item() == 0.0
    assert weights.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("offset", "expected"), [(0, [0.0, 0.5]), (2, [1.0, 1.5]), (1, [0.5, 1.0]), (-1, [0.0, 0.0])])
def test_causal_with_more_keys_than_queries(offset, expected):
    zeros = torch.zeros(4, 1)
    out, _ = attention(zeros[:2], zeros, torch.arange(4.0)[:, None], causal_mask(2, 4, offset=offset))
    assert out.flatten().tolist() == expected


def test_causal_with_more_queries_than_keys():
    zeros = torch.zeros(5, 1)
    v = torch.tensor([[2.0], [6.0]])
    top_left, _ = attention(zeros, zeros[:2], v, causal_mask(5, 2))
    bottom_right, _ = attention(zeros, zeros[:2], v, causal_mask(5, 2, offset=2 - 5))
    assert top_left.flatten().tolist() == [2.0, 4.0, 4.0, 4.0, 4.0]
    assert bottom_right.flatten().tolist() == [0.0, 0.0, 0.0, 2.0, 4.0]


def test_polarity_true_means_may_see():
    zeros, v = torch.zeros(3, 1, dtype=torch.float64), column(0.0, 1.0, 2.0)
    lower = torch.ones(3, 3, dtype=torch.bool).tril()
    out, _ = attention(zeros, zeros, v, lower)
    assert out.flatten().tolist() == [0.0, 0.5, 1.0]
    exactly(torch_attention(zeros[None], zeros[None], v[None], lower)[0], out)


def test_polarity_of_a_mask_that_is_neither_triangular_nor_symmetric():
    mask = torch.tensor([[False, True, True], [True, False, False]])
    out, _ = attention(torch.zeros(2, 1), torch.zeros(3, 1), torch.tensor([[1.0], [10.0], [100.0]]), mask)
    assert out.flatten().tolist() == [55.0, 1.0]


def test_padding_on_the_key_axis():
    zeros = torch.zeros(1, 1, 4, 1)
    mask = causal_mask(4) & padding_mask([2], 4)
    out, _ = attention(zeros, zeros, torch.arange(4.0).view(1, 1, 4, 1), mask)
    assert out.flatten().tolist() == [0.0, 0.5, 0.5, 0.5]


def test_padding_on_the_key_axis_differs_by_sequence_and_not_by_head():
    zeros, v = torch.zeros(2, 3, 5, 1), torch.arange(5.0)[:, None]
    out, weights = attention(zeros, zeros, v, padding_mask([5, 3], 5))
    assert weights.shape == (2, 3, 5, 5)
    exactly(out[0], torch.full((3, 5, 1), 2.0), atol=1e-6)
    exactly(out[1], torch.full((3, 5, 1), 1.0), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"mask": torch.ones(5, 7, dtype=torch.bool)},
        {"mask": torch.tensor(True)},
        {"mask": torch.ones(1, dtype=torch.bool)},
        {"mask": None, "bias": None, "scale": None, "softcap": None},
        {"bias": torch.zeros(3, 5, 7, dtype=torch.float64)},
        {"bias": torch.tensor(0.0)},
        {"scale": 1 / math.sqrt(11)},
    ],
)
def test_option_that_asks_for_the_default_changes_nothing(options):
    q, k, v = qkv()
    for plain, with_option in zip(attention(q, k, v), attention(q, k, v, **options)):
        assert torch.equal(plain, with_option)


def test_option_keeps_the_mask_whatever_else_is_asked_for():
    q, k, v = qkv()
    mask = causal_mask(5, 7)
    for options in ({}, {"scale": 2.0}, {"softcap": 1.5}, {"bias": randn(5, 7)}):
        assert (attention(q, k, v, mask, **options)[1].masked_select(~mask) == 0).all()


def test_scale_of_a_head_is_that_of_its_own_width():
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    _, weights = attention(q, torch.cat([q, 0 * q]), column(1.0, 1.0))
    assert weights[0, 0].item() == pytest.approx(0.8807971, abs=5e-8)  # .80443 with √d_model = √8


def test_scale_does_not_depend_on_the_width_of_the_values_or_the_number_of_keys():
    q, k = torch.full((1, 9), math.log(2) / 3, dtype=torch.float64), torch.eye(2, 9, dtype=torch.float64) * 9
    for v in (torch.eye(2, dtype=torch.float64), torch.ones(2, 17, dtype=torch.float64)):
        exactly(attention(q, torch.cat([k[:1], 0 * k[1:]]), v)[1], torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64))


@pytest.mark.parametrize(("n_keys", "n_values"), [(5, 6), (6, 5), (7, 1), (1, 7), (0, 3)])
def test_lengths_of_keys_and_values_must_agree_and_the_error_names_both(n_keys, n_values):
    k, v = torch.zeros(2, n_keys, 3), torch.zeros(2, n_values, 11)
    with pytest.raises(
        ValueError, match=rf"^k and v must hold .*: k has shape \(2, {n_keys}, 3\), v has shape \(2, {n_values}, 11\)$"
    ):
        attention(torch.zeros(2, 4, 3), k, v)


@pytest.mark.parametrize("dtype", HALF)
def test_fp16_fill_is_minus_infinity_even_under_very_low_scores(dtype):
    # Visible scores of −320000: any finite fill that fits into float16 would win over them.
    q, k = torch.full((1, 64), 200.0, dtype=dtype), torch.full((3, 64), -200.0, dtype=dtype)
    v = torch.tensor([[1.0], [3.0], [100.0]], dtype=dtype)
    out, weights = attention(q, k, v, torch.tensor([True, True, False]))
    assert weights.tolist() == [[0.5, 0.5, 0.0]]
    assert out.tolist() == [[2.0]]


def test_fp16_fill_in_float32_under_scores_beyond_any_usual_constant():
    q, k = torch.tensor([[1e15]]), torch.tensor([[-1e15], [-1e15]])
    _, weights = attention(q, k, torch.zeros(2, 1), torch.tensor([False, True]))
    assert weights.tolist() == [[0.0, 1.0]]


def test_two_lengths_in_a_row():
    for T in (7, 11, 7):
        zeros, v = torch.zeros(T, 1, dtype=torch.float64), torch.arange(float(T), dtype=torch.float64)[:, None]
        out, _ = attention(zeros, zeros, v, causal_mask(T))
        exactly(out, v / 2)


# Number range and dtype


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_entries_of_200_at_width_64_do_not_overflow(dtype):
    q = torch.full((3, 64), 200.0, dtype=dtype)
    k = torch.stack([q[0], q[0], -q[0]])
    scores = attention_scores(q, k)
    assert scores.dtype == torch.float32
    assert scores.tolist() == [[320000.0, 320000.0, -320000.0]] * 3
    out, weights = attention(q, k, torch.tensor([[1.0], [3.0], [7.0]], dtype=dtype))
    assert weights.tolist() == [[0.5, 0.5, 0.0]] * 3
    assert out.flatten().tolist() == [2.0, 2.0, 2.0]
    assert out.dtype == weights.dtype == dtype


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_weights_are_float32_weights_rounded_once(dtype):
    q, k, v = (x.to(dtype) for x in qkv())
    bias = randn(5, 7, seed=4).to(dtype)
    out, weights = attention(q, k, v, bias=bias, softcap=2.0)
    _, in_float32 = attention(q.float(), k.float(), v.float(), bias=bias.float(), softcap=2.0)
    assert out.dtype == weights.dtype == dtype
    assert torch.equal(weights, in_float32.to(dtype))
    assert torch.equal(out, weights @ v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_stays_in_its_dtype_even_with_another_bias(dtype):
    q, k, v = (x.to(dtype) for x in qkv())
    for bias_dtype in (torch.float16, torch.float32, torch.float64):
        out, weights = attention(q, k, v, bias=torch.zeros(7, dtype=bias_dtype))
        assert out.dtype == weights.dtype == dtype
    assert attention_scores(q, k).dtype == dtype


def test_the_scale_goes_on_before_the_product():
    # 2e19 · 2e19 leaves float32, a tenth of it does not.
    large = torch.full((1, 1), 2e19)
    assert attention_scores(large, large, scale=0.1).item() == pytest.approx(4e37, rel=1e-6)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_gradients_are_finite_and_in_half_precision(dtype):
    q, k, v = leaves(*(100 * x.to(dtype) for x in qkv()))
    attention(q, k, v, causal_mask(5, 7))[0].sum().backward()
    for x in (q, k, v):
        assert x.grad.dtype == dtype
        assert x.grad.isfinite().all()


# Empty axes, strides, broadcasting


def test_without_keys_the_output_is_zero():
    q, k, v = leaves(torch.ones(2, 5, 11), torch.ones(2, 0, 11), torch.ones(2, 0, 13))
    for mask in (None, torch.ones(5, 0, dtype=torch.bool), torch.tensor([True])):
        out, weights = attention(q, k, v, mask)
        assert weights.shape == (2, 5, 0)
        assert torch.equal(out, torch.zeros(2, 5, 13))
        out.sum().backward()
        assert torch.equal(q.grad, torch.zeros(2, 5, 11))


def test_without_queries_there_is_no_output():
    out, weights = attention(torch.ones(2, 0, 11), torch.ones(2, 7, 11), torch.ones(2, 7, 13), causal_mask(0, 7))
    assert out.shape == (2, 0, 13)
    assert weights.shape == (2, 0, 7)


def test_an_empty_batch_and_values_without_features():
    out, weights = attention(torch.ones(0, 5, 11), torch.ones(0, 7, 11), torch.ones(0, 7, 13))
    assert (out.shape, weights.shape) == ((0, 5, 13), (0, 5, 7))
    out, weights = attention(torch.ones(5, 11), torch.ones(7, 11), torch.ones(7, 0))
    assert out.shape == (5, 0)
    exactly(weights, torch.full((5, 7), 1 / 7), atol=1e-7)


def test_keys_without_features_are_all_alike():
    out, _ = attention(torch.ones(3, 0), torch.ones(2, 0), torch.tensor([[1.0], [3.0]]))
    assert out.flatten().tolist() == [2.0, 2.0, 2.0]


def test_strided_inputs():
    q, k, v = qkv()
    expected_out, expected_weights = attention(q, k, v)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]  # laid out as (B, T, H, d)
    fortran = [x.mT.contiguous().mT for x in (q, k, v)]
    every_other = [x.repeat_interleave(2, -1)[..., ::2] for x in (q, k, v)]
    for strided in (swapped, fortran, every_other):
        assert not any(x.is_contiguous() for x in strided)
        out, weights = attention(*strided)
        exactly(out, expected_out)
        exactly(weights, expected_weights)


def test_leading_axes_broadcast():
    q, k, v = randn(2, 3, 5, 11), randn(3, 7, 11, seed=1), randn(2, 1, 7, 13, seed=2)
    out, weights = attention(q, k, v)
    full_k, full_v = k.expand(2, 3, 7, 11), v.expand(2, 3, 7, 13)
    expected_out, expected_weights = attention(q, full_k.contiguous(), full_v.contiguous())
    exactly(out, expected_out)
    exactly(weights, expected_weights)
    exactly(attention(q, full_k, full_v)[0], expected_out)


def test_values_may_have_leading_axes_of_their_own():
    q, k, v = randn(5, 11), randn(7, 11, seed=1), randn(2, 3, 7, 13, seed=2)
    out, weights = attention(q, k, v)
    assert weights.shape == (5, 7)
    exactly(out, torch.einsum("ij,bhje->bhie", weights, v))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 1), (1, 7), (3, 1, 1), (3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 7)])
def test_mask_and_bias_broadcast_over_what_they_lack(shape):
    q, k, v = qkv()
    mask, bias = randn(*shape, seed=3) > -1, randn(*shape, seed=4)
    full_mask, full_bias = mask.expand(2, 3, 5, 7).contiguous(), bias.expand(2, 3, 5, 7).contiguous()
    assert torch.equal(attention(q, k, v, mask)[1], attention(q, k, v, full_mask)[1])
    assert torch.equal(attention(q, k, v, bias=bias)[1], attention(q, k, v, bias=full_bias)[1])


def test_mask_and_bias_may_add_leading_axes():
    q, k, v = randn(5, 11), randn(7, 11, seed=1), randn(7, 13, seed=2)
    mask, bias = random_mask(3, 5, 7), randn(3, 1, 7, seed=4)
    out, weights = attention(q, k, v, mask, bias=bias)
    assert (out.shape, weights.shape) == ((3, 5, 13), (3, 5, 7))
    for h in range(3):
        exactly(out[h], attention(q, k, v, mask[h], bias=bias[h])[0])


def test_inputs_are_left_alone():
    inputs = [*qkv(), random_mask(5, 7), randn(5, 7, seed=4)]
    before = [x.clone() for x in inputs]
    attention(*inputs[:4], bias=inputs[4], softcap=1.0)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before))


# Gradients


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_gradients_are_right_with_bias_mask_softcap_and_a_dead_row(softcap):
    q, k, v, bias = leaves(randn(3, 2), randn(5, 2, seed=1), randn(5, 2, seed=2), randn(3, 5, seed=3))
    mask = random_mask(3, 5)
    mask[1] = False
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: attention(q, k, v, mask, bias=b, softcap=softcap), (q, k, v, bias)
    )


def test_gradients_are_right_to_second_order():
    q, k, v = leaves(randn(2, 2), randn(3, 2, seed=1), randn(3, 1, seed=2))
    assert torch.autograd.gradgradcheck(lambda q, k, v: attention(q, k, v, causal_mask(2, 3))[0], (q, k, v))


def test_a_loss_on_the_weights_reaches_queries_and_keys_but_not_values():
    q, k, v = leaves(*qkv())
    cotangent = randn(2, 3, 5, 7, seed=5)
    attention(q, k, v)[1].backward(cotangent)
    other_q, other_k = leaves(q.detach(), k.detach())
    torch.softmax(other_q @ other_k.mT / math.sqrt(11), -1).backward(cotangent)
    exactly(q.grad, other_q.grad)
    exactly(k.grad, other_k.grad)
    assert v.grad is None


def test_no_gradient_reaches_a_key_that_is_masked():
    q, k, v = leaves(*qkv())
    attention(q, k, v, padding_mask([4, 4], 7))[0].square().sum().backward()
    for x in (k, v):
        assert (x.grad[..., 4:, :] == 0).all()
        assert (x.grad[..., :4, :] != 0).all()


# Errors


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_that_is_not_boolean_is_an_error(dtype):
    with pytest.raises(
        TypeError, match=rf"^mask must be boolean \(True: may see\), got {dtype}; float terms go in bias$"
    ):
        attention(ones(5, 3), ones(7, 3), ones(7, 2), ones(5, 7, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_bias_that_is_not_floating_point_is_an_error(dtype):
    with pytest.raises(TypeError, match=rf"^bias must be floating point, got {dtype}; boolean terms go in mask$"):
        attention(ones(5, 3), ones(7, 3), ones(7, 2), bias=ones(5, 7, dtype=dtype))


def test_dtypes_of_q_k_and_v_must_agree():
    double, half = torch.float64, torch.float16
    with pytest.raises(TypeError, match=r"^q and k must share one dtype: q is torch.float64, k is torch.float32$"):
        attention(ones(5, 3, dtype=double), ones(7, 3), ones(7, 2))
    with pytest.raises(TypeError, match=r"^k and v must share one dtype: k is torch.float32, v is torch.float16$"):
        attention(ones(5, 3), ones(7, 3), ones(7, 2, dtype=half))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_queries_and_keys_must_be_floating_point(dtype):
    with pytest.raises(TypeError, match=rf"^q must be floating point, got {dtype}$"):
        attention_scores(ones(5, 3, dtype=dtype), ones(7, 3))
    with pytest.raises(TypeError, match=rf"^k must be floating point, got {dtype}$"):
        attention_scores(ones(5, 3), ones(7, 3, dtype=dtype))


def test_queries_and_keys_must_have_one_width():
    with pytest.raises(ValueError, match=r"^q and k must have the same width: q has 3 features, k has 11$"):
        attention(ones(5, 3), ones(7, 11), ones(7, 2))


def test_vectors_are_no_sequences():
    with pytest.raises(ValueError, match=r"^q must have shape \(\.\.\., tokens, features\), got \(3,\)$"):
        attention_scores(ones(3), ones(7, 3))
    with pytest.raises(ValueError, match=r"^k must have shape \(\.\.\., tokens, features\), got \(\)$"):
        attention_scores(ones(5, 3), ones())
    with pytest.raises(ValueError, match=r"^k and v must hold .*: k has shape \(7, 3\), v has shape \(7,\)$"):
        attention(ones(5, 3), ones(7, 3), ones(7))


def test_leading_axes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"^leading axes of q and k do not broadcast: q has \(2, 3\), k has \(5,\)$"):
        attention_scores(ones(2, 3, 5, 11), ones(5, 7, 11))


def test_leading_axes_of_the_values_must_fit_those_of_queries_keys_and_mask():
    message = r"^leading axes of v and scores do not broadcast: v has \(3,\), scores has \(2,\)$"
    with pytest.raises(ValueError, match=message):
        attention(ones(2, 5, 11), ones(7, 11), ones(3, 7, 13))
    with pytest.raises(ValueError, match=message):
        attention(ones(5, 11), ones(2, 7, 11), ones(3, 7, 13))
    with pytest.raises(ValueError, match=message):
        attention(ones(5, 11), ones(7, 11), ones(3, 7, 13), ones(2, 5, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=message):
        attention(ones(5, 11), ones(7, 11), ones(3, 7, 13), bias=ones(2, 5, 7))


@pytest.mark.parametrize("shape", [(6,), (5, 6), (7, 5), (4, 7), (0, 7), (5, 0)])
def test_a_mask_or_bias_must_not_stretch_the_scores(shape):
    where = rf"must broadcast to \(\.\.\., T, S\) = \(\.\.\., 5, 7\), got shape {tuple(shape)}$"
    where = where.replace(str(tuple(shape)), str(tuple(shape)).replace("(", r"\(").replace(")", r"\)"))
    with pytest.raises(ValueError, match="^mask " + where):
        attention(ones(5, 3), ones(7, 3), ones(7, 2), ones(*shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="^bias " + where):
        attention(ones(5, 3), ones(7, 3), ones(7, 2), bias=ones(*shape))


def test_a_mask_must_not_turn_one_query_into_many():
    with pytest.raises(ValueError, match=r"= \(\.\.\., 1, 7\), got shape \(5, 7\)$"):
        attention(ones(1, 3), ones(7, 3), ones(7, 2), ones(5, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"= \(\.\.\., 5, 1\), got shape \(5, 7\)$"):
        attention(ones(5, 3), ones(1, 3), ones(1, 2), bias=ones(5, 7))


def test_leading_axes_of_mask_and_bias_must_fit_the_scores():
    with pytest.raises(
        ValueError, match=r"^leading axes of mask and scores do not broadcast: mask has \(3,\), scores has \(2,\)$"
    ):
        attention(ones(2, 5, 3), ones(2, 7, 3), ones(2, 7, 2), ones(3, 5, 7, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"^leading axes of bias and scores do not broadcast: bias has \(3,\), scores has \(2,\)$"
    ):
        attention(ones(2, 5, 3), ones(2, 7, 3), ones(2, 7, 2), bias=ones(3, 5, 7))


@pytest.mark.parametrize("softcap", [0.0, -2.0, math.nan, INF])
def test_a_softcap_must_be_positive_and_finite(softcap):
    with pytest.raises(ValueError, match=rf"^softcap must be positive and finite, got {softcap}$"):
        attention(ones(5, 3), ones(7, 3), ones(7, 2), softcap=softcap)


def test_a_batch_without_features_scores_zero():
    assert torch.equal(attention_scores(torch.zeros(2, 3, 0), torch.zeros(2, 4, 0)), torch.zeros(2, 3, 4))
