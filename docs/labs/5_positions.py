# %% [markdown]
# # Lab 5 · Positions that are added, positions that turn
#
# You write the sinusoidal encoding, find the rotation inside it, and turn queries and keys by it, until scores see
# nothing but distance. About 45 minutes.
#
# **Goal.** At the end you can write both encodings, and name the mistakes that keep every shape and every length.
# Needed: [lab 2](../labs/2_heads.ipynb); [lab 3](../labs/3_causal_head.ipynb) says why order must be put in.

# %%
import matplotlib.pyplot as plt
import torch

from attnkit import claims, labs, plot

plt.style.use("attnkit.paper")
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Clocks of many speeds
#
# The $d$ features form $d/2$ pairs. Pair $p = 0, \dots, d/2 - 1$ is the hand of a clock that turns by
#
# $$\omega_p = 10000^{-2p/d}$$
#
# radians per token: the first one fast, each further one slower by the same factor.
#
# ### Exercise 5.1 · The frequencies


# %% tags=["exercise"]
def frequencies(d):
    """Angle per token of each pair of features, in radians.

    Args:
        d: number of features, even.

    Returns:
        Shape (d / 2,).
    """
    pair = torch.arange(d // 2)
    return 10000.0 ** (-2 * pair / d)


# %% [markdown] tags=["hint"]
# A number to the power of a tensor is a tensor. The exponent of the first pair is 0, that of the second $-2/d$.

# %%
labs.check_frequencies(frequencies)

# %% tags=["slips"]
slips = [
    ("-2 * pair", "2 * pair", "frequencies grow"),
    ("-2 * pair", "-4 * pair", "a hundredth of the one before"),
    ("-2 * pair", "-pair", "the exponent is half"),
    ("torch.arange(d // 2)", "torch.arange(d)", "one frequency for each pair"),
    ("torch.arange(d // 2)", "torch.arange(1, d // 2 + 1)", "pair 0 has the exponent 0"),
]

# %% [markdown]
# ## The encoding
#
# At position $m$, pair $p$ holds the sine and the cosine of its angle, side by side:
#
# $$\operatorname{PE}(m)_{2p} = \sin(m\,\omega_p), \qquad \operatorname{PE}(m)_{2p+1} = \cos(m\,\omega_p).$$
#
# ### Exercise 5.2 · Sine, cosine, sine, cosine


# %% tags=["exercise"]
def encode(positions, d):
    """Sinusoidal encoding.

    Args:
        positions: shape (T,).
        d: number of features, even.

    Returns:
        Shape (T, d): sine and cosine of the first pair, then of the second, and so on.
    """
    angles = positions[:, None] * frequencies(d)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


# %% [markdown] tags=["hint"]
# `positions[:, None] * frequencies(d)` has a row for each position and a column for each pair. Stack sine and cosine
# along a **new last** axis, then flatten it: so the two of a pair become neighbours.

# %%
labs.check_sinusoidal(encode)

# %% tags=["slips"]
slips = [
    ("angles.sin(), angles.cos()", "angles.cos(), angles.sin()", "the sine comes first"),
    (
        "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)",
        "torch.cat([angles.sin(), angles.cos()], -1)",
        "all sines come",
    ),
    ("angles.cos()", "angles.sin()", "both features of a pair"),
    ("positions[:, None]", "(positions[:, None] + 1)", "positions count from 0"),
]

# %%
fig, ax = plt.subplots(figsize=(4.8, 3.8))
image = plot.heatmap(ax, encode(torch.arange(40), 32), signed=True, xlabel="feature", ylabel="position")
fig.colorbar(image, ax=ax, ticks=[-1, 0, 1])
ax.set(title="Fast hands left, slow hands right", xticks=range(0, 32, 8), yticks=range(0, 40, 10))
fig.set_label("Encodings of 40 positions in 32 features: stripes change quickly on the left and hardly on the right.")
plt.show()

# %% [markdown]
# ## A shift is a rotation
#
# By the addition theorems, moving on by $n$ tokens needs no knowledge of where one is:
#
# $$\sin(a + b) = \sin a \cos b + \cos a \sin b, \qquad \cos(a + b) = \cos a \cos b - \sin a \sin b,$$
#
# with $a = m\,\omega_p$ and $b = n\,\omega_p$.
# [A shift in position is a rotation](../gallery/7_position/sinusoidal.md) draws the consequences.
#
# ### Exercise 5.3 · Move an encoding


# %% tags=["exercise"]
def shift(encodings, n):
    """Encodings n tokens further on, made from the encodings alone.

    Args:
        encodings: shape (T, d), as ``encode`` gives them.
        n: number of tokens.

    Returns:
        Shape (T, d).
    """
    b = n * frequencies(encodings.shape[-1])
    sine, cosine = encodings[:, 0::2], encodings[:, 1::2]
    moved_sine = sine * b.cos() + cosine * b.sin()
    moved_cosine = cosine * b.cos() - sine * b.sin()
    return torch.stack([moved_sine, moved_cosine], dim=-1).flatten(-2)


# %% [markdown] tags=["hint"]
# `x[:, 0::2]` are the sines, `x[:, 1::2]` the cosines. The angle $b$ is a number for each pair.

# %%
labs.check_shift(shift)

# %% tags=["slips"]
slips = [
    ("cosine * b.cos() - sine * b.sin()", "cosine * b.cos() + sine * b.sin()", "mind the minus"),
    ("b = n * ", "b = -n * ", "moved back"),
    (
        "torch.stack([moved_sine, moved_cosine], dim=-1).flatten(-2)",
        "encodings + encode(torch.tensor([n]), 8)",
        "were added",
    ),
]

# %% [markdown]
# ## Turn queries and keys instead
#
# Rotary positions add nothing to the tokens. They turn each pair $(x_{2p}, x_{2p+1})$ of a query or key at position
# $m$ by the angle $m\,\omega_p$:
#
# $$x_{2p}' = x_{2p} \cos m\omega_p - x_{2p+1} \sin m\omega_p, \qquad
# x_{2p+1}' = x_{2p} \sin m\omega_p + x_{2p+1} \cos m\omega_p .$$
#
# Libraries disagree on which features make a pair; here they are neighbours, as in the paper. See
# [Turned queries and keys](../gallery/7_position/rotary.md).
#
# ### Exercise 5.4 · Rotate


# %% tags=["exercise"]
def rotary(x, positions):
    """Turn each pair of neighbouring features by position times frequency.

    Args:
        x: shape (..., T, d), d even.
        positions: shape (T,).

    Returns:
        The same shape.
    """
    angles = positions[:, None] * frequencies(x.shape[-1])
    first, second = x[..., 0::2], x[..., 1::2]
    turned_first = first * angles.cos() - second * angles.sin()
    turned_second = first * angles.sin() + second * angles.cos()
    return torch.stack([turned_first, turned_second], dim=-1).flatten(-2)


# %% [markdown] tags=["hint"]
# The shape of the work is that of exercise 5.3: take the pairs apart, two formulas, put them together again.

# %%
labs.check_rotary(rotary)

# %% tags=["slips"]
slips = [
    ("angles = positions[:, None]", "angles = -positions[:, None]", "turned clockwise"),
    ("first * angles.cos() - second", "first * angles.cos() + second", "one minus sign"),
    ("angles = positions[:, None]", "angles = (positions[:, None] + 1)", "position 0 was turned"),
    ("second = x[..., 0::2], x[..., 1::2]", "second = x.chunk(2, dim=-1)", "position 0 was turned"),
]

# %% [markdown]
# ## Only the distance is left
#
# Turning both sides, $(R_m q) \cdot (R_n k) = q \cdot R_{n - m} k$: the angles subtract, and the score knows the
# distance alone. The values are left as they are.
#
# ### Exercise 5.5 · Scores with positions


# %% tags=["exercise"]
def rotary_scores(q, k, positions):
    """Scaled scores of turned queries and keys.

    Args:
        q: shape (T, d).
        k: shape (T, d).
        positions: where the tokens stand, shape (T,).

    Returns:
        Shape (T, T).
    """
    turned_q, turned_k = rotary(q, positions), rotary(k, positions)
    return turned_q @ turned_k.mT / q.shape[-1] ** 0.5


# %% [markdown] tags=["hint"]
# Both are turned by their own positions, in the same sense; then comes lab 2.

# %%
labs.check_rotary_scores(rotary_scores)

# %% tags=["slips"]
slips = [
    ("rotary(k, positions)", "k", "only the queries are turned"),
    ("rotary(q, positions)", "q", "only the keys are turned"),
    ("rotary(k, positions)", "rotary(k, -positions)", "opposite senses"),
    (" / q.shape[-1] ** 0.5", "", "scale"),
]

# %%
q, k = torch.randn(2, 1, 32, generator=generator).expand(2, 12, 32)
table = rotary_scores(q, k, torch.arange(12))
claims.close("lab 5: equal content gives one score for each distance", table[1:, 1:], table[:-1, :-1], atol=1e-4)

fig, ax = plt.subplots(figsize=(4.8, 3.8))
image = plot.heatmap(ax, table, signed=True)
fig.colorbar(image, ax=ax, label="score")
ax.set_title("Equal content: a score for each distance")
fig.set_label("Scores of 12 equal queries and 12 equal keys: every diagonal has one colour, and the diagonals differ.")
plt.show()

# %% [markdown]
# ## Summary
#
# - A pair of features is a clock hand; sine and cosine share a frequency and stand side by side.
# - A shift turns every pair. Lengths survive a wrong sense of turning, so test against a known angle.
# - Rotary turns queries and keys, in the same sense, and scores depend on the distance alone.
