r"""
# A causal mask alone can count

Without any position vectors a causal head can still tell where it stands: the number of visible keys
is its position. We write the weights by hand, and follow the position from one head to the next.

*Sources:* [Kazemnejad et al. (2023)](../../references.md#kazemnejad2023), Theorems 1 and 2 with their
proofs in appendix C; [Haviv et al. (2022)](../../references.md#haviv2022), who found it in trained models.
"""

# mkdocs_gallery_order = 5
# mkdocs_gallery_builds_on = ["equivariance", "alibi"]

import matplotlib.pyplot as plt
import torch

from attnkit import Head, MultiHeadAttention, alibi_bias, attention, causal_mask, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## A flag, a mask, and weights of nothing
#
# Let the first token carry a flag: feature 0 is 1 for the start token and 0 for every other. Take a causal
# head with $W_Q = W_K = 0$, so that all scores are 0 and query $t = 1, 2, \dots$ weighs its $t$ visible
# keys alike, and let $W_V$ read the flag. Then
#
# $$\mathrm{out}_t = \sum_{j \le t} \frac1t\, \mathrm{flag}_j = \frac1t,$$
#
# whatever else the tokens hold. The mask is what counts: without it every query sees all $T$ keys, and
# the output is $1/T$ everywhere.

T, d_model = 64, 16


def counting_head(context):
    """A head with uniform weights that reads feature 0; causal if it has a context."""
    head = Head(d_model, d_k=4, d_v=1, context=context).requires_grad_(False)
    head.query.weight.zero_()
    head.key.weight.zero_()
    head.value.weight.zero_()
    head.value.weight[0, 0] = 1.0
    return head


def text(T):
    """Random tokens, of which only the first has its flag set."""
    x = torch.randn(T, d_model)
    x[:, 0] = torch.arange(T) == 0
    return x


t = torch.arange(1, T + 1)
counted, other, unmasked = counting_head(T)(text(T))[0], counting_head(T)(text(T))[0], counting_head(None)(text(T))[0]
print("positions 1 to 5:", counted[:5, 0])

claims.close("a causal uniform head that reads a start flag outputs 1/t", counted[:, 0], 1 / t, atol=1e-15)
claims.close("its output at position 4 is a quarter", counted[3, 0], 0.25, atol=1e-15)
claims.close("the count does not depend on the text", other, counted, atol=1e-15)
claims.close("without a mask the head outputs 1/T everywhere", unmasked, 1 / T, atol=1e-15)

# %%

fig, ax = plt.subplots()
ax.plot(t.numpy(), counted[:, 0].numpy(), linestyle="none", marker="o", markersize=4, label="causal")
ax.plot(t.numpy(), unmasked[:, 0].numpy(), linestyle="none", marker="x", markersize=4, label="no mask")
ax.plot(t.numpy(), (1 / t).numpy(), color=plot.GREEN, linestyle="-", linewidth=1, label="1/t")
ax.set(
    title="The mask turns a flag into a position",
    xlabel="position t",
    ylabel="output",
    xscale="log",
    yscale="log",
    xticks=[1, 4, 16, 64],
    xticklabels=["1", "4", "16", "64"],
    yticks=[1, 1 / 4, 1 / 16, 1 / 64],
    yticklabels=["1", "1/4", "1/16", "1/64"],
)
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Output of the hand-written head against position on logarithmic axes, {T} positions: with the causal mask "
    "the points lie on the line one over t; without it all are at the level of the last one."
)

# %%
# ## The flag is needed
#
# Suppose all tokens are equal, flag included. Every query then mixes equal values, and a mixture of equal
# values is that value, however the weights fall. So a run of equal tokens stays equal through any number
# of causal layers, of any weights: nothing can be counted. A start token breaks this, and so does any
# token that differs, for those that come after it.

layer = MultiHeadAttention(d_model, n_heads=4).requires_grad_(False)
mask = causal_mask(T)


