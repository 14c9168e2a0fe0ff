r"""
# One head looks up a value by its key

Self-attention is a dictionary whose lookup is soft. Built by hand, its error falls exponentially in the size of
the scores; learned from examples, one head finds the matching item in unseen sequences.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), sections 3.2 and 3.2.1;
[Graves, Wayne and Danihelka (2014)](../../references.md#graves2014), section 3.3.1.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["scaling", "causal_head"]

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from attnkit import Head, attention, attention_scores, claims, fit, lookup_batch, plot

plt.style.use("attnkit.paper")
torch.set_num_threads(1)  # sums in one order, whatever the machine
seed = 0
torch.manual_seed(seed)

# %%
# ## By construction
#
# Store $n$ values under orthonormal keys, $k_i \cdot k_j = \delta_{ij}$, which needs $d_k \ge n$, and ask with
# $q = \beta k_m$, at `scale=1`. The matching score is $\beta$, all others are 0, and
#
# $$\alpha_m = \frac{e^{\beta}}{e^{\beta} + n - 1} = \frac{1}{1 + (n-1)e^{-\beta}} .$$
#
# The output misses $v_m$ by $\sum_{j \ne m} \alpha_j (v_j - v_m)$, so by the triangle inequality
#
# $$\lVert \mathrm{out} - v_m \rVert \le (1 - \alpha_m) \max_{j} \lVert v_j - v_m \rVert
# \le 2 (n-1) e^{-\beta} \max_j \lVert v_j \rVert .$$
#
# The worst case is $v_j = -v_m$ for all others: its error is $2 (1 - \alpha_m) \lVert v_m \rVert$, which is the
# bound times $\alpha_m$. The last form of the bound is therefore tight for large $\beta$. At the default scale
# $1/\sqrt{d_k}$ the query has to be $\sqrt{d_k}$ times as long.

n, d_k, d_v = 6, 16, 5
keys = torch.linalg.qr(torch.randn(d_k, n, dtype=torch.float64)).Q.T  # orthonormal rows
values = torch.randn(n, d_v, dtype=torch.float64)
opposite = torch.cat([values[:1], -values[:1].expand(n - 1, d_v)])
betas = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64)
longest = values.norm(dim=-1).max()

by_hand = [attention(beta * keys, keys, values, scale=1) for beta in betas]
match = torch.stack([weights.diagonal() for _, weights in by_hand])  # (beta, query)
error = torch.stack([(out - values).norm(dim=-1) for out, _ in by_hand])
bound = 2 * (n - 1) * torch.exp(-betas) * longest
worst = torch.stack([(attention(beta * keys[:1], keys, opposite, scale=1)[0][0] - values[0]).norm() for beta in betas])
for beta, alpha, e, b in zip(betas, match[:, 0], error.max(1).values, bound):
    print(f"beta {beta:4.0f}   match weight {alpha:.6f}   largest error {e:.1e}   bound {b:.1e}")

claims.close(
    "with orthonormal keys the match weight is 1/(1 + (n - 1) exp(-beta))",
    match,
    1 / (1 + (n - 1) * torch.exp(-betas))[:, None],
    atol=1e-14,
)
claims.close(
    "at the default scale and d_k 16 the same match weight takes a beta four times as large",
    torch.stack([attention(4 * beta * keys, keys, values)[1].diagonal() for beta in betas]),
    match,
    atol=1e-14,
)
claims.close("six keys and beta 4 give a match weight of 0.916105", match[2], 0.9161048, atol=1e-7)
claims.holds("the lookup error is at most 2(n - 1) exp(-beta) times the longest value", error <= bound[:, None])
claims.close(
    "values opposite to the match are looked up with error 2(n - 1) exp(-beta) times match weight times length",
    worst,
    2 * (n - 1) * torch.exp(-betas) * values[0].norm() * match[:, 0],
    atol=1e-14,
)

# %%
# ## Keys that are not orthonormal
#
# Only the **margin** matters. If the matching score leads every other by at least $\beta$, then
# $\alpha_m \ge 1/(1 + (n-1)e^{-\beta})$, for any keys, scores and scale, and the bound on the error stands. For
# keys of length 1 with cosines of at most $c < 1$, the query $\gamma k_m$ has the margin $\gamma (1 - c)$: as many
# keys as one likes fit in $d_k$ dimensions, at the price of a larger $\gamma$.

crowd = normalize(torch.randn(40, d_k, dtype=torch.float64), dim=-1)  # more keys than dimensions
cosine = (crowd @ crowd.T).fill_diagonal_(-1).max()
gamma = 20.0
_, weights = attention(gamma * crowd, crowd, crowd, scale=1)
guaranteed = 1 / (1 + (len(crowd) - 1) * torch.exp(-gamma * (1 - cosine)))
print(f"{len(crowd)} keys in {d_k} dimensions, largest cosine {cosine:.3f}")
print(f"match weight guaranteed {guaranteed:.3f}, smallest {weights.diagonal().min():.3f}")

claims.holds(
    "forty keys in sixteen dimensions are looked up with the guaranteed weight", weights.diagonal() >= guaranteed
)

# %%
# ## Learned
#
# Now nobody sets the keys. A sequence holds six items, whose keys are different ones out of eight, and a query for
# one of them. Held-out sequences come from a generator that training never uses.

n_items, n_keys, n_values = 6, 8, 8
held_out = torch.Generator().manual_seed(1000 + seed)
keys, values, query, target = lookup_batch(1000, held_out)
drawn_again = lookup_batch(1000, torch.Generator().manual_seed(1000 + seed))
item = (keys == query[:, None]).int().argmax(1)

claims.holds("no two items of a lookup sequence have the same key", one_hot(keys, n_keys).sum(1) <= 1)
claims.holds("the keys of the lookup task are drawn from eight", keys.unique() == torch.arange(n_keys))
claims.close("every sequence of the lookup task holds six items", keys.shape[1], n_items, atol=0)
claims.holds("the values of the lookup task are drawn from eight", values.unique() == torch.arange(n_values))
claims.holds(
    "the answer to a lookup is the value of the item whose key is asked for", values[keys == query[:, None]] == target
)
for name, first, second in zip(("keys", "values", "queries", "answers"), (keys, values, query, target), drawn_again):
    claims.close(f"the same seed draws the same {name} to look up", second, first, atol=0)

# %%
# Query included, a sequence has seven tokens. An item is the sum of an embedding of its key and an embedding of its
# value; the query token has a key and, in place of a value, a mark. One [head](../3_causal_head/causal_head.md)
# without mask, without position vectors and without a residual connection attends over all seven tokens, and a
# linear map reads the answer from the output at the query. $W_Q$ and $W_K$ have to compare keys and ignore values,
# $W_V$ has to do the opposite, and the query must not find itself, whose key matches too.


class Lookup(nn.Module):
    """One head that answers at the last token."""

    def __init__(self, d_model=32):
        super().__init__()
        self.key, self.value = nn.Embedding(n_keys, d_model), nn.Embedding(n_values + 1, d_model)  # the last: a mark
        self.head = Head(d_model, d_model)
        self.answer = nn.Linear(d_model, n_values)

    def tokens(self, keys, values, query):
        """Items and query as vectors, shape (B, 7, d_model)."""
        query = query[:, None]
        return self.key(torch.cat([keys, query], 1)) + self.value(torch.cat([values, query * 0 + n_values], 1))

    def forward(self, keys, values, query):
        """Logits of the answer, shape (B, n_values), and the weights, shape (B, 7, 7)."""
        out, weights = self.head(self.tokens(keys, values, query))
        return self.answer(out[:, -1]), weights


model, training = Lookup(), torch.Generator().manual_seed(seed)


def loss():
    """Cross-entropy of the answers in a fresh batch."""
    *sequence, target = lookup_batch(64, training, n_items=n_items, n_keys=n_keys, n_values=n_values)
    return cross_entropy(model(*sequence)[0], target)


fit(model, loss, steps=400, lr=1e-2)

with torch.no_grad():
    logits, weights = model(keys, values, query)
    x = model.tokens(keys, values, query)
    scores = attention_scores(model.head.query(x), model.head.key(x))[:, -1]
row = weights[:, -1]  # of the query token
mass = row.gather(1, item[:, None]).squeeze(1)
others = scores.scatter(1, item[:, None], -torch.inf).amax(1)
margin = scores.gather(1, item[:, None]).squeeze(1) - others
accuracy = (logits.argmax(-1) == target).float().mean()
found = (row.argmax(-1) == item).float().mean()
print(f"accuracy {accuracy:.3f}   largest weight on the match {found:.3f}   mean mass there {mass.mean():.4f}")
print(f"mean mass on itself {row[:, -1].mean():.4f}   margin {margin.min():.1f} to {margin.max():.1f}")

claims.above("the learned lookup answers more than 99 in 100 held-out queries", accuracy, 0.99)
claims.above("the query's largest weight is on the matching item in more than 99 of 100 cases", found, 0.99)
claims.above("on average more than 0.95 of the query's weight is on the matching item", mass.mean(), 0.95)
claims.holds(
    "each learned match weight is at least what its margin guarantees",
    mass >= 1 / (1 + n_items * torch.exp(-margin)) - 1e-6,
)

# %%
# ## The order of the items is no information
#
# Without positions a head treats its tokens as a set: shuffling the items shuffles the weights and leaves the
# answer as it is. For a dictionary that is right, and here it holds by construction, not by training.

shuffle = torch.randperm(n_items, generator=held_out)
with torch.no_grad():
    logits_shuffled, _ = model(keys[:, shuffle], values[:, shuffle], query)
shown = torch.randint(len(keys), (), generator=held_out).item()
labels = [f"{'abcdefgh'[k]}{v}" for k, v in zip(keys[shown].tolist(), values[shown].tolist())]
labels.append(f"{'abcdefgh'[query[shown]]}?")
print("the example drawn by lot:", " ".join(labels), " answer", logits[shown].argmax().item())

claims.close("shuffling the items of the dictionary leaves every answer as it is", logits_shuffled, logits, atol=1e-4)
claims.holds("the example drawn by lot is looked up right", logits[shown].argmax() == target[shown])

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.9))
image = plot.heatmap(ax, weights[shown], x=labels, y=labels, vmax=1)
ax.add_patch(
    plt.Rectangle(
        (-0.5, n_items - 0.5), n_items + 1, 1, fill=False, edgecolor=plot.VERMILLION, linewidth=2.5, clip_on=False
    )
)
ax.set_title("Only the boxed row is asked for an answer")
fig.colorbar(image, label="weight")
fig.set_label(
    f"Heat map of the learned weights of seven tokens, six items and the query, whose row is boxed. In that row "
    f"nearly all the weight is on the item with the same key, {labels[item[shown]]}."
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 2.5))
colours = [plot.VERMILLION if j == item[shown] else plot.BLUE for j in range(n_items + 1)]
ax.bar(labels, row[shown].numpy(), color=colours)
ax.set(
    title=f"The query {labels[-1]} finds {labels[item[shown]]}",
    xlabel="key",
    ylabel="weight",
    ylim=(0, 1.02),
    yticks=(0, 0.5, 1),
)
fig.set_label(
    f"Bars of the query's weights over the seven tokens: {mass[shown]:.3f} on the matching item, next to nothing "
    "on the others and on the query itself."
)

# %%
# ## Try it
#
# - Let `n` be 12 in place of 6: the match weights fall, and the pinned one stops the page. To keep them, $\beta$ has
#   to grow by $\ln \frac{n' - 1}{n - 1}$ with $n' = 12$.
# - Train with `d_model=4`, fewer dimensions than keys or values: the accuracy falls, for both have to share the
#   room.
# - Take the mark away, `query * 0` in place of `query * 0 + n_values`. Now a query equals an item that holds the
#   value 0. Where that is the match, the two tokens are the same vector and share the weight evenly; the answers
#   are still right, but the mean mass on the match falls below the claim.
