r"""
# Attention is a kernel smoother with a learned kernel

In 1964, Nadaraya and Watson estimated a curve by averaging its noisy samples, near ones more than far ones.
This page shows that attention is their estimator: a Gaussian kernel is a softmax of dot products, a kernel
of positions is a convolution, and $W_Q$ and $W_K$ make the kernel a thing to be learned. The
[derivation](../../derivations/kernel_smoothing.md) proves each step, with bounds for the limits.

*Sources:* [Nadaraya (1964)](../../references.md#nadaraya1964) and [Watson (1964)](../../references.md#watson1964),
the estimator; [Epanechnikov (1969)](../../references.md#epanechnikov1969) and
[Silverman (1986)](../../references.md#silverman1986), table 3.1, the kernels;
[Tsai et al. (2019)](../../references.md#tsai2019), section 2, attention as a kernel smoother;
[Vaswani et al. (2017)](../../references.md#vaswani2017), equation 1.
"""

# mkdocs_gallery_order = 5
# mkdocs_gallery_builds_on = ["softmax_temperature", "text_patterns"]

import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import LogNorm

from attnkit import Head, attention, causal_mask, claims, nadaraya_watson, plot, positional_kernel

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Averaging what is near
#
# We hold samples $(k_j, v_j)$, $j = 1, \dots, S$, and want the value at a query $q$. Choose the constant $c$
# that fits the samples best if sample $j$ counts $\kappa(u_j) \ge 0$, where $u_j = (q - k_j) / s$ is its
# distance in units of the **bandwidth** $s$. Setting the derivative of $\sum_j \kappa(u_j) (v_j - c)^2$ by $c$
# to zero gives the **Nadaraya–Watson estimator**
#
# $$\hat{y}(q) = \frac{\sum_j \kappa(u_j)\, v_j}{\sum_l \kappa(u_l)}.$$
#
# Wherever the denominator is positive it is a mixture of the values: its weights
# $\kappa(u_j) / \sum_l \kappa(u_l)$ are non-negative and sum to 1. Three kernels in common use:
#
# | kernel | formula $\kappa(u)$ | variance $\int u^2 \kappa(u)\, du$ |
# |---|---|---|
# | Gaussian | $e^{-u^2/2} / \sqrt{2\pi}$ | $1$ |
# | Epanechnikov | $\frac{3}{4} \max(0, 1 - u^2)$ | $1/5$ |
# | triangular | $\max(0, 1 - \lvert u \rvert)$ | $1/6$ |
#
# The constants make each integrate to 1 and cancel in $\hat{y}$; the shapes do not. The triangular kernel has been
# printed under Epanechnikov's name ([Zhang et al. (2023)](../../references.md#zhang2023), section 11.2, did); the
# variances tell them apart. Epanechnikov himself, and Silverman, stretch his by $\sqrt{5}$, to variance 1.

KERNELS = {  # with the distance beyond which each is 0, or negligible
    "Gaussian": (lambda u: torch.exp(-u.square() / 2) / math.sqrt(2 * math.pi), 12.0),
    "Epanechnikov": (lambda u: 0.75 * (1 - u.square()).clamp(min=0), 1.0),
    "triangular": (lambda u: (1 - u.abs()).clamp(min=0), 1.0),
}


def moment(power, kernel, reach):
    """Integral of u to a power times an even kernel: twice the half, by Gauss and Legendre's rule."""
    nodes, node_weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(80))
    u = reach * (nodes + 1) / 2
    return (reach * node_weights * u**power * kernel(u)).sum()


def smooth(kernel, queries, keys, values, bandwidth):
    """The estimator as its formula says, for points on a line."""
    kappa = kernel((queries[:, None] - keys) / bandwidth)
    return (kappa * values).sum(-1) / kappa.sum(-1)


