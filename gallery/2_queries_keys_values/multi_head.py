r"""
# Several heads look at several places, and cost no more parameters than one

Multi-head attention cuts the features into slices and lets each slice attend on its own. This page checks
it against torch, shows that concatenation is a sum of heads, and meets the mistakes that no shape reveals.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.2;
[Elhage et al. (2021)](../../references.md#elhage2021), on heads as independent and additive;
[Ainslie et al. (2023)](../../references.md#ainslie2023), section 2.2, on shared keys and values.
"""

# mkdocs_gallery_order = 5
# mkdocs_gallery_builds_on = ["batched_heads", "weights_and_values"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import (
    MultiHeadAttention,
    attention,
    attention_scores,
    causal_mask,
    claims,
    merge_heads,
    plot,
    repeat_heads,
    split_heads,
)

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One row of weights cannot look at two places
#
# A row of weights sums to 1. A head that wants two tokens equally gives each at most one half, and hands
# over their average. Two heads have two rows for the same query: each may put nearly all its weight on one
# token, and their outputs are kept apart.
#
# Take six tokens in a ring, one-hot keys, and queries that give the wanted neighbour the score $\ln 45$.
# A head that wants one neighbour gives it $45 / (45 + 5) = 0.9$. One that wants both gives each
# $45 / (90 + 4) = 0.479$.

ring = torch.eye(6)
before, after = ring.roll(-1, dims=1), ring.roll(1, dims=1)  # row i is one-hot at the wanted key
wanted = math.log(45) * math.sqrt(6) * torch.stack([before, after, before + after])
_, ring_weights = attention(wanted, ring, ring)
to_before, to_after = (ring_weights * before).sum(-1), (ring_weights * after).sum(-1)

claims.close("a head that wants the token before gives it 0.9", to_before[0], 0.9, atol=1e-14)
claims.close("a second head gives the token after 0.9 at the same time", to_after[1], 0.9, atol=1e-14)
claims.close("one head that wants both gives each 45/94", torch.stack([to_before[2], to_after[2]]), 45 / 94, atol=1e-14)

# %%

fig, axes = plt.subplots(1, 3, figsize=(4.8, 2.1), sharey=True)
for ax, head, title in zip(axes, ring_weights, ("Head 0: before", "Head 1: after", "One for both")):
    image = plot.heatmap(ax, head, vmin=0.0, vmax=1.0, ylabel="")
    ax.set(title=title, xticks=(0, 5), yticks=(0, 5))
axes[0].set_ylabel("query")
fig.colorbar(image, ax=axes, label="weight", ticks=(0, 0.5, 1), shrink=0.7)
fig.set_label(
    f"Weights over a ring of six tokens. Of two heads, one looks at the token before and one at the token after, "
    f"with weight {to_before[0, 0]:.2f} each; a single head that looks both ways gives {to_before[2, 0]:.2f} to each."
)

# %%
# ## Heads side by side
#
# Each of $H$ heads has its own three projections from $d_{\mathrm{model}}$ to a smaller width, attends by
# itself, and the results are concatenated and mixed by one more matrix:
#
# $$Y_h = \operatorname{softmax}\left(\frac{X W_Q^h (X W_K^h)^\top}{\sqrt{d_k}}\right) X W_V^h, \qquad
# \operatorname{MultiHead}(X) = [\, Y_1, \dots, Y_H \,]\, W_O .$$
#
# In code the $H$ projections of a kind are one wide matrix, and the heads are an axis of their own, so that
# all of them run in one product. A plain loop over batch and heads must give the same.

B, H, T, d_model = 2, 8, 16, 512
d_k = d_v = d_model // H
mha = MultiHeadAttention(d_model, H)
X = torch.randn(B, T, d_model)
with torch.no_grad():
    Q, K, V = (split_heads(project(X), H) for project in (mha.query, mha.key, mha.value))
    out, A = mha(X)
