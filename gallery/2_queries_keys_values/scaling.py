r"""
# Unscaled scores grow with the width of a head, until softmax stops listening

A dot product of wide random vectors is large for no reason but its width. This page derives why scores
are divided by the square root of that width, measures what happens without, and says where the argument ends.
The [derivation](../../derivations/scaling.md) needs weaker conditions, and shows what replaces them.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.1 and footnote 4;
[Yang et al. (2022)](../../references.md#yang2022), definition 4.1, for the other exponent;
[Gemma Team (2024)](../../references.md#gemma2024), section 2, for the cap.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["softmax_temperature", "projections"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention, attention_scores, claims, entropy, plot, softmax, softmax_jacobian

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The variance of a dot product
#
# Let the $2 d_k$ entries of a query and a key be independent with mean 0 and variance $\sigma^2$. For one
# product, $\mathbb{E}[q_d k_d] = \mathbb{E}[q_d]\, \mathbb{E}[k_d] = 0$ and
# $\mathbb{E}[q_d^2 k_d^2] = \mathbb{E}[q_d^2]\, \mathbb{E}[k_d^2] = \sigma^4$. Variances of independent
# terms add, so
#
# $$\mathbb{E}[q \cdot k] = 0, \qquad \operatorname{Var}(q \cdot k) = \sigma^4 d_k, \qquad
# \operatorname{Var}\left(\frac{q \cdot k}{\sqrt{d_k}}\right) = \sigma^4 .$$
#
# Nothing here is Gaussian. Vectors of random signs have $\sigma = 1$, and at $d_k = 4$ there are only
# 16 of them: all pairs can be listed, and the result is exact. For Gaussian entries we sample; the
# sample variance from $n$ pairs has a relative standard error of $\sqrt{(2 + 6/d_k)/n}$.

signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)
products = signs @ signs.T
claims.close(
    "over all 256 pairs of sign vectors of width 4 the dot product has mean 0", products.mean(), 0.0, atol=1e-14
)
claims.close(
    "over all 256 pairs of sign vectors of width 4 its variance is 4", products.square().mean(), 4.0, atol=1e-14
)

widths = (16, 64, 256, 512)
mean, variance, scaled_variance = torch.zeros(3, len(widths))
for n, d_k in enumerate(widths):
    q, k = torch.randn(2, 10_000, d_k)
    product = (q * k).sum(dim=1)
    mean[n], variance[n] = product.mean(), product.var()
    scaled_variance[n] = attention_scores(q[:, None], k[:, None]).var()  # 10,000 tables of one query and one key
    print(f"d_k {d_k:3}   mean {mean[n]:+.3f}   variance {variance[n]:6.1f}   scaled {scaled_variance[n]:.3f}")

root = torch.tensor(widths).sqrt()
claims.close("10000 unit-variance dot products average to 0, in units of √d_k", mean / root, 0.0, atol=0.05)
claims.close("unit-variance dot products have the width as variance, 16 to 512", variance / root**2, 1.0, atol=0.05)
claims.close("scores divided by √d_k have variance 1 at widths 16, 64, 256 and 512", scaled_variance, 1.0, atol=0.05)

sigmas = torch.tensor([0.5, 1.5, 2.0])
q, k = sigmas[:, None, None] * torch.randn(2, 3, 25_000, 16)
ratio = (q * k).sum(dim=-1).var(dim=-1) / (sigmas**4 * 16)
claims.close("entries of deviation σ = 0.5, 1.5 and 2 give a variance of σ⁴ d_k", ratio, 1.0, atol=0.04)

# %%
# ## What large scores do to softmax
#
# Leaving out the factor $1/\sqrt{d_k}$ is the same as a softmax of the scaled scores at temperature
# $1/\sqrt{d_k}$: it multiplies every log-odds $\ln(\alpha_i / \alpha_j) = s_i - s_j$ by $\sqrt{d_k}$, so that
# one key tends to take everything. There the derivative
#
# $$\frac{\partial \alpha_i}{\partial s_j} = \alpha_i (\delta_{ij} - \alpha_j)$$
#
# is close to zero. Its trace, $\sum_i \alpha_i (1 - \alpha_i) = 1 - \sum_i \alpha_i^2$, sums how much
# each weight answers to its own score: 0 for a one-hot row, $1 - 1/S$ for a uniform one. We draw 125
# sequences of 32 tokens, which makes 4,000 rows of weights over 32 keys.

q, k = torch.randn(2, 125, 32, 512)
unscaled, scaled = softmax(attention_scores(q, k, scale=1.0)), softmax(attention_scores(q, k))
sharpest = [weights.amax(dim=-1).mean() for weights in (unscaled, scaled)]
trace = [softmax_jacobian(weights).diagonal(dim1=-2, dim2=-1).sum(-1).mean() for weights in (unscaled, scaled)]
print(f"d_k 512, unscaled: mean largest weight {sharpest[0]:.3f}, mean trace of the Jacobian {trace[0]:.3f}")
print(f"d_k 512, scaled:   mean largest weight {sharpest[1]:.3f}, mean trace of the Jacobian {trace[1]:.3f}")

row = torch.randn(32)
by_autograd = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=-1), row)
claims.close("over 32 keys the derivative is α_i(δ_ij − α_j)", softmax_jacobian(softmax(row)), by_autograd, atol=1e-14)
claims.close("at width 512 unscaled the mean largest of 32 weights is 0.937", sharpest[0], 0.937, atol=0.01)
claims.close("at width 512 scaled the mean largest of 32 weights is 0.164", sharpest[1], 0.164, atol=0.01)
claims.close("at width 512 unscaled the Jacobian's mean trace is 0.091", trace[0], 0.091, atol=0.01)
claims.close("at width 512 scaled the Jacobian's mean trace is 0.928", trace[1], 0.928, atol=0.01)

one_query, ten_keys = torch.randn(1, 64), torch.randn(10, 64)
hard = softmax(attention_scores(one_query, ten_keys, scale=1.0))[0]
soft = softmax(attention_scores(one_query, ten_keys))[0]
log_odds_hard, log_odds_soft = (hard / hard[0]).log(), (soft / soft[0]).log()
claims.close("at width 64 the scale divides all log-odds by 8", log_odds_hard, 8 * log_odds_soft, atol=1e-12)

# %%

fig, ax = plt.subplots()
places = torch.arange(1, 11)
ax.bar(places - 0.2, hard.numpy(), width=0.4, color=plot.VERMILLION, label="unscaled")
ax.bar(places + 0.2, soft.numpy(), width=0.4, color=plot.BLUE, label="scaled")
ax.set(title="One query, ten keys of width 64", xlabel="key", ylabel="weight", xticks=places, ylim=(0, 1))
ax.legend(loc="upper left")
fig.set_label(
    f"Bars of the weights over ten keys. Unscaled, one key takes {hard.max():.2f} and most get nothing; "
    f"scaled, all ten take part and the same key leads with {soft.max():.2f}."
)

# %%
# ## Without the scale the gradient is not small but badly shared
#
# Vaswani et al. suspect that large products push softmax to where its gradients are extremely small. Look
# closer: what training needs is the derivative by the query. With the scale written as $c$ and the mean
# key as $\bar k = \sum_l \alpha_l k_l$,
#
# $$\frac{\partial \alpha_j}{\partial q} = c\, \alpha_j \left(k_j - \bar k\right).$$
#
# Dropping the scale makes $c$ larger by $\sqrt{d_k}$, which works against the smaller
# $\alpha_j (k_j - \bar k)$. On average the unscaled gradient even wins. But it comes from the minority
# of rows in which two keys nearly tie; half of the rows get a fraction of it, and some get nothing that
# matters. The merit of the scale is that all rows get a similar share.


def gradient_norm(weights, c):
    """Frobenius norm of the derivative of each row of weights by its query."""
    return c * (weights * torch.cdist(weights @ k, k)).norm(dim=-1)


hard_norm, soft_norm = gradient_norm(unscaled, 1.0).flatten(), gradient_norm(scaled, 1 / math.sqrt(512)).flatten()
deciles = [norm.quantile(torch.tensor([0.1, 0.5, 0.9])) for norm in (hard_norm, soft_norm)]
for name, norm, (low, median, high) in zip(("unscaled", "scaled"), (hard_norm, soft_norm), deciles):
    print(f"{name:8}   first decile {low:.1e}   median {median:.1e}   last decile {high:.1e}   mean {norm.mean():.1e}")

by_autograd = torch.autograd.functional.jacobian(lambda x: torch.softmax(x @ k[0].T / math.sqrt(512), -1), q[0, 0])
claims.close("the derivative of weights by the query is c α_j (k_j − k̄)", soft_norm[0], by_autograd.norm(), atol=1e-13)
claims.above(
    "unscaled, the mean gradient by the query is over 5 times the scaled one", hard_norm.mean() / soft_norm.mean(), 5.0
)
claims.below(
    "unscaled, the median gradient by the query is under 0.3 of the scaled one", deciles[0][1] / deciles[1][1], 0.3
)
claims.above(
    "unscaled, the last decile of the gradients is over 100000 times the first", deciles[0][2] / deciles[0][0], 1e5
)
claims.below(
    "scaled, the last decile of the gradients is under 1.5 times the first", deciles[1][2] / deciles[1][0], 1.5
)

# %%
# ## Scaled weights are as soft in a wide head as in a narrow one
#
# Given the query, the scores $q \cdot k_j$ are independent with variance $\lVert q \rVert^2$, which is close to
# $d_k$ when $d_k$ is large. Scaled scores of Gaussian vectors therefore tend to independent standard
# normals, whatever the width, and the entropy of the weights tends to a limit that we can sample without
# any query or key. We compare 4,000 rows over 16 keys at each width, in units of $\ln 16$, the entropy of
# a uniform row.

ladder = 2 ** torch.arange(1, 10)
limit = entropy(softmax(torch.randn(50_000, 16))).mean() / math.log(16)
hard_entropy, soft_entropy = torch.zeros(2, len(ladder))
for n, d_k in enumerate(ladder.tolist()):
    q, k = torch.randn(2, 250, 16, d_k)
    hard_entropy[n] = entropy(softmax(attention_scores(q, k, scale=1.0))).mean() / math.log(16)
    soft_entropy[n] = entropy(softmax(attention_scores(q, k))).mean() / math.log(16)
print("d_k     ", *(f"{d_k:6}" for d_k in ladder.tolist()))
print("unscaled", *(f"{h:6.3f}" for h in hard_entropy))
print("scaled  ", *(f"{h:6.3f}" for h in soft_entropy), f"   limit {limit:.3f}")

claims.close("softmax of 16 standard normals has 0.850 of the uniform entropy", limit, 0.850, atol=0.005)
claims.close("scaled weights keep the limit's entropy from width 2 to 512", soft_entropy, limit, atol=0.03)
claims.close("from width 16 on the entropy of scaled weights is the limit", soft_entropy[3:], limit, atol=0.01)
claims.holds("unscaled weights lose entropy with every doubling of the width", hard_entropy.diff() < 0)
claims.below("at width 512 unscaled weights keep under 0.06 of a uniform row's entropy", hard_entropy[-1], 0.06)

# %%

fig, ax = plt.subplots()
ax.axhline(limit, color=plot.INK, linewidth=0.8, linestyle=":")
ax.plot(ladder, soft_entropy, color=plot.BLUE, marker="o")
ax.plot(ladder, hard_entropy, color=plot.VERMILLION, marker="s")
ax.annotate("scaled", (64, soft_entropy[5]), xytext=(0, 8), textcoords="offset points", ha="center")
ax.annotate("unscaled", (64, hard_entropy[5]), xytext=(0, 8), textcoords="offset points", ha="left")
ax.set_xscale("log", base=2)
ax.set_xticks([2, 8, 32, 128, 512], [2, 8, 32, 128, 512])
ax.set(
    title="Scaled, softness hardly depends on the width", xlabel="head width", ylabel="entropy / uniform", ylim=(0, 1)
)
fig.set_label(
    f"Entropy of the weights against the head width. Scaled, the curve is flat near {limit:.2f} of the uniform "
    f"entropy; unscaled, it falls from {hard_entropy[0]:.2f} at width 2 to {hard_entropy[-1]:.2f} at width 512."
)

# %%
# ## The width of the head, not of the model
#
# With $H$ heads, $d_k = d_{\mathrm{model}} / H$, and a dot product sums over $d_k$ entries, not
# $d_{\mathrm{model}}$. Dividing by $\sqrt{d_{\mathrm{model}}}$ is a mistake that no shape reveals: scores
# shrink by $\sqrt{H}$, to a standard deviation of $1/\sqrt{8} = 0.354$ for $H = 8$, and the weights come out too even.

q, k = torch.randn(2, 100, 64)
right, wrong = attention_scores(q, k), attention_scores(q, k, scale=1 / math.sqrt(512))
claims.close("for 8 heads, dividing by √d_model shrinks all scores by √8", right, math.sqrt(8) * wrong, atol=1e-13)
claims.close("for 8 heads, scores over √d_model have standard deviation 0.354", wrong.std(), 0.354, atol=0.02)

# %%
# ## Where the argument ends
#
# Two of its assumptions are worth a look.
#
# *Unit variance* depends on the initialisation. `torch.nn.Linear` draws its weights uniformly between
# $\pm 1/\sqrt{d_{\mathrm{model}}}$, a variance of $1/(3 d_{\mathrm{model}})$. Tokens of unit variance then give
# $\sigma^2 = 1/3$, and by the formula above scores of standard deviation $\sigma^2 = 1/3$, not 1.
#
# *Independence* is lost in training, which is there to make queries and their keys alike. In the extreme,
# $k = q$, the product is a sum of squares: $\mathbb{E}[q \cdot q] = d_k$, so the scaled score is still
# $\sqrt{d_k}$. Growth like that calls for $1/d_k$, which Yang et al. use so that settings found
# on a narrow model keep working on a wide one.

x = torch.randn(100, 512)
to_query, to_key = torch.nn.Linear(512, 64, bias=False), torch.nn.Linear(512, 64, bias=False)
between = attention_scores(to_query(x), to_key(x))[~torch.eye(100, dtype=torch.bool)]
claims.close("torch's Linear as initialised gives scores of deviation 1/3", between.std(), 1 / 3, atol=0.04)

q = torch.randn(10_000, 1, 256)
claims.close(
    "a query that equals its key, at width 256, has the mean score 16", attention_scores(q, q).mean(), 16.0, atol=0.1
)

# %%
# ## A cap, whatever the width
#
# A scale sets the spread of the scores at the start; nothing keeps training from making them large. Gemma 2 also
# caps them, $s \mapsto c \tanh(s / c)$, after the scale. Small scores hardly notice: from
# $x - x^3/3 \le \tanh x \le x$ for $x \ge 0$, a score changes by at most $|s|^3 / (3c^2)$. And none exceeds $c$, so two
# weights of a row differ by a factor of at most $e^{2c}$. With scores 2 and 0 and $c = 2$ the first is capped to
# $2 \tanh 1$.

q, k = torch.randn(2, 32, 64)
scores, c = attention_scores(q, k), 4.0
_, capped = attention(q, k, k, softcap=c)
_, extreme = attention(1e4 * q, k, k, softcap=c)
_, by_hand = attention(torch.tensor([[2.0]]), torch.tensor([[1.0], [0.0]]), torch.eye(2), scale=1, softcap=2.0)
change = (c * torch.tanh(scores / c) - scores).abs()
print(f"scores up to {scores.abs().max():.2f}; the cap of {c:g} changes them by {change.max():.2f} at most")

claims.close("capped weights are the softmax of c tanh(s / c)", capped, softmax(c * torch.tanh(scores / c)), atol=1e-14)
claims.close("scores 2 and 0 capped at 2 give the weights 0.821 and 0.179", by_hand, [[0.8210, 0.1790]], atol=5e-5)
claims.holds("the cap changes a score by at most its cube over 3c²", change <= scores.abs() ** 3 / (3 * c**2) + 1e-15)
claims.below(
    "under a cap of 4, queries ten thousand times as long keep the weights of a row within a factor of e⁸",
    extreme.amax(-1) / extreme.amin(-1),
    math.exp(2 * c) * (1 + 1e-12),
)

# %%
# ## Try it
#
# - Draw the entries from `torch.rand` instead of `torch.randn`: their mean is not 0, every dot product
#   gets a large common part, and the first claims stop the page.
# - Multiply `one_query` by 8: the scaled bars become what the unscaled ones were. The scale removes the
#   dependence on the width, not the dependence on $\sigma$.
# - Add a third curve to the entropy figure, with `scale=1 / d_k`: it climbs towards 1, because
#   independent queries and keys then score ever closer to 0.
