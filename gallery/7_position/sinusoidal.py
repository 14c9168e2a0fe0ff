r"""
# A shift in position is a rotation of the sinusoidal encoding

Self-attention alone cannot tell order. The first Transformer adds a vector to each token that
depends on its position. This page shows what that vector promises: equal length everywhere, and
inner products that depend on the distance alone.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3.5 (its two formulas have
no number).
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["equivariance"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import MultiHeadAttention, claims, plot, sinusoidal_encoding

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One clock hand for each pair of features
#
# For position $p$ and pair $i = 0, \dots, d_\text{model}/2 - 1$ the encoding holds
#
# $$\operatorname{PE}(p)_{2i} = \sin(p\,\omega_i), \qquad \operatorname{PE}(p)_{2i+1} = \cos(p\,\omega_i),
# \qquad \omega_i = 10000^{-2i/d_\text{model}}.$$
#
# Each pair is the hand of a clock that turns by $\omega_i$ radians per token, the first one fast, each
# further one slower by the same factor. The exponent is easily mistaken: it holds the number of the
# *feature*, $2i$, and sine and cosine of one pair share it. An odd width ends with a sine alone.
#
# Conventions differ. The paper's own code, tensor2tensor, puts all sines before all cosines and divides
# by $d_\text{model}/2 - 1$ instead of $d_\text{model}/2$, so that the last wavelength is exactly
# $10000 \cdot 2\pi$. With the formula above it stays a little below.

d_model, T, base = 64, 60, 10000
pe = sinusoidal_encoding(torch.arange(T), d_model, base)

looped = torch.zeros(T, d_model)
for p in range(T):
    for feature in range(d_model):
        angle = p / base ** ((feature - feature % 2) / d_model)
        looped[p, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
omega = base ** (-torch.arange(0, d_model, 2) / d_model)
print("shape", tuple(pe.shape))
print(f"wavelengths from {2 * math.pi / omega[0]:.2f} to {2 * math.pi / omega[-1]:,.0f} tokens")

claims.close("the sinusoidal encoding equals a loop over positions and features", pe, looped, atol=1e-13)
claims.close(
    "position 1 of the sinusoidal encoding starts with (0.841471, 0.540302)",
    pe[1, :2],
    torch.tensor([0.841471, 0.540302]),
    atol=5e-7,
)
claims.close(
    "at width 4, PE(1) is (0.841471, 0.540302, 0.009999833, 0.99995)",
    sinusoidal_encoding(torch.tensor(1), 4),
    torch.tensor([0.841471, 0.540302, 0.009999833, 0.99995]),
    atol=5e-7,
)
claims.close(
    "at width 5, PE(1) is (0.841471, 0.540302, 0.025116, 0.999685, 0.000631)",
    sinusoidal_encoding(torch.tensor(1), 5),
    torch.tensor([0.841471, 0.540302, 0.025116, 0.999685, 0.000631]),
    atol=5e-7,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 4.1))
image = plot.heatmap(ax, pe, signed=True, xlabel="feature", ylabel="position")
ax.set(title="Fast hands on the left, slow ones on the right", xticks=range(0, 64, 16), yticks=range(0, 60, 20))
fig.colorbar(image, ax=ax, label="PE(p)", shrink=0.8, ticks=[-1, 0, 1])
fig.set_label(
    f"Heatmap of the sinusoidal encoding, {T} positions by {d_model} features: stripes that alternate at "
    "every few positions on the left and hardly change from top to bottom on the right."
)

# %%
# ## Moving by k tokens is a rotation
#
# The addition theorems turn a shift by $k$ into a linear map that knows $k$ but not $p$:
#
# $$\begin{pmatrix} \sin\omega(p+k) \\ \cos\omega(p+k) \end{pmatrix} =
# \begin{pmatrix} \cos\omega k & \sin\omega k \\ -\sin\omega k & \cos\omega k \end{pmatrix}
# \begin{pmatrix} \sin\omega p \\ \cos\omega p \end{pmatrix}.$$
#
# One such block for each pair gives a block-diagonal rotation $R_k$ with
# $\operatorname{PE}(p+k) = R_k \operatorname{PE}(p)$. This is the property for which the authors chose
# the encoding: a head *can* learn to look $k$ tokens back. It holds for even $d_\text{model}$.


def shift(k):
    """The block-diagonal matrix that moves an encoding by k positions."""
    c, s = (k * omega).cos(), (k * omega).sin()
    return torch.block_diag(*torch.stack((c, s, -s, c), dim=-1).view(-1, 2, 2))


moved = torch.stack([sinusoidal_encoding(torch.arange(T) + k, d_model, base) for k in (1, 7, 1000)])
turned = torch.stack([pe @ shift(k).T for k in (1, 7, 1000)])
claims.close("encodings 1, 7 and 1000 tokens on are block rotations of the first ones", moved, turned, atol=1e-12)

# %%
# ## Inner products see the distance only
#
# From $\sin a \sin b + \cos a \cos b = \cos(a - b)$, pair by pair,
#
# $$\operatorname{PE}(i) \cdot \operatorname{PE}(j) = \sum_l \cos \omega_l (i - j), \qquad
# \lVert \operatorname{PE}(i) \rVert^2 = \frac{d_\text{model}}{2}.$$
#
# So all encodings lie on one sphere, and the Gram matrix is constant along its diagonals. But attention
# does not compare encodings as they are: it compares $W_Q^\top \operatorname{PE}(i)$ with
# $W_K^\top \operatorname{PE}(j)$, and with almost any matrix $W = W_Q W_K^\top$ in between,
# $\operatorname{PE}(i)^\top W \operatorname{PE}(j)$ depends on $i$ and $j$ separately. Relative positions
# are within reach here, not built in. [Rotary](rotary.md) builds them in.

gram = pe @ pe.T
distance = torch.arange(T)[:, None] - torch.arange(T)
W = torch.randn(d_model, d_model) / d_model**0.5
through_weights = pe @ W @ pe.T

claims.close("inner products of encodings are constant along diagonals", gram[1:, 1:], gram[:-1, :-1], atol=1e-12)
claims.close(
    "inner products of encodings sum the cosines of frequency times distance",
    gram,
    (distance[..., None] * omega).cos().sum(-1),
    atol=1e-12,
)
claims.close("every sinusoidal encoding of width 64 has squared length 32", pe.square().sum(-1), 32.0, atol=1e-12)
claims.above(
    "behind random projections the inner products of encodings leave the diagonal pattern",
    (through_weights[1:, 1:] - through_weights[:-1, :-1]).abs().max(),
    0.1,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 4.1))
image = plot.heatmap(ax, gram, xlabel="position j", ylabel="position i")
ax.set(title="Similarity depends on i − j alone", xticks=range(0, 60, 20), yticks=range(0, 60, 20))
fig.colorbar(image, ax=ax, label="PE(i) · PE(j)", shrink=0.8)
fig.set_label(
    f"Gram matrix of {T} encodings: brightest on the main diagonal, constant along every diagonal, and darker "
    f"with distance, though not evenly, down to {gram.min():.0f} of {gram.max():.0f}."
)

# %%
# ## What attention gains
#
# For a permutation matrix $P$, self-attention without a mask satisfies $f(PX) = P f(X)$: it is
# permutation-**equivariant**. It is often called invariant, but that would mean $f(PX) = f(X)$, which is
# false: the outputs move along with their tokens. What it cannot do is give a token another output
# because of *where* it stands. With the encodings added to the rows, a moved token meets another vector.
# [More on this](../3_causal_head/equivariance.md).

layer = MultiHeadAttention(d_model, n_heads=4).requires_grad_(False)
tokens = torch.randn(T, d_model)
order = torch.randperm(T)

plain, moved_plain = layer(tokens)[0], layer(tokens[order])[0]
placed, moved_placed = layer(tokens + pe)[0], layer(tokens[order] + pe)[0]

claims.close("without positions the outputs of attention move with their tokens", moved_plain, plain[order], atol=1e-13)
claims.above("attention without positions is not invariant", (moved_plain - plain).abs().max(), 0.01)
claims.above(
    "with sinusoidal encodings added, moving the tokens changes their outputs",
    (moved_placed - placed[order]).abs().max(),
    0.01,
)

# %%
# ## Try it
#
# - Set `base = 2`: now even the slowest hand turns several times within the text, the hands meet again,
#   and the Gram matrix shows further bright diagonals away from the main one.
# - Set `d_model = 4`: two hands are left. Every claim holds but the one that names the squared length.
# - Take `W = torch.eye(d_model)` or `W = shift(3)`: the inner products behind it are constant along
#   diagonals again, and the claim that they are not fails.
