r"""Boolean masks: True means the query may see the key.

torch disagrees with itself here: ``scaled_dot_product_attention`` reads True as "may see", like this
module, while ``nn.MultiheadAttention`` reads True as "blocked".

Page: ``gallery/3_causal_head/masking.py``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["causal_mask", "padding_mask", "sliding_window_mask"]


def causal_mask(T: int, S: int | None = None, *, offset: int = 0) -> Tensor:
    r"""Query i sees key j if and only if j ≤ i + offset: nothing of the future.

    With T ≠ S two conventions exist. ``offset=0`` aligns the first query with the first key
    (top-left, as torch's ``is_causal``); ``offset=S - T`` aligns the last ones (bottom-right, as
    FlashAttention since 2.1), which is what decoding with a cache needs.

    Args:
        T: number of queries.
        S: number of keys; T unless given.
        offset: position of query 0 on the key axis, in tokens.

    Returns:
        Boolean, shape (T, S).

    Raises:
        ValueError: T or S is negative.

    Source:
        Vaswani et al. (2017), section 3.2.3; the two alignments: FlashAttention's changelog, 2.1.

    Example:
        >>> causal_mask(2, 4, offset=2).int()
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)
    """
    return _distance(T, S, offset) >= 0


def sliding_window_mask(T: int, S: int | None = None, *, window: int, offset: int = 0) -> Tensor:
    r"""Query i sees the ``window`` latest keys, its own included: 0 ≤ i + offset − j < window.

    Some libraries count the window without the query's own key (≤ instead of <, one key more).

    Args:
        T: number of queries.
        S: number of keys; T unless given.
        window: number of keys seen, at least 1.
        offset: position of query 0 on the key axis, in tokens.

    Returns:
        Boolean, shape (T, S).

    Raises:
        ValueError: ``window`` is below 1, or T or S is negative.

    Source:
        Beltagy, Peters and Cohan (2020), "Longformer", section 3.1; Jiang et al. (2023), "Mistral 7B", figure 1.

    Example:
        >>> sliding_window_mask(3, window=2).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    distance = _distance(T, S, offset)
    return (distance >= 0) & (distance < window)


def padding_mask(lengths: Tensor | Sequence[int], S: int) -> Tensor:
    r"""Key j of sequence b may be seen if and only if j < lengths[b].

    Args:
        lengths: valid tokens of each sequence, integers, shape (batch,); 0 is allowed.
        S: number of keys, padding included.

    Returns:
        Boolean, shape (batch, 1, 1, S), to broadcast over heads and queries.

    Raises:
        TypeError: ``lengths`` are not integers.
        ValueError: ``lengths`` is not one-dimensional, or one lies outside 0..S.

    Example:
        >>> padding_mask([1, 3], 3)[:, 0, 0]
        tensor([[ True, False, False],
                [ True,  True,  True]])
    """
    lengths = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths)
    if lengths.numel() == 0:  # an empty list has no dtype of its own
        lengths = lengths.long()
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    if lengths.ndim != 1:
        raise ValueError(f"lengths must have shape (batch,), got {tuple(lengths.shape)}")
    lengths = lengths.long()  # a narrow dtype could not be compared with S
    if ((lengths < 0) | (lengths > S)).any():
        raise ValueError(f"lengths must lie between 0 and S = {S}, got {lengths.tolist()}")
    visible = torch.arange(S, device=lengths.device) < lengths[:, None]
    return visible[:, None, None, :]


def _distance(T: int, S: int | None, offset: int) -> Tensor:
    """How many tokens key j lies before query i, shape (T, S); negative for the future."""
    S = T if S is None else S
    if T < 0 or S < 0:
        raise ValueError(f"T and S must be at least 0, got T = {T}, S = {S}")
    return torch.arange(T)[:, None] + offset - torch.arange(S)
