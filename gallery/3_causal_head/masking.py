r"""
# Mask before the softmax, with minus infinity

A mask says which keys a query may see. This page shows what a mask must do to the scores, why the
repairs that look equivalent are not, and the places where libraries read the same mask differently.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.3;
[Beltagy et al. (2020)](../../references.md#beltagy2020), section 3.1, for windows;
[Raffel et al. (2020)](../../references.md#raffel2020), section 3.2.1, for prefixes;
[Krell et al. (2021)](../../references.md#krell2021) for packed documents;
[Dao (2023)](../../references.md#dao2023), change log of version 2.1, for the alignment of causal masks.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["softmax_temperature", "causal_head"]

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.patches import Patch
from torch import nn
from torch.nn.attention.bias import causal_lower_right

from attnkit import attention, attention_scores, causal_mask, claims, padding_mask, plot, sliding_window_mask

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Minus infinity deletes a key
#
# Let query $i$ see the keys in $M_i$, and give the others the score $-\infty$ before the softmax.
#
# **Proposition 1.** *If $M_i$ is not empty and its scores are finite, the weights are those of
# attention over the keys in $M_i$ alone, and 0 elsewhere.*
#
# *Proof.* $e^{-\infty} = 0$, so the hidden keys add nothing to the denominator:
#
# $$\alpha_{ij} = \frac{e^{s_{ij}}}{\sum_{l \in M_i} e^{s_{il}} + \sum_{l \notin M_i} e^{-\infty}}
# = \frac{e^{s_{ij}}}{\sum_{l \in M_i} e^{s_{il}}} \quad (j \in M_i). \qquad \square$$
#
# To check it we delete the hidden keys for real, query by query, and ask torch for plain attention
# over what is left.

T, d_k = 6, 8
q, k, v = torch.randn(3, T, d_k).requires_grad_()
mask = causal_mask(T)
out, weights = attention(q, k, v, mask)
deleted = [F.scaled_dot_product_attention(q[i : i + 1], k[mask[i]], v[mask[i]]) for i in range(T)]

claims.close("masking with -inf equals deleting the hidden keys", out, torch.cat(deleted), atol=1e-14)
claims.close("rows masked before the softmax sum to 1", weights.sum(-1), 1.0, atol=1e-14)

# %%
# ## Zeroing afterwards is another function
#
# Multiplying the finished weights by the mask also puts zeros in the right places. But the hidden keys
# have taken their share $\alpha_{ij}$ of the denominator, and row $i$ now sums to
#
# $$r_i = \frac{\sum_{l \in M_i} e^{s_{il}}}{\sum_{l} e^{s_{il}}} < 1, \qquad
# \frac{\partial r_i}{\partial s_{ij}} = -r_i\,\alpha_{ij} < 0 \quad (j \notin M_i).$$
#
# The derivative says that this is more than lost mass: hidden keys act on the output, the future leaks
# in through the denominator. Dividing each row by $r_i$ mends it on paper. In floating point it does so
# only while the visible weights have not underflowed: let a hidden key score 1000 above the visible
# ones, and the division is 0/0.

scores = attention_scores(q, k).detach().requires_grad_()
unmasked = torch.softmax(scores, dim=-1)
zeroed = unmasked * mask
row_sums = zeroed.sum(-1)
print("row sums, masked before:", [f"{s:.3f}" for s in weights.sum(-1).tolist()])
print("row sums, zeroed after: ", [f"{s:.3f}" for s in row_sums.tolist()])

uniform, _ = attention(torch.zeros(4, 1), torch.zeros(4, 1), torch.eye(4))  # the weights are 1/4 each
to_hidden = torch.autograd.grad(out[0].sum(), k)[0][1:]
leak = torch.autograd.grad(row_sums.sum(), scores, retain_graph=True)[0]  # row i's sum has row i's scores only
far = torch.softmax(torch.tensor([0.0, 1000.0]), dim=-1) * torch.tensor([True, False])

claims.below("rows zeroed after the softmax sum to less than 1, save the last", row_sums[:-1], 1.0)
quarters = torch.tensor([0.25, 0.5, 0.75, 1.0])
claims.close(
    "equal weights zeroed after leave 1/4, 2/4, 3/4, 4/4", (uniform * causal_mask(4)).sum(-1), quarters, atol=1e-14
)
claims.close("masked before, output 0 has gradient exactly 0 at hidden keys", to_hidden, 0.0, atol=0)
by_formula = (-row_sums[:, None] * unmasked)[~mask]
claims.close("zeroed after, a hidden score moves row sums by -r times weight", leak[~mask], by_formula, atol=1e-14)
claims.below("zeroed after, the leak from a hidden key is never 0", leak[~mask], 0.0)
claims.close("renormalising equals masking while nothing underflows", zeroed / row_sums[:, None], weights, atol=1e-14)
claims.holds("renormalising is 0/0 once the visible weight underflows", (far / far.sum()).isnan())

# %%
# ## Five masks and their algebra
#
# A mask is a set of pairs (query, key), so masks are built from simpler ones by `&`, `|` and `~`. With
# $i$ the query and $j$ the key, over $T = 8$ tokens:
#
# - **causal**: $j \le i$, which is $T(T+1)/2$ pairs;
# - **padding**: $j < n$ for $n$ valid tokens, $Tn$ pairs;
# - **sliding window**: $0 \le i - j < w$, the latest $w$ keys, $wT - w(w-1)/2$ pairs. Some libraries
#   write $i - j \le w$, one key more;
# - **prefix**: causal or $j < p$. The first $p$ tokens see each other both ways, which adds
#   $p(p-1)/2$ pairs to the causal ones;
# - **documents**: causal and in the same document. Texts packed into one row stay strangers.

T, valid, window, prefix = 8, 6, 3, 3
document = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
masks = {
    "causal": causal_mask(T),
    "padding": padding_mask([valid], T)[0, 0].expand(T, T),
    "sliding window": sliding_window_mask(T, window=window),
    "prefix": causal_mask(T) | (torch.arange(T) < prefix),
    "documents": causal_mask(T) & (document[:, None] == document),
}
print({name: int(mask.sum()) for name, mask in masks.items()})

q, k, v = torch.randn(3, T, d_k)
packed, _ = attention(q, k, v, masks["documents"])
first, second = (F.scaled_dot_product_attention(*(x[document == n] for x in (q, k, v)), is_causal=True) for n in (0, 1))
both_ways = F.scaled_dot_product_attention(q[:prefix], k[:prefix], v[:prefix])
near = [slice(max(0, i + 1 - window), i + 1) for i in range(T)]
latest = [F.scaled_dot_product_attention(q[[i]], k[near[i]], v[near[i]]) for i in range(T)]

claims.holds(
    "the five masks show 36, 48, 21, 39 and 21 of 64 pairs",
    torch.stack([mask.sum() for mask in masks.values()]) == torch.tensor([36, 48, 21, 39, 21]),
)
claims.close("packed documents give what each gives alone", packed, torch.cat([first, second]), atol=1e-14)
claims.close(
    "prefix tokens see each other both ways", attention(q, k, v, masks["prefix"])[0][:prefix], both_ways, atol=1e-14
)
in_window, _ = attention(q, k, v, masks["sliding window"])
claims.close("a window of 3 is attention over the latest 3 keys", in_window, torch.cat(latest), atol=1e-14)

# %%

fig, axes = plt.subplots(2, 3, figsize=(4.8, 3.9))
for ax, (name, mask) in zip(axes.flat, masks.items()):
    image = plot.heatmap(ax, mask, vmax=1.0, xlabel="", ylabel="")
    ax.set(title=name, xticks=[], yticks=[])
    ax.set_xticks([j - 0.5 for j in range(1, T)], minor=True)  # hairlines, so that cells can be counted
    ax.set_yticks([i - 0.5 for i in range(1, T)], minor=True)
    ax.grid(which="minor", color="grey", alpha=0.5, linewidth=0.5)
    ax.tick_params(which="minor", length=0)
handles = [Patch(color=image.to_rgba(1.0), label="may see"), Patch(color=image.to_rgba(0.0), label="hidden")]
axes[-1, -1].legend(handles=handles, loc="center")
axes[-1, -1].axis("off")
fig.supxlabel("key", fontsize="medium")
fig.supylabel("query", fontsize="medium")
fig.set_label(
    f"Five masks over {T} tokens. Causal: the lower triangle. Padding: the first {valid} columns. Sliding window: a "
    f"diagonal band {window} wide. Prefix: the lower triangle and the first {prefix} columns. Documents: two triangles "
    "along the diagonal."
)

# %%
# ## True means two things
#
# Here, and in `F.scaled_dot_product_attention`, True means **may see**. In `nn.MultiheadAttention`
# and `nn.TransformerEncoderLayer` True means **blocked**, in the key padding mask too. Handing one
# API's mask to the other raises no error. With zero queries and keys the weights are uniform over the
# visible keys, so three tokens with values 0, 1, 2 show which keys were seen.

x = torch.arange(3.0)[:, None]
zero = torch.zeros(3, 1)
tril = causal_mask(3)
mha = nn.MultiheadAttention(1, 1, bias=False)
with torch.no_grad():
    mha.in_proj_weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))  # W_Q = W_K = 0, W_V = 1
    mha.out_proj.weight.fill_(1.0)
running_mean = torch.tensor([[0.0], [0.5], [1.0]])

claims.close("where True = may see, tril gives 0, 1/2, 1", attention(zero, zero, x, tril)[0], running_mean, atol=1e-14)
sdpa = F.scaled_dot_product_attention(zero, zero, x, attn_mask=tril)
claims.close("scaled_dot_product_attention wants tril itself", sdpa, running_mean, atol=1e-14)
claims.close("MultiheadAttention wants tril negated", mha(x, x, x, attn_mask=~tril)[0], running_mean, atol=1e-14)
future, _ = attention(zero, zero, x, ~tril)
claims.close("the wrong polarity looks ahead: 3/2, 2, nothing", future[:, 0], torch.tensor([1.5, 2, 0]), atol=1e-14)

# %%
# ## A large number is not minus infinity
#
# Much code fills with $-10^9$. In float16, which ends at $65504$, torch refuses to. A smaller constant
# fails without a word: scores are unbounded, and a visible score may lie below the constant. Take
# $q = 336$ and a visible key $-328$, both exact in float16, with $d_k = 1$; their score is $-110208$.
# Three hidden keys filled with $-10^5$ beat it by $10208$.

try:
    torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), -1e9)
    message = ""
except RuntimeError as error:
    message = str(error)
print("float16:", message)

q, k = torch.tensor([[336.0]]).half(), torch.tensor([[-328.0], [0.0], [0.0], [0.0]]).half()
see_first = torch.tensor([[True, False, False, False]])
scores = attention_scores(q, k)  # in float32 for half-precision input
filled = torch.softmax(scores.masked_fill(~see_first, -1e5), dim=-1)
_, weights = attention(q, k, torch.eye(4).half(), see_first)
print("filled with -100000:", filled.tolist())

claims.holds("filling float16 scores with -1e9 raises an overflow error", "overflow" in message)
claims.close("the score of 336 and -328 is -110208", scores[0, 0], -110208, atol=0)
claims.below("the score of 336 and -328 lies below the range of float16", scores[0, 0], torch.finfo(torch.float16).min)
claims.close("a fill of -1e5 gives 1/3 to each forbidden key", filled[0], torch.tensor([0, 1, 1, 1]) / 3, atol=1e-7)
claims.close("-inf gives the only visible key weight 1", weights[0], torch.tensor([1, 0, 0, 0]), atol=0)

# %%
# ## A query that sees nothing
#
# An empty $M_i$ is outside Proposition 1: the mean of no values is 0/0. A softmax of $-\infty$ alone is
# NaN, a large constant gives the mean of exactly the keys that were forbidden, and here as in
# `F.scaled_dot_product_attention` the output is 0 by convention, with gradients that are finite.
# `nn.MultiheadAttention` returns NaN when it is asked for the weights.

q, k = torch.zeros(2, 2, 1).requires_grad_()
v = torch.tensor([[1.0], [3.0]], requires_grad=True)
see = torch.tensor([[True, True], [False, False]])
out, weights = attention(q, k, v, see)
gradients = torch.autograd.grad(out.sum(), (q, k, v))
naive = torch.softmax(attention_scores(q, k).masked_fill(~see, float("-inf")), dim=-1) @ v
constant = torch.softmax(attention_scores(q, k).masked_fill(~see, -1e9), dim=-1) @ v
asked, _ = mha(x[:2], x[:2], x[:2], attn_mask=~see)

claims.close("values 1 and 3, second query blind: outputs 2 and 0", out, torch.tensor([[2.0], [0.0]]), atol=0)
claims.close("the blind query's weights are 0", weights[1], 0.0, atol=0)
claims.holds("gradients beside a blind query are finite", torch.cat(gradients).isfinite())
sdpa = F.scaled_dot_product_attention(q, k, v, see)
claims.close("scaled_dot_product_attention has 2 and 0 too", sdpa, torch.tensor([[2.0], [0.0]]), atol=0)
claims.holds("a naive softmax makes the blind query NaN", naive[1].isnan())
claims.holds("MultiheadAttention asked for weights makes it NaN", asked[1].isnan())
claims.close("a fill of -1e9 averages the forbidden values to 2", constant[1], 2.0, atol=1e-14)

# %%
# ## More keys than queries
#
# With $T$ queries and $S > T$ keys, "causal" has two readings. **Top-left**, $j \le i$, puts query 0 at
# key 0: torch's `is_causal`. **Bottom-right**, $j \le i + S - T$, puts the last query at the last key:
# FlashAttention since version 2.1, and what decoding with a cache needs, where the queries are the
# latest tokens. For square scores the two agree. Zero queries and keys again, values 0 to 3, two
# queries.

q, k, v = torch.zeros(2, 1), torch.zeros(4, 1), torch.arange(4.0)[:, None]
top_left, bottom_right = (attention(q, k, v, causal_mask(2, 4, offset=offset))[0] for offset in (0, 2))
of_torch = [F.scaled_dot_product_attention(q, k, v, is_causal=True)]
of_torch += [F.scaled_dot_product_attention(*(t[None, None] for t in (q, k, v)), attn_mask=causal_lower_right(2, 4))]

claims.close("two queries on four keys, top-left: 0, 1/2", top_left[:, 0], torch.tensor([0, 0.5]), atol=1e-14)
claims.close("two queries on four keys, bottom-right: 1, 3/2", bottom_right[:, 0], torch.tensor([1, 1.5]), atol=1e-14)
claims.close("torch's is_causal is the top-left mask", of_torch[0], top_left, atol=1e-14)
claims.close("torch's causal_lower_right is the bottom-right mask", of_torch[1], bottom_right, atol=1e-14)

# %%
# ## Padding belongs on the key axis
#
# Sequences of different lengths share a batch by padding. What must be hidden is each padded **key**,
# from every query. Padded queries may keep their outputs: nobody reads them, and the loss leaves them
# out. Blanking the query axis instead lets real queries see padding, unless another mask happens to
# hide it. Four tokens, two valid, values 0 to 3.

v = torch.arange(4.0)[:, None]
zero = torch.zeros(4, 1)
keys = padding_mask([2], 4)[0, 0]  # shape (1, 4), for every query
causal_padded, _ = attention(zero, zero, v, causal_mask(4) & keys)
padded, _ = attention(zero, zero, v, keys)
wrong_axis, _ = attention(zero, zero, v, keys.mT)

means = torch.tensor([0, 0.5, 0.5, 0.5])
claims.close("a causal mask and two valid keys: 0, 1/2, 1/2, 1/2", causal_padded[:, 0], means, atol=1e-14)
claims.close("two valid keys without causal mask: 1/2 for every query", padded, 0.5, atol=1e-14)
claims.close("padding masked on the query axis is seen by real queries: 3/2", wrong_axis[:2], 1.5, atol=1e-14)

# %%
# ## Try it
#
# - Multiply the first `q` by 10: the row sums of "zeroed after" scatter towards 0 and 1, those of
#   "masked before" stay at 1.
# - Build the window of a cached decoder, `sliding_window_mask(2, 8, window=3, offset=6)`: two queries,
#   six visible pairs, at the right end.
# - Replace $-\infty$ by the smallest float16, `torch.finfo(torch.float16).min`, in the fill of
#   `filled`: the visible score $-110208$ still loses.
