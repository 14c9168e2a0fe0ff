"""Recurrent cells against torch.nn in float64, and against values small enough for paper."""

import math

import pytest
import torch
from torch import nn

from attnkit import GRUGates, LSTMGates, gru_cell, linear_recurrence, lstm_cell, rnn_cell

B, T, D, N = 2, 3, 5, 7  # a different prime for every axis


def random_cell(kind, *, bias=True):
    cell = getattr(nn, kind)(D, N, bias=bias, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for parameter in cell.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return cell.requires_grad_(False), generator


def randn(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(), (B,)])
def test_the_plain_cell_equals_torch(bias, leading):
    cell, generator = random_cell("RNNCell", bias=bias)
    x, h = randn(generator, *leading, D), randn(generator, *leading, N)
    torch.testing.assert_close(rnn_cell(x, h, *cell.parameters()), cell(x, h), atol=1e-12, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(), (B,)])
def test_the_lstm_cell_equals_torch(bias, leading):
    cell, generator = random_cell("LSTMCell", bias=bias)
    x, h, c = randn(generator, *leading, D), randn(generator, *leading, N), randn(generator, *leading, N)
    (h_new, c_new), _ = lstm_cell(x, (h, c), *cell.parameters())
    expected_h, expected_c = cell(x, (h, c))
    torch.testing.assert_close(h_new, expected_h, atol=1e-12, rtol=0)
    torch.testing.assert_close(c_new, expected_c, atol=1e-12, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(), (B,)])
def test_the_gru_cell_equals_torch(bias, leading):
    cell, generator = random_cell("GRUCell", bias=bias)
    x, h = randn(generator, *leading, D), randn(generator, *leading, N)
    torch.testing.assert_close(gru_cell(x, h, *cell.parameters())[0], cell(x, h), atol=1e-12, rtol=0)


def test_gradients_equal_those_of_torch():
    for kind, ours in (
        ("RNNCell", lambda x, h, w: rnn_cell(x, h, *w)),
        ("LSTMCell", lambda x, h, w: lstm_cell(x, (h, h), *w)[0][0]),
        ("GRUCell", lambda x, h, w: gru_cell(x, h, *w)[0]),
    ):
        cell, generator = random_cell(kind)
        cell.requires_grad_(True)
        weights = tuple(cell.parameters())
        x, h, cotangent = randn(generator, B, D), randn(generator, B, N), randn(generator, B, N)
        theirs = cell(x, (h, h))[0] if kind == "LSTMCell" else cell(x, h)
        expected = torch.autograd.grad(theirs, weights, cotangent)
        for actual, wanted in zip(torch.autograd.grad(ours(x, h, weights), weights, cotangent), expected):
            torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)


def test_lengths_in_a_row_equal_the_torch_modules():
    # CASES 29: length 7, then 11, then 7 again
    module = nn.LSTM(D, N, batch_first=True, dtype=torch.float64).requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for length in (7, 11, 7):
        x, states = randn(generator, B, length, D), []
        state = (x.new_zeros(B, N), x.new_zeros(B, N))
        for x_t in x.unbind(1):
            state, _ = lstm_cell(x_t, state, *module.parameters())
            states.append(state[0])
        torch.testing.assert_close(torch.stack(states, 1), module(x)[0], atol=1e-12, rtol=0)


