r"""
# Before it learns anything, a causal head averages its past

Five causal heads, fresh from their initialisation, read real text. What their pictures have in common
comes from the mask alone: row $t$ is close to $1/t$, and the early columns collect most of the mass.
What tells them apart is a small tilt that depends on the characters and on nothing else.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), equation 1 and section 3.2.3;
[Haviv et al. (2022)](../../references.md#haviv2022), on causal models without position vectors;
[Graham, Knuth and Patashnik (1994)](../../references.md#graham1994), sections 6.3 and 6.4, on harmonic numbers.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["causal_head", "masking"]

import os
from collections import Counter

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from matplotlib.font_manager import findfont, get_font

from attnkit import CharTokenizer, Head, attention_scores, claims, load_text, plot

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## The text
#
# By default the text is the language reference that ships with Python, so nothing is downloaded. For a
# text of your own, of at least 48 characters in UTF-8, name the file in the environment variable
# `ATTNKIT_TEXT`. In a Unix shell, `ATTNKIT_TEXT=/path/to/input.txt python text_patterns.py` does so for one run.
#
# The claims are about heads, not about this text. Most are proved for any text; the two at the end that are
# measured averages leave a wide margin. Each distinct character is one symbol; the window starts with a line
# break near the middle of the text, if there is one.

T = 48
text = load_text(os.environ.get("ATTNKIT_TEXT") or None)
if len(text) < T:
    raise ValueError(f"the text must hold at least T = {T} characters, it holds {len(text)}")
tokenizer = CharTokenizer(text)
start = max(text.rfind("\n", 0, (len(text) - T) // 2 + 1), 0)
window = text[start : start + T]
tokens = tokenizer.encode(window)
print(f"{len(text):,} characters, {len(tokenizer)} symbols")
print(f"window: {window!r}")

claims.holds("the symbols of the window decode to its characters", tokenizer.decode(tokens) == window)

# %%
# ## The mask's prior
#
# A head whose $W_Q$ or $W_K$ is zero has no preference: all its scores are 0. Counting from 1, position $t$
# sees the keys $1, \dots, t$, and softmax shares its weight among them evenly:
#
# $$A_{tj} = \frac{e^0}{\sum_{l=1}^{t} e^0} = \frac{1}{t} \quad (j \le t), \qquad A_{tj} = 0 \quad (j > t).$$
#
# The output is the running mean of the values. How much weight does *key* $j$ receive, on average over
# the rows? It is seen from row $j$ on, so with the harmonic numbers $H_n = \sum_{t=1}^{n} 1/t$, $H_0 = 0$,
#
# $$m_j = \frac{1}{T} \sum_{t=1}^{T} A_{tj} = \frac{1}{T} \sum_{t=j}^{T} \frac{1}{t} = \frac{H_T - H_{j-1}}{T}.$$
#
# An even share would be $1/T$. The first key gets $H_T \approx \ln T + 0.577$ such shares, the last one only
# $1/T$ of a share. Adding up the first $n$ columns, where row $t$ has $\min(t, n)$ of its $t$ keys, gives
#
# $$\sum_{j=1}^{n} m_j = \frac{1}{T} \left( n + \sum_{t=n+1}^{T} \frac{n}{t} \right) = \frac{n}{T} (1 + H_T - H_n).$$
#
# All this happens before a single character is read. It is the **prior** of the mask, in the plain sense
# of the word: where the head looks before it has learnt where to look. It even holds a trace of position:
# row $t$ is an average of $t$ values, and Haviv et al. conjecture that trained models without position
# vectors count their predecessors by it. We let the code of the head compute the prior and compare with
# $H_n = \psi(n + 1) - \psi(1)$, where $\psi$ is the digamma function.


def blind_weights(n_tokens):
    """Weights of a causal head with zero query and key matrices, on random input."""
    head = Head(d_model=32, d_k=16, context=n_tokens).requires_grad_(False)
    head.query.weight.zero_()
    head.key.weight.zero_()
    return head(torch.randn(n_tokens, 32))[1]


def harmonic(n):
    """Harmonic numbers by way of the digamma function."""
    return torch.digamma(n + 1.0) - torch.digamma(torch.tensor(1.0))


t = torch.arange(1, T + 1)
past = torch.ones(T, T, dtype=torch.bool).tril()  # what row t may see, without asking attnkit
prior = blind_weights(T)
column_mass = prior.mean(dim=0)
shares = ", ".join(f"{T * column_mass[j - 1].item():.3f}" for j in (1, 2, 12, 48))
print(f"keys 1, 2, 12 and 48 receive {shares} even shares")
print(f"the first quarter of the keys receives {column_mass[: T // 4].sum().item():.4f} of the mass")

claims.close(
    "with zero query and key matrices, row t weighs each of its t visible characters 1/t",
    prior,
    past / t[:, None],
    atol=1e-15,
)
claims.close(
    "column j of the blind head carries the mean mass (H_T − H_(j−1))/T",
    column_mass,
    (harmonic(t[-1]) - harmonic(t - 1)) / T,
    atol=1e-15,
)
claims.close(
    "for four blind tokens the columns carry 25, 13, 7 and 3 of 48 parts",
    48 * blind_weights(4).mean(dim=0),
    torch.tensor([25, 13, 7, 3]),
    atol=1e-14,
)
claims.close(
    "the first n columns of the blind head hold n(1 + H_T − H_n)/T of the mass",
    column_mass.cumsum(0),
    t * (1 + harmonic(t[-1]) - harmonic(t)) / T,
    atol=1e-14,
)

# %%
# ## Five heads that never trained
#
# Now five models, one per seed: an embedding vector with standard normal entries for each symbol, and a causal
# head as `nn.Linear` initialises it. Position 1 sees itself alone, so $A_{11} = 1$ whatever the
# text says.

n_heads, d_model, d_k = 5, 32, 16
weights, tables = [], []
for seed in range(n_heads):
    torch.manual_seed(seed)
    embedding = torch.randn(len(tokenizer), d_model)
    head = Head(d_model, d_k, context=T).requires_grad_(False)
    weights.append(head(embedding[tokens])[1])
    # Scores of each position against every symbol, written out, for the check in the next section.
    tables.append((embedding[tokens] @ head.query.weight.T) @ (embedding @ head.key.weight.T).T / d_k**0.5)
weights, tables = torch.stack(weights), torch.stack(tables)

claims.holds("the first character attends to itself with weight 1 in all five heads", weights[:, 0, 0] == 1)
claims.close("the rows of five untrained heads on text sum to 1", weights.sum(dim=-1), 1.0, atol=1e-14)
claims.holds("each untrained head gives every visible character some weight", weights[:, past] > 0)
claims.holds("no untrained head gives a later character any weight", weights[:, ~past] == 0)

# %%
# ## What such a head can tell apart
#
# These heads get no positions. Their score $s_{tj}$ depends on the two characters $c_t$ and $c_j$ only, so
# equal characters get equal weight, wherever they stand. Let $n_t(c)$ count how often symbol $c$ occurs
# among the first $t$ characters. Gathering equal terms in the denominator,
#
# $$A_{tj} = \frac{e^{S(c_t, c_j)}}{\sum_c n_t(c)\, e^{S(c_t, c)}} \quad (j \le t), \qquad
# S(a, b) = \frac{(x_a W_Q)(x_b W_K)^\top}{\sqrt{d_k}},$$
#
# where $x_c$ is the vector of symbol $c$. The head sees a bag of characters: the past enters through its
# counts alone. Symbol $c$ as a whole receives $n_t(c) / t$ under the prior, which is its frequency so far; the
# table $S$ tilts this frequency. Below, what the last row gives to the commonest symbols of the window.

counts = torch.nn.functional.one_hot(tokens, len(tokenizer)).cumsum(0)
tilt = torch.exp(tables)  # safe here: untrained scores are small
from_counts = tilt[:, :, tokens] / (counts * tilt).sum(dim=-1, keepdim=True) * past

print("symbol  count   prior  " + "  ".join(f"seed {seed}" for seed in range(n_heads)))
for symbol, count in Counter(window).most_common(4):
    mass = weights[:, -1, tokens == tokenizer.encode(symbol)].sum(dim=-1)
    print(f"{symbol!a:>6}  {count:>5}   {count / T:.3f}   " + "   ".join(f"{m:.3f}" for m in mass.tolist()))

claims.close("untrained weights follow from the counts of the characters so far", weights, from_counts, atol=1e-14)

# %%

glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
shown = {"\n": "⏎", " ": "␣"}
# Whatever else cannot be seen, or the figures' font lacks, becomes a box.
labels = [shown.get(c, c if c.isprintable() and ord(c) in glyphs else "□") for c in window]

fig = plt.figure(figsize=(4.8, 9.1))
large, *small = fig.subplot_mosaic([["0", "0"], ["1", "2"], ["3", "4"]], height_ratios=[2.6, 1, 1]).values()
for seed, ax in enumerate([large, *small]):
    image = plot.heatmap(ax, weights[seed], xlabel="", ylabel="")
    image.set_norm(LogNorm(weights[weights > 0].min(), 1.0))  # a weight of 0 has no logarithm and stays blank
    ax.set(title=f"seed {seed}", xticks=[], yticks=[])
for axis, name in ((large.xaxis, "key"), (large.yaxis, "query")):
    axis.set_ticks(range(0, T, 2), labels[::2])  # in two lines, or neighbours would touch
    axis.set_ticks(range(1, T, 2), labels[1::2], minor=True)
    axis.set_tick_params(which="major", length=0, pad=2)
    axis.set_tick_params(which="minor", length=0, pad=13)
    axis.set_label_text(name)
    axis.labelpad = 8
bar = fig.colorbar(image, cax=large.inset_axes([0.5, 0.94, 0.48, 0.03]), orientation="horizontal", label="weight")
bar.set_ticks([1 / 50, 1 / 10, 1], labels=["1/50", "1/10", "1"])
bar.set_ticks([], minor=True)
fig.suptitle("Five seeds, one shape: the mask's", fontsize="medium")
fig.set_label(
    f"Five lower-triangular heatmaps of {T} characters of text on one logarithmic colour scale. All fade "
    "from weight one at the top left to small weights in the bottom rows, as the mask alone does. The large one "
    "has its characters along both axes; whatever stands out repeats wherever the same two characters meet again."
)

# %%
# ## How far they stray from the prior
#
# If the visible scores of row $t$ span a range $r_t = \max_j s_{tj} - \min_j s_{tj}$, then in
# $1 / A_{tj} = \sum_{l \le t} e^{s_{tl} - s_{tj}}$ each of the $t$ terms lies between $e^{-r_t}$ and $e^{r_t}$, so
#
# $$e^{-r_t} \le t A_{tj} \le e^{r_t}.$$
#
# Small scores cannot take a head far from the prior, and at first they are small. `nn.Linear` draws its entries
# uniformly between $\pm 1/\sqrt{d}$, where $d$ is $d_\text{model}$, so they have mean 0 and variance $1/(3d)$.
# Take the vectors $x_t$ and $x_j$ of two different symbols. For given vectors, the $d_k$ entries of the query have
# mean 0 and variance $\lVert x_t \rVert^2 / 3d$, those of the key $\lVert x_j \rVert^2 / 3d$, all independent. Since
# $\mathbb{E} \lVert x \rVert^2 = d$,
#
# $$\operatorname{Var}(s_{tj}) = \frac{1}{d_k} \cdot d_k \cdot
# \frac{\mathbb{E} \lVert x_t \rVert^2}{3d} \cdot \frac{\mathbb{E} \lVert x_j \rVert^2}{3d} = \frac{1}{9}.$$
#
# The standard deviation is $\sigma = 1/3$ for any width; other initialisations have another one. As a measure of
# distance, take the mass that has to move to turn a row into the prior, the total variation
# $\frac{1}{2} \sum_j |A_{tj} - 1/t|$. For small scores $t A_{tj} \approx 1 + s_{tj} - \bar{s}_t$, with
# $\bar{s}_t$ the mean of the row's visible scores. If these were independent and normal, a long row would move about
# $\frac{1}{2} \sigma \sqrt{2/\pi} = \sigma / \sqrt{2\pi}$. Short rows and repeated characters move less on average.

pairs = []
for _ in range(2000):
    fresh, x = Head(d_model, d_k).requires_grad_(False), torch.randn(8, d_model)
    pairs.append(attention_scores(fresh.query(x), fresh.key(x))[~torch.eye(8, dtype=torch.bool)])
spread = torch.cat(pairs).std()

scores, inf = tables[:, :, tokens], float("inf")
r = scores.masked_fill(~past, -inf).amax(dim=-1) - scores.masked_fill(~past, inf).amin(dim=-1)
log_ratio = (t[:, None] * weights).log().masked_fill(~past, 0.0)
moved = 0.5 * (weights - prior).abs().sum(dim=-1).mean(dim=-1)
print(f"standard deviation of untrained scores: {spread.item():.4f}")
print(f"mass moved by a long row of normal scores: about {1 / 3 / (2 * torch.pi) ** 0.5:.3f}")
print("mass moved, mean over the rows:", ", ".join(f"{m:.3f}" for m in moved.tolist()))

claims.close("untrained scores have standard deviation 1/3, within 3 %", spread, 1 / 3, atol=0.0, rtol=0.03)
claims.holds(
    "no untrained weight differs from 1/t by more than the range of its row's scores, in logarithms",
    log_ratio.abs() <= r[..., None] + 1e-13,
)
claims.below(
    "on average the five untrained heads move less than a fifth of their mass off the prior", moved.mean(), 0.2
)

# %%

fig, ax = plt.subplots()
ax.plot(t.numpy(), column_mass.numpy(), color=plot.BLUE, linestyle="-", linewidth=4, label="mask alone")
for seed, head_mass in enumerate(weights.mean(dim=1)):
    label = "untrained heads" if seed == 0 else None
    ax.plot(t.numpy(), head_mass.numpy(), color=plot.VERMILLION, linestyle="-", linewidth=0.8, label=label)
ax.axhline(1 / T, color=plot.INK, linestyle=":", linewidth=1, label="even share")
ax.set(title="Early keys collect the mass", xlabel="key, counted from 1", ylabel="mean weight received")
ax.set(xticks=[1, 12, 24, 36, 48], ylim=(0, None))
ax.legend(loc="upper right")
fig.set_label(
    "Mean weight each key receives, against its position: the curve of the mask alone falls steeply from the "
    f"first key, {T * column_mass[0].item():.1f} times an even share, to almost nothing; five untrained heads "
    "stay close to it."
)

# %%
# ## Try it
#
# - Set `ATTNKIT_TEXT` to another file, in any language: the large picture changes its stripes, not its shape.
# - Multiply `head.query.weight` by 9 right after the head is made: scores now have standard deviation 3, the rows
#   pick favourites, and the claim on a fifth of the mass fails. The claims on the mask and on the counts stay.
# - Add `torch.randn(T, d_model)` to `embedding[tokens]`, as position vectors would be: equal characters part,
#   and the claim on the counts fails.
