# %% [markdown]
# # Lab 3 · A causal head, and proof that it is one
#
# You hide the future from a head, and write three tests that would catch it looking: by changing a token, by the
# gradient, and by permuting. The last one has a trap. About 50 minutes.
#
# **Goal.** At the end you can mask a head, and you have tests for it that fail for a bad head. Needed:
# [lab 2](../labs/2_heads.ipynb).

# %%
import matplotlib.pyplot as plt
import torch

from attnkit import attention, claims, labs, plot

plt.style.use("attnkit.paper")
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Who may see whom
#
# A language model predicts the next token, so position $i$ may see positions $j \le i$ and nothing later. A mask is
# a matrix of booleans, a row for each query, a column for each key, and True means **may see**.
# The page [on masking](../gallery/3_causal_head/masking.md) says where libraries read it the other way round.
#
# ### Exercise 3.1 · The causal mask


# %% tags=["exercise"]
def mask_of(T):
    """The causal mask.

    Args:
        T: number of tokens.

    Returns:
        Boolean, shape (T, T); entry (i, j) is True if query i may see key j.
    """
    place = torch.arange(T)
    return place <= place[:, None]


# %% [markdown] tags=["hint"]
# Compare a row of positions with a column of positions: `place[:, None]` is the column, and its index is the row of
# the mask, the query.

# %%
labs.check_causal_mask(mask_of)

# %% tags=["slips"]
slips = [
    ("place <= place[:, None]", "place >= place[:, None]", "position 2 see position 3"),
    ("place <= place[:, None]", "place < place[:, None]", "no position sees itself"),
    ("place <= place[:, None]", "place > place[:, None]", "the future only"),
    ("place <= place[:, None]", "(place <= place[:, None]).double()", "a mask is boolean"),
]

# %% [markdown]
# ## Mask before the softmax
#
# A hidden key gets the score $-\infty$. Since $e^{-\infty} = 0$ it takes no weight, and no share of the denominator:
#
# $$\alpha_{ij} = \frac{e^{s_{ij}}}{\sum_{l \le i} e^{s_{il}}} \quad (j \le i).$$
#
# ### Exercise 3.2 · Weights over the past


# %% tags=["exercise"]
def masked_weights(scores, mask):
    """Softmax over the keys that a query may see.

    Args:
        scores: shape (..., T, S).
        mask: boolean, shape (T, S); True means may see.

    Returns:
        Weights, shape (..., T, S); exactly 0 at hidden keys.
    """
    visible = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(visible, dim=-1)


# %% [markdown] tags=["hint"]
# `x.masked_fill(where, value)` returns a new tensor. It fills where its mask is **True**, and you fill what is hidden.

# %%
labs.check_masked_weights(masked_weights)

# %% tags=["slips"]
slips = [
    ("masked_fill(~mask, -torch.inf)", "mul(mask)", "a score of 0 is no mask"),
    ("visible, dim=-1)", "scores, dim=-1) * mask", "before the softmax"),
    ("~mask", "mask", "the wrong side is hidden"),
    ("-torch.inf", "-1e9", "no finite fill"),
    ("visible, dim=-1)", "scores, dim=-1)", "no effect"),
]

# %% [markdown]
# ## Proof by perturbation
#
# If no output depends on a later token, then changing token $t$ must leave the outputs $0, \dots, t - 1$ as they are,
# to the last bit: a weight of exactly 0 times anything finite is 0.
# [A causal head](../gallery/3_causal_head/causal_head.md) proves this and what follows.
#
# ### Exercise 3.3 · Change a token and look back


# %% tags=["exercise"]
def leaks(head, x, t):
    """Whether changing token t moves an earlier output.

    Args:
        head: a function from shape (T, d) to shape (T, d_v).
        x: tokens, shape (T, d); left as they are.
        t: the position to change.

    Returns:
        True if an output before t moved.
    """
    changed = x.clone()
    changed[t] += 1.0
    return not torch.equal(head(changed)[:t], head(x)[:t])


# %% [markdown] tags=["hint"]
# Work on `x.clone()`. `torch.equal` asks for equality in every bit, and `[:t]` are the outputs before position $t$.

# %%
labs.check_perturbation(leaks)