query, keys, values = torch.zeros(1), torch.tensor([0.0, 0.5]), torch.tensor([0.0, 1.0])
estimates = {name: smooth(kernel, query, keys, values, 1.0).item() for name, (kernel, _) in KERNELS.items()}
for name, (kernel, _) in KERNELS.items():
    at = ", ".join(f"{k:.4f}" for k in kernel(torch.tensor([0.0, 0.5, 1.0])).tolist())
    print(f"{name:>12}: {at} at distance 0, 1/2, 1; estimate between two samples {estimates[name]:.4f}")

claims.close(
    "the Gaussian, Epanechnikov and triangular kernels integrate to 1",
    torch.stack([moment(0, *entry) for entry in KERNELS.values()]),
    1.0,
    atol=1e-14,
)
claims.close(
    "the Gaussian, Epanechnikov and triangular kernels have variance 1, 1/5 and 1/6",
    torch.stack([moment(2, *entry) for entry in KERNELS.values()]),
    torch.tensor([1, 1 / 5, 1 / 6]),
    atol=1e-14,
)
claims.close(
    "values 0 and 1 at distances 0 and 1/2 give 3/7 by Epanechnikov's kernel and 1/3 by the triangular one",
    torch.tensor([estimates["Epanechnikov"], estimates["triangular"]]),
    torch.tensor([3 / 7, 1 / 3]),
    atol=1e-14,
)

# %%
# ## The bandwidth decides
#
# `nadaraya_watson` has the Gaussian kernel. A hand-sized check: a sample at distance $s \sqrt{2 \ln 2}$ has
# the kernel $e^{-\ln 2} = 1/2$, half that of a sample at distance 0, so the two mix as $2 : 1$.
#
# As $s \to \infty$ all samples count the same and the estimate tends to the **mean** of the values. As $s \to 0$ it
# tends to the value of the **nearest neighbour**: if $\Delta$ is the gap between the two smallest squared distances,
# no other sample has more than $e^{-\Delta / 2 s^2}$ times the nearest one's kernel. A computer that follows the
# formula sees something else: once the nearest sample is $39 s$ away, all kernels round to 0 in double precision
# and the quotient is $0/0$. Softmax subtracts the largest exponent first and has no such trouble, so
# `nadaraya_watson` is written with it.
#
# Between the limits lies a choice. We sample $\sin x + x/4$ with noise and smooth it with three bandwidths.


def curve(x):
    """What the noisy samples hide."""
    return torch.sin(x) + x / 4


x = (10 * torch.rand(120)).sort().values
y = curve(x) + 0.5 * torch.randn(120)
grid = torch.linspace(0, 10, 201)
bandwidths = (0.05, 0.4, 3.0)
smoothed = torch.stack([nadaraya_watson(grid, x, y, s) for s in bandwidths])
rough, right, flat = (smoothed - curve(grid)).square().mean(dim=1).sqrt()
print("bandwidth:", *bandwidths)
print("root mean square error:", ", ".join(f"{e.item():.3f}" for e in (rough, right, flat)))

squared_distance = (grid[:, None] - x).square()
nearest = y[squared_distance.argmin(dim=1)]
two_smallest = squared_distance.topk(2, largest=False).values
s = 1e-4
print(
    f"kernel of any other sample, relative to the nearest: at most exp({-two_smallest.diff().min() / (2 * s**2):.0f})"
)

claims.close(
    "a sample at distance s·√(2 ln 2) counts half: values 0 and 1 mix to 1/3",
    nadaraya_watson(query, torch.tensor([0.0, 3 * math.sqrt(2 * math.log(2))]), values, bandwidth=3.0),
    1 / 3,
    atol=1e-14,
)
claims.close(
    "the Gaussian smoother equals its formula, kernel by kernel",
    smoothed[1:],
    torch.stack([smooth(KERNELS["Gaussian"][0], grid, x, y, s) for s in bandwidths[1:]]),
    atol=1e-13,
)
claims.close(
    "at infinite bandwidth the smoother returns the mean", nadaraya_watson(grid, x, y, math.inf), y.mean(), atol=1e-14
)
claims.close(
    "at vanishing bandwidth the smoother returns the nearest neighbour",
    nadaraya_watson(grid, x, y, s),
    nearest,
    atol=1e-14,
)
alone = two_smallest[:, 0].sqrt() > 39 * s
claims.holds(
    "at vanishing bandwidth the plain quotient of kernel sums is 0/0 where no sample lies within 39 s",
    smooth(KERNELS["Gaussian"][0], grid, x, y, s)[alone].isnan(),
)
claims.above(
    "of three bandwidths the middle one misses the noiseless curve least, by a third or more",
    torch.minimum(rough, flat) / right,
    4 / 3,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.4))
