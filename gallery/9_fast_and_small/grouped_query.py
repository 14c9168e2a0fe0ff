r"""
# Query heads that share keys shrink the cache; keys made from one latent vector shrink it more

Grouped-query attention keeps one key and value for several query heads. Multi-head latent attention keeps one short
vector for all of them. This page shows both to be ordinary attention with tied weights, and derives what they save.

*Sources:* [Shazeer (2019)](../../references.md#shazeer2019), section 3, one key head;
[Ainslie et al. (2023)](../../references.md#ainslie2023), section 2.2, groups;
[DeepSeek-AI (2024)](../../references.md#deepseek2024), sections 2.1 and 3.1.2 and table 1, the latent vector;
[Grattafiori et al. (2024)](../../references.md#grattafiori2024), table 3, the shapes of Llama 3.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["multi_head", "kv_cache"]

from functools import partial

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from attnkit import (
    KVCache,
    MultiHeadAttention,
    attention,
    attention_scores,
    causal_mask,
    claims,
    plot,
    repeat_heads,
    rotate,
)

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Which query head reads which key head
#
# With $H$ query heads and $G$ key and value heads, $G$ a divisor of $H$, query heads are grouped in order: head
# $h$, counted from 0, uses key head $\lfloor h G / H \rfloor$,
#
# $$y^h_i = \sum_j \operatorname{softmax}_j \left( \frac{q^h_i \cdot k^g_j}{\sqrt{d_k}} \right) v^g_j,
# \qquad g = \lfloor h G / H \rfloor .$$
#
# $G = H$ is multi-head attention, $G = 1$ is **multi-query** attention. In code each key head is repeated in
# place, `repeat_interleave`. Tiling, `repeat`, gives the same shape and pairs head $h$ with key head $h \bmod G$: if
# two key heads hold 10 and 20, four query heads then read 10, 20, 10, 20 instead of 10, 10, 20, 20. A model trained
# with one order and run with the other computes something else, without an error.

H, d_k, T, S = 12, 8, 5, 7
q = torch.randn(2, H, T, d_k)


def head_by_head(q, k, v):
    """The formula: one head after the other, from two-dimensional tensors."""
    heads = [(b, h, h * k.shape[1] // H) for b in range(len(q)) for h in range(H)]
    out = [torch.softmax(q[b, h] @ k[b, g].T / d_k**0.5, dim=-1) @ v[b, g] for b, h, g in heads]
    return torch.stack(out).view(q.shape)


for G in (12, 4, 1):
    k, v = torch.randn(2, 2, G, S, d_k)
    out, _ = attention(q, repeat_heads(k, H), repeat_heads(v, H))
    of_torch = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    claims.close(f"12 query heads on {G} repeated key heads obey the formula", out, head_by_head(q, k, v), atol=1e-14)
    claims.close(f"12 query heads on {G} key heads: torch groups them alike", out, of_torch, atol=1e-14)

held = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
blind = torch.zeros(1, 4, 1, 1)
read = [attention(blind, heads, heads)[0].flatten() for heads in (repeat_heads(held, 4), held.repeat(1, 2, 1, 1))]
print("four query heads read", read[0].tolist(), "if repeated,", read[1].tolist(), "if tiled")
claims.close(
    "four query heads on key heads 10, 20 read 10, 10, 20, 20", read[0], torch.tensor([10, 10, 20, 20]), atol=0
)

key, names = torch.randn(1, 3, 1, d_k), torch.eye(3).view(1, 3, 1, 3)  # one token, whose value names its key head
repeated = attention(q[:1], repeat_heads(key, H), repeat_heads(names, H))[0][0, :, 0]
tiled = attention(q[:1], key.repeat(1, 4, 1, 1), names.repeat(1, 4, 1, 1))[0][0, :, 0]
source, served = repeated.argmax(dim=1), torch.arange(H) // 4
claims.close("of three key heads, each serves four neighbouring query heads", source, served, atol=0)

# %%

fig, axes = plt.subplots(1, 2, figsize=(4.8, 3.6), sharey=True)
for ax, name, weights in zip(axes, ("repeated", "tiled"), (repeated, tiled)):
    plot.heatmap(ax, weights, xlabel="key head", ylabel="query head", x=range(3), y=range(H))
    ax.set(title=name, aspect="auto")
axes[1].set_ylabel("")
fig.suptitle("Groups are blocks, not stripes", fontsize="medium")
fig.set_label(
    f"Two grids of {H} query heads by three key heads, a cell bright where the query head reads the key head. "
    "Repeated heads make three blocks of four; tiled heads cycle through the three."
)

# %%
# ## Grouping is multi-head attention with tied keys
#
# A grouped layer is a multi-head layer in which the heads of a group happen to have equal $W_K$ and $W_V$. So
# it can compute nothing that multi-head attention cannot, and it has $2 d^2 (1 + G/H)$ parameters instead of $4 d^2$.
# What it gives up: the heads of a group compare with the same $d_k$ key features. Stack the scores of its $H/G$ heads,
#
# $$\begin{pmatrix} Q^1 \\ \vdots \\ Q^{H/G} \end{pmatrix} K^\top, \qquad \text{of rank at most } d_k,$$
#
# where keys of their own allow $d_k H / G$. Multiplications of scores and values are not saved: every query head still
# meets every key. What is saved is memory, and each number read from it is used $H/G$ times.

gqa, mha = MultiHeadAttention(96, H, n_kv_heads=3), MultiHeadAttention(96, H)
own = gqa.state_dict()
for name in ("key.weight", "value.weight"):
    own[name] = own[name].view(3, 8, 96).repeat_interleave(4, dim=0).view(96, 96)
mha.load_state_dict(own)
x = torch.randn(2, 40, 96)
n_parameters = [sum(w.numel() for w in module.parameters()) for module in (mha, gqa)]
q, keys = torch.randn(2, 4, 40, d_k)
rank = [torch.linalg.matrix_rank(attention_scores(q, k).flatten(0, 1)) for k in (keys, keys[:1])]


def multiplications(run):
    """Multiplications of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2  # a flop is * or +


