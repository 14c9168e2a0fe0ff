"""attnkit against ONNX Runtime: both forms of the GRU, sequences of several lengths, grouped attention with a cache."""

import pytest
import torch

from attnkit import attention, causal_mask, gru_cell, lstm_cell, repeat_heads, rotate, split_heads
from benchmarks.onnx_runtime import run

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def gru_by_both(linear_before_reset):
    T, B, d, N = 5, 3, 4, 6
    x, lengths = torch.randn(T, B, d), torch.tensor([5, 2, 4], dtype=torch.int32)
    w, r, b = torch.randn(3, N, d), torch.randn(3, N, N), torch.randn(2, 3, N)  # gates z, r, h
    inputs = {"X": x, "W": w.reshape(1, 3 * N, d), "R": r.reshape(1, 3 * N, N), "B": b.reshape(1, 6 * N)}
    theirs = run(
        "GRU",
        inputs | {"sequence_lens": lengths},
        ["", "Y_h"],
        hidden_size=N,
        linear_before_reset=linear_before_reset,
    )[0][0]
    order = [1, 0, 2]
    weights = (w[order].flatten(0, 1), r[order].flatten(0, 1), b[0, order].flatten(), b[1, order].flatten())
    h = torch.zeros(B, N)
    for t, token in enumerate(x):
        h = torch.where((t < lengths)[:, None], gru_cell(token, h, *weights)[0], h)
    return h, theirs


def test_our_gru_resets_after_the_product_on_sequences_of_several_lengths():
    ours, theirs = gru_by_both(linear_before_reset=1)
    torch.testing.assert_close(ours, theirs, **CLOSE)


def test_the_form_that_resets_before_the_product_is_another_function():
    ours, theirs = gru_by_both(linear_before_reset=0)
    assert (ours - theirs).abs().max() > 1e-2


def test_lstm_gates_in_the_order_i_o_f_c_are_ours_in_i_f_g_o():
    T, B, d, N = 4, 2, 3, 5
    x, w, r, b = torch.randn(T, B, d), torch.randn(4, N, d), torch.randn(4, N, N), torch.randn(2, 4, N)
    inputs = {"X": x, "W": w.reshape(1, 4 * N, d), "R": r.reshape(1, 4 * N, N), "B": b.reshape(1, 8 * N)}
    _, y_h, y_c = run("LSTM", inputs, ["Y", "Y_h", "Y_c"], hidden_size=N)
    order = [0, 2, 3, 1]
    weights = (w[order].flatten(0, 1), r[order].flatten(0, 1), b[0, order].flatten(), b[1, order].flatten())
    state = (torch.zeros(B, N), torch.zeros(B, N))
    for token in x:
        state, _ = lstm_cell(token, state, *weights)
    torch.testing.assert_close(state[0], y_h[0], **CLOSE)
    torch.testing.assert_close(state[1], y_c[0], **CLOSE)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_grouped_attention_with_rotary_positions(layout):
    n_heads, n_kv_heads, T, d = 4, 2, 6, 16
    q, k, v = torch.randn(1, T, n_heads * d), torch.randn(1, T, n_kv_heads * d), torch.randn(1, T, n_kv_heads * d)
    angles = torch.arange(float(T))[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    empty = torch.zeros(1, n_kv_heads, 0, d)
    inputs = {
        "query": q,
        "key": k,
        "value": v,
        "past_key": empty,
        "past_value": empty,
        "seqlens_k": torch.tensor([T - 1], dtype=torch.int32),
        "total_sequence_length": torch.tensor([T], dtype=torch.int32),
        "cos_cache": angles.cos(),
        "sin_cache": angles.sin(),
    }
    theirs = run(
        "GroupQueryAttention",
        inputs,
        ["output", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=n_heads,
        kv_num_heads=n_kv_heads,
        do_rotary=1,
        rotary_interleaved=int(layout == "interleaved"),
    )[0]
    q, k, v = split_heads(q, n_heads), split_heads(k, n_kv_heads), split_heads(v, n_kv_heads)
    q, k = rotate(q, layout=layout), rotate(k, layout=layout)
    out, _ = attention(q, repeat_heads(k, n_heads), repeat_heads(v, n_heads), causal_mask(T))
    torch.testing.assert_close(out.transpose(1, 2).flatten(2), theirs, **CLOSE)
