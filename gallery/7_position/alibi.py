r"""
# A penalty on distance gives each head its own horizon

ALiBi adds no vectors and turns none: each head subtracts its own slope times the distance from its
scores. This page shows where the slopes come from, why the bias may be written without the query's
position, and how far each head can look.

*Sources:* [Press, Smith and Lewis (2021)](../../references.md#press2021), section 3 (the formula has no
number; the slopes for other numbers of heads are in the authors' code).
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["kernel_smoothing"]

import matplotlib.pyplot as plt
import torch

from attnkit import alibi_bias, alibi_slopes, attention, causal_mask, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One slope for each head
#
# Head $h = 1, \dots, H$ adds to the score of query $i$ and key $j$ the bias
#
# $$b_{hij} = -m_h (i - j), \qquad m_h = 2^{-8h/H},$$
#
# with $H$ a power of two. The first slope is the ratio of the sequence, not 1: eight heads take
# $\frac12, \frac14, \dots, \frac1{256}$. For another $H$ the authors take the slopes of the largest power
# of two below it, and fill up with the first, third, fifth slope and so on of twice that many heads, which
# interleave with them. None of the slopes is learned. The bias joins the scores after their scaling by $1/\sqrt{d_k}$.

H, T, d_k = 8, 24, 16
bias = alibi_bias(H, T)
looped = torch.zeros(H, T, T)
for h in range(H):
    for i in range(T):
        for j in range(T):
            looped[h, i, j] = -(0.5 ** (h + 1)) * (i - j)
print("6 heads:", alibi_slopes(6).tolist())

claims.close(
    "eight heads have slopes 1/2, 1/4, ..., 1/256", alibi_slopes(8), [1 / 2**h for h in range(1, 9)], atol=1e-16
)
claims.close(
    "six heads have slopes 0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125",
    alibi_slopes(6),
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    atol=1e-16,
)
claims.close("the ALiBi bias is minus slope times distance, by a loop", bias, looped, atol=1e-14)

# %%
# ## The query's own position cancels
#
# Within the row of query $i$ the term $-m_h i$ is the same for every key, and softmax does not see a
# constant added to its scores:
#
# $$\operatorname{softmax}_j\bigl(s_{ij} - m_h(i - j)\bigr) = \operatorname{softmax}_j\bigl(s_{ij} + m_h j\bigr).$$
#
# Libraries that add $+m_h j$, as BLOOM's does, therefore compute the same weights. By hand: with equal
# scores, three keys and slope $\frac12$ the last row is $(e^{-1}, e^{-1/2}, 1)$ over its sum.

q, k = torch.randn(2, H, T, d_k)
v = torch.eye(T).expand(H, T, T)
mask = causal_mask(T)
by_distance = attention(q, k, v, mask, bias=bias)[1]
by_key = attention(q, k, v, mask, bias=alibi_slopes(H)[:, None, None] * torch.arange(T))[1]
zeros = torch.zeros(H, 3, d_k)
small = attention(zeros, zeros, zeros, causal_mask(3), bias=alibi_bias(H, 3))[1]
print("slope 1/2, three equal keys:", small[0, -1])

claims.close("under a causal softmax -m(i-j) and +mj give the same weights", by_distance, by_key, atol=1e-14)
claims.close(
    "slope 1/2 weighs three equal keys (0.186324, 0.307196, 0.506480)",
    small[0, -1],
    torch.tensor([0.186324, 0.307196, 0.506480]),
    atol=5e-7,
)

# %%

fig, axes = plt.subplots(1, 2, figsize=(4.8, 2.8), sharey=True)
for ax, h in zip(axes, (1, 5)):
    image = plot.heatmap(ax, by_distance[h], vmax=0.5, ylabel="query" if h == 1 else "")
    ax.set(title=f"slope 1/{2 ** (h + 1)}", xticks=range(0, T, 8), yticks=range(0, T, 8))
fig.colorbar(image, ax=axes, label="weight", shrink=0.8, ticks=[0, 0.5], extend="max")
fig.suptitle("Same kind of scores, short and long sight", fontsize=10.5)
fig.set_label(
    f"Causal weights of two heads with random queries and keys over {T} tokens. With the steep slope they gather "
    "near the diagonal; with the gentle slope they spread over the keys, back to the first."
)

# %%
# ## How far a head can look
#
# Let all scores be equal. A key $r$ tokens back then weighs $e^{-m_h r}$ relative to the query's own key: a
# geometric sequence with ratio $\rho_h = e^{-m_h}$. Over $t$ visible keys
#
# $$\alpha_r = \frac{(1 - \rho_h)\,\rho_h^r}{1 - \rho_h^t}, \qquad
# \sum_r r\,\alpha_r \to \frac{1}{e^{m_h} - 1} \quad (t \to \infty),$$
#
# so a head looks back about $1/m_h$ tokens on average. Content can override this: a key $r$ tokens back
# ties with the query's own key if its score is higher by exactly $m_h r$.

t = 8192
slopes = alibi_slopes(H)
query, keys = torch.zeros(H, 1, d_k), torch.zeros(H, t, d_k)
last = attention(query, keys, torch.ones(H, t, 1), bias=alibi_bias(H, 1, t, offset=t - 1))[1][:, 0]
back = torch.arange(t - 1, -1, -1)
rho = torch.exp(-slopes)[:, None]
reach = (last * back).sum(-1)
for h in range(H):
    print(f"slope 1/{2 ** (h + 1):<3}  looks back {reach[h]:.2f} tokens on average")
tie = torch.zeros(H, 1, t)
tie[:, 0, t - 1 - 10] = 10 * slopes[:, None].squeeze()  # the key 10 tokens back scores higher by 10 slopes
tied = attention(query, keys, torch.ones(H, t, 1), bias=alibi_bias(H, 1, t, offset=t - 1) + tie)[1][:, 0]

claims.close("equal scores under ALiBi give geometric weights", last, (1 - rho) * rho**back / (1 - rho**t), atol=1e-14)
claims.close("a head's mean reach is 1/(e^m - 1) tokens", reach, 1 / torch.expm1(slopes), atol=0, rtol=1e-8)
claims.close("slope 1/2 looks back 1.541494 tokens on average", reach[0], 1.541494, atol=5e-7)
claims.close("a key 10 tokens back ties if it scores 10 slopes higher", tied[:, -11], tied[:, -1], atol=1e-14)

# %%

fig, ax = plt.subplots()
for h, dash in zip((0, 2, 4, 6), ("-", "--", "-.", ":")):
    ax.plot(last[h].flip(0)[:65].numpy(), linestyle=dash, label=f"1/{2 ** (h + 1)}")
ax.set(
    title="Each head forgets at its own rate",
    xlabel="distance in tokens",
    ylabel="weight",
    yscale="log",
    ylim=(1e-5, 1),
    xticks=range(0, 65, 16),
)
ax.legend(title="slope", ncols=2)
fig.set_label(
    "Weight against distance for equal scores on a logarithmic scale: straight lines, one per head. The steepest "
    "slope drops out of the picture within a couple of dozen tokens, the gentlest stays almost level."
)

# %%
# ## Any length, and one direction
#
# The bias needs no table: a longer one continues a shorter one, and a single query at the end of a cache
# takes its row by `offset`. That the *formula* continues says nothing about how well a trained model does
# at lengths it has not seen; the paper measures that.
#
# The formula looks one way. For a key of the future, $j > i$, the bias is positive, and without the causal
# mask every query prefers the *last* key. Attention in both directions takes $-m_h \lvert i - j \rvert$.

unmasked = attention(torch.zeros(H, T, d_k), torch.zeros(H, T, d_k), v, bias=bias)[1]
both_ways = attention(torch.zeros(H, T, d_k), torch.zeros(H, T, d_k), v, bias=-bias.abs())[1]

claims.close("the ALiBi bias for 24 tokens continues the one for 7", bias[:, :7, :7], alibi_bias(H, 7), atol=0)
claims.close("offset gives the row of a last query", alibi_bias(H, 1, T, offset=T - 1), bias[:, -1:], atol=0)
claims.close("without a causal mask ALiBi prefers the last key", unmasked.argmax(-1), T - 1, atol=0)
claims.close(
    "with the absolute distance every query prefers its own key", both_ways.argmax(-1), torch.arange(T), atol=0
)

# %%
# ## Try it
#
# - Start the slopes at 1, with `2.0 ** -torch.arange(8)` in `by_key`: the two forms no longer agree, and
#   the claim says by how much. That every slope is doubled is easily overlooked: the rows still sum to 1.
# - Scale the bias along with the scores, `bias=bias / d_k**0.5`: the horizons grow about fourfold.
# - Print `alibi_slopes(12)`: the last four slopes interleave with those of eight heads, from above.
