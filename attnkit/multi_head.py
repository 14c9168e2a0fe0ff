r"""Heads: one causal head as a module, many heads side by side, and how they share keys.

Pages: ``gallery/2_queries_keys_values/multi_head.py``, ``gallery/3_causal_head/causal_head.py``,
``gallery/9_fast_and_small/grouped_query.py``.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnkit.kv_cache import KVCache
from attnkit.masks import causal_mask
from attnkit.scaled_dot_product import attention

__all__ = ["Head", "MultiHeadAttention", "merge_heads", "repeat_heads", "split_heads"]


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    r"""Give each head its own slice of the features: (..., T, H·d) to (..., H, T, d).

    Features are split first, axes swapped second. Viewing (T, H·d) as (H, T, d) at once has the
    right shape and mixes tokens.

    Args:
        x: shape (..., T, H·d).
        n_heads: H, at least 1.

    Returns:
        Shape (..., H, T, d).

    Raises:
        ValueError: ``x`` has fewer than two axes, or its width is no multiple of ``n_heads``.

    Example:
        >>> import torch
        >>> split_heads(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), 2)[0]
        tensor([[1, 2],
                [5, 6]])
    """
    if x.ndim < 2:
        raise ValueError(f"x must have shape (..., tokens, features), got {tuple(x.shape)}")
    if n_heads < 1 or x.shape[-1] % n_heads:
        raise ValueError(f"width of x must be a multiple of n_heads: width is {x.shape[-1]}, n_heads is {n_heads}")
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    r"""Concatenate the heads' features again, the inverse of ``split_heads``.

    Args:
        x: shape (..., H, T, d).

    Returns:
        Shape (..., T, H·d).

    Raises:
        ValueError: ``x`` has fewer than three axes.

    Example:
        >>> import torch
        >>> x = torch.arange(8.0).view(2, 4)
        >>> torch.equal(merge_heads(split_heads(x, 2)), x)
        True
    """
    if x.ndim < 3:
        raise ValueError(f"x must have shape (..., heads, tokens, features), got {tuple(x.shape)}")
    return x.transpose(-3, -2).flatten(-2)


def repeat_heads(x: Tensor, n_heads: int) -> Tensor:
    r"""Let groups of query heads share one key or value head: each head is repeated in place.

    Heads [a, b] become [a, a, b, b]; tiling, [a, b, a, b], would pair queries with the wrong keys.

    Args:
        x: shape (..., n_kv_heads, S, d).
        n_heads: number of query heads, a multiple of n_kv_heads.

    Returns:
        Shape (..., n_heads, S, d).

    Raises:
        ValueError: ``x`` has fewer than three axes, or ``n_heads`` is no positive multiple of its heads.

    Source:
        Ainslie et al. (2023), "GQA", section 2.2.

    Example:
        >>> import torch
        >>> repeat_heads(torch.tensor([10, 20]).view(2, 1, 1), 4).flatten()
        tensor([10, 10, 20, 20])
    """
    if x.ndim < 3:
        raise ValueError(f"x must have shape (..., heads, tokens, features), got {tuple(x.shape)}")
    n_kv_heads = x.shape[-3]
    if n_kv_heads < 1 or n_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"n_heads must be a multiple of the heads of x: n_heads is {n_heads}, x has {n_kv_heads}")
    return x.repeat_interleave(n_heads // n_kv_heads, dim=-3)


class Head(nn.Module):
    r"""One attention head: three projections and the mixture.

    $$\operatorname{softmax}\left(\operatorname{mask}\left(
    \frac{XW_Q (XW_K)^\top}{\sqrt{d_k}}\right)\right) XW_V$$

    Args:
        d_model: width of the input.
        d_k: width of queries and keys.
        d_v: width of values and output; d_k unless given.
        context: if given, the head is causal, for at most this many tokens.

    Source:
        Vaswani et al. (2017), equation 1, with the mask of section 3.2.3.

    Example:
        >>> import torch
        >>> out, weights = Head(d_model=6, d_k=4, context=8)(torch.zeros(3, 6))
        >>> out.shape, weights[1]
        (torch.Size([3, 4]), tensor([0.5000, 0.5000, 0.0000], grad_fn=<SelectBackward0>))
    """

    mask: Tensor | None

    def __init__(self, d_model: int, d_k: int, d_v: int | None = None, *, context: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_k, bias=False)
        self.key = nn.Linear(d_model, d_k, bias=False)
        self.value = nn.Linear(d_model, d_k if d_v is None else d_v, bias=False)
        # A buffer moves with the module between devices; it is a constant, so no checkpoint keeps it.
        self.register_buffer("mask", None if context is None else causal_mask(context), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within ``x``.

        Args:
            x: shape (..., T, d_model).

        Returns:
            ``out``, shape (..., T, d_v), and ``weights``, shape (..., T, T).

        Raises:
            ValueError: ``x`` has fewer than two axes, or the head is causal and T exceeds its context.
        """
        if x.ndim < 2:
            raise ValueError(f"x must have shape (..., tokens, features), got {tuple(x.shape)}")
        mask = self.mask
        if mask is not None:
            T = x.shape[-2]
            if len(mask) < T:
                raise ValueError(f"x must hold at most context = {len(mask)} tokens, got {T}")
            mask = mask[:T, :T]
        return attention(self.query(x), self.key(x), self.value(x), mask)


