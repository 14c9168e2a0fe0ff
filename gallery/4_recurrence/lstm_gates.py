r"""
# A trained LSTM writes at the marks and holds in between

An LSTM that has learned to add two marked numbers is taken apart, gate by gate: what it writes, what it
keeps, and what it would answer at each step.

*Sources:* [Hochreiter and Schmidhuber (1997)](../../references.md#hochreiter1997), section 4;
[Gers, Schmidhuber and Cummins (2000)](../../references.md#gers2000), section 3;
[Tallec and Ollivier (2018)](../../references.md#tallec2018), section 2.
"""

# mkdocs_gallery_order = 3
# mkdocs_gallery_builds_on = ["adding_problem"]

import matplotlib.pyplot as plt
import torch
from torch import nn

from attnkit import adding_batch, claims, fit, lstm_cell, plot

plt.style.use("attnkit.paper")
torch.set_num_threads(1)  # so that sums are always taken in the same order
seed = 0
torch.manual_seed(seed)

# %%
# ## A net that can add
#
# The task and the net are those of [the previous page](adding_problem.md): $T$ numbers, one mark in each
# half, the sum of the two marked numbers as target, read off the last state by a linear map,
# $\hat y = w^\top h_T + b$. The gates start where the units remember from a quarter of the sequence up to all
# of it (chrono initialisation).

T, hidden = 40, 32
lstm, answer = nn.LSTM(2, hidden, batch_first=True), nn.Linear(hidden, 1)
b = torch.empty(hidden).uniform_(T / 4, T).log()
lstm.bias_ih_l0.data[: 2 * hidden] = torch.cat([-b, b])
lstm.bias_hh_l0.data[: 2 * hidden] = 0

training, held_out = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(1000 + seed)
x_test, y_test = adding_batch(512, held_out, length=T)


def error(x, y):
    """Mean squared error of the answers."""
    return (answer(lstm(x)[0][:, -1]).squeeze(-1) - y).square().mean()


net = nn.ModuleList([lstm, answer])
curve = fit(
    net,
    lambda: error(*adding_batch(64, training, length=T)),
    steps=500,
    lr=2e-2,
    evaluate=lambda: error(x_test, y_test).item(),
    every=100,
)
print("test error:", "  ".join(f"{value:.4f}" for value in curve.held_out))

claims.below("the LSTM to be opened has a held-out error below 0.01", curve.held_out[-1], 0.01)

# %%
# ## Replay
#
# We now run our own cell with the trained weights, in double precision, and keep what it computes. Per step
#
# $$c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh(c_t),$$
#
# so $i_t \odot g_t$ is what the step **writes** and $f_t$ the share of the memory that it keeps. Unrolled,
#
# $$c_T = \sum_{t=1}^{T} \Bigl( \prod_{s=t+1}^{T} f_s \Bigr) \odot i_t \odot g_t :$$
#
# the memory is a weighted sum of all writes, one weight per step and unit. Attention is a weighted sum too;
# but here a weight is a product over every later step, and each of them must agree to keep the write.

net.double().requires_grad_(False)
weights = tuple(lstm.parameters())  # w_ih, w_hh, b_ih, b_hh


def replay(x):
    """Hidden states, memories, writes and forget gates of every step, each of shape (B, T, hidden)."""
    h = c = x.new_zeros(len(x), hidden)
    steps = []
    for x_t in x.unbind(1):
        (h, c), gates = lstm_cell(x_t, (h, c), *weights)
        steps.append((h, c, gates.i * gates.g, gates.f))
    return [torch.stack(kind, dim=1) for kind in zip(*steps)]


h, c, writes, forget = replay(x_test.double())
kept = forget.flip(1).cumprod(1).flip(1).roll(-1, 1)  # products of f over t, ..., T, moved to t - 1
kept[:, -1] = 1  # nothing comes after the last step

claims.close("the replay by our own cell equals torch's LSTM", h, lstm(x_test.double())[0], atol=1e-12)
claims.close(
    "an LSTM's memory is the sum of its writes, each times all later forget gates",
    (kept * writes).sum(1),
    c[:, -1],
    atol=1e-12,
)

# %%
# ## It writes at the marks
#
# We draw a new sequence from the held-out generator and put the marks at steps 7 and 27. The first steps are
# left out of the ranking, since the memory fills from zero there. What holds for one sequence need not hold
# for others, so the same is counted over all held-out sequences whose marks come after those first steps.

marks, first = [7, 27], 3
x = torch.zeros(1, T, 2, dtype=torch.float64)
x[0, :, 0] = torch.rand(T, generator=held_out, dtype=torch.float64)
x[0, marks, 1] = 1
target = x[0, marks, 0].sum()
h, c, write, _ = (kind[0] for kind in replay(x))
size = write.norm(dim=-1)
largest = (first + size[first:].topk(2).indices).sort().values

