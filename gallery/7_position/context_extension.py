r"""
# Longer contexts need slower clocks, but not all of them

A model trained with rotary positions up to a length $L$ has seen only some angles. To use it at $sL$
tokens, its frequencies are lowered. This page compares three rules by what they keep exactly: position
interpolation, NTK-aware scaling, and YaRN, for which we say which of two ramps in use is meant.

*Sources:* [Chen et al. (2023)](../../references.md#chen2023), equation 4;
[Peng et al. (2023)](../../references.md#peng2023), equations 14 to 16 (NTK-aware), 17 to 20 (by parts),
21 and 22 (temperature) of the preprint's version 2; the ICLR paper numbers 17, 18 and 20 as 10, 11 and 13.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["rotary"]

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention_scores, claims, plot, rotary_frequencies, rotate

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## Angles that training has not seen
#
# [Rotary](rotary.md) turns pair $i$ by $\omega_i = b^{-2i/d}$ radians per token, with $b = 10000$. Within
# the trained length $L$ it makes $r_i = L\,\omega_i / 2\pi$ full turns. If $r_i \ge 1$, training covered
# the whole circle. If $r_i < 1$, the pair stopped at the angle $L\,\omega_i$, and positions beyond $L$
# reach angles that no weight was trained on. We take the sizes of Llama 2 and extend eightfold.

d, L, s, base = 128, 4096, 8, 10000.0
omega = rotary_frequencies(d, base)
turns = L * omega / (2 * math.pi)
slow = turns < 1
print(f"{len(omega)} pairs, of which {int(slow.sum())} make less than one turn in {L} tokens")


def unseen(frequencies):
    """How many pairs reach angles beyond the trained ones at length s L."""
    return int((slow & (s * L * frequencies > L * omega * (1 + 1e-12))).sum())


print("pairs with unseen angles if nothing is changed:", unseen(omega))
claims.close("unchanged, 18 of 64 pairs reach unseen angles", unseen(omega), 18, atol=0)

# %%
# ## Position interpolation slows every pair
#
# Chen et al. divide the positions by $s$, which is the same as dividing every frequency:
# $\omega_i' = \omega_i / s$. Position $sL$ then has the angles that $L$ had, and none is new. The price is
# paid at short distance: neighbours now differ by the angle that used to lie between a token and a point
# $1/s$ of the way to the next, even in the fast pairs that tell neighbours apart.

interpolated = omega / s
x = torch.randn(5, d)
long_positions = torch.tensor([0, 1, 100, L, s * L])

claims.close(
    "dividing positions by 8 equals dividing all frequencies by 8",
    rotate(x, long_positions / s, frequencies=omega),
    rotate(x, long_positions, frequencies=interpolated),
    atol=1e-11,
)
claims.close(
    "interpolated position 8L has the angles of position L",
    rotate(x[-1:], long_positions[-1:], frequencies=interpolated),
    rotate(x[-1:], torch.tensor([L]), frequencies=omega),
    atol=1e-11,
)
claims.close("position interpolation leaves no unseen angle", unseen(interpolated), 0, atol=0)

# %%
# ## NTK-aware scaling changes the base
#
# Another base slows the pairs unevenly. Ask that the slowest pair, $i = d/2 - 1$, be divided by $s$:
#
# $$b'^{-(d-2)/d} = \frac{b^{-(d-2)/d}}{s} \quad\Longrightarrow\quad b' = b\, s^{d/(d-2)}.$$
#
# The fastest pair, $\omega_0 = b'^{\,0} = 1$, is kept, whatever the base. In between, pair $i$ is divided
# by $s^{2i/(d-2)}$, which is less than $s$. So of the pairs that made less than one turn only the very
# last one stays within its angles. The method is no pure interpolation.

ntk_base = base * s ** (d / (d - 2))
ntk = rotary_frequencies(d, ntk_base)
pair = torch.arange(d // 2)
print(f"base {base:,.0f} becomes {ntk_base:,.0f}; pairs with unseen angles: {unseen(ntk)}")

claims.close("NTK-aware scaling keeps the top frequency", ntk[0], omega[0], atol=0)
claims.close("NTK-aware scaling divides the lowest frequency by 8", omega[-1] / ntk[-1], 8.0, atol=1e-13)
claims.close("it divides pair i by 8 to the power 2i/(d-2)", omega / ntk, s ** (2 * pair / (d - 2)), atol=1e-12)
claims.close("for d = 128 and s = 8 the NTK-aware base is 82685", ntk_base, 82685, atol=0.5)
claims.close("NTK-aware scaling leaves 17 pairs with unseen angles", unseen(ntk), 17, atol=0)

# %%
# ## YaRN decides pair by pair
#
# Pairs that turned often keep their frequency, pairs that never completed $\alpha$ turns are interpolated,
# and a ramp joins them:
#
# $$\omega_i' = (1 - \gamma)\,\frac{\omega_i}{s} + \gamma\,\omega_i, \qquad
# \gamma = \operatorname{clamp}\left(\frac{r_i - \alpha}{\beta - \alpha},\, 0,\, 1\right), \qquad
# \alpha = 1,\ \beta = 32 \text{ for Llama}.$$
#
# This is the ramp of the paper, **linear in the number of turns** $r_i$, with the original base in $r_i$.
# The code the authors released uses another one, and the transformers library follows it: **linear in the
# index** $i$ between the two pairs where $r_i$ passes $\beta$ and $\alpha$ (rounded outwards). Outside the
# ramp both agree. On it they do not: the released one keeps nearly all pairs faster. Ask which one a model
# was trained with. YaRN also sharpens the softmax: scores are divided by a temperature $t$, by scaling $q$
# and $k$ each with $\sqrt{1/t} = 0.1 \ln s + 1$.

alpha, beta = 1, 32
gamma = ((turns - alpha) / (beta - alpha)).clamp(0, 1)
yarn = (1 - gamma) * omega / s + gamma * omega

first, last = (d / 2 * math.log(L / (2 * math.pi * turn)) / math.log(base) for turn in (beta, alpha))
released_gamma = 1 - ((pair - math.floor(first)) / (math.ceil(last) - math.floor(first))).clamp(0, 1)
released = (1 - released_gamma) * omega / s + released_gamma * omega
sharpen = 0.1 * math.log(s) + 1
kept, divided = int((gamma == 1).sum()), int((gamma == 0).sum())
ramp = (gamma > 0) & (gamma < 1)
print(f"kept: {kept} pairs, on the ramp: {int(ramp.sum())}, divided by {s}: {divided}")
print(
    f"on the ramp the released code is faster in {int((released > yarn)[ramp].sum())} pairs, "
    f"by up to a factor of {(released / yarn).max():.2f}"
)

claims.close("YaRN keeps the frequencies of the first 21 pairs", yarn[:21], omega[:21], atol=0)
claims.close("YaRN divides those of the last 18 pairs by 8", omega[46:] / yarn[46:], 8.0, atol=1e-14)
claims.holds("YaRN slows the 25 pairs between, by less than 8", (yarn < omega)[21:46] & (yarn > omega / s)[21:46])
claims.close("YaRN leaves no unseen angle", unseen(yarn), 0, atol=0)
claims.close("both YaRN ramps agree outside", released[~ramp], yarn[~ramp], atol=1e-16)
claims.above("inside, the YaRN ramps differ by a factor of more than 2", (released / yarn).max(), 2.0)
claims.close("for s = 8 YaRN scales q and k by 1.207944", sharpen, 1.207944, atol=5e-7)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.2))
ax.plot((interpolated / omega).numpy(), label="interpolation")
ax.plot((ntk / omega).numpy(), label="NTK-aware")
ax.plot((yarn / omega).numpy(), label="YaRN, by turns")
ax.plot((released / omega).numpy(), label="YaRN, by index")
ax.set(
    title="How much each pair is slowed",
    xlabel="pair, fast to slow",
    ylabel="new over old frequency",
    yscale="log",
    yticks=[1 / 8, 1 / 4, 1 / 2, 1],
    yticklabels=["1/8", "1/4", "1/2", "1"],
    xticks=[0, 21, 46, 63],
)
ax.minorticks_off()
ax.legend(loc="lower left", bbox_to_anchor=(0, 0.08))
fig.set_label(
    f"Ratio of new to old frequency for {d // 2} pairs on a logarithmic scale. Interpolation is flat at one eighth; "
    "NTK-aware is a straight line from one to one eighth; YaRN is at one, falls, and stays at one eighth, where "
    "the ramp by turns falls sooner than the ramp by index."
)

# %%
# ## What neighbours lose
#
# All of these are rotations, so scores still depend on the distance alone. What differs is how fast they
# change. For query and key of ones the score at distance $r$ is the mean of $\cos(\omega_i' r)$ times
# $d$. Interpolation stretches this curve by $s$: a neighbour looks almost like the token itself. YaRN
# keeps the fast pairs, and with them most of the difference.

rules = {"unchanged": omega, "interpolation": interpolated, "NTK-aware": ntk, "YaRN, by turns": yarn}
q, k = torch.randn(2, 5, d)
moved = [
    attention_scores(rotate(q, at, frequencies=f), rotate(k, at, frequencies=f))
    for f in rules.values()
    for at in (torch.arange(5), torch.arange(5) + 1000)
]
distance = torch.arange(33)
ones = torch.ones(len(distance), d)
similarity = {name: (rotate(ones, distance, frequencies=f) / d).sum(-1) for name, f in rules.items()}
for name, curve in similarity.items():
    print(f"{name:<15} similarity of neighbours {curve[1]:.4f}")

claims.close("rescaled frequencies keep scores relative", torch.stack(moved[::2]), torch.stack(moved[1::2]), atol=1e-10)
claims.close(
    "interpolation by 8 stretches similarity over distance by 8",
    similarity["interpolation"][8::8],
    similarity["unchanged"][1:5],
    atol=1e-13,
)
claims.above(
    "YaRN keeps neighbours over ten times further apart than interpolation",
    (1 - similarity["YaRN, by turns"][1]) / (1 - similarity["interpolation"][1]),
    10.0,
)

# %%

fig, ax = plt.subplots()
for (name, curve), colour, dash in zip(similarity.items(), plot.PALETTE, ("-", "--", "-.", ":")):
    ax.plot(distance.numpy(), curve.numpy(), color=colour, linestyle=dash, label=name)
ax.set(
    title="Interpolation blurs neighbours",
    xlabel="distance in tokens",
    ylabel="similarity",
    ylim=(0.35, 1.02),
    xticks=range(0, 33, 8),
)
ax.legend(loc="lower left", ncols=2)
fig.set_label(
    f"Similarity of equal vectors against distance up to {len(distance) - 1} tokens under four sets of frequencies: "
    "interpolation falls slowly; YaRN follows the unchanged curve for the first few tokens and stays above it later."
)

# %%
# ## Try it
#
# The claims above pin numbers for these sizes; delete the ones that stop you.
#
# - Set `s = 2`: the NTK-aware base about doubles, and still all slow pairs but one see new angles.
# - Set `base = 500000.0`, which Llama 3 is trained with: more pairs make less than one turn, so YaRN would
#   divide more of them and keep fewer.
# - Put `released` among the rules of the second figure: its curve runs even closer to the unchanged one.
