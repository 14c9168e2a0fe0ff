r"""
# A window of w keys reaches L(w − 1) + 1 tokens in L layers, and a sink takes the weight no key deserves

A sliding window bounds the work per token and the cache. This page measures how far a stack of windows sees, shows what
breaks when a window leaves the first token behind, and derives the remedy: one more term in the denominator.

*Sources:* [Beltagy et al. (2020)](../../references.md#beltagy2020), section 3.1;
[Jiang et al. (2023)](../../references.md#jiang2023), section 2, window and rolling buffer;
[Xiao et al. (2023)](../../references.md#xiao2023), section 3, sinks; [Miller (2023)](../../references.md#miller2023)
and [OpenAI (2025)](../../references.md#openai2025), the sink as a logit.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["masking", "kv_cache"]

import math

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import avg_pool1d
from torch.utils.flop_counter import FlopCounterMode

from attnkit import attention, attention_scores, causal_mask, claims, plot, sliding_window_mask, tiled_attention

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
seed = 0
torch.manual_seed(seed)

# %%
# ## Exactly w keys
#
# With a **window** $w$, query $i$ sees the keys $j$ with $0 \le i - j < w$: its own and the $w - 1$ before it, fewer at
# the start. Neither the work per token nor the cache grows with the context: a rolling buffer of the last $w$ keys
# and values is all a decoder needs, since nothing older is seen again. A kernel that works in tiles skips those that
# the window misses. Libraries disagree by one: ONNX's `Attention` counts $i - j \le w$, which shows $w + 1$ keys.
# Where $T \le w$, the window is the causal mask and saves nothing.

T, w = 24, 4
q, k, v = torch.randn(3, T, 8)
mask = sliding_window_mask(T, window=w)
ramp, zero = torch.arange(5.0)[:, None], torch.zeros(5, 1)
mean, _ = attention(zero, zero, ramp, sliding_window_mask(5, window=2))
pooled = avg_pool1d(v.T, kernel_size=w, stride=1).T
uniform, _ = attention(torch.zeros_like(q), k, v, mask)
windowed, _ = attention(q, k, v, mask)
print("means of the last two of 0, 1, 2, 3, 4:", mean.flatten().tolist())

buffer_k, buffer_v, rolled = k[:0], v[:0], []
for t in range(T):
    buffer_k, buffer_v = torch.cat([buffer_k, k[t : t + 1]])[-w:], torch.cat([buffer_v, v[t : t + 1]])[-w:]
    rolled.append(attention(q[t : t + 1], buffer_k, buffer_v)[0])

work = []
for window in (512, 64):
    with FlopCounterMode(display=False) as counter:
        tiled_attention(*torch.zeros(3, 512, 8), sliding_window_mask(512, window=window), block=64)
    work.append(counter.get_total_flops())
print(f"512 tokens in tiles of 64: a window of 64 leaves {work[1] / work[0]:.2f} of the causal work")

seen = torch.arange(1, T + 1).clamp(max=w)
halves = torch.tensor([0, 0.5, 1.5, 2.5, 3.5])
claims.close("window 2 over values 0 to 4 gives 0, 1/2, 3/2, 5/2, 7/2", mean[:, 0], halves, atol=1e-14)
claims.close("in a window of 4 a query sees min(i + 1, 4) keys", mask.sum(dim=1), seen, atol=0)
claims.close("equal scores in a window of 4 are torch's average pooling", uniform[w - 1 :], pooled, atol=1e-14)
claims.close("a buffer of the last 4 tokens decodes windowed attention", torch.cat(rolled), windowed, atol=1e-14)
claims.close("a window of 64 touches 15 of the 36 causal tiles of 64", work[1] / work[0], 15 / 36, atol=1e-15)

# %%
# ## Layers widen the view
#
# The output of a layer at token $i$ reads the layer below at tokens $i - w + 1$ to $i$. So each layer reaches $w - 1$
# tokens further back, and $L$ layers reach
#
# $$L (w - 1) + 1$$
#
# tokens, the last one included. From beyond, no gradient arrives: what lies there is lost. Mistral 7B has $L = 32$
# layers and $w = 4096$; its paper says about 131 thousand tokens, to which both $L (w - 1) + 1$ and $L w$ round.
#
# Reaching is not listening. With equal scores, $L$ layers average $L$ times, and the token $m$ places back counts
# in proportion to the number of ways to write $m$ as a sum of $L$ steps, each from 0 to $w - 1$. Of all $w^L$ ways one
# leads to the farthest token. Residual connections, left out here, shift the weight towards the near end.


def reach(n_layers, w, T=48):
    """Number of inputs on which the last output of a stack of random heads depends, by its gradient."""
    x = inputs = torch.randn(T, 8, requires_grad=True)
    for w_q, w_k, w_v in torch.randn(n_layers, 3, 8, 8) / 8**0.5:
        x, _ = attention(x @ w_q, x @ w_k, x @ w_v, sliding_window_mask(T, window=w))
    (gradient,) = torch.autograd.grad(x[-1].sum(), inputs)
    return (gradient != 0).any(dim=1).sum()


sizes = ((1, 4), (2, 4), (3, 4), (3, 1), (4, 9))
measured = torch.stack([reach(n_layers, w) for n_layers, w in sizes])
for (n_layers, w), seen in zip(sizes, measured):
    print(f"layers: {n_layers}, window {w}: the last output depends on {seen:2} tokens")
print(f"32 layers of window 4096 reach {32 * 4095 + 1:,} tokens; with equal scores the farthest counts ", end="")
print(f"1 in 10 to the {32 * math.log10(4096):.0f}")

depths, w = (1, 2, 4), 8
_, averaging = attention(torch.zeros(64, 1), torch.zeros(64, 1), torch.zeros(64, 1), sliding_window_mask(64, window=w))
influence = {L: averaging.matrix_power(L)[-1].flip(0) for L in depths}  # entry m: the token m places back
ways = torch.ones(1)
for _ in range(4):
    ways = torch.stack([torch.nn.functional.pad(ways, (step, w - 1 - step)) for step in range(w)]).sum(dim=0)

expected = [L * (w - 1) + 1 for L, w in sizes]
claims.close("stacks of five sizes depend on L(w − 1) + 1 tokens, by gradient", measured, expected, atol=0)
claims.close("3 layers of window 4 reach 10 tokens", measured[2], 10, atol=0)
claims.close("with equal scores, influence counts the ways to step back", influence[4][:29], ways / w**4, atol=1e-15)
claims.close("beyond 4 · 7 + 1 = 29 tokens, 4 layers of window 8 see nothing", influence[4][29:], 0.0, atol=0)
claims.close(
    "the farthest token counts 1 in 4096 in 4 averaging layers of window 8", influence[4][28], 1 / 4096, atol=1e-16
)

# %%

fig, ax = plt.subplots()
for L, marker in zip(depths, "os^"):
    share = influence[L][: L * (w - 1) + 1]
    ax.plot(range(len(share)), share.numpy(), marker=marker, markersize=4, label=f"{L} layer{'s' * (L > 1)}")
ax.set(title="Windows reach far, and listen to the middle", xlabel="tokens back", ylabel="share of the last output")
ax.set_xticks([0, 7, 14, 28])
ax.set_ylim(0)
ax.legend()
fig.set_label(
    f"Share of the last output against the distance, for windows of {w} with equal scores: flat over {w} tokens for "
    "one layer, a triangle over 15 for two, a bell over 29 for four, whose ends are close to zero."
)

# %%
# ## Leaving the first token behind
#
# Weights sum to 1, so a head that finds nothing must still look somewhere. Xiao et al. report that trained models look
# at the first few tokens, whatever they say, and that a window breaks such a model as soon as it leaves them behind.
# Keeping the first tokens in view beside the window repairs it.
#
# The mechanism fits into a made-up head. Its scores are random with a preference for near tokens; only the first token
# has score 5 for every query, and value 0. The full output is then a small correction. Without the first token the
# other keys share the whole weight: the output keeps its direction and becomes many times too large.

T, w, sink = 96, 16, 5.0
q, k, v = torch.randn(3, T, 8)
k[0], v[0] = 0.0, 0.0
position = torch.arange(T)
bias = -(position[:, None] - position) / 2.0
bias[:, 0] = sink
window = sliding_window_mask(T, window=w)
first = position == 0
full, weights = attention(q, k, v, causal_mask(T), bias=bias)
alone, _ = attention(q, k, v, window, bias=bias)
with_first, _ = attention(q, k, v, window | (first & causal_mask(T)), bias=bias)
error = {"window": alone, "window and first token": with_first}
error = {name: (out - full).norm(dim=-1)[1:] / full.norm(dim=-1)[1:] for name, out in error.items()}  # full[0] is 0
print(f"mean weight of the first token: {weights[w:, 0].mean():.2f}")
for name, e in error.items():
    print(f"{name}: relative error {e[: w - 1].max():.2g} before token {w}, {e[w - 1 :].median():.2g} after (median)")

after = {name: e[w - 1 :] for name, e in error.items()}  # the first entry is token 1
claims.close(
    "until it leaves the first token, a window of 16 changes nothing", error["window"][: w - 1], 0.0, atol=1e-14
)
claims.above(
    "once the first token has left, the median error is over 20 times the output", after["window"].median(), 20.0
)
claims.below(
    "with the first token kept in view, the median error is under 1/1000",
    after["window and first token"].median(),
    0.001,
)
same_way = torch.cosine_similarity(alone, full)[w:].median()
claims.close("without its sink the output still points the same way, at the median", same_way, 1.0, atol=1e-3)

# %%

fig, ax = plt.subplots()
for (name, e), colour, dash in zip(error.items(), (plot.VERMILLION, plot.BLUE), ("--", "-")):
    shown = e.masked_fill(e < 1e-12, math.nan)  # 0 has no place on this axis
    ax.semilogy(position[1:], shown.numpy(), color=colour, linestyle=dash, label=name)
ax.axvline(w, color=plot.INK, linewidth=0.8, linestyle=":")
ax.text(w / 2, 1, "none", ha="center", va="center")
ax.set(title="Losing the sink breaks the output", xlabel="token", ylabel="relative error", xlim=(0, T))
ax.set_ylim(1e-5, 1e4)
ax.set_yticks([1e-4, 1e-2, 1, 100], ["1/10000", "1/100", "1", "100"])
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Relative error of a windowed head by token, logarithmic. From token {w}, where the first token leaves the "
    f"window, the window alone is off by about {after['window'].median():.0f} times the output; with the first token "
    "kept, the error stays far below a hundredth."
)

# %%
# ## The sink as a logit
#
# A token whose value is 0 adds nothing to the numerator. All it does is to enlarge the denominator, so it need not be a
# token: give the head a number $z$, learned or fixed, and let
#
# $$\alpha_{ij} = \frac{e^{s_{ij}}}{e^{z} + \sum_l e^{s_{il}}}.$$
#
# Factor out the ordinary softmax to see what it means. With $\mathrm{lse}_i = \ln \sum_l e^{s_{il}}$,
#
# $$y_i = \sigma(\mathrm{lse}_i - z) \, \sum_j \operatorname{softmax}_j(s_{ij})\, v_j ,$$
#
# the ordinary output times a gate: open if some key scores well above $z$, closed if none does. $z \to -\infty$ is
# softmax; $z = 0$ is softmax with one more 1 in its denominator (Miller), or with an extra key and value of zeros (Xiao
# et al.); the gpt-oss models learn one $z$ per head. As weights no longer sum to 1, outputs may leave the hull of the
# values, towards 0.


def with_sink(q, k, v, z, mask, bias):
    """Attention with one more key in front, of score z and value 0."""
    one_more = (0, 0, 1, 0)
    k, v = torch.nn.functional.pad(k, one_more), torch.nn.functional.pad(v, one_more)
    bias, mask = (torch.nn.functional.pad(x, (1, 0), value=y) for x, y in ((bias, z), (mask, True)))
    return attention(q, k, v, mask, bias=bias)[0]


local = -(position[:, None] - position) / 2.0
scores = (attention_scores(q, k) + local).masked_fill(~window, -math.inf)
lse = scores.logsumexp(dim=1, keepdim=True)
plain, _ = attention(q, k, v, window, bias=local)
for z in (-1.0, 0.0, 5.0):
    by_formula = scores.exp() / (math.exp(z) + scores.exp().sum(dim=1, keepdim=True)) @ v
    by_key, by_gate = with_sink(q, k, v, z, window, local), torch.sigmoid(lse - z) * plain
    claims.close(f"a sink logit of {z:g} is a key with that score and value 0", by_key, by_formula, atol=1e-14)
    claims.close(f"a sink logit of {z:g} is a gate on ordinary attention", by_gate, by_formula, atol=1e-14)

ln_3, zero, none = torch.tensor([[math.log(3)]]), torch.zeros(1, 1), torch.tensor([[True]])
pinned = with_sink(ln_3, torch.ones(1, 1), torch.tensor([[4.0]]), 0.0, none, zero)
print(f"value 4 at score ln 3, beside a sink of logit 0: {pinned.item():.3f}")
claims.close("a key of score ln 3 and value 4 beside a sink of logit 0 gives 3", pinned, 3.0, atol=1e-14)
never = with_sink(q, k, v, -math.inf, window, local)
claims.close("a sink logit of −∞ is no sink", never, plain, atol=1e-14)
in_place = with_sink(q, k, v, sink, window, local)
claims.close("a sink logit of 5 replaces the first token once it has left", in_place[w:], with_first[w:], atol=1e-14)

# %%
# ## Try it
#
# - Write `window=w + 1` in `reach`: each layer now adds $w$ tokens, and the first claim on depth fails.
# - Let `v[0] = 1.0`: the first token is no sink any more but a message, and losing it changes the direction of the
#   output, too.
# - Set `sink = -5.0`: nobody looks at the first token, and the window alone does hardly any harm.