def two_layers(x):
    """The same random causal layer twice, each with a skip connection."""
    for _ in range(2):
        x = x + layer(x, mask=mask)[0]
    return x


equal = torch.randn(d_model).expand(T, d_model)
with_start = torch.cat((torch.randn(1, d_model), equal[1:]))
run, started = two_layers(equal), two_layers(with_start)

claims.close("a run of equal tokens stays equal through causal layers", run, run[:1], atol=1e-13)
claims.above(
    "after another start token neighbours in the run differ",
    (started[2:] - started[1:-1]).norm(dim=-1).min(),
    1e-5,
)

# %%
# ## From one over t to distances
#
# A feed-forward layer can turn $u = 1/t$ into $t$: with one hidden unit for each position it draws the
# polyline through the points $(1/t, t)$,
#
# $$f(u) = T + \sum_{n=1}^{T-1} c_n \operatorname{relu}\left(u - \tfrac1{n+1}\right),$$
#
# where $c_n$ is the change of slope at $1/(n+1)$; between two points the slope is $-n(n+1)$. It is right
# at the positions up to $T$, and for no longer text.
#
# The next head gets $t$ and compares positions: with $q_i = (m, -m\,t_i)$ and $k_j = (t_j, 1)$,
#
# $$q_i \cdot k_j = m\,(t_j - t_i) = -m\,(i - j).$$
#
# That is the bias of [ALiBi](alibi.md), now out of ordinary queries and keys.

n = torch.arange(1, T)
slope = -n * (n + 1.0)  # of the polyline between 1/(n+1) and 1/n
c = slope - torch.cat((slope[1:], torch.zeros(1)))
recovered = T + torch.relu(counted - 1 / (n + 1)) @ c

m = 0.5
q = torch.stack((torch.full((T,), m), -m * recovered), dim=-1)
k = torch.stack((recovered, torch.ones(T)), dim=-1)
weights = attention(q, k, torch.eye(T), mask, scale=1.0)[1]
zeros = torch.zeros(T, 1)
alibi = attention(zeros, zeros, torch.eye(T), mask, bias=alibi_bias(8, T)[0])[1]
print("recovered positions:", recovered[:4], "...", recovered[-2:])

claims.close("one hidden layer turns 1/t into t", recovered, t, atol=1e-10)
claims.close("a second head without positions has ALiBi's weights", weights, alibi, atol=1e-11)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.6))
image = plot.heatmap(ax, weights[:16, :16])
ax.set(title="Distances, from a mask and a flag", xticks=range(0, 16, 5), yticks=range(0, 16, 5))
fig.colorbar(image, ax=ax, label="weight")
fig.set_label(
    "Weights of the second head over the first 16 tokens: nothing above the diagonal, most on the diagonal, and "
    "the same fading band below it in every row, although no position vector was used."
)

# %%
# ## Where counting ends
#
# Neighbouring counts differ by $1/t - 1/(t+1) \approx 1/t^2$, but a floating-point number resolves about
# $\varepsilon/t$ at this size. So in a type with relative spacing $\varepsilon$, counts can merge once $t$
# is of the order of $1/\varepsilon$. In bfloat16 that is a short text.

many = 1 / torch.arange(1.0, 1000.0)
half = many.bfloat16()
merged = int((half[1:] == half[:-1]).nonzero()[0]) + 1
print(f"in bfloat16 the counts of positions {merged} and {merged + 1} are one number")
claims.close("bfloat16 first merges the counts of positions 190 and 191", merged, 190, atol=0)
claims.holds("float32 keeps the first 999 counts apart", many.float().diff() < 0)

# %%
# ## Try it
#
# - Set the flag of the second token too: every output but the first doubles, and the first claim fails.
# - Run the hidden layer on a text of $2T$ tokens: beyond $T$ it continues no line and stays at $T$, since
#   every unit is off. Such a count does not extrapolate.
# - Drop `mask` from the second head: its scores favour later keys for every query, past its own place.