S = attention_scores(Q, K)
Y = attention(Q, K, V)[0]
for name, tensor, domain, symbols, purpose in (
    ("X", X, "real", "B, T, d_model", "the tokens"),
    ("Q", Q, "real", "B, H, T, d_k", "what each token looks for"),
    ("K", K, "real", "B, H, T, d_k", "what each token is found by"),
    ("V", V, "real", "B, H, T, d_v", "what each token hands over"),
    ("S", S, "real", "B, H, T, T", "scores: how well a key fits a query"),
    ("A", A, "0 to 1, rows sum to 1", "B, H, T, T", "weights: the share of each value"),
    ("Y", Y, "hull of the rows of V", "B, H, T, d_v", "what each head found"),
    ("out", out, "real", "B, T, d_model", "all heads, mixed by W_O"),
):
    print(f"{name:4}{domain:23}{symbols:15}{tuple(tensor.shape)!s:17}{purpose}")


looped = torch.zeros(B, H, T, d_v)
for b in range(B):
    for h in range(H):
        rows = slice(h * d_k, (h + 1) * d_k)  # torch's Linear keeps W transposed
        W_Q, W_K, W_V = (linear.weight[rows].T.detach() for linear in (mha.query, mha.key, mha.value))
        looped[b, h] = torch.softmax(X[b] @ W_Q @ (X[b] @ W_K).T / math.sqrt(d_k), dim=-1) @ X[b] @ W_V

W_O = mha.output.weight.T.detach().unflatten(0, (H, d_v))  # one block of rows per head
summed = sum(looped[:, h] @ W_O[h] for h in range(H))

claims.close("2 × 8 heads at once are a loop over batch and heads", Y, looped, atol=1e-13)
claims.close("every query has one unit of weight in each of 8 heads", A.sum(-1), 1.0, atol=1e-14)
claims.close("concatenating 8 heads before W_O is summing each head's own map", out, summed, atol=1e-13)

# %%
# ## Concatenation is a sum
#
# The last claim deserves a line of algebra. Cut $W_O$ into $H$ blocks of $d_v$ rows, $W_O^1, \dots, W_O^H$.
# Multiplying block by block,
#
# $$[\, Y_1, \dots, Y_H \,]\, W_O = \sum_{h=1}^{H} Y_h W_O^h .$$
#
# So heads do not interact: each adds its own vector to the output, and dropping one takes away exactly that.
#
# What do they cost? Each of $W_Q$, $W_K$, $W_V$ has $H \cdot d_k = d_{\mathrm{model}}$ columns when
# $d_k = d_v = d_{\mathrm{model}} / H$, and $W_O$ is square, so there are $4 d_{\mathrm{model}}^2$ parameters
# for every $H$, and $4 d_{\mathrm{model}}$ more with biases. What does grow is the number of weights, $B H T^2$.
# The whole Transformer is counted in a [derivation](../../derivations/counts.md).


def count(module):
    """Number of parameters."""
    return sum(p.numel() for p in module.parameters())


with torch.device("meta"):  # shapes without memory: counting needs no numbers
    without = [count(MultiHeadAttention(512, heads)) for heads in (1, 2, 8, 64, 512)]
    with_bias = [count(MultiHeadAttention(512, heads, bias=True)) for heads in (1, 2, 8, 64, 512)]
    of_torch = count(torch.nn.MultiheadAttention(512, 8))
print(f"parameters with 1, 2, 8, 64, 512 heads: {without}")

claims.close("width 512 takes 4 · 512² = 1048576 parameters for any number of heads", without, 1_048_576, atol=0)
claims.close("with biases width 512 takes 4 · 512 more, 1050624", with_bias, 1_050_624, atol=0)
claims.close("torch's MultiheadAttention of width 512 has 1050624 parameters too", of_torch, 1_050_624, atol=0)

# %%
# ## The same numbers as torch, and the opposite mask
#
# `torch.nn.MultiheadAttention` stacks the three input projections in one matrix, returns the mean of the
# weights over the heads unless told otherwise, and reads a boolean mask the other way round: True means
# **blocked**. Here, as in `torch.nn.functional.scaled_dot_product_attention`, True means "may see".