ax.scatter(x.numpy(), y.numpy(), s=7, color=plot.INK, alpha=0.45, linewidth=0, label="samples")
styles = ((plot.PURPLE, "-", 1), (plot.BLUE, "-", 2.2), (plot.VERMILLION, "--", 1.2))
for estimate, s, (colour, dash, width) in zip(smoothed, bandwidths, styles):
    ax.plot(grid.numpy(), estimate.numpy(), color=colour, linestyle=dash, linewidth=width, label=f"s = {s:g}")
ax.set(title="Too rough, about right, too flat", xlabel="key", ylabel="value")
fig.legend(loc="outside lower center", ncols=4, columnspacing=1.2, handlelength=1.6)
fig.set_label(
    f"Noisy samples of a rising wave and three smoothed curves. Bandwidth {bandwidths[0]:g} jumps from sample to "
    f"sample, {bandwidths[1]:g} follows the wave, {bandwidths[2]:g} is nearly a straight line."
)

# %%
# ## A Gaussian kernel is a softmax of dot products
#
# For vectors, $\kappa$ takes $\lVert q - k_j \rVert / s$. Expand the square in the exponent:
#
# $$-\frac{\lVert q - k_j \rVert^2}{2 s^2}
# = \frac{q \cdot k_j - \lVert k_j \rVert^2 / 2}{s^2} - \frac{\lVert q \rVert^2}{2 s^2}.$$
#
# The last term is the same for all keys, so it cancels between numerator and denominator. The Gaussian weights are
#
# $$\frac{\kappa_j}{\sum_l \kappa_l}
# = \operatorname{softmax}_j \left( \frac{q \cdot k_j - \lVert k_j \rVert^2 / 2}{s^2} \right).$$
#
# Attention leaves out the norms: its weights are $\alpha_j = \operatorname{softmax}_j(q \cdot k_j / s^2)$, with
# $s^2 = \sqrt{d_k}$ at the usual scale, hence a bandwidth of $d_k^{1/4}$. Two softmax rows are equal exactly if
# their scores differ by a constant. So attention is the Gaussian smoother **if and only if all keys have the same
# norm**. In general, for any two keys $j$ and $l$,
#
# $$\ln \frac{\alpha_j}{\alpha_l} - \ln \frac{\kappa_j}{\kappa_l}
# = \frac{\lVert k_j \rVert^2 - \lVert k_l \rVert^2}{2 s^2}:$$
#
# dot-product attention is the smoother in which sample $j$ counts $e^{\lVert k_j \rVert^2 / 2 s^2}$ times. Long keys
# are heard more.

d_k = 16
s = d_k**0.25
q, k, v = torch.randn(7, d_k), torch.randn(11, d_k), torch.randn(11, 3)
half_squares = k.square().sum(dim=-1) / (2 * s**2)
round_keys = math.sqrt(d_k) * k / k.norm(dim=-1, keepdim=True)

gaussian = nadaraya_watson(q, k, torch.eye(11), s)  # with the identity as values it returns its weights
dot_product = attention(q, k, v)[1]
log_ratio = dot_product.log() - gaussian.log()
print(f"largest difference of weights, keys of unequal norm: {(dot_product - gaussian).abs().max().item():.3f}")