# %% tags=["slips"]
slips = [
    ("head(changed)[:t], head(x)[:t]", "head(changed), head(x)", "a causal head is accused"),
    ("x.clone()", "x", "work on a clone"),
    ("changed[t] += 1.0", "pass", "a head without a mask passes"),
    ("head(changed)[:t], head(x)[:t]", "head(changed)[t - 1], head(x)[t - 1]", "a leak to position 0 is missed"),
]

# %% [markdown]
# ## Proof by gradient
#
# The same, for all small changes at once: $\partial y_i / \partial x_j = 0$ for every $j > i$. One backward pass from
# output $i$ gives the gradient at all tokens.
#
# ### Exercise 3.4 · How far the gradient reaches


# %% tags=["exercise"]
def reach(head, x, i):
    """Norm of the gradient of output i, summed over its features, at every token.

    Args:
        head: a function from shape (T, d) to shape (T, d_v).
        x: tokens, shape (T, d).
        i: the output to start from.

    Returns:
        Shape (T,).
    """
    leaf = x.clone().requires_grad_()
    head(leaf)[i].sum().backward()
    return leaf.grad.norm(dim=-1)


# %% [markdown] tags=["hint"]
# Make a leaf with `x.clone().requires_grad_()`, call `backward()` on one number made from output $i$, and read
# `leaf.grad`.

# %%
labs.check_gradient(reach)

# %% tags=["slips"]
slips = [
    ("head(leaf)[i].sum()", "head(leaf).sum()", "start from output i alone"),
    ("norm(dim=-1)", "abs().amax(dim=-1)", "the largest entry"),
    ("norm(dim=-1)", "square().sum(dim=-1)", "the root of that"),
    ("norm(dim=-1)", "norm()", "one number for each token"),
]

# %%
T = 8
x = torch.randn(T, 16, generator=generator)
table = torch.stack([reach(lambda x: attention(x, x, x, mask_of(T))[0], x, i) for i in range(T)])
claims.close("lab 3: above the diagonal all 28 gradients are exactly 0", table.triu(1), 0.0, atol=0)
claims.above("lab 3: up to the diagonal every gradient is there", table[mask_of(T)], 0.0)

fig, ax = plt.subplots(figsize=(4.8, 3.8))
image = plot.heatmap(ax, table, xlabel="token", ylabel="output")
fig.colorbar(image, ax=ax, label="norm of the gradient")
ax.set_title("No gradient reaches the future")
fig.set_label(f"Gradient norms of {T} outputs at {T} tokens: a lower triangle, blank above the diagonal.")
plt.show()

# %% [markdown]
# ## Order, and the trap
#
# Without a mask, attention treats its tokens as a set: permute them, and the outputs are permuted along,
# $f(PX) = P f(X)$. Position vectors $R$ are added so that order can be seen. A test that permutes the rows of
# $X = E + R$ **always** passes, since each row carries its position along. To find out, permute the tokens $E$
# and leave $R$ where it is. [Self-attention sees no order](../gallery/3_causal_head/equivariance.md) has the proof.
#
# ### Exercise 3.5 · Does it see order?


# %% tags=["exercise"]
def order_blind(head, embedding, positions, order):
    """Whether the outputs move with their tokens, and do nothing else.

    Args:
        head: a function from shape (T, d) to shape (T, d_v).
        embedding: the tokens' vectors, shape (T, d).
        positions: the vector of each place, shape (T, d).
        order: a permutation of the tokens, shape (T,).

    Returns:
        True if permuting the tokens permutes the outputs, up to rounding.
    """
    before = head(embedding + positions)
    after = head(embedding[order] + positions)
    return torch.allclose(after, before[order])


# %% [markdown] tags=["hint"]
# `x[order]` is $PX$. Which of `embedding` and `positions` moves when words change places? And with what should the
# new outputs be compared, if each follows its token?

# %%
labs.check_order(order_blind)

# %% tags=["slips"]
slips = [
    ("embedding[order] + positions", "(embedding + positions)[order]", "That is the trap"),
    ("before[order]", "before", "compared in the new order"),
    ("before = head(embedding + positions)", "before = head(embedding)", "in both runs"),
    ("embedding[order] + positions", "embedding[order] + positions[order]", "That is the trap"),
]

# %% [markdown]
# ## Summary
#
# - $j \le i$, with equality, and True means may see. Hidden scores are $-\infty$, before the softmax.
# - A changed token must leave earlier outputs equal in every bit; the gradient says the same for all small changes.
# - A test is worth as much as the fault it catches: permuting rows passes for every layer.
