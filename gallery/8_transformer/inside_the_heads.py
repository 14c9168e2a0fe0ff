r"""
# The logits of an attention-only model are a sum over paths, exactly

Without feed-forward layers and norms, the only thing in a Transformer that is not linear is how the weights
are chosen. This page multiplies such a model out, path by path, and says what else the sum needs to be exact.

*Sources:* [Elhage et al. (2021)](../../references.md#elhage2021), the sections on the path expansion of logits, on
query-key and output-value circuits, and on virtual attention heads;
[Radford et al. (2019)](../../references.md#radford2019), section 2.3, on the norms that a model like GPT-2 adds.
"""

# mkdocs_gallery_order = 4
# mkdocs_gallery_builds_on = ["multi_head", "induction_heads"]

import itertools
import math

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

from attnkit import CharTokenizer, Transformer, claims, fit, load_text, plot

plt.style.use("attnkit.paper")
torch.manual_seed(0)

# %%
# ## By hand: a direct path and a head
#
# Let the rows of $x$ be the tokens' vectors, with the position vectors added if there are any, and $W_U$ the output
# matrix. One layer of heads with residual gives the logits
#
# $$\Bigl( x + \sum_h A^h x\, W_V^h W_O^h \Bigr) W_U
# = \underbrace{x\, W_U}_{\text{direct path}} + \sum_h \underbrace{A^h x\, W_V^h W_O^h W_U}_{\text{head } h},$$
#
# with each head's own rows $W_O^h$ of $W_O$. The weights $A^h$ come from a softmax, so they are not linear in $x$; but
# once they are there, all the rest is. Take a vocabulary of three, one-hot token vectors, $W_U = 1$, and one head that
# weighs all tokens it sees alike and turns each into six votes for the next number: 0 votes for 1, 1 for 2, 2 for 0.
# For the text 0, 1, 2 the last token's logits are $(0, 0, 1)$ directly and $\frac13 (6, 6, 6)$ from the head.

tiny = Transformer(3, 3, 1, 1, positions="none", norm="none", d_ff=0, bias=False).double().requires_grad_(False)
eye = torch.eye(3, dtype=torch.float64)
for linear, matrix in (
    (tiny.token, eye),
    (tiny.output, eye),
    (tiny.blocks[0].attention.query, 0 * eye),
    (tiny.blocks[0].attention.value, eye),
    (tiny.blocks[0].attention.output, 6 * eye.roll(1, 0)),
):
    linear.weight.copy_(matrix)
votes, _ = tiny(torch.tensor([0, 1, 2]))
print("logits of the text 0, 1, 2:", *votes.tolist())

claims.close(
    "a direct path and six votes by hand make the logits (1, 6, 0), (0, 4, 3), (2, 2, 3)",
    votes,
    [[1, 6, 0], [0, 4, 3], [2, 2, 3]],
    atol=1e-14,
)

# %%
# ## A model to take apart
#
# Two layers of four heads, learned positions, no norm, no feed-forward layer, no biases. We train it for a few
# seconds on the text that ships with Python, so that there is something to see, and go on in float64. The claims that
# a sum is exact hold for any weights, trained or not.

T, H, d_model = 24, 4, 64
d_k = d_model // H
tokenizer = CharTokenizer(text := load_text())
symbols = tokenizer.encode(text)
split = len(symbols) * 9 // 10  # the last tenth is held out
model = Transformer(len(tokenizer), d_model, H, n_layers=2, context=T, norm="none", d_ff=0, bias=False)
for vectors in (model.token, model.position):
    torch.nn.init.normal_(vectors.weight, std=0.1)


def windows(start, stop, n):
    """n random windows of T + 1 symbols."""
    first = torch.randint(start, stop - T, (n, 1))
    return symbols[first + torch.arange(T + 1)]


