"""Gradients against finite differences, first and second derivatives, in float64 on small shapes.

After each a derivative worked out by hand. The shapes hold dead rows, T ≠ S, d_k ≠ d_v and single tokens.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import column
from strategies import masks, randn, seeds
from torch.autograd import grad, gradcheck, gradgradcheck

from attnkit import (
    AdditiveAttention,
    attention,
    delta_rule,
    elu_plus_one,
    gru_cell,
    layer_norm,
    linear_attention,
    lstm_cell,
    rms_norm,
    rnn_cell,
    rotate,
    tiled_attention,
)

few = settings(max_examples=5)
small = st.integers(1, 3)


def leaf(seed, *shape):
    return randn(seed, *shape).requires_grad_()


def right(function, *arguments, second=True):
    """First and, where asked for, second derivatives agree with finite differences."""
    assert gradcheck(function, arguments)
    assert not second or gradgradcheck(function, arguments)


@st.composite
def qkv(draw, same_length=False):
    T, S, d_k, d_v, seed = (draw(x) for x in (small, small, small, small, seeds))
    S = T if same_length else S
    mask = draw(masks((2,), T, S))
    return [leaf(seed, 2, T, d_k), leaf(seed + 1, 2, S, d_k), leaf(seed + 2, 2, S, d_v)], mask


@few
@given(qkv(), st.sampled_from((None, 0.8)), seeds)
def test_gradients_of_attention_with_mask_dead_rows_bias_and_softcap(call, softcap, seed):
    (q, k, v), mask = call
    bias = leaf(seed, q.shape[-2], k.shape[-2])
    right(lambda q, k, v, b: attention(q, k, v, mask, bias=b, softcap=softcap), q, k, v, bias)


def test_gradient_of_attention_by_hand():
    # weights 1/4 and 3/4 of values 8 and 4: by the scores α_j (v_j − 5), by the values α_j
    k, v = column(0, math.log(3)).requires_grad_(), column(8, 4).requires_grad_()
    by_k, by_v = grad(attention(column(1), k, v)[0].sum(), (k, v))
    assert by_k.flatten().tolist() == pytest.approx([0.75, -0.75], abs=1e-14)
    assert by_v.flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-15)


@few
@given(qkv(), st.integers(1, 3))
def test_gradients_of_tiled_attention(call, block):
    (q, k, v), mask = call
    right(lambda q, k, v: tiled_attention(q, k, v, mask, block=block), q, k, v)


def test_gradient_of_tiled_attention_by_hand():
    k, v = column(0, math.log(3)).requires_grad_(), column(8, 4).requires_grad_()
    by_k, by_v = grad(tiled_attention(column(1), k, v, block=1).sum(), (k, v))
    assert by_k.flatten().tolist() == pytest.approx([0.75, -0.75], abs=1e-14)
    assert by_v.flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-15)


@few
@given(qkv(same_length=True))
def test_gradients_of_linear_attention(call):
    right(linear_attention, *call[0])
    right(lambda q, k, v: linear_attention(q, k, v, causal=False), *call[0])


def test_gradient_of_linear_attention_by_hand():
    # φ(k) = (1, 1) at values 8 and 4: mean 6, by k_j (v_j − 6)/2, since φ has slope 1 at 0
    k = column(0, 0).requires_grad_()
    by_k = grad(linear_attention(column(0, 0), k, column(8, 4))[1].sum(), k)[0]
    assert by_k.flatten().tolist() == pytest.approx([1.0, -1.0], abs=1e-14)


@few
@given(seeds)
def test_gradients_of_the_feature_map_on_both_sides_of_zero(seed):
    x = (randn(seed, 6).sign() * (0.1 + randn(seed + 1, 6).abs())).requires_grad_()
    right(elu_plus_one, x)


@few
@given(qkv(same_length=True), seeds)
def test_gradients_of_the_delta_rule(call, seed):
    q, k, v = call[0]
    right(delta_rule, q, k, v, leaf(seed, q.shape[-2]))


def test_gradient_of_the_delta_rule_by_hand():
    # y = β k² v at k = 1, q = 1: by β it is v, by v it is β
    one, v, beta = column(1), column(8).requires_grad_(), torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    by_v, by_beta = grad(delta_rule(one, one, v, beta).sum(), (v, beta))
    assert (by_v.item(), by_beta.item()) == (0.5, 8.0)


@few
@given(small, st.integers(0, 2), st.integers(0, 1), st.sampled_from(("interleaved", "half")), seeds)
def test_gradients_of_a_rotation_and_its_positions(T, half, rest, layout, seed):
    x, at = leaf(seed, 2, T, 2 * half + rest), leaf(seed + 1, T)
    right(lambda x, p: rotate(x, p, layout=layout, rotary_dim=2 * half).sin(), x, at)


def test_gradient_of_a_rotation_by_hand():
    # (1, 0) at angle p is (cos p, sin p): by p, at 0, (0, 1)
    at = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert [grad(rotate(x, at)[0, n], at, retain_graph=True)[0].item() for n in range(2)] == [0.0, 1.0]


@few
@given(st.integers(0, 2), small, small, seeds)
def test_gradients_of_recurrent_cells(B, d, N, seed):
    x, h, c = leaf(seed, B, d), leaf(seed + 1, B, N), leaf(seed + 2, B, N)
    for n_gates, cell in ((1, rnn_cell), (3, lambda *a: gru_cell(*a)[0]), (4, None)):
        weights = [leaf(seed + n, *s) for n, s in enumerate(((n_gates * N, d), (n_gates * N, N), (n_gates * N,)))]
        if cell is None:
            right(lambda x, h, c, *w: lstm_cell(x, (h, c), *w)[0], x, h, c, *weights, second=False)
        else:
            right(cell, x, h, *weights, second=False)


def test_gradient_of_a_recurrent_cell_by_hand():
    # tanh' = 1 − tanh²; at tanh(ln(3)/2) = 1/2 it is 3/4
    h, one = torch.tensor([math.log(3) / 2], dtype=torch.float64, requires_grad=True), torch.ones(1, 1).double()
    assert grad(rnn_cell(torch.zeros(1).double(), h, one, one), h)[0].item() == pytest.approx(0.75, abs=1e-15)


@few
@given(st.integers(0, 2), st.integers(2, 4), seeds)
def test_gradients_of_norms(B, d, seed):
    x, weight, bias = leaf(seed, B, d), leaf(seed + 1, d), leaf(seed + 2, d)
    right(lambda x, w, b: layer_norm(x, w, b, eps=0.1), x, weight, bias)
    right(lambda x, w: rms_norm(x, w, eps=0.1), x, weight)


def test_gradient_of_a_norm_by_hand():
    # x / √(x²) of one feature is its sign: derivative 0; with ε = 3 at x = 1 it is ε / (x² + ε)^{3/2} = 3/8
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    assert grad(rms_norm(x, eps=0.0).sum(), x)[0].item() == 0.0
    assert grad(rms_norm(x, eps=3.0).sum(), x)[0].item() == pytest.approx(0.375, abs=1e-15)


@few
@given(qkv(), small, seeds)
def test_gradients_of_additive_attention(call, d_attn, seed):
    (q, k, v), mask = call
    torch.manual_seed(seed)
    module = AdditiveAttention(q.shape[-1], k.shape[-1], d_attn).double()
    right(lambda q, k, v, *_: module(q, k, v, mask), q, k, v, *module.parameters())


def test_gradient_of_additive_attention_by_hand():
    # keys 0 and 0 at values 8 and 4: weights 1/2, by k_j α_j (v_j − 6), since tanh has slope 1 at 0
    module = AdditiveAttention(1, 1, 1).double()
    for weight in module.parameters():
        torch.nn.init.ones_(weight)
    k = column(0, 0).requires_grad_()
    by_k = grad(module(column(0), k, column(8, 4))[0].sum(), k)[0]
    assert by_k.flatten().tolist() == pytest.approx([1.0, -1.0], abs=1e-14)
