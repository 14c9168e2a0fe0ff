"""Checks that several modules share; each error names the argument and both values."""

import torch
from torch import Tensor


def require_broadcastable(name_a: str, a: torch.Size, name_b: str, b: torch.Size) -> None:
    """Raise ValueError unless the leading axes ``a`` and ``b`` broadcast."""
    try:
        torch.broadcast_shapes(a, b)
    except RuntimeError:
        raise ValueError(
            f"leading axes of {name_a} and {name_b} do not broadcast: {name_a} has {tuple(a)}, {name_b} has {tuple(b)}"
        ) from None


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened to float32, anything else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
