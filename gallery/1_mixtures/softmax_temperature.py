r"""
# Softmax is a competition, and temperature sets how fierce it is

Softmax turns scores into the weights of a mixture. This page derives what that choice means: only
differences of scores count, temperature leads from "the winner takes all" to "all are equal", and
the weights are the best compromise between a high mean score and a high entropy. The
[derivation](../../derivations/softmax.md) adds the proofs in full and the spectrum of the Jacobian.

*Sources:* [Bridle (1990)](../../references.md#bridle1990), for the name;
[Hinton et al. (2015)](../../references.md#hinton2015), equation 1, for the temperature;
[Blanchard et al. (2021)](../../references.md#blanchard2021), section 1, for overflow;
[Gao and Pavel (2017)](../../references.md#gao2017), Propositions 1 and 2, for the Jacobian;
[Boyd and Vandenberghe (2004)](../../references.md#boyd2004), section 3.3.1, for the maximum.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["convex_combination"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import claims, entropy, plot, softmax, softmax_jacobian

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Differences of scores become ratios of weights
#
# The softmax of scores $s_1, \dots, s_S$ at **temperature** $\tau > 0$, and the ratio of two of its
# weights, are
#
# $$\alpha_j = \frac{e^{s_j / \tau}}{\sum_{l=1}^{S} e^{s_l / \tau}}, \qquad
# \frac{\alpha_i}{\alpha_j} = e^{(s_i - s_j) / \tau}.$$
#
# Exponentials are positive and the denominator is their sum, so these weights make a convex
# combination. Only differences of scores count: a constant added to all of them cancels. Temperature
# has the unit of the scores. It is the lead that multiplies a weight by $e$, and halving it squares
# every ratio. (Some texts write $\beta = 1 / \tau$. Attention's factor $1 / \sqrt{d_k}$ will be a
# temperature of $\sqrt{d_k}$.)

scores = torch.tensor([1.2, 4.5, 2.0, 0.8])
temperatures = torch.tensor([0.25, 1.0, 5.0])
weights = torch.stack([softmax(scores, tau) for tau in temperatures.tolist()])
for tau, row in zip(temperatures, weights):
    print(f"temperature {tau:.2f}: weights " + ", ".join(f"{alpha:.4f}" for alpha in row))

logs = torch.tensor([1.0, 2.0, 3.0]).log()
batch = torch.randn(2, 3, 5, 7)
every_axis = torch.stack([softmax(batch, 0.7, dim) for dim in range(-4, 4)])
torchs_own = torch.stack([torch.softmax(batch / 0.7, dim) for dim in range(-4, 4)])
sixths, fourteenths = torch.tensor([1, 2, 3]) / 6, torch.tensor([1, 4, 9]) / 14

claims.close("softmax agrees with torch's along every axis of a batch", every_axis, torchs_own, atol=1e-14)
claims.close("scores ln 1, ln 2, ln 3 get the weights 1/6, 2/6, 3/6", softmax(logs), sixths, atol=1e-14)
claims.close("ln 1, ln 2, ln 3 at temperature 1/2 get 1/14, 4/14, 9/14", softmax(logs, 0.5), fourteenths, atol=1e-14)
claims.close("adding 100 to every score changes no weight", softmax(scores + 100), softmax(scores), atol=1e-13)

# %%

fig, ax = plt.subplots()
for side, tau, row, colour in zip((-1, 0, 1), temperatures, weights, plot.PALETTE):
    ax.bar(torch.arange(4).numpy() + 0.27 * side, row.numpy(), 0.25, color=colour, label=f"temperature {tau:g}")
ax.set_xticks(range(4), [f"{s:.1f}" for s in scores])
ax.set(title="The colder, the more the winner takes", xlabel="score", ylabel="weight", ylim=(0, 1.05))
ax.legend(loc="upper right")
fig.set_label(
    f"Grouped bars, the weights of four scores at three temperatures. At {temperatures[0]:g} the score "
    f"{scores.max():g} takes nearly everything, at {temperatures[-1]:g} the four weights are of similar size."
)

# %%
# ## The same weights without overflow
#
# Computed as written, softmax fails for large scores: beyond the logarithm of the type's largest
# number the exponential overflows, and $\infty / \infty$ is NaN. If all scores are very negative it
# fails too, as $0 / 0$. Since only differences count, subtract the largest score $m$ from all of them:
#
# $$\alpha_j = \frac{e^{(s_j - m) / \tau}}{\sum_l e^{(s_l - m) / \tau}}, \qquad m = \max_l s_l.$$
#
# No exponent is positive and one is 0, so the denominator lies between 1 and $S$.

for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    print(f"in {dtype} the exponential overflows beyond {math.log(torch.finfo(dtype).max):.1f}")

far = torch.tensor([[1000.0, 999.0, 998.0], [-1000.0, -1001.0, -1002.0]])
naive = far.exp() / far.exp().sum(-1, keepdim=True)
expected = torch.tensor([math.e**2, math.e, 1.0]) / (math.e**2 + math.e + 1)

claims.holds("without the shift, scores of 1000 and −1000 get the weight NaN", naive[:, 0].isnan())
claims.close("softmax of 1000, 999, 998 has the ratios e², e, 1", softmax(far), expected, atol=1e-14)

# %%
# ## From the argmax to the mean
#
# Let $s_1$ be the largest score and $\Delta$ its lead over the second. Every other weight is at most
# $e^{-\Delta / \tau} \alpha_1$, so $1 - \alpha_1 \le (S - 1)\, e^{-\Delta / \tau}$, which tends to 0
# with $\tau$: cold softmax is the argmax, as a one-hot vector. Tied winners share. As $\tau$ grows,
# every $e^{s_j / \tau}$ tends to 1 and every weight to $1/S$.
#
# In between, the entropy $H = -\sum_j \alpha_j \ln \alpha_j$ only grows. Let $\beta = 1 / \tau$,
# $Z = \sum_l e^{\beta s_l}$ and $\langle s \rangle = \sum_j \alpha_j s_j$. From
# $\ln \alpha_j = \beta s_j - \ln Z$ follows $H = \ln Z - \beta \langle s \rangle$. The derivative of
# $\ln Z$ by $\beta$ is $\langle s \rangle$, and that of $\langle s \rangle$ is the variance of the
# scores under the weights, so
#
# $$\frac{dH}{d\beta} = -\beta \operatorname{Var}_\alpha(s), \qquad
# \frac{dH}{d\tau} = \frac{\operatorname{Var}_\alpha(s)}{\tau^3} \ge 0,$$
#
# with equality only if all scores are the same.

tau = torch.logspace(-1, 2, 201).requires_grad_()
path = softmax(scores / tau[:, None])
heat = entropy(path)
(slope,) = torch.autograd.grad(heat.sum(), tau)
tau, path, heat = tau.detach(), path.detach(), heat.detach()

variance = (path * (scores - (path @ scores)[:, None]) ** 2).sum(-1)
winner = scores.argmax()
lost = path[:, scores < scores[winner]].sum(-1)
allowed = 3 * torch.exp(-scores.topk(2).values.diff().abs() / tau)
tied = softmax(torch.tensor([3.0, 3.0, 1.0]), 0.01)
entropy_of_sixths = math.log(6) / 6 + math.log(3) / 3 + math.log(2) / 2

claims.holds("the winner loses at most (S − 1) exp(−lead / temperature)", lost <= allowed)
claims.close("softmax at temperature 0.01 is the argmax", softmax(scores, 0.01), torch.eye(4)[winner], atol=1e-14)
claims.close("tied winners of softmax share at temperature 0.01", tied, torch.tensor([0.5, 0.5, 0.0]), atol=1e-14)
claims.close("softmax of four scores at temperature 1e9 is 1/4 each", softmax(scores, 1e9), 0.25, atol=1e-9)
claims.above("the entropy of softmax grows with every step of temperature", heat.diff(), 0.0)
claims.close("the slope of softmax's entropy is Var(s) / τ³", slope, variance / tau**3, atol=1e-12)
claims.close("1/6, 2/6, 3/6 has the entropy found by hand", entropy(softmax(logs)), entropy_of_sixths, atol=1e-14)

# %%

fig, ax = plt.subplots()
ax.semilogx(tau.numpy(), (heat / math.log(4)).numpy(), label="entropy / ln 4")
ax.semilogx(tau.numpy(), path.amax(-1).numpy(), label="largest weight")
ax.axhline(0.25, color=plot.INK, linewidth=0.8, linestyle=":")
ax.annotate("1/4", (tau[0], 0.25), xytext=(2, 3), textcoords="offset points")
ax.set_xticks([0.1, 1, 10, 100], [f"{t:g}" for t in (0.1, 1, 10, 100)])
ax.set(title="Heat trades the winner for entropy", xlabel="temperature (unit of the scores)", ylim=(-0.03, 1.05))
ax.legend(loc="center right")
fig.set_label(
    f"Two curves over temperatures from {tau[0]:g} to {tau[-1]:g}, logarithmic: the largest weight falls "
    "from one to a quarter while the entropy climbs from zero to its maximum."
)

# %%
# ## How far the weights follow the scores
#
# At $\tau = 1$, $\ln \alpha_i = s_i - \ln \sum_l e^{s_l}$ has the derivative $\delta_{ij} - \alpha_j$
# by $s_j$. Multiplying by $\alpha_i$ gives the **Jacobian**
#
# $$\frac{\partial \alpha_i}{\partial s_j} = \alpha_i (\delta_{ij} - \alpha_j), \qquad
# J = \operatorname{diag}(\alpha) - \alpha \alpha^\top.$$
#
# $J$ is symmetric, so its spectral norm is at most its largest absolute row sum. Row $i$ holds
# $\alpha_i (1 - \alpha_i)$ and, in the other places, $-\alpha_i \alpha_j$; hence
#
# $$\lVert J \rVert \le \max_i 2 \alpha_i (1 - \alpha_i) \le \tfrac12.$$
#
# In Euclidean length, weights move at most half as far as scores. At temperature $\tau$, $J$ and the
# bound are divided by $\tau$. Two equal scores attain it: at $\alpha = (\tfrac12, \tfrac12)$ the
# eigenvalues of $J$ are 0 and $\tfrac12$. More than two finite scores only come close. At a one-hot
# $\alpha$, $J = 0$: a winner without rivals passes no gradient to the scores.

by_autograd = [torch.autograd.functional.jacobian(lambda s, t=t: softmax(s, t), scores) for t in temperatures.tolist()]
in_closed_form = softmax_jacobian(weights) / temperatures[:, None, None]
norms = torch.linalg.matrix_norm(softmax_jacobian(softmax(2 * torch.randn(10_000, 6))), ord=2)
norm_at_a_tie = torch.linalg.matrix_norm(softmax_jacobian(softmax(torch.zeros(2))), ord=2)

claims.close("the Jacobian of softmax is (diag(α) − ααᵀ) / τ", torch.stack(by_autograd), in_closed_form, atol=1e-14)
claims.below("the softmax Jacobian at 10,000 random rows has a norm below 1/2", norms, 0.5)
claims.close("the softmax Jacobian at two equal scores has norm 1/2", norm_at_a_tie, 0.5, atol=1e-14)

# %%
# ## Why this function: the best compromise
#
# To get a high mean score $\langle s, p \rangle = \sum_j p_j s_j$ alone, put all weight on the winner.
# To keep options open as well, reward entropy, and maximise over all weights $p$
#
# $$F(p) = \langle s, p \rangle + \tau H(p).$$
#
# Let $\alpha$ be the softmax of $s$, so that $s_j = \tau \ln \alpha_j + \tau \ln \sum_l e^{s_l / \tau}$.
# Insert this, with $\sum_j p_j = 1$:
#
# $$F(p) = \tau \ln \sum_l e^{s_l / \tau} - \tau \sum_j p_j \ln \frac{p_j}{\alpha_j}.$$
#
# The last sum is the Kullback–Leibler divergence of $p$ from $\alpha$. By Gibbs' inequality it is
# positive unless $p = \alpha$. So softmax is the only maximiser, temperature is the price of entropy,
# and the maximum is $\tau$ times the log-sum-exp of $s / \tau$.

rivals = torch.distributions.Dirichlet(torch.ones(4)).sample((20_000,))


def compromise(p):
    """Mean score plus temperature times entropy, a row for each temperature."""
    return p @ scores + temperatures[:, None] * entropy(p)


best = compromise(weights).diagonal()[:, None]  # softmax at each temperature, at its own price
missing = best - compromise(rivals)
divergence = (rivals * (rivals / weights[:, None]).log()).sum(-1)
maximum = temperatures * torch.logsumexp(scores / temperatures[:, None], -1)

claims.above("none of 20,000 points of the simplex is a better compromise than softmax", missing, 0.0)
claims.close("the best compromise is worth τ logsumexp(s / τ)", best[:, 0], maximum, atol=1e-14)
claims.close(
    "a rival of softmax falls short by τ times its divergence",
    missing,
    temperatures[:, None] * divergence,
    atol=1e-13,
)

# %%
# ## Try it
#
# - Raise the third score to that of the winner. The claim about the argmax fails, as it must: tied
#   winners share, however cold it gets. Delete it, and the entropy curve starts at half its maximum.
# - Print `softmax(10 * scores, 10 * tau)` in the first loop: the weights stay the same.
# - Replace `entropy(p)` in `compromise` by `(1 - p.square().sum(-1)) / 2`. Rivals now beat softmax. This
#   measure of spread has another maximiser, the projection of $s / \tau$ onto the simplex: sparsemax
#   ([Martins and Astudillo, 2016](../../references.md#martins2016)), whose weights can be exactly 0.
