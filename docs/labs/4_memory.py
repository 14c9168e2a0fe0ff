# %% [markdown]
# # Lab 4 · An LSTM cell against additive attention
#
# You write the memory that attention replaced, gate by gate, then the first attention, and compare how far back each
# of them reaches. About 50 minutes.
#
# **Goal.** At the end you can say what each gate of an LSTM does, why a recurrent state forgets, and what the tanh in
# an additive score is for. Needed: [lab 1](../labs/1_mixtures.ipynb).

# %%
import matplotlib.pyplot as plt
import torch

from attnkit import claims, labs, plot, softmax

plt.style.use("attnkit.paper")
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## One state, rewritten at every step
#
# The simplest recurrent net is $h_t = W h_{t-1}$. What was written at the start is multiplied by $W$ once per step,
# so it grows or fades like $\rho^t$, with $\rho$ the largest magnitude of an eigenvalue.
# [Linear recurrence](../gallery/4_recurrence/linear_recurrence.md) measures that.
#
# ### Exercise 4.1 · All the states


# %% tags=["exercise"]
def recur(w, h0, steps):
    """The states of a linear recurrence.

    Args:
        w: shape (n, n); the next state is W h.
        h0: the first state, shape (n,).
        steps: number of steps.

    Returns:
        All states, the first included, shape (steps + 1, n).
    """
    states = [h0]
    for _ in range(steps):
        states.append(w @ states[-1])
    return torch.stack(states)


# %% [markdown] tags=["hint"]
# Keep the states in a list, append $W$ times the last of them, and `torch.stack` the list at the end.

# %%
labs.check_recurrence(recur)

# %% tags=["slips"]
slips = [
    ("w @ states[-1]", "states[-1] @ w", "the transpose of W"),
    ("w @ states[-1]", "w @ h0", "step from the state before"),
    ("torch.stack(states)", "torch.stack(states[1:])", "the first one counts"),
    ("torch.stack(states)", "torch.stack([w @ state for state in states])", "store before you step"),
]

# %% [markdown]
# ## Gates
#
# An LSTM adds a memory $c$ and four blocks computed from the input and the last state, in this order in torch:
# input gate $i$, forget gate $f$, candidate $g$, output gate $o$. A gate is a share between 0 and 1, made by a
# sigmoid; the candidate is a value between $-1$ and 1, made by a tanh.
#
# ### Exercise 4.2 · Four blocks


