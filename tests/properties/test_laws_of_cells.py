"""Laws of recurrent cells, for all batches and widths; after each a number worked out by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import STRIDES, leading, randn, restrided, seeds, sizes

from attnkit import gru_cell, linear_recurrence, lstm_cell, rnn_cell

N_GATES = {rnn_cell: 1, gru_cell: 3, lstm_cell: 4}
cells = st.sampled_from(tuple(N_GATES))
widths = st.integers(1, 4)


def close(actual, wanted, atol=1e-13):
    torch.testing.assert_close(actual, wanted, atol=atol, rtol=0)


def weights_of(cell, d, N, seed, size=1.0):
    rows = N_GATES[cell] * N
    return [size * randn(seed + n, *shape) for n, shape in enumerate(((rows, d), (rows, N), (rows,), (rows,)))]


def step(cell, x, h, weights):
    """One step of any cell; an LSTM's h and c are side by side."""
    if cell is lstm_cell:
        return torch.cat(lstm_cell(x, h.chunk(2, dim=-1), *weights)[0], dim=-1)
    return cell(x, h, *weights) if cell is rnn_cell else cell(x, h, *weights)[0]


def state_of(cell, axes, N, seed):
    return randn(seed, *axes, 2 * N if cell is lstm_cell else N)


ONE, ZERO = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)


@given(cells, leading, sizes, widths, st.sampled_from((0.1, 1.0, 100.0)), seeds)
def test_states_stay_bounded(cell, axes, d, N, size, seed):
    """|h| ≤ 1 from tanh; a GRU mixes h with such a value; an LSTM adds at most 1 to |c|, whatever the weights."""
    h = state_of(cell, axes, N, seed)
    h = h / h.abs().max().clamp(min=1) if h.numel() else h
    after = step(cell, size * randn(seed + 9, *axes, d), h, weights_of(cell, d, N, seed, size))
    assert after.shape == h.shape
    if cell is lstm_cell:
        (new_h, new_c), (_, c) = after.chunk(2, dim=-1), h.chunk(2, dim=-1)
        assert (new_h.abs() <= 1).all()
        assert (new_c.abs() <= c.abs() + 1).all()
        assert (new_h.abs() <= new_c.abs().tanh()).all()
    else:
        assert (after.abs() <= 1).all()


def test_states_by_hand():
    one = torch.ones(1, 1, dtype=torch.float64)
    # tanh(ln(3)/2) = (3 − 1)/(3 + 1)
    assert rnn_cell(ZERO + math.log(3) / 2, ZERO, one, one).item() == pytest.approx(0.5, abs=1e-15)


@given(cells, leading, sizes, widths, st.sampled_from(STRIDES), seeds)
def test_a_batch_is_a_loop_and_strides_change_nothing(cell, axes, d, N, how, seed):
    x, h, weights = randn(seed, *axes, 2, d), state_of(cell, (*axes, 2), N, seed + 5), weights_of(cell, d, N, seed)
    together = step(cell, x, h, weights)
    close(step(cell, restrided(x, how), restrided(h, how), weights), together)
    for member in itertools.product(*map(range, (*axes, 2))):
        close(step(cell, x[member], h[member], weights), together[member])


@given(leading, sizes, widths, seeds)
def test_a_gru_whose_update_gate_is_one_carries_its_state_and_at_zero_replaces_it(axes, d, N, seed):
    x, h = randn(seed, *axes, d), randn(seed + 1, *axes, N)
    w_ih, w_hh, b_ih, b_hh = weights_of(gru_cell, d, N, seed)
    for bias in (1e6, -1e6):
        b_ih[N : 2 * N] = bias
        after, gates = gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)
        assert torch.equal(after, h if bias > 0 else gates.n)


@given(leading, sizes, widths, seeds)
def test_a_gru_whose_reset_gate_is_zero_forgets_its_state_and_the_bias_beside_it_in_the_candidate(axes, d, N, seed):
    x, h = randn(seed, *axes, d), randn(seed + 1, *axes, N)
    w_ih, w_hh, b_ih, b_hh = weights_of(gru_cell, d, N, seed)
    b_ih[:N] = -1e6
    _, gates = gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)
    close(gates.n, torch.tanh(x @ w_ih[2 * N :].T + b_ih[2 * N :]))


def test_a_gru_by_hand():
    # z = 1/2 and n = tanh(ln(3)/2) = 1/2: half of 1/2 and half of 1
    bias = torch.tensor([0.0, 0.0, math.log(3) / 2], dtype=torch.float64)
    zero = torch.zeros(3, 1, dtype=torch.float64)
    assert gru_cell(ZERO, ONE, zero, zero, bias)[0].item() == pytest.approx(0.75, abs=1e-15)


@given(leading, sizes, widths, st.integers(1, 5), seeds)
def test_an_lstm_that_forgets_and_writes_nothing_carries_its_cell(axes, d, N, steps, seed):
    w_ih, w_hh, b_ih, b_hh = weights_of(lstm_cell, d, N, seed)
    b_ih[:N], b_ih[N : 2 * N] = -1e6, 1e6
    c = randn(seed, *axes, N)
    h, carried = torch.zeros_like(c), c
    for n in range(steps):
        (h, carried), gates = lstm_cell(randn(seed + n, *axes, d), (h, carried), w_ih, w_hh, b_ih, b_hh)
    assert torch.equal(carried, c)
    close(h, gates.o * c.tanh())


def test_an_lstm_by_hand():
    # all gates 1/2, candidate 0: c = 1/2 of ln 3, h = 1/2 of tanh(ln(3)/2)
    zero = torch.zeros(4, 1, dtype=torch.float64)
    (h, c), _ = lstm_cell(ZERO, (ZERO, ZERO + math.log(3)), zero, zero)
    assert c.item() == pytest.approx(math.log(3) / 2, abs=1e-15)
    assert h.item() == pytest.approx(0.25, abs=1e-15)


@given(leading, widths, st.integers(0, 5), st.integers(0, 5), seeds)
def test_a_linear_recurrence_is_linear_and_goes_on_where_it_stopped(axes, N, first, second, seed):
    W, h, other = randn(seed, N, N) / N, randn(seed + 1, *axes, N), randn(seed + 2, *axes, N)
    states = linear_recurrence(W, h, first + second)
    close(states[first:], linear_recurrence(W, states[first], second))
    close(linear_recurrence(W, h + 2 * other, first), states[: first + 1] + 2 * linear_recurrence(W, other, first))


def test_a_linear_recurrence_by_hand():
    W = torch.tensor([[0.0, -2.0], [2.0, 0.0]])
    assert linear_recurrence(W, torch.tensor([1.0, 0.0]), 4)[-1].tolist() == [16.0, 0.0]


@given(cells, st.integers(1, 7), st.integers(1, 7), widths)
def test_sizes_that_do_not_fit_are_both_named(cell, d, other, N):
    assume(d != other)
    weights = weights_of(cell, other, N, 0)
    with pytest.raises(ValueError, match=rf"w_ih .*\b{d}\b.*\b{other}\b"):
        step(cell, torch.zeros(2, d).double(), state_of(cell, (2,), N, 0), weights)
