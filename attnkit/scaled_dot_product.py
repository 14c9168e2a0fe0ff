r"""Scaled dot-product attention, the one equation everything else here is about.

Pages: ``gallery/2_queries_keys_values/``, ``gallery/3_causal_head/``.
"""

import math

import torch
from torch import Tensor

from attnkit._checks import at_least_float32, require_broadcastable, require_qk
from attnkit.simplex import softmax

__all__ = ["attention", "attention_scores"]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Mix the values, each query by its own weights over the keys.

    $$\operatorname{attention}(Q, K, V) = \operatorname{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right) V$$

    The order is scale, softcap, bias, mask, softmax. A query that may see no key gets output 0 and
    weights 0, with finite gradients.

    Args:
        q: queries, shape (..., T, d_k).
        k: keys, shape (..., S, d_k).
        v: values, shape (..., S, d_v).
        mask: boolean, broadcastable to (..., T, S); True means the query may see the key.
        bias: floating point, broadcastable to (..., T, S), added to the scores.
        scale: factor of the dot products; 1/√d_k unless given.
        softcap: if given, scores become softcap · tanh(scores / softcap), so none exceeds it.

    Returns:
        ``out``, shape (..., T, d_v), and the ``weights`` that made it, shape (..., T, S), both in the
        dtype of ``v``. Half-precision scores are computed and normalised in float32.

    Raises:
        TypeError: ``mask`` is not boolean, ``bias`` is, or q, k and v differ in dtype.
        ValueError: shapes do not fit; the message names the arguments and both sizes.

    Source:
        Vaswani et al. (2017), "Attention is all you need", equation 1; softcap: Gemma Team (2024),
        "Gemma 2", section 2.

    Example:
        >>> q = k = torch.zeros(2, 1)
        >>> out, weights = attention(q, k, torch.tensor([[1.0], [3.0]]))
        >>> out
        tensor([[2.],
                [2.]])
    """
    if k.dtype != v.dtype:
        raise TypeError(f"k and v must share one dtype: k is {k.dtype}, v is {v.dtype}")
    scores = attention_scores(q, k, scale)
    if v.ndim < 2 or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must hold the same number of tokens: k has shape {tuple(k.shape)}, v has shape {tuple(v.shape)}"
        )
    if softcap is not None:
        if not 0 < softcap < math.inf:
            raise ValueError(f"softcap must be positive and finite, got {softcap}")
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        if not bias.is_floating_point():
            raise TypeError(f"bias must be floating point, got {bias.dtype}; boolean terms go in mask")
        _require_fits_scores("bias", bias, scores)
        scores = scores + bias
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean (True: may see), got {mask.dtype}; float terms go in bias")
        _require_fits_scores("mask", mask, scores)
        scores = scores.masked_fill(~mask, float("-inf"))
    require_broadcastable("v", v.shape[:-2], "scores", scores.shape[:-2])
    weights = softmax(scores).to(v.dtype)
    return weights @ v, weights


def attention_scores(q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    r"""Compare every query with every key: $s_{ij} = q_i \cdot k_j / \sqrt{d_k}$.

    Args:
        q: queries, shape (..., T, d_k).
        k: keys, shape (..., S, d_k).
        scale: factor of the dot products; 1/√d_k unless given.

    Returns:
        Scores, shape (..., T, S); in float32 for half-precision input, whose range they may leave.

    Raises:
        TypeError: q or k is not floating point, or they differ in dtype.
        ValueError: q and k differ in width, or their leading axes do not broadcast.

    Source:
        Vaswani et al. (2017), section 3.2.1.

    Example:
        >>> attention_scores(torch.tensor([[2.0, 0.0, 0.0, 0.0]]), torch.eye(4))
        tensor([[1., 0., 0., 0.]])
    """
    require_qk(q, k)
    q, k = at_least_float32(q), at_least_float32(k)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    # The scale goes on q, before the product: T·d_k multiplications instead of T·S, and no large intermediate.
    return (q * scale) @ k.transpose(-2, -1)


def _require_fits_scores(name: str, x: Tensor, scores: Tensor) -> None:
    """``x`` may add leading axes, but must not stretch the query or key axis of the scores."""
    T, S = scores.shape[-2:]
    fits = x.ndim < 1 or (x.shape[-1] in (1, S) and (x.ndim < 2 or x.shape[-2] in (1, T)))
    if not fits:
        raise ValueError(f"{name} must broadcast to (..., T, S) = (..., {T}, {S}), got shape {tuple(x.shape)}")
    require_broadcastable(name, x.shape[:-2], "scores", scores.shape[:-2])
