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


def require_qk(q: Tensor, k: Tensor) -> None:
    """Raise TypeError or ValueError unless every query can be compared with every key."""
    _require_tokens("q", q)
    _require_tokens("k", k)
    if q.dtype != k.dtype:
        raise TypeError(f"q and k must share one dtype: q is {q.dtype}, k is {k.dtype}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width: q has {q.shape[-1]} features, k has {k.shape[-1]}")
    require_broadcastable("q", q.shape[:-2], "k", k.shape[:-2])


def require_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise TypeError or ValueError unless q, k and v fit together; the message names both sizes."""
    require_qk(q, k)
    _require_tokens("v", v)
    if k.dtype != v.dtype:
        raise TypeError(f"k and v must share one dtype: k is {k.dtype}, v is {v.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must hold the same number of tokens: k has shape {tuple(k.shape)}, v has shape {tuple(v.shape)}"
        )
    require_broadcastable("q", q.shape[:-2], "v", v.shape[:-2])
    require_broadcastable("k", k.shape[:-2], "v", v.shape[:-2])


def _require_tokens(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}")
    if x.ndim < 2:
        raise ValueError(f"{name} must have shape (..., tokens, features), got {tuple(x.shape)}")
