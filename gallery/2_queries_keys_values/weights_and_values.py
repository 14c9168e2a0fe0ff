r"""
# Softmax runs along the keys: every query has one unit of weight to spend

Scores become weights row by row, and weights mix the values row by row. This page does both by hand,
shows how a score steers the output, and what breaks when softmax runs along the other axis.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), equation 1;
[Locatello et al. (2020)](../../references.md#locatello2020), section 2.1, for softmax along the queries.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["row_stochastic", "compatibility"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention, attention_scores, causal_mask, claims, plot, softmax

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## From scores to weights to output, by hand
#
# For $T$ queries and $S$ keys, each row of scores becomes a row of weights, and each row of weights one
# output:
#
# $$\alpha_{ij} = \frac{e^{s_{ij}}}{\sum_{l=1}^{S} e^{s_{il}}}, \qquad
# y_{ie} = \sum_{j=1}^{S} \alpha_{ij} v_{je}, \qquad Y = A V .$$
#
# The sum runs over keys: the last axis of the scores, `dim=-1`. Two queries and two keys can be done on
# paper. With $q = (\ln 2, 0)$ and $k = (0, 1)$, one feature each,
#
# $$\begin{pmatrix} s_{ij} \end{pmatrix} = \begin{pmatrix} 0 & \ln 2 \\ 0 & 0 \end{pmatrix}, \quad
# \begin{pmatrix} e^{s_{ij}} \end{pmatrix} = \begin{pmatrix} 1 & 2 \\ 1 & 1 \end{pmatrix}, \quad
# A = \begin{pmatrix} \tfrac13 & \tfrac23 \\ \tfrac12 & \tfrac12 \end{pmatrix}, \quad
# A \begin{pmatrix} 3 & 0 \\ 0 & 6 \end{pmatrix} = \begin{pmatrix} 1 & 4 \\ \tfrac32 & 3 \end{pmatrix}.$$

q, k = torch.tensor([[math.log(2)], [0.0]]), torch.tensor([[0.0], [1.0]])
small_out, small_weights = attention(q, k, torch.tensor([[3.0, 0.0], [0.0, 6.0]]))

claims.close(
    "scores (0, ln 2), (0, 0) give weights ⅓, ⅔ and ½, ½", small_weights, [[1 / 3, 2 / 3], [1 / 2, 1 / 2]], atol=1e-14
)
claims.close(
    "weights ⅓, ⅔ and ½, ½ mix (3, 0), (0, 6) to (1, 4), (1.5, 3)", small_out, [[1.0, 4.0], [1.5, 3.0]], atol=1e-14
)

# %%
# ## Four queries, five keys
#
# The sizes of the three roles are tied in two places only: queries and keys share the width $d_k$, keys
# and values share the number $S$. The key decides how much, the value decides what, and the index $j$ holds
# them together: pairs of key and value may be shuffled freely, but not one without the other.

T, S, d_k, d_v = 4, 5, 3, 2
q, k = torch.randn(T, d_k), torch.randn(S, d_k)
v = torch.tensor([[0.0, 0.0], [4.0, 0.5], [5.0, 3.0], [2.5, 4.5], [-0.5, 3.0]])
out, weights = attention(q, k, v)
for name, tensor in {"q": q, "k": k, "v": v, "weights": weights, "out": out}.items():
    print(f"{name:8}{tuple(tensor.shape)}")

share = [math.exp(sum(q[0, d] * k[j, d] for d in range(d_k)) / math.sqrt(d_k)) for j in range(S)]
row_0 = [sum(share[j] / sum(share) * v[j, e] for j in range(S)) for e in range(d_v)]
by_torch = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
shuffled = torch.tensor([3, 1, 4, 0, 2])
together, apart = attention(q, k[shuffled], v[shuffled])[0], attention(q, k[shuffled], v)[0]
column_sums = weights.sum(dim=0)

claims.close("each of the four queries spends one unit of weight", weights.sum(dim=-1), 1.0, atol=1e-14)
claims.above(
    "the most wanted of five keys gets over 1.2 times the least wanted", column_sums.max() / column_sums.min(), 1.2
)
claims.close("output 0 is the sum over j of α_0j v_j, written out", out[0], row_0, atol=1e-14)
claims.close("torch's attention function mixes the five values in the same way", by_torch, out, atol=1e-14)
claims.close("shuffling keys and values together changes no output", together, out, atol=1e-14)
claims.above("shuffling the keys alone moves some output by more than 0.5", (apart - out).abs().max(), 0.5)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.5))
image = plot.heatmap(ax, weights, annotate=".2f", vmin=0.0)
ax.set(title="Rows sum to 1, columns do not", xticks=range(S), yticks=range(T))
fig.colorbar(image, label="weight", shrink=0.9)
fig.set_label(
    f"Table of the weights of {T} queries over {S} keys, the number in each cell. Every row sums to 1; the sums of "
    f"the columns run from {column_sums.min():.2f} to {column_sums.max():.2f}."
)

# %%
# ## Row 0, seen in the plane
#
# The values have two features, so they can be drawn. Output 0 lies at the centre of mass of the five points
# once each carries the weight that query 0 gives it. The centre of mass is the point about which the
# weighted arms balance:
#
# $$\sum_j \alpha_{0j} (v_j - y_0) = 0 .$$

balance = sum(weights[0, j] * (v[j] - out[0]) for j in range(S))
claims.close("the weighted arms from output 0 to the values balance", balance, 0.0, atol=1e-14)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.4))
for point, weight in zip(v, weights[0]):
    ax.plot(*torch.stack([out[0], point]).T.numpy(), color=plot.BLUE, linestyle="-", linewidth=12 * weight.item())
    away = 1 if point[1] > out[0, 1] else -1  # each number on the side that its line does not reach
    ax.annotate(
        f"{weight:.2f}", point.tolist(), xytext=(0, 14 * away), textcoords="offset points", ha="center", va="center"
    )
ax.scatter(*v.T.numpy(), s=36, color=plot.BLUE, zorder=3, label="values, with their weights")
ax.scatter(*out[0].numpy(), s=150, color=plot.VERMILLION, marker="*", zorder=4, label="output 0")
ax.set(
    title="An output is the centre of mass", xlabel="feature 0", ylabel="feature 1", xlim=(-1.2, 5.7), ylim=(-0.9, 6.6)
)
ax.legend(loc="upper left")
fig.set_label(
    f"Five values in the plane, each joined to output 0 by a line as thick as its weight. The output sits among "
    f"them, at ({out[0, 0]:.2f}, {out[0, 1]:.2f}), drawn towards the heaviest, of weight {weights[0].max():.2f}."
)

# %%
# ## A score pulls the output towards its value
#
# What does it do to output $i$ if score $s_{ij}$ grows a little? With
# $\partial \alpha_{il} / \partial s_{ij} = \alpha_{il} (\delta_{lj} - \alpha_{ij})$,
#
# $$\frac{\partial y_i}{\partial s_{ij}} = \sum_l \alpha_{il} (\delta_{lj} - \alpha_{ij})\, v_l
# = \alpha_{ij} (v_j - y_i).$$
#
# The output moves straight towards $v_j$, at a rate proportional to the weight the value already has: a
# neglected key is hard to learn to attend to. Summed over $j$ the pulls cancel, since the arms balance, so
# adding one number to a whole row of scores changes nothing.

scores = attention_scores(q, k)
by_autograd = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=-1) @ v, scores[1])  # (e, j)
pull = weights[1][:, None] * (v - out[1])

claims.close("raising a score moves the output by α_ij (v_j − y_i)", by_autograd.T, pull, atol=1e-14)
claims.close("adding 3 to a whole row of scores leaves its weights alone", softmax(scores + 3), weights, atol=1e-14)

# %%
# ## Along the other axis queries compete instead
#
# `softmax(scores, dim=-2)` has the right shape and raises no error. Then each key spends one unit over the
# queries, and three promises are broken. In the example by hand the rows of weights become
# $(\tfrac12, \tfrac23)$ and $(\tfrac12, \tfrac13)$, with sums $\tfrac76$ and $\tfrac56$: no mixtures any more.
# Values that all agree do not come out as they went in. And each output depends on every query, so that a
# causal mask no longer keeps the future out: a later query takes weight away from an earlier one.
#
# In Slot Attention this competition is the purpose: there the slots, which are the queries, share out each
# input among them. The rows are normalised afterwards.

wrong_rows = softmax(torch.tensor([[0.0, math.log(2)], [0.0, 0.0]]), dim=-2).sum(dim=-1)
claims.close("along the queries, the rows of weights sum to 7/6 and 5/6", wrong_rows, [7 / 6, 5 / 6], atol=1e-14)

X = torch.randn(6, d_k)  # six tokens that serve as queries, keys and values
last_query_changed = X.clone()
last_query_changed[-1] *= 5


def causal_output(queries, dim):
    """Output of causal attention whose softmax runs along ``dim``."""
    scores = attention_scores(queries, X).masked_fill(~causal_mask(6), float("-inf"))
    return softmax(scores, dim=dim) @ X


moved = {dim: (causal_output(last_query_changed, dim) - causal_output(X, dim))[:-1].abs().max() for dim in (-1, -2)}
print(f"a change of query 5 moves outputs 0 to 4 by {moved[-1]:.1e} along the keys, {moved[-2]:.1e} along the queries")
claims.close("along the keys, causal outputs 0 to 4 do not depend on query 5", moved[-1], 0.0, atol=1e-14)
claims.above("along the queries, query 5 moves an earlier causal output by more than 0.01", moved[-2], 0.01)
claims.close("agreeing values of 1 come out as 1 along the keys", attention(q, k, torch.ones(S, 1))[0], 1.0, atol=1e-14)
claims.above(
    "agreeing values of 1 come out wrong along the queries, by more than 0.1",
    (softmax(scores, dim=-2).sum(-1) - 1).abs().max(),
    0.1,
)

# %%
# ## Try it
#
# - Write `q = 20 * torch.randn(T, d_k)`: most rows of the table turn almost one-hot, and output 0 moves onto
#   the value that was heaviest.
# - Write `q = torch.zeros(T, d_k)`: all weights are equal, and the claim about the most wanted key stops
#   the page.
# - Move value 2 far away, to $(20, 20)$: output 0 follows a short way, by its small weight, and the weights do not
#   notice.