work = [
    multiplications(lambda G=G: attention(q, repeat_heads(keys[:G], 4), repeat_heads(keys[:G], 4))) for G in (4, 2, 1)
]
print(f"parameters: {n_parameters[0]:,} with twelve key heads, {n_parameters[1]:,} with three")
print(f"rank of the scores of four heads, stacked: {rank[0]} with keys of their own, {rank[1]} with shared keys")
print("multiplications of four heads with 4, 2 and 1 key heads:", *(f"{n:,}" for n in work))

claims.close("three key heads are twelve with equal weights in fours", gqa(x)[0], mha(x)[0], atol=1e-14)
expected = torch.tensor([4.0, 2.5]) * 96**2
claims.close("layers of 12 and 3 key heads have 4d² and 5d²/2 parameters", n_parameters, expected, atol=0)
claims.close(
    "the scores of four heads have rank 4 d_k with their own keys and d_k with shared ones", rank, [32, 8], atol=0
)
claims.close("sharing keys saves no multiplication of scores and values", work, 2 * 4 * 40 * 40 * d_k, atol=0)

# %%
# ## Bytes per token
#
# The cache holds $2 G d_k$ numbers per token and layer. Llama 3 8B has 32 layers and 32 query heads, Llama 3 70B has 80
# and 64; both have 8 key heads of width 128 and 2 bytes per number. One token in a cache for each layer, counted:


def bytes_per_token(n_layers, k, v):
    """Bytes that caches of so many layers hold for one token, in half precision."""
    filled = [tensor for _ in range(n_layers) for tensor in KVCache().append(k.half(), v.half())]
    return sum(tensor.nbytes for tensor in filled)


llama = {}
for name, n_layers, n_heads in (("Llama 3 8B", 32, 32), ("Llama 3 70B", 80, 64)):
    for G in (n_heads, 8, 1):
        llama[name, G] = bytes_per_token(n_layers, *torch.zeros(2, G, 1, 128))
        print(f"{name:>11} with {G:2} key heads: {llama[name, G] / 1024:5.0f} KiB per token")

claims.close("Llama 3 8B's 8 key heads need 128 KiB per token", llama["Llama 3 8B", 8], 128 * 1024, atol=0)
claims.close("Llama 3 70B's 8 key heads need 320 KiB per token", llama["Llama 3 70B", 8], 320 * 1024, atol=0)
claims.close(
    "with 64 key heads Llama 3 70B would need 2560 KiB, eight times as much",
    llama["Llama 3 70B", 64],
    8 * 320 * 1024,
    atol=0,
)

