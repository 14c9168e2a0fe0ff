"""Checks of lab 4: a linear recurrence, an LSTM cell, and additive attention beside them."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnkit import claims
from attnkit.labs._check import exercise, expect, expect_shape, near, random
from attnkit.recurrent import lstm_cell


@exercise("4.1")
def check_recurrence(recur: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """All states, the first included, with a matrix whose transpose is another."""
    w, h0 = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = recur(w, h0, 3)
    expect_shape(found, (4, 2), "three steps make four states: the first one counts")
    expect(near(found[0], h0), "the first state is h0 itself: store before you step")
    by_hand = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]], dtype=torch.float64)
    expect(not near(found, h0.expand(4, 2)), "nothing moves: is it the transpose of W, or is the new state not kept?")
    expect(not near(found[2], found[1]), "every state is one step from the first: step from the state before")
    claims.close("lab 4: a shear adds 1 per step, 0 to 3", found, by_hand, atol=1e-12)


@exercise("4.2")
def check_gates(gates: Callable[[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
    """Four blocks in torch's order; three are gates between 0 and 1, one a candidate between -1 and 1."""
    z = torch.arange(-4.0, 4.0).double()
    found = torch.stack(gates(z))
    expect_shape(found, (4, 2), "four blocks, each a quarter of the features")
    i, f, g, o = z.view(4, 2)
    expected = torch.stack([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()])
    expect(not near(found, z.view(4, 2)), "no block is squashed: gates need a sigmoid, the candidate a tanh")
    expect(not near(found[2], g.sigmoid()), "the candidate got a sigmoid: what is written may be negative, use tanh")
    expect(not near(found[0], i.tanh()), "the input gate got a tanh: a gate lies between 0 and 1, use a sigmoid")
    by_feature = z.view(2, 4).T
    expect(not near(found[1], by_feature[1].sigmoid()), "the blocks are interleaved: each gate is one run of features")
    expect(not near(found[2], o.tanh()), "the order is i, f, g, o: you read the last block as the candidate")
    claims.close("lab 4: gates lie in the order i, f, g, o", found, expected, atol=1e-12)


@exercise("4.3")
def check_lstm(step: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """The memory keeps f of the old and takes i of the candidate; the state shows o of its tanh."""
    c, i, f, g, o = random(1, 5), *(random(n, 5).sigmoid() for n in (2, 3, 4, 5))
    out = step(c, i, f, g, o)
    expect(isinstance(out, tuple) and len(out) == 2, "return two tensors, the state h and the memory c")
    h, memory = out
    expect_shape(h, (5,), "the state is as wide as the memory")
    expect(not near(memory, i * c + f * g), "the gates are exchanged: f keeps the old memory, i lets the candidate in")
    expect(not near(memory, i * g), "the old memory is lost: f decides how much of it stays")
    expect(not near(memory, c + i * g), "nothing is ever forgotten: the forget gate is not used")
    expected = f * c + i * g
    expect(near(memory, expected), "the memory is f ⊙ c + i ⊙ g, entry by entry")
    expect(not near(h, o * memory), "the state shows the memory itself: squash it with tanh first")
    expect(not near(h, torch.tanh(o * memory)), "the output gate comes after the tanh, not inside it")
    expect(not near(h, o * torch.tanh(c)), "the state shows the old memory: use the new one")
    claims.close("lab 4: the state is the output gate times tanh of the memory", h, o * expected.tanh(), atol=1e-12)


@exercise("4.4")
def check_lstm_run(run: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> None:
    """Steps in order, each from the state of the step before, both with the input."""
    x, w_ih, w_hh, b = random(1, 6, 3), random(2, 16, 3), random(3, 16, 4), random(4, 16)
    found = run(x, w_ih, w_hh, b)
    expect_shape(found, (6, 4), "one state for each step")
    zero = x.new_zeros(4)

    def states(x: Tensor, carry_h: bool = True, carry_c: bool = True) -> Tensor:
        h = c = zero
        kept = []
        for row in x:
            (h, c), _ = lstm_cell(row, (h if carry_h else zero, c if carry_c else zero), w_ih, w_hh, b, 0 * b)
            kept.append(h)
        return torch.stack(kept)

    expect(not near(found, states(x.flip(0))), "the sequence was read backwards")
    expect(not near(found, states(x, carry_c=False)), "the memory is not carried from step to step")
    expect(not near(found, states(x, carry_h=False)), "the state is not fed back: W_hh must see h of the step before")
    lstm = torch.nn.LSTM(3, 4, dtype=torch.float64)
    weights = {"weight_ih_l0": w_ih, "weight_hh_l0": w_hh, "bias_ih_l0": b, "bias_hh_l0": 0 * b}
    oracle = torch.func.functional_call(lstm, weights, (x,))[0].detach()
    claims.close("lab 4: the LSTM written here agrees with torch's", found, oracle, atol=1e-12)


@exercise("4.5")
def check_additive(additive: Callable[..., Tensor]) -> None:
    """Every query meets every key before the tanh, and the tanh is there."""
    q, k, w_q, w_k, w = random(1, 3, 4), random(2, 5, 6), random(3, 4, 7), random(4, 6, 7), random(5, 7)
    found = additive(q, k, w_q, w_k, w)
    expect_shape(found, (3, 5), "a score for each query and key: give them an axis each, and sum the hidden one")
    linear = (q @ w_q @ w)[:, None] + k @ w_k @ w
    expect(not near(found, linear), "without the tanh every query gets the same weights: where is it?")
    outside = torch.tanh(linear)
    expect(not near(found, outside), "the tanh acts on the score: it belongs on the hidden units, before w")
    separate = (torch.tanh(q @ w_q) @ w)[:, None] + torch.tanh(k @ w_k) @ w
    expect(not near(found, separate), "query and key never meet: add them first, then take one tanh of the sum")
    layer = torch.tanh((q @ w_q)[:, None] + k @ w_k)
    expect(not near(found, layer.sum(-1)), "the hidden units were only summed: w is missing")
    hidden = torch.stack([torch.stack([w @ torch.tanh(a @ w_q + b @ w_k) for b in k]) for a in q])
    claims.close("lab 4: additive scores equal two loops over the formula", found, hidden, atol=1e-12)