ours = MultiHeadAttention(d_model, H, bias=True)
theirs = torch.nn.MultiheadAttention(d_model, H, batch_first=True)
inputs = (ours.query, ours.key, ours.value)
theirs.load_state_dict(
    {
        "in_proj_weight": torch.cat([linear.weight for linear in inputs]),
        "in_proj_bias": torch.cat([linear.bias for linear in inputs]),
        "out_proj.weight": ours.output.weight,
        "out_proj.bias": ours.output.bias,
    }
)
our_out, our_weights = ours(X)
their_out, their_weights = theirs(X, X, X, average_attn_weights=False)
mask = causal_mask(T)
our_causal, _ = ours(X, mask=mask)
their_causal, _ = theirs(X, X, X, attn_mask=~mask)
_, misread = theirs(X, X, X, attn_mask=mask)

claims.close("with copied parameters torch's module has the same output", our_out, their_out, atol=1e-12)
claims.close("with copied parameters all 8 heads attend as torch's do", our_weights, their_weights, atol=1e-12)
claims.close("under the inverted mask torch's module has our causal output", our_causal, their_causal, atol=1e-12)
claims.close("given our causal mask as it is, torch hides token 0 from itself", misread[:, 0, 0], 0.0, atol=0.0)

# %%
# ## Slices of features, not slices of tokens
#
# The projected features $(T, H d)$ have to become $(H, T, d)$. First the features are split,
# $(T, H, d)$, then the two front axes are swapped. Asking for the shape $(H, T, d)$ at once, by `view`,
# raises no error, for the number of entries is the same, but reads the memory in order: a head receives
# a few whole tokens in place of a slice of every token. With two heads the last token then never hears
# of the first.

x = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
split, viewed = split_heads(x, 2), x.view(2, 2, 2)

tokens = torch.randn(4, 4, requires_grad=True)  # they serve as queries, keys and values of two heads
right = merge_heads(attention(*3 * [split_heads(tokens, 2)])[0])
wrong = attention(*3 * [tokens.view(2, 4, 2)])[0].reshape(4, 4)
(heard,), (unheard,) = (torch.autograd.grad(out[-1].sum(), tokens) for out in (right, wrong))

claims.close("head 0 of (1, 2, 3, 4), (5, 6, 7, 8) holds (1, 2), (5, 6)", split[0], [[1, 2], [5, 6]], atol=0)
claims.close("by one view it would hold (1, 2), (3, 4), from one token", viewed[0], [[1, 2], [3, 4]], atol=0)
claims.close("merging the split heads gives back 2 sequences of 16 tokens", merge_heads(split_heads(X, H)), X, atol=0)
claims.above("split by features, the last of four tokens hears of the first", heard[0].abs().max(), 0.01)
claims.close("split by view, the last of four tokens is deaf to the first", unheard[0], 0.0, atol=0)

# %%

entries = torch.arange(16).view(4, 4)
owner = torch.zeros(2, 16)
for way, heads in enumerate((split_heads(entries, 2), entries.view(2, 4, 2))):
    owner[way, heads[1].flatten()] = 1.0  # entries that head 1 receives; the others are head 0's
fig, axes = plt.subplots(1, 2, figsize=(4.8, 2.6), sharey=True)
for ax, cells, title in zip(axes, owner, ("Split, then swap:\nright", "One view:\nwrong")):
    plot.heatmap(ax, cells.view(4, 4), annotate=".0f", xlabel="feature", ylabel="token")
    ax.set(title=title, xticks=range(4), yticks=range(4))
axes[1].set_ylabel("")
fig.set_label(
    "Which of two heads, 0 or 1, receives each entry of four tokens with four features. Split and swapped, each head "
    "has two features of every token; by a single view, each head has all features of two tokens."
)

