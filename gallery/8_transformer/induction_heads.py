r"""
# Two layers of attention find what followed last time, one layer cannot

Two attention layers with one head each, nothing else, learn to continue a random sequence that repeats. The first
head looks one step back; the second finds the place where the present symbol stood before and reads what came
next. Both are known by a score, by the jump in the loss when they form, and by what is lost without them.

*Sources:* [Olsson et al. (2022)](../../references.md#olsson2022), on induction heads, their scores and the change
in the loss; [Elhage et al. (2021)](../../references.md#elhage2021), on attention-only models and on how heads
compose; [Michel, Levy and Neubig (2019)](../../references.md#michel2019), section 3, on removing heads one at a time.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["causal_head", "lookup"]

import copy
import math

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

from attnkit import Transformer, claims, count_parameters, fit, plot

plt.style.use("attnkit.paper")
torch.set_num_threads(1)  # sums in one order, whatever the machine
seed = 0
torch.manual_seed(seed)

# %%
# ## The task
#
# Draw a length $L$ from 8 to 16 and $L$ distinct ones of 32 symbols, in random order, and repeat them:
# $x_t = x_{t - L}$, counting from 0. To continue the second copy at $t$, one has to find where $x_t$ stood before,
# $t - L$, and read the symbol after it:
#
# $$x_{t+1} = x_{t - L + 1}, \qquad L \le t \le 2L - 2 .$$
#
# No symbol is likelier than another, so only the sequence itself tells the answer. Guessing hits once in 32 times.
# The first token of the second copy is not asked for: short of the longest length, nobody can know that $L$ is over.
# Below, sequences run on to 32 tokens, so that they stack; causal models do not see what comes later.

n_symbols, n_tokens = 32, 32
t = torch.arange(n_tokens - 1)


def draw(batch, generator):
    """Sequences, shape (B, 32); their lengths, shape (B, 1); where the second copy is asked for, shape (B, 31)."""
    L = torch.randint(8, 17, (batch, 1), generator=generator)
    symbols = torch.rand(batch, n_symbols, generator=generator).argsort(1)  # a shuffle of all 32
    x = symbols.gather(1, torch.arange(n_tokens) % L)
    return x, L, (t >= L) & (t <= 2 * L - 2)


x, L, asked = draw(500, torch.Generator().manual_seed(1000 + seed))
seq, query = asked.nonzero(as_tuple=True)  # one entry per question
answer = x[seq, query + 1]
key = query - L[seq, 0] + 1  # where the answer stands in the first copy
met = (x[seq] == answer[:, None]) & (torch.arange(n_tokens) <= query[:, None])
print("one sequence:", " ".join(str(s) for s in x[0, : 2 * L[0]].tolist()))
print(f"{len(x)} held-out sequences, {len(answer)} questions")

claims.holds(
    "each answer stands once in view, one place after the present symbol's first place",
    (met.sum(1) == 1) & (met.int().argmax(1) == key) & (x[seq, key - 1] == x[seq, query]),
)
claims.close("guessing a symbol is right once in 32 times", (answer == 7).double().mean(), 1 / 32, atol=0.01)

# %%
# ## The models
#
# Attention only: token and position vectors, layers that add what they find, and a linear map to the symbols, as
# in Elhage et al. There is no feed-forward layer and no normalisation. Two layers of one head each are held
# against one layer of two heads, so that both have two heads; a third model has two layers of two.
#
# A head's **previous-token score** is its mean weight from $t$ on $t - 1$, over the first copy. Its **induction
# score**, the prefix matching score of Olsson et al., is its mean weight from $t$ on $t - L + 1$, over the
# questions. Both lie between 0 and 1.

shapes = {"one layer": (1, 2), "two layers": (2, 1), "two by two": (2, 2)}  # layers, heads in each
first_seq, first = ((t >= 1) & (t < L)).nonzero(as_tuple=True)


@torch.no_grad()
def examine(model):
    """Loss and accuracy on the questions; previous-token and induction score of each head."""
    logits, weights = model(x[:, :-1])
    logits, weights = logits[seq, query], torch.cat(weights, dim=1)  # heads of all layers, (B, heads, T, T)
    loss, accuracy = cross_entropy(logits, answer).item(), (logits.argmax(-1) == answer).double().mean().item()
    return loss, accuracy, weights[first_seq, :, first, first - 1].mean(0), weights[seq, :, query, key].mean(0)


def train(n_layers, n_heads):
    """A model trained on fresh sequences, and what was measured along the way."""
    torch.manual_seed(seed)
    options = {"d_ff": 0, "norm": "none", "bias": False}  # attention only
    model = Transformer(n_symbols, 64, n_heads, n_layers, context=n_tokens, **options)
    generator = torch.Generator().manual_seed(seed)

    def loss():
        x, _, asked = draw(64, generator)
        return cross_entropy(model(x[:, :-1])[0][asked], x[:, 1:][asked])

    return model, fit(model, loss, steps=240, lr=3e-3, evaluate=lambda: examine(model), every=20)


models, histories = {}, {}
for name, (n_layers, n_heads) in shapes.items():
    models[name], histories[name] = train(n_layers, n_heads)
results = {name: examine(model) for name, model in models.items()}
for name, (loss, accuracy, *_) in results.items():
    print(f"{name}: {count_parameters(models[name]):,} parameters   loss {loss:.4f}   accuracy {accuracy:.4f}")

claims.above("two layers of one head continue over 0.99 of the second copies' tokens", results["two layers"][1], 0.99)
claims.above("two layers of two heads do so as well, over 0.99", results["two by two"][1], 0.99)
claims.below("one layer of two heads continues fewer than 0.6 of the tokens", results["one layer"][1], 0.6)

# %%
# ## Why one layer is above chance
#
# One layer cannot compare $x_t$ with what stands *before* a key: a key holds the symbol and the position of its own
# place. What is left are two half-truths.
#
# *Positions.* The answer stands at $t - L + 1$, and at a given $t$ some lengths are ruled out, since
# $L \le t \le 2L - 2$. All $7 + 8 + \dots + 15 = 99$ pairs of $L$ and $t$ are equally likely. Whoever bets on one
# place for each of the 23 possible $t$ is right in 23 of them.
#
# *Counting.* The answer is one of the symbols met once so far, for those of the second copy have been met twice.
# There are $2L - 1 - t$ of them, so a random one is right with probability $1/(2L - 1 - t)$, which averages to
# $\frac{1}{99} \sum_{L=8}^{16} H_{L-1}$ with the harmonic numbers $H_n = \sum_{m=1}^{n} 1/m$.
#
# One layer can have a share of both: every key votes for its symbol, by its place, and the votes of a symbol met
# twice add up. The two together would even suffice, for the answer is the *earliest* symbol met once; but within
# this budget the sum of votes gets only part of the way.

pairs = [(length, place) for length in range(8, 17) for place in range(length, 2 * length - 1)]
best_bet = len({place for _, place in pairs}) / len(pairs)
counting = sum(1 / m for length in range(8, 17) for m in range(1, length)) / len(pairs)
visible = torch.arange(n_tokens) <= query[:, None]
times_met = torch.zeros(len(query), n_symbols).scatter_add(1, x[seq], visible.float())
candidates = (times_met == 1).sum(1)
print(f"guessing {1 / n_symbols:.3f}   best bet on a place {best_bet:.3f}   counting {counting:.3f}")
print(f"one layer {results['one layer'][1]:.3f}")

claims.close(
    "the best bet on one place is right in 23 of 99 pairs of length and position", best_bet, 23 / 99, atol=1e-15
)
claims.holds("at t there are 2L - 1 - t symbols met once", candidates == 2 * L[seq, 0] - 1 - query)
claims.close(
    "on the held-out sequences a random symbol met once is right as often as the harmonic numbers say",
    (1 / candidates).mean(),
    counting,
    atol=0.02,
)
claims.above(
    "one layer is above betting and above counting, by over 0.05",
    results["one layer"][1] - max(best_bet, counting),
    0.05,
)

# %%
# ## The two heads, by score
#
# Two layers can compare. The first head moves each symbol one place on: after it, place $j$ also holds $x_{j-1}$.
# The second head's query is $x_t$, and its keys are what the first head moved: they match where $x_{j-1} = x_t$,
# that is at $j = t - L + 1$, where the answer stands. Elhage et al. call this **K-composition**, for it is the
# keys of the second head that read the first; Olsson et al. name the second head an **induction head**.
#
# If so, removing the first head, by setting its rows of $W_O$ to 0, must blind the second. Removing the second
# leaves the first as it is, for nothing comes before it.


def without(model, *heads):
    """A copy of the model in which the given heads, pairs (layer, head), add nothing."""
    model = copy.deepcopy(model)
    for layer, head in heads:
        output, n_heads = model.blocks[layer].attention.output, model.blocks[layer].attention.n_heads
        width = output.in_features // n_heads
        output.weight.data[:, head * width : (head + 1) * width] = 0  # nn.Linear keeps the transpose of W_O
    return model


blind_previous, blind_induction = (1 / (first + 1)).mean().item(), (1 / (query + 1)).mean().item()
print(f"even weights would score   {blind_previous:.3f} previous   {blind_induction:.3f} induction")
removed = {}
for name in ("two layers", "two by two"):
    n_layers, n_heads = shapes[name]
    for i in range(n_layers * n_heads):
        removed[name, i] = examine(without(models[name], divmod(i, n_heads)))
        print(
            f"{name}, layer {i // n_heads + 1}, head {i % n_heads + 1}:   {results[name][2][i]:.3f} previous   "
            f"{results[name][3][i]:.3f} induction   accuracy without it {removed[name, i][1]:.3f}"
        )
previous, induction = results["two layers"][2:]
print(f"induction score of the second head once the first is removed: {removed['two layers', 0][3][1]:.3f}")

claims.above("the first of two single heads puts over 0.8 of its weight on the previous token", previous[0], 0.8)
claims.above("the second of two single heads puts over 0.9 of its weight on the answer", induction[1], 0.9)
claims.below(
    "the first head is no induction head, nor the second a previous-token head", max(induction[0], previous[1]), 0.4
)
claims.below("without the previous-token head the induction score falls below 0.4", removed["two layers", 0][3][1], 0.4)
claims.below("without the previous-token head fewer than 0.4 are right", removed["two layers", 0][1], 0.4)
claims.below("without the induction head fewer than 0.3 are right", removed["two layers", 1][1], 0.3)
claims.close(
    "without the induction head the previous-token score is what it was",
    removed["two layers", 1][2][0],
    previous[0],
    atol=1e-6,
)

# %%

shown = (L[:, 0] == 8).int().argmax()  # the first held-out sequence of the shortest length
letters = ["ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[s] for s in x[shown, :16].tolist()]
with torch.no_grad():
    _, weights = models["two layers"](x[shown, :16])
fig, axes = plt.subplots(2, 1, figsize=(4.8, 7.6))
for ax, layer, title in zip(axes, weights, ("Layer 1: the previous token", "Layer 2: what followed last time")):
    image = plot.heatmap(ax, layer[0], x=letters, y=letters, vmax=1)
    ax.set_title(title)
    ax.plot([7.5, 7.5], [7.5, 15.5], color=plot.VERMILLION, linestyle="-", linewidth=1)
    ax.plot([-0.5, 7.5], [7.5, 7.5], color=plot.VERMILLION, linestyle="-", linewidth=1)
fig.colorbar(image, ax=axes, label="weight", shrink=0.5)
fig.set_label(
    "Two heat maps of a sequence of eight symbols and its repetition. In layer 1 the weights lie on the diagonal one "
    "place left of the main one; in layer 2, in the second copy, whose rows are boxed off, on a diagonal seven places "
    "to the left: the place after the same symbol in the first copy."
)

# %%
# ## The jump
#
# Neither head pays without the other: the second finds nothing before the first moves symbols, and what the first
# moves nobody reads before the second does. So the loss first hardly moves, near $\ln 32$, and then falls at once,
# when both form together. One layer, which has nothing to compose, declines without haste. Olsson et al. see such a
# change early in the training of language models with two layers or more, as heads of this kind appear in them.


def largest_fall(history):
    """Largest fall of the loss within 40 steps, two evaluations."""
    loss = torch.tensor([entry[0] for entry in history.held_out])
    return (loss[:-2] - loss[2:]).max().item()


falls = {name: largest_fall(history) for name, history in histories.items()}
course = [(accuracy, p[0].item(), i[1].item()) for _, accuracy, p, i in histories["two layers"].held_out]
print("step  loss   accuracy  previous  induction")
for step, (loss, accuracy, p, i) in zip(histories["two layers"].steps[:9], histories["two layers"].held_out):
    print(f"{step:4}  {loss:.3f}     {accuracy:.3f}     {p[0]:.3f}      {i[1]:.3f}")

claims.above("within some 40 steps the loss of two layers falls by over 1.5 nats", falls["two layers"], 1.5)
claims.below("within no 40 steps does the loss of one layer fall by 1 nat", falls["one layer"], 1.0)
claims.holds(
    "as long as two layers answer fewer than 0.15 of the questions, neither score exceeds 0.4",
    torch.tensor([max(p, i) < 0.4 for accuracy, p, i in course if accuracy < 0.15]),
)
claims.holds(
    "once two layers answer over 0.9 of the questions, both scores exceed 0.6",
    torch.tensor([min(p, i) > 0.6 for accuracy, p, i in course if accuracy > 0.9]),
)

# %%

fig, (above, below) = plt.subplots(2, 1, figsize=(4.8, 4.6), sharex=True)
for name, colour, style in (("one layer", plot.VERMILLION, "--"), ("two layers", plot.BLUE, "-")):
    above.plot(histories[name].steps, [entry[0] for entry in histories[name].held_out], style, color=colour, label=name)
above.axhline(math.log(n_symbols), color=plot.INK, linewidth=0.8)
above.text(240, math.log(n_symbols) + 0.08, "guessing", ha="right", va="bottom")
above.set(title="The loss falls when both heads form", ylabel="held-out loss (nats)", yticks=(0, 1, 2, 3, 4))
above.legend(loc="center right", bbox_to_anchor=(1, 0.3))
below.plot(
    histories["two layers"].steps, [p for _, p, _ in course], "-.", color=plot.GREEN, label="previous token, layer 1"
)
below.plot(histories["two layers"].steps, [i for _, _, i in course], ":", color=plot.PURPLE, label="induction, layer 2")
below.set(xlabel="training step", ylabel="score", ylim=(0, 1.05), yticks=(0, 0.5, 1))
below.legend(loc="lower right")
fig.set_label(
    "Two panels against the training step. Above, the loss of two layers stays near guessing, then falls steeply to "
    f"{results['two layers'][0]:.3f}, while that of one layer declines slowly to {results['one layer'][0]:.2f}. Below, "
    "the previous-token score of layer 1 and the induction score of layer 2 rise together during the fall."
)

# %%
# ## What a removal shows, and what it does not
#
# With one head per layer, either removal is fatal. With two, no single one is: both heads of a layer have learned
# the same, and what is left of the layer does much of the work, how much depends on the seed. Only when both go is
# their part lost. A removal measures what the rest cannot make up for, not what a head does; Michel, Levy and Neubig
# found that most heads of a trained translation model can go one at a time. Setting a head's output to 0 is also
# one choice among several: its mean output would be another.

layers_removed = [examine(without(models["two by two"], (layer, 0), (layer, 1)))[1] for layer in (0, 1)]
one_removed = [removed["two by two", i][1] for i in range(4)]
print(f"two by two without layer 1: {layers_removed[0]:.3f}, without layer 2: {layers_removed[1]:.3f}")

claims.above("of two heads per layer any one can go, and over 0.4 are still right", torch.tensor(one_removed), 0.4)
claims.below("without both heads of either layer fewer than 0.3 are right", torch.tensor(layers_removed), 0.3)

# %%

bars = {
    "all heads": results["two layers"][1],
    "without layer 1": removed["two layers", 0][1],
    "without layer 2": removed["two layers", 1][1],
    "all heads ": results["two by two"][1],  # the space keeps the two apart
    **{f"without head {i // 2 + 1}.{i % 2 + 1}": accuracy for i, accuracy in enumerate(one_removed)},
    "without layer 1 ": layers_removed[0],
    "without layer 2 ": layers_removed[1],
}
fig, ax = plt.subplots(figsize=(4.8, 4.2))
rows = [*range(3), *range(4, 11)]  # a gap between the models
ax.barh(rows, list(bars.values()), color=[plot.BLUE] * 3 + [plot.GREEN] * 7)
ax.axvline(1 / n_symbols, color=plot.INK, linewidth=0.8)
ax.set_yticks(rows, [label.strip() for label in bars])
ax.set(title="Two heads of a kind cover for each other", xlabel="accuracy on the second copy", xlim=(0, 1.02))
ax.set(xticks=(0, 0.5, 1), ylim=(10.6, -0.6))
for row, label in ((1.5, "one head per layer"), (9.5, "two heads per layer")):
    ax.text(1.0, row, label, ha="right", va="center")
fig.set_label(
    f"Bars of accuracy. With one head per layer: all {results['two layers'][1]:.2f}, without the first "
    f"{removed['two layers', 0][1]:.2f}, without the second {removed['two layers', 1][1]:.2f}. With two per layer, "
    f"without any one head at least {min(one_removed):.2f}, without a whole layer {max(layers_removed):.2f} or less. "
    f"A line marks guessing, {1 / n_symbols:.3f}."
)

# %%
# ## Try it
#
# - Draw the symbols with repetition, `torch.randint(n_symbols, (batch, n_symbols), generator=generator)`: a symbol
#   may have had two successors, one token of memory no longer decides, and the first claim stops the page.
# - Let every sequence have the same length, `torch.randint(8, 9, ...)`: now the position alone says where the answer
#   stands, one layer is enough, and the claim that it is not stops the page.
# - Add `"positions": "rotary"` to the options. The two heads form as before, while one layer, which now sees
#   distances only, does no better than counting, and its last claim stops the page.
