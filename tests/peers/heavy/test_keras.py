"""attnkit against Keras on torch: additive attention, and the recurrent cells in Keras' own layouts."""

import keras
import numpy as np
import pytest
import torch

from attnkit import AdditiveAttention, gru_cell, lstm_cell

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("T", "S", "d"), [(1, 2, 2), (3, 5, 4)])
def test_additive_attention_with_unit_maps_is_keras(T, S, d):
    q, k = torch.randn(2, T, d), torch.randn(2, S, d)
    layer = keras.layers.AdditiveAttention(use_scale=True)
    layer.build([(2, T, d), (2, S, d), (2, S, d)])
    scale = torch.randn(d)
    layer.set_weights([scale.numpy()])
    theirs, their_weights = layer([q, k, k], return_attention_scores=True)
    ours = AdditiveAttention(d, d, d)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(scale.view_as(parameter) if parameter.numel() == d else torch.eye(d))
        out, weights = ours(q, k)
    torch.testing.assert_close(weights, torch.as_tensor(their_weights).detach(), **CLOSE)
    torch.testing.assert_close(out, torch.as_tensor(theirs).detach(), **CLOSE)


def cell_weights(layer, d, N, gates):
    """Random weights for a Keras layer, and the same as (w_ih, w_hh, biases) with one row block per gate."""
    layer.build((None, None, d))
    values = [np.random.default_rng(n).normal(size=w.shape).astype("float32") for n, w in enumerate(layer.weights)]
    layer.set_weights(values)
    kernel, recurrent, bias = (torch.as_tensor(value) for value in values)
    assert kernel.shape == (d, gates * N)
    return kernel.T.chunk(gates), recurrent.T.chunk(gates), bias.chunk(gates, dim=-1)


def test_our_lstm_is_keras_whose_gates_come_in_our_order():
    layer = keras.layers.LSTM(4, return_state=True, unit_forget_bias=False)
    w, r, b = cell_weights(layer, 3, 4, 4)
    x = torch.randn(2, 6, 3)
    _, h, c = layer(x)
    state = (torch.zeros(2, 4), torch.zeros(2, 4))
    stacked = [torch.cat(parts) for parts in (w, r, b)]
    for token in x.unbind(1):
        state, _ = lstm_cell(token, state, *stacked, torch.zeros(16))
    torch.testing.assert_close(state[0], torch.as_tensor(h).detach(), **CLOSE)
    torch.testing.assert_close(state[1], torch.as_tensor(c).detach(), **CLOSE)


def gru_by_both(reset_after):
    """The last state of Keras' GRU, and of ours with the same weights; Keras' gates are z, r, h."""
    layer = keras.layers.GRU(4, reset_after=reset_after)
    w, r, b = cell_weights(layer, 3, 4, 3)
    w, r, b = ([parts[n] for n in (1, 0, 2)] for parts in (w, r, b))
    biases = torch.cat(b, dim=-1)
    b_ih, b_hh = biases if reset_after else (biases, torch.zeros(12))
    x = torch.randn(2, 6, 3)
    h = torch.zeros(2, 4)
    for token in x.unbind(1):
        h, _ = gru_cell(token, h, torch.cat(w), torch.cat(r), b_ih, b_hh)
    return h, torch.as_tensor(layer(x)).detach()


def test_our_gru_is_keras_that_resets_after_the_product():
    ours, theirs = gru_by_both(reset_after=True)
    torch.testing.assert_close(ours, theirs, **CLOSE)


def test_our_gru_is_not_keras_that_resets_before_the_product():
    ours, theirs = gru_by_both(reset_after=False)
    assert (ours - theirs).abs().max() > 1e-2
