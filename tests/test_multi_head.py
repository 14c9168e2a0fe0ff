"""Heads: by hand, against torch's modules in float64 with copied weights, and by their laws.

The sizes are different primes where they may be: B = 2, H = 3, T = 5, S = 7, d_k = 11, d_v = 13.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from attnkit.masks import causal_mask, padding_mask
from attnkit.multi_head import Head, MultiHeadAttention, merge_heads, repeat_heads, split_heads
from attnkit.scaled_dot_product import attention


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def filled(module, seed=0):
    """The module in float64, every parameter drawn from its own seed."""
    module = module.double()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=seed + 17 * i) / math.sqrt(parameter.shape[-1]))
    return module


# split_heads, merge_heads


def test_heads_by_view_would_mix_tokens():
    x = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    heads = split_heads(x, 2)
    assert heads.tolist() == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    assert not torch.equal(heads, x.view(2, 2, 2))
    assert torch.equal(merge_heads(heads), x)


def test_heads_by_view_with_three_heads_and_a_batch():
    x = torch.arange(2 * 5 * 3 * 7).view(2, 5, 21)
    heads = split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    for h in range(3):
        assert torch.equal(heads[:, h], x[:, :, 7 * h : 7 * (h + 1)])
    assert torch.equal(merge_heads(heads), x)


def test_merging_puts_the_heads_of_a_token_side_by_side():
    heads = torch.arange(2 * 3 * 5 * 7).view(2, 3, 5, 7)
    assert torch.equal(merge_heads(heads), torch.cat([heads[:, h] for h in range(3)], dim=-1))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize("n_heads", [1, 5, 35])
def test_merging_undoes_splitting_whatever_the_leading_axes(leading, n_heads):
    x = randn(*leading, 11, 35)
    assert split_heads(x, n_heads).shape == (*leading, n_heads, 11, 35 // n_heads)
    assert torch.equal(merge_heads(split_heads(x, n_heads)), x)


def test_splitting_undoes_merging():
    heads = randn(2, 3, 5, 7)
    assert torch.equal(split_heads(merge_heads(heads), 3), heads)


def test_splitting_strided_input():
    x = randn(2, 15, 5).mT
    assert torch.equal(split_heads(x, 3), split_heads(x.contiguous(), 3))
    assert torch.equal(merge_heads(split_heads(x, 3)), x)


def test_splitting_without_tokens_or_features():
    assert split_heads(torch.zeros(2, 0, 15), 3).shape == (2, 3, 0, 5)
    assert split_heads(torch.zeros(2, 5, 0), 3).shape == (2, 3, 5, 0)
    assert merge_heads(torch.zeros(2, 3, 0, 5)).shape == (2, 0, 15)
    assert merge_heads(torch.zeros(2, 3, 5, 0)).shape == (2, 5, 0)


@pytest.mark.parametrize("n_heads", [4, 0, -5, 10])
def test_splitting_wants_a_width_that_is_a_multiple(n_heads):
    message = f"^width of x must be a multiple of n_heads: width is 15, n_heads is {n_heads}$"
    with pytest.raises(ValueError, match=message):
        split_heads(torch.zeros(5, 15), n_heads)


def test_splitting_and_merging_want_all_their_axes():
    with pytest.raises(ValueError, match=r"^x must have shape \(\.\.\., tokens, features\), got \(15,\)$"):
        split_heads(torch.zeros(15), 3)
    with pytest.raises(ValueError, match=r"^x must have shape \(\.\.\., heads, tokens, features\), got \(5, 15\)$"):
        merge_heads(torch.zeros(5, 15))


# repeat_heads


def test_gqa_order_repeats_each_head_in_place():
    kv = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
    assert repeat_heads(kv, 4).flatten().tolist() == [10.0, 10.0, 20.0, 20.0]
    zeros = torch.zeros(1, 4, 1, 1)
    out, _ = attention(zeros, repeat_heads(torch.zeros(1, 2, 1, 1), 4), repeat_heads(kv, 4))
    assert out.flatten().tolist() == [10.0, 10.0, 20.0, 20.0]


def test_gqa_order_with_three_groups_of_two_and_with_two_groups_of_three():
    three, two = torch.tensor([1, 2, 3]).view(3, 1, 1), torch.tensor([1, 2]).view(2, 1, 1)
    assert repeat_heads(three, 6).flatten().tolist() == [1, 1, 2, 2, 3, 3]
    assert repeat_heads(two, 6).flatten().tolist() == [1, 1, 1, 2, 2, 2]


def test_gqa_order_equals_torch_enable_gqa():
    q, k, v = randn(2, 6, 5, 11), randn(2, 3, 7, 11, seed=1), randn(2, 3, 7, 13, seed=2)
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    exactly(attention(q, repeat_heads(k, 6), repeat_heads(v, 6))[0], expected)


def test_repeating_to_the_same_number_changes_nothing_and_one_head_serves_all():
    x = randn(2, 3, 5, 7)
    assert torch.equal(repeat_heads(x, 3), x)
    assert torch.equal(repeat_heads(x[:, :1], 11), x[:, :1].expand(2, 11, 5, 7))


def test_a_shared_head_gets_the_gradients_of_its_group_and_of_no_other():
    x = randn(2, 5, 7).requires_grad_()
    cotangent = randn(6, 5, 7, seed=1)
    repeat_heads(x, 6).backward(cotangent)
    exactly(x.grad, torch.stack([cotangent[:3].sum(0), cotangent[3:].sum(0)]), atol=1e-15)


@pytest.mark.parametrize("n_heads", [4, 2, 1])
def test_repeating_wants_a_multiple(n_heads):
    message = f"^n_heads must be a multiple of the heads of x: n_heads is {n_heads}, x has 3$"
    with pytest.raises(ValueError, match=message):
        repeat_heads(torch.zeros(3, 5, 7), n_heads)


@pytest.mark.parametrize("n_heads", [0, -3])
def test_repeating_to_less_than_one_head_is_an_error(n_heads):
    with pytest.raises(ValueError, match=f"n_heads is {n_heads}, x has 3"):
        repeat_heads(torch.zeros(3, 5, 7), n_heads)


def test_repeating_wants_all_its_axes_and_a_head():
    with pytest.raises(ValueError, match=r"^x must have shape \(\.\.\., heads, tokens, features\), got \(5, 7\)$"):
        repeat_heads(torch.zeros(5, 7), 2)
    with pytest.raises(ValueError, match=r"n_heads is 2, x has 0$"):
        repeat_heads(torch.zeros(0, 5, 7), 2)


# Head


def test_a_head_by_hand():
    # Query and key are the first feature, the value is twice the second: scores ln 2 · (0, 1) / √1.
    head = Head(d_model=2, d_k=1).double()
    with torch.no_grad():
        head.query.weight.copy_(torch.tensor([[1.0, 0.0]]))
        head.key.weight.copy_(torch.tensor([[1.0, 0.0]]))
        head.value.weight.copy_(torch.tensor([[0.0, 2.0]]))
    root = math.sqrt(math.log(2))
    out, weights = head(torch.tensor([[0.0, 3.0], [root, 6.0]], dtype=torch.float64))
    exactly(weights, torch.tensor([[1 / 2, 1 / 2], [1 / 3, 2 / 3]], dtype=torch.float64))
    exactly(out, torch.tensor([[9.0], [10.0]], dtype=torch.float64))


@pytest.mark.parametrize("context", [None, 5, 17])
def test_a_head_is_three_projections_and_attention(context):
    head = filled(Head(19, 11, 13, context=context))
    x = randn(2, 5, 19, seed=3)
    q, k, v = (x @ w.T for w in (head.query.weight, head.key.weight, head.value.weight))
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(q, k, v, is_causal=context is not None)
    out, weights = head(x)
    assert (out.shape, weights.shape) == ((2, 5, 13), (2, 5, 5))
    exactly(out, expected)
    exactly(weights @ v, out)


def test_a_head_has_values_as_wide_as_its_keys_unless_told_and_no_bias():
    shapes = {name: tuple(p.shape) for name, p in Head(19, 11).named_parameters()}
    assert shapes == {"query.weight": (11, 19), "key.weight": (11, 19), "value.weight": (11, 19)}
    shapes = {name: tuple(p.shape) for name, p in Head(19, 11, 13).named_parameters()}
    assert shapes == {"query.weight": (11, 19), "key.weight": (11, 19), "value.weight": (13, 19)}


def test_changing_a_token_leaves_the_outputs_before_it_bitwise_identical():
    head = filled(Head(19, 11, context=7))
    x = randn(2, 7, 19, seed=3)
    changed = x.clone()
    changed[:, 4] += 1
    before, after = head(x)[0], head(changed)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()


def test_the_gradient_of_an_output_is_zero_beyond_its_token_and_only_there():
    head = filled(Head(19, 11, context=7))
    x = randn(7, 19, seed=3).requires_grad_()
    head(x)[0][3].sum().backward()
    assert (x.grad[4:] == 0).all()
    assert (x.grad[:4] != 0).all()


def test_a_head_without_context_sees_the_future():
    head = filled(Head(19, 11))
    _, weights = head(randn(5, 19, seed=3))
    assert head.mask is None
    assert (weights > 0).all()


def test_the_causal_mask_of_a_head_is_a_buffer_that_no_checkpoint_keeps():
    head = Head(19, 11, context=7)
    assert dict(head.named_buffers()).keys() == {"mask"}
    assert torch.equal(head.mask, causal_mask(7))
    assert head.state_dict().keys() == {"query.weight", "key.weight", "value.weight"}
    assert head.to("meta").mask.device.type == "meta"
    assert head.mask.dtype == torch.bool
    assert Head(19, 11, context=7).double().mask.dtype == torch.bool


def test_a_checkpoint_of_one_context_loads_into_another():
    short, long = Head(19, 11, context=5), Head(19, 11, context=7)
    long.load_state_dict(short.state_dict())
    x = randn(5, 19).float()
    assert torch.equal(short(x)[0], long(x)[0])


@pytest.mark.parametrize("make", [lambda: Head(19, 11, context=11), lambda: Head(19, 11)])
def test_two_lengths_in_a_row_through_a_head(make):
    head = filled(make())
    xs = {T: randn(2, T, 19, seed=T) for T in (7, 11)}
    fresh = {T: filled(make())(x) for T, x in xs.items()}
    for T in (7, 11, 7):
        for used, expected in zip(head(xs[T]), fresh[T]):
            assert torch.equal(used, expected)


def test_a_causal_head_refuses_more_tokens_than_its_context():
    with pytest.raises(ValueError, match=r"^x must hold at most context = 7 tokens, got 11$"):
        Head(19, 13, context=7)(torch.zeros(2, 11, 19))


@pytest.mark.parametrize("context", [None, 7])
def test_a_head_refuses_a_single_vector(context):
    with pytest.raises(ValueError, match=r"must have shape \(\.\.\., tokens, features\), got \("):
        Head(19, 11, context=context)(torch.zeros(19))


def test_a_head_without_tokens():
    out, weights = Head(19, 11, 13, context=7)(torch.zeros(2, 0, 19))
    assert (out.shape, weights.shape) == ((2, 0, 13), (2, 0, 0))


# MultiHeadAttention


def with_torch_weights(mha, d_model, n_heads, bias):
    """nn.MultiheadAttention with the weights of ours."""
    twin = nn.MultiheadAttention(d_model, n_heads, bias=bias, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([mha.query.weight, mha.key.weight, mha.value.weight]))
        twin.out_proj.weight.copy_(mha.output.weight)
        if bias:
            twin.in_proj_bias.copy_(torch.cat([mha.query.bias, mha.key.bias, mha.value.bias]))
            twin.out_proj.bias.copy_(mha.output.bias)
    return twin


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_equals_torch(masked, cross, bias):
    mha = filled(MultiHeadAttention(21, 3, bias=bias))
    twin = with_torch_weights(mha, 21, 3, bias)
    x = randn(2, 5, 21, seed=3)
    memory = randn(2, 7, 21, seed=4) if cross else None
    source = x if memory is None else memory
    mask = causal_mask(5, source.shape[1], offset=1) if masked else None
    out, weights = mha(x, memory, mask)
    expected_out, expected_weights = twin(
        x, source, source, attn_mask=None if mask is None else ~mask, average_attn_weights=False
    )
    exactly(out, expected_out)
    exactly(weights, expected_weights)


def test_multi_head_attention_equals_torch_with_padding():
    mha = filled(MultiHeadAttention(21, 3, bias=True))
    twin = with_torch_weights(mha, 21, 3, bias=True)
    x, mask = randn(2, 7, 21, seed=3), padding_mask([7, 4], 7)
    out, weights = mha(x, mask=mask)
    expected_out, expected_weights = twin(x, x, x, key_padding_mask=~mask[:, 0, 0], average_attn_weights=False)
    exactly(out, expected_out)
    exactly(weights, expected_weights)


def test_multi_head_gradients_equal_torch():
    mha = filled(MultiHeadAttention(21, 3))
    twin = with_torch_weights(mha, 21, 3, bias=False)
    x, cotangent = randn(2, 5, 21, seed=3), randn(2, 5, 21, seed=4)
    mha(x, mask=causal_mask(5))[0].backward(cotangent)
    twin(x, x, x, attn_mask=~causal_mask(5))[0].backward(cotangent)
    ours = torch.cat([mha.query.weight.grad, mha.key.weight.grad, mha.value.weight.grad])
    exactly(ours, twin.in_proj_weight.grad)
    exactly(mha.output.weight.grad, twin.out_proj.weight.grad)


def test_polarity_is_the_opposite_of_torchs_module():
    mha = MultiHeadAttention(1, 1)
    with torch.no_grad():
        for layer, value in ((mha.query, 0.0), (mha.key, 0.0), (mha.value, 1.0), (mha.output, 1.0)):
            layer.weight.fill_(value)
    out, _ = mha(torch.tensor([[0.0], [1.0], [2.0]]), mask=causal_mask(3))
    assert out.flatten().tolist() == [0.0, 0.5, 1.0]


def test_scale_of_many_heads_is_that_of_one_head():
    # d_model = 8, H = 2: query and first key (2, 0, 0, 0), second key 0, in the first head.
    mha = MultiHeadAttention(8, 2).double()
    with torch.no_grad():
        for layer in (mha.query, mha.key, mha.value, mha.output):
            layer.weight.copy_(torch.eye(8))
    x = torch.zeros(2, 8, dtype=torch.float64)
    x[0, 0] = 2.0
    _, weights = mha(x)
    assert weights[0, 0, 0].item() == pytest.approx(0.8807971, abs=5e-8)
    assert weights[1].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_the_concatenation_through_the_output_is_the_sum_of_the_heads_own_maps():
    mha = filled(MultiHeadAttention(19, 3, d_k=11, d_v=13))
    x = randn(2, 5, 19, seed=3)
    total = 0
    for h in range(3):
        head = Head(19, 11, 13).double()
        with torch.no_grad():
            head.query.weight.copy_(mha.query.weight[11 * h : 11 * (h + 1)])
            head.key.weight.copy_(mha.key.weight[11 * h : 11 * (h + 1)])
            head.value.weight.copy_(mha.value.weight[13 * h : 13 * (h + 1)])
        out, weights = head(x)
        exactly(mha(x)[1][:, h], weights)
        total = total + out @ mha.output.weight[:, 13 * h : 13 * (h + 1)].T
    exactly(mha(x)[0], total)


def grouped_by_loop(mha, x, memory, n_heads, n_kv_heads, d_k, d_v):
    """Every query head with the key and value head of its group, one after the other."""
    outs = []
    for h in range(n_heads):
        g = h // (n_heads // n_kv_heads)
        q = x @ mha.query.weight[d_k * h : d_k * (h + 1)].T
        k = memory @ mha.key.weight[d_k * g : d_k * (g + 1)].T
        v = memory @ mha.value.weight[d_v * g : d_v * (g + 1)].T
        outs.append(torch.softmax(q @ k.mT / math.sqrt(d_k), -1) @ v)
    return torch.cat(outs, -1) @ mha.output.weight.T


@pytest.mark.parametrize(
    ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v"),
    [(19, 6, 3, 11, 13), (19, 6, 2, 13, 11), (19, 6, 1, 5, 2), (19, 6, 6, 2, 5), (17, 1, 1, 3, 7)],
)
@pytest.mark.parametrize("S", [5, 7])
def test_unequal_widths_and_fewer_key_heads(d_model, n_heads, n_kv_heads, d_k, d_v, S):
    mha = filled(MultiHeadAttention(d_model, n_heads, n_kv_heads, d_k=d_k, d_v=d_v))
    x, memory = randn(2, 5, d_model, seed=3), randn(2, S, d_model, seed=4)
    out, weights = mha(x, memory)
    assert weights.shape == (2, n_heads, 5, S)
    exactly(out, grouped_by_loop(mha, x, memory, n_heads, n_kv_heads, d_k, d_v))


def test_unequal_widths_have_unequal_defaults():
    def widths(*args, **kwargs):
        m = MultiHeadAttention(*args, **kwargs)
        return [tuple(layer.weight.shape) for layer in (m.query, m.key, m.value, m.output)]

    assert widths(21, 3) == [(21, 21), (21, 21), (21, 21), (21, 21)]
    assert widths(42, 6, 3) == [(42, 42), (21, 42), (21, 42), (42, 42)]
    assert widths(42, 6, 1, d_k=5) == [(30, 42), (5, 42), (7, 42), (42, 42)]
    assert widths(42, 6, 2, d_v=5) == [(42, 42), (14, 42), (10, 42), (42, 30)]
    assert widths(19, 3, d_k=5, d_v=2) == [(15, 19), (15, 19), (6, 19), (19, 6)]


@pytest.mark.parametrize("n_heads", [1, 2, 5, 10])
def test_the_number_of_parameters_does_not_depend_on_the_number_of_heads(n_heads):
    def size(module):
        return sum(p.numel() for p in module.parameters())

    assert size(MultiHeadAttention(10, n_heads)) == 4 * 10**2
    assert size(MultiHeadAttention(10, n_heads, bias=True)) == 4 * 10**2 + 4 * 10


def test_padding_on_the_key_axis_hides_what_the_padding_holds():
    mha = filled(MultiHeadAttention(21, 3))
    x = randn(2, 7, 21, seed=3)
    garbage = x.clone()
    garbage[1, 4:] = 1e3
    mask = padding_mask([7, 4], 7)
    out, other = mha(x, mask=mask)[0], mha(garbage, mask=mask)[0]
    assert torch.equal(out[0], other[0])
    assert torch.equal(out[1, :4], other[1, :4])
    assert other.isfinite().all()
    exactly(out[1, :4], mha(x[1, :4])[0])


def test_dead_row_through_all_heads_gives_the_output_bias_and_finite_gradients():
    mha = filled(MultiHeadAttention(21, 3, bias=True))
    x = randn(2, 5, 21, seed=3).requires_grad_()
    out, weights = mha(x, mask=padding_mask([0, 5], 5))
    assert (weights[0] == 0).all()
    assert torch.equal(out[0], mha.output.bias.expand(5, 21))
    out.sum().backward()
    assert (x.grad[0] == 0).all()
    assert all(p.grad.isfinite().all() for p in mha.parameters())


def test_option_memory_equal_to_x_and_train_or_eval_change_nothing():
    mha = filled(MultiHeadAttention(21, 3))
    x = randn(2, 5, 21, seed=3)
    results = [mha(x), mha(x, x), mha(x, mask=torch.ones(5, 5, dtype=torch.bool)), mha.eval()(x)]
    for out, weights in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(weights, results[0][1])


def test_two_lengths_in_a_row_through_many_heads():
    mha = filled(MultiHeadAttention(21, 3, 1))
    xs = {T: randn(2, T, 21, seed=T) for T in (7, 11)}
    fresh = {T: filled(MultiHeadAttention(21, 3, 1))(x, mask=causal_mask(T)) for T, x in xs.items()}
    for T in (7, 11, 7):
        for used, expected in zip(mha(xs[T], mask=causal_mask(T)), fresh[T]):
            assert torch.equal(used, expected)


def test_a_batch_is_its_sequences_one_by_one():
    mha = filled(MultiHeadAttention(21, 3))
    x = randn(2, 5, 21, seed=3)
    out, weights = mha(x)
    for b in range(2):
        exactly(mha(x[b])[0], out[b])
        exactly(mha(x[b])[1], weights[b])


def test_one_memory_may_serve_a_batch_of_queries():
    mha = filled(MultiHeadAttention(21, 3))
    x, memory = randn(2, 5, 21, seed=3), randn(7, 21, seed=4)
    exactly(mha(x, memory)[0], mha(x, memory.expand(2, 7, 21))[0])


def test_permuting_tokens_permutes_the_output_unless_the_mask_is_causal():
    mha = filled(MultiHeadAttention(21, 3))
    x, order = randn(5, 21, seed=3), torch.tensor([3, 0, 4, 1, 2])
    exactly(mha(x[order])[0], mha(x)[0][order])
    mask = causal_mask(5)
    assert (mha(x[order], mask=mask)[0] - mha(x, mask=mask)[0][order]).abs().max() > 0.1


def test_no_memory_gives_output_zero_and_no_tokens_give_none():
    mha = filled(MultiHeadAttention(21, 3))
    out, weights = mha(randn(2, 5, 21), torch.zeros(2, 0, 21, dtype=torch.float64))
    assert weights.shape == (2, 3, 5, 0)
    assert torch.equal(out, torch.zeros(2, 5, 21, dtype=torch.float64))
    assert mha(torch.zeros(2, 0, 21, dtype=torch.float64))[0].shape == (2, 0, 21)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_heads_stay_finite_and_in_their_dtype(dtype):
    mha = filled(MultiHeadAttention(128, 2)).to(dtype)
    out, weights = mha(torch.full((3, 128), 200.0, dtype=dtype), mask=causal_mask(3))
    assert out.dtype == weights.dtype == dtype
    assert out.isfinite().all()
    assert weights[0, 1].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("n_heads", [0, -2])
def test_there_must_be_a_head(n_heads):
    with pytest.raises(ValueError, match=f"^n_heads must be at least 1, got {n_heads}$"):
        MultiHeadAttention(21, n_heads)


@pytest.mark.parametrize("n_kv_heads", [4, 12, 0, -3])
def test_key_heads_must_divide_query_heads(n_kv_heads):
    message = f"^n_heads must be a multiple of n_kv_heads: n_heads is 6, n_kv_heads is {n_kv_heads}$"
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(42, 6, n_kv_heads)


@pytest.mark.parametrize("widths", [{}, {"d_k": 5}, {"d_v": 5}])
def test_a_default_width_needs_heads_that_divide_the_model(widths):
    with pytest.raises(ValueError, match=r"^n_heads must divide d_model: d_model is 19, n_heads is 3$"):
        MultiHeadAttention(19, 3, **widths)


def test_many_heads_refuse_a_single_vector():
    with pytest.raises(ValueError, match=r"^x must have shape \(\.\.\., tokens, features\), got \(21,\)$"):
        MultiHeadAttention(21, 3)(torch.zeros(21))


def test_rotary_positions_start_at_zero_and_are_made_where_the_tokens_are():
    seen = []

    def note(x, positions):
        seen.append(positions)
        return x

    layer, x = MultiHeadAttention(6, 2, rotary=note), torch.zeros(1, 3, 6)
    with torch.device("meta"):
        layer(x)
    assert [positions.tolist() for positions in seen] == [[0, 1, 2], [0, 1, 2]]
