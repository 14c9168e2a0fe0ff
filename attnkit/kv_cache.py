r"""The keys and values of the tokens so far, so that a decoder computes each of them once.

Page: ``gallery/9_fast_and_small/kv_cache.py``.
"""

import torch
from torch import Tensor

__all__ = ["KVCache"]


class KVCache:
    r"""Keys and values of one attention layer, in the order of their tokens.

    With n tokens held, the next query has position n: ``causal_mask(T, n + T, offset=n)`` is its mask,
    and positions start at n. An empty cache is false as a condition: ask ``cache is not None``.

    Example:
        >>> cache = KVCache()
        >>> k, v = cache.append(torch.zeros(2, 5, 3), torch.zeros(2, 5, 4))
        >>> k, v = cache.append(torch.ones(2, 1, 3), torch.ones(2, 1, 4))
        >>> k.shape, v.shape, len(cache)
        (torch.Size([2, 6, 3]), torch.Size([2, 6, 4]), 6)
    """

    def __init__(self) -> None:
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def __len__(self) -> int:
        """Number of tokens held."""
        return 0 if self._k is None else self._k.shape[-2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the next tokens and return all of them, the earlier ones first.

        What was returned before is left as it is. Gradients reach every token.

        Args:
            k: new keys, shape (..., T, d_k); with heads, one per key head, not per query head.
            v: new values, shape (..., T, d_v).

        Returns:
            All keys, shape (..., len(cache), d_k), and all values, shape (..., len(cache), d_v).

        Raises:
            TypeError: k or v has another dtype than the tokens held.
            ValueError: k and v hold different numbers of tokens, or differ in shape from those held.
        """
        for name, new, held in (("k", k, self._k), ("v", v, self._v)):
            if new.ndim < 2:
                raise ValueError(f"{name} must have shape (..., tokens, features), got {tuple(new.shape)}")
            if held is None:
                continue
            if new.dtype != held.dtype:
                raise TypeError(f"{name} must have the dtype of the tokens held: it is {new.dtype}, not {held.dtype}")
            if (*new.shape[:-2], new.shape[-1]) != (*held.shape[:-2], held.shape[-1]):
                raise ValueError(
                    f"{name} must fit the tokens held except in their number: "
                    f"it has shape {tuple(new.shape)}, those held {tuple(held.shape)}"
                )
        if k.shape[-2] != v.shape[-2]:
            raise ValueError(
                "k and v must hold the same number of tokens: "
                f"k has shape {tuple(k.shape)}, v has shape {tuple(v.shape)}"
            )
        self._k = k if self._k is None else torch.cat((self._k, k), dim=-2)
        self._v = v if self._v is None else torch.cat((self._v, v), dim=-2)
        return self._k, self._v
