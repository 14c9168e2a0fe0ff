r"""Recurrent cells, one step at a time, in torch's layout; and the linear recurrence under them all.

The gates are returned, so that a page can look inside. Layouts differ between libraries: torch
stacks an LSTM's weights as i, f, g, o (ONNX as i, o, f, c), a GRU's as r, z, n (ONNX as z, r, h).

Pages: ``gallery/4_recurrence/``.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["GRUGates", "LSTMGates", "gru_cell", "linear_recurrence", "lstm_cell", "rnn_cell"]


class LSTMGates(NamedTuple):
    """Gates of one LSTM step, each of shape (..., N): input, forget, candidate, output."""

    i: Tensor
    f: Tensor
    g: Tensor
    o: Tensor


class GRUGates(NamedTuple):
    """Gates of one GRU step, each of shape (..., N): reset, update, candidate."""

    r: Tensor
    z: Tensor
    n: Tensor


def rnn_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    r"""One step of a plain recurrent net: $h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})$.

    Args:
        x: input $x_t$, shape (..., d).
        h: state $h_{t-1}$, shape (..., N).
        w_ih: shape (N, d).
        w_hh: shape (N, N).
        b_ih: shape (N,); 0 unless given.
        b_hh: shape (N,); 0 unless given.

    Returns:
        The state $h_t$, shape (..., N).

    Raises:
        ValueError: shapes do not fit; the message names the argument and both shapes.

    Source:
        Elman (1990), "Finding structure in time"; layout of ``torch.nn.RNNCell``.

    Example:
        >>> one = torch.ones(1, 1)
        >>> rnn_cell(torch.tensor([0.25]), torch.tensor([0.25]), one, one)
        tensor([0.4621])
    """
    _require_shapes(1, x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.tanh(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh))


def lstm_cell(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[tuple[Tensor, Tensor], LSTMGates]:
    r"""One step of an LSTM with a forget gate.

    $$\begin{aligned}
    i &= \sigma(W_{ii} x + b_{ii} + W_{hi} h + b_{hi}) &\qquad c' &= f \odot c + i \odot g \\
    f &= \sigma(W_{if} x + b_{if} + W_{hf} h + b_{hf}) &\qquad h' &= o \odot \tanh(c') \\
    g &= \tanh(W_{ig} x + b_{ig} + W_{hg} h + b_{hg}) \\
    o &= \sigma(W_{io} x + b_{io} + W_{ho} h + b_{ho})
    \end{aligned}$$

    Args:
        x: input, shape (..., d).
        state: the pair (h, c), each of shape (..., N).
        w_ih: the four input matrices on top of each other, in the order i, f, g, o; shape (4N, d).
        w_hh: the four recurrent matrices in the same order, shape (4N, N).
        b_ih: shape (4N,); 0 unless given.
        b_hh: shape (4N,); 0 unless given.

    Returns:
        The new pair (h, c), and the gates (i, f, g, o).

    Raises:
        ValueError: shapes do not fit; the message names the argument and both shapes.

    Source:
        Hochreiter and Schmidhuber (1997), "Long short-term memory"; the forget gate: Gers, Schmidhuber
        and Cummins (2000), "Learning to forget"; layout of ``torch.nn.LSTMCell``.

    Example:
        >>> zero, bias = torch.zeros(4, 1), torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> (h, c), gates = lstm_cell(torch.zeros(1), (torch.zeros(1), torch.ones(1)), zero, zero, bias)
        >>> h, c
        (tensor([0.9063]), tensor([1.6082]))
    """
    h, c = state
    _require_shapes(4, x, h, w_ih, w_hh, b_ih, b_hh)
    if c.shape != h.shape:
        raise ValueError(f"h and c must have the same shape: h has {tuple(h.shape)}, c has {tuple(c.shape)}")
    i, f, g, o = (linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, dim=-1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    return (o * c.tanh(), c), LSTMGates(i, f, g, o)


def gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, GRUGates]:
    r"""One step of a gated recurrent unit, torch's form.

    $$\begin{aligned}
    r &= \sigma(W_{ir} x + b_{ir} + W_{hr} h + b_{hr}) \\
    z &= \sigma(W_{iz} x + b_{iz} + W_{hz} h + b_{hz}) \\
    n &= \tanh(W_{in} x + b_{in} + r \odot (W_{hn} h + b_{hn})) \\
    h' &= (1 - z) \odot n + z \odot h
    \end{aligned}$$

    The reset gate acts after the product with $W_{hn}$, as in cuDNN; the original resets $h$ before it,
    $W_{hn}(r \odot h)$, which is another function. And z = 1 keeps the state here, as in the original,
    where Chung et al. (2014) let z = 1 replace it.

    Args:
        x: input, shape (..., d).
        h: state, shape (..., N).
        w_ih: the three input matrices on top of each other, in the order r, z, n; shape (3N, d).
        w_hh: the three recurrent matrices in the same order, shape (3N, N).
        b_ih: shape (3N,); 0 unless given.
        b_hh: shape (3N,); 0 unless given.

    Returns:
        The new state, shape (..., N), and the gates (r, z, n).

    Raises:
        ValueError: shapes do not fit; the message names the argument and both shapes.

    Source:
        Cho et al. (2014), "Learning phrase representations using RNN encoder–decoder", equations 5 to 8;
        layout and reset form of ``torch.nn.GRUCell``.

    Example:
        >>> w, b = torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0.0, 0.0, 1.0])
        >>> h, gates = gru_cell(torch.zeros(1), torch.ones(1), torch.zeros(3, 1), w, None, b)
        >>> h, gates.n
        (tensor([0.8808]), tensor([0.7616]))
    """
    _require_shapes(3, x, h, w_ih, w_hh, b_ih, b_hh)
    input_r, input_z, input_n = linear(x, w_ih, b_ih).chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = linear(h, w_hh, b_hh).chunk(3, dim=-1)
    r, z = torch.sigmoid(input_r + hidden_r), torch.sigmoid(input_z + hidden_z)
    n = torch.tanh(input_n + r * hidden_n)
    return (1 - z) * n + z * h, GRUGates(r, z, n)


def linear_recurrence(W: Tensor, h0: Tensor, steps: int) -> Tensor:
    r"""All states of $h_t = W h_{t-1}$, the recurrent net without input and without tanh.

    Args:
        W: shape (N, N).
        h0: start, shape (..., N).
        steps: number of steps, at least 0.

    Returns:
        The states $h_0, \dots, h_{steps}$, shape (steps + 1, ..., N).

    Raises:
        ValueError: ``W`` is not square, its size is not that of ``h0``, or ``steps`` is negative.

    Example:
        >>> linear_recurrence(torch.tensor([[0.0, -2.0], [2.0, 0.0]]), torch.tensor([1.0, 0.0]), 2)
        tensor([[ 1.,  0.],
                [ 0.,  2.],
                [-4.,  0.]])
    """
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"W must be square, got shape {tuple(W.shape)}")
    if h0.ndim < 1 or h0.shape[-1] != len(W):
        raise ValueError(f"h0 must have shape (..., N) with N = {len(W)} as in W, got {tuple(h0.shape)}")
    if steps < 0:
        raise ValueError(f"steps must be at least 0, got {steps}")
    states = [h0]
    for _ in range(steps):
        states.append(linear(states[-1], W))
    return torch.stack(states)


def _require_shapes(
    n_gates: int, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> None:
    """Check what broadcasting would let pass: a weight or bias of another size, a state of another batch."""
    if x.ndim < 1 or h.ndim < 1 or x.shape[:-1] != h.shape[:-1]:
        raise ValueError(
            f"x and h must have the same leading axes: x has shape {tuple(x.shape)}, h has shape {tuple(h.shape)}"
        )
    rows = n_gates * h.shape[-1]
    for name, given, wanted in (
        ("w_ih", w_ih, (rows, x.shape[-1])),
        ("w_hh", w_hh, (rows, h.shape[-1])),
        ("b_ih", b_ih, (rows,)),
        ("b_hh", b_hh, (rows,)),
    ):
        if given is not None and given.shape != wanted:
            raise ValueError(f"{name} must have shape {wanted} to fit x and h, got {tuple(given.shape)}")
