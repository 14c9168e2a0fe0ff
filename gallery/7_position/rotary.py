r"""
# Turned queries and keys see only their distance

Rotary embedding turns each pair of features of a query or key by an angle that grows with its
position. This page shows that the scores then depend on the distance alone, how the two layouts in
use relate, and which popular beliefs about rotary do not hold.

*Sources:* [Su et al. (2021)](../../references.md#su2021), equations 11 to 16 and 34, section 3.4.3;
[Barbero et al. (2024)](../../references.md#barbero2024), Propositions 3.1 and 3.2. Why rotations and
nothing else: the [derivation](../../derivations/rotary.md).
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["compatibility", "sinusoidal"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import (
    attention,
    attention_scores,
    claims,
    plot,
    positions_from_mask,
    rotary_frequencies,
    rotate,
    sinusoidal_encoding,
)

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Turn each pair by position times frequency
#
# Group the $d$ features of a query or key into $d/2$ pairs, and turn pair $i$ at position $p$ by the
# angle $p\,\omega_i$ with $\omega_i = 10000^{-2i/d}$, the frequencies of the
# [sinusoidal encoding](sinusoidal.md). In one matrix,
#
# $$R_p = \operatorname{diag}(r_0, \dots, r_{d/2-1}), \qquad r_i =
# \begin{pmatrix} \cos p\,\omega_i & -\sin p\,\omega_i \\ \sin p\,\omega_i & \cos p\,\omega_i \end{pmatrix}.$$
#
# Nothing is added to the tokens, and the values are left alone. With a pair $(a, b)$ read as the complex
# number $a + \mathrm{i}b$, the turn is one multiplication by $e^{\mathrm{i}p\,\omega_i}$: an independent
# way to compute it.

d, T = 64, 12
omega = rotary_frequencies(d)
q, k = torch.randn(2, T, d)
positions = torch.arange(T)


def rotate_complex(x, positions):
    """Rotary embedding as a product of complex numbers."""
    angles = positions[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
one = torch.tensor([1])
print("interleaved:", rotate(x, one))
print("half:       ", rotate(x, one, layout="half"))

claims.close("rotary embedding is a product of complex numbers", rotate(q), rotate_complex(q, positions), atol=1e-13)
claims.close("the rotary frequencies are 10000 to the -2i/d", omega, 10000 ** (-torch.arange(0, d, 2) / d), atol=1e-15)
claims.close("rotation by position keeps every norm", rotate(q).norm(dim=-1), q.norm(dim=-1), atol=1e-13)
claims.close("position 0 leaves queries as they are", rotate(q)[0], q[0], atol=0)
claims.close(
    "interleaved, 1 to 4 turns into (-1.14264, 1.922076, 2.959851, 4.0298)",
    rotate(x, one),
    torch.tensor([-1.14264, 1.922076, 2.959851, 4.0298]),
    atol=1e-6,
)
claims.close(
    "in halves, 1 to 4 turns into (-1.984111, 1.959901, 2.462378, 4.0198)",
    rotate(x, one, layout="half"),
    torch.tensor([-1.984111, 1.959901, 2.462378, 4.0198]),
    atol=1e-6,
)

# %%

fig, axes = plt.subplots(1, 3, figsize=(4.8, 2.1), sharey=True)
steps = torch.arange(9)
unit = torch.zeros(len(steps), d)
unit[:, 0::2] = 1.0  # every pair starts at (1, 0)
for ax, pair, colour in zip(axes, (0, 6, 14), plot.PALETTE):
    hand = rotate(unit, steps)[:, 2 * pair : 2 * pair + 2]
    circle = torch.linspace(0, 2 * math.pi, 100)
    ax.plot(circle.cos().numpy(), circle.sin().numpy(), color=plot.INK, linewidth=0.6, linestyle="-", alpha=0.4)
    ax.scatter(*hand.T.numpy(), s=18, color=colour, zorder=3)
    ax.plot([0, float(hand[-1, 0])], [0, float(hand[-1, 1])], color=colour, linestyle="-", linewidth=1.2)
    ax.set(title=f"pair {pair}", aspect="equal", xticks=[-1, 1], yticks=[-1, 1], xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
fig.suptitle(f"Positions 0 to {len(steps) - 1}: the same steps, three speeds", fontsize=10.5)
fig.set_label(
    f"Three circles with the places of one pair of features at positions 0 to {len(steps) - 1}. Pair 0 runs all "
    "the way round, pair 6 about a quarter, pair 14 hardly leaves its start; a hand marks the last position."
)

# %%
# ## Scores depend on the distance alone
#
# Rotations of a plane add their angles, so $R_m^\top R_n = R_{n-m}$ and
#
# $$(R_m q)^\top (R_n k) = q^\top R_m^\top R_n\, k = q^\top R_{n-m}\, k.$$
#
# Move query and key together, by any number of tokens, and their score stays. With one pair and
# $q = k = (1, 0)$ the score is $\cos(m - n)$, easily checked by hand. Where all queries are alike and
# all keys are alike, the score matrix is constant along its diagonals.

near = attention_scores(rotate(q), rotate(k))
far = attention_scores(rotate(q, positions + 1000), rotate(k, positions + 1000))
by_distance = torch.stack([(q[m] * rotate_complex(k, positions - m)).sum(-1) / d**0.5 for m in range(T)])
first = torch.tensor([[1.0, 0.0]])
single = rotate(first, torch.tensor([5])) @ rotate(first, torch.tensor([3])).T
alike = attention_scores(rotate(q[:1].expand(T, d)), rotate(k[:1].expand(T, d)))

claims.close("rotary scores do not change when all positions grow by 1000", far, near, atol=1e-10)
claims.close("a rotary score turns the key by the distance only", near, by_distance, atol=1e-13)
claims.close("one pair at positions 5 and 3 scores cos 2 = -0.416147", single, -0.416147, atol=5e-7)
claims.close("equal content makes rotary scores constant on diagonals", alike[1:, 1:], alike[:-1, :-1], atol=1e-13)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.6))
image = plot.heatmap(ax, alike, signed=True, xlabel="key position n", ylabel="query position m")
ax.set(title="Equal content: one score for each distance", xticks=range(0, T, 4), yticks=range(0, T, 4))
fig.colorbar(image, ax=ax, label="score")
fig.set_label(
    f"Score matrix of {T} equal queries and {T} equal keys at different positions, in a diverging colour scale: "
    "every diagonal has one colour, and the colours differ from diagonal to diagonal."
)

# %%
# ## The same text at another place
#
# Now the weights of a whole text, at positions $0, 1, \dots$ and at positions $1000, 1001, \dots$. With
# rotary they are the same numbers. With [encodings that are added](sinusoidal.md) to the same vectors
# they are not: the sum brings in products of content and position, which change with the place.
#
# Sequences that share a batch are often padded on the left, which moves the shorter ones. Rotary does not mind. Where
# positions are added, they have to be counted from a sequence's own first token, as its mask tells.


def last_weights(start, rotary):
    """Weights of the last query when the text begins at position start."""
    at = start + positions
    if rotary:
        return attention(rotate(q, at), rotate(k, at), torch.eye(T))[1][-1]
    pe = sinusoidal_encoding(at, d)
    return attention(q + pe, k + pe, torch.eye(T))[1][-1]


rotary_pair = torch.stack([last_weights(0, True), last_weights(1000, True)])
added_pair = torch.stack([last_weights(0, False), last_weights(1000, False)])

is_token = torch.arange(3 + T) >= 3  # behind three tokens of padding
counted = positions_from_mask(is_token)

claims.close("moving a text by 1000 tokens keeps its rotary weights", rotary_pair[1], rotary_pair[0], atol=1e-12)
claims.above("moving it changes the weights if encodings are added", (added_pair[1] - added_pair[0]).abs().max(), 0.01)
claims.close("padding on the left changes no rotary weight", last_weights(3, True), rotary_pair[0], atol=1e-12)
claims.above(
    "padding on the left changes the weights if encodings are added",
    (last_weights(3, False) - added_pair[0]).abs().max(),
    0.01,
)
claims.close("positions counted by the mask start behind the padding", counted, [0] * 3 + list(range(T)), atol=0)

# %%

fig, axes = plt.subplots(1, 2, figsize=(4.8, 2.7), sharey=True)
for ax, (at_0, at_1000), name in zip(axes, (rotary_pair, added_pair), ("rotary", "added encodings")):
    ax.plot(at_0.numpy(), color=plot.BLUE, linestyle="none", marker="o", markersize=8, fillstyle="none", label="at 0")
    ax.plot(at_1000.numpy(), color=plot.VERMILLION, linestyle="none", marker="x", markersize=5, label="at 1000")
    ax.set(title=name, xlabel="key", xticks=[0, 5, 10])
axes[0].set_ylabel("weight")
axes[1].legend(loc="upper left", handletextpad=0)
fig.suptitle("One text at two places", fontsize=10.5)
fig.set_label(
    f"Weights of the last query over {T} keys, for the text at position 0 (circles) and at 1000 (crosses). With "
    "rotary each cross sits in its circle; with added encodings most crosses miss theirs."
)

# %%
# ## Two layouts that must not be mixed
#
# The paper pairs neighbours, $(2i, 2i+1)$; GPT-NeoX and the Llama of the transformers library pair
# $(i, i + d/2)$. One fixed permutation of the channels leads from one to the other, and a dot product
# does not mind a permutation applied to both sides. A query in one layout and a key in the other is
# another matter: the channels no longer turn together.

to_halves = torch.cat((torch.arange(0, d, 2), torch.arange(1, d, 2)))
mixed_near = attention_scores(rotate(q), rotate(k, layout="half"))
mixed_far = attention_scores(rotate(q, positions + 1000), rotate(k, positions + 1000, layout="half"))

claims.close(
    "the two rotary layouts agree after one permutation of the channels",
    rotate(q[:, to_halves], layout="half"),
    rotate(q)[:, to_halves],
    atol=1e-14,
)
claims.above("scores of mixed rotary layouts depend on the place", (mixed_far - mixed_near).abs().max(), 0.1)

# %%
# ## Channels that do not turn
#
# GPT-J turns only the first channels of a head and leaves the others alone. The score is then the sum of a part that
# knows the distance and a part that compares content at any distance. The frequencies are those of the smaller
# width.

some = 16
partly_q, partly_k = rotate(q, rotary_dim=some), rotate(k, rotary_dim=some)
turning = attention_scores(rotate(q[:, :some]), rotate(k[:, :some]), scale=1)
still = attention_scores(q[:, some:], k[:, some:], scale=1)
two_places = rotate(q, torch.stack([positions, positions + 1000]), rotary_dim=some)

claims.close("turning 16 channels leaves the other 48 as they are", partly_q[:, some:], q[:, some:], atol=0)
claims.close(
    "a score of partly turned vectors is that of the turned channels plus that of the others",
    attention_scores(partly_q, partly_k, scale=1),
    turning + still,
    atol=1e-13,
)
claims.close(
    "two sets of positions turn one text twice, each as if alone",
    two_places,
    torch.stack([partly_q, rotate(q, positions + 1000, rotary_dim=some)]),
    atol=0,
)

# %%
# ## Half precision needs wide angles
#
# bfloat16 keeps 8 significant bits, so above 256 it no longer holds every integer: 257 becomes 256, and
# the fastest pair is off by a whole radian. The queries may be bfloat16; positions and angles must not.

start = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
naive = torch.tensor(257, dtype=torch.bfloat16)
print("257 in bfloat16 is", int(naive))

claims.close(
    "at position 257 the fastest pair has cosine 0.8193", rotate(first, torch.tensor([257]))[0, 0], 0.8193, atol=5e-5
)
claims.close("it keeps this cosine for bfloat16 queries", rotate(start, torch.tensor([257]))[0, 0], 0.8193, atol=2**-8)
claims.close("a bfloat16 angle would give cosine -0.0398", naive.double().cos(), -0.0398, atol=5e-5)

# %%
# ## No decay of its own
#
# It is often said that rotary makes distant tokens count less. For equal query and key of ones the score
# is indeed $\sum_i 2\cos(\omega_i r)$ at distance $r$, which falls, unevenly, since the pairs drift apart;
# the paper bounds such scores by a sum that falls. But take independent Gaussian $q$ and $k$: a rotated Gaussian
# vector has the same distribution as before, so the score has mean 0 and the same variance at *every*
# distance. And a head can prefer any distance: a query turned back, $q = R_{-r}\,k$, matches its key best
# exactly $r$ tokens back.

ones = {r: float((rotate(torch.ones(1, d), torch.tensor([r])) * torch.ones(d)).sum() / d) for r in (0, 10, 1000)}
many_q, many_k = torch.randn(2, 20_000, d)
spread = {r: (many_q * rotate(many_k, torch.tensor([r]))).sum(-1).div(d**0.5).std().item() for r in (0, 10, 1000)}
for r in ones:
    print(f"distance {r:>4}: ones {ones[r]:.3f}, standard deviation of Gaussian scores {spread[r]:.3f}")
back = torch.arange(1001)
keys = rotate(k[:1].expand(len(back), d), -back)
preferred = torch.stack([(keys @ rotate(k[:1], torch.tensor([-r])).T).argmax() for r in (0, 1, 17, 400)])

claims.close("scores of equal ones fall to 0.66 at distance 10", ones[10], 0.66, atol=0.005)
claims.close("scores of equal ones fall to 0.28 at distance 1000", ones[1000], 0.28, atol=0.005)
claims.close("scores of Gaussian q and k keep deviation 1 at any distance", list(spread.values()), 1.0, atol=0.03)
claims.close("a turned query looks back exactly 0, 1, 17 or 400 tokens", preferred, [0, 1, 17, 400], atol=0)

# %%
# ## Try it
#
# - Let `last_weights` return outputs (`[0]`) and rotate its values too, `rotate(torch.eye(T), at)`: the
#   outputs depend on the place, and the claim fails. Rotary turns queries and keys only.
# - Pass `rotary_dim=16` to all four `rotate` of `near` and `far`: the first 16 channels carry order, the
#   others compare content at any distance. Moved scores still agree; those of the full turn differ.
# - Pass `base=100` to the `rotate` of `ones`: without slow pairs the score falls to about a third at
#   distance 10 and to almost nothing at 1000.