# %%
# ## Keys from a latent vector
#
# Sharing is one way to tie keys. Another is to make all from one short vector $c_j = x_j W_{DKV}$ of $d_c$ features:
#
# $$k^h_j = c_j W_{UK}^h, \qquad v^h_j = c_j W_{UV}^h .$$
#
# Only $c_j$ must be kept, but making all keys again at each step would cost more than the cache saves. It need not be
# done. Move the matrix to the other side of the dot product, and out of the mixture:
#
# $$q^h_i \cdot k^h_j = q^h_i \left(c_j W_{UK}^h\right)^\top = \left(q^h_i W_{UK}^{h\top}\right) \cdot c_j, \qquad
# \sum_j \alpha^h_{ij} v^h_j = \left( \sum_j \alpha^h_{ij} c_j \right) W_{UV}^h .$$
#
# This is the **absorbed** form: multi-query attention whose one key and value head is $c$ itself. Rotary positions
# would spoil it. With $R_i$ the rotation at position $i$, the score is
#
# $$q_i R_i \left(c_j W_{UK} R_j\right)^\top = q_i \left(R_i R_j^\top\right) W_{UK}^\top c_j^\top,$$
#
# and what the query should absorb depends on $i - j$. No other query vector helps: products of queries with latents
# form a matrix of rank at most $d_c$, and rotated keys can exceed that. So position gets $d_R$ features of its own: a
# rotated key $k^R_j$, shared by all heads, stands beside the latent one. Scores add both parts, with the scale
# $1/\sqrt{d_k + d_R}$ of the expanded form.


def expanded(q, q_rotary, c, k_rotary, up_k, up_v, mask=None):
    """Make every head's keys and values, then attend."""
    k = torch.cat([c @ up_k, k_rotary.expand(len(up_k), -1, -1)], dim=-1)
    return attention(torch.cat([q, q_rotary], dim=-1), k, c @ up_v, mask)[0]


def absorbed(q, q_rotary, c, k_rotary, up_k, up_v, mask=None):
    """Attend to the latent vectors themselves; the output is made from their mixture."""
    scale = (q.shape[-1] + q_rotary.shape[-1]) ** -0.5
    queries, keys = torch.cat([q @ up_k.mT, q_rotary], dim=-1), torch.cat([c, k_rotary], dim=-1)
    return attention(queries, keys, c, mask, scale=scale)[0] @ up_v


n_heads, d_c, d_k, d_r, d_v, T = 4, 12, 8, 6, 10, 9
q, q_rotary, c, k_rotary = (torch.randn(n, T, d) for n, d in ((n_heads, d_k), (n_heads, d_r), (1, d_c), (1, d_r)))
q_rotary, k_rotary = rotate(q_rotary), rotate(k_rotary)
up_k, up_v = torch.randn(n_heads, d_c, d_k), torch.randn(n_heads, d_c, d_v)
full = expanded(q, q_rotary, c, k_rotary, up_k, up_v, causal_mask(T))

cache, decoded = KVCache(), []
for t in range(T):
    now = slice(t, t + 1)
    k_all, c_all = cache.append(k_rotary[:, now], c[:, now])  # what an ordinary cache would call k and v
    decoded.append(absorbed(q[:, now], q_rotary[:, now], c_all, k_all, up_k, up_v))
at_once = absorbed(q, q_rotary, c, k_rotary, up_k, up_v, causal_mask(T))
claims.close("latent attention: absorbed equals expanded", at_once, full, atol=1e-13)
claims.close("latent attention decodes from cached latents alone", torch.cat(decoded, dim=1), full, atol=1e-13)
claims.close("the latent cache holds d_c + d_R = 18 numbers per token", (k_all.numel() + c_all.numel()) / T, 18, atol=0)

queries, short = torch.randn(40, 8), torch.randn(40, 3)
keys = short @ torch.randn(3, 8)
rank = [torch.linalg.matrix_rank(scores) for scores in (queries @ keys.T, rotate(queries) @ rotate(keys).T)]
claims.close("keys from 3 latent features give scores of rank 3, rotated ones rank 8", rank, [3, 8], atol=0)

# %%
# ## Smaller than what?
#
# DeepSeek-V2 has 60 layers of 128 heads, $d_k = d_v = 128$, $d_c = 512$ and $d_R = 64$. Multi-head attention of this
# shape would keep $2 \cdot 128 \cdot 128$ numbers per token and layer, latent attention keeps $512 + 64$. Compared with
# its own expanded keys, which are $128 + 64$ wide, and values the saving is larger; compared with grouped
# attention, the latent vector is as small as a little over two key heads, of $2 \cdot 128$ numbers each.