def test_lstm_gates_come_in_the_order_i_f_g_o():
    # CASES 17: zero weights, biases 1, 2, 3, 4; as i, o, f, c it would be (.82202, 1.68314)
    zero, bias = torch.zeros(4, 1, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    h0, c0 = zero[0], zero[0] + 1
    (h, c), gates = lstm_cell(zero[0], (h0, c0), zero, zero, bias, torch.zeros_like(bias))
    assert h.item() == pytest.approx(0.9063001, abs=5e-8)
    assert c.item() == pytest.approx(1.60824, abs=5e-6)

    def sigmoid(a):
        return 1 / (1 + math.exp(-a))

    assert isinstance(gates, LSTMGates)
    assert [gate.item() for gate in gates] == pytest.approx(
        [sigmoid(1), sigmoid(2), math.tanh(3), sigmoid(4)], abs=1e-14
    )


def test_the_gru_resets_after_the_recurrent_product():
    # CASES 18: only W_hn = 1 and b_hn = 1; resetting before the product gives .952574
    w_hh, b_hh = torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0.0, 0.0, 1.0])
    h, gates = gru_cell(torch.zeros(1), torch.ones(1), torch.zeros(3, 1), w_hh, torch.zeros(3), b_hh)
    assert h.item() == pytest.approx(0.8807971, abs=1e-7)
    assert isinstance(gates, GRUGates)
    assert [gate.item() for gate in gates] == pytest.approx([0.5, 0.5, math.tanh(1)], abs=1e-7)


def test_an_update_gate_of_one_keeps_the_state():
    bias = torch.tensor([0.0, 50.0, 0.0])
    h, _ = gru_cell(torch.ones(1), torch.tensor([0.3]), torch.zeros(3, 1), torch.zeros(3, 1), bias)
    assert h.item() == pytest.approx(0.3, abs=1e-7)


def test_an_open_forget_gate_and_a_shut_input_gate_keep_the_memory():
    bias = torch.tensor([-50.0, 50.0, 3.0, 0.0])
    (_, c), _ = lstm_cell(
        torch.ones(1), (torch.zeros(1), torch.tensor([0.7])), torch.zeros(4, 1), torch.zeros(4, 1), bias
    )
    assert c.item() == pytest.approx(0.7, abs=1e-7)


def test_the_last_state_of_a_backward_pass_stands_at_the_first_token():
    # CASES 19: unit weights, x = .1, .2, .3; the state at the last token is only tanh(.3) = .291313
    one, x = torch.ones(1, 1), torch.tensor([[0.1], [0.2], [0.3]])
    h, states = torch.zeros(1), {}
    for t in (2, 1, 0):
        h = rnn_cell(x[t], h, one, one)
        states[t] = h.item()
    assert states[0] == pytest.approx(0.5044503, abs=1e-7)
    assert states[2] == pytest.approx(0.291313, abs=1e-6)

    both_ways = nn.RNN(1, 1, bidirectional=True, bias=False)
    for parameter in both_ways.parameters():
        nn.init.ones_(parameter)
    out, last = both_ways(x)
    assert last[1].item() == pytest.approx(states[0], abs=1e-7)
    assert [out[t, 1].item() for t in range(3)] == pytest.approx([states[t] for t in range(3)], abs=1e-7)


def test_a_linear_recurrence_starts_with_its_start_and_ends_with_the_matrix_power():
    generator = torch.Generator().manual_seed(0)
    W, h0 = randn(generator, N, N) / N**0.5, randn(generator, B, N)
    states = linear_recurrence(W, h0, 11)
    assert states.shape == (12, B, N)
    assert torch.equal(states[0], h0)
    torch.testing.assert_close(states[11], h0 @ torch.linalg.matrix_power(W, 11).T, atol=1e-12, rtol=0)


def test_a_linear_recurrence_multiplies_from_the_left():
    W = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert linear_recurrence(W, torch.tensor([0.0, 3.0]), 1)[1].tolist() == [3.0, 0.0]