claims.close(
    "the Gaussian smoother is attention with the bias −‖k‖²/2s²",
    attention(q, k, v, scale=1 / s**2, bias=-half_squares)[0],
    nadaraya_watson(q, k, v, s),
    atol=1e-13,
)
claims.close(
    "with keys of equal norm, attention with d_k = 16 is the Gaussian smoother of bandwidth 2",
    attention(q, round_keys, v)[0],
    nadaraya_watson(q, round_keys, v, bandwidth=2.0),
    atol=1e-13,
)
claims.close(
    "with keys of unequal norm, the two kinds of weights differ by the factor exp(‖k‖²/2s²) in each row",
    log_ratio - log_ratio[:, :1],
    half_squares - half_squares[0],
    atol=1e-13,
)

# %%
# ## A kernel of positions is a convolution
#
# Take positions for keys and queries: scores $-(i-j)^2 / 2 s^2$ under a causal mask. Two features suffice
# to make them from dot products, $q_i = (i, 1)$ and $k_j = (j, -j^2/2)$, since
# $q_i \cdot k_j = ij - j^2/2$ is $-(i-j)^2/2$ up to a term of the row alone. Row $i$, counted from 0, is then
#
# $$A_{ij} = \frac{e^{-(i-j)^2 / 2 s^2}}{\sum_{m=0}^{i} e^{-m^2 / 2 s^2}} \quad (j \le i).$$
#
# The numerator depends on $i - j$ only. The denominator depends on $i$, but for $m \ge 9s$ its terms are below
# $e^{-40}$, too small for double precision to notice. From row $9s$ on the matrix is therefore **Toeplitz**,
# constant along its diagonals, and $AV$ is a causal **convolution** of the values with a half Gaussian. Nearer to the
# edge there is less past to share the weight, and the rows differ. For $s = \infty$ the edge never ends: row
# $i$ is the mean of $i + 1$ values, and no two rows are alike.

T = 96
bandwidths = (0.5, 2.0, 8.0, math.inf)
kernels = [positional_kernel(T, s) for s in bandwidths]
i = torch.arange(T) * 1.0
q, k = torch.stack([i, torch.ones(T)], dim=1), torch.stack([i, -i.square() / 2], dim=1)
values = torch.randn(T, 3)
print("weights in the last row, current token first")
for s, A in zip(bandwidths, kernels):
    print(f"s = {s:>3g}: ", ", ".join(f"{w:.4f}" for w in A[-1].flip(0)[:5].tolist()))

for s, A in zip(bandwidths, kernels):
    _, weights = attention(q, k, values, causal_mask(T), scale=1 / s**2)  # s a power of 2: scores without rounding
    claims.close(
        f"attention from position features (i, 1) and (j, −j²/2) is the kernel of bandwidth {s:g}",
        weights,
        A,
        atol=1e-14,
    )
for s, A in zip(bandwidths[:3], kernels):
    edge = math.ceil(9 * s)
    half_gaussian = torch.exp(-torch.arange(edge + 1).square() / (2 * s**2))
    # conv1d slides its kernel without turning it round, so the latest token's weight comes last.
    slid = torch.nn.functional.conv1d(values.T[:, None], (half_gaussian / half_gaussian.sum()).flip(0)[None, None])
    claims.close(
        f"the kernel of bandwidth {s:g} is Toeplitz from row {edge} on", A[edge + 1 :, 1:], A[edge:-1, :-1], atol=1e-14
    )
    claims.close(
        f"beyond the edge, the kernel of bandwidth {s:g} is a convolution",
        (A @ values)[edge:],
        slid[:, 0].T,
        atol=1e-14,
    )
corners = torch.stack([A[0, 0] - A[1, 1] for A in kernels])
claims.above("no causal kernel is Toeplitz at its edge: its diagonal starts with a step", corners, 0.1)
claims.close(
    "with bandwidth 1/2 the token before weighs e⁻² of the current one",
    kernels[0][-1, -2] / kernels[0][-1, -1],
    math.exp(-2),
    atol=1e-14,
)

