r"""Rotary positions: turn pairs of features of q and k, and their scores see relative positions only.

Page: ``gallery/7_position/rotary.py``; frequencies for longer contexts:
``gallery/7_position/context_extension.py``; the proof: ``docs/derivations/rotary.md``.
"""

import torch
from torch import Tensor

from attnkit.sinusoidal import exact_positions

__all__ = ["positions_from_mask", "rotary_frequencies", "rotate"]


def rotate(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    base: float = 10000.0,
    layout: str = "interleaved",
    rotary_dim: int | None = None,
    frequencies: Tensor | None = None,
) -> Tensor:
    r"""Turn each pair of features (a, b) of a query or key by the angle position × frequency.

    $$\begin{pmatrix} a' \\ b' \end{pmatrix} = \begin{pmatrix} \cos p\,\omega_i & -\sin p\,\omega_i \\
    \sin p\,\omega_i & \cos p\,\omega_i \end{pmatrix} \begin{pmatrix} a \\ b \end{pmatrix}$$

    Pair i holds the features (2i, 2i+1) in the layout ``"interleaved"`` (the paper, GPT-J) and
    (i, i + rotary_dim/2) in ``"half"`` (GPT-NeoX, Llama in transformers). The two differ by a fixed
    permutation of the features; weights trained with one do not work with the other.

    Args:
        x: queries or keys, shape (..., T, d); with heads (..., H, T, d).
        positions: in tokens, integer or floating point, broadcastable to (..., T), hence (B, 1, T) for
            positions of each sequence; 0, 1, …, T − 1 unless given.
        base: sets the frequencies $\omega_i = \text{base}^{-2i/\text{rotary\_dim}}$.
        layout: ``"interleaved"`` or ``"half"``.
        rotary_dim: only the first so many features are turned, an even number; d unless given.
        frequencies: in radians per token, shape (rotary_dim/2,); from ``base`` unless given.

    Returns:
        Shape (..., T, d), in the dtype of ``x``. Angles and products are computed in float32, or in
        float64 if any input has it: half-precision angles would merge positions.

    Raises:
        TypeError: ``x`` is not floating point, or positions are boolean or complex.
        ValueError: ``layout`` is neither; ``rotary_dim`` is odd or exceeds d; positions or frequencies
            do not fit ``x``, or positions are too large for their dtype.

    Source:
        Su et al. (2021), "RoFormer", equations 14 and 15.

    Example:
        >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
        tensor([[0.5403, 0.8415]])
    """
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point, got {x.dtype}")
    if x.ndim < 2:
        raise ValueError(f"x must have shape (..., tokens, features), got {tuple(x.shape)}")
    if layout not in ("interleaved", "half"):
        raise ValueError(f'layout must be "interleaved" or "half", got {layout!r}')
    T, d = x.shape[-2:]
    rotary_dim = d if rotary_dim is None else rotary_dim
    if rotary_dim % 2 or not 0 <= rotary_dim <= d:
        raise ValueError(
            f"rotary_dim must be even and at most the width of x: rotary_dim is {rotary_dim}, x has {d} features"
        )
    if positions is None:
        positions = torch.arange(T, device=x.device)
    _require_fit(positions.shape, x.shape[:-1])
    given = (x, positions) if frequencies is None else (x, positions, frequencies)
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in given) else torch.float32
    if frequencies is None:
        frequencies = rotary_frequencies(rotary_dim, base, dtype=dtype, device=x.device)
    elif frequencies.shape != (rotary_dim // 2,):
        raise ValueError(
            f"frequencies must have shape (rotary_dim/2,) = ({rotary_dim // 2},), got {tuple(frequencies.shape)}"
        )
    angles = exact_positions(positions, dtype).unsqueeze(-1) * frequencies.to(dtype)
    cos, sin = angles.cos(), angles.sin()
    turning = x[..., :rotary_dim].to(dtype)
    if layout == "interleaved":
        a, b = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        a, b = turning[..., : rotary_dim // 2], turning[..., rotary_dim // 2 :]
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    turned = turned.to(x.dtype)
    if rotary_dim == d:
        return turned
    still = x[..., rotary_dim:].expand(*turned.shape[:-1], -1)
    return torch.cat((turned, still), dim=-1)


def rotary_frequencies(
    rotary_dim: int, base: float = 10000.0, *, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> Tensor:
    r"""How far each pair of features turns from one token to the next, fastest first.

    $$\omega_i = \text{base}^{-2i/\text{rotary\_dim}}, \qquad i = 0, \dots, \text{rotary\_dim}/2 - 1$$

    Args:
        rotary_dim: number of features that turn, even.
        base: the larger, the slower the last pairs.
        dtype: float32 or float64; the default dtype unless given.
        device: where to put them.

    Returns:
        In radians per token, shape (rotary_dim/2,).

    Raises:
        ValueError: ``rotary_dim`` is odd or negative, or ``base`` is not positive.

    Source:
        Su et al. (2021), "RoFormer", section 3.2.2, where the pairs count from 1.

    Example:
        >>> rotary_frequencies(4)
        tensor([1.0000, 0.0100])
    """
    if rotary_dim % 2 or rotary_dim < 0:
        raise ValueError(f"rotary_dim must be even and at least 0, got {rotary_dim}")
    if not base > 0:
        raise ValueError(f"base must be greater than 0, got {base}")
    dtype = dtype or torch.promote_types(torch.get_default_dtype(), torch.float32)
    even = torch.arange(0, rotary_dim, 2, dtype=dtype, device=device)  # 2i, not i
    return base ** (-even / max(rotary_dim, 1))


def positions_from_mask(mask: Tensor) -> Tensor:
    r"""Count each sequence's own tokens, so that padding on the left does not shift the rest.

    Args:
        mask: boolean, shape (..., S); True marks a token, False padding.

    Returns:
        Integers, shape (..., S): the number of tokens before each token. Padding gets the position of
        the last token before it, or 0; hide it with a mask.

    Raises:
        TypeError: ``mask`` is not boolean.

    Example:
        >>> positions_from_mask(torch.tensor([False, False, True, True, True]))
        tensor([0, 0, 0, 1, 2])
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (True: a token), got {mask.dtype}")
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _require_fit(positions: torch.Size, tokens: torch.Size) -> None:
    """Positions may add leading axes, but must not stretch the token axis."""
    try:
        fits = torch.broadcast_shapes(positions, tokens)[-1] == tokens[-1]
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"positions must broadcast to (..., T) of x, {tuple(tokens)}, got shape {tuple(positions)}")
