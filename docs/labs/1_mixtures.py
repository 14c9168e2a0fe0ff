# %% [markdown]
# # Lab 1 · A softmax that holds, and a mixture that stays inside
#
# You write the softmax of attention so that no score breaks it, mix values with its weights, and test that
# no mixture leaves the hull of its values. About 40 minutes.
#
# **Goal.** At the end you can say which axis a softmax sums over, why the largest score is subtracted, what
# temperature does, and how to tell the hull of some points from their bounding box. Needed: matrices, $e^x$,
# and a little PyTorch.
#
# Each exercise is a function to fill in and a cell that checks it. A check isolates one mechanism; when it
# fails, it names the likely slip. Hints and a worked solution are folded.

# %%
import matplotlib.pyplot as plt
import torch

from attnkit import claims, labs, plot

plt.style.use("attnkit.paper")
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## From scores to weights
#
# A query has a score $s_j$ for each key. Softmax makes weights of them,
#
# $$\alpha_j = \frac{e^{s_j}}{\sum_l e^{s_l}},$$
#
# positive, and summing to 1. A matrix of scores holds a row for each query and a column for each key, so the
# sum runs along a row: over the **last** axis. The page
# [Softmax is a competition](../gallery/1_mixtures/softmax_temperature.md) derives what follows.
#
# ### Exercise 1.1 · Exponentials over their sum


# %% tags=["exercise"]
def softmax(scores):
    """Softmax along the last axis, as the formula is written.

    Args:
        scores: shape (..., T, S).

    Returns:
        Weights of the same shape; each row sums to 1.
    """
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


# %% [markdown] tags=["hint"]
# `x.sum(dim=-1)` removes the axis it sums over. With `keepdim=True` the axis stays, with length 1, and the
# division repeats it along the row.

# %%
labs.check_softmax(softmax)

# %% tags=["slips"]
slips = [
    ("sum(dim=-1", "sum(dim=-2", "summed over the queries"),
    ("sum(dim=-1, keepdim=True)", "sum()", "all nine weights together"),
    ("scores.exp()", "scores.relu() + 1", "a lead of 1 must multiply a weight by e"),
    ("scores.exp()", "2**scores", "natural exponential"),
    ("/ exponentials.sum(dim=-1, keepdim=True)", "", "divide by the sum"),
]

# %% [markdown]
# ## The same weights, without overflow
#
# In float32, $e^{s}$ is infinite from about $s = 89$ on, and infinity over infinity is NaN. But a constant
# added to all scores of a row cancels:
#
# $$\frac{e^{s_j - m}}{\sum_l e^{s_l - m}} = \frac{e^{-m} e^{s_j}}{e^{-m} \sum_l e^{s_l}} = \alpha_j .$$
#
# Take for $m$ the largest score of the row. No exponent is then positive, and one of them is 0, so that the
# sum is at least 1.
#
# ### Exercise 1.2 · Subtract the largest


# %% tags=["exercise"]
def stable_softmax(scores):
    """Softmax along the last axis that no finite score can break.

    Args:
        scores: shape (..., T, S).

    Returns:
        Weights of the same shape; each row sums to 1.
    """
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    exponentials = shifted.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


# %% [markdown] tags=["hint"]
# `amax` takes `dim` and `keepdim` as `sum` does. Why is one largest score for the whole matrix not enough?
# Think of a row far below the others: all its exponentials become 0.

# %%
labs.check_stable_softmax(stable_softmax)

# %% tags=["slips"]
slips = [
    ("scores - scores.amax(dim=-1, keepdim=True)", "scores", "scores of 1000 give NaN"),
    ("scores.amax(dim=-1, keepdim=True)", "scores.max()", "each row needs its own largest score"),
    ("scores.amax(dim=-1", "scores.amin(dim=-1", "not its smallest"),
]

# %% [markdown]
# ## Temperature
#
# Dividing all scores by a **temperature** $\tau > 0$ before the softmax sets how fierce the competition is:
# $\alpha_i / \alpha_j = e^{(s_i - s_j) / \tau}$. Cold sharpens, heat evens out.
#
# ### Exercise 1.3 · A softmax with a temperature


# %% tags=["exercise"]
def tempered(scores, temperature):
    """Softmax of the scores at a temperature, along the last axis.

    Args:
        scores: shape (..., T, S).
        temperature: a positive number, in the unit of the scores.

    Returns:
        Weights of the same shape; each row sums to 1.
    """
    return stable_softmax(scores / temperature)


# %% [markdown] tags=["hint"]
# You have a stable softmax. What must it be given, so that a lead of $\tau$ multiplies a weight by $e$?

# %%
labs.check_temperature(tempered)

# %% tags=["slips"]
slips = [
    ("scores / temperature", "scores * temperature", "do not multiply"),
    ("stable_softmax(scores / temperature)", "stable_softmax(scores) / temperature", "not the weights"),
    ("scores / temperature", "scores", "is it used?"),
    ("scores / temperature", "scores / temperature**2", "acts twice"),
]

