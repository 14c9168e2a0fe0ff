r"""
# A small Transformer reads further back than any table of pairs

A causal Transformer of two blocks learns, in a few hundred steps, to predict the next character of a text. On
text it never saw it beats every table that looks one character back. Its heads have left the prior of the mask.

*Sources:* [Vaswani et al. (2017)](../../references.md#vaswani2017), section 3;
[Radford et al. (2019)](../../references.md#radford2019), section 2.3, for the pre-norm blocks;
[Shannon (1951)](../../references.md#shannon1951), on what the characters so far tell about the next;
[Karpathy (2015)](../../references.md#karpathy2015), for character models and samples from them.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["text_patterns", "rotary", "block"]

import math
import os
import textwrap

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from torch.nn.functional import cross_entropy

from attnkit import CharTokenizer, Head, Transformer, claims, count_parameters, fit, load_text, plot, softmax

plt.style.use("attnkit.paper")
torch.set_num_threads(1)  # sums in one order, whatever the machine
seed = 0
torch.manual_seed(seed)

# %%
# ## The text and its last tenth
#
# The text is the one of [the untrained heads](../3_causal_head/text_patterns.md): by default what ships with
# Python, which differs a little from version to version, or the file that `ATTNKIT_TEXT` names. The first nine
# tenths are for training, the last tenth is held out. The tokenizer knows the characters of both, so a held-out
# character that training never showed is an ordinary symbol, only an unlikely one.
#
# The held-out part is cut into windows of 64 characters to be predicted, each window starting with the last
# character of the one before. Every character but the first is then predicted once, by all models alike.

context = 64
text = load_text(os.environ.get("ATTNKIT_TEXT") or None)
if len(text) < 50 * context:
    raise ValueError(f"the text must hold at least {50 * context} characters, it holds {len(text)}")
tokenizer = CharTokenizer(text)
tokens = tokenizer.encode(text)
n_training = len(tokens) * 9 // 10
training, held_out = tokens[:n_training], tokens[n_training:]
windows = held_out.unfold(0, context + 1, context)
given, target = windows[:, :-1], windows[:, 1:]
unseen = set(held_out.tolist()) - set(training.tolist())
print(f"{len(text):,} characters, {len(tokenizer)} symbols; {target.numel():,} held-out characters to predict")
print(f"symbols that only the held-out part has: {len(unseen)}")

claims.holds(
    "the windows predict each held-out character once, in order",
    target.flatten() == held_out[1 : target.numel() + 1],
)

# %%
# ## What counting can do
#
# The yardstick is the **cross-entropy** in nats per character: the mean of $-\ln p(c_t \mid \text{past})$ over the
# held-out characters $c_t$. A model that knows nothing has $\ln V$ for $V$ symbols. With counts $n$ in the training
# part, $N$ characters long, the **unigram** and the **bigram** model are
#
# $$p(b) = \frac{n(b) + 1}{N + V}, \qquad p(b \mid a) = \frac{n(a, b) + p(b)}{n(a) + 1},$$
#
# where $n(a)$ counts the pairs that begin with $a$. The 1 in the first is Laplace's rule; the second adds one
# pair after every $a$, spread like the unigram, so that no probability is 0 and an $a$ without pairs falls back on
# $p(b)$. Other smoothing gives other numbers, so we also take the bigram model no smoothing can beat: the one
# counted, without smoothing, on the very text that it is tested on. For given counts relative frequencies are the
# most likely table, so its cross-entropy on the held-out part, the conditional entropy of the pairs there, is the
# **floor** of all bigram models.


def count_pairs(sequence, n_symbols):
    """How often b follows a, shape (V, V)."""
    pairs = sequence[:-1] * n_symbols + sequence[1:]
    return pairs.bincount(minlength=n_symbols**2).view(n_symbols, n_symbols).double()


def count_models(sequence, n_symbols):
    """Unigram probabilities, shape (V,), and bigram probabilities, shape (V, V)."""
    p = (sequence.bincount(minlength=n_symbols) + 1.0).double() / (len(sequence) + n_symbols)
    pairs = count_pairs(sequence, n_symbols)
    return p, (pairs + p) / (pairs.sum(1, keepdim=True) + 1)


p, table = count_models(training, len(tokenizer))
pairs = count_pairs(held_out[: target.numel() + 1], len(tokenizer))
unigram = -p[target].log().mean().item()
bigram = -table[given, target].log().mean().item()
floor = -(pairs / pairs.sum(1, keepdim=True))[given, target].log().mean().item()
print(f"no knowledge {math.log(len(tokenizer)):.3f}   unigram {unigram:.3f}   bigram {bigram:.3f}   floor {floor:.3f}")

claims.close("each row of the bigram table sums to 1", table.sum(1), 1.0, atol=1e-12)
claims.close(
    "counted on the text aab, b follows a with probability 7/15",
    count_models(torch.tensor([0, 0, 1]), 2)[1][0, 1],
    7 / 15,
    atol=1e-14,
)
claims.holds(
    "on the held-out text floor, bigram, unigram and ln V rank in this order",
    floor < bigram < unigram < math.log(len(tokenizer)),
)

# %%
# ## The model
#
# Two pre-norm [blocks](block.md) of width 64 with four heads each, between vectors for the 64 positions and a
# linear map to the symbols. In a window all next characters are predicted at once: the logits at token $t$ are
# held against token $t + 1$. This is sound only if the logits at $t$ do not depend on later tokens, and a shift by
# one the other way would teach the model to copy. Both are checked before training, with the loss that trains.

model = Transformer(len(tokenizer), d_model=64, n_heads=4, n_layers=2, context=context)
with torch.no_grad():  # token and position vectors start small, as in GPT-2: it saves steps
    model.token.weight.mul_(0.1)
    model.position.weight.mul_(0.1)


def next_character_loss(logits, windows):
    """Cross-entropy of the logits at each character but the last with the character after it."""
    return cross_entropy(logits.flatten(0, -2), windows[..., 1:].flatten())


def on_windows(windows):
    """Loss of the model on windows of context + 1 characters, shape (B, context + 1)."""
    return next_character_loss(model(windows[:, :-1])[0], windows)


some = windows[:: max(len(windows) // 64, 1)]  # a spread of held-out windows
with torch.no_grad():
    changed = given[:2].clone()
    changed[:, context // 2 :] = given[2:4, context // 2 :]  # other text in the second half
    before, after = model(given[:2])[0], model(changed)[0]
    untrained_loss = on_windows(some).item()
three = torch.tensor([0, 1, 2])
print(f"{count_parameters(model):,} parameters; loss before training {untrained_loss:.3f}")

claims.holds("what follows in a window leaves the earlier logits bitwise alone", (before == after)[:, : context // 2])
claims.above("the characters a window holds do reach its logits", (before - after)[:, context // 2 :].abs().amax(), 0.1)
claims.close(
    "tokens 0, 1, 2 with logits 10 on the next token have loss 9.08e-5",
    next_character_loss(10 * torch.eye(3, dtype=torch.float64)[three[1:]], three),
    9.07957e-5,
    atol=1e-9,
)
claims.close("the untrained model's loss is within 0.5 of ln V", untrained_loss, math.log(len(tokenizer)), atol=0.5)

# %%
# ## Training
#
# Each step takes windows at random from the training part. Every 50 steps the model meets a spread of the
# held-out windows; at the end it meets all of them.

generator = torch.Generator().manual_seed(seed)


def loss():
    """Loss on a batch of training windows at random places."""
    start = torch.randint(len(training) - context, (16, 1), generator=generator)
    return on_windows(training[start + torch.arange(context + 1)])


history = fit(model, loss, steps=400, lr=3e-3, evaluate=lambda: on_windows(some).item(), every=50)

with torch.no_grad():
    logits, _ = model(given)
losses = cross_entropy(logits.transpose(1, 2), target, reduction="none")  # (windows, context)
trained = losses.mean().item()
by_place = losses.mean(0)
print(f"held-out loss {trained:.3f} nats, bigram {bigram:.3f}, its floor {floor:.3f}")
print(f"as if choosing among {math.exp(trained):.1f} characters, with the bigram among {math.exp(bigram):.1f}")

claims.above("the Transformer beats the bigram model on the held-out text by more than 0.2 nats", bigram - trained, 0.2)
claims.below("its held-out loss is below the floor of all bigram models", trained - floor, 0.0)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.2))
ax.plot(history.steps, history.held_out, color=plot.BLUE, linestyle="-", marker="o", markersize=3)
for level, name in ((unigram, "unigram"), (bigram, "bigram"), (floor, "floor of all bigrams")):
    ax.axhline(level, color=plot.INK, linewidth=0.8, linestyle=":" if level == floor else "-")
    left = level == floor
    ax.text(
        0 if left else 400,
        level + (-0.05 if left else 0.03),
        name,
        ha="left" if left else "right",
        va="top" if left else "bottom",
    )
ax.set(title="The Transformer passes every table of pairs", xlabel="training step", ylabel="held-out loss (nats)")
fig.set_label(
    f"Held-out loss against the training step. It starts near {history.held_out[0]:.1f} nats, falls below the "
    f"unigram's {unigram:.2f} and the bigram's {bigram:.2f} and ends at {history.held_out[-1]:.2f}, below the floor "
    f"of all bigrams, {floor:.2f}."
)

# %%
# ## Where the gain comes from
#
# The first character of a window is predicted from one character, which is all a bigram model sees; the last one
# from all 64. The loss falls with the number in view, steeply at first: Shannon found the same for people who
# guess the next letter of English. With one character in view the model is no better than the bigram, and it may
# be worse, for to the Transformer this is one case of 64. What it gains comes from further back, though not from far:
# past ten characters or so the curve is flat. Within this budget the model has learned to spell, not to tell a story.

bigram_first = -table[given[:, 0], target[:, 0]].log().mean().item()
print(f"one character in view: Transformer {by_place[0]:.3f}, bigram {bigram_first:.3f}")
print(f"more than 16 characters in view: Transformer {by_place[16:].mean():.3f}")

claims.above(
    "with one character in view the Transformer gains no more than 0.05 nats on the bigram model",
    by_place[0] - bigram_first,
    -0.05,
)
claims.above(
    "more than 16 characters in view are worth over 0.3 nats more than one",
    by_place[0] - by_place[16:].mean(),
    0.3,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 2.9))
ax.plot(range(1, context + 1), by_place.numpy(), color=plot.BLUE, linestyle="-")
ax.axhline(bigram, color=plot.INK, linewidth=0.8)
ax.text(context, bigram + 0.03, "bigram", ha="right", va="bottom")
ax.set(
    title="More text in view, lower loss",
    xlabel="characters in view",
    ylabel="held-out loss (nats)",
    xticks=(1, 16, 32, 48, 64),
)
fig.set_label(
    f"Mean held-out loss against the number of characters in view: from {by_place[0]:.2f} nats with one, near the "
    f"bigram's {bigram:.2f}, it falls steeply over the first ten and then flattens near {by_place[-16:].mean():.2f}."
)

# %%
# ## Sampling
#
# To write, draw the next character from $\operatorname{softmax}(\text{logits} / \tau)$, append it, and go on
# with the last 64 characters. With $\tau = 1$ the model speaks with its own probabilities; a smaller $\tau$
# [sharpens them](../1_mixtures/softmax_temperature.md). What it writes then surprises it less, in nats per
# character by the probabilities at $\tau = 1$. Both samples continue the same 48 characters from near the middle of
# the text, which are those that the untrained heads read.

T = 48
start = max(text.rfind("\n", 0, (len(text) - T) // 2 + 1), 0)
sentence = tokens[start : start + T]


@torch.no_grad()
def sample(temperature, n=200):
    """The sentence continued by n characters, and the model's mean surprise at them."""
    draw, written, surprise = torch.Generator().manual_seed(seed), sentence, 0.0
    for _ in range(n):
        last = model(written[-context:])[0][-1]
        c = torch.multinomial(softmax(last, temperature), 1, generator=draw)
        surprise -= softmax(last)[c].log().item() / n
        written = torch.cat([written, c])
    return tokenizer.decode(written), surprise


