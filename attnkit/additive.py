r"""Additive attention: a query and a key are scored by a small network instead of a dot product.

Page: ``gallery/5_alignment/additive_attention.py``.
"""

import torch
from torch import Tensor, nn

from attnkit._checks import require_broadcastable
from attnkit.simplex import softmax

__all__ = ["AdditiveAttention"]


class AdditiveAttention(nn.Module):
    r"""Attention whose scores come from a network with one hidden layer.

    $$s_{ij} = w^\top \tanh(W_q\, q_i + W_k\, k_j), \qquad
    \alpha_{ij} = \frac{e^{s_{ij}}}{\sum_l e^{s_{il}}}, \qquad \mathrm{out}_i = \sum_j \alpha_{ij} v_j$$

    There are no biases, as in the paper's appendix. Without the tanh a query would add the same number to
    every score of its row, and the softmax would remove it: the weights would not depend on the query.

    Args:
        d_query: width of a query.
        d_key: width of a key.
        d_attn: width of the hidden layer.

    Source:
        Bahdanau, Cho and Bengio (2014), "Neural machine translation by jointly learning to align and
        translate", appendix A.1.2, where $w$ is $v_a$, $W_q$ is $W_a$ and $W_k$ is $U_a$.

    Example:
        >>> additive = AdditiveAttention(d_query=1, d_key=1, d_attn=1)
        >>> for weight in additive.parameters():
        ...     _ = nn.init.ones_(weight)
        >>> out, weights = additive(torch.tensor([[0.5]]), torch.tensor([[0.0], [1.0]]))
        >>> weights.detach()
        tensor([[0.3910, 0.6090]])
    """

    def __init__(self, d_query: int, d_key: int, d_attn: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attn, bias=False)
        self.key = nn.Linear(d_key, d_attn, bias=False)
        self.score = nn.Linear(d_attn, 1, bias=False)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""Mix the values, each query by its own weights over the keys.

        A query that may see no key gets output 0 and weights 0, with finite gradients.

        Args:
            query: shape (..., T, d_query); or, with one axis fewer than ``keys``, a single query for
                each set of keys, shape (..., d_query).
            keys: shape (..., S, d_key).
            values: shape (..., S, d_v); the keys themselves unless given.
            mask: boolean, broadcastable to the weights; True means the query may see the key.

        Returns:
            ``out``, shape (..., T, d_v), and ``weights``, shape (..., T, S); for a single query both
            without the axis T.

        Raises:
            TypeError: ``mask`` is not boolean.
            ValueError: shapes do not fit; the message names the arguments and both sizes.
        """
        values = keys if values is None else values
        self._require_shapes(query, keys, values)
        single = query.ndim == keys.ndim - 1
        if single:
            query = query.unsqueeze(-2)
            mask = mask.unsqueeze(-2) if mask is not None and mask.ndim else mask
        require_broadcastable("query", query.shape[:-2], "keys", keys.shape[:-2])
        hidden = torch.tanh(self.query(query).unsqueeze(-2) + self.key(keys).unsqueeze(-3))  # (..., T, S, d_attn)
        scores = self.score(hidden).squeeze(-1)
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError(f"mask must be boolean (True: may see), got {mask.dtype}")
            _require_fits_scores(mask, scores)
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = softmax(scores)
        out = weights @ values
        return (out.squeeze(-2), weights.squeeze(-2)) if single else (out, weights)

    def _require_shapes(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        for name, x, axes, width in (
            ("query", query, 1, self.query.in_features),
            ("keys", keys, 2, self.key.in_features),
        ):
            if x.ndim < axes or x.shape[-1] != width:
                shape = "(..., S, d_key)" if name == "keys" else "(..., d_query)"
                raise ValueError(f"{name} must have shape {shape} with width {width}, got {tuple(x.shape)}")
        if values.ndim < 2 or keys.shape[-2] != values.shape[-2]:
            raise ValueError(
                "keys and values must hold the same number of tokens: "
                f"keys have shape {tuple(keys.shape)}, values have shape {tuple(values.shape)}"
            )
        require_broadcastable("keys", keys.shape[:-2], "values", values.shape[:-2])


def _require_fits_scores(mask: Tensor, scores: Tensor) -> None:
    """A mask that stretched the scores would mix axes, such as batch and query."""
    try:
        fits = torch.broadcast_shapes(mask.shape, scores.shape) == scores.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask must broadcast to the weights: mask has shape {tuple(mask.shape)}, "
            f"the weights have shape {tuple(scores.shape)}"
        )
