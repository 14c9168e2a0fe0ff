r"""
# A block adds to what it reads, and most of its weights are not attention's

A Transformer block wraps attention in three things: a residual sum, a normalisation and a feed-forward layer. This page
checks each against torch, and counts every parameter and every operation of a published model, by part.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.1 and equation 2;
[Ba et al. (2016)](../../references.md#ba2016), equations 3 and 4, LayerNorm;
[Zhang and Sennrich (2019)](../../references.md#zhang2019), equation 4, RMSNorm;
[Xiong et al. (2020)](../../references.md#xiong2020), section 3 and lemma 2, on where the norm stands;
[Radford et al. (2019)](../../references.md#radford2019), section 2.3, the shape of GPT-2;
[Kaplan et al. (2020)](../../references.md#kaplan2020), table 1, counts by part.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["multi_head"]

import math

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnkit import (
    Block,
    FeedForward,
    KVCache,
    Transformer,
    causal_mask,
    claims,
    count_parameters,
    layer_norm,
    plot,
    rms_norm,
)

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Norms: each token by itself
#
# **LayerNorm** moves and stretches the $d$ features of one token to mean 0 and variance 1, then gives each feature
# a learned factor $w$ and shift $b$, at first 1 and 0:
#
# $$\mu = \frac1d \sum_{i=1}^{d} x_i, \qquad \sigma^2 = \frac1d \sum_{i=1}^{d} (x_i - \mu)^2, \qquad
# \operatorname{norm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot w + b .$$
#
# The variance is the *biased* one: it divides by $d$, where the estimator of statistics divides by $d - 1$ (the
# default of `torch.std`). Take $x = (1, 0, 0, 0)$. Then $\mu = \frac14$, $\sigma^2 = \frac{3}{16}$, and the first
# feature becomes $\frac34 / \sqrt{3/16} = \sqrt 3$, a little less with $\varepsilon = 10^{-5}$. Dividing by $d - 1$
# would give $\frac32$. **RMSNorm** leaves out $\mu$ and $b$, and divides by the root of the mean square:
# $(3, 4, 0, 0)$ has mean square $\frac{25}{4}$ and becomes $(\frac65, \frac85, 0, 0)$, up to its $\varepsilon$.
#
# Nothing is averaged over tokens or over the batch, so a token's norm does not depend on its company.

x = torch.tensor([1.0, 0, 0, 0])
tokens, w, b = 3 + 2 * torch.randn(5, 16), torch.randn(16), torch.randn(16)
print("LayerNorm of (1, 0, 0, 0):", layer_norm(x))

one_feature, unbiased = [1.732005, -0.577335, -0.577335, -0.577335], (x - x.mean()) / x.std()
by_torch = nn.functional.layer_norm(tokens, (16,), w, b)
rms_by_torch = nn.functional.rms_norm(tokens, (16,), w, eps=1e-6)
claims.close("LayerNorm of (1, 0, 0, 0) is 1.732005 and three times -0.577335", layer_norm(x), one_feature, atol=5e-7)
claims.close(
    "with d - 1 in the variance (1, 0, 0, 0) would become 1.5 and -0.5", unbiased, [1.5, -0.5, -0.5, -0.5], atol=0
)
claims.close("layer_norm equals torch's, factor and shift included", layer_norm(tokens, w, b), by_torch, atol=1e-13)
claims.close(
    "RMSNorm of (3, 4, 0, 0) is (1.2, 1.6, 0, 0)",
    rms_norm(torch.tensor([3.0, 4, 0, 0])),
    [1.2, 1.6, 0, 0],
    atol=2e-7,
)
claims.close("rms_norm equals torch's for the same eps", rms_norm(tokens, w), rms_by_torch, atol=1e-13)
claims.close(
    "LayerNorm is RMSNorm of the centred token",
    layer_norm(tokens),
    rms_norm(tokens - tokens.mean(-1, keepdim=True), eps=1e-5),
    atol=1e-13,
)

# %%
# ## Feed-forward: the same small network for every token
#
# Two linear maps with a nonlinearity $\varphi$ between them, usually four times as wide inside:
#
# $$\operatorname{FFN}(x) = \varphi(x W_1 + b_1)\, W_2 + b_2 .$$
#
# The paper has $\varphi = \operatorname{ReLU}$; GPT-2 has GELU, $\varphi(u) = u\,\Phi(u)$ with the normal distribution
# function $\Phi$, in an approximation by tanh; here it is the exact one. Attention moves features between tokens; this
# layer works inside one token. So the gradient of one token's output reaches that token and no other.

ffn = FeedForward(16)
inputs = torch.randn(5, 16, requires_grad=True)
(reach,) = torch.autograd.grad(ffn(inputs)[2].sum(), inputs)
hidden = inputs[2] @ ffn.up.weight.T + ffn.up.bias
by_formula = (hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2) @ ffn.down.weight.T + ffn.down.bias

claims.close("the feed-forward layer is the formula with u times Phi(u)", ffn(inputs)[2], by_formula, atol=1e-13)
claims.close("a feed-forward output is deaf to all other tokens", reach[[0, 1, 3, 4]], 0.0, atol=0)
claims.above("a feed-forward output hears its own token", reach[2].abs().max(), 0.01)

# %%
# ## Residuals, and where the norm stands
#
# Let $F$ be attention or the feed-forward layer. A block has one after the other, each added to what it read:
#
# $$\text{pre-norm:} \quad x + F(\operatorname{norm}(x)), \qquad
# \text{post-norm:} \quad \operatorname{norm}(x + F(x)).$$
#
# The original paper is post-norm; GPT-2 and most language models since are pre-norm, with one more norm after the
# last block. In attnkit the option has the name of the formula. Both are checked against torch's
# `TransformerEncoderLayer` with copied weights.
#
# In a pre-norm model every layer writes its output onto one **residual stream**. After the $2L$ layers of $L$ blocks,
#
# $$x_{2L} = x_0 + \sum_{l=1}^{2L} F_l(\operatorname{norm}_l(x_{l-1})),$$
#
# and layers that write 0 leave the tokens as they are. A post-norm block normalises even then: what it passes on has
# lost each token's mean and length. The Jacobian of LayerNorm, with $\varepsilon = 0$, shows it: of $d$ directions it
# keeps $d - 2$.


def of_torch(block, norm):
    """torch's encoder layer with the weights of our block; its own norms start at 1 and 0, like ours."""
    layer = nn.TransformerEncoderLayer(
        16, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    inputs = (block.attention.query, block.attention.key, block.attention.value)
    layer.self_attn.in_proj_weight = nn.Parameter(torch.cat([linear.weight for linear in inputs]))
    layer.self_attn.in_proj_bias = nn.Parameter(torch.cat([linear.bias for linear in inputs]))
    layer.self_attn.out_proj = block.attention.output
    layer.linear1, layer.linear2 = block.feed_forward.up, block.feed_forward.down
    return layer


batch, mask = torch.randn(2, 7, 16), causal_mask(7)
blocked = torch.ones(7, 7, dtype=torch.bool).triu(1)  # torch's masks of this kind say what is hidden
for norm in ("pre", "post"):
    block = Block(16, 4, norm=norm)
    ours, theirs = block(batch, mask)[0], of_torch(block, norm)(batch, src_mask=blocked)
    claims.close(f"a {norm}-norm block equals torch's", ours, theirs, atol=1e-13)
    for linear in (block.attention.output, block.feed_forward.down):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    silent, _ = block(batch)
    if norm == "pre":
        claims.close("a pre-norm block whose layers write 0 passes tokens on unchanged", silent, batch, atol=0)
    else:
        twice = nn.functional.layer_norm(nn.functional.layer_norm(batch, (16,)), (16,))
        claims.close("a post-norm block whose layers write 0 still normalises twice", silent, twice, atol=1e-13)

jacobian = torch.autograd.functional.jacobian(lambda x: layer_norm(x, eps=0.0), batch[0, 0])
claims.close("LayerNorm's Jacobian keeps 14 of 16 directions", torch.linalg.matrix_rank(jacobian), 14, atol=0)
claims.close("LayerNorm's Jacobian loses the shift", jacobian.sum(1), 0.0, atol=1e-13)
claims.close("LayerNorm's Jacobian loses the scale", jacobian @ batch[0, 0], 0.0, atol=1e-13)

# %%
# ## A stream that grows, or one that is cut back
#
# At the start of training a layer's output is nearly unrelated to the stream, so in a pre-norm model the mean
# squares add up: the stream grows with depth, while each layer still reads a token of size 1. (For another
# initialisation than ours, lemma 2 of Xiong et al. bounds the expected mean square from both sides by straight lines in
# the depth.) A post-norm model cuts the stream back to size 1 after each sum. Deep in a pre-norm model an output of the
# same size therefore changes the stream by a smaller share. Here are twelve untrained blocks of each kind.

size = {}
for norm in ("pre", "post"):
    model = Transformer(vocab_size=32, d_model=64, n_heads=4, n_layers=12, positions="none", norm=norm)
    with torch.no_grad():
        stream = model.token(torch.randint(32, (8, 32)))
        start, added = stream, torch.zeros_like(stream)
        size[norm] = [stream.square().mean().sqrt()]
        for block in model.blocks:
            if norm == "pre":
                found = block.attention(block.norm_1(stream), mask=causal_mask(32))[0]
                added = added + found + block.feed_forward(block.norm_2(stream + found))
            stream, _ = block(stream, causal_mask(32))
            size[norm].append(stream.square().mean().sqrt())
    size[norm] = torch.stack(size[norm])
    if norm == "pre":
        claims.close("a pre-norm stream is its start and all that 24 layers added", stream, start + added, atol=1e-12)
print(
    f"root mean square of the stream after 12 blocks: pre-norm {size['pre'][-1]:.2f}, post-norm {size['post'][-1]:.2f}"
)

claims.above(
    "12 untrained pre-norm blocks make the stream over 1.2 times as large", size["pre"][-1] / size["pre"][0], 1.2
)
claims.close("a post-norm stream has size 1 after each of 12 blocks", size["post"][1:], 1.0, atol=1e-4)

# %%

fig, ax = plt.subplots(figsize=(4.8, 2.8))
for norm, colour, marker in (("pre", plot.BLUE, "o"), ("post", plot.VERMILLION, "s")):
    ax.plot(size[norm].numpy(), color=colour, marker=marker, markersize=4, linestyle="-", label=f"{norm}-norm")
ax.set(
    title="Pre-norm streams grow with depth", xlabel="blocks passed", ylabel="root mean square", xticks=range(0, 13, 4)
)
ax.set_ylim(0, None)
ax.legend(loc="lower right")
fig.set_label(
    f"Size of the residual stream against the number of untrained blocks passed: pre-norm rises to "
    f"{size['pre'][-1]:.2f}, post-norm stays at {size['post'][-1]:.2f}."
)

# %%
# ## Blocks in a row, and a text cut anywhere
#
# Token vectors, positions, blocks and a map to the vocabulary make a language model. Under a causal mask nothing that
# follows changes an earlier token, so a text may be read in pieces, with the keys and values of what came before
# [kept in a cache](../9_fast_and_small/kv_cache.md) per block. Positions and mask go on where the cache ends. A single
# layer can tell the order of the tokens by positions only: without them its last token sees a set.

text = torch.randint(11, (12,))
for positions in ("learned", "rotary", "none"):
    model = Transformer(vocab_size=11, d_model=16, n_heads=4, n_layers=2, context=12, positions=positions)
    whole, _ = model(text)
    for chunks in ([1] * 12, [5, 7], [4, 1, 1, 6]):
        caches = [KVCache(), KVCache()]
        pieces = torch.cat([model(piece, caches)[0] for piece in text.split(chunks)])
        cut = "one by one" if max(chunks) == 1 else "as " + " + ".join(map(str, chunks))
        claims.close(
            f"positions {positions}: tokens read {cut} have the logits of the whole", pieces, whole, atol=1e-12
        )
    one_layer = Transformer(vocab_size=11, d_model=16, n_heads=4, n_layers=1, context=12, positions=positions)
    moved = one_layer(torch.cat([text[:-1].flip(0), text[-1:]]))[0][-1] - one_layer(text)[0][-1]
    if positions == "none":
        claims.close(
            "without positions one layer's last logits ignore the order of the tokens before", moved, 0, atol=1e-13
        )
    else:
        claims.above(
            f"positions {positions}: one layer's last logits see the order of the tokens before",
            moved.abs().max(),
            1e-3,
        )

# %%
# ## Every parameter of GPT-2 small
#
# A linear map from $n$ to $m$ features has $nm + m$ parameters, a LayerNorm $2d$. With $d$ features and $4d$ inside the
# feed-forward layer, a block has
#
# $$\underbrace{4d^2 + 4d}_{\text{attention}} + \underbrace{8d^2 + 5d}_{\text{feed-forward}} +
# \underbrace{2 \cdot 2d}_{\text{norms}} = 12d^2 + 13d$$
#
# parameters: of the matrices, a third is attention's. The model adds $Vd$ for its vocabulary, $Pd$ for its positions
# and $2d$ for the last norm; the logits are products with the token vectors again. GPT-2 small has $V = 50257$,
# $P = 1024$, $d = 768$ and $12$ blocks of $12$ heads.
# [The derivation](../../derivations/counts.md) has it line by line, and larger models.
# The second model counted is the size of one to train on a laptop, with an output matrix of its own, another $Vd$.

with torch.device("meta"):  # shapes without numbers: they take no memory
    gpt2 = Transformer(vocab_size=50257, d_model=768, n_heads=12, n_layers=12, context=1024, tied=True)
    small = Transformer(vocab_size=103, d_model=64, n_heads=4, n_layers=2, context=64)
    torch_block = nn.TransformerEncoderLayer(768, 12, 3072)
parts = {
    "vocabulary": ("token", "output"),
    "positions": ("position",),
    "attention": ("attention",),
    "feed-forward": ("feed_forward",),
    "norms": ("norm", "norm_1", "norm_2"),
}


def by_part(model):
    """Number of parameters of each part, by their names; a tied matrix has one name."""
    owner = {module: part for part, modules in parts.items() for module in modules}
    counts = dict.fromkeys(parts, 0)
    for name, parameter in model.named_parameters():
        counts[next(owner[word] for word in name.split(".") if word in owner)] += parameter.numel()
    return counts


of_gpt2, of_small = by_part(gpt2), by_part(small)
print(f"{'':18}{'GPT-2 small':>12}{'share':>7}   {'our small one':>13}{'share':>7}")
for part in parts:
    shares = of_gpt2[part] / count_parameters(gpt2), of_small[part] / count_parameters(small)
    print(f"{part:18}{of_gpt2[part]:12,}{shares[0]:7.1%}   {of_small[part]:13,}{shares[1]:7.1%}")
print(f"{'all':18}{count_parameters(gpt2):12,}{'':7}   {count_parameters(small):13,}")

V, P, d, L = 50257, 1024, 768, 12
formula = torch.tensor([V * d, P * d, L * (4 * d**2 + 4 * d), L * (8 * d**2 + 5 * d), L * 4 * d + 2 * d])
claims.close("GPT-2 small has 124439808 parameters", count_parameters(gpt2), 124_439_808, atol=0)
claims.close("each part of GPT-2 small has the parameters its shapes say", list(of_gpt2.values()), formula, atol=0)
claims.close("a block of GPT-2 small has 7087872", count_parameters(gpt2.blocks[0]), 7_087_872, atol=0)
claims.close("torch's layer of that width has 7087872 too", count_parameters(torch_block), 7_087_872, atol=0)
claims.close(
    "vocabulary 103, context 64, two blocks of width 64 and an output matrix take 117376",
    count_parameters(small),
    2 * 103 * 64 + 64 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64,
    atol=0,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 2.4))
