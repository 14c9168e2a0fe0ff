r"""The Transformer itself: normalisation, feed-forward layer, block, and a language model made of them.

There is no dropout: training and evaluation compute the same.

Pages: ``gallery/8_transformer/``; the counts: ``docs/derivations/counts.md``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from attnkit._checks import at_least_float32
from attnkit.kv_cache import KVCache
from attnkit.masks import causal_mask
from attnkit.multi_head import MultiHeadAttention
from attnkit.rotary import rotate

__all__ = ["Block", "FeedForward", "LayerNorm", "Transformer", "count_parameters", "layer_norm", "rms_norm"]


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    r"""Bring the features of each token to mean 0 and variance 1: $(x - \mu) / \sqrt{\sigma^2 + \varepsilon}$.

    The variance is the biased one, which divides by d, not by d − 1.

    Args:
        x: shape (..., d).
        weight: factor of each feature, shape (d,); 1 unless given.
        bias: then added to each feature, shape (d,); 0 unless given.
        eps: added to the variance, in squared units of ``x``.

    Returns:
        The shape and dtype of ``x``. Half precision is computed in float32.

    Raises:
        ValueError: ``weight`` or ``bias`` does not have one entry per feature.

    Source:
        Ba, Kiros and Hinton (2016), "Layer normalization", equations 3 and 4, there without ε.

    Example:
        >>> layer_norm(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([ 1.7320, -0.5773, -0.5773, -0.5773])
    """
    wide = at_least_float32(x)
    deviation = wide - wide.mean(dim=-1, keepdim=True)
    variance = deviation.square().mean(dim=-1, keepdim=True)  # torch's var warns where there are no tokens
    return _affine(deviation / (variance + eps).sqrt(), weight, bias).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    r"""Bring the features of each token to mean square 1, without a shift: $x / \sqrt{\overline{x^2} + \varepsilon}$.

    Args, Returns, Raises: as ``layer_norm``, but without a bias.

    Source:
        Zhang and Sennrich (2019), "Root mean square layer normalization", equation 4, there without ε.

    Example:
        >>> rms_norm(torch.tensor([1.0, 7.0]))
        tensor([0.2000, 1.4000])
    """
    wide = at_least_float32(x)
    return _affine(wide / (wide.square().mean(dim=-1, keepdim=True) + eps).sqrt(), weight, None).to(x.dtype)


class LayerNorm(nn.Module):
    """``layer_norm`` over d features, with a weight and a bias that are learned, from 1 and 0."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x``, shape (..., d)."""
        return layer_norm(x, self.weight, self.bias)


class FeedForward(nn.Module):
    r"""Two linear maps with a nonlinearity φ between, for each token by itself: $\varphi(x W_1 + b_1) W_2 + b_2$.

    Args:
        d_model: width of input and output.
        d_ff: width between; four times d_model unless given.
        activation: φ; the exact GELU unless given.
        bias: whether the maps have one.

    Source:
        Vaswani et al. (2017), equation 2, there with φ = ReLU.
    """

    def __init__(
        self, d_model: int, d_ff: int | None = None, *, activation: Callable[[Tensor], Tensor] = gelu, bias: bool = True
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.up, self.down = nn.Linear(d_model, d_ff, bias=bias), nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x``, shape (..., d_model), to the same shape."""
        return self.down(self.activation(self.up(x)))


class Block(nn.Module):
    r"""Attention, then a feed-forward layer, each added to the tokens it read.

    With F one of the two, ``norm`` says where the LayerNorm stands: $x + F(\operatorname{norm}(x))$ is
    ``"pre"``, $\operatorname{norm}(x + F(x))$ is ``"post"``, and $x + F(x)$ is ``"none"``.

    Args:
        d_model: width of a token.
        n_heads: number of query heads.
        n_kv_heads: number of key and value heads; n_heads unless given.
        d_ff: width inside the feed-forward layer; four times d_model unless given, 0 for attention only.
        norm: ``"pre"``, ``"post"`` or ``"none"``.
        activation: nonlinearity of the feed-forward layer.
        bias: whether the linear maps have one.
        rotary: as in ``MultiHeadAttention``.

    Raises:
        ValueError: ``norm`` is none of the three.

    Source:
        Vaswani et al. (2017), section 3.1 (post); Radford et al. (2019), section 2.3 (pre).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        *,
        d_ff: int | None = None,
        norm: str = "pre",
        activation: Callable[[Tensor], Tensor] = gelu,
        bias: bool = True,
        rotary: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post", "none"):
            raise ValueError(f'norm must be "pre", "post" or "none", got {norm!r}')
        self.pre, self.post = norm == "pre", norm == "post"
        self.attention = MultiHeadAttention(d_model, n_heads, n_kv_heads, bias=bias, rotary=rotary)
        self.feed_forward = None if d_ff == 0 else FeedForward(d_model, d_ff, activation=activation, bias=bias)
        self.norm_1 = nn.Identity() if norm == "none" else LayerNorm(d_model)
        self.norm_2 = nn.Identity() if norm == "none" or d_ff == 0 else LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: KVCache | None = None) -> tuple[Tensor, Tensor]:
        """The tokens after the block, shape (..., T, d_model), and its weights, shape (..., H, T, S).

        Arguments as in ``MultiHeadAttention``.
        """
        found, weights = self.attention(self.norm_1(x) if self.pre else x, mask=mask, cache=cache)
        x = self.norm_1(x + found) if self.post else x + found
        if self.feed_forward is not None:
            found = self.feed_forward(self.norm_2(x) if self.pre else x)
            x = self.norm_2(x + found) if self.post else x + found
        return x, weights


class Transformer(nn.Module):
    r"""From tokens to logits for the next token: token vectors, positions, blocks, a map to the vocabulary.

    Args:
        vocab_size: number of different tokens.
        d_model: width of a token between the blocks.
        n_heads: number of query heads in each block.
        n_layers: number of blocks.
        context: largest number of tokens, cached ones included; needed for learned positions.
        positions: ``"learned"`` (a vector per position, added), ``"rotary"`` or ``"none"``.
        norm: as in ``Block``; after the last pre-norm block there is one more LayerNorm.
        causal: whether a token sees only itself and those before it.
        tied: whether the logits are products with the token vectors, without a matrix of their own.
        **block: further options of every ``Block``: ``n_kv_heads``, ``d_ff``, ``activation``, ``bias``.

    Raises:
        ValueError: an option is none of those named, or positions are learned without a ``context``.

    Source:
        Radford et al. (2019), section 2.3; tied vectors: Press and Wolf (2017).

    Example:
        >>> model = Transformer(vocab_size=7, d_model=6, n_heads=3, n_layers=2, context=11)
        >>> logits, weights = model(torch.tensor([[0, 1, 2, 3, 4]]))
        >>> logits.shape, [tuple(w.shape) for w in weights]
        (torch.Size([1, 5, 7]), [(1, 3, 5, 5), (1, 3, 5, 5)])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        *,
        context: int | None = None,
        positions: str = "learned",
        norm: str = "pre",
        causal: bool = True,
        tied: bool = False,
        **block: Any,
    ) -> None:
        super().__init__()
        if positions not in ("learned", "rotary", "none"):
            raise ValueError(f'positions must be "learned", "rotary" or "none", got {positions!r}')
        if positions == "rotary":
            block["rotary"] = rotate
        self.context, self.causal = context, causal
        self.token = nn.Embedding(vocab_size, d_model)
        self.position = None
        if positions == "learned":
            if context is None:
                raise ValueError("context must be given for learned positions, got None")
            self.position = nn.Embedding(context, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, norm=norm, **block) for _ in range(n_layers))
        self.norm = LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = nn.Linear(d_model, vocab_size, bias=False)
        if tied:
            nn.init.normal_(self.token.weight, std=d_model**-0.5)  # the logits start with variance near 1
            self.output.weight = self.token.weight

    def forward(self, tokens: Tensor, caches: Sequence[KVCache] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Logits at each token for the one after it.

        Args:
            tokens: integers below vocab_size, shape (..., T).
            caches: one per block, with the tokens before these; a text may be cut anywhere.

        Returns:
            Logits, shape (..., T, vocab_size), and each block's weights, shape (..., H, T, S); S counts the
            cached tokens too.

        Raises:
            ValueError: tokens exceed the context, or caches fit neither the blocks nor one another, or are
                given to a model that is not causal.
        """
        held = [0] if caches is None else [len(cache) for cache in caches]
        if caches is not None and (len(held) != len(self.blocks) or len(set(held)) > 1 or not self.causal):
            raise ValueError(
                f"caches must be one for each of {len(self.blocks)} causal blocks, with as many tokens in each: "
                f"they hold {held}, causal is {self.causal}"
            )
        n, T = held[0], tokens.shape[-1]
        if self.context is not None and n + T > self.context:
            raise ValueError(f"tokens must be at most context = {self.context}, cached ones included, got {n + T}")
        x = self.token(tokens)
        if self.position is not None:
            x = x + self.position(torch.arange(n, n + T, device=tokens.device))
        mask = causal_mask(T, n + T, offset=n).to(tokens.device) if self.causal else None
        all_weights = []
        for i, block in enumerate(self.blocks):
            x, weights = block(x, mask, None if caches is None else caches[i])
            all_weights.append(weights)
        return self.output(self.norm(x)), all_weights


def count_parameters(module: nn.Module) -> int:
    """Number of learned numbers of a module; a tensor that serves in two places counts once.

    Example:
        >>> count_parameters(nn.Linear(3, 5))
        20
    """
    return sum(parameter.numel() for parameter in module.parameters())


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y times the weight plus the bias, feature by feature."""
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and vector.shape != y.shape[-1:]:  # a single entry would spread silently
            raise ValueError(
                f"{name} must have one entry per feature of x: {name} has shape {tuple(vector.shape)}, "
                f"x has shape {tuple(y.shape)}"
            )
    y = y if weight is None else y * weight
    return y if bias is None else y + bias