surprises = {}
for temperature in (0.6, 1.0):
    writing, surprises[temperature] = sample(temperature)
    print(f"temperature {temperature:g}, surprise {surprises[temperature]:.2f} nats per character:")
    print("\n".join(textwrap.fill(line, 90) for line in writing.strip().splitlines()))

claims.below(
    "at temperature 0.6 the model is less surprised by its own text than at 1, by over 0.2 nats",
    surprises[0.6] - surprises[1.0],
    -0.2,
)

# %%
# ## The heads, before and after
#
# The sentence is the one that the [untrained heads](../3_causal_head/text_patterns.md) read; it lies in the
# training part. We build four of those five heads once more, from the same seeds, and put the trained ones beside
# them. Two numbers tell them apart: how much mass a head has **moved** off the prior $1/t$ of the mask, as on that
# page, and its mean weight on the **previous character**.

untrained = []
torch.set_default_dtype(torch.float64)  # as on that page, so that the draws are the same
for head_seed in range(4):
    torch.manual_seed(head_seed)
    embedding = torch.randn(len(tokenizer), 32)
    head = Head(32, 16, context=T).requires_grad_(False)
    untrained.append(head(embedding[sentence])[1])
torch.set_default_dtype(torch.float32)
with torch.no_grad():
    _, (first, second) = model(sentence)