millions = [count / 1e6 for count in of_gpt2.values()]
bars = ax.barh(list(parts), millions, color=[plot.PURPLE, plot.PURPLE, plot.VERMILLION, plot.BLUE, plot.GREEN])
ax.bar_label(bars, fmt="{:.3g}", padding=3)
ax.set(title="GPT-2 small: most weights are not attention's", xlabel="million parameters", xlim=(0, 68))
ax.invert_yaxis()
ax.tick_params(axis="y", length=0)
fig.set_label(
    "Parameters of GPT-2 small by part, in millions: "
    + ", ".join(f"{part} {count:.3g}" for part, count in zip(parts, millions))
    + "."
)

# %%
# ## Every operation, as the context grows
#
# A product of an $n \times m$ and an $m \times p$ matrix takes $2nmp$ floating-point operations. Counting products
# only, $T$ tokens cost
#
# $$C(T) = \underbrace{8LTd^2}_{\text{projections}} + \underbrace{4LT^2d}_{\text{scores, mixtures}} +
# \underbrace{16LTd^2}_{\text{feed-forward}} + \underbrace{2TdV}_{\text{logits}} .$$
#
# Only scores and mixtures grow with $T^2$. They cost as much as all the rest of a block at $T = 6d$, and as much as all
# the rest of the model at $T^* = 6d + V/(2L)$; at other lengths their share is $T / (T + T^*)$. Here all $T^2$ scores
# are computed, as this code does. A kernel that skips what the mask hides has half of them, and $T^*$ is about twice as
# far. Some published counts take the one, some the other. torch counts for us, on shapes alone.

