r"""Sinusoidal position vectors: each pair of features is a clock hand that turns at its own speed.

Page: ``gallery/7_position/sinusoidal.py``.
"""

import torch
from torch import Tensor

__all__ = ["sinusoidal_encoding"]


def sinusoidal_encoding(positions: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    r"""Vectors to be added to the embeddings of tokens at given positions.

    $$\operatorname{PE}(p)_{2i} = \sin(p\,\omega_i), \qquad \operatorname{PE}(p)_{2i+1} = \cos(p\,\omega_i),
    \qquad \omega_i = \text{base}^{-2i/d_\text{model}}$$

    Sine and cosine alternate, as in the paper; others put all sines first. For odd ``d_model`` the
    last feature is a sine without its cosine.

    Args:
        positions: any shape (...), in tokens; integer or floating point, fractions and negative ones too.
        d_model: width of the vectors, at least 1.
        base: ratio of the slowest to the fastest wavelength in the limit of large ``d_model``.

    Returns:
        Shape (..., d_model): in the dtype of float32 or float64 positions, in float32 for half-precision
        ones, in the default dtype for integers.

    Raises:
        TypeError: ``positions`` are boolean or complex.
        ValueError: ``d_model`` is below 1, ``base`` is not positive, or positions are so large that
            their dtype no longer tells neighbours apart (above 256 in bfloat16, 2048 in float16).

    Source:
        Vaswani et al. (2017), "Attention is all you need", section 3.5.

    Example:
        >>> sinusoidal_encoding(torch.tensor([0, 1]), 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if d_model < 1:
        raise ValueError(f"d_model must be at least 1, got {d_model}")
    if not base > 0:
        raise ValueError(f"base must be greater than 0, got {base}")
    given = positions.dtype if positions.is_floating_point() else torch.get_default_dtype()
    dtype = torch.float64 if given == torch.float64 else torch.float32
    even = torch.arange(0, d_model, 2, dtype=dtype, device=positions.device)  # 2i, not i
    angles = exact_positions(positions, dtype).unsqueeze(-1) * base ** (-even / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model]


def exact_positions(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Positions in the ``dtype`` of the angles; refused where two neighbours have become one number."""
    if positions.dtype == torch.bool or positions.is_complex():
        raise TypeError(f"positions must be integers or floating point, got {positions.dtype}")
    coarsest = max((d for d in (positions.dtype, dtype) if d.is_floating_point), key=lambda d: torch.finfo(d).eps)
    limit = 2 / torch.finfo(coarsest).eps  # up to here the dtype holds every integer
    # Compared before they are converted, as a Python number: 2²⁴ + 1 in float32 has become 2²⁴ already.
    farthest = positions.abs().max().item() if positions.numel() else 0
    if farthest > limit:
        raise ValueError(
            f"positions in {coarsest} count exactly up to {limit:.0f}, got {farthest:.0f}; "
            "use integers or a wider dtype"
        )
    return positions.to(dtype)