columns = {"untrained": torch.stack(untrained), "block 1": first.double(), "block 2": second.double()}

visible = torch.ones(T, T, dtype=torch.float64).tril()
prior = visible / visible.sum(1, keepdim=True)
moved = {name: 0.5 * (weights - prior).abs().sum(-1).mean(-1) for name, weights in columns.items()}
previous = {name: weights.diagonal(-1, 1, 2).mean(-1) for name, weights in columns.items()}
print(repr(tokenizer.decode(sentence)))
for name in columns:
    print(f"{name:9}  moved {', '.join(f'{m:.2f}' for m in moved[name].tolist())}", end="")
    print(f"   previous character {', '.join(f'{m:.2f}' for m in previous[name].tolist())}")
trained_moved = torch.cat([moved["block 1"], moved["block 2"]])

claims.above(
    "the trained heads have moved on average over twice the mass of the untrained ones",
    trained_moved.mean() / moved["untrained"].mean(),
    2.0,
)
claims.above(
    "one trained head gives the previous character over twice the weight that any untrained head does",
    max(previous["block 1"].max(), previous["block 2"].max()) / previous["untrained"].max(),
    2.0,
)

# %%

fig, axes = plt.subplots(4, 3, figsize=(4.8, 6.6))
for column, (name, weights) in enumerate(columns.items()):
    for row, ax in enumerate(axes[:, column]):
        image = plot.heatmap(ax, weights[row], xlabel="", ylabel="")
        image.set_norm(LogNorm(1 / 1000, 1.0))
        ax.set(xticks=[], yticks=[])
        label = f"seed {row}" if column == 0 else f"head {row + 1}"
        ax.text(0.97, 0.95, label, transform=ax.transAxes, ha="right", va="top", fontsize=9.5)
    axes[0, column].set_title(name)
