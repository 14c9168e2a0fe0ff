r"""
# One head averages what belongs together

Every token is to output the mean value of all tokens with its key, the `GROUP BY` of a database. Self-attention
can do it by construction; trained on examples, one head without positions learns uniform weights inside each
group and next to nothing outside.

*Sources:* [Zaheer et al. (2017)](../../references.md#zaheer2017), section 2;
[Lee et al. (2019)](../../references.md#lee2019), section 3;
[Weiss, Goldberg and Yahav (2021)](../../references.md#weiss2021), section 3.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["equivariance", "lookup"]

import matplotlib.pyplot as plt
import torch
from torch import nn

from attnkit import Head, attention, claims, fit, group_batch, plot

plt.style.use("attnkit.paper")
torch.set_num_threads(1)  # sums in one order, whatever the machine
seed = 0
torch.manual_seed(seed)

# %%
# ## By construction
#
# Let tokens with the same key share one of several orthonormal vectors $u$, used as key and, times $\beta$, as
# query, at `scale=1`. Scores are $\beta$ inside the group and 0 outside, so a token whose group $g$ has $n_g$ of
# the $T$ tokens gives each of them the same weight, and the group together the mass
#
# $$\mu = \frac{n_g e^{\beta}}{n_g e^{\beta} + T - n_g} .$$
#
# Its output is $\mu$ times the mean of its group plus $1 - \mu$ times the mean of the rest. It misses the group's
# mean by $(1 - \mu)$ times the difference of the two means, which is at most 1 for values in $[0, 1)$.

T, n_keys = 10, 4
held_out = torch.Generator().manual_seed(1000 + seed)
keys, values, target = group_batch(1000, held_out)
drawn_again = group_batch(1000, torch.Generator().manual_seed(1000 + seed))
same = keys[:, :, None] == keys[:, None, :]
n_g = same.sum(-1)

u = torch.linalg.qr(torch.randn(8, n_keys, dtype=torch.float64)).Q.T[keys]  # (B, T, 8)
beta = torch.tensor(6.0, dtype=torch.float64)
out, weights = attention(beta * u, u, values.double()[..., None], scale=1)
mu = n_g * beta.exp() / (n_g * beta.exp() + T - n_g)
alone = [[torch.tensor(v)[torch.tensor(k) == key].mean() for key in k] for k, v in zip(keys.tolist(), values.tolist())]

claims.close("the sequences of the grouping task hold ten tokens", keys.shape[1], T, atol=0)
claims.holds("the keys of the grouping task are drawn from four", keys.unique() == torch.arange(n_keys))
claims.close("the same seed draws the same keys to group by", drawn_again[0], keys, atol=0)
claims.close("the same seed draws the same values to average", drawn_again[1], values, atol=0)
claims.close(
    "the target of the grouping task is the mean over tokens with the same key", target, torch.tensor(alone), atol=1e-6
)
claims.close(
    "by construction the mass inside a group is n exp(beta)/(n exp(beta) + T - n)",
    (weights * same).sum(-1),
    mu,
    atol=1e-13,
)
claims.close(
    "a group of two among ten has mass 0.990182 at beta 6", (weights * same).sum(-1)[n_g == 2], 0.9901823, atol=1e-7
)
claims.holds(
    "by construction the output misses the group mean by at most one minus the mass",
    (out.squeeze(-1) - target).abs() <= 1 - mu + 1e-6,
)

# %%
# ## Learned
#
# A token is the sum of an embedding of its key and a vector times its value. One head, no mask, no residual
# connection, and **no position vectors**: the task does not depend on the order. The head can then not depend on
# it either: permuting tokens permutes the outputs
# ([equivariance](../3_causal_head/equivariance.md)).


class GroupMean(nn.Module):
    """One head that answers at every token; with ``positions`` it is told where each token stands."""

    def __init__(self, d_model=32, positions=False):
        super().__init__()
        self.key, self.value = nn.Embedding(n_keys, d_model), nn.Linear(1, d_model, bias=False)
        self.position = nn.Parameter(torch.randn(T, d_model)) if positions else 0.0
        self.head = Head(d_model, d_model)
        self.answer = nn.Linear(d_model, 1)

    def forward(self, keys, values):
        """Answers, shape (B, T), and weights, shape (B, T, T)."""
        out, weights = self.head(self.key(keys) + self.value(values[..., None]) + self.position)
        return self.answer(out).squeeze(-1), weights


def train(model):
    """Train on fresh batches; return the model."""
    generator = torch.Generator().manual_seed(seed)

    def loss():
        keys, values, target = group_batch(64, generator, n_tokens=T, n_keys=n_keys)
        return (model(keys, values)[0] - target).square().mean()

    fit(model, loss, steps=600, lr=1e-2)
    return model


def rmse(out, target):
    """Root of the mean squared error."""
    return (out - target).square().mean().sqrt()


model, told_positions = train(GroupMean()), train(GroupMean(positions=True))
with torch.no_grad():
    out, weights = model(keys, values)
    out_told, weights_told = told_positions(keys, values)
inside = (weights * same).sum(-1)
mean = inside / n_g
deviation = ((weights - mean[..., None]).square() * same).sum(-1) / n_g
spread = (deviation.sqrt() / mean)[n_g > 1]
print(f"error {rmse(out, target):.5f}, values spread by {values.std():.3f}")
print(f"mass inside the group {inside.mean():.4f}   relative spread of weights there {spread.mean():.5f}")

claims.below("the learned group means have a held-out error below 0.005", rmse(out, target), 0.005)
claims.above("more than 0.99 of the learned weight is inside the group", inside.mean(), 0.99)
claims.below("inside a group the learned weights differ by less than 0.01 of their mean", spread.mean(), 0.01)

# %%

shown = torch.randint(len(keys), (), generator=held_out).item()
order = keys[shown].argsort(stable=True)
labels = ["abcd"[k] for k in keys[shown][order].tolist()]
fig, ax = plt.subplots(figsize=(4.8, 3.8))
image = plot.heatmap(ax, weights[shown][order][:, order], x=labels, y=labels, xlabel="key, tokens sorted by group")
ax.set_title("Uniform inside a group, nothing outside")
fig.colorbar(image, label="weight")
fig.set_label(
    f"Heat map of the learned weights of one held-out sequence, its {T} tokens sorted by key: blocks of one colour "
    "along the diagonal, darker the larger the block, and no weight outside them."
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.2))
ax.plot([0, 1], [0, 1], color=plot.INK, linewidth=0.8)
ax.plot(target[:30].flatten().numpy(), out[:30].flatten().numpy(), "o", color=plot.BLUE, markersize=3.5, alpha=0.5)
ax.set(
    title="Every token outputs its group's mean",
    xlabel="true mean",
    ylabel="output",
    xticks=(0, 0.5, 1),
    yticks=(0, 0.5, 1),
)
fig.set_label(f"Outputs against true group means of {target[:30].numel()} held-out tokens: all lie on the diagonal.")

# %%
# ## What positions would do, and other lengths
#
# The same head with position vectors has to learn that they do not matter. It sees the same batches for as many
# steps, and ends with a larger error. Without them nothing ties the head to ten tokens: it can be given forty.

longer = group_batch(1000, held_out, n_tokens=40, n_keys=n_keys)
permutation = torch.randperm(T, generator=held_out)
with torch.no_grad():
    permuted, _ = model(keys[:, permutation], values[:, permutation])
    out_longer, _ = model(*longer[:2])
inside_told = (weights_told * same).sum(-1)
print(f"with position vectors: error {rmse(out_told, target):.5f}, mass inside {inside_told.mean():.4f}")
print(f"without, on forty tokens: error {rmse(out_longer, longer[2]):.5f}")

claims.close("permuting the tokens permutes the learned group means", permuted, out[:, permutation], atol=1e-5)
claims.above(
    "position vectors make the error of the group means more than 1.2 times as large",
    rmse(out_told, target) / rmse(out, target),
    1.2,
)
claims.below(
    "on sequences four times as long the learned group means are off by less than 0.01",
    rmse(out_longer, longer[2]),
    0.01,
)

# %%
# ## Try it
#
# - Let `beta` be 2: by construction the mass inside falls, and formula and bound still hold.
# - Train with `steps=50`: the blocks are there, but the cells outside them are not empty, and the page stops at the
#   error.
# - Ask for the *sum* of a group in place of its mean. Repeat every token, and each output of a head stays what it
#   was, for its weights are shared between the copies; but the sums double. So no head sums at every length.
