r"""
# Without the tanh, every query gets the same weights

The first attention scored a query and a key by a small network. This page computes that score, shows by
hand what its nonlinearity is for, and builds a network that finds the key equal to the query.

*Sources:* [Bahdanau, Cho and Bengio (2014)](../../references.md#bahdanau2014), section 3.1 and appendix
A.1.2; [Luong, Pham and Manning (2015)](../../references.md#luong2015), section 3.1;
[Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.1.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["projections", "scaling"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import AdditiveAttention, claims, plot, softmax

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## A network as the score
#
# A recurrent decoder in state $q_i$ looks back at the states $k_1, \dots, k_S$ of an encoder. How well they
# fit is said by a network with one hidden layer,
#
# $$s_{ij} = w^\top \tanh(W_q\, q_i + W_k\, k_j), \qquad \alpha_{ij} = \frac{e^{s_{ij}}}{\sum_l e^{s_{il}}},
# \qquad \mathrm{out}_i = \sum_j \alpha_{ij} v_j ,$$
#
# trained with the rest. The softmax and the mixture are those of every other attention; only the score
# differs. In the paper $q_i$ is $s_{i-1}$, the keys and values are both $h_j$, and $w, W_q, W_k$ are
# $v_a, W_a, U_a$. Queries and keys may differ in width: the two maps bring them together. There are no biases,
# so $d_\mathrm{attn} (d_q + d_k + 1)$ numbers are learned. We compare the module with two loops over the formula.

d_query, d_key, d_attn, d_v, T, S = 5, 3, 7, 2, 4, 6
additive = AdditiveAttention(d_query, d_key, d_attn).requires_grad_(False)
for weight in additive.parameters():
    torch.nn.init.normal_(weight)  # larger than the default, so that the tanh bends
q, k, v = torch.randn(T, d_query), torch.randn(S, d_key), torch.randn(S, d_v)
W_q, W_k, w = additive.query.weight, additive.key.weight, additive.score.weight[0]

out, weights = additive(q, k, v)
scores = torch.empty(T, S)
for i in range(T):
    for j in range(S):
        scores[i, j] = sum(w[a] * math.tanh(W_q[a] @ q[i] + W_k[a] @ k[j]) for a in range(d_attn))

claims.close("the additive weights are the softmax of the looped scores", weights, scores.softmax(-1), atol=1e-14)
claims.close("the additive output mixes the values by these weights", out, scores.softmax(-1) @ v, atol=1e-14)
claims.holds(
    "additive attention has (d_query + d_key + 1) d_attn parameters",
    sum(weight.numel() for weight in additive.parameters()) == (d_query + d_key + 1) * d_attn,
)

# %%
# ## One state for each sentence, and sentences of different lengths
#
# A decoder has one state per sentence and step. A query for each set of keys, with one axis fewer than they have,
# gets one row of weights and one output. Sentences that share a batch are padded to the same length, and a mask
# hides the padding: its scores become $-\infty$, its weights 0, and the words share the whole weight as if the
# padding were not there. Keys that come without values are mixed themselves.

sentences, lengths = torch.randn(2, S, d_key), torch.tensor([S, 4])
state_out, state_weights = additive(q[:2], sentences, mask=torch.arange(S) < lengths[:, None])
short_out, short_weights = additive(q[1], sentences[1, :4])
alone_out, alone_weights = additive(q[0], k, v)

claims.close("a query alone gets the additive weights that it gets among four", alone_weights, weights[0], atol=1e-14)
claims.close("a query alone gets the additive output that it gets among four", alone_out, out[0], atol=1e-14)
claims.close(
    "padding gets no additive weight, and the words what they get in the short sentence",
    state_weights[1],
    torch.cat([short_weights, torch.zeros(2)]),
    atol=1e-14,
)
claims.close("behind padding the additive output is that of the short sentence", state_out[1], short_out, atol=1e-14)

# %%
# ## Small enough for paper
#
# Let every width and every parameter be 1, the query $q = \tfrac12$, the keys 0 and 1. Then
#
# $$\alpha_2 = \frac{e^{\tanh 3/2}}{e^{\tanh 1/2} + e^{\tanh 3/2}}
# = \frac{1}{1 + e^{-(\tanh 3/2 - \tanh 1/2)}} .$$

tiny = AdditiveAttention(d_query=1, d_key=1, d_attn=1).requires_grad_(False)
for weight in tiny.parameters():
    torch.nn.init.ones_(weight)
query, keys = torch.tensor([[0.5]]), torch.tensor([[0.0], [1.0]])
_, tiny_weights = tiny(query, keys)
_, moved_key = tiny(query, torch.tensor([[0.0], [-1.0]]))
_, moved_query = tiny(torch.tensor([[2.0]]), keys)
for name, row in (("as above", tiny_weights), ("second key at -1", moved_key), ("query at 2", moved_query)):
    print(f"{name:18}", "  ".join(f"{weight:.6f}" for weight in row[0]))

claims.close(
    "all ones, query 0.5 and keys 0, 1 give the weights (0.391019, 0.608981)",
    tiny_weights[0],
    torch.tensor([0.391019, 0.608981]),
    atol=5e-7,
)
claims.close(
    "a second key at -1 moves the additive weights to (0.715904, 0.284096)",
    moved_key[0],
    torch.tensor([0.715904, 0.284096]),
    atol=5e-7,
)
claims.close(
    "a query at 2 moves the additive weights to (0.492244, 0.507756)",
    moved_query[0],
    torch.tensor([0.492244, 0.507756]),
    atol=5e-7,
)

# %%
# ## What the tanh is for
#
# Leave it out, and the score is a sum of two terms that do not meet:
#
# $$s_{ij} = \underbrace{w^\top W_q\, q_i}_{\text{the same for all } j} + \; w^\top W_k\, k_j .$$
#
# Softmax ignores what is the same for all keys, so the query drops out. Every row of weights is
# $\operatorname{softmax}_j(w^\top W_k k_j)$: the decoder would look at the same place in every step. A dot
# product needs no such help, since in $q_i \cdot k_j$ each query multiplies the keys.

linear_scores = (q @ W_q.T @ w)[:, None] + k @ W_k.T @ w
linear_weights = softmax(linear_scores)
to_query = torch.autograd.functional.jacobian(lambda q: additive(q, k, v)[1], q)  # (T, S, T, d_query)
tiny_linear = softmax(query + keys.T)

claims.close(
    "without the tanh every query gets the same additive weights", linear_weights, linear_weights[0], atol=1e-14
)
claims.close(
    "without the tanh the tiny example gives (0.268941, 0.731059)",
    tiny_linear[0],
    torch.tensor([0.268941, 0.731059]),
    atol=5e-7,
)
claims.above("with the tanh the additive weights follow the query", to_query.abs().amax((1, 2, 3)), 1e-3)
claims.above("with the tanh the rows of additive weights differ", (weights - weights[0]).abs().amax(-1)[1:], 1e-2)

# %%
# ## Two hidden units find the key that equals the query
#
# One hidden unit is a step along the keys, and the query moves the step. The difference of two steps is a
# bump. With keys $(k, 1)$, whose constant feature stands in for a bias,
#
# $$s_{ij} = \beta \tanh(k_j - q_i + 1) - \beta \tanh(k_j - q_i - 1)$$
#
# is largest at $k_j = q_i$, so the weights peak there. The same parameters without the tanh give
# $s_{ij} = 2\beta$ for every pair, hence uniform weights: the content is lost.
#
# The tanh also bounds the scores. Since $|\tanh| \le 1$, no score exceeds $\lVert w \rVert_1$, and two weights
# of a row differ by a factor of at most $e^{2 \lVert w \rVert_1}$, however long the queries and keys; a dot
# product grows with both. The price is $T S d_{\mathrm{attn}}$ evaluations of tanh, where the dot products
# are one matrix product.

beta, n = 4.0, 9
finder = AdditiveAttention(d_query=1, d_key=2, d_attn=2).requires_grad_(False)
finder.query.weight.copy_(torch.tensor([[-1.0], [-1.0]]))
finder.key.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
finder.score.weight.copy_(torch.tensor([[beta, -beta]]))
line = torch.arange(n) - (n - 1) / 2
_, found = finder(line[:, None], torch.stack([line, torch.ones(n)], dim=-1))
offset = line - line[:, None]
flat = softmax(beta * (offset + 1) - beta * (offset - 1))
_, extreme = additive(1e6 * q, 1e6 * k)
largest_ratio = extreme.max(-1).values / extreme.min(-1).values
print(f"largest weight of each query: {found.max(-1).values.min():.3f} to {found.max(-1).values.max():.3f}")

claims.holds(
    "two hidden units put the largest weight on the key that equals the query", found.argmax(-1) == torch.arange(n)
)
claims.close("without the tanh the two hidden units give every key the same weight", flat, 1 / n, atol=1e-14)
claims.below(
    "queries and keys a million times longer keep additive weights within e to the 2 times the one-norm of w",
    largest_ratio,
    math.exp(2 * w.abs().sum()),
)

# %%

fig, axes = plt.subplots(1, 2, figsize=(4.8, 2.9), sharey=True)
ticks = [f"{x:.0f}" if i % 2 == 0 else "" for i, x in enumerate(line.tolist())]
for ax, matrix, title in zip(axes, (found, flat), ("with tanh", "without")):
    plot.heatmap(ax, matrix, x=ticks, y=ticks, vmax=float(found.max()), ylabel="query" if ax is axes[0] else "")
    ax.set_title(title)
fig.suptitle("The tanh lets the query choose", fontsize=10.5)
fig.set_label(
    f"Two heat maps of additive weights, {n} queries by {n} keys on a line. With the tanh the weight lies along "
    f"the diagonal, at most {found.max():.2f}; without it every cell has the same colour, {flat[0, 0]:.2f}."
)

# %%
# ## Try it
#
# - Set `beta = 1.0`: the band along the diagonal fades, since no score can exceed $\lVert w \rVert_1 = 2\beta$.
# - Replace the constant feature of the keys, `torch.ones(n)`, by zeros: the two units see the same sum, their
#   difference is 0, the weights are uniform, and the page stops at the claim about the largest weight.
# - Flip both signs in `query.weight`: the finder now looks for the key *opposite* to the query, $k_j = -q_i$.
