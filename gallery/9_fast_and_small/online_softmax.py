r"""
# Softmax needs one pass over the keys, so attention never holds all its scores

A running maximum and a running sum give the exact softmax of scores that arrive one block at a time. This
page derives that, forwards and backwards, and counts what it saves in memory and costs in multiplications. The
[derivation](../../derivations/online_softmax.md) proves each step.

*Sources:* [Milakov and Gimelshein (2018)](../../references.md#milakov2018), algorithm 3, the running sum;
[Rabe and Staats (2021)](../../references.md#rabe2021) and [Dao et al. (2022)](../../references.md#dao2022),
section 3 and appendix B, attention with it; [Dao (2023)](../../references.md#dao2023), section 3.1, the order of loops.
"""

# mkdocs_gallery_order = 1
# mkdocs_gallery_builds_on = ["softmax_temperature", "weights_and_values"]

import math
import weakref

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnkit import attention, attention_scores, causal_mask, claims, merge_partials, plot, tiled_attention

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## One pass with a running maximum
#
# A stable softmax of scores $s_1, \dots, s_S$ seems to need three passes: the maximum, the sum of $e^{s_j - m}$,
# the weights. Attention wants only the mixture of the values, and for that one pass will do. Keep, after $n$ keys,
#
# $$m_n = \max_{j \le n} s_j, \qquad \ell_n = \sum_{j \le n} e^{s_j - m_n}, \qquad
# o_n = \sum_{j \le n} e^{s_j - m_n} v_j .$$
#
# The next score may raise the maximum. Since $e^{s_j - m_{n+1}} = e^{m_n - m_{n+1}}\, e^{s_j - m_n}$ for
# each old term, one factor brings both sums up to date:
#
# $$\ell_{n+1} = e^{m_n - m_{n+1}}\, \ell_n + e^{s_{n+1} - m_{n+1}}, \qquad
# o_{n+1} = e^{m_n - m_{n+1}}\, o_n + e^{s_{n+1} - m_{n+1}}\, v_{n+1}.$$
#
# With $m_0 = -\infty$ and $\ell_0 = o_0 = 0$ the definitions hold for all $n$ by induction, and $o_n / \ell_n$ is at
# every moment the attention to the first $n$ keys. No exponent is positive, so nothing overflows.


def one_pass(scores, values):
    """Attention to the first 1, 2, 3, … keys, from one loop that looks at each of them once."""
    m, total, mixed, out = -math.inf, 0.0, 0.0, []
    for s, v in zip(scores.tolist(), values.tolist()):
        higher = max(m, s)
        rescale, new = math.exp(m - higher), math.exp(s - higher)
        m, total, mixed = higher, rescale * total + new, rescale * mixed + new * v
        out.append(mixed / total)
    return torch.tensor(out)


scores, values = 3 * torch.randn(40), torch.randn(40)
prefixes = torch.stack([torch.softmax(scores[:n], dim=0) @ values[:n] for n in range(1, 41)])
logs = torch.tensor([1.0, 2.0, 3.0]).log()
print("attention to the first 1, 2, 3 keys:", one_pass(logs, torch.tensor([0.0, 3.0, 6.0])).tolist())

claims.close("one pass gives torch's softmax of every prefix", one_pass(scores, values), prefixes, atol=1e-14)
claims.close(
    "scores ln 1, ln 2, ln 3 with values 0, 3, 6 pass through 0 and 2 to 4",
    one_pass(logs, torch.tensor([0.0, 3.0, 6.0])),
    torch.tensor([0.0, 2.0, 4.0]),
    atol=1e-14,
)
claims.close(
    "scores that rise to 1000 one by one do not overflow: the last value wins",
    one_pass(torch.arange(0.0, 1001.0, 100.0), torch.arange(11.0))[-1],
    10.0,
    atol=1e-14,
)

# %%
# ## Tile by tile
#
# Nothing changes if the scores arrive a block at a time and for a block of queries at once: $m$, $\ell$ and $o$ get a
# row per query, $e^{s_{n+1} - m_{n+1}}$ becomes a tile. `tiled_attention` goes through the tiles of one block of
# queries, then takes the next block. Four places are easy to get wrong. The **last tile** may be smaller than a block.
# A **mask** belongs to its tile. While a query has **seen no key**, $m = -\infty$, and $-\infty - (-\infty)$ is NaN; a
# first tile that is masked throughout must leave the state as it was. And a query that sees **no key at all**
# gets 0.