# %% tags=["exercise"]
def gates(z):
    """The gates and the candidate of an LSTM.

    Args:
        z: what goes into them, shape (..., 4 n): blocks i, f, g, o.

    Returns:
        i, f, g, o, each of shape (..., n).
    """
    i, f, g, o = z.chunk(4, dim=-1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


# %% [markdown] tags=["hint"]
# `z.chunk(4, dim=-1)` cuts the last axis into four runs.

# %%
labs.check_gates(gates)

# %% tags=["slips"]
slips = [
    ("g.tanh()", "g.sigmoid()", "the candidate got a sigmoid"),
    ("i.sigmoid()", "i.tanh()", "the input gate got a tanh"),
    ("i, f, g, o = z.chunk(4, dim=-1)", "i, f, g, o = z.unflatten(-1, (-1, 4)).unbind(-1)", "interleaved"),
    ("i, f, g, o = z", "i, f, o, g = z", "the last block as the candidate"),
]

# %% [markdown]
# ## Keep, write, show
#
# $$c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh(c_t).$$
#
# The forget gate says how much of the memory stays, the input gate how much of the candidate is written, the output
# gate how much of the memory is shown.
#
# ### Exercise 4.3 · One step of the memory


# %% tags=["exercise"]
def step(c, i, f, g, o):
    """One step of an LSTM, its gates given.

    Args:
        c: the memory before, shape (..., n), as are the gates ``i``, ``f``, ``o`` and the candidate ``g``.

    Returns:
        The state h and the memory c after the step, each of shape (..., n).
    """
    c = f * c + i * g
    return o * c.tanh(), c


# %% [markdown] tags=["hint"]
# Two lines, one for each formula. The state is made from the **new** memory.

# %%
labs.check_lstm(step)

# %% tags=["slips"]
slips = [
    ("f * c + i * g", "i * c + f * g", "the gates are exchanged"),
    ("f * c + i * g", "i * g", "the old memory is lost"),
    ("f * c + i * g", "c + i * g", "nothing is ever forgotten"),
    ("o * c.tanh()", "o * c", "squash it with tanh"),
    ("o * c.tanh()", "(o * c).tanh()", "not inside it"),
]

# %% [markdown]
# ## The whole sequence
#
# What goes into the gates is $z_t = W_{ih} x_t + W_{hh} h_{t-1} + b$. State and memory start at 0, and each step needs
# the one before: nothing here can run in parallel.
# [A trained LSTM](../gallery/4_recurrence/lstm_gates.md) shows what such a memory learns to store.
#
# ### Exercise 4.4 · Run it


# %% tags=["exercise"]
def run(x, w_ih, w_hh, b):
    """The states of an LSTM over a sequence.

    Args:
        x: inputs, shape (T, d).
        w_ih: shape (4 n, d).
        w_hh: shape (4 n, n).
        b: shape (4 n,).

    Returns:
        The state after each step, shape (T, n).
    """
    h = c = x.new_zeros(w_hh.shape[1])
    states = []
    for x_t in x:
        h, c = step(c, *gates(w_ih @ x_t + w_hh @ h + b))
        states.append(h)
    return torch.stack(states)


# %% [markdown] tags=["hint"]
# Start with zeros, `x.new_zeros(w_hh.shape[1])`. In the loop, both `h` and `c` are replaced by what `step` returns.

# %%
labs.check_lstm_run(run)

# %% tags=["slips"]
slips = [
    ("h, c = step", "h, _ = step", "the memory is not carried"),
    (" + w_hh @ h", "", "the state is not fed back"),
    ("for x_t in x:", "for x_t in x.flip(0):", "read backwards"),
    ("torch.stack(states)", "h", "one state for each step"),
]

# %% [markdown]
# ## Attention looks back directly
#
# A decoder in state $q_i$ need not trust one memory: it can score all states $k_j$ of the encoder,
#
# $$s_{ij} = w^\top \tanh(W_q^\top q_i + W_k^\top k_j),$$
#
# and mix them by the softmax of the scores. Without the tanh, the query would add the same number to all scores of
# its row, and softmax would remove it. [Without the tanh](../gallery/5_alignment/additive_attention.md)
# has the details.
#
# ### Exercise 4.5 · The additive score


# %% tags=["exercise"]
def additive(q, k, w_q, w_k, w):
    """Additive scores of all queries with all keys.

    Args:
        q: shape (T, d_query).
        k: shape (S, d_key).
        w_q: shape (d_query, d_attn).
        w_k: shape (d_key, d_attn).
        w: shape (d_attn,).

    Returns:
        Shape (T, S).
    """
    hidden = torch.tanh((q @ w_q)[:, None] + k @ w_k)
    return hidden @ w


# %% [markdown] tags=["hint"]
# With `[:, None]` the queries get an axis for the keys, and adding repeats both: the hidden layer has the shape
# (T, S, d_attn). Multiplying by `w` sums its last axis.

# %%
labs.check_additive(additive)

# %% tags=["slips"]
slips = [
    ("torch.tanh((q @ w_q)[:, None] + k @ w_k)", "(q @ w_q)[:, None] + k @ w_k", "without the tanh"),
    ("torch.tanh((q @ w_q)[:, None] + k @ w_k)", "torch.tanh(q @ w_q)[:, None] + torch.tanh(k @ w_k)", "never meet"),
    ("hidden @ w", "hidden.sum(-1)", "w is missing"),
    (
        "torch.tanh((q @ w_q)[:, None] + k @ w_k)\n    return hidden @ w",
        "(q @ w_q)[:, None] + k @ w_k\n    return torch.tanh(hidden @ w)",
        "on the hidden units",
    ),
]

# %% [markdown]
# ## How far back?
#
# How much does the last output depend on the input of each step? For an LSTM the answer passes through every step in
# between; for attention it is one step, wherever the input stands.

# %%
T, n = 30, 8
x = torch.randn(T, n, generator=generator)
w_ih, w_hh = (torch.randn(4 * n, n, generator=generator) * 0.5 for _ in range(2))
w_q, w_k = (torch.randn(n, n, generator=generator) * 0.5 for _ in range(2))
w = torch.randn(n, generator=generator)


def last_attended(x):
    """Output of the last token, which attends to all."""
    return (softmax(additive(x[-1:], x, w_q, w_k, w)) @ x)[0]


def last_state(x):
    """Last state of the LSTM."""
    return run(x, w_ih, w_hh, x.new_zeros(4 * n))[-1]


reach = [torch.autograd.functional.jacobian(f, x).norm(dim=(0, 2)) for f in (last_state, last_attended)]
claims.below("lab 4: of an untrained LSTM's reach under 1e-4 is left 29 steps back", reach[0][0] / reach[0][-1], 1e-4)
claims.above("lab 4: attention reaches each of 30 steps with a derivative over 0.01", reach[1], 0.01)

fig, ax = plt.subplots()
ax.semilogy(range(T), reach[0].numpy(), color=plot.VERMILLION, linestyle="--", label="LSTM, untrained")
ax.semilogy(range(T), reach[1].numpy(), color=plot.BLUE, linestyle="-", label="additive attention")
ax.set(title="Attention reaches every step", xlabel="step of the input", ylabel="norm of the derivative")
ax.legend()
fig.set_label(
    f"Norm of the derivative of the last output by the input of each of {T} steps, logarithmic: the LSTM's falls "
    "by many orders of magnitude towards the early steps, attention's is uneven but never small."
)
plt.show()

# %% [markdown]
# ## Summary
#
# - A recurrent state is rewritten at every step; what it keeps is a product over all later steps.
# - Forget keeps, input writes, output shows. Gates are sigmoids, the candidate is a tanh.
# - Attention reads every step directly, in one product. In an additive score the tanh lets query and key meet.