bar = fig.colorbar(image, ax=axes, orientation="horizontal", label="weight", extend="min", aspect=40, pad=0.02)
bar.set_ticks([1 / 1000, 1 / 100, 1 / 10, 1], labels=["1/1000", "1/100", "1/10", "1"])
bar.set_ticks([], minor=True)
fig.suptitle("Training gives each head a pattern of its own", fontsize="medium")
fig.set_label(
    f"Twelve lower-triangular heatmaps of the same {T} characters on one logarithmic scale. The four untrained heads "
    "of the first column are alike and fade smoothly; the trained heads of both blocks have stripes, bright columns "
    "and bright bands along the diagonal, and differ from one another."
)

# %%
# A caution: in block 2 a column no longer stands for one character. What it offers has already been mixed in
# block 1 from many, so its bright cells say where the head reads, not which character it read about. And a head
# that reads somewhere need not be needed; [the next page](inside_the_heads.md) takes the sum apart, and
# [the page before](induction_heads.md) removes heads one by one.
#
# ## Try it
#
# - Name another text in `ATTNKIT_TEXT`. With the works of Shakespeare all claims hold, and the samples are set like
#   a play: a name, a colon, a line.
# - Take away the two lines that make the vectors start small: the loss falls more slowly and ends clearly higher.
# - Give the model `causal=False`: the claim on what follows in a window stops the page. Without it, training would
#   soon look like a triumph, for the next character is there to be copied.
