r"""
# Scores have the rank of a head; softmax lifts it, and what softmax forgets can be left out

One matrix product compares every query with every key. This page shows how little freedom the product
has: a rank bound, a redundancy between queries and keys, and a bias that does nothing.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.2.1;
[Bhojanapalli et al. (2020)](../../references.md#bhojanapalli2020), section 3, on the rank;
[Yang et al. (2017)](../../references.md#yang2017), section 2, on the rank of log-probabilities;
[Elhage et al. (2021)](../../references.md#elhage2021), on queries and keys as one matrix.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["projections", "scaling"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention, attention_scores, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## All pairs in one product
#
# The **compatibility** of query $i$ with key $j$ is their scaled dot product. All $T \times T$ of them
# are one product of matrices, because entry $(i, j)$ of $QK^\top$ is row $i$ of $Q$ times row $j$ of $K$:
#
# $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} = \frac{1}{\sqrt{d_k}} \sum_{d=1}^{d_k} q_{id}\, k_{jd},
# \qquad S = \frac{QK^\top}{\sqrt{d_k}} .$$
#
# Nothing makes $S$ symmetric: $i$ may look for $j$ without $j$ looking for $i$. With $Q = XW_Q$ and
# $K = XW_K$, it is symmetric for every $X$ only if $W_Q W_K^\top$ is.

T, d_model, d_k = 32, 24, 8
X = torch.randn(T, d_model)
W_Q, W_K = torch.randn(2, d_model, d_k) / math.sqrt(d_model)
Q, K = X @ W_Q, X @ W_K
S = attention_scores(Q, K)

one_by_one = torch.tensor([[sum(a * b for a, b in zip(q, k)) for k in K.tolist()] for q in Q.tolist()])
one_pair = attention_scores(torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([[4.0, 3, 2, 1]]))
print(f"S has shape {tuple(S.shape)}, {S.numel()} pairs in one product")
print(f"query 0 scores key 1 with {S[0, 1]:+.3f}, query 1 scores key 0 with {S[1, 0]:+.3f}")

claims.close(
    "1024 pairs compared one by one, over √8, are the matrix product", S, one_by_one / math.sqrt(d_k), atol=1e-13
)
claims.close("the query (1, 2, 3, 4) and the key (4, 3, 2, 1) score 20/2 = 10", one_pair, 10.0, atol=1e-14)
claims.above("some score differs from its mirror image by more than 0.1", (S - S.T).abs().max(), 0.1)

# %%
# ## A rank no larger than the head is wide
#
# $S$ is a product through $d_k$ columns, so $\operatorname{rank} S \le d_k$ however long the sequence is. The
# scores of 32 tokens are 1,024 numbers, but a head of width 8 cannot choose them freely.
#
# Softmax takes the exponential of each entry, which breaks the bound. The smallest case can be done by hand:
#
# $$S = \begin{pmatrix} 0 & \ln 3 \\ 0 & 0 \end{pmatrix}, \quad
# A = \begin{pmatrix} \tfrac14 & \tfrac34 \\ \tfrac12 & \tfrac12 \end{pmatrix}, \quad
# \operatorname{rank} S = 1, \quad \det A = -\tfrac14, \quad \operatorname{rank} A = 2.$$
#
# The bound is not gone, it is hidden: $\ln \alpha_{ij} = s_{ij} - \ln \sum_l e^{s_{il}}$ differs from $S$ by one
# number per row, so the entrywise logarithm of $A$ has rank at most $d_k + 1$. A head can only
# produce weights of that kind.

A = attention(Q, K, X)[1]
ranks = {name: torch.linalg.matrix_rank(matrix).item() for name, matrix in (("S", S), ("A", A), ("ln A", A.log()))}
print("  ".join(f"rank of {name}: {rank}" for name, rank in ranks.items()))

one_way = torch.tensor([[math.log(3)], [0.0]]), torch.tensor([[0.0], [1.0]])  # queries, keys
by_hand = attention(*one_way, torch.eye(2))[1]

claims.close("the scores of 32 tokens in a head of width 8 have rank 8", ranks["S"], 8, atol=0)
claims.close("softmax lifts the rank of these 32 rows from 8 to 32", ranks["A"], 32, atol=0)
claims.close("the logarithm of these 32 rows of weights has rank 8 + 1", ranks["ln A"], 9, atol=0)
claims.close(
    "one-way scores (0, ln 3), (0, 0) give the weights ¼, ¾ and ½, ½", by_hand, [[0.25, 0.75], [0.5, 0.5]], atol=1e-14
)
claims.close(
    "softmax of the one-way scores (0, ln 3), (0, 0) has determinant −¼", torch.linalg.det(by_hand), -0.25, atol=1e-14
)

# %%

fig, axes = plt.subplot_mosaic([["S", "A"], ["values", "values"]], figsize=(4.8, 4.9), height_ratios=(1.15, 1))
plot.heatmap(axes["S"], S, signed=True)
plot.heatmap(axes["A"], A, ylabel="")
for name, title in (("S", f"Scores: rank {ranks['S']}"), ("A", f"Weights: rank {ranks['A']}")):
    axes[name].set(title=title, xticks=(0, 31), yticks=(0, 31))
order = torch.arange(1, T + 1)
for matrix, name, colour, marker in ((A, "weights", plot.BLUE, "o"), (S, "scores", plot.VERMILLION, "s")):
    values = torch.linalg.svdvals(matrix)
    axes["values"].semilogy(order, values / values[0], color=colour, marker=marker, markersize=4, label=name)
axes["values"].set(ylim=(1e-6, 3), xticks=(1, 8, 16, 24, 32))
axes["values"].set(title="Singular values, the largest set to 1", xlabel="number of the singular value")
axes["values"].set_yticks((1e-6, 1e-3, 1), ("1e-6", "1e-3", "1"))
axes["values"].legend(loc="upper right")
fig.set_label(
    f"Scores and weights of {T} tokens in a head of width {d_k}, above their singular values on a log axis: those of "
    f"the scores drop to zero after the {ranks['S']}th, those of the weights go on to the {ranks['A']}nd."
)

# %%
# ## Queries and keys count only through one matrix
#
# Written in terms of the tokens, the scores are a bilinear form,
#
# $$S = \frac{1}{\sqrt{d_k}}\, X\, W_Q W_K^\top\, X^\top .$$
#
# Only the product $M = W_Q W_K^\top$ enters. For any invertible $G \in \mathbb{R}^{d_k \times d_k}$ the pair
# $W_Q G$, $W_K G^{-\top}$ has the same product, since $W_Q G\, G^{-1} W_K^\top = M$: a **gauge change** that no
# score can notice. So $d_k^2$ of the $2\, d_{\mathrm{model}}\, d_k$ parameters are redundant, and one
# feature of a query, or of a key, means nothing by itself.

G = torch.randn(d_k, d_k)
gauged = attention_scores(X @ W_Q @ G, X @ W_K @ torch.linalg.inv(G).T)
queries_alone = attention_scores(X @ W_Q @ G, K)
print(f"the gauge moves queries by up to {(X @ W_Q @ G - Q).abs().max():.2f}, scores by {(gauged - S).abs().max():.1e}")

claims.close(
    "the bilinear form of the 24 by 24 matrix M gives the same scores",
    X @ (W_Q @ W_K.T) @ X.T / math.sqrt(d_k),
    S,
    atol=1e-13,
)
claims.close("a gauge change of queries and keys leaves all scores as they were", gauged, S, atol=1e-11)
claims.above(
    "a gauge change of the queries alone moves some score by more than 1", (queries_alone - S).abs().max(), 1.0
)

# %%
# ## A key bias changes nothing
#
# Let the projections have biases $b_Q$ and $b_K$:
#
# $$(q_i + b_Q) \cdot (k_j + b_K) = q_i \cdot k_j + b_Q \cdot k_j + \left[\, q_i \cdot b_K + b_Q \cdot b_K \,\right].$$
#
# The bracket is the same for every key, and softmax along the keys ignores what all of a row share. The
# bias of the keys is therefore without effect and without gradient; that of the queries does count. Many
# implementations carry a key bias all the same, torch's among them; the code of Whisper and of BEiT
# leaves it out. Rotary positions, applied after the bias, turn it by an angle that depends on $j$: then it counts.

query_bias, key_bias = torch.randn(2, d_k)
with_key_bias = attention(Q + query_bias, K + key_bias, X)[1]
with_query_bias = attention(Q + query_bias, K, X)[1]

module = torch.nn.MultiheadAttention(d_model, num_heads=3, bias=True)
out, _ = module(X, X, X)
(out * torch.randn_like(out)).sum().backward()
query_gradient, key_gradient, value_gradient = module.in_proj_bias.grad.chunk(3)
print("largest gradient of torch's biases:", end=" ")
print(*(f"{n} {g.abs().max():.1e}" for n, g in zip("qkv", (query_gradient, key_gradient, value_gradient))), sep="  ")

claims.close("adding a bias to all keys leaves the weights as they were", with_key_bias, with_query_bias, atol=1e-14)
claims.above("adding a bias to all queries moves some weight by more than 0.1", (with_query_bias - A).abs().max(), 0.1)
claims.close("the key bias of torch's MultiheadAttention has no gradient", key_gradient, 0.0, atol=1e-13)
claims.above("the query bias of torch's MultiheadAttention does have a gradient", query_gradient.abs().max(), 1e-3)

# %%
# ## Try it
#
# - Set `d_k = 40`: the head is now wider than the tokens, and their width, 24, becomes the rank of the
#   scores. The claim about rank 8 stops the page, as it should.
# - Put the orthogonal matrix `torch.linalg.qr(torch.randn(d_k, d_k))[0]` in place of `G`: queries and keys
#   keep their lengths, only their axes are renamed, and the scores still do not notice.
# - Normalise $S$ along the queries instead, `torch.softmax(S, dim=0)`: the key bias suddenly matters.
