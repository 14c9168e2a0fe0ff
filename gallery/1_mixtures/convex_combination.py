r"""
# A mixture never leaves the convex hull of its values

Attention returns a weighted average of value vectors. This page shows what that alone guarantees:
wherever the weights come from, the output lies inside the convex hull of the values.

*Sources:* [Boyd and Vandenberghe (2004)](../../references.md#boyd2004), section 2.1.4;
[Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.
"""

# mkdocs_gallery_order = 1

import matplotlib.pyplot as plt
import torch

from attnkit import claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The mixture
#
# Take values $v_1, \dots, v_S \in \mathbb{R}^{d_v}$ and weights $\alpha_1, \dots, \alpha_S$ that are
# non-negative and sum to 1. Their **convex combination** is
#
# $$y = \sum_{j=1}^{S} \alpha_j v_j = \alpha V, \qquad \alpha_j \ge 0, \quad \sum_j \alpha_j = 1,$$
#
# with the values as the rows of $V$. The sum and the matrix product are the same numbers in
# another order, so we compute both.

V = torch.tensor([[1.0, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 1]])
alpha = torch.tensor([0.4, 0.1, 0.2, 0.3])

y = torch.einsum("j,je->e", alpha, V)
looped = sum(a * v for a, v in zip(alpha, V))
print("y =", y)

claims.holds("the mixture's weights are non-negative", alpha >= 0)
claims.close("the mixture's weights sum to 1", alpha.sum(), 1.0, atol=1e-14)
claims.close("the sum over values equals the product of weights and V", looped, y, atol=1e-14)
claims.close("the mixture of the four values is (0.7, 0.5, 0.9)", y, torch.tensor([0.7, 0.5, 0.9]), atol=1e-14)

# %%
# ## Inside the hull, by half-planes
#
# The **convex hull** of the values is the set of all their convex combinations, so $y$ is in it by
# definition. To *check* that, we need a description of the hull that does not mention weights. In the
# plane it is this: for corners $c_1, \dots, c_n$ in counter-clockwise order, a point $p$ lies in the
# hull if and only if it is left of every edge,
#
# $$(c_{i+1} - c_i) \times (p - c_i) \ge 0 \quad \text{for all } i,$$
#
# where $a \times b = a_x b_y - a_y b_x$. A bounding box would be a weaker test: it accepts points
# that no mixture can reach.

corners = torch.tensor([[1.0, 1.0], [4.0, 0.5], [5.0, 4.5], [1.5, 4.0]])  # counter-clockwise


def distance_inside(points):
    """Signed distance of each point to the nearest edge line; negative outside the hull."""
    edges = corners.roll(-1, 0) - corners
    to_point = points[:, None] - corners
    cross = edges[:, 0] * to_point[..., 1] - edges[:, 1] * to_point[..., 0]
    return (cross / edges.norm(dim=1)).amin(dim=1)


weights = torch.distributions.Dirichlet(torch.ones(4)).sample((1000,))
mixtures = weights @ corners
with_a_negative_weight = torch.tensor([[-0.5, 0.0, 1.5, 0.0]]) @ corners  # sums to 1, no convex combination
corner_of_the_box = torch.stack([corners[:, 0].amin(), corners[:, 1].amax()])[None]

claims.above("1000 mixtures lie inside every edge of the hull", distance_inside(mixtures), -1e-12)
claims.below("a negative weight can take the sum out of the hull", distance_inside(with_a_negative_weight), 0.0)
claims.below("the bounding box holds points outside the hull", distance_inside(corner_of_the_box), 0.0)

# %%

fig, ax = plt.subplots()
ax.fill(*corners.T.numpy(), color=plot.BLUE, alpha=0.12, linewidth=0)
ax.plot(*corners[[0, 1, 2, 3, 0]].T.numpy(), color=plot.BLUE, linestyle="-", label="convex hull")
ax.scatter(*mixtures.T.numpy(), s=3, color=plot.VERMILLION, linewidth=0, label="mixtures", rasterized=True)
ax.scatter(*corners.T.numpy(), s=36, color=plot.BLUE, zorder=3)
for (x, z), side in zip(corners.tolist(), ("top", "top", "bottom", "bottom")):
    ax.annotate(
        f"({x:g}, {z:g})",
        (x, z),
        xytext=(0, -7 if side == "top" else 7),
        textcoords="offset points",
        ha="center",
        va=side,
    )
ax.set(title="Every mixture stays inside", aspect="equal", xlim=(0, 8.2), ylim=(-0.3, 5.4))
ax.legend(loc="center right")
fig.set_label(
    f"A quadrilateral spanned by four values in the plane, filled with {len(mixtures)} random mixtures: "
    "none lies outside, and they thin out towards the corners."
)

