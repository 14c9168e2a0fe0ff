r"""
# One product mixes every head of every sequence, and other weights give the same output

A model mixes for $B$ sequences and $H$ heads at once. This page shows that the batched product is the
same sum $B \times H$ times over, what every output therefore keeps, and two reasons why a row of
weights is no full explanation of the output it made.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.2;
[Rockafellar (1970)](../../references.md#rockafellar1970), section 17, for Carathéodory's theorem;
[Brunner et al. (2020)](../../references.md#brunner2020), section 3, for weights that are not unique;
[Jain and Wallace (2019)](../../references.md#jain2019) and
[Wiegreffe and Pinter (2019)](../../references.md#wiegreffe2019), for the debate.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["row_stochastic"]

import matplotlib.pyplot as plt
import torch

from attnkit import claims, plot, softmax

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The same sum, B times H times
#
# Sequence $b$ and head $h$ have their own values and their own weights, and each row of weights is a
# softmax over the keys. With two more indices the mixture is the sum it was:
#
# $$Y_{bhie} = \sum_{j=1}^{T} A_{bhij} V_{bhje}.$$
#
# Only $j$ is summed over. The indices $b$ and $h$ stand on both factors and on the result, so no
# sequence and no head ever reads another. In code it is one product: `@` multiplies the last two axes
# and repeats that for all axes before them.

B, H, T, d_v = 2, 3, 5, 4
v = torch.randn(B, H, T, d_v)
scores = torch.randn(B, H, T, T)
weights = softmax(scores)
out = weights @ v

print(f"{'object':8} {'domain':26} {'axes':14} {'shape':13} role")
for name, domain, axes, tensor, role in (
    ("values", "real", "B, H, T, d_v", v, "what is mixed, a row for each key"),
    ("scores", "real", "B, H, T, T", scores, "how much a query asks for a key"),
    ("weights", "at least 0, rows sum to 1", "B, H, T, T", weights, "share of a value in an output"),
    ("output", "hull of the head's values", "B, H, T, d_v", out, "the mixture of each query"),
):
    print(f"{name:8} {domain:26} {axes:14} {tuple(tensor.shape)!s:13} {role}")

looped = torch.zeros(B, H, T, d_v)
for b in range(B):
    for h in range(H):
        for i in range(T):
            for j in range(T):
                looped[b, h, i] += weights[b, h, i, j] * v[b, h, j]

numbered = 100 * torch.arange(B).view(B, 1, 1, 1) + 10 * torch.arange(H).view(H, 1, 1) + torch.arange(T).view(T, 1)
means = torch.tensor([[2.0, 12.0, 22.0], [102.0, 112.0, 122.0]])[..., None, None]

claims.close("the batched product equals loops over batch, head, query and key", out, looped, atol=1e-14)
claims.close("every row of weights of every head and sequence sums to 1", weights.sum(-1), 1.0, atol=1e-14)
claims.close(
    "equal weights mix 100b + 10h + j, j < 5, into 100b + 10h + 2",
    softmax(torch.zeros(B, H, T, T)) @ numbered.double(),
    means,
    atol=1e-13,
)

# %%

fig, axes = plt.subplots(B, H, figsize=(4.8, 3.5), sharex=True, sharey=True)
for (b, h), ax in zip(torch.cartesian_prod(torch.arange(B), torch.arange(H)).tolist(), axes.flat):
    image = plot.heatmap(
        ax,
        weights[b, h],
        vmax=weights.max().item(),
        xlabel="key" if b == B - 1 else "",
        ylabel=f"sequence {b}\nquery" if h == 0 else "",
    )
    ax.set(title=f"head {h}" if b == 0 else "", xticks=range(T), yticks=range(T))
fig.colorbar(image, ax=axes, label="weight", shrink=0.8, ticks=[0, 0.2, 0.4, 0.6])
fig.suptitle("Six mixtures in one product", fontsize=10.5)
fig.set_label(
    f"{B * H} matrices of weights, {B} sequences in rows and {H} heads in columns, each {T} by {T} "
    "and each with a pattern of its own."
)

# %%
# ## What every head keeps
#
# **Attention aggregates.** Its output is made of values and of nothing else. For given weights the
# derivative of an output by a value is the weight between them, in the same sequence, head and
# feature, and zero everywhere else:
#
# $$\frac{\partial Y_{bhie}}{\partial V_{b'h'je'}} = \delta_{bb'}\, \delta_{hh'}\, \delta_{ee'}\, A_{bhij}.$$
#
# **Bounds are kept.** No feature leaves the range it had among the values of its head, and no output
# is longer than the longest value.
#
# **The space is kept.** Weights act on the token axis, from the left, and never mix features. A linear
# map $M$ of the features acts from the right, and matrix products may be bracketed either way:
#
# $$(AV)M = A(VM).$$
#
# So outputs have the features of the values, in their units, and any linear equation that all values
# satisfy, all outputs satisfy too. Features are mixed elsewhere, by the linear maps around attention.

jacobian = torch.autograd.functional.jacobian(lambda v: weights @ v, v)
eye_b, eye_h, eye_e = torch.eye(B), torch.eye(H), torch.eye(d_v)
expected = torch.einsum("bc,hg,ef,bhij->bhiecgjf", eye_b, eye_h, eye_e, weights)
feature_map = torch.randn(d_v, 7)
low, high = v.amin(-2, keepdim=True), v.amax(-2, keepdim=True)

claims.close("an output depends on values of its own sequence, head and feature only", jacobian, expected, atol=1e-14)
claims.holds("in every head each feature stays in the range of its values", (low <= out) & (high >= out))
claims.holds(
    "in every head no output is longer than the longest value", out.norm(dim=-1).amax(-1) <= v.norm(dim=-1).amax(-1)
)
claims.close("mixing tokens and mapping features commute", out @ feature_map, weights @ (v @ feature_map), atol=1e-14)

# %%
# ## A large weight need not matter
#
# What happens to an output if key $j$ is deleted? Its score becomes $-\infty$ and the other weights grow
# by the same factor, to $\alpha_l / (1 - \alpha_j)$. So the old output is
# $y = \alpha_j v_j + (1 - \alpha_j)\, y_{-j}$, with $y_{-j}$ the new one, and
#
# $$y_{-j} - y = \frac{\alpha_j}{1 - \alpha_j}\, (y - v_j).$$
#
# The effect is a product: the odds of the weight, times how far the value lies from the output. The
# second factor is not in the weights, so the key of largest weight need not be the one that matters
# most. Take the values 1, 0, 2 with the weights $\tfrac12, \tfrac14, \tfrac14$: the output is 1, and
# without the key that holds half of the weight it is $(0 + 2) / 2$, again 1.

visible = torch.arange(T) != torch.arange(T)[:, None]  # row j hides key j
masked = scores[..., None, :].masked_fill(~visible, -torch.inf)
change = softmax(masked) @ v[..., None, :, :] - out[..., None, :]
odds = weights / (1 - weights)
by_formula = odds[..., None] * (out[..., None, :] - v[..., None, :, :])
surprises = change.norm(dim=-1).argmax(-1) != weights.argmax(-1)
print(f"in {surprises.sum()} of {surprises.numel()} rows, deleting the key of largest weight is not what changes most")

small_scores, small_v = torch.tensor([2.0, 1.0, 1.0]).log(), torch.tensor([1.0, 0.0, 2.0])
half_quarters = torch.tensor([0.5, 0.25, 0.25])
without_first = small_scores.masked_fill(torch.tensor([True, False, False]), -torch.inf)
small_out = softmax(torch.stack([small_scores, without_first])) @ small_v

claims.close("deleting a key moves the output by its odds times (y − v)", change, by_formula, atol=1e-14)
claims.close("scores ln 2, 0, 0 give the weights 1/2, 1/4, 1/4", softmax(small_scores), half_quarters, atol=1e-14)
claims.close("1, 0, 2 with scores ln 2, 0, 0 give 1, with or without the first key", small_out, 1.0, atol=1e-14)

# %%
# ## Other weights, the same output
#
# Nor do output and values determine the weights. For $S$ keys, a change $z$ of the weights $\alpha$
# keeps the output $\alpha V$ and the sum 1 if and only if
#
# $$z V = 0 \quad \text{and} \quad z \mathbf{1} = 0, \qquad \text{that is} \quad [V, \mathbf{1}]^\top z^\top = 0.$$
#
# These are $d_v + 1$ equations, independent for almost every $V$, in $S$ unknowns: the solutions form
# a space of dimension $S - d_v - 1$, which for 12 keys and $d_v = 4$ is 7. The weights must stay
# non-negative as well. Softmax weights are all positive, so every solution with
# $\lVert z \rVert \le \min_j \alpha_j$ is allowed: the valid rows with this output contain a whole ball
# around $\alpha$, in 7 dimensions.
#
# How different can they be? Go from $\alpha$ along a solution until a weight reaches 0, drop that key,
# and repeat while a solution is left. This proves Carathéodory's theorem: $d_v + 1$ keys are enough. In
# one dimension, $(\tfrac14, \tfrac12, \tfrac14)$ and $(\tfrac12, 0, \tfrac12)$ mix the values 0, 1, 2 alike.

S = 12
v = torch.randn(S, d_v)
alpha = softmax(0.5 * torch.randn(S))
y = alpha @ v
equations = torch.cat([v, torch.ones(S, 1)], dim=1)
solutions = torch.linalg.svd(equations.T).Vh[d_v + 1 :]  # a basis, one solution in each row
directions = torch.nn.functional.normalize(torch.randn(1000, len(solutions)), dim=1) @ solutions
family = alpha + alpha.amin() * directions

few = alpha.clone()
while (used := few.nonzero().squeeze(1)).numel() > d_v + 1:
    z = torch.linalg.svd(equations[used].T).Vh[-1]
    steps = torch.where(z > 0, few[used] / z, torch.inf)  # z sums to 0, so some entry is positive
    few[used] -= steps.amin() * z
    few[used[steps.argmin()]] = 0.0
rows = torch.cat([family, few[None]])
by_hand = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.0, 0.5]]) @ torch.tensor([0.0, 1.0, 2.0])
apart = (alpha - few).abs().sum() / 2
print(f"softmax row and five-key row: {apart:.2f} of the weight moved, output by {(few @ v - y).abs().amax():.0e}")

claims.close(
    "12 values of width 4 and the sum give 5 independent equations", torch.linalg.matrix_rank(equations), 5, atol=0
)
claims.close(
    "alternatives to a row of 12 weights span 7 dimensions around it",
    torch.linalg.matrix_rank(family - alpha),
    7,
    atol=0,
)
claims.holds("1001 alternatives to a row of weights are non-negative", rows >= 0)
claims.close("1001 alternatives to a row of weights sum to 1", rows.sum(-1), 1.0, atol=1e-14)
claims.close("1001 alternatives to a row of weights give its output", rows @ v, y, atol=1e-14)
claims.close("7 of 12 keys can have weight 0 without changing the output", (few == 0).sum(), 7, atol=0)
claims.close("weights 1/4, 1/2, 1/4 and 1/2, 0, 1/2 mix the values 0, 1, 2 into 1", by_hand, 1.0, atol=1e-14)

# %%

fig, ax = plt.subplots()
for side, row, colour, label in ((-1, alpha, plot.BLUE, "softmax"), (1, few, plot.VERMILLION, "five keys only")):
    ax.bar(torch.arange(S).numpy() + 0.2 * side, row.numpy(), 0.4, color=colour, label=label)
ax.set(title="Two rows of weights, one output", xlabel="key", ylabel="weight", xticks=range(S))
ax.legend()
fig.set_label(
    f"Bars for two rows of weights over {S} keys that give the same output: one spreads over all keys, "
    f"the other uses {(few > 0).sum()} keys and leaves the rest at zero."
)

# %%
# ## What follows, and what does not
#
# The weights say exactly what was summed. They do not say what would happen otherwise: that depends on
# the values too, and with more than $d_v + 1$ keys many rows would have done the same. The outputs agree
# for these values only; with others the rows part. Nor can a model set a row freely. Every positive row
# is the softmax of its own logarithm, but all rows of a head share their keys and one width $d_k$. So it
# is disputed what such alternatives prove: Jain and Wallace build other weights with nearly the same
# predictions, Wiegreffe and Pinter object that weights do not stand apart from the model that made them.
#
# ## Try it
#
# - Mix with `weights.mT @ v`: the loops disagree. The pinned example with equal weights would not have
#   noticed, since its matrix is its own transpose.
# - Set `S = 5` in the last example: no solution but 0 is left, so the row of weights is the only one and
#   the claim about 7 dimensions fails.
# - Start it from `alpha = torch.full((S,), 1 / S)`: even the plain mean of 12 values is a mixture of
#   five of them.