projected = ("query", "key", "value", "output")


def flops(T):
    """Operations of GPT-2 small by part, counted by torch while it runs on shapes; the context is widened to T."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Transformer(V, d, 12, L, context=T, tied=True)(torch.zeros(T, dtype=torch.long))
    total = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    heads, feed_forward = (
        sum(total[f"Transformer.blocks.{i}.{layer}"] for i in range(L)) for layer in ("attention", "feed_forward")
    )
    projections = sum(total[f"Transformer.blocks.{i}.attention.{W}"] for i in range(L) for W in projected)
    return [projections, heads - projections, feed_forward, total["Global"] - heads - feed_forward]


def by_shapes(T):
    """The four terms of C(T)."""
    return torch.stack([8 * L * T * d**2, 4 * L * T**2 * d, 16 * L * T * d**2, 2 * T * d * V])


lengths = torch.tensor([128, 1024, 16384])
counted = torch.tensor([flops(int(T)) for T in lengths])
names = ("projections", "scores, mixtures", "feed-forward", "logits")
print(f"{'tokens':>7}" + "".join(f"{name:>18}" for name in names) + f"{'GFLOP':>10}")
for T, row in zip(lengths, counted):
    print(f"{T:7}" + "".join(f"{part / row.sum():18.1%}" for part in row) + f"{row.sum() / 1e9:10,.0f}")

crossing = 6 * d + V / (2 * L)
at_crossing = by_shapes(torch.tensor(crossing))
claims.close("torch counts the four terms of C(T) at 128, 1024 and 16384 tokens", counted.T, by_shapes(lengths), atol=0)
claims.close("1024 tokens of GPT-2 small take 291648307200 operations", counted[1].sum(), 291_648_307_200, atol=0)
claims.close("at T* scores and mixtures are half of C(T)", at_crossing[1] / at_crossing.sum(), 0.5, atol=1e-14)
claims.close("T* of GPT-2 small lies between 6702 and 6703 tokens", math.floor(crossing), 6702, atol=0)
claims.below("at its 1024 tokens scores and mixtures are under a seventh", counted[1, 1] / counted[1].sum(), 1 / 7)
in_block = by_shapes(torch.tensor(6 * d))
claims.close(
    "at 4608 tokens scores and mixtures equal the rest of a block", in_block[1], in_block[0] + in_block[2], atol=0
)

# %%

T = torch.logspace(2, 5, 61)
share = by_shapes(T) / by_shapes(T).sum(0)
order = [2, 0, 3, 1]
colours = (plot.BLUE, plot.GREEN, plot.PURPLE, plot.VERMILLION)
fig, ax = plt.subplots(figsize=(4.8, 3.2))
ax.stackplot(T.numpy(), share[order].numpy(), colors=colours, alpha=0.55, linewidth=0)
for text, height in (("feed-forward", 0.2), ("projections", 0.5), ("logits", 0.72)):
    ax.text(115, height, text, va="center")
ax.text(90000, 0.62, "scores,\nmixtures", va="center", ha="right")
ax.axvline(crossing, color=plot.INK, linewidth=1, linestyle=":")
ax.set(
    title="Long texts make attention the cost",
    xlabel="tokens T",
    ylabel="share of operations",
    xscale="log",
    xlim=(100, 100000),
    xticks=(100, 1000, 10000, 100000),
    xticklabels=("100", "1,000", "10,000", "100,000"),
    ylim=(0, 1),
    yticks=(0, 0.5, 1),
)
ax.minorticks_off()
fig.set_label(
    f"Share of the operations of GPT-2 small by part, against the number of tokens on a logarithmic axis: scores and "
    f"mixtures take next to nothing at {T[0]:.0f} tokens, half at the dotted line, {crossing:,.0f} tokens, and nearly "
    f"all at {T[-1]:,.0f}."
)

# %%
# ## Try it
#
# - Set `n_layers` to 48 where it is 12: the pre-norm stream goes on growing, to more than twice its size.
# - Count GPT-2 medium, with `d_model=1024`, 16 heads and 24 blocks: the vocabulary's share falls, since blocks grow
#   with the square of the width.
# - Give `small` more heads, 8 or 16: its parameters stay the same, only the number of weights attention makes grows.