B, H, T, S, d_k, d_v = 2, 3, 53, 59, 16, 5
q, k, v = torch.randn(B, H, T, d_k), torch.randn(B, H, S, d_k), torch.randn(B, H, S, d_v)
some = torch.rand(B, 1, T, S) < 0.5
some[:, :, :, :16] = False  # the first tile of every row is masked throughout
some[:, :, 7] = False  # and query 7 is blind
rising = k + torch.linspace(0, 400, S)[:, None] * torch.ones(d_k)  # for q = 1 scores climb by 27 per key, past 1000
masks = {"none": None, "causal": causal_mask(T, S, offset=S - T), "some": some}
print(f"{T} queries, {S} keys, of which a row of `some` shows {some.sum(-1).min()} to {some.sum(-1).max()}")
for name, mask in masks.items():
    expected = scaled_dot_product_attention(q, k, v, mask)
    claims.close(
        f"tiles of 1, 7, 16, 53 and 64 give torch's attention, mask: {name}",
        torch.stack([tiled_attention(q, k, v, mask, block=block) for block in (1, 7, 16, 53, 64)]),
        expected.expand(5, *expected.shape),
        atol=1e-13,
    )

ones = torch.ones(1, 1, 1, d_k)
blind = tiled_attention(q, k, v, some, block=16)[:, :, 7]
claims.close("a query that sees no key in any tile gets 0", blind, 0.0, atol=0)
claims.close(
    "values 1 and 3 in two tiles, second query blind: 2 and 0",
    tiled_attention(*torch.zeros(2, 2, 1), torch.tensor([[1.0], [3.0]]), torch.tensor([[True], [False]]), block=1),
    torch.tensor([[2.0], [0.0]]),
    atol=0,
)
claims.close(
    "scores that climb past 1000 from tile to tile stay exact",
    tiled_attention(ones, rising, v, block=8),
    attention(ones, rising, v)[0],
    atol=1e-13,
)

# %%
# ## The gradient without the weights
#
# Backpropagation seems to need the whole matrix of weights again. It needs each tile once more, and can compute
# it: $\alpha_{ij} = e^{s_{ij} - \mathrm{lse}_i}$ with $\mathrm{lse}_i = m_i + \ln \ell_i$, one number per query. For
# a loss with gradient $g_i$ at the output $y_i = \sum_j \alpha_{ij} v_j$, and with the derivative
# $\alpha_{ij}(\delta_{jl} - \alpha_{il})$ of softmax,
#
# $$\frac{\partial L}{\partial v_j} = \sum_i \alpha_{ij}\, g_i, \qquad
# \frac{\partial L}{\partial s_{ij}} = \alpha_{ij} \left( g_i \cdot v_j - \sum_l \alpha_{il}\, g_i \cdot v_l \right)
# = \alpha_{ij} \left( g_i \cdot v_j - g_i \cdot y_i \right).$$
#
# The sum over all keys has become $g_i \cdot y_i$, which is known after the forward pass. So every tile can be treated
# by itself: $\partial L / \partial q_i$ collects $k_j\, \partial L / \partial s_{ij}$, and $\partial L / \partial k_j$
# collects $q_i\, \partial L / \partial s_{ij}$, both with the scale.