# %%
# ## Scale by the width of a head
#
# Within a head the dot product has $d_k$ terms, so the scores are divided by $\sqrt{d_k}$, not by
# $\sqrt{d_{\mathrm{model}}}$. Take $d_{\mathrm{model}} = 8$, $H = 2$, projections that change nothing, and a
# query $(2, 0, 0, 0)$ over the keys $(2, 0, 0, 0)$ and 0 in the first head. The score is $4 / \sqrt{4} = 2$, the weight
# $1 / (1 + e^{-2})$; with $\sqrt{8}$ it would be $1 / (1 + e^{-\sqrt 2})$.

small = MultiHeadAttention(d_model=8, n_heads=2)
for linear in (small.query, small.key):
    linear.load_state_dict({"weight": torch.eye(8)})
token = 2 * torch.eye(8)[:1]
_, small_weights = small(token, memory=torch.cat([token, torch.zeros(1, 8)]))
by_model_width = torch.sigmoid(torch.tensor(4 / math.sqrt(8)))

claims.close(
    "width 8 in 2 heads: the score 4/√4 gives the weight 0.8807971", small_weights[0, 0, 0], 0.8807971, atol=5e-8
)
claims.close("divided by √8, the width of the model, it would be 0.80443", by_model_width, 0.80443, atol=5e-6)

# %%
# ## Free widths, shared keys
#
# Nothing ties $d_k$ to $d_v$, or the width of what comes in to the width of what goes out: $W_Q$ and $W_K$ must
# agree in $d_k$, and $W_O$ must take $H d_v$. (torch's module fixes both to $d_{\mathrm{model}} / H$.) Head $h$
# compares query $i$ with key $j$ by $s_{hij} = x_i W_Q^h \cdot x_j W_K^h / \sqrt{d_k}$, whatever the widths. Heads
# may also share: in grouped-query attention several query heads use one key and value head. Each shared head
# is repeated *in place*, so that neighbours share; tiling the heads instead pairs queries with other keys.

d_in, d_out, d_k, d_v = 10, 13, 5, 7
x = torch.randn(6, d_in)
W_Q, W_K, W_V = torch.randn(3, d_in, d_k), torch.randn(3, d_in, d_k), torch.randn(3, d_in, d_v)
W_O = torch.randn(3, d_v, d_out)


columns = (W.movedim(0, 1).flatten(1) for W in (W_Q, W_K, W_V))  # three heads side by side in one matrix
free, _ = attention(*(split_heads(x @ W, 3) for W in columns))
free_out = merge_heads(free) @ W_O.flatten(0, 1)
shares = torch.softmax(torch.einsum("ic,hcd,jb,hbd->hij", x, W_Q, x, W_K) / math.sqrt(d_k), dim=-1)
by_formula = torch.einsum("hij,jc,hce,heo->io", shares, x, W_V, W_O)

shared = repeat_heads(torch.tensor([10.0, 20.0]).view(2, 1, 1), 4)
grouped, _ = attention(torch.zeros(4, 1, 3), torch.zeros(4, 1, 3), shared)
with torch.device("meta"):
    grouped_count = count(MultiHeadAttention(512, 8, n_kv_heads=2))

claims.holds("three heads of d_k 5 and d_v 7 take tokens of width 10 to width 13", free_out.shape == (6, 13))
claims.close("with all widths different the output is the formula's", free_out, by_formula, atol=1e-10)
claims.close("4 query heads sharing values 10 and 20 get 10, 10, 20, 20", grouped.flatten(), [10, 10, 20, 20], atol=0)
claims.close("2 shared heads for 8 bring the parameters of width 512 down to 655360", grouped_count, 655_360, atol=0)

# %%
# ## Try it
#
# - Set `H` to 1 or to 64: all claims about torch hold, and the number of parameters stays.
# - Pass `d_v=16` to the module of width 512 and count: $W_V$ and $W_O$ shrink to a quarter, $W_Q$ and $W_K$ stay.
# - Print `heard` and `unheard`: split by view, only the last two tokens have a gradient at all.
