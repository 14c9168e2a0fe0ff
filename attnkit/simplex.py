r"""Points on the probability simplex: softmax, its Jacobian, and the entropy of its weights.

Page: ``gallery/1_mixtures/softmax_temperature.py``.
"""

import math

import torch
from torch import Tensor

from attnkit._checks import at_least_float32

__all__ = ["entropy", "softmax", "softmax_jacobian"]


def softmax(scores: Tensor, temperature: float = 1.0, dim: int = -1) -> Tensor:
    r"""Turn scores into weights that are non-negative and sum to 1.

    $$\alpha_j = \frac{e^{s_j / \tau}}{\sum_l e^{s_l / \tau}}$$

    Half-precision scores are exponentiated in float32. A slice that is −inf throughout offers
    nothing to choose from: its weights are 0, with zero gradient, where torch returns NaN.

    Args:
        scores: any shape, floating point; −inf excludes an entry.
        temperature: $\tau > 0$, in the unit of the scores, at least the smallest normal number of
            their dtype; infinity makes all entries that are not excluded equal.
        dim: the axis whose entries compete.

    Returns:
        Weights of the shape and dtype of ``scores``.

    Raises:
        TypeError: ``scores`` is not floating point.
        ValueError: ``temperature`` is not positive, or too small for the dtype.

    Source:
        Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".

    Example:
        >>> softmax(torch.tensor([0.0, 0.0, float("-inf")]))
        tensor([0.5000, 0.5000, 0.0000])
    """
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point, got {scores.dtype}")
    wide = at_least_float32(scores)
    limits = torch.finfo(wide.dtype)
    if not temperature >= limits.tiny:
        raise ValueError(f"temperature must be at least {limits.tiny:.3g} for {wide.dtype}, got {temperature}")
    if temperature > limits.max:  # infinite, as far as this dtype can tell
        wide = (0 * wide).masked_fill(wide == -math.inf, -math.inf)
        temperature = 1.0
    if scores.numel() == 0:
        return scores.clone()
    # Subtracting the largest score changes nothing (shift invariance) but keeps exp below 1. The
    # shift is a constant to the gradient; in a slice of −inf alone it is 0, since −inf − −inf is NaN.
    peak = wide.detach().amax(dim, keepdim=True)
    peak = peak.masked_fill(peak == -math.inf, 0.0)
    shifted = wide - peak
    if temperature != 1.0:  # plain attention saves a pass over the scores
        shifted = shifted / temperature
    unnormalised = shifted.exp()
    del shifted  # as large as the scores
    total = unnormalised.sum(dim, keepdim=True)
    return (unnormalised / total.masked_fill(total == 0, 1.0)).to(scores.dtype)


def softmax_jacobian(weights: Tensor) -> Tensor:
    r"""Derivative of softmax weights by their scores, at temperature 1.

    $$\frac{\partial \alpha_i}{\partial s_j} = \alpha_i (\delta_{ij} - \alpha_j),
    \qquad J = \operatorname{diag}(\alpha) - \alpha\alpha^\top$$

    At temperature $\tau$ divide the result by $\tau$.

    Args:
        weights: shape (..., n), each row the output of a softmax.

    Returns:
        Shape (..., n, n), symmetric, rows sum to 0.

    Source:
        Gao and Pavel (2017), "On the properties of the softmax function", Proposition 2.

    Example:
        >>> softmax_jacobian(torch.tensor([0.5, 0.5]))
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]])
    """
    return torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)


def entropy(weights: Tensor, dim: int = -1) -> Tensor:
    r"""Shannon entropy $H(\alpha) = -\sum_j \alpha_j \ln \alpha_j$, with $0 \ln 0 = 0$.

    Args:
        weights: any shape, non-negative along ``dim``.
        dim: the axis that sums to 1.

    Returns:
        Entropy in nats; the shape of ``weights`` without ``dim``. From 0 (one-hot) to ln n (uniform).

    Raises:
        ValueError: a weight is negative.

    Source:
        Shannon (1948), "A mathematical theory of communication", section 6.

    Example:
        >>> entropy(torch.tensor([0.5, 0.5, 0.0]))
        tensor(0.6931)
    """
    if (weights < 0).any():
        raise ValueError(f"weights must be at least 0, the smallest is {weights.min().item():.3g}")
    # The slope of −p ln p at 0 is infinite; taken as 0, it leaves masked weights out of the gradient.
    logarithm = weights.masked_fill(weights == 0, 1.0).log()
    return -(weights * logarithm).sum(dim)
