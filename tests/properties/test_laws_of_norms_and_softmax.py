"""Laws of the norms, of softmax, its Jacobian and entropy; after each a number worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, STRIDES, allowed, leading, randn, restrided, seeds

from attnkit import entropy, layer_norm, rms_norm, softmax, softmax_jacobian

widths = st.integers(1, 6)
temperatures = st.floats(0.05, 20)


def close(actual, wanted, atol=1e-12):
    torch.testing.assert_close(actual, wanted, atol=atol, rtol=0)


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


@given(leading, widths, st.floats(-100, 100), st.floats(0.5, 100), seeds)
def test_layer_norm_ignores_shift_and_scale_and_rms_norm_ignores_scale(axes, d, shift, factor, seed):
    x = randn(seed, *axes, d)
    moved = layer_norm(factor * x + shift, eps=factor**2 * 1e-5)  # ε has the unit of the variance
    close(moved, layer_norm(x, eps=1e-5), 1e-9)
    close(rms_norm(factor * x, eps=factor**2 * 1e-6), rms_norm(x, eps=1e-6))
    close(rms_norm(-x), -rms_norm(x), 0)


@given(leading, widths, seeds)
def test_norms_have_their_moments_and_layer_norm_is_rms_norm_of_the_deviation(axes, d, seed):
    x = randn(seed, *axes, d)
    variance = (x - x.mean(-1, keepdim=True)).square().mean(-1)
    normed = layer_norm(x)
    close(normed.mean(-1), torch.zeros(axes, dtype=torch.float64))
    close(normed.square().mean(-1), variance / (variance + 1e-5))
    close(rms_norm(x).square().mean(-1), x.square().mean(-1) / (x.square().mean(-1) + 1e-6))
    close(normed, rms_norm(x - x.mean(-1, keepdim=True), eps=1e-5))


@given(leading, widths, st.sampled_from(DTYPES), st.sampled_from(STRIDES), seeds)
def test_norms_in_any_dtype_and_strides_are_the_float64_ones_rounded(axes, d, dtype, how, seed):
    x = randn(seed, *axes, 1, d, dtype=dtype)
    for norm in (lambda y: layer_norm(y, eps=0.1), rms_norm):
        assert norm(x).dtype == dtype
        close(norm(restrided(x, how)).double(), norm(x.double()), allowed(dtype, d**0.5))


def test_norms_by_hand():
    assert layer_norm(float64(1, 3), eps=0.0).tolist() == [-1, 1]
    assert layer_norm(float64(1, 3), float64(2, 5), float64(10, 20), eps=3.0).tolist() == [9, 22.5]
    assert rms_norm(float64(1, 7), eps=0.0).tolist() == [0.2, 1.4]


@given(leading, st.integers(0, 6), temperatures, st.sampled_from(STRIDES), seeds)
def test_softmax_is_on_the_simplex_keeps_order_and_is_shift_invariant(axes, n, temperature, how, seed):
    scores = randn(seed, *axes, 2, n)
    weights = softmax(restrided(scores, how), temperature)
    close(weights.sum(-1), torch.full((*axes, 2), float(n > 0), dtype=torch.float64))
    close(softmax(scores + 50, temperature), weights)
    close(softmax(scores / temperature), weights)
    by_score = weights.gather(-1, scores.argsort(dim=-1))
    assert (by_score.diff(dim=-1) >= 0).all()


def test_softmax_by_hand():
    assert softmax(float64(0, math.log(3))).tolist() == pytest.approx([0.25, 0.75], abs=1e-15)
    assert softmax(float64(0, math.log(3)), temperature=0.5).tolist() == pytest.approx([0.1, 0.9], abs=1e-15)


@given(leading, widths, seeds)
def test_the_jacobian_is_autograds_symmetric_singular_and_positive_semidefinite(axes, n, seed):
    scores = randn(seed, *axes, n)
    jacobian = softmax_jacobian(softmax(scores))
    close(jacobian, jacobian.mT, 0)
    close(jacobian.sum(-1), torch.zeros(*axes, n, dtype=torch.float64))
    if jacobian.numel():
        assert (torch.linalg.eigvalsh(jacobian) >= -1e-15).all()
        one = scores.flatten(0, -2)[0] if scores.ndim > 1 else scores
        close(softmax_jacobian(softmax(one)), torch.autograd.functional.jacobian(softmax, one))


def test_the_jacobian_by_hand():
    assert softmax_jacobian(float64(0.25, 0.75)).tolist() == [[0.1875, -0.1875], [-0.1875, 0.1875]]


@given(leading, widths, temperatures, seeds)
def test_entropy_lies_between_zero_and_ln_n_and_grows_with_temperature(axes, n, temperature, seed):
    scores = randn(seed, *axes, n)
    h = entropy(softmax(scores, temperature))
    assert (h >= 0).all()
    assert (h <= math.log(n) + 1e-14).all()
    assert (entropy(softmax(scores, 1.5 * temperature)) >= h - 1e-14).all()
    close(entropy(softmax(0 * scores)), torch.full(axes, math.log(n), dtype=torch.float64))


def test_entropy_by_hand():
    assert entropy(float64(0.25, 0.75)).item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3), abs=1e-15)
