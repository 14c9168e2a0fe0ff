r"""
# Every position takes its own mixture, and mixing again and again makes all agree

With one row of weights for each position, mixing is a matrix product whose matrix is
**row-stochastic**. This page shows what every such product keeps, that products of mixtures are
mixtures, and why repeating one of them leaves the same vector at every position.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), equation 1;
[Horn and Johnson (2013)](../../references.md#horn2013), section 8.7, for stochastic matrices;
[Grinstead and Snell (1997)](../../references.md#grinstead1997), section 11.4, for their powers;
[Dobrushin (1956)](../../references.md#dobrushin1956), for the contraction by overlap;
[Dong et al. (2021)](../../references.md#dong2021), for what this means in deep attention.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["convex_combination"]

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from attnkit import claims, plot, softmax

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One row, one mixture
#
# Give each of $T$ positions its own weights, position $i$ the row $A_{i1}, \dots, A_{iT}$. Its output
# is its own convex combination of the same values, and all outputs together are one product:
#
# $$y_i = \sum_{j=1}^{T} A_{ij} v_j, \qquad Y = AV, \qquad A_{ij} \ge 0, \quad A \mathbf{1} = \mathbf{1}.$$
#
# The last equation, with $\mathbf{1}$ the vector of ones, says that every *row* sums to 1; such an $A$
# is called **row-stochastic**. Softmax over the keys, the last axis, makes one from any scores. Columns
# may sum to anything: the sum of column $j$ is how much position $j$ is read by all.
#
# The small example can be checked by hand: scores $\begin{pmatrix} 0 & 0 \\ 0 & \ln 3 \end{pmatrix}$
# give the rows $(\tfrac12, \tfrac12)$ and $(\tfrac14, \tfrac34)$, which mix the values 4 and 8.

T, d_v = 5, 4
V = torch.randn(T, d_v)
A = softmax(torch.randn(T, T))
Y = torch.einsum("ij,je->ie", A, V)

looped = torch.stack([sum(A[i, j] * V[j] for j in range(T)) for i in range(T)])
small = softmax(torch.tensor([[1.0, 1.0], [1.0, 3.0]]).log())
print("rows of A sum to   ", *(f"{s:.2f}" for s in A.sum(1)))
print("columns of A sum to", *(f"{s:.2f}" for s in A.sum(0)))

claims.close("the weights of each of 5 positions sum to 1", A.sum(1), 1.0, atol=1e-14)
claims.close("the matrix product mixes as a loop over positions and values does", Y, looped, atol=1e-14)
claims.close(
    "rows (1/2, 1/2) and (1/4, 3/4) mix the values 4 and 8 into 6 and 7",
    small @ torch.tensor([4.0, 8.0]),
    torch.tensor([6.0, 7.0]),
    atol=1e-14,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.9))
plot.heatmap(ax, A, annotate=".2f", xlabel="key: whose value is read", ylabel="query: whose output it is")
ax.set_title("Each row is a mixture of its own")
fig.set_label(
    f"A {T} by {T} matrix of weights with their numbers. Every row sums to one; the columns do not, "
    f"position {A.sum(0).argmax()} is read most and position {A.sum(0).argmin()} least."
)

# %%
# ## What one step keeps
#
# Read $Y = AV$ column by column: each feature of the output is a weighted mean of that feature of the
# values, so no feature leaves the range it had,
#
# $$\min_j V_{je} \le Y_{ie} \le \max_j V_{je}.$$
#
# If all positions hold the same vector $c$, then $V = \mathbf{1} c^\top$, and
# $A \mathbf{1} c^\top = \mathbf{1} c^\top$: what all agree on passes unchanged, whatever the weights.

constant = torch.randn(d_v).expand(T, d_v)

claims.holds("no feature leaves the range of its column of V", (V.amin(0) <= Y) & (V.amax(0) >= Y))
claims.close("a vector that all positions share passes any A unchanged", A @ constant, constant, atol=1e-14)

# %%
# ## Mixtures of mixtures are mixtures
#
# If $A$ and $B$ are row-stochastic, the entries of $AB$ are sums of products of non-negative numbers,
# and $AB\mathbf{1} = A\mathbf{1} = \mathbf{1}$. So two layers that only mix are one layer that mixes.
#
# The eigenvalues say the same. $A\mathbf{1} = \mathbf{1}$ is the eigenvalue 1, and no other is larger:
# if $Ax = \lambda x$, then at the entry of $x$ that is largest in magnitude
#
# $$|\lambda|\, |x_i| = \Bigl| \sum_j A_{ij} x_j \Bigr| \le \sum_j A_{ij} |x_j| \le |x_i|.$$

B = softmax(torch.randn(T, T))
magnitudes = torch.linalg.eigvals(A).abs().sort(descending=True).values
print("magnitudes of the eigenvalues:", *(f"{m:.3f}" for m in magnitudes))

claims.close("a product of row-stochastic matrices has rows that sum to 1", (A @ B).sum(1), 1.0, atol=1e-14)
claims.holds("a product of row-stochastic matrices is non-negative", A @ B >= 0)
claims.close("the largest eigenvalue of a row-stochastic matrix is 1", magnitudes[0], 1.0, atol=1e-14)

# %%
# ## Repetition ends in agreement
#
# How far can two outputs be apart? Take two rows $a$ and $b$ of $A$. Their **overlap** is
# $\omega = \sum_j \min(a_j, b_j)$. What both give to the same value cancels in the difference. What is
# left of each row sums to $1 - \omega$, so it gives $1 - \omega$ times a point of the hull, $p$ or $p'$:
#
# $$\lVert aV - bV \rVert = (1 - \omega) \lVert p - p' \rVert
# \le (1 - \omega) \max_{j, l} \lVert v_j - v_l \rVert.$$
#
# So with $\omega$ the smallest overlap of any two rows, one step shrinks the largest distance between
# positions to at most $1 - \omega$ of what it was, and $n$ steps to at most $(1 - \omega)^n$. Softmax of
# finite scores has no zeros, so $\omega > 0$, and since no output leaves the hull of the outputs before
# it, all positions converge to one vector. This holds for every $V$, so
#
# $$A^n \longrightarrow \mathbf{1} \pi \quad (n \to \infty), \qquad \pi A = \pi, \quad \pi \mathbf{1} = 1:$$
#
# a matrix of rank one, all of whose rows are $\pi$. For the small example $\omega = \tfrac34$, the
# distance of 4 between the values shrinks to exactly a quarter, and $\pi = (\tfrac13, \tfrac23)$.
#
# The bound fears the worst pair of rows at every step. The rate in the long run is set by the second largest
# magnitude of an eigenvalue. With the real and imaginary parts of an eigenvector as the columns of $V$,
# the bound says that it is at most $1 - \omega$.


def smallest_overlap(matrix):
    """What the two most different rows have in common."""
    return torch.minimum(matrix[:, None], matrix).sum(-1).amin()


steps = [V]
for _ in range(12):
    steps.append(A @ steps[-1])
distance = torch.stack([torch.pdist(x).amax() for x in steps])
bound = distance[0] * (1 - smallest_overlap(A)) ** torch.arange(13)
for n in range(0, 13, 3):
    print(f"after {n:2} steps the largest distance is {distance[n]:.1e}, the bound {bound[n]:.1e}")

power = torch.linalg.matrix_power(A, 60)
equations = torch.cat([A.T - torch.eye(T), torch.ones(1, T)])  # pi A = pi, and pi sums to 1
pi = torch.linalg.lstsq(equations, torch.eye(T + 1)[:, -1:]).solution.T

claims.holds("n mixing steps leave at most (1 − overlap)ⁿ of the largest distance", distance <= bound)
claims.holds("no eigenvalue but 1 exceeds 1 − overlap in magnitude", magnitudes[1:] <= 1 - smallest_overlap(A))
claims.close("rows (1/2, 1/2) and (1/4, 3/4) overlap by 3/4", smallest_overlap(small), 0.75, atol=1e-14)
claims.below("A⁶⁰ is of rank one: its second singular value is rounding", torch.linalg.svdvals(power)[1], 1e-14)
claims.close("every row of A⁶⁰ is the solution of π A = π", power, pi, atol=1e-14)
claims.close(
    "the 60th power of (1/2, 1/2; 1/4, 3/4) has the rows (1/3, 2/3)",
    torch.linalg.matrix_power(small, 60),
    torch.tensor([1.0, 2.0]) / 3,
    atol=1e-14,
)

# %%

shown = torch.stack(steps[:7])[..., 0]
limit = (pi @ V)[0, 0]
fig, ax = plt.subplots()
ax.plot(shown.numpy(), color=plot.BLUE, linestyle="-", marker="o", markersize=4, linewidth=1.2)
ax.axhline(limit.item(), color=plot.VERMILLION, linestyle="--")
ax.annotate("mean weighted by π", (6, limit.item()), xytext=(0, 5), textcoords="offset points", ha="right")
ax.set(title="Five positions end in one value", xlabel="mixing steps", ylabel="first feature")
fig.set_label(
    f"The first feature of {T} positions over {len(shown) - 1} mixing steps with the same matrix: lines that start "
    "apart run into one horizontal line, the weighted mean that all positions agree on."
)

# %%
# ## What this means for attention
#
# Attention layers do not share one $A$: each computes its own from what it is given. The product of
# all of them is still row-stochastic. Dong et al. prove that a stack of attention layers without skip
# connections and feed-forward layers loses the difference between positions doubly exponentially in
# depth, under a bound on the weight matrices, and that skip connections prevent it.
#
# ## How a map of weights is read, and checked
#
# The maps on this site are drawn as a matrix is printed: queries downwards, keys to the right. The darkest blue is
# the weight 0, and the colours get lighter as the weight grows, for every kind of colour vision
# ([Nuñez et al., 2018](../../references.md#nunez2018)). Where the sign of the data matters, 0 is white.
#
# A figure is a result, and may be wrong like any other. Is each number in its own cell, and can it be read there?
# The contrast of two colours with relative luminances $L > L'$ is $(L + 0.05) / (L' + 0.05)$
# ([W3C, 2023](../../references.md#w3c2023)). For black and for white on a cell of luminance $L$ it is
#
# $$\frac{L + 0.05}{0.05} \quad\text{and}\quad \frac{1.05}{L + 0.05} .$$
#
# Their product is 21, whatever $L$. One of the two is therefore at least $\sqrt{21} \approx 4.58$ on every colour,
# more than the $4.5$ that readable text needs. We check it on the map of this page and on both scales from end to
# end.


def luminance(rgb):
    """Relative luminance of colours, from 0 for black to 1 for white."""
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ torch.tensor([0.2126, 0.7152, 0.0722])


def cells_and_numbers(ax):
    """Luminances of the cells of a map, and of the numbers written into them."""
    cells = ax.images[0].to_rgba(ax.images[0].get_array())[..., :3].reshape(-1, 3)
    return luminance(torch.tensor(cells)), luminance(torch.tensor([to_rgb(text.get_color()) for text in ax.texts]))


mixtures = plot.heatmap(Figure().add_subplot(), A, annotate=".2f").axes  # the map above
whole_scale = plot.heatmap(Figure().add_subplot(), torch.linspace(0, 1, 201)[None], annotate=".2f").axes
signed_scale = plot.heatmap(Figure().add_subplot(), torch.linspace(-2, 2, 201)[None], annotate=".2f", signed=True).axes
contrasts = []
for drawn in (mixtures, whole_scale, signed_scale):
    pair = torch.stack(cells_and_numbers(drawn)) + 0.05
    contrasts.append(pair.amax(0) / pair.amin(0))
    print(f"contrast of {pair.shape[1]:3} numbers with their cells: at least {contrasts[-1].min():.2f}")
written = {text.get_position(): float(text.get_text()) for text in mixtures.texts}
lightness = cells_and_numbers(whole_scale)[0]
named = plot.heatmap(Figure().add_subplot(), A[:2, :3], x="abc", y="qr").axes
labels = [[label.get_text() for label in axis.get_ticklabels()] for axis in (named.xaxis, named.yaxis)]

claims.close(
    "the number in row i and column j of the map is the weight of query i and key j",
    [[written[j, i] for j in range(T)] for i in range(T)],
    A,
    atol=0.005,
)
claims.holds("every number on a map has the better of the two contrasts", torch.cat(contrasts) >= 21**0.5)
claims.holds("the larger the weight, the lighter its cell", lightness.diff() > 0)
claims.close(
    "the colours of the map run from 0 to its largest weight", mixtures.images[0].get_clim(), (0.0, A.max()), atol=0
)
claims.close(
    "the colours of signed data are those of numbers from −2 to 2", signed_scale.images[0].get_clim(), (-2, 2), atol=0
)
claims.above("in the map of signed data 0 is as good as white", cells_and_numbers(signed_scale)[0][100], 0.9)
claims.holds("keys are named along the map and queries down it", labels == [["a", "b", "c"], ["q", "r"]])
claims.close("row 0 is at the top of the map", mixtures.get_ylim(), (T - 0.5, -0.5), atol=0)

# %%
# ## Try it
#
# - Normalise the other axis, `softmax(torch.randn(T, T), dim=0)`: the columns sum to 1, the rows do
#   not, and the first claim fails.
# - Hide the future, `softmax(torch.randn(T, T).masked_fill(~causal_mask(T), -torch.inf))`, with
#   `causal_mask` from attnkit. Every claim holds, and all positions end at the first value: position 0
#   reads only itself, so $\pi = (1, 0, \dots, 0)$.
# - Sharpen the weights, `softmax(6 * torch.randn(T, T))`. Two rows now hardly overlap, the bound allows
#   almost no shrinking, and after 60 steps the rank is not yet one to rounding: that claim fails.
