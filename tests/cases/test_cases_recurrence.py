"""Faults of recurrence and alignment known from public bug reports: the reported input and others of its kind."""

import math

import pytest
import torch
from torch import nn

from attnkit import AdditiveAttention, Seq2Seq, gru_cell, lstm_cell, rnn_cell


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


ON, OFF = 800.0, -800.0  # before a sigmoid: exactly 1 and 0


@pytest.mark.parametrize(
    ("bias", "h", "c"),
    [
        ([1, 2, 3, 4], 0.9063001, 1.60824),  # as reported; 0.82202 and 1.68314 in the order i, o, f, c
        ([ON, OFF, 0.5, ON], math.tanh(math.tanh(0.5)), math.tanh(0.5)),  # only writes
        ([OFF, ON, 0.5, ON], math.tanh(1.0), 1.0),  # only keeps
        ([ON, ON, ON, OFF], 0.0, 2.0),  # adds up and shows nothing
    ],
)
def test_lstm_order_is_input_forget_candidate_output(bias, h, c):
    zero, bias = torch.zeros(4, 1, dtype=torch.float64), torch.tensor(bias, dtype=torch.float64)
    start = (torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    for split in (0.0, 0.25, 1.0):  # the two biases are one sum
        (new_h, new_c), _ = lstm_cell(start[0], start, zero, zero, split * bias, (1 - split) * bias)
        assert new_h.item() == pytest.approx(h, abs=1e-6)
        assert new_c.item() == pytest.approx(c, abs=1e-6)


@pytest.mark.parametrize(
    ("h", "b_hn", "wanted"),
    # r = z = 1/2, so the new state is half tanh((h + b)/2) and half h.
    [
        (1.0, 1.0, 0.8807971),  # as reported; 0.952574 in the other form
        (2.0, 1.0, (math.tanh(1.5) + 2) / 2),
        (1.0, 3.0, (math.tanh(2.0) + 1) / 2),
        (0.0, 2.0, math.tanh(1.0) / 2),  # the other form would not halve the bias
    ],
)
def test_gru_reset_acts_after_the_product_and_on_its_bias(h, b_hn, wanted):
    w_hh, b_hh = torch.tensor([[0.0], [0.0], [1.0]]).double(), torch.tensor([0.0, 0.0, b_hn]).double()
    zero = torch.zeros(1, dtype=torch.float64)
    new, _ = gru_cell(zero, torch.full_like(zero, h), torch.zeros(3, 1).double(), w_hh, None, b_hh)
    assert new.item() == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize(("d", "N"), [(1, 1), (3, 2), (2, 5)])
def test_orders_and_forms_are_those_of_torch_with_random_weights(d, N):
    x, h, c = randn(4, d), randn(4, N), randn(N, 4).T
    for make, ours in (
        (nn.RNNCell, lambda *weights: rnn_cell(x, h, *weights)),
        (nn.GRUCell, lambda *weights: gru_cell(x, h, *weights)[0]),
        (nn.LSTMCell, lambda *weights: torch.cat(lstm_cell(x, (h, c), *weights)[0])),
    ):
        cell = make(d, N).double()
        wanted = torch.cat(cell(x, (h, c))) if make is nn.LSTMCell else cell(x, h)
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        torch.testing.assert_close(ours(*weights), wanted, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([0.1, 0.2, 0.3], 0.5044503),  # as reported; 0.291313 is the state after one step
        ([0.3, 0.2, 0.1], math.tanh(0.3 + math.tanh(0.2 + math.tanh(0.1)))),
        ([1.0, -1.0], math.tanh(1 + math.tanh(-1.0))),
        ([0.7], math.tanh(0.7)),
    ],
)
def test_last_state_of_a_backward_pass_is_at_the_first_token(x, wanted):
    one = torch.ones(1, 1, dtype=torch.float64)
    h = torch.zeros(1, dtype=torch.float64)
    for value in reversed(x):
        h = rnn_cell(torch.tensor([value], dtype=torch.float64), h, one, one)
    assert h.item() == pytest.approx(wanted, abs=1e-7)
    net = nn.RNN(1, 1, bias=False, bidirectional=True, batch_first=True).double()
    for weight in net.parameters():
        nn.init.ones_(weight)
    states, last = net(torch.tensor(x, dtype=torch.float64)[None, :, None])
    assert states[0, 0, 1].item() == last[1, 0, 0].item() == pytest.approx(h.item(), abs=1e-14)


@pytest.mark.parametrize("changed", [0, 2, 4])
def test_last_state_of_a_backward_pass_in_the_encoder_has_read_what_follows(changed):
    """Keys of the bidirectional encoder: the backward half at token j depends on the tokens from j on."""
    model = Seq2Seq(n_symbols=7, d_model=3, bidirectional=True)
    source = torch.tensor([[0, 1, 2, 3, 4]])
    other = source.clone()
    other[0, changed] = 6
    differs = (model.encode(source)[0] != model.encode(other)[0])[0]
    assert differs[:, 3:].any(-1).tolist() == [j <= changed for j in range(5)]
    assert differs[:, :3].any(-1).tolist() == [j >= changed for j in range(5)]


@pytest.mark.parametrize(
    ("s", "h", "wanted"),
    [
        (0.5, [0, 1], [0.391019, 0.608981]),  # as reported; [.268941, .731059] without the tanh
        (0.0, [0, 1], [1 - sigmoid(math.tanh(1)), sigmoid(math.tanh(1))]),
        (-0.5, [0, 1], [1 - sigmoid(2 * math.tanh(0.5)), sigmoid(2 * math.tanh(0.5))]),
        (800.0, [0, 1], [0.5, 0.5]),  # saturated: no key stands out
        (0.5, [1, 1, 1, 1], [0.25] * 4),
    ],
)
def test_additive_score_has_its_tanh_and_depends_on_query_and_keys(s, h, wanted):
    module = AdditiveAttention(1, 1, 1).double()
    for weight in module.parameters():
        nn.init.ones_(weight)
    _, weights = module(torch.tensor([[s]], dtype=torch.float64), torch.tensor(h, dtype=torch.float64)[:, None])
    assert weights[0].tolist() == pytest.approx(wanted, abs=1e-6)