def training_loss():
    """Loss on a fresh batch, every symbol predicting the next."""
    batch = windows(0, split, 24)
    return cross_entropy(model(batch[:, :-1])[0].flatten(0, 1), batch[:, 1:].flatten())


fit(model, training_loss, steps=250, lr=3e-3)
model.double().requires_grad_(False)
batch = windows(split, len(symbols), 32)
tokens, following = batch[:, :-1], batch[:, 1:]
logits, weights = model(tokens)

# %%
# ## Two layers: every path
#
# Write $M_l^h = W_V^h W_O^h$ for the output-value matrix of head $h$ in layer $l$. The second layer reads what the
# first one wrote, so the two sums multiply:
#
# $$\mathrm{logits} = \Bigl(x + \sum_h A_1^h x M_1^h + \sum_g A_2^g x M_2^g
# + \sum_{g,h} A_2^g A_1^h\, x\, M_1^h M_2^g \Bigr) W_U .$$
#
# In each layer a path takes one of the heads or passes by: $(1 + H)^L$ paths, here 25. The expansion is exact if
#
# - the weights $A$ are those of the full run, held fixed;
# - nothing but sums and matrices lies between: no feed-forward layer, no norm (or a frozen one, see below). Biases
#   would be harmless; each adds a path that starts at it.
#
# Three of the four sums need no comment. In the last, head $g$ reads what head $h$ wrote: a **virtual head**. Its
# weights $A_2^g A_1^h$ are a product of matrices whose rows sum to 1 and see no future, so they do the same.

x = model.token(tokens) + model.position.weight
M = []  # per layer and head, shape (d_model, d_model)
for block in model.blocks:
    value, output = block.attention.value.weight, block.attention.output.weight  # torch keeps W transposed
    M.append([(value[h * d_k : (h + 1) * d_k].T @ output[:, h * d_k : (h + 1) * d_k].T) for h in range(H)])


def along(path):
    """What one path adds to the logits; a path names a head, or None to pass by, for each layer."""
    carried = x
    for layer, head in enumerate(path):
        if head is not None:
            carried = weights[layer][:, head] @ carried @ M[layer][head]
    return carried @ model.output.weight.T


choices = (None, *range(H))
paths = {path: along(path) for path in itertools.product(choices, choices)}
virtual = torch.stack([weights[1][:, g] @ weights[0][:, h] for g, h in itertools.product(range(H), range(H))])
print(
    f"{len(paths)} paths, held-out loss {cross_entropy(logits.flatten(0, 1), following.flatten()):.2f} nats per symbol"
)

claims.close("two layers of four heads have 25 paths", len(paths), 25, atol=0)
claims.close("the logits are the sum over all 25 paths", sum(paths.values()), logits, atol=1e-11)
claims.above(
    "without the 16 virtual heads the sum is not the logits",
    (logits - sum(paths[path] for path in paths if None in path)).abs().max(),
    0.1,
)
claims.close("the rows of all 16 virtual heads sum to 1", virtual.sum(-1), 1.0, atol=1e-13)
claims.close("no virtual head sees the future", virtual.triu(1), 0.0, atol=0)

# %%
# ## What each path says about the next symbol
#
# A constant added to all logits changes nothing, so we subtract each path's mean over the vocabulary, and look at what
# is left for the symbol that did come next, averaged over held-out text. The 25 averages add up to the model's own.
# They are no verdict on how much a path is worth: a large push for the right symbol may go to wrong ones too.


def push(logits):
    """Mean logit of the symbol that came next, relative to the mean over the vocabulary."""
    return ((logits - logits.mean(-1, keepdim=True)).gather(-1, following[..., None])).mean()


grid = torch.stack([torch.stack([push(paths[h, g]) for g in choices]) for h in choices])
claims.close("the 25 paths' mean pushes add up to the model's", grid.sum(), push(logits), atol=1e-11)
claims.above("on held-out text the model pushes up the symbol that comes next", push(logits), 1.0)

# %%