# %%
scores = torch.tensor([1.2, 4.5, 2.0, 0.8])
fig, ax = plt.subplots()
for side, temperature, colour in zip((-1, 0, 1), (0.5, 2.0, 8.0), plot.PALETTE):
    weights = tempered(scores, temperature)
    ax.bar(torch.arange(4).numpy() + 0.27 * side, weights.numpy(), 0.25, color=colour, label=f"{temperature:g}")
ax.set_xticks(range(4), [f"{score:.1f}" for score in scores])
ax.set(title="Cold sharpens, heat evens out", xlabel="score", ylabel="weight", ylim=(0, 1.05))
ax.legend(title="temperature")
fig.set_label(
    "Bars of the weights of four scores at three temperatures: the coldest gives nearly all to the largest score, "
    "the hottest hardly tells the four apart."
)
plt.show()

# %% [markdown]
# ## The mixture
#
# With the values as rows of $V$, the output of query $i$ is $y_i = \sum_j \alpha_{ij} v_j$. Only $j$, the
# key, is summed over. The page [One product mixes every head](../gallery/1_mixtures/batched_heads.md) does
# it for many heads at once.
#
# ### Exercise 1.4 · Mix the values


# %% tags=["exercise"]
def mixture(weights, values):
    """One mixture of the values for each query.

    Args:
        weights: shape (..., T, S).
        values: shape (..., S, d_v).

    Returns:
        Shape (..., T, d_v).
    """
    return weights @ values


# %% [markdown] tags=["hint"]
# A sum over the last axis of one factor and the last but one of the other is a matrix product. `@` repeats
# it for all axes before those two.

# %%
labs.check_mixture(mixture)

# %% tags=["slips"]
slips = [
    ("weights @ values", "weights.mT @ values", "over the queries"),
    ("weights @ values", "weights @ values.mT", "must not be transposed"),
    ("weights @ values", "weights * values", "entry by entry"),
]

# %% [markdown]
# ## Inside the hull
#
# Look in a direction $u$. No mixture of values is farther out than the farthest value:
#
# $$u \cdot y = \sum_j \alpha_j \, u \cdot v_j \le \max_j u \cdot v_j .$$
#
# A point lies in the convex hull if this holds for **every** direction. With the directions of the axes
# alone, it is only the test for the bounding box. [A mixture never leaves the convex
# hull](../gallery/1_mixtures/convex_combination.md) shows the difference.
#
# ### Exercise 1.5 · How far outside?


# %% tags=["exercise"]
def excess(points, values, directions):
    """How far each point lies beyond the values, in the direction where it is worst.

    Args:
        points: shape (n, d_v).
        values: shape (S, d_v).
        directions: shape (m, d_v).

    Returns:
        Shape (n,): the largest, over the directions u, of u · point − max_j u · v_j.
    """
    reach = (values @ directions.T).amax(dim=0)
    return (points @ directions.T - reach).amax(dim=1)


# %% [markdown] tags=["hint"]
# `values @ directions.T` has a row for each value and a column for each direction. Which axis does
# $\max_j$ run along? And which axis of `points @ directions.T` holds the directions?

# %%
labs.check_excess(excess)

# %% tags=["slips"]
slips = [
    ("amax(dim=0)", "amin(dim=0)", "not with the nearest"),
    ("reach).amax(dim=1)", "reach).amin(dim=1)", "use the worst direction"),
    ("reach).amax(dim=1)", "reach).amax(dim=0)", "one number for each point"),
]

# %% [markdown]
# ## Everything together
#
# Random scores, your softmax, your mixture: a thousand outputs, none of them outside.

# %%
values = torch.tensor([[1.0, 1.0], [4.0, 0.5], [5.0, 4.5], [1.5, 4.0]])
angles = torch.arange(0, 360, 5).deg2rad()
directions = torch.stack([angles.cos(), angles.sin()], dim=1)
outputs = mixture(tempered(torch.randn(1000, 4, generator=generator), 0.4), values)
claims.below(
    "lab 1: no mixture of 1000 is beyond the values in any of 72 directions", excess(outputs, values, directions), 1e-5
)

fig, ax = plt.subplots()
ax.fill(*values.T.numpy(), color=plot.BLUE, alpha=0.12, linewidth=0)
ax.scatter(*outputs.T.numpy(), s=3, color=plot.VERMILLION, linewidth=0, rasterized=True)
ax.scatter(*values.T.numpy(), s=36, color=plot.BLUE, zorder=3)
ax.set(title="A thousand outputs, all inside", aspect="equal", xlabel="first feature", ylabel="second feature")
fig.set_label(f"A quadrilateral spanned by four values, filled with {len(outputs)} mixtures; none lies outside.")
plt.show()

# %% [markdown]
# ## Summary
#
# - Softmax sums over the keys: the last axis. A wrong axis keeps the shape, and only the sums tell.
# - Subtracting each row's largest score changes no weight and prevents every overflow.
# - Temperature divides scores. Applied to weights it would break their sum.
# - Non-negative weights that sum to 1 keep every output in the hull, wherever the weights come from.
#
# Where these weights come from is the subject of the next lab.
