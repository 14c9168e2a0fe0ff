r"""
# Self-attention sees no order: permute tokens, not rows, to find out

Without positions, self-attention cannot tell one word order from another. The usual test permutes the
rows of its input, and passes just as well when positions have been added: it tests the layer, not the
model. This page proves both, and finds the permutation that shows the difference. The
[derivation](../../derivations/equivariance.md) has the converses and the symmetries of the usual masks.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.5;
[Yun et al. (2020)](../../references.md#yun2020), Claim 1, for equivariance;
[Lee et al. (2019)](../../references.md#lee2019), section 3.2, for pooling;
[Haviv et al. (2022)](../../references.md#haviv2022) for what the causal mask reveals.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["causal_head"]

import itertools

import matplotlib.pyplot as plt
import torch
from torch import nn

from attnkit import Head, attention, causal_mask, claims, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The layer is equivariant
#
# Let $P$ be a permutation matrix, so that $PX$ holds the rows of $X$ in another order. A map $f$ is
# **equivariant** if $f(PX) = P f(X)$, the output follows the input, and **invariant** if
# $f(PX) = f(X)$, the output stays. Self-attention is often called the second and is the first.
#
# **Proposition 1.** *Self-attention without mask and positions is equivariant.*
#
# *Proof.* $S(X) = XW_Q(XW_K)^\top / \sqrt{d_k}$ gives $S(PX) = P\,S(X)\,P^\top$. Softmax treats each row
# by itself and its entries alike, so $A(PX) = P\,A(X)\,P^\top$ as well. Therefore
#
# $$f(PX) = P\,A(X)\,P^\top\, P X W_V = P\,A(X)\, X W_V = P f(X). \qquad \square$$
#
# Five tokens have $5! = 120$ orders. That is few enough to try them all.

T, d_model = 5, 16
orders = torch.tensor(list(itertools.permutations(range(T))))  # (120, T); the first one changes nothing
layer = Head(d_model, 8, d_model)
for parameter in layer.parameters():
    nn.init.normal_(parameter, std=d_model**-0.5)  # wider than the default, so that the weights are far from equal
x = torch.randn(T, d_model)


def deviation(f, given):
    """How far f is from equivariant: largest entry of f(PX) − P f(X), for each order P."""
    return (f(given[orders]) - f(given)[orders]).abs().amax(dim=(1, 2)).detach()


def attend(x):
    """Output of the layer alone."""
    return layer(x)[0]


rows = deviation(attend, x)
_, weights = layer(x)
P = torch.eye(T)[orders]

claims.close("permuting rows of X permutes the outputs, in all 120 orders", rows, 0.0, atol=1e-13)
claims.close("permuting rows of X turns A into P A P^T", layer(x[orders])[1], P @ weights @ P.mT, atol=1e-14)
claims.above(
    "the layer is not invariant: outputs do move", (attend(x[orders[1:]]) - attend(x)).abs().amax((1, 2)), 0.01
)

# %%
# ## The trap
#
# Now add position vectors $p_0, \dots, p_{T-1}$, the rows of $R$, to the tokens' embeddings $E$. Run the
# same test: permute the rows of $X = E + R$ and compare. It passes, up to rounding.
#
# It has to. Proposition 1 holds for **every** $X$, however it was made. In $P(E + R)$ each embedding
# carries its position vector along, so the test never puts a word in another place. It permutes the
# rows; the question was about the words.
#
# A model maps **tokens** $t$ to outputs, $g(t) = f(E_t + R)$, where $R$ stays in its place when words
# move. Permuting the tokens gives
#
# $$g(Pt) = f(P E_t + R) = f\left(P\,(E_t + P^\top R)\right) = P f(E_t + P^\top R),$$
#
# which is $P\,g(t)$ if all rows of $R$ are equal, and in general not otherwise. Moving the words is the
# same as moving the positions the other way.

words = ["the", "dog", "bit", "the", "man"]
vocabulary = sorted(set(words))
tokens = torch.tensor([vocabulary.index(word) for word in words])
embedding = torch.randn(len(vocabulary), d_model)
positions = torch.randn(T, d_model)


def without_positions(t):
    """Tokens to outputs."""
    return attend(embedding[t])


def with_positions(t):
    """Tokens to outputs, each place marked by its own vector."""
    return attend(embedding[t] + positions)


rows_with_positions = deviation(attend, embedding[tokens] + positions)
plain = deviation(without_positions, tokens)
placed = deviation(with_positions, tokens)
back = orders.argsort(dim=1)  # P^T
moved_positions = attend(embedding[tokens] + positions[back])
print(f"rows permuted, positions inside: {rows_with_positions.max():.1e}")
print(f"tokens permuted, no positions:   {plain.max():.1e}")
print(f"tokens permuted, with positions: {placed[1:].min():.2f} to {placed.max():.2f}")

claims.close("the row test passes with positions inside X: the trap", rows_with_positions, 0.0, atol=1e-13)
claims.close("tokens to outputs is equivariant without positions", plain, 0.0, atol=1e-13)
claims.above("with positions, every order but the identity breaks it", placed[1:], 0.01)
claims.close(
    "moving the words equals moving the positions the other way",
    with_positions(tokens[orders]),
    moved_positions[torch.arange(len(orders))[:, None], orders],
    atol=1e-13,
)

# %%
# In words: *the dog bit the man* and *the man bit the dog* hold the same five tokens. Without positions
# each word gets the same output in both sentences, whoever bit, and the two *the* cannot be told apart.

swap = torch.tensor([0, 4, 2, 3, 1])  # dog and man change places; its own inverse
print("swapped:", " ".join(words[i] for i in swap))
for name, model in (("without positions", without_positions), ("with positions", with_positions)):
    change = (model(tokens[swap])[swap] - model(tokens)).norm(dim=-1)
    print(f"{name + ':':19}", "  ".join(f"{word} {c:.2f}" for word, c in zip(words, change.tolist())))

sentence, swapped = without_positions(tokens), without_positions(tokens[swap])
placed_sentence = with_positions(tokens)
claims.close("without positions dog is the same, biting or bitten", sentence[1], swapped[4], atol=1e-14)
claims.close("without positions two equal words have one output", sentence[0], sentence[3], atol=1e-14)
claims.above("with positions two equal words differ", (placed_sentence[0] - placed_sentence[3]).norm(), 0.1)

# %%
# ## The mask breaks it too
#
# A mask is tied to places, as positions are. For the mask matrix $M$, the argument of Proposition 1 gives
#
# $$f_M(PX) = P f_{P^\top M P}(X),$$
#
# so attention under $M$ is equivariant for every $P$ that leaves the mask as it is, $P^\top M P = M$, and
# for other $P$ in general not. The causal mask is a total order of the places, and a finite total order
# has no symmetry but the identity. Other masks keep some: a band $|i - j| \le 1$ can be read backwards,
# and two documents of two and three tokens, without causality, allow $2! \cdot 3! = 12$ orders.

place = torch.arange(T)
document = torch.tensor([0, 0, 1, 1, 1])
masks = {
    "causal": causal_mask(T),
    "band": (place[:, None] - place).abs() <= 1,
    "documents": document[:, None] == document,
    "none": torch.ones(T, T, dtype=torch.bool),
}
symmetries = torch.tensor([sum(torch.equal(m[p][:, p], m) for p in orders) for m in masks.values()])
print("orders that leave the mask as it is:", dict(zip(masks, symmetries.tolist())))

q, k, v = torch.randn(3, T, 8)
M = masks["causal"]
under_mask, _ = attention(q[orders], k[orders], v[orders], M)
carried_mask = M[back[:, :, None], back[:, None, :]]  # P^T M P, one for each order
carried, _ = attention(q, k, v, carried_mask)

causal = Head(d_model, 8, d_model, context=T)
causal.load_state_dict(layer.state_dict())  # the same weights; the mask is no part of the state
masked = deviation(lambda x: causal(x)[0], x)

zero = torch.zeros(3, 1)
means, _ = attention(zero, zero, torch.tensor([[0.0], [1.0], [2.0]]), causal_mask(3))
means_reversed, _ = attention(zero, zero, torch.tensor([[2.0], [1.0], [0.0]]), causal_mask(3))

claims.holds("1, 2, 12 and 120 orders leave the four masks as they are", symmetries == torch.tensor([1, 2, 12, 120]))
claims.close(
    "permuting under a mask equals carrying the mask along",
    under_mask,
    carried[torch.arange(len(orders))[:, None], orders],
    atol=1e-14,
)
claims.above("under the causal mask every order but the identity breaks it", masked[1:], 0.01)
claims.close("causal means of 0, 1, 2 are 0, 1/2, 1", means[:, 0], torch.tensor([0, 0.5, 1]), atol=1e-14)
claims.close("causal means of 2, 1, 0 are 2, 3/2, 1", means_reversed[:, 0], torch.tensor([2, 1.5, 1]), atol=1e-14)

# %%

tests = {
    "rows": rows,
    "rows,\npositions inside": rows_with_positions,
    "tokens": plain,
    "tokens,\nthen positions": placed,
    "rows,\ncausal mask": masked,
}
fig, ax = plt.subplots(figsize=(4.8, 3.4))
for level, result in enumerate(tests.values()):
    colour = plot.VERMILLION if result.max() > 1e-6 else plot.BLUE
    ax.scatter(
        result[1:].clamp(min=1e-17).numpy(), [level] * (len(orders) - 1), s=14, color=colour, alpha=0.4, linewidth=0
    )
ax.set_yticks(range(len(tests)), list(tests))
ax.set(title="Only two of the tests see order", xlabel="deviation from equivariance", xscale="log", xlim=(1e-17, 10))
ax.set_xticks([1e-16, 1e-12, 1e-8, 1e-4, 1], ["1e-16", "1e-12", "1e-8", "1e-4", "1"])
ax.minorticks_off()
ax.set_ylim(len(tests) - 0.5, -0.5)  # first test on top
fig.set_label(
    f"Deviation from equivariance for {len(orders) - 1} orders of {T} tokens, in five tests. Permuted rows, with and "
    "without positions inside, and permuted tokens without positions stay at rounding error. Permuted tokens with "
    "positions, and rows under a causal mask, lie many orders of magnitude higher."
)

# %%
# ## What remains: pooling, and a single causal layer
#
# **Proposition 2.** *A fixed query that attends to a set of tokens is invariant to their order.*
# *Proof.* The output is $\sum_j e^{s_j} v_j$ over $\sum_j e^{s_j}$. Each term of the sums is made from one
# token, and a sum has no order. $\square$
#
# The last query of a causal layer is in that position: it sees all tokens, and itself at the end. So **one**
# causal layer without positions cannot tell in which order the earlier tokens came. Two can: in the
# second layer the earlier tokens are outputs of the first, and each of those depends on what came
# before it. Language models trained without positions do learn where a token stands (Haviv et al.).

pool = torch.randn(1, 8)
pooled, _ = attention(pool.expand(len(orders), 1, 8), k[orders], v[orders])
once, _ = attention(pool, k, v)

past = orders[orders[:, -1] == T - 1]  # the 24 orders that leave the last token last
one_layer = causal(x)[0]
one_layer_permuted = causal(x[past])[0]
once_permuted = one_layer_permuted[:, -1]
two_layers = causal(one_layer)[0]
two_layers_permuted = causal(one_layer_permuted)[0]

claims.close("a pooled query is invariant, in all 120 orders", pooled, once, atol=1e-14)
claims.close(
    "one causal layer: the last output ignores the order of the past", once_permuted, one_layer[-1], atol=1e-14
)
claims.above(
    "two causal layers: every other order of the past changes the last one",
    (two_layers_permuted - two_layers)[1:, -1].norm(dim=-1),
    1e-3,
)

# %%
# ## Try it
#
# - Set `positions` to one random row repeated, `torch.randn(1, d_model).expand(T, -1)`: the tokens' test
#   passes again and the claim fails, for constant positions mark no place.
# - Replace `words` by five different ones: the claim about equal words fails, as it must. Without it,
#   all others hold.
# - Give `layer` the option `context=T`, a causal mask: the first claim fails, without any positions.