labels = ["pass", *(f"head {h}" for h in range(H))]
fig, ax = plt.subplots(figsize=(4.8, 3.8))
image = plot.heatmap(
    ax, grid, x=labels, y=labels, annotate="+.2f", signed=True, xlabel="in layer 2", ylabel="in layer 1"
)
ax.set(title="25 paths to the next symbol")
fig.colorbar(image, ax=ax, label="mean push, in nats")
fig.set_label(
    "A five by five table of paths, by what they do in layer 1 and in layer 2: pass by or take one of four heads. Each "
    f"cell is the path's mean push for the symbol that came next; the direct path, top left, has {grid[0, 0]:+.2f}, "
    f"and all together {grid.sum():+.2f}."
)

# %%
# ## What a path can know
#
# **The direct path** is a table of symbol by symbol (and, with learned positions, of position by symbol): whatever
# stood before, it says the same. At best it is a bigram model, with a fixed bonus per position.
#
# **A head** in the first layer is two matrices. Its scores are $x\, W_Q W_K^\top x^\top / \sqrt{d_k}$: the query-key
# circuit says where it looks. $M = W_V W_O$, the output-value circuit, says what it copies from there. Both have size
# $d_{\mathrm{model}} \times d_{\mathrm{model}}$ and rank at most $d_k$, and only these products matter.

elsewhere = tokens.clone()
elsewhere[:, :-1] = tokens.roll(1, 0)[:, :-1]  # another text in front of the same last symbol
table = model.token.weight @ model.output.weight.T
direct = table[elsewhere[:, -1]] + model.position.weight[-1] @ model.output.weight.T

query, key = (getattr(model.blocks[0].attention, name).weight[:d_k] for name in ("query", "key"))
scores = x @ (query.T @ key) @ x.mT / math.sqrt(d_k)
future = torch.ones(T, T, dtype=torch.bool).triu(1)
by_circuit = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)

claims.close("the direct path is a table that ignores the text before", paths[None, None][:, -1], direct, atol=1e-12)
claims.above("the logits themselves do not ignore it", (model(elsewhere)[0] - logits)[:, -1].abs().max(), 0.1)
claims.close("the query-key product alone gives the weights of head 0", weights[0][:, 0], by_circuit, atol=1e-12)
ranks = [int(torch.linalg.matrix_rank(matrix)) for layer in M for matrix in layer]
claims.close("all eight output-value matrices of width 64 have rank 16", ranks, 16, atol=0)

# %%

g, h = divmod(int(grid[1:, 1:].T.argmax()), H)  # the virtual head with the largest push
shown = {
    f"layer 1, head {h}": weights[0][0, h],
    f"layer 2, head {g}": weights[1][0, g],
    "one after the other": weights[1][0, g] @ weights[0][0, h],
}
fig, axes = plt.subplots(1, 3, figsize=(4.8, 2.3), sharey=True)
for ax, (title, A) in zip(axes, shown.items()):
    image = plot.heatmap(ax, A, vmin=0.0, vmax=1.0, ylabel="")
    ax.set_title(title, fontsize=9.5)
    ax.set(xticks=(0, T - 1), yticks=(0, T - 1))
axes[0].set_ylabel("query")
fig.suptitle("Two heads in a row are a head as well")
fig.colorbar(image, ax=axes, label="weight", ticks=(0, 0.5, 1), shrink=0.7)
fig.set_label(
    f"Weights over {T} symbols of head {h} in layer 1, of head {g} in layer 2, and of the virtual head that is their "
    "product: it too is lower triangular with rows that sum to 1."
)

# %%
# ## Taking a head away
#
# Nothing reads what a head of the *last* layer wrote but $W_U$, so setting its $W_O^h$ to zero takes away exactly the
# paths through it. What a head of the *first* layer wrote, the heads above it read: without it their weights change,
# and its paths are only a part of what is lost.


