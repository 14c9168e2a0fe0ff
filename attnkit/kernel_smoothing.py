r"""Attention's older sibling: averages weighted by a fixed kernel instead of a learned one.

Page: ``gallery/3_causal_head/kernel_smoothing.py``.
"""

import torch
from torch import Tensor

from attnkit._checks import at_least_float32, require_broadcastable
from attnkit.masks import causal_mask
from attnkit.simplex import softmax

__all__ = ["nadaraya_watson", "positional_kernel"]


def nadaraya_watson(queries: Tensor, keys: Tensor, values: Tensor, bandwidth: float) -> Tensor:
    r"""Estimate a curve at the queries from samples, by a Gaussian kernel.

    $$\hat y(q) = \sum_j \frac{\kappa(q - k_j)}{\sum_l \kappa(q - k_l)}\, v_j,
    \qquad \kappa(u) = e^{-\lVert u \rVert^2 / 2 s^2}$$

    Args:
        queries: where to estimate, shape (..., T, d), or (T,) for points on a line.
        keys: where the samples lie, shape (..., S, d), or (S,).
        values: what was observed there, shape (..., S, e), or (S,).
        bandwidth: s > 0, in the unit of the keys; infinity gives the mean. Its square must be a
            normal number of the dtype.

    Returns:
        Estimates, shape (..., T, e), or (T,) for one-dimensional ``values``.

    Raises:
        TypeError: an argument is not floating point.
        ValueError: ``bandwidth`` is not positive or too small, or the sizes do not fit.

    Source:
        Nadaraya (1964), "On estimating regression"; Watson (1964), "Smooth regression analysis".

    Example:
        >>> x = torch.tensor([0.0, 1.0])
        >>> nadaraya_watson(torch.tensor([0.5]), x, torch.tensor([2.0, 4.0]), bandwidth=0.1)
        tensor([3.])
    """
    for name, x in (("queries", queries), ("keys", keys), ("values", values)):
        if not x.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {x.dtype}")
    if queries.ndim == 1:
        queries = queries.unsqueeze(-1)
    if keys.ndim == 1:
        keys = keys.unsqueeze(-1)
    on_a_line = values.ndim == 1
    if on_a_line:
        values = values.unsqueeze(-1)
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            "queries and keys must have the same width: "
            f"queries have {queries.shape[-1]} features, keys have {keys.shape[-1]}"
        )
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(
            "keys and values must hold the same number of samples: "
            f"keys hold {keys.shape[-2]}, values hold {values.shape[-2]}"
        )
    require_broadcastable("queries", queries.shape[:-2], "keys", keys.shape[:-2])
    apart = at_least_float32(queries).unsqueeze(-2) - at_least_float32(keys).unsqueeze(-3)
    weights = _gaussian_weights(apart.square().sum(-1), bandwidth)
    require_broadcastable("weights", weights.shape[:-2], "values", values.shape[:-2])
    out = weights.to(values.dtype) @ values
    return out.squeeze(-1) if on_a_line else out


def positional_kernel(T: int, bandwidth: float, causal: bool = True) -> Tensor:
    r"""Weights that depend on position alone: softmax of $-(i-j)^2 / 2 s^2$ over the visible keys.

    Args:
        T: number of tokens.
        bandwidth: s > 0, in tokens; infinity weighs all visible tokens the same.
        causal: whether token i sees only tokens j ≤ i.

    Returns:
        Weights, shape (T, T), rows sum to 1.

    Raises:
        ValueError: ``bandwidth`` is not positive.

    Example:
        >>> positional_kernel(3, float("inf"))
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.3333, 0.3333, 0.3333]])
    """
    position = torch.arange(T, dtype=torch.get_default_dtype())
    squared_distance = (position[:, None] - position).square()
    if causal:
        squared_distance = squared_distance.masked_fill(~causal_mask(T), float("inf"))
    return _gaussian_weights(squared_distance, bandwidth)


def _gaussian_weights(squared_distance: Tensor, bandwidth: float) -> Tensor:
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be greater than 0, got {bandwidth}")
    variance = bandwidth * bandwidth  # infinite for an infinite bandwidth, and then all weigh the same
    if variance < torch.finfo(squared_distance.dtype).tiny:
        raise ValueError(f"bandwidth is too small for {squared_distance.dtype}: its square is {variance}")
    return softmax(-squared_distance / 2, temperature=variance)
