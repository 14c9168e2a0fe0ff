"""Laws of additive attention, for all shapes and masks; after each a number worked out by hand."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from naive import column
from strategies import STRIDES, inputs, restrided, seeds
from torch import nn

from attnkit import AdditiveAttention


def close(actual, wanted):
    torch.testing.assert_close(actual, wanted, atol=1e-13, rtol=0)


def module_for(q, k, d_attn, seed):
    torch.manual_seed(seed)
    return AdditiveAttention(q.shape[-1], k.shape[-1], d_attn).double()


@given(inputs(), st.integers(1, 4), st.sampled_from(STRIDES), seeds)
def test_it_is_its_formula_and_strides_change_nothing(call, d_attn, how, seed):
    q, k, v, mask = call
    assume(q.shape[-1])  # torch warns where a layer without weights is initialised
    module = module_for(q, k, d_attn, seed)
    W_q, W_k, w = module.query.weight, module.key.weight, module.score.weight[0]
    out, weights = module(*(restrided(x, how) for x in (q, k, v)), mask)
    hidden = torch.tanh((q @ W_q.T)[..., :, None, :] + (k @ W_k.T)[..., None, :, :])
    masses = torch.where(mask, torch.exp(hidden @ w), 0.0)
    total = masses.sum(-1, keepdim=True)
    wanted = masses / torch.where(total > 0, total, 1.0)
    close(weights, wanted)
    close(out, wanted @ v)


def unit_module():
    module = AdditiveAttention(1, 1, 1).double()
    for weight in module.parameters():
        nn.init.ones_(weight)
    return module


def test_it_is_its_formula_by_hand():
    # tanh(0) = 0 and tanh(ln(3)/2) = 1/2 are the scores
    _, weights = unit_module()(column(0), column(0, math.log(3) / 2), column(8, 4))
    assert weights[0, 1].item() == pytest.approx(1 / (1 + math.exp(-0.5)), abs=1e-15)


@given(inputs(smallest=1), st.integers(1, 4), st.floats(1, 1e6), seeds)
def test_the_score_is_bounded_however_long_queries_and_keys_are(call, d_attn, factor, seed):
    """Scores within ±Σ|w|: no visible weight is more than e^(2 Σ|w|) times another."""
    q, k, v, mask = call
    module = module_for(q, k, d_attn, seed)
    _, weights = module(factor * q, factor * k, v, mask)
    visible = mask.broadcast_to(weights.shape)
    largest = weights.masked_fill(~visible, -math.inf).amax(-1)
    smallest = weights.masked_fill(~visible, math.inf).amin(-1)
    assert (largest <= smallest * math.exp(2 * module.score.weight.abs().sum().item()) * (1 + 1e-13)).all()


def test_the_bounded_score_by_hand():
    # saturated at −1 and 1, two apart: 1/(1 + e^−2)
    _, weights = unit_module()(column(0), column(-1e9, 1e9), column(8, 4))
    assert weights[0, 1].item() == pytest.approx(0.8807970779778823, abs=1e-15)


@given(inputs(smallest=1), seeds)
def test_hiding_keys_equals_deleting_them(call, seed):
    q, k, v, _ = call
    module = module_for(q, k, 3, seed)
    kept = torch.rand(k.shape[-2], generator=torch.Generator().manual_seed(seed)) < 0.5
    close(module(q, k, v, kept)[0], module(q, k[..., kept, :], v[..., kept, :])[0])


def test_hiding_a_key_by_hand():
    out, weights = unit_module()(column(0), column(0, 0, 5), column(2, 4, 1e9), torch.tensor([True, True, False]))
    assert out.item() == pytest.approx(3.0, abs=1e-14)
    assert weights[0].tolist() == [0.5, 0.5, 0.0]