# %%
# ## No mixture is longer than its longest value
#
# The triangle inequality gives a bound that holds in any dimension and for any norm:
#
# $$\lVert y \rVert \le \sum_j \alpha_j \lVert v_j \rVert \le \max_j \lVert v_j \rVert.$$
#
# Attention alone therefore cannot blow up an activation. The second step is an equality only if all
# the weight sits on values of the largest norm; a one-hot $\alpha$ on the longest value attains it.

longest = corners.norm(dim=1).argmax()
one_hot = torch.eye(4)[longest]

claims.holds("no mixture is longer than its longest value", mixtures.norm(dim=1) <= corners.norm(dim=1).max())
claims.close(
    "a one-hot weight on the longest value attains the norm bound",
    (one_hot @ corners).norm(),
    corners.norm(dim=1).max(),
    atol=1e-14,
)

# %%
# ## The mixture as the nearest point to all values
#
# Which single vector $c$ stands best for all the values, if a squared error on $v_j$ costs
# $\alpha_j$? Setting the gradient of $f(c) = \sum_j \alpha_j \lVert v_j - c \rVert^2$ to zero,
#
# $$-2 \sum_j \alpha_j (v_j - c) = 0 \quad\Longrightarrow\quad c = \sum_j \alpha_j v_j = y,$$
#
# and since the weights sum to 1, $f(c) = f(y) + \lVert c - y \rVert^2$: the mixture is the only
# minimum.

rivals = y + torch.randn(1000, 3)


def cost(c):
    """Weighted squared error of standing in for all values."""
    return (alpha * (V - c[..., None, :]).square().sum(-1)).sum(-1)


at_mixture = y.clone().requires_grad_()
cost(at_mixture).backward()
claims.close("the weighted squared error is flat at the mixture", at_mixture.grad, 0.0, atol=1e-14)
claims.close(
    "moving away from the mixture costs the squared distance",
    cost(rivals) - cost(y),
    (rivals - y).square().sum(-1),
    atol=1e-12,
)

# %%
# ## What a tick is worth
#
# Every tick on this site is a claim that a script has checked. A claim that is false raises an error, and a script
# that stops has no page. Below are eight that must not hold; each refusal says why, and where entries can be told
# apart, which one was worst. The last four are the treacherous ones: a bound that is only just reached, a column
# held against a row, where every pair would be compared, a claim about nothing, and one about NaN, which no tolerance
# covers. What held is kept for the [list of all claims](../../claims.md), with its number and its bound.

kept = claims.records[-1]  # of the claim above
lengths = corners.norm(dim=1)
false_claims = {
    "worst at (0,)": lambda: claims.close("the first edge has no length", corners[1], corners[0], atol=1.0),
    "first at (0,)": lambda: claims.holds("every corner lies right of the first", corners[:, 0] > 1.0),
    f"worst at ({lengths.argmax()},)": lambda: claims.below("every corner is nearer to 0 than 5", lengths, 5.0),
    f"allowed > {2.0:g}": lambda: claims.above("every corner is farther from 0 than 2", lengths, 2.0),
    f"allowed < {0.5:g}": lambda: claims.below("one half is below itself", 0.5, 0.5),
    "shapes": lambda: claims.close("a column is a row", corners[:, :1], corners[:, 0], atol=9.0),
    "empty": lambda: claims.close("nothing is everything", corners[:0], 1.0, atol=9.0),
    "nan": lambda: claims.close("nothing divided by nothing is 0", torch.zeros(1) / 0, 0.0, atol=9.0),
}
refusals = []
for claim in false_claims.values():
    try:
        claim()
    except claims.ClaimError as refusal:
        refusals.append(str(refusal))
        print(refusal)
reasons = [reason in refusal for reason, refusal in zip(false_claims, refusals)]

# Asked twice: if close refused nothing, close could not tell, and the same goes for holds.
claims.close("of eight false claims eight are refused", len(refusals), 8, atol=0)
claims.holds("no false claim goes through", len(refusals) == len(false_claims))
claims.close("each refusal says what is wrong", reasons, 1, atol=0)
claims.holds("every corner lies right of the origin", corners[:, 0] > 0)
cases = claims.records[-1].measured
claims.close(
    "a condition is kept with the number of its cases, 4",
    [int(word) for word in cases.split() if word.isdigit()],
    [4],
    atol=0,
)
parts = kept.statement.startswith("moving"), kept.measured.startswith("off by"), kept.allowed.startswith("allowed")
claims.close("the list keeps what was claimed, what was measured and what was allowed", parts, 1, atol=0)
claims.below("a number is printed in full where rounding would make it its bound", 0.5 - 1e-9, 0.5)
claims.below("the number in print is below its bound of one half", float(claims.records[-1].measured), 0.5)

# %%
# ## Try it
#
# - Put a fifth value inside the hull: the hull stays as it is, the mixtures move towards the middle.
# - Sample the weights with `Dirichlet(0.2 * torch.ones(4))`: most mixtures now hug the corners and
#   edges, as attention does when its scores are large.
# - Replace the half-plane test by the bounding box and search for a point on which the two disagree.