def test_no_steps_give_the_start_alone():
    assert linear_recurrence(torch.eye(2), torch.tensor([1.0, 2.0]), 0).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(3, D)}, r"x has shape \(3, 5\), h has shape \(2, 7\)"),
        ({"w_ih": torch.zeros(N, D + 1)}, r"w_ih must have shape \(7, 5\) to fit x and h, got \(7, 6\)"),
        ({"w_hh": torch.zeros(N, 1)}, r"w_hh must have shape \(7, 7\) to fit x and h, got \(7, 1\)"),
        ({"b_ih": torch.zeros(1)}, r"b_ih must have shape \(7,\) to fit x and h, got \(1,\)"),
        ({"b_hh": torch.zeros(1, N)}, r"b_hh must have shape \(7,\) to fit x and h, got \(1, 7\)"),
    ],
)
def test_a_shape_that_does_not_fit_is_named_with_the_one_that_would(change, message):
    arguments = {"x": torch.zeros(B, D), "h": torch.zeros(B, N), "w_ih": torch.zeros(N, D), "w_hh": torch.zeros(N, N)}
    with pytest.raises(ValueError, match=message):
        rnn_cell(**(arguments | change))


def test_gated_cells_want_one_block_of_rows_per_gate():
    x, h = torch.zeros(D), torch.zeros(N)
    with pytest.raises(ValueError, match=r"w_ih must have shape \(28, 5\)"):
        lstm_cell(x, (h, h), torch.zeros(3 * N, D), torch.zeros(3 * N, N))
    with pytest.raises(ValueError, match=r"w_ih must have shape \(21, 5\)"):
        gru_cell(x, h, torch.zeros(4 * N, D), torch.zeros(4 * N, N))


def test_memory_and_state_must_have_one_shape():
    with pytest.raises(ValueError, match=r"h has \(7,\), c has \(1,\)"):
        lstm_cell(torch.zeros(D), (torch.zeros(N), torch.zeros(1)), torch.zeros(4 * N, D), torch.zeros(4 * N, N))


@pytest.mark.parametrize(
    ("W", "h0", "steps", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3), 1, r"W must be square, got shape \(2, 3\)"),
        (torch.zeros(2, 2), torch.zeros(3), 1, r"h0 must have shape \(..., N\) with N = 2 as in W, got \(3,\)"),
        (torch.zeros(2, 2), torch.zeros(2), -1, "steps must be at least 0, got -1"),
    ],
)
def test_a_linear_recurrence_names_what_does_not_fit(W, h0, steps, message):
    with pytest.raises(ValueError, match=message):
        linear_recurrence(W, h0, steps)


def test_the_gates_bear_their_names():
    x, h, w_ih, w_hh = torch.zeros(1), torch.tensor([2.0]), torch.zeros(3, 1), torch.tensor([[1.0], [0.0], [0.5]])
    _, gates = gru_cell(x, h, w_ih, w_hh, None, None)
    torch.testing.assert_close(gates.r, torch.tensor([1 / (1 + math.exp(-2))]))
    assert gates.z == 0.5
    torch.testing.assert_close(gates.n, torch.tensor([math.tanh(1 / (1 + math.exp(-2)))]))


@pytest.mark.parametrize("name", ["b_ih", "b_hh"])
@pytest.mark.parametrize(("cell", "gates"), [(rnn_cell, 1), (lstm_cell, 4), (gru_cell, 3)])
def test_the_bias_that_does_not_fit_is_the_one_that_is_named(cell, gates, name):
    h, w_ih, w_hh = torch.zeros(5), torch.zeros(5 * gates, 2), torch.zeros(5 * gates, 5)
    biases = {"b_ih": torch.zeros(5 * gates), "b_hh": torch.zeros(5 * gates)} | {name: torch.zeros(1)}
    with pytest.raises(ValueError, match=f"{name} must have shape"):
        cell(torch.zeros(2), (h, h) if cell is lstm_cell else h, w_ih, w_hh, **biases)


def test_a_state_or_an_input_without_an_axis_is_named():
    with pytest.raises(ValueError, match="h0 must have shape"):
        linear_recurrence(torch.eye(2), torch.tensor(1.0), 1)
    for x, h in ((torch.tensor(0.0), torch.zeros(1)), (torch.zeros(1), torch.tensor(0.0))):
        with pytest.raises(ValueError, match="x and h must have the same leading axes"):
            rnn_cell(x, h, torch.zeros(1, 1), torch.zeros(1, 1), None, None)
