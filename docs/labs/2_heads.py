# %% [markdown]
# # Lab 2 · Queries, keys, values, and several heads
#
# You write scaled dot-product attention from its three roles, see why the scale is there, and run several heads
# in one product. About 45 minutes.
#
# **Goal.** At the end you can write multi-head attention without looking it up, and name the mistakes in it that
# no shape reveals. Needed: [lab 1](../labs/1_mixtures.ipynb), or a softmax you trust.

# %%
import matplotlib.pyplot as plt
import torch

from attnkit import claims, labs, plot, softmax

plt.style.use("attnkit.paper")
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Every query meets every key
#
# A token asks with its query $q_i$ and is found by its key $k_j$. How well they fit is their dot product,
#
# $$s_{ij} = q_i \cdot k_j .$$
#
# With queries and keys as rows of $Q$ and $K$ this is one matrix, $Q K^\top$: a row for each query.
# The page [on compatibility](../gallery/2_queries_keys_values/compatibility.md) says what it can measure.
#
# ### Exercise 2.1 · All dot products at once


# %% tags=["exercise"]
def scores(q, k):
    """Dot product of each query with each key.

    Args:
        q: shape (..., T, d_k).
        k: shape (..., S, d_k).

    Returns:
        Shape (..., T, S).
    """
    return q @ k.mT


# %% [markdown] tags=["hint"]
# `x.mT` exchanges the last two axes and leaves all axes before them alone; `x.T` is for plain matrices.

# %%
labs.check_scores(scores)

# %% tags=["slips"]
slips = [
    ("q @ k.mT", "k @ q.mT", "the query comes first"),
    ("q @ k.mT", "q * k", "is the feature axis summed"),
    ("q @ k.mT", "q @ k.mT / 2", "leave the scale"),
]

# %% [markdown]
# ## The scale
#
# If the entries of $q$ and $k$ are independent, with mean 0 and variance 1, then $q \cdot k$ is a sum of $d_k$
# terms of variance 1: its standard deviation is $\sqrt{d_k}$. Wide heads would have large scores for no reason but
# their width, and softmax would give all to one key. Dividing by $\sqrt{d_k}$ takes the width out again.
# [Unscaled scores grow](../gallery/2_queries_keys_values/scaling.md) measures what happens otherwise.
#
# ### Exercise 2.2 · Take the width out


# %% tags=["exercise"]
def scaled_scores(q, k):
    """Dot products over the square root of the width of a key.

    Args:
        q: shape (..., T, d_k).
        k: shape (..., S, d_k).

    Returns:
        Shape (..., T, S).
    """
    return scores(q, k) / k.shape[-1] ** 0.5


# %% [markdown] tags=["hint"]
# The width is the length of the last axis of `k`. How many keys there are does not matter.

# %%
labs.check_scaled(scaled_scores)

# %% tags=["slips"]
slips = [
    (" / k.shape[-1] ** 0.5", "", "not scaled"),
    (" ** 0.5", "", "divided by d_k itself"),
    ("k.shape[-1]", "k.shape[-2]", "the number of keys"),
    (" / k.shape", " * k.shape", "multiplied by the root"),
]

# %%
widths = [4, 16, 64, 256]
raw, scaled = [], []
for width in widths:
    q, k = torch.randn(2, 200, width, generator=generator)
    raw.append(softmax(scores(q, k)).amax(-1).mean().item())
    scaled.append(softmax(scaled_scores(q, k)).amax(-1).mean().item())
claims.above("lab 2: at width 256 unscaled, the largest of 200 weights is over 0.8 on average", raw[-1], 0.8)
claims.below("lab 2: scaled, the largest of 200 weights stays below 0.1 at all widths", torch.tensor(scaled), 0.1)

fig, ax = plt.subplots()
ax.plot(widths, raw, color=plot.VERMILLION, marker="s", label="unscaled")
ax.plot(widths, scaled, color=plot.BLUE, marker="o", label="scaled")
ax.set_xscale("log", base=2)
ax.set_xticks(widths, widths)
ax.set(title="Unscaled, one key takes it all", xlabel="head width", ylabel="mean largest weight", ylim=(0, 1))
ax.legend()
fig.set_label(
    f"Mean largest of 200 weights against the head width: unscaled it climbs to {raw[-1]:.2f}, scaled it stays low."
)
plt.show()

# %% [markdown]
# ## Attention
#
# Softmax along the keys turns each row of scores into weights, and the weights mix the values:
#
# $$A = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right), \qquad Y = A V .$$
#
# [Weights and values](../gallery/2_queries_keys_values/weights_and_values.md) looks at both steps.
#
# ### Exercise 2.3 · Three lines of attention