ordinary, latent = 2 * 128 * 128, 512 + 64
own_keys = 128 * (128 + 64 + 128)
deepseek = bytes_per_token(60, torch.zeros(1, 1, 64), torch.zeros(1, 1, 512))
print(
    f"numbers per token and layer: {ordinary:,} with 128 key heads, {latent} latent: {ordinary / latent:.1f} times less"
)
print(f"against its own expanded keys and values, {own_keys:,}: {own_keys / latent:.1f} times less")
print(f"as many as {latent / 256:.2f} key heads; {deepseek / 1024:.1f} KiB per token with 60 layers")
claims.close("DeepSeek-V2's latent cache is 56.9 times smaller than multi-head", ordinary / latent, 56.9, atol=0.05)
claims.close(
    "DeepSeek-V2's latent cache is 71.1 times smaller than its own keys and values", own_keys / latent, 71.1, atol=0.05
)
claims.close(
    "60 layers of 576 numbers in 2 bytes, as in DeepSeek-V2, are 67.5 KiB per token", deepseek, 67.5 * 1024, atol=0
)

# %%

fig, ax = plt.subplots()
groups = 2 ** torch.arange(8)
ax.loglog(groups.numpy(), (256 * groups).numpy(), marker="o", label="2 · 128 numbers per key head")
ax.axhline(latent, color=plot.VERMILLION, linestyle="--", label="one latent vector")
ax.set(
    title=f"A latent vector is as small as {latent / 256:.2f} key heads",
    xlabel="key heads",
    ylabel="numbers per token and layer",
)
ax.set_xticks([1, 8, 64, 128], ["1", "8", "64", "128"])
ax.set_yticks([256, 2048, 16384], ["256", "2048", "16384"])
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Numbers cached per token and layer against the number of key heads, logarithmic: a straight line from 256 to "
    f"{ordinary:,}. A horizontal line at {latent} crosses it a little beyond two key heads."
)

# %%
# ## What it costs
#
# Per query, key and head the expanded form multiplies $d_k + d_R$ times for the score and $d_v$ times for the mixture,
# the absorbed one $d_c + d_R$ and $d_c$ times, which is far more: $512 + 64 + 512$ against $128 + 64 + 128$. But the
# expanded form must first make keys and values, $d_c (d_k + d_v)$ multiplications for each token; the absorbed one
# transforms queries and outputs, as many for each query. So decode absorbed, when one query meets many keys, and
# read the prompt expanded, when there are as many queries as keys. Below, one head of DeepSeek-V2's widths.
#
# Neither way of tying is free. A model with tied keys is another model and must be trained as one; Ainslie et al. start
# from a multi-head model, average the key heads of each group, and train on. And where contexts and batches are short,
# there is little to save.

up_k, up_v = torch.zeros(1, 512, 128), torch.zeros(1, 512, 128)
c, k_rotary = torch.zeros(1, 256, 512), torch.zeros(1, 256, 64)
counts = {}
for n_queries in (1, 256):
    parts = torch.zeros(1, n_queries, 128), torch.zeros(1, n_queries, 64), c, k_rotary, up_k, up_v
    counts[n_queries] = [multiplications(partial(form, *parts)) for form in (expanded, absorbed)]
    print("{} queries on 256 tokens: {:,} expanded, {:,} absorbed".format(n_queries, *counts[n_queries]))
claims.close(
    "one query on 256 tokens: the expanded form takes 82.1 times the work", counts[1][0] / counts[1][1], 82.1, atol=0.05
)
claims.close(
    "256 queries on 256 tokens: the absorbed form takes 1.92 times the work",
    counts[256][1] / counts[256][0],
    1.92,
    atol=0.005,
)

# %%
# ## Try it
#
# - Change `h * k.shape[1] // H` to `h % k.shape[1]` in `head_by_head`: with 12 and 1 key heads nothing changes, with 4
#   the formula disagrees.
# - Leave `scale` out in `absorbed`: it falls back to the width of latent and rotary part together, and the claims
#   on latent attention fail.
# - Let `d_c = 2`: the claim on 18 numbers fails, the others hold. Absorbing is exact at any width; but the keys of
#   all heads together now have rank 2.
