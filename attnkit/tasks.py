r"""Small synthetic tasks, each of which isolates one thing a sequence model must be able to do.

A batch is drawn afresh from a ``torch.Generator``: the same seed draws the same batch, and a generator
with another seed draws held-out data.

Pages: ``gallery/4_recurrence/``, ``gallery/5_alignment/``, ``gallery/6_self_attention/``.
"""

import torch
from torch import Generator, Tensor

__all__ = ["adding_batch", "group_batch", "lookup_batch", "reverse_batch", "sort_batch"]


def adding_batch(batch: int, generator: Generator, *, length: int = 40) -> tuple[Tensor, Tensor]:
    r"""Add the two marked numbers of each sequence: memory over a distance.

    Numbers are uniform in [0, 1). One mark falls in each half of the sequence, the middle token of an
    odd length belonging to the second half. Always answering 1, the mean, has mean squared error
    $2 \cdot \tfrac{1}{12} = \tfrac{1}{6}$.

    Args:
        batch: number of sequences, B.
        generator: source of the draws.
        length: tokens per sequence, T, at least 2.

    Returns:
        ``x``, shape (B, T, 2): the numbers in ``x[..., 0]``, the marks (1, else 0) in ``x[..., 1]``; and
        ``target``, shape (B,): the sum of the two marked numbers. Both in torch's default dtype.

    Raises:
        ValueError: ``length`` is below 2.

    Source:
        Arjovsky, Shah and Bengio (2016), "Unitary evolution recurrent neural networks", section 4.2;
        after Hochreiter and Schmidhuber (1997), "Long short-term memory", section 5.4.

    Example:
        >>> x, target = adding_batch(3, torch.Generator().manual_seed(0), length=6)
        >>> x.shape, target.shape
        (torch.Size([3, 6, 2]), torch.Size([3]))
    """
    if length < 2:
        raise ValueError(f"length must be at least 2, one token per mark, got {length}")
    half = length // 2
    numbers = torch.rand(batch, length, generator=generator)
    first = torch.randint(half, (batch, 1), generator=generator)
    second = torch.randint(half, length, (batch, 1), generator=generator)
    marks = torch.zeros_like(numbers).scatter(1, torch.cat([first, second], dim=1), 1.0)
    return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(-1)


def reverse_batch(batch: int, generator: Generator, *, n_symbols: int = 12, length: int = 10) -> tuple[Tensor, Tensor]:
    r"""Write the sequence backwards: output t depends on position T − 1 − t, whatever stands there.

    Args:
        batch: number of sequences, B.
        generator: source of the draws.
        n_symbols: symbols to draw from, independently and with repetition.
        length: tokens per sequence, T.

    Returns:
        ``source`` and ``target``, shape (B, T), int64, in 0..n_symbols − 1.

    Example:
        >>> source, target = reverse_batch(1, torch.Generator().manual_seed(0), length=4)
        >>> torch.equal(target, source.flip(1))
        True
    """
    source = torch.randint(n_symbols, (batch, length), generator=generator)
    return source, source.flip(1)


def sort_batch(batch: int, generator: Generator, *, n_symbols: int = 12, length: int = 8) -> tuple[Tensor, Tensor]:
    r"""Write the symbols in ascending order: where to look depends on what stands there.

    The symbols of a sequence are distinct, so that the t-th smallest stands at one position:
    ``source.argsort(1)[:, t]``.

    Args:
        batch: number of sequences, B.
        generator: source of the draws.
        n_symbols: symbols to draw from, without repetition.
        length: tokens per sequence, T, at most ``n_symbols``.

    Returns:
        ``source`` and ``target``, shape (B, T), int64, in 0..n_symbols − 1.

    Raises:
        ValueError: ``length`` exceeds ``n_symbols``.

    Example:
        >>> source, target = sort_batch(2, torch.Generator().manual_seed(0), n_symbols=4, length=4)
        >>> target
        tensor([[0, 1, 2, 3],
                [0, 1, 2, 3]])
    """
    if length > n_symbols:
        raise ValueError(f"length must be at most n_symbols: length is {length}, n_symbols is {n_symbols}")
    source = _distinct(batch, n_symbols, length, generator)
    return source, source.sort(dim=1).values


def lookup_batch(
    batch: int, generator: Generator, *, n_items: int = 6, n_keys: int = 8, n_values: int = 8
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Find the value stored under a key: content-addressed memory.

    The keys of a sequence are distinct, and the query is one of them; values may repeat. The matching
    item is ``(keys == query[:, None]).nonzero()[:, 1]``.

    Args:
        batch: number of sequences, B.
        generator: source of the draws.
        n_items: (key, value) pairs per sequence, S, from 1 to ``n_keys``.
        n_keys: keys to draw from, without repetition.
        n_values: values to draw from, with repetition.

    Returns:
        ``keys``, shape (B, S), in 0..n_keys − 1; ``values``, shape (B, S), in 0..n_values − 1; ``query``,
        shape (B,), a key; and ``target``, shape (B,), its value. All int64.

    Raises:
        ValueError: ``n_items`` lies outside 1..n_keys.

    Example:
        >>> keys, values, query, target = lookup_batch(5, torch.Generator().manual_seed(0))
        >>> torch.equal(values[keys == query[:, None]], target)
        True
    """
    if not 1 <= n_items <= n_keys:
        raise ValueError(f"n_items must lie between 1 and n_keys: n_items is {n_items}, n_keys is {n_keys}")
    keys = _distinct(batch, n_keys, n_items, generator)
    values = torch.randint(n_values, (batch, n_items), generator=generator)
    item = torch.randint(n_items, (batch, 1), generator=generator)
    return keys, values, keys.gather(1, item).squeeze(1), values.gather(1, item).squeeze(1)


def group_batch(
    batch: int, generator: Generator, *, n_tokens: int = 10, n_keys: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Average the values of all tokens that share a key: pooling by content.

    Args:
        batch: number of sequences, B.
        generator: source of the draws.
        n_tokens: tokens per sequence, T.
        n_keys: keys to draw from, independently and with repetition.

    Returns:
        ``keys``, shape (B, T), int64, in 0..n_keys − 1; ``values``, shape (B, T), uniform in [0, 1); and
        ``target``, shape (B, T): for each token the mean value of the tokens with its key, its own
        included. The latter two in torch's default dtype.

    Example:
        >>> keys, values, target = group_batch(1, torch.Generator().manual_seed(0), n_tokens=3, n_keys=1)
        >>> torch.allclose(target, values.mean())
        True
    """
    keys = torch.randint(n_keys, (batch, n_tokens), generator=generator)
    values = torch.rand(batch, n_tokens, generator=generator)
    same = (keys[:, :, None] == keys[:, None, :]).to(values.dtype)
    return keys, values, torch.einsum("bij,bj->bi", same, values) / same.sum(-1)


def _distinct(batch: int, n: int, size: int, generator: Generator) -> Tensor:
    """``size`` different integers in 0..n − 1 per row, in random order, shape (batch, size)."""
    return torch.rand(batch, n, generator=generator).argsort(dim=1)[:, :size]