def without(layer, head):
    """Logits of the model with one head silenced."""
    output = model.blocks[layer].attention.output.weight
    kept = output.clone()
    output[:, head * d_k : (head + 1) * d_k] = 0
    silenced, _ = model(tokens)
    output.copy_(kept)
    return silenced


last = [logits - without(1, g) - sum(paths[h, g] for h in choices) for g in range(H)]
first = [logits - without(0, h) - sum(paths[h, g] for g in choices) for h in range(H)]
claims.close("silencing a head of the last layer takes away its paths and no more", torch.stack(last), 0.0, atol=1e-11)
claims.above(
    "silencing any head of the first layer changes more than its paths", torch.stack(first).abs().amax((1, 2, 3)), 0.01
)

# %%
# ## With norms and feed-forward layers
#
# A model like GPT-2 still has a residual stream that is a sum: token vectors, heads, attention biases, feed-forward
# layers. The last LayerNorm divides it by its own deviation $\sigma$. With $\sigma$ **frozen** at its value in the full
# run, the norm is linear up to its shift $b$, and each term $u$ of the stream gives
#
# $$\frac{u - \bar u}{\sigma} \odot w\; W_U , \qquad \text{plus } b\, W_U \text{ once.}$$
#
# Again the logits are the sum exactly. But a term is no longer what its removal would take away, for without it
# $\sigma$ is another. And a feed-forward layer does not split: what it makes of a sum is not the sum of what it
# makes of the parts. Multiplying out stops there, and each feed-forward layer stays a term of its own.

full = Transformer(len(tokenizer), d_model, H, n_layers=2, context=T).double().requires_grad_(False)
stream = full.token(tokens) + full.position.weight
terms = [stream]
for block, A in zip(full.blocks, full(tokens)[1]):
    attention, read = block.attention, block.norm_1(stream)
    values = read @ attention.value.weight.T + attention.value.bias
    for h in range(H):
        mine = slice(h * d_k, (h + 1) * d_k)
        terms.append(A[:, h] @ values[..., mine] @ attention.output.weight[:, mine].T)
    terms.append(attention.output.bias.expand_as(stream))
    middle = stream + sum(terms[-H - 1 :])
    terms.append(block.feed_forward(block.norm_2(middle)))
    stream = middle + terms[-1]


def normed(term, sigma):
    """A term's part of the logits under the last norm, with a given deviation."""
    return ((term - term.mean(-1, keepdim=True)) / sigma * full.norm.weight) @ full.output.weight.T


sigma = (stream.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
shift = full.norm.bias @ full.output.weight.T
full_logits, lost = full(tokens)[0], stream - terms[1]
removed = full_logits - full.norm(lost) @ full.output.weight.T
network, parts = full.blocks[1].feed_forward, (terms[0], terms[1])
print(f"{len(terms)} terms in the stream of the model with norms")

claims.close(
    "with the last norm frozen the terms of the stream add up to the logits",
    sum(normed(term, sigma) for term in terms) + shift,
    full_logits,
    atol=1e-11,
)
claims.above(
    "a term under the frozen norm is not what its removal takes away",
    (removed - normed(terms[1], sigma)).abs().max(),
    1e-3,
)
claims.above(
    "a feed-forward layer of a sum is not the sum of its parts",
    (network(sum(parts)) + network(0 * parts[0]) - network(parts[0]) - network(parts[1])).abs().max(),
    1e-3,
)

# %%
# ## Try it
#
# - Take `n_layers=3` and a third `choices` in the product, and change 25 to 125: the sum over paths is exact again. The
#   code from the table on is for two layers.
# - Skip the training (delete the line with `fit`): the sum over paths is as exact as before. The first claim that
#   fails is one of size, since an untrained model has almost nothing to say.
# - Leave `model` in float32 (delete its `.double()`): the sum over paths misses its tolerance by rounding alone, since
#   it adds the same numbers in another order.