class MultiHeadAttention(nn.Module):
    r"""H heads side by side, concatenated and mixed by one more projection.

    $$\operatorname{MultiHead}(X) = [\mathrm{head}_1, \dots, \mathrm{head}_H]\, W_O,
    \qquad \mathrm{head}_h = \operatorname{attention}(XW_Q^h, XW_K^h, XW_V^h)$$

    With fewer key and value heads than query heads it is grouped-query attention, with one it is
    multi-query attention.

    Args:
        d_model: width of input and output.
        n_heads: number of query heads, H.
        n_kv_heads: number of key and value heads, a divisor of H; H unless given.
        d_k: width of a head's queries and keys; d_model / H unless given.
        d_v: width of a head's values; d_k's default unless given.
        bias: whether the four projections have one.
        rotary: turns queries and keys by their positions, for instance ``rotate``; called with one of
            them and the positions, integers of shape (T,). Nothing is turned unless given.

    Raises:
        ValueError: ``n_heads`` is below 1, a default width is needed and ``n_heads`` does not divide ``d_model``, or
            ``n_kv_heads`` does not divide ``n_heads``.

    Source:
        Vaswani et al. (2017), section 3.2.2; grouped: Ainslie et al. (2023), "GQA".

    Example:
        >>> import torch
        >>> mha = MultiHeadAttention(d_model=12, n_heads=3)
        >>> out, weights = mha(torch.zeros(2, 5, 12))
        >>> out.shape, weights.shape
        (torch.Size([2, 5, 12]), torch.Size([2, 3, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
        rotary: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if n_heads < 1:
            raise ValueError(f"n_heads must be at least 1, got {n_heads}")
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads: n_heads is {n_heads}, n_kv_heads is {n_kv_heads}"
            )
        if (d_k is None or d_v is None) and d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model: d_model is {d_model}, n_heads is {n_heads}")
        d_k = d_model // n_heads if d_k is None else d_k
        d_v = d_model // n_heads if d_v is None else d_v
        self.n_heads, self.n_kv_heads, self.rotary = n_heads, n_kv_heads, rotary
        self.query = nn.Linear(d_model, n_heads * d_k, bias=bias)
        self.key = nn.Linear(d_model, n_kv_heads * d_k, bias=bias)
        self.value = nn.Linear(d_model, n_kv_heads * d_v, bias=bias)
        self.output = nn.Linear(n_heads * d_v, d_model, bias=bias)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend from ``x`` to itself and to what the cache holds, or to ``memory`` where that is given.

        Args:
            x: where the queries come from, shape (..., T, d_model).
            memory: where keys and values come from, shape (..., S, d_model); ``x`` unless given.
            mask: boolean, broadcastable to (..., H, T, S); True means the query may see the key. With
                n tokens in the cache, S is n + T and the first query has position n.
            cache: holds the keys and values of the tokens before ``x``, and takes those of ``x``.

        Returns:
            ``out``, shape (..., T, d_model), and ``weights``, shape (..., H, T, S).

        Raises:
            ValueError: ``memory`` is given with a cache or to a layer with rotary positions.
        """
        if memory is not None and (cache is not None or self.rotary is not None):
            raise ValueError("memory must not be given with a cache or rotary positions, which belong to x")
        memory = x if memory is None else memory
        q = split_heads(self.query(x), self.n_heads)
        k = split_heads(self.key(memory), self.n_kv_heads)
        v = split_heads(self.value(memory), self.n_kv_heads)
        if self.rotary is not None:
            n = 0 if cache is None else len(cache)
            positions = torch.arange(n, n + x.shape[-2], device=x.device)
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        out, weights = attention(q, repeat_heads(k, self.n_heads), repeat_heads(v, self.n_heads), mask)
        return self.output(merge_heads(out)), weights
