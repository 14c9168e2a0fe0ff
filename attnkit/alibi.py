r"""ALiBi: no position vectors; each head subtracts its own multiple of the distance from the scores.

Page: ``gallery/7_position/alibi.py``.
"""

import torch
from torch import Tensor

__all__ = ["alibi_bias", "alibi_slopes"]


def alibi_slopes(n_heads: int) -> Tensor:
    r"""The slopes of the heads, a geometric sequence.

    $$m_h = 2^{-8h/H}, \qquad h = 1, \dots, H$$

    for H a power of two. Otherwise the largest power of two below H gets these slopes, and the
    remaining heads every other slope of twice as many heads, from the first on.

    Args:
        n_heads: H, at least 1.

    Returns:
        Score per token of distance, shape (n_heads,), in the default dtype.

    Raises:
        ValueError: ``n_heads`` is below 1.

    Source:
        Press, Smith and Lewis (2021), "Train short, test long", section 3; other H: the authors' code.

    Example:
        >>> alibi_slopes(6)
        tensor([0.2500, 0.0625, 0.0156, 0.0039, 0.5000, 0.1250])
    """
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1, got {n_heads}")
    power = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2 ** (-4 * h / power) for h in range(1, 2 * (n_heads - power), 2)]
    return torch.tensor(slopes)


def alibi_bias(n_heads: int, T: int, S: int | None = None, *, offset: int = 0) -> Tensor:
    r"""What each head adds to its scores: minus slope times distance, $-m_h (i + \text{offset} - j)$.

    For the ``bias`` of ``attention``, together with a causal mask: keys of the future, if they may be
    seen, get a positive bias. Use minus the absolute value for attention in both directions.

    Args:
        n_heads: H, number of heads.
        T: number of queries.
        S: number of keys; T unless given.
        offset: position of query 0 on the key axis, in tokens.

    Returns:
        Shape (n_heads, T, S), in the default dtype.

    Raises:
        ValueError: ``n_heads`` is below 1, or T or S is negative.

    Source:
        Press, Smith and Lewis (2021), "Train short, test long", section 3.

    Example:
        >>> alibi_bias(8, 3)[0]
        tensor([[ 0.0000,  0.5000,  1.0000],
                [-0.5000,  0.0000,  0.5000],
                [-1.0000, -0.5000,  0.0000]])
    """
    S = T if S is None else S
    if T < 0 or S < 0:
        raise ValueError(f"T and S must be at least 0, got T = {T}, S = {S}")
    ahead = torch.arange(S) - (torch.arange(T)[:, None] + offset)
    return alibi_slopes(n_heads)[:, None, None] * ahead