# %% tags=["exercise"]
def attend(q, k, v):
    """Scaled dot-product attention.

    Args:
        q: shape (..., T, d_k).
        k: shape (..., S, d_k).
        v: shape (..., S, d_v).

    Returns:
        One mixture of the values for each query, shape (..., T, d_v).
    """
    weights = softmax(scaled_scores(q, k), dim=-1)
    return weights @ v


# %% [markdown] tags=["hint"]
# `softmax(x, dim=…)` of attnkit is the one you wrote in lab 1. In the scores, which axis holds the keys?

# %%
labs.check_attention(attend)

# %% tags=["slips"]
slips = [
    ("dim=-1", "dim=-2", "over the queries"),
    ("scaled_scores(q, k)", "scores(q, k)", "not scaled before the softmax"),
    ("softmax(scaled_scores(q, k), dim=-1)", "scaled_scores(q, k)", "where is the softmax"),
]

# %% [markdown]
# ## Several heads
#
# One row of weights cannot point at two places. So the features are cut into $H$ slices of width
# $d_k = d_{\mathrm{model}} / H$, and each slice attends by itself. An axis for the heads, placed before the tokens,
# lets one product do them all: $(B, T, d_{\mathrm{model}})$ becomes $(B, H, T, d_k)$.
#
# ### Exercise 2.4 · Cut the features into heads


# %% tags=["exercise"]
def split(x, n_heads):
    """An axis of its own for the heads, before the tokens.

    Args:
        x: shape (B, T, n_heads · d_k).
        n_heads: number of heads.

    Returns:
        Shape (B, n_heads, T, d_k); head h holds the features h · d_k to (h + 1) · d_k.
    """
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


# %% [markdown] tags=["hint"]
# Two steps: `unflatten` cuts the last axis in two, head first, feature second; then the axes of token and head
# change places. Going to the final shape with a single `reshape` cuts through the tokens.

# %%
labs.check_split(split)

# %% tags=["slips"]
slips = [
    ("unflatten(-1, (n_heads, -1)).transpose(1, 2)", "reshape(len(x), n_heads, x.shape[1], -1)", "heads hold tokens"),
    ("(n_heads, -1)).transpose(1, 2)", "(-1, n_heads)).permute(0, 3, 1, 2)", "every third feature"),
    (".transpose(1, 2)", ".transpose(1, 2).flip(1)", "wrong order"),
]

# %% [markdown]
# ## All of it
#
# Multi-head attention projects, splits, attends, joins the heads again and mixes them:
#
# $$\operatorname{MultiHead}(X) = [\, Y_1, \dots, Y_H \,]\, W_O, \qquad
# Y_h = \operatorname{attend}(X W_Q^h, X W_K^h, X W_V^h).$$
#
# [Several heads look at several places](../gallery/2_queries_keys_values/multi_head.md) shows what the joining means.
#
# ### Exercise 2.5 · Multi-head attention


# %% tags=["exercise"]
def multi_head(x, w_q, w_k, w_v, w_o, n_heads):
    """Self-attention with several heads.

    Args:
        x: shape (B, T, d_model).
        w_q: shape (d_model, d_model), as are ``w_k``, ``w_v`` and ``w_o``.
        n_heads: number of heads; it divides d_model.

    Returns:
        Shape (B, T, d_model).
    """
    q, k, v = split(x @ w_q, n_heads), split(x @ w_k, n_heads), split(x @ w_v, n_heads)
    heads = attend(q, k, v)
    return heads.transpose(1, 2).flatten(-2) @ w_o


# %% [markdown] tags=["hint"]
# To join the heads, do the steps of `split` backwards: exchange the axes, then `flatten(-2)`.

# %%
labs.check_multi_head(multi_head)

# %% tags=["slips"]
slips = [
    (" @ w_o", "", "output map W_O is missing"),
    ("heads.transpose(1, 2).flatten(-2)", "heads.reshape(x.shape)", "jumbled"),
    ("attend(q, k, v)", "attend(k, q, v)", "changed places"),
    (
        "split(x @ w_q, n_heads), split(x @ w_k, n_heads), split(x @ w_v, n_heads)",
        "(split(x @ w, 1) for w in (w_q, w_k, w_v))",
        "one head of full width",
    ),
]

# %% [markdown]
# ## Summary
#
# - A row of scores belongs to a query; the softmax runs along it, over the keys.
# - The scale is $1/\sqrt{d_k}$, with the width of one head.
# - Heads are slices of the features. `reshape` alone cuts through tokens, and every shape still fits.
# - The output map mixes what the heads found; without it they stay side by side.
