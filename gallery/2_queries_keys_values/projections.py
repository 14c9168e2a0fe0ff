r"""
# With one vector per token, attention cannot go round in a circle; with three it can

A token asks a question, is found by the questions of others, and hands something over. This page shows
what goes wrong when one vector has to play all three parts, and what three linear maps repair.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), sections 3.2.1 and 3.2.2;
[Kitaev et al. (2020)](../../references.md#kitaev2020), section 2, on shared queries and keys;
[Bhojanapalli et al. (2020)](../../references.md#bhojanapalli2020), theorem 1.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["softmax_temperature", "row_stochastic"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention, attention_scores, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One matrix per role
#
# Let the rows of $X \in \mathbb{R}^{T \times d_{\mathrm{model}}}$ be $T$ tokens. Three matrices read
# three vectors off each token $x_i$: the **query** $q_i$, what it looks for; the **key** $k_i$, what it
# can be found by; the **value** $v_i$, what it hands over:
#
# $$Q = X W_Q, \qquad K = X W_K, \qquad V = X W_V.$$
#
# Row $i$ of $Q$ is $q_i = x_i W_Q$: a projection looks at one token at a time, with the same matrix for
# all of them. It is linear, so it keeps sums and multiples. `torch.nn.Linear` computes the same map, but
# stores $W^\top$, one row per output, and adds a bias unless told not to.

T, d_model, d_k, d_v = 4, 12, 4, 4
X, X2 = torch.randn(2, T, d_model)
W_Q, W_K, W_V = (torch.randn(d_model, width) / math.sqrt(d_model) for width in (d_k, d_k, d_v))
Q, K, V = X @ W_Q, X @ W_K, X @ W_V

for name, matrix in {"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "Q": Q, "K": K, "V": V}.items():
    print(f"{name:4}{tuple(matrix.shape)}")

by_hand = torch.tensor([[sum(X[i, c] * W_Q[c, d] for c in range(d_model)) for d in range(d_k)] for i in range(T)])
linear = torch.nn.Linear(d_model, d_k, bias=False)
linear.load_state_dict({"weight": W_Q.T})

claims.holds("4 tokens of width 12 become queries, keys and values of width 4", [m.shape == (4, 4) for m in (Q, K, V)])
claims.close("each query is its own token times the query matrix, summed by hand", by_hand, Q, atol=1e-14)
claims.close("torch's Linear holding the transposed query matrix is the same map", linear(X), Q, atol=1e-14)
claims.close(
    "projecting 2X − 3X' gives twice one minus thrice the other",
    (2 * X - 3 * X2) @ W_Q,
    2 * Q - 3 * X2 @ W_Q,
    atol=1e-13,
)

# %%
# ## One vector for all three is a compromise
#
# Suppose a token used itself as query and key, or that both shared one matrix, $W_Q = W_K$. The scores
# are then inner products of a single set of vectors, $s_{ij} = q_i \cdot q_j / \sqrt{d_k}$, and two
# things follow.
#
# **Symmetry.** $s_{ij} = s_{ji}$: whatever $i$ thinks of $j$, $j$ thinks of $i$. So four tokens cannot
# each prefer their predecessor in a ring to their successor. If they did, going round would give
#
# $$s_{10} > s_{12} = s_{21} > s_{23} = s_{32} > s_{30} = s_{03} > s_{01} = s_{10},$$
#
# a number larger than itself.
#
# **Self-absorption.** By the Cauchy–Schwarz inequality $q_i \cdot q_j \le \lVert q_i \rVert \lVert q_j \rVert$,
# so among vectors of equal length each token scores itself highest. The Reformer, which does share
# queries and keys, therefore forbids a token to attend to itself while it may see any other.

same_length = X / X.norm(dim=1, keepdim=True) * math.sqrt(d_model)  # what RMS normalisation does
tied = attention_scores(same_length, same_length)
_, tied_weights = attention(same_length, same_length, same_length)

claims.close("scores of tokens against themselves are symmetric", tied, tied.T, atol=1e-14)
claims.close("a token of length √12 gives itself the score √12", tied.diagonal(), math.sqrt(12), atol=1e-14)
claims.holds("among tokens of equal length, each finds itself the best match", tied.argmax(dim=1) == torch.arange(T))

asks, answers = torch.randn(2, 1000, d_model, d_k)  # 1000 draws of a query matrix and of a key matrix
prev, succ = torch.arange(T).roll(1), torch.arange(T).roll(-1)


def rings(W_Q, W_K):
    """In which draws every token scores its predecessor above its successor."""
    scores = attention_scores(X @ W_Q, X @ W_K)
    return (scores[:, range(T), prev] > scores[:, range(T), succ]).all(dim=1)


shared, separate = rings(asks, asks).sum().item(), rings(asks, answers).sum().item()
print(f"a full ring of preferences: {shared} of 1000 shared matrices, {separate} of 1000 separate pairs")
claims.holds("none of 1000 shared query-key matrices makes all of a ring prefer its predecessors", shared == 0)
claims.above("of 1000 random pairs of separate matrices, more than 20 do make such a ring", separate, 20)

# %%
# ## Separate matrices for asking and being found
#
# Separate matrices lift both limits. Take any scores $S^\ast \in \mathbb{R}^{T \times T}$ we wish for.
# If the tokens are linearly independent, $X$ has a right inverse, $X X^{+} = I$. With $d_k = T$, put
#
# $$W_Q = \sqrt{d_k}\, X^{+} S^\ast, \qquad W_K = X^{+}
# \quad\Longrightarrow\quad
# \frac{X W_Q (X W_K)^\top}{\sqrt{d_k}} = S^\ast .$$
#
# Every table of scores is within reach, hence every table of positive weights: choose
# $S^\ast = \ln A^\ast$, entry by entry. This is half of theorem 1 of Bhojanapalli et al.; the other half
# says that $d_k < T$ is too narrow for some tokens and weights. We wish for the ring: each token shall
# give its predecessor the weight $0.9$. That takes the score $\ln 27$ there and 0 elsewhere, because
# $27 / (27 + 3) = 0.9$.

wish = math.log(27) * torch.eye(T)[prev]
inverse = torch.linalg.pinv(same_length)
ask, answer = math.sqrt(d_k) * inverse @ wish, inverse
out, weights = attention(same_length @ ask, same_length @ answer, same_length @ W_V)

claims.close("two matrices give every predecessor the weight 0.9", weights[range(T), prev], 0.9, atol=1e-13)
claims.close(
    "each token that the ring does not ask for gets a third of a tenth", weights[range(T), succ], 1 / 30, atol=1e-13
)

# %%

fig, axes = plt.subplots(1, 2, figsize=(4.8, 2.7), sharey=True)
for ax, drawn, title in zip(axes, (tied_weights, weights), ("One vector\nfor all roles", "Three projections:\na ring")):
    plot.heatmap(ax, drawn, x="ABCD", y="ABCD", annotate=".2f", vmax=1.0)
    ax.set_title(title)
axes[1].set_ylabel("")
fig.set_label(
    "Two tables of weights over four tokens. With one vector for all roles every token attends mostly to itself "
    "and the scores are symmetric; with three projections every token attends to its predecessor, round in a ring."
)

# %%
# ## Values are carried, never compared
#
# The weights are a function of $Q$ and $K$ alone, and given them the output $Y = A V$ is linear in the
# values:
#
# $$\frac{\partial \alpha_{ij}}{\partial v_{le}} = 0, \qquad
# \frac{\partial y_{ie}}{\partial v_{jf}} = \alpha_{ij}\, \delta_{ef}.$$
#
# Feature $e$ of a value arrives in feature $e$ of the output and nowhere else. In the queries and keys
# attention is not linear: doubling $X$ doubles both, so it multiplies the scores by 4.
#
# Payload and index are now free of each other. Change the tokens in a direction that $W_Q$ and $W_K$ do
# not read, $X' = X + N$ with $N W_Q = N W_K = 0$: the weights stay, and the output moves by exactly what
# $W_V$ carries, $A N W_V$.

by_values = torch.autograd.functional.jacobian(lambda v: attention(Q, K, v)[0], V)
weights_by_values = torch.autograd.functional.jacobian(lambda v: attention(Q, K, v)[1], V)
A = torch.softmax(Q @ K.T / math.sqrt(d_k), dim=-1)
scores, scores_of_2x = attention_scores(Q, K), attention_scores(2 * X @ W_Q, 2 * X @ W_K)
V2 = X2 @ W_V
mixed, separately = attention(Q, K, 2 * V - 3 * V2)[0], 2 * attention(Q, K, V)[0] - 3 * attention(Q, K, V2)[0]

claims.close("weights have zero gradient with respect to the values", weights_by_values, 0.0, atol=0.0)
claims.close(
    "the output's derivative by the values is the weights, per feature",
    by_values,
    torch.einsum("ij,ef->iejf", A, torch.eye(d_v)),
    atol=1e-14,
)
claims.close("values 2V − 3V' give twice one output minus thrice the other", mixed, separately, atol=1e-13)
claims.close("doubling the tokens multiplies the scores by 4", scores_of_2x, 4 * scores, atol=1e-13)

N = torch.randn(T, d_model) @ (torch.eye(d_model) - inverse @ same_length)  # both maps start with the inverse
moved = same_length + N
moved_out, moved_weights = attention(moved @ ask, moved @ answer, moved @ W_V)

claims.close("a payload that queries and keys do not read moves no weight", moved_weights, weights, atol=1e-13)
claims.close("the output moves by the mixture of the payloads", moved_out - out, weights @ N @ W_V, atol=1e-13)

# %%
# ## Try it
#
# - Replace `math.log(27)` by `math.log(297)`: the claim about the ring stops the page and reports the new
#   weight, $0.99$. No finite score makes it 1.
# - Take the queries from another sequence, `attention(torch.randn(7, d_model) @ W_Q, K, V)`: out come seven
#   rows of weights over the same four keys. That is cross-attention; nothing else changes.
