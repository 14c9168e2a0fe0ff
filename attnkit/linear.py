r"""Attention with a kernel of features instead of a softmax: a recurrence whose state does not grow.

Page: ``gallery/9_fast_and_small/linear_attention.py``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnkit._checks import at_least_float32, require_broadcastable, require_qkv

__all__ = ["delta_rule", "elu_plus_one", "linear_attention"]

#: Tokens that the causal form takes at a time; it changes time and memory, not the result.
CHUNK = 64


def elu_plus_one(x: Tensor) -> Tensor:
    r"""Feature map with positive values: $x + 1$ for $x > 0$, $e^x$ otherwise.

    Written without $\operatorname{elu}(x) + 1$, whose sum rounds to 0 for $x$ below about −37 in
    float64 and −17 in float32.

    Args:
        x: any shape, floating point.

    Returns:
        The shape and dtype of ``x``.

    Source:
        Katharopoulos et al. (2020), "Transformers are RNNs", equation 7.

    Example:
        >>> elu_plus_one(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    below = torch.where(x > 0, 0, x)  # not clamp, whose slope at 0 is 1 or 0, by the version of torch
    return torch.where(x > 0, x + 1, torch.exp(below))


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    causal: bool = True,
) -> Tensor:
    r"""Mix the values with weights proportional to $\varphi(q_i) \cdot \varphi(k_j)$, in time linear in the tokens.

    $$y_i = \frac{\varphi(q_i) \left(\sum_j \varphi(k_j)^\top v_j\right)}{\varphi(q_i) \cdot \sum_j \varphi(k_j)}$$

    The sums go over j ≤ i if causal, over all keys if not. They are the state: as many numbers as the
    features of φ times d_v + 1, however many tokens went in.

    Args:
        q: queries, shape (..., T, d_k).
        k: keys, shape (..., S, d_k).
        v: values, shape (..., S, d_v).
        feature_map: φ, from (..., d_k) to (..., any number of features), with values ≥ 0.
        causal: whether query i sees only keys j ≤ i; then T and S must be equal.

    Returns:
        ``out``, shape (..., T, d_v), in the dtype of ``v``; 0 where φ(q_i) meets no key. Half precision is
        computed in float32.

    Raises:
        TypeError: q, k and v are not floating point of one dtype.
        ValueError: shapes do not fit, or causal and T ≠ S; the message names both sizes.

    Source:
        Katharopoulos et al. (2020), "Transformers are RNNs", equations 5 and 9.

    Example:
        >>> v = torch.tensor([[1.0], [3.0], [5.0]])
        >>> linear_attention(torch.zeros(3, 2), torch.zeros(3, 2), v, feature_map=torch.ones_like)
        tensor([[1.],
                [2.],
                [3.]])
    """
    require_qkv(q, k, v)
    T, S = q.shape[-2], k.shape[-2]
    if causal and T != S:
        raise ValueError(f"causal linear attention needs as many queries as keys: q has {T} tokens, k has {S}")
    phi_q, phi_k = feature_map(at_least_float32(q)), feature_map(at_least_float32(k))
    for name, before, after in (("q", q, phi_q), ("k", k, phi_k)):
        if after.shape[:-1] != before.shape[:-1]:
            raise ValueError(
                f"feature_map may change the last axis only: {name} has shape {tuple(before.shape)}, "
                f"its features have {tuple(after.shape)}"
            )
    # A value that is always 1 collects the denominator on the way.
    wide = at_least_float32(v)
    v_and_one = torch.cat((wide, torch.ones_like(wide[..., :1])), dim=-1)
    sums = _causal_sums(phi_q, phi_k, v_and_one) if causal else phi_q @ (phi_k.mT @ v_and_one)
    mixed, total = sums[..., :-1], sums[..., -1:]
    return (mixed / total.masked_fill(total == 0, 1.0)).to(v.dtype)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    r"""Read from a memory that is corrected, not added to: each token moves what its key recalls towards its value.

    $$M_t = M_{t-1} + \beta_t\, k_t^\top (v_t - k_t M_{t-1}), \qquad y_t = q_t M_t, \qquad M_0 = 0$$

    There is no normaliser and no feature map. With $\lVert k_t \rVert = 1$, β = 1 replaces what the key
    recalled and β = 0 writes nothing; the memory stays bounded where $\beta \lVert k_t \rVert^2$ is
    between 0 and 2.

    Args:
        q: queries, shape (..., T, d_k).
        k: keys, shape (..., T, d_k).
        v: values, shape (..., T, d_v).
        beta: how far each token corrects, shape broadcastable to (..., T).

    Returns:
        ``out``, shape (..., T, d_v), in the dtype of ``v``; token t reads after it has written.

    Raises:
        TypeError: q, k and v are not floating point of one dtype.
        ValueError: shapes do not fit; the message names both sizes.

    Source:
        Schlag, Irie and Schmidhuber (2021), "Linear Transformers are secretly fast weight programmers",
        section 4.2; Yang et al. (2024), "Parallelizing linear Transformers with the delta rule over sequence
        length", section 2.2.

    Example:
        >>> k = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> delta_rule(k, k, torch.tensor([[3.0], [5.0]]), torch.ones(2))
        tensor([[3.],
                [5.]])
    """
    require_qkv(q, k, v)
    T, S = q.shape[-2], k.shape[-2]
    if T != S:
        raise ValueError(f"the delta rule needs as many queries as keys: q has {T} tokens, k has {S}")
    leading = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if not beta.is_floating_point():
        raise TypeError(f"beta must be floating point, got {beta.dtype}")
    if beta.ndim and beta.shape[-1] not in (1, T):
        raise ValueError(f"beta must broadcast to (..., T) = (..., {T}), got shape {tuple(beta.shape)}")
    require_broadcastable("beta", beta.shape[:-1], "q, k and v", leading)
    queries, keys, values = at_least_float32(q), at_least_float32(k), at_least_float32(v)
    steps = beta.to(keys.dtype).expand(*beta.shape[:-1], T)
    memory = keys[..., :0, :].mT @ values[..., :0, :]  # zeros of the shape (..., d_k, d_v)
    out = []
    for t in range(T):
        now = slice(t, t + 1)
        error = values[..., now, :] - keys[..., now, :] @ memory
        memory = memory + keys[..., now, :].mT @ (steps[..., now, None] * error)
        out.append(queries[..., now, :] @ memory)
    shape = (*torch.broadcast_shapes(leading, beta.shape[:-1]), T, v.shape[-1])
    return torch.cat(out, dim=-2).to(v.dtype) if out else v.new_zeros(shape)


def _causal_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    """Sum over j ≤ i of (φ(q_i)·φ(k_j)) v_j: within a chunk pair by pair, from earlier chunks by their state."""
    state = phi_k[..., :0, :].mT @ v[..., :0, :]  # zeros of the shape (..., features, width of v)
    sums = []
    for start in range(0, max(v.shape[-2], 1), CHUNK):
        chunk = slice(start, start + CHUNK)
        within = (phi_q[..., chunk, :] @ phi_k[..., chunk, :].mT).tril() @ v[..., chunk, :]
        sums.append(phi_q[..., chunk, :] @ state + within)
        state = state + phi_k[..., chunk, :].mT @ v[..., chunk, :]
    return torch.cat(sums, dim=-2)