# %%

fig, axes = plt.subplots(2, 2, figsize=(4.8, 5.2), sharex=True, sharey=True)
shown = 32
for ax, s, A in zip(axes.flat, bandwidths, kernels):
    image = plot.heatmap(ax, A[:shown, :shown].clamp(min=1e-9).tril(), xlabel="", ylabel="")
    image.set_norm(LogNorm(0.01, 1.0))  # the 0 of a masked weight has no logarithm and stays blank
    ax.set(title=f"s = {s:g}".replace("inf", "∞"), xticks=[0, 15, 31], yticks=[0, 15, 31])
for ax in axes[1]:
    ax.set_xlabel("key")
for ax in axes[:, 0]:
    ax.set_ylabel("query")
bar = fig.colorbar(image, ax=axes, location="bottom", aspect=40, extend="min", label="weight")
bar.set_ticks([0.01, 0.1, 1], labels=["1/100", "1/10", "1"])
bar.set_ticks([], minor=True)
fig.suptitle("From copying the token to averaging its past", fontsize="medium")
fig.set_label(
    f"Four causal heatmaps of {shown} positions. The smallest bandwidth keeps to the diagonal, the next two are "
    "bands that widen, and the infinite one spreads each row evenly, so that its rows fade downwards."
)

# %%
# ## The learned kernel
#
# In an attention head keys and queries are made from the input: $q_i = x_i W_Q$, $k_j = x_j W_K$. So the head is the
# Nadaraya–Watson estimator over the visible positions, with the values $v_j = x_j W_V$ and the kernel
#
# $$\kappa(x, y) = e^{x M y^\top}, \qquad M = \frac{W_Q W_K^\top}{\sqrt{d_k}}.$$
#
# Smoothing by hand means choosing $s$; training chooses all of $M$. Unlike a textbook kernel it need not
# be symmetric: $x$ may ask much of $y$, and $y$ little of $x$. It has no bandwidth
# apart from the size of $M$, and at $M = 0$, where $W_Q = W_K = 0$, the head is what it was at
# $s = \infty$: the running mean of its values. [The page on text](text_patterns.md) looks at heads that have
# hardly left this state.

head = Head(d_model=24, d_k=5, d_v=3, context=T).requires_grad_(False)
X = torch.randn(T, 24)
M = head.query.weight.T @ head.key.weight / math.sqrt(5)  # nn.Linear holds the transpose of W_Q and W_K
learned = torch.exp(X @ M @ X.T).tril()
V = X @ head.value.weight.T
expected = (learned @ V) / learned.sum(dim=1, keepdim=True)
claims.close("a causal head is the estimator with kernel exp(x M yᵀ)", head(X)[0], expected, atol=1e-14)
claims.above(
    "the kernel of a random head is far from symmetric: ‖M − Mᵀ‖ exceeds ‖M‖", (M - M.T).norm() / M.norm(), 1.0
)

head.query.weight.zero_()
head.key.weight.zero_()
out, weights = head(X)
running_mean = V.cumsum(0) / torch.arange(1, T + 1)[:, None]
claims.close(
    "with W_Q and W_K zero, a causal head returns the running mean of its values", out, running_mean, atol=1e-14
)
claims.close(
    "with W_Q and W_K zero, a head's weights are the kernel of infinite bandwidth", weights, kernels[-1], atol=1e-16
)

# %%
# ## Try it
#
# - Set the noise to 0: the smallest bandwidth now comes closest to the curve, and the claim on the middle one fails.
# - Add `smooth(KERNELS["Epanechnikov"][0], grid, x, y, bandwidths[0])` to the figure of the smoothed curves: it has
#   gaps where no sample is within reach. A kernel that ends is a mask as well, $\ln 0 = -\infty$.
# - Draw `positional_kernel(32, 2, causal=False)`: rows are now symmetric bells, and both ends have an edge.
