"""What the laws are tried on: shapes with empty axes and single tokens, dtypes, masks with dead rows, strides.

Hypothesis draws shapes and a seed; torch fills the shapes, which is quick and shrinks well enough.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
STRIDES = ("contiguous", "transposed", "sliced", "first axis last")

seeds = st.integers(0, 2**16)
sizes = st.integers(0, 5)
leading = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def allowed(dtype: torch.dtype, largest: float = 1.0) -> float:
    """How far an output of attention may be off, for values up to ``largest``.

    Scores are computed in float32 or wider, up to 64 of its roundings with five keys and five features; then weights
    and outputs are rounded to the dtype, at most four times.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return (64 * torch.finfo(wide).eps + 4 * torch.finfo(dtype).eps) * max(1.0, largest)


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def restrided(x: Tensor, how: str) -> Tensor:
    """The same numbers at other places in memory; between them lie NaN, which nobody may read."""
    if how == "transposed":
        return x.mT.contiguous().mT
    if how == "first axis last":
        return x.movedim(0, -1).contiguous().movedim(-1, 0)
    if how == "sliced":
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1] + 1), float("nan"))
        wide[..., 1::2] = x
        return wide[..., 1::2]
    return x


@dataclass
class Inputs:
    """Arguments of one call of attention."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor

    def __iter__(self):
        return iter((self.q, self.k, self.v, self.mask))


@st.composite
def masks(draw, axes: tuple[int, ...], T: int, S: int) -> Tensor:
    """Boolean, from all to nothing visible, with axes of size 1 or none where it is to broadcast."""
    shape = [draw(st.sampled_from((n, 1))) for n in (*axes, T, S)]
    shape = shape[draw(st.integers(0, len(axes))) :]
    share = draw(st.sampled_from((0.0, 0.3, 0.7, 1.0)))
    return torch.rand(shape, generator=torch.Generator().manual_seed(draw(seeds))) < share


@st.composite
def inputs(draw, dtypes=(torch.float64,), *, smallest: int = 0, axes=leading) -> Inputs:
    """q, k, v of any shapes that fit, T ≠ S and d_k ≠ d_v as a rule, and a mask."""
    shape, dtype, seed = draw(axes), draw(st.sampled_from(dtypes)), draw(seeds)
    T, S, d_k, d_v = (draw(st.integers(smallest, 5)) for _ in range(4))
    q, k, v = (
        randn(seed + n, *shape, tokens, width, dtype=dtype)
        for n, (tokens, width) in enumerate(((T, d_k), (S, d_k), (S, d_v)))
    )
    return Inputs(q, k, v, draw(masks(shape, T, S)))