def gradients(form, *inputs):
    """Gradients of a fixed weighted sum of the outputs by all inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = form(*leaves)
    return torch.autograd.grad(out, leaves, torch.cos(torch.arange(out.numel() * 1.0)).view_as(out))


def tiled(q, k, v):
    """Tiles of 16, with the mask that hides a tile and a query."""
    return tiled_attention(q, k, v, some, block=16)


pairs = zip("qkv", gradients(tiled, q, k, v), gradients(lambda q, k, v: attention(q, k, v, some)[0], q, k, v))
for name, ours, expected in pairs:
    claims.close(f"the tiled gradient by {name} is that of the naive form", ours, expected, atol=1e-13)

# %%
# ## What is held
#
# We let torch report each tensor that it makes, for one head and no mask. The naive form makes all $T^2$ scores at
# once, and more than one copy of them. The tiled form makes nothing larger than one tile here. What it holds at its
# peak, inputs, outputs and gradients included, is a constant plus a multiple of $T$.


class Meter(TorchDispatchMode):
    """While active, counts the numbers held by the tensors that torch makes: the largest, and the peak of all."""

    def __init__(self):
        super().__init__()
        self.largest = self.alive = self.peak = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        """Called by torch in place of each operation."""
        out = operation(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in given:  # neither view nor in place
            size = out.untyped_storage().nbytes() // out.element_size()
            self.alive, self.largest = self.alive + size, max(self.largest, size)
            self.peak = max(self.peak, self.alive)
            weakref.finalize(out.untyped_storage(), self.freed, size)
        return out

    def freed(self, size):
        """Called when no tensor uses this memory any more."""
        self.alive -= size


def metered(form, T):
    """The meter after a forward and a backward pass, with two features."""
    inputs = torch.randn(3, T, 2)
    with Meter() as meter:
        gradients(form, *inputs)
    return meter


lengths = (64, 128, 256, 512, 1024, 2048)
forms = {"naive": lambda q, k, v: attention(q, k, v)[0], "tiled": lambda q, k, v: tiled_attention(q, k, v, block=64)}
meters = {name: [metered(form, T) for T in lengths] for name, form in forms.items()}
largest = {name: torch.tensor([float(meter.largest) for meter in row]) for name, row in meters.items()}
peak = {name: torch.tensor([float(meter.peak) for meter in row]) for name, row in meters.items()}
print("   T   largest tensor: naive    tiled   peak of all: naive    tiled")
for T, naive, tile in zip(lengths, meters["naive"], meters["tiled"]):
    print(f"{T:4}   {naive.largest:21,} {tile.largest:8,}   {naive.peak:18,} {tile.peak:8,}")

claims.close(
    "the naive form's largest tensor has T² numbers, T from 64 to 2048",
    largest["naive"],
    torch.tensor(lengths) ** 2,
    atol=0,
)
claims.close(
    "the tiled form's largest tensor has 64² numbers, T from 64 to 2048",
    largest["tiled"],
    64**2,
    atol=0,
)
steps = peak["tiled"][1:].diff()
claims.close("the tiled form's peak is a constant plus a multiple of T, from 128 on", steps[1:], 2 * steps[:-1], atol=0)
claims.below(
    "at T = 2048 the tiled form holds less than 1/400 of the naive", peak["tiled"][-1] / peak["naive"][-1], 1 / 400
)

# %%

fig, ax = plt.subplots()
ax.loglog(lengths, peak["naive"].numpy(), marker="o", label="naive")
ax.loglog(lengths, peak["tiled"].numpy(), marker="s", label="tiled, block 64")
ax.set(title="Memory: the square of T, or T", xlabel="tokens T", ylabel="numbers held at the peak")
ax.set_xticks(lengths, lengths)
ax.set_yticks([1e4, 1e5, 1e6, 1e7], ["10 k", "100 k", "1 M", "10 M"])
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Two lines on logarithmic axes, for {lengths[0]} to {lengths[-1]} tokens: the naive form's peak climbs more than "
    f"twice as steeply as the tiled form's and ends {peak['naive'][-1] / peak['tiled'][-1]:.0f} times higher."
)

# %%
# ## What is multiplied
#
# Tiling spares no multiplication. Forwards, each score is computed once, as before. Backwards, the scores are computed
# again, so that five products of a $T \times T$ matrix with a thin one are needed instead of four: both passes
# together take $7/6$ of the naive work if $d_k = d_v$. What falls is the traffic. With a fast memory of $M$ numbers,
# $d_k \le M \le T d_k$, well chosen tiles move $\Theta(T^2 d_k^2 / M)$ numbers to and fro, and the naive form
# $\Theta(T d_k + T^2)$ (Dao et al., theorem 2). Where multiplying is much faster than moving, the extra sixth costs
# less than the traffic, and the tiled form wins in time too. It does not pay for short inputs, whose scores fit into
# the fast memory anyway, nor in Python, as here, unless a tile's work outweighs its calls. The
# [benchmark of attention](../../benchmarks.md) times both forms and measures their memory.
#
# Under a causal mask there is something to spare after all. Of $n^2$ tiles, those above the diagonal hide
# everything and are skipped. The share $n(n+1)/2n^2 = 1/2 + 1/2n$ remains, while the naive form multiplies all scores
# and then throws half of them away.


def multiplications(form, *inputs):
    """Multiplications of a forward pass, and of a forward and backward pass."""
    with FlopCounterMode(display=False) as forward:
        form(*inputs)
    with FlopCounterMode(display=False) as both:
        gradients(form, *inputs)
    return torch.tensor([forward.get_total_flops(), both.get_total_flops()]) / 2  # a flop is * or +


T, block = 512, 64
inputs, n = torch.randn(3, T, 16), T // block
naive, tile = (multiplications(form, *inputs) for form in forms.values())
causal = multiplications(lambda q, k, v: tiled_attention(q, k, v, causal_mask(T), block=block), *inputs)
for name, (forward, both) in {"naive": naive, "tiled": tile, "tiled, causal": causal}.items():
    print(f"{name:>13}: {forward:12,.0f} multiplications forward, {both:12,.0f} with the backward pass")
visible = causal_mask(T).view(n, block, n, block).double().mean(dim=(1, 3))

claims.close("forwards, both forms multiply T²(d_k + d_v) times", torch.stack([naive[0], tile[0]]), T**2 * 32.0, atol=0)
claims.close("with the backward pass the tiled form takes 7/6 of the naive one", tile[1] / naive[1], 7 / 6, atol=1e-15)
claims.close("under a causal mask 8 × 8 tiles take 36/64 of the work", causal / tile, 36 / 64, atol=1e-15)
claims.close("the causal mask leaves exactly 36 of 64 tiles with something to see", (visible > 0).sum(), 36, atol=0)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.9))
image = plot.heatmap(ax, visible, xlabel="tile of 64 keys", ylabel="tile of 64 queries")
ax.set(title="Tiles of the future are skipped", xticks=[0, n - 1], yticks=[0, n - 1])
fig.colorbar(image, label="share of visible pairs")
fig.set_label(
    f"A grid of {n} by {n} tiles under a causal mask: full below the diagonal, half full on it, and empty above, "
    f"where {n * (n - 1) // 2} tiles are never computed."
)

# %%
# ## Merging what was computed apart
#
# The same rescaling joins results of any two sets of keys. From each set keep the output $y$ and
# $\mathrm{lse} = \ln \sum_j e^{s_j}$, its total mass on a logarithmic scale. The mixture of all keys weighs the two by
# their mass:
#
# $$\mathrm{lse} = \ln \left(e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}\right), \qquad
# y = e^{\mathrm{lse}_1 - \mathrm{lse}}\, y_1 + e^{\mathrm{lse}_2 - \mathrm{lse}}\, y_2 .$$
#
# The pairs form a commutative monoid: any order and any grouping will do, and $(-\infty, 0)$, no keys at all, is its
# neutral element. That is how long contexts are split over several processors, or a shared prefix is attended
# to once for many continuations.


def partial(keys):
    """What one worker returns for its share of the keys."""
    return attention_scores(q, k[..., keys, :]).logsumexp(dim=-1), attention(q, k[..., keys, :], v[..., keys, :])[0]


whole, (a, b, c) = partial(slice(None)), (partial(keys) for keys in (slice(20), slice(20, 51), slice(51, None)))
nothing = torch.full_like(whole[0], -math.inf), torch.zeros_like(whole[1])
one, three = (torch.tensor([[1.0]]).log()[0], torch.tensor([[8.0]])), (torch.tensor([3.0]).log(), torch.tensor([[4.0]]))

for part, name in enumerate(("lse", "output")):
    left, right = merge_partials(merge_partials(a, b), c), merge_partials(a, merge_partials(c, b))
    claims.close(
        f"three workers' partial results merge to the {name} for all keys", left[part], whole[part], atol=1e-14
    )
    claims.close(f"in another order they merge to the same {name}", right[part], whole[part], atol=1e-14)
    claims.close(
        f"a worker without keys leaves the {name} as it was", merge_partials(a, nothing)[part], a[part], atol=0
    )
claims.close("8 with mass 1 and 4 with mass 3 merge to 5", merge_partials(one, three)[1], 5.0, atol=1e-14)

# %%
# ## Try it
#
# - Leave out `rescale` in `one_pass`: the first claim fails, but not for scores that fall, since then no
#   maximum is ever replaced.
# - Set `block=32` in `forms`: the largest tensor is a quarter as large until $2T$, the size of the output, exceeds it.
# - Let `lengths` run from 4 to 64, within one tile: the largest tensors of the two forms agree, but the naive one
#   still holds more, because autograd keeps its intermediate results.