where = x_test[..., 1].topk(2).indices.sort().values  # (512, 2): the marks of each sequence
where_written = (first + writes[:, first:].norm(dim=-1).topk(2).indices).sort().values
later = where[:, 0] >= first
share = (where_written == where)[later].all(dim=1).double().mean()
print(f"write at the marks: {size[marks[0]]:.3f} and {size[marks[1]]:.3f}; median write {size.median():.3f}")
print(f"the two largest writes are at the marks in {share:.1%} of {later.sum()} held-out sequences")

claims.holds("the two largest writes are at steps 7 and 27, where the marks are", largest == torch.tensor(marks))
claims.above("the two largest writes are at the marks in over 0.95 of held-out sequences", share, 0.95)

# %%

fig, axes = plt.subplots(2, 1, figsize=(4.8, 3.6), sharex=True)
axes[0].bar(range(T), size.numpy(), color=[plot.VERMILLION if t in marks else plot.BLUE for t in range(T)])
axes[0].set(title="The LSTM writes at the marks", ylabel="write")
axes[1].step(range(T), c.norm(dim=-1).numpy(), where="mid", color=plot.BLUE, linestyle="-")
for mark in marks:
    axes[1].axvline(mark, color=plot.VERMILLION, linestyle=":", linewidth=1)
axes[1].set(xlabel="step", ylabel="memory", ylim=(0, None), xticks=(0, 7, 17, 27, 39))
fig.set_label(
    f"Above, the norm of what the LSTM writes at each of {T} steps: two tall bars at the marks, steps "
    f"{marks[0]} and {marks[1]}, low ones elsewhere. Below, the norm of its memory, which jumps at the marks."
)

# %%
# ## It keeps what it wrote
#
# By the sum above, what is left at the end of the write at step $t$ is $(\prod_{s>t} f_s) \odot i_t \odot g_t$. We
# compare its norm with that of the fresh write, for the first mark of each held-out sequence. For scale: with
# every forget gate at $1/2$, a write thirty steps old would be down to $2^{-30}$ of its size.
#
# Kept is not yet used. The derivative $\partial \hat y / \partial u_t$ of the answer by a number says whether
# the net adds: it should be 1 for a marked number, and 0 for the others.

rows = torch.arange(len(x_test))
left = (kept * writes)[rows, where[:, 0]].norm(dim=-1) / writes[rows, where[:, 0]].norm(dim=-1)

inputs = x_test.double().requires_grad_()
guesses = answer(lstm(inputs)[0][:, -1]).squeeze(-1)
slopes = torch.autograd.grad(guesses.sum(), inputs)[0][..., 0]
is_marked = x_test[..., 1] == 1
print(f"left of the first mark's write at the end, on average {left.mean():.2f}")
print(f"steps from the first mark to the end, on average {(T - 1 - where[:, 0]).double().mean():.1f}")
print(f"slope of the answer, at marks {slopes[is_marked].mean():.3f}, elsewhere {slopes[~is_marked].abs().mean():.3f}")

claims.above("on average over 0.4 of the first mark's write is left at the end", left.mean(), 0.4)
claims.above("the answer follows a marked number with a mean slope over 0.85", slopes[is_marked].mean(), 0.85)
claims.below(
    "the answer follows an unmarked number with a mean absolute slope under 0.03", slopes[~is_marked].abs().mean(), 0.03
)

# %%
# ## What it would answer at each step
#
# Reading $w^\top h_t + b$ at every step gives a running guess. Training asked for the last one only, and only
# that one is claimed; the earlier ones need not be the sum so far, and the figure shows that they are not.

guess = answer(h).squeeze(-1)
running_sum = (x[0, :, 0] * x[0, :, 1]).cumsum(0)
within = ((guesses - y_test).abs() < 0.1).double().mean()
print(f"last guess {guess[-1]:.3f}, target {target:.3f}")
print(f"last guess within a tenth of the target in {within:.1%} of {len(x_test)} held-out sequences")

claims.below("with marks at 7 and 27 the last guess is within 0.1 of the target", (guess[-1] - target).abs(), 0.1)
claims.above("over 0.9 of the held-out answers are within 0.1 of the target", within, 0.9)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.0))
ax.step(range(T), running_sum.numpy(), where="post", color=plot.VERMILLION, linestyle="--", label="true running sum")
ax.plot(range(T), guess.numpy(), color=plot.BLUE, linestyle="-", label="running guess")
ax.set(title="The guess arrives at the sum", xlabel="step", ylabel="sum", ylim=(0, None), xticks=(0, 7, 17, 27, 39))
ax.legend(loc="upper left")
fig.set_label(
    f"True running sum, a staircase with steps at {marks[0]} and {marks[1]}, and the LSTM's running guess, which "
    f"jumps at both and ends at {guess[-1]:.2f} where the sum is {target:.2f}."
)

# %%
# ## Try it
#
# - Put both marks into the first half, which training never showed: the net adds them all the same.
# - Set three marks: the answer still follows every marked number, but misses the sum by much the same amount
#   each time. The net has learned that there are two.
# - Start from torch's own gate biases, with other seeds: the net may need longer, or store the numbers
#   among units that write at every step, and the ranking of the writes no longer shows the marks.
