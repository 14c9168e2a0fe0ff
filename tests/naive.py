"""Oracles that share nothing with attnkit: the formulas as loops over Python's own numbers, one entry at a time."""

import cmath
import math
from collections.abc import Sequence

import torch
from torch import Tensor

Matrix = Sequence[Sequence[float]]


def attention(
    q: Matrix,
    k: Matrix,
    v: Matrix,
    visible: Sequence[Sequence[bool]],
    *,
    bias: Matrix | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> list[list[float]]:
    """One head: each query mixes the values of the keys it may see, and is 0 if it may see none."""
    out = []
    for i, query in enumerate(q):
        masses = {}
        for j, key in enumerate(k):
            if visible[i][j]:
                score = sum(a * b for a, b in zip(query, key)) * (len(query) ** -0.5 if scale is None else scale)
                score = score if softcap is None else softcap * math.tanh(score / softcap)
                masses[j] = math.exp(score + (0.0 if bias is None else bias[i][j]))
        total = math.fsum(masses.values())
        width = range(len(v[0]))
        out.append([math.fsum(mass / total * v[j][e] for j, mass in masses.items()) for e in width])
    return out


def rotated(x: Sequence[float], position: float, layout: str, base: float = 10000.0) -> list[float]:
    """One vector, each pair of features as a complex number times exp(i · angle)."""
    half = len(x) // 2
    turned = list(x)
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + half)
        pair = complex(x[a], x[b]) * cmath.exp(1j * position * base ** (-2 * i / len(x)))
        turned[a], turned[b] = pair.real, pair.imag
    return turned


def column(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """One feature per token."""
    return torch.tensor(values, dtype=dtype)[:, None]
