r"""Attention without its matrix of scores: one tile of them at a time, with a running maximum.

Page: ``gallery/9_fast_and_small/online_softmax.py``.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attnkit._checks import at_least_float32, require_broadcastable, require_qkv

__all__ = ["merge_partials", "tiled_attention"]


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, block: int) -> Tensor:
    r"""Compute ``attention(q, k, v, mask)[0]`` from block × block tiles of scores, one after the other.

    For each tile of keys with scores s and values v, the row's maximum m, its sum ℓ and its mixture o
    are brought up to date:

    $$m' = \max(m, \max_j s_j), \qquad \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}, \qquad
    o' = e^{m - m'} o + \sum_j e^{s_j - m'} v_j$$

    and the output is $o / \ell$. The backward pass keeps $m + \ln \ell$ per query and computes each
    tile of weights again. Tiles in which no query sees a key are skipped.

    Args:
        q: queries, shape (..., T, d_k).
        k: keys, shape (..., S, d_k).
        v: values, shape (..., S, d_v).
        mask: boolean, broadcastable to (..., T, S); True means the query may see the key.
        block: queries and keys per tile, at least 1; the last tile of either may be smaller.

    Returns:
        ``out``, shape (..., T, d_v), in the dtype of ``v``; a query that may see no key gets 0. Half
        precision is computed in float32.

    Raises:
        TypeError: ``mask`` is not boolean, or q, k and v are not floating point of one dtype.
        ValueError: ``block`` is below 1, or shapes do not fit; the message names both sizes.

    Source:
        Milakov and Gimelshein (2018), "Online normalizer calculation for softmax", algorithm 3; Dao et al.
        (2022), "FlashAttention", algorithms 1 and 4, in the loop order of Dao (2023), "FlashAttention-2".

    Example:
        >>> q = k = torch.zeros(2, 1)
        >>> tiled_attention(q, k, torch.tensor([[1.0], [3.0]]), block=1)
        tensor([[2.],
                [2.]])
    """
    require_qkv(q, k, v)
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    T, S = q.shape[-2], k.shape[-2]
    leading = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean (True: may see), got {mask.dtype}")
        row, column = (1, 1, *mask.shape)[-2:]
        if row not in (1, T) or column not in (1, S):
            raise ValueError(f"mask must broadcast to (..., T, S) = (..., {T}, {S}), got shape {tuple(mask.shape)}")
        require_broadcastable("mask", mask.shape[:-2], "scores", leading)
        leading = torch.broadcast_shapes(leading, mask.shape[:-2])
        mask = mask.expand(*leading, T, S)  # a view: no memory
    scaled = at_least_float32(q) / math.sqrt(max(q.shape[-1], 1))
    inputs = (x.expand(*leading, *x.shape[-2:]) for x in (scaled, at_least_float32(k), at_least_float32(v)))
    out, _ = _Tiled.apply(*inputs, mask, block)
    return out.to(v.dtype)


def merge_partials(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    r"""Join the attention to some keys with the attention, of the same queries, to other keys.

    $$\mathrm{lse} = \ln(e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}), \qquad
    y = e^{\mathrm{lse}_1 - \mathrm{lse}}\, y_1 + e^{\mathrm{lse}_2 - \mathrm{lse}}\, y_2$$

    The order does not matter. No keys at all are (−∞, 0), which changes nothing.

    Args:
        first: ``lse``, the logsumexp of the scores, shape (..., T), and ``out``, shape (..., T, d_v).
        second: the same for the other keys.

    Returns:
        ``lse`` and ``out`` for all the keys.

    Raises:
        ValueError: an ``lse`` does not fit its ``out``, or the two ``out`` differ in shape.

    Source:
        Dao et al. (2022), "FlashAttention", section 3.1.

    Example:
        >>> one_key, three_keys = (torch.tensor([1.0, 3.0]).log()[:, None]), torch.tensor([[[8.0]], [[4.0]]])
        >>> merge_partials((one_key[0], three_keys[0]), (one_key[1], three_keys[1]))
        (tensor([1.3863]), tensor([[5.]]))
    """
    (lse_1, out_1), (lse_2, out_2) = first, second
    for name, lse, out in (("first", lse_1, out_1), ("second", lse_2, out_2)):
        if lse.shape != out.shape[:-1]:
            raise ValueError(f"lse of {name} must have shape {tuple(out.shape[:-1])}, got {tuple(lse.shape)}")
    if out_1.shape != out_2.shape:
        raise ValueError(f"out of first and second differ in shape: {tuple(out_1.shape)} and {tuple(out_2.shape)}")
    peak = torch.maximum(lse_1, lse_2).detach()
    peak = peak.masked_fill(peak == -math.inf, 0.0)  # a query that has seen no key on either side
    mass_1, mass_2 = torch.exp(lse_1 - peak), torch.exp(lse_2 - peak)
    dead = mass_1 + mass_2 == 0
    total = (mass_1 + mass_2).masked_fill(dead, 1.0)
    mixed = mass_1.unsqueeze(-1) * out_1 + mass_2.unsqueeze(-1) * out_2
    return (peak + total.log()).masked_fill(dead, -math.inf), mixed / total.unsqueeze(-1)


class _Tiled(torch.autograd.Function):
    """Output and lse of scaled queries, all leading axes alike; nothing of size T × S is kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, block: int) -> tuple[Tensor, Tensor]:
        out, lse = v.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_full((*q.shape[:-1], 1), -math.inf)
        for rows in _tiles(q.shape[-2], block):
            row_max, row_sum, mixed = lse[..., rows, :], torch.zeros_like(lse[..., rows, :]), out[..., rows, :]
            for columns in _tiles(k.shape[-2], block):
                scores = _scores(q, k, mask, rows, columns)
                if scores is None:
                    continue
                new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
                shift = new_max.masked_fill(new_max == -math.inf, 0.0)  # no key seen yet: −inf − −inf is NaN
                unnormalised = scores.sub_(shift).exp_()
                rescale = torch.exp(row_max - shift)
                row_sum = rescale * row_sum + unnormalised.sum(-1, keepdim=True)
                mixed = rescale * mixed + unnormalised @ v[..., columns, :]
                row_max = new_max
            out[..., rows, :] = mixed / row_sum.masked_fill(row_sum == 0, 1.0)
            lse[..., rows, :] = row_max + row_sum.log()
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.block = block
        return out, lse  # lse as an output, so that a second derivative finds its way through it

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, lse = ctx.saved_tensors
        grad_q, grad_k, grad_v = (x.new_zeros(x.shape) for x in (q, k, v))
        shift = lse.masked_fill(lse == -math.inf, 0.0)
        delta = (grad_out * out).sum(-1, keepdim=True) - grad_lse
        for rows in _tiles(q.shape[-2], ctx.block):
            for columns in _tiles(k.shape[-2], ctx.block):
                scores = _scores(q, k, mask, rows, columns)
                if scores is None:
                    continue
                weights = scores.sub_(shift[..., rows, :]).exp_()
                grad_v[..., columns, :] += weights.mT @ grad_out[..., rows, :]
                grad_weights = grad_out[..., rows, :] @ v[..., columns, :].mT
                grad_scores = grad_weights.sub_(delta[..., rows, :]).mul_(weights)
                grad_q[..., rows, :] += grad_scores @ k[..., columns, :]
                grad_k[..., columns, :] += grad_scores.mT @ q[..., rows, :]
        return grad_q, grad_k, grad_v, None, None


def _tiles(n: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, n)) for start in range(0, n, block))


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, rows: slice, columns: slice) -> Tensor | None:
    """One tile of scores, −inf where hidden; None where all of it is hidden."""
    seen = None if mask is None else mask[..., rows, columns]
    if seen is not None and not seen.any():
        return None
    scores = q[..., rows, :] @ k[..., columns, :].mT
    return scores if seen is None else scores.masked_fill_(~seen, -math.inf)
