r"""
# A causal head mixes the past and cannot read the future

Three propositions about one head of masked self-attention, each proved in a few lines and then
executed: its weights are a mixture, its outputs stay in the hull of the values seen so far, and no
output depends on a later token, in value or in gradient.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), equation 1 and section 3.2.3;
[Rockafellar (1970)](../../references.md#rockafellar1970), section 1, for barycentric coordinates.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["convex_combination", "weights_and_values"]

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from attnkit import Head, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The head
#
# Tokens $x_0, \dots, x_{T-1}$ are the rows of $X$. Three matrices turn each of them into a query
# $q_i = x_i W_Q$, a key $k_j = x_j W_K$ and a value $v_j = x_j W_V$, and the head is
#
# $$\operatorname{head}(X) = \operatorname{softmax}\left(\operatorname{mask}\left(
# \frac{XW_Q (XW_K)^\top}{\sqrt{d_k}}\right)\right) XW_V,
# \qquad \operatorname{mask}(s)_{ij} = \begin{cases} s_{ij} & j \le i \\ -\infty & j > i. \end{cases}$$
#
# Since $e^{-\infty} = 0$, the formula for one query has no mask left in it, only shorter sums:
#
# $$\alpha_{ij} = \frac{e^{s_{ij}}}{\sum_{l \le i} e^{s_{il}}} \ \text{ for } j \le i, \qquad
# \alpha_{ij} = 0 \ \text{ for } j > i, \qquad y_i = \sum_{j \le i} \alpha_{ij} v_j.$$
#
# `Head` computes the first form; the loop below computes the second, and never touches a later token.

B, T, d_model, d_k = 4, 8, 32, 16
head = Head(d_model, d_k, context=T)
x = torch.randn(B, T, d_model)
out, weights = head(x)

q, k, v = head.query(x), head.key(x), head.value(x)
looped = []
for i in range(T):
    scores = torch.einsum("bd,bjd->bj", q[:, i], k[:, : i + 1]) / math.sqrt(d_k)
    looped.append(torch.einsum("bj,bje->be", torch.softmax(scores, dim=-1), v[:, : i + 1]))

claims.close("the causal head equals a loop over queries and their pasts", out, torch.stack(looped, 1), atol=1e-14)

# %%
# A head small enough for pencil and paper: $d_{\mathrm{model}} = 1$, $d_k = 4$, all projections filled
# with ones. Then $s_{ij} = 4 x_i x_j / \sqrt 4 = 2 x_i x_j$, and $x = (0, a, 2a)$ with $2a^2 = \ln 2$
# gives the scores $(0)$, $(0, \ln 2)$ and $(0, 2 \ln 2, 4 \ln 2)$: weights in the ratios $1 : 2$ and
# $1 : 4 : 16$.
#
# The mask is a constant. As a **buffer** of the module it follows the head to another device, the
# optimiser does not see it, and (being non-persistent here) no checkpoint stores it.

tiny = Head(1, 4, 1, context=3)
for parameter in tiny.parameters():
    nn.init.ones_(parameter)
a = math.sqrt(math.log(2) / 2)
_, by_hand = tiny(torch.tensor([[0.0], [a], [2 * a]]))

claims.close(
    "the head of ones has the weights (1), (1, 2)/3, (1, 4, 16)/21",
    by_hand,
    torch.tensor([[1, 0, 0], [1 / 3, 2 / 3, 0], [1 / 21, 4 / 21, 16 / 21]]),
    atol=1e-14,
)
claims.close("the head learns 3 · 32 · 16 = 1536 numbers", sum(p.numel() for p in head.parameters()), 1536, atol=0)
claims.holds(
    "the mask is a buffer that no checkpoint stores",
    "mask" in dict(head.named_buffers()) and "mask" not in head.state_dict(),
)
claims.holds("the mask follows its head to another device", Head(1, 1, context=2).to("meta").mask.is_meta)

# %%
# ## Proposition 1: the weights are a mixture of the past
#
# *If the visible scores are finite, each row of $A = (\alpha_{ij})$ is non-negative and sums to 1; its
# entries are exactly 0 beyond the diagonal and positive up to it.*
#
# *Proof.* Row $i$ has at least one visible key, its own, so the denominator
# $\sum_{l \le i} e^{s_{il}}$ is positive and finite. Dividing positive numbers by their sum gives
# positive numbers with sum 1; the others are $e^{-\infty} = 0$ over the same sum. $\square$
#
# The zeros survive in floating point, because $e^{-\infty}$ is the number 0. Positivity does so only
# while scores stay within reach of each other: far below the largest of its row, $e^s$ underflows.

visible = torch.ones(T, T, dtype=torch.bool).tril()
print(f"smallest weight on an allowed key: {weights[:, visible].min():.4f}")

claims.close("rows of the causal weights sum to 1", weights.sum(-1), 1.0, atol=1e-14)
claims.holds("causal weights are lower triangular, zeros exact", weights == weights.tril())
claims.above("every allowed key gets a positive weight", weights[:, visible], 0.0)

# %%

fig, ax = plt.subplots(figsize=(4.8, 4.4))
plot.heatmap(ax, weights[0], annotate=".2f", vmax=1.0)
ax.set_title("Each row is a mixture of its past")
fig.set_label(
    f"Weights of one causal head over {T} tokens: zero above the diagonal. The first token has weight 1 on "
    "itself, later rows spread their mass over all earlier tokens, almost evenly in this untrained head."
)

# %%
# ## Proposition 2: the output stays in the hull of the values
#
# *Under the same condition, $y_i$ lies in the convex hull of $v_0, \dots, v_i$.*
#
# *Proof.* By Proposition 1, $y_i = \sum_{j \le i} \alpha_{ij} v_j$ is a convex combination of them. $\square$
#
# To check this from the output, forget the weights and ask for coordinates $\lambda$ of $y_i$ with
# respect to **all** values of the sequence, later ones included:
#
# $$\begin{pmatrix} v_0 & \cdots & v_{T-1} \\ 1 & \cdots & 1 \end{pmatrix} \lambda
# = \begin{pmatrix} y_i \\ 1 \end{pmatrix}.$$
#
# These are $d_v + 1$ equations for $T$ unknowns. If the values are **affinely independent**, which
# says that the matrix has rank $T$, there is at most one solution: the barycentric coordinates of
# $y_i$. Least squares finds it, and $y_i$ lies in the hull of $v_0, \dots, v_i$ if and only if the
# residual is 0, no coordinate is negative, and those beyond $i$ vanish.
#
# Rank $T$ needs $T \le d_v + 1$, and values drawn from a density then have it with probability 1. In
# a longer sequence the coordinates are not unique, and one would have to search for non-negative ones.

system = torch.cat([v, torch.ones(B, T, 1)], dim=-1).mT  # (B, d_v + 1, T)
target = torch.cat([out, torch.ones(B, T, 1)], dim=-1).mT  # one column per query
coordinates = torch.linalg.lstsq(system, target).solution.mT  # (B, query, value)
print(f"smallest singular value of the system: {torch.linalg.svdvals(system).min():.2f}")

claims.holds(f"the {T} values are affinely independent in every sequence", torch.linalg.matrix_rank(system) == T)
claims.close("outputs have barycentric coordinates: the residual is 0", system @ coordinates.mT, target, atol=1e-13)
claims.close("recovered barycentric coordinates sum to 1", coordinates.sum(-1), 1.0, atol=1e-13)
claims.above("recovered barycentric coordinates of the past are positive", coordinates[:, visible], 0.0)
claims.close("recovered barycentric coordinates of the future are 0", coordinates[:, ~visible], 0.0, atol=1e-13)
claims.close("the recovered coordinates are the attention weights", coordinates, weights, atol=1e-13)

# %%
# A weaker test is in use: that each feature of $y_i$ lies between the smallest and the largest value of
# that feature. It tests a bounding box. Here is a point outside the hull that it lets pass.

impostor = torch.full((T,), 1.1 / (T - 1))
impostor[0] = -0.1
outside = impostor @ v  # one point per sequence; the coordinates sum to 1
recovered = torch.linalg.lstsq(system, torch.cat([outside, torch.ones(B, 1)], dim=-1)[..., None]).solution

claims.holds(
    "the bounding box of the values holds a point with a negative coordinate",
    (v.amin(1) <= outside) & (outside <= v.amax(1)),
)
claims.close("least squares finds the negative coordinate, -0.1", recovered.amin(1), -0.1, atol=1e-13)

# %%
# ## Proposition 3: no output depends on a later token
#
# *For finite inputs, $y_i$ is a function of $x_0, \dots, x_i$ alone.*
#
# *Proof.* In $y_i = \sum_{j \le i} \alpha_{ij} v_j$ occur $q_i$, which is made from $x_i$, and $k_j$,
# $v_j$ for $j \le i$, made from $x_j$. $\square$
#
# Executed in the forward direction: replace the token at position 5. Earlier outputs must not move by a
# single bit, for a weight of exactly 0 times a finite value is 0.

changed = x.clone()
changed[:, 5] = torch.randn(B, d_model)
moved, _ = head(changed)
print("largest change per position:", [f"{m:.2g}" for m in (moved - out).abs().amax((0, 2)).tolist()])

claims.holds("a change at position 5 leaves outputs 0 to 4 bitwise identical", moved[:, :5] == out[:, :5])
claims.above("a change at position 5 moves every output from 5 on", (moved - out)[:, 5:].norm(dim=-1), 0.01)

# %%
# It follows that running the head on a prefix gives the outputs of the full run on that prefix. So one
# pass over $T$ tokens trains $T$ predictions at once, each as if the sequence ended there.
#
# *Finite* is a condition, not a phrase: $0 \cdot \infty$ and $0 \cdot \mathrm{NaN}$ are NaN. A masked
# weight does not protect from a value that is no number, such as an uninitialised cache entry.

poisoned = x.clone()
poisoned[:, 5] = float("nan")

claims.close(
    "the head on each prefix gives the outputs of the full run",
    torch.cat([head(x[:, :t])[0][:, -1:] for t in range(1, T + 1)], dim=1),
    out,
    atol=1e-14,
)
claims.holds("a NaN at position 5 does reach outputs 0 to 4", head(poisoned)[0][:, :5].isnan())

# %%
# ## The same in gradients, block by block
#
# Backwards the proposition says $\partial y_i / \partial x_j = 0$ for $j > i$. We can say what it is for
# every pair. Softmax gives $d\alpha_{ij} = \alpha_{ij}\,(ds_{ij} - \sum_l \alpha_{il}\, ds_{il})$, and
# with $\sum_j \alpha_{ij} v_j = y_i$
#
# $$dy_i = \sum_j \alpha_{ij}\, dv_j + \sum_j \alpha_{ij}\,(v_j - y_i)\, ds_{ij}, \qquad
# ds_{ij} = \frac{q_i \cdot dk_j + k_j \cdot dq_i}{\sqrt{d_k}}.$$
#
# Put in the projections (vectors as columns). The token $x_j$ acts as value and key, and for $j = i$
# also as query:
#
# $$\frac{\partial y_i}{\partial x_j} = \alpha_{ij} \left[ W_V^\top
# + \frac{(v_j - y_i)(W_K q_i)^\top}{\sqrt{d_k}} \right]
# + \delta_{ij} \sum_{l} \alpha_{il} \frac{(v_l - y_i)(W_Q k_l)^\top}{\sqrt{d_k}}.$$
#
# Every term carries a weight. Beyond the diagonal the factor $\alpha_{ij}$ is exactly 0, and with it the
# block; up to the diagonal the blocks are non-zero unless the bracket happens to vanish.

leaf = x.clone().requires_grad_()
(head(leaf)[0][:, 3] * torch.randn(B, d_k)).sum().backward()  # a random direction, so that nothing cancels

claims.close("the gradient of output 3 is exactly 0 beyond position 3", leaf.grad[:, 4:], 0.0, atol=0)
claims.above("the gradient of output 3 reaches every position up to 3", leaf.grad[:, :4].norm(dim=-1), 0.01)

jacobian = torch.func.jacrev(lambda x: head(x)[0])(x[0]).detach()  # (query i, feature e, token j, feature m)
blocks = jacobian.permute(0, 2, 1, 3)

W_Q, W_K, W_V = head.query.weight, head.key.weight, head.value.weight  # nn.Linear stores the transposes
spread = weights[0, ..., None] * (v[0] - out[0][:, None]) / math.sqrt(d_k)  # (i, j, e)
formula = torch.einsum("ij,em->ijem", weights[0], W_V) + torch.einsum("ije,id,dm->ijem", spread, q[0], W_K)
formula[range(T), range(T)] += torch.einsum("ije,jd,dm->iem", spread, k[0], W_Q)

claims.close("the Jacobian's blocks are those of the formula", blocks, formula, atol=1e-14)
claims.close("Jacobian blocks beyond the diagonal are exactly 0", blocks[~visible], 0.0, atol=0)
claims.above("Jacobian blocks up to the diagonal are non-zero", blocks[visible].norm(dim=(-2, -1)), 0.01)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.5))
flat = jacobian.reshape(T * d_k, T * d_model)
image = plot.heatmap(ax, flat, signed=True, vmax=flat.abs().quantile(0.99).item())
ax.set(title="The Jacobian is block lower triangular", xlabel="input token", ylabel="output token")
ax.set_xticks([d_model * (j + 0.5) for j in range(T)], range(T))
ax.set_yticks([d_k * (i + 0.5) for i in range(T)], range(T))
for edge in range(1, T):
    ax.axvline(d_model * edge - 0.5, color="grey", linewidth=0.5, linestyle="-")
    ax.axhline(d_k * edge - 0.5, color="grey", linewidth=0.5, linestyle="-")
fig.colorbar(image, ax=ax, location="bottom", shrink=0.7, aspect=30, label="derivative")
fig.set_label(
    f"All {flat.shape[0]} by {flat.shape[1]} derivatives of a causal head, in {T} by {T} blocks. Blocks above the "
    "diagonal are blank; the others are strong where the attention weight is large, and fade towards later outputs, "
    "which share their weight among more tokens."
)

# %%
# ## Try it
#
# - Build the head without `context`: it is no longer causal, and the comparison with the loop fails.
# - Set `T = 20`, more than $d_v + 1$ values: the claim of affine independence fails, and with it the
#   uniqueness of the coordinates.
# - Sharpen the head with `head.query.weight.data *= 100`: rows become nearly one-hot, and some recovered
#   coordinates are too small to keep their sign under rounding. The proposition still holds.
