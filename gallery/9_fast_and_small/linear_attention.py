r"""
# Without the exponential, attention is a recurrence whose state never grows

Replace $e^{q \cdot k}$ by a dot product of features, and the sum over keys can be formed before the query is known.
This page shows the three forms of that attention to be one, counts where it is cheaper, and measures what its small
state forgets, with and without the delta rule.

*Sources:* [Katharopoulos et al. (2020)](../../references.md#katharopoulos2020), equations 4 to 12;
[Schlag et al. (2021)](../../references.md#schlag2021), sections 4.1 and 4.2, capacity and the delta rule;
[Yang et al. (2024)](../../references.md#yang2024), section 2, the rule as a gradient step;
[Widrow and Hoff (1960)](../../references.md#widrow1960), where it comes from.
"""

# mkdocs_gallery_order = 5
# mkdocs_gallery_builds_on = ["kernel_smoothing", "linear_recurrence"]

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import elu, normalize
from torch.utils.flop_counter import FlopCounterMode

from attnkit import attention, causal_mask, claims, delta_rule, elu_plus_one, linear_attention, plot, tiled_attention

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
seed = 0
torch.manual_seed(seed)

# %%
# ## The order of multiplication
#
# Matrix products may be bracketed either way,
#
# $$\left(Q K^\top\right) V = Q \left(K^\top V\right),$$
#
# with $T^2 (d_k + d_v)$ multiplications on the left and $2\, T d_k d_v$ on the right: for $d_k = d_v = d$ the right is
# cheaper once $T > d$. Softmax stands between the first two factors and the third and forbids this. But softmax is only
# one way to make weights from a similarity of query and key that is $\ge 0$. Choose a product of **features**,
# $\varphi(q) \cdot \varphi(k)$ with $\varphi \ge 0$, and
#
# $$y_i = \frac{\sum_j \varphi(q_i) \cdot \varphi(k_j)\, v_j}{\sum_j \varphi(q_i) \cdot \varphi(k_j)}
# = \frac{\varphi(q_i) \left( \sum_j \varphi(k_j)^\top v_j \right)}
# {\varphi(q_i) \left( \sum_j \varphi(k_j)^\top \right)} .$$
#
# The brackets no longer contain $i$. The weights are still non-negative and sum to 1, so outputs stay in the hull of
# the values. A usual choice is $\varphi(x) = \operatorname{elu}(x) + 1$, entry by entry: $x + 1$ for positive $x$ and
# $e^x$ otherwise. (`elu_plus_one` computes just that; the sum rounds to 0 for very negative $x$, and a weight that
# is 0 by rounding may stand in the denominator.) With $\varphi = 1$ all keys count the same.

T, d_k, d_v = 150, 8, 5
q, k = torch.randn(2, T, d_k)
v = torch.randn(T, d_v)
phi_q, phi_k = elu(q) + 1, elu(k) + 1
weights = phi_q @ phi_k.T
weights = weights / weights.sum(dim=1, keepdim=True)
both_ways = linear_attention(q, k, v, causal=False)
same, odd = torch.zeros(3, 2), torch.tensor([[1.0], [3.0], [5.0]])
counted = linear_attention(same, same, odd, feature_map=torch.ones_like)
far = torch.tensor([-50.0])
print("constant features, values 1, 3, 5:", counted[:, 0].tolist())
print(f"at -50, elu + 1 is {(elu(far) + 1).item():g} and elu_plus_one {elu_plus_one(far).item():.2g}")

claims.close("(QKᵀ)V = Q(KᵀV)", (q @ k.T) @ v, q @ (k.T @ v), atol=1e-12)
claims.close("linear attention is a mixture by feature products", both_ways, weights @ v, atol=1e-14)
means = torch.tensor([1.0, 2.0, 3.0])
claims.close("constant features over values 1, 3, 5 give running means 1, 2, 3", counted[:, 0], means, atol=1e-14)
claims.close("in double precision elu(−50) + 1 rounds to 0", elu(far) + 1, 0.0, atol=0)
claims.close("elu_plus_one(−50) is e⁻⁵⁰", elu_plus_one(far).log(), -50.0, atol=1e-13)

# %%
# ## Causal: a state that moves along
#
# If query $i$ may see only $j \le i$, both sums are running sums. With the **state** $M_i$ and the normaliser $z_i$,
#
# $$M_i = M_{i-1} + \varphi(k_i)^\top v_i, \qquad z_i = z_{i-1} + \varphi(k_i), \qquad
# y_i = \frac{\varphi(q_i) M_i}{\varphi(q_i) \cdot z_i} .$$
#
# That is a recurrent net with a linear state: $d_\varphi (d_v + 1)$ numbers, whatever $T$. A decoder keeps them in
# place of a cache. Training uses the same sums at once, $\operatorname{tril}(\varphi(Q) \varphi(K)^\top) V$, or, as
# `linear_attention` does, in chunks: pairs within a chunk of 64 tokens, the state between chunks.


def recurrent(q, k, v):
    """One token after the other; also the numbers held after the last."""
    state, z, out = torch.zeros(d_k, d_v), torch.zeros(d_k), []
    for q_i, k_i, v_i in zip(elu(q) + 1, elu(k) + 1, v):
        state, z = state + k_i[:, None] * v_i, z + k_i
        out.append(q_i @ state / (q_i @ z))
    return torch.stack(out), state.numel() + z.numel()


token_by_token, held = recurrent(q, k, v)
held_by_many = recurrent(*torch.randn(2, 1000, d_k), torch.randn(1000, d_v))[1]
masked = (phi_q @ phi_k.T).tril()
masked = masked / masked.sum(dim=1, keepdim=True)
out = linear_attention(q, k, v)
print(f"a state after {T} tokens: {held} numbers, after 1000: {held_by_many}")
print(f"a cache after {T} tokens: {T * (d_k + d_v):,} numbers, after 1000: {1000 * (d_k + d_v):,}")

claims.close("linear attention token by token equals its parallel form", token_by_token, masked @ v, atol=1e-13)
claims.close("linear attention in chunks equals it token by token", out, token_by_token, atol=1e-13)
claims.close("the state has 8 · 6 numbers after 150 and after 1000 tokens", [held, held_by_many], 48, atol=0)

# %%
# ## Where the lines cross
#
# In chunks of $C$ tokens, `linear_attention` multiplies $C (d_\varphi + d_v + 1)$ times per token within the chunk and
# $2\, d_\varphi (d_v + 1)$ times for the state, however long the text. Softmax multiplies $T (d_k + d_v)$ times per
# token, about half of it if tiles of the future are skipped. torch counts, for widths of 64:


def per_token(form, T):
    """Multiplications of a call with one head of width 64, divided by its tokens."""
    with FlopCounterMode(display=False) as counter:
        form(*torch.zeros(3, T, 64))
    return counter.get_total_flops() / 2 / T  # a flop is * or +


forms = {
    "softmax": lambda q, k, v: attention(q, k, v, causal_mask(len(q))),
    "softmax, future skipped": lambda q, k, v: tiled_attention(q, k, v, causal_mask(len(q)), block=64),
    "linear": linear_attention,
}
lengths = 2 ** torch.arange(6, 12)
counts = {name: torch.tensor([per_token(form, T) for T in lengths.tolist()]) for name, form in forms.items()}
crossing = counts["linear"][0] / (64 + 64)
for name, count in counts.items():
    print(f"{name:>23}: {count[0]:8,.0f} multiplications per token at T = 64, {count[-1]:8,.0f} at T = 2048")
print(f"softmax and linear cross at T = {crossing:.1f}")

claims.close(
    "linear attention of width 64 multiplies 64 · 129 + 128 · 65 times per token", counts["linear"], 16576, atol=0
)
claims.close("softmax attention of width 64 multiplies 128 T times per token", counts["softmax"], 128 * lengths, atol=0)
claims.close("linear and softmax attention of width 64 cross at 129.5 tokens", crossing, 129.5, atol=1e-12)
claims.holds(
    "with the future skipped, softmax multiplies less up to 128 tokens and more from 256 on",
    (counts["softmax, future skipped"] > counts["linear"]) == (lengths >= 256),
)

# %%

fig, ax = plt.subplots()
for name, count in counts.items():
    ax.loglog(lengths.numpy(), count.numpy(), marker="o", markersize=4, label=name)
ax.set(title="Softmax climbs, linear attention stays", xlabel="tokens T", ylabel="multiplications per token")
ax.set_xticks([64, 128, 256, 512, 1024, 2048], ["64", "128", "256", "512", "1024", "2048"])
ax.set_yticks([1e4, 1e5], ["10 k", "100 k"])
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Multiplications per token for {lengths[0]} to {lengths[-1]} tokens, logarithmic. Linear attention is a flat "
    "line; softmax attention climbs and crosses it a little beyond 128 tokens, or before 256 if it skips the future."
)

# %%
# ## The delta rule: correct instead of add
#
# Read the state as a memory, $k M \approx v$, and leave features and normaliser aside. Linear attention adds
# $k^\top v$ whatever the key recalled before, so a key written twice recalls the sum. The **delta rule** first asks
# what the key recalls, and writes the error:
#
# $$M' = M + \beta\, k^\top (v - k M).$$
#
# It is one step of gradient descent with rate $\beta$ on $\frac12 \lVert k M - v \rVert^2$, whose gradient is
# $k^\top (k M - v)$. After the step the key recalls
#
# $$k M' = \left(1 - \beta \lVert k \rVert^2\right) k M + \beta \lVert k \rVert^2\, v:$$
#
# with $\lVert k \rVert = 1$, $\beta = 1$ overwrites, $\beta = 0$ writes nothing, and keys orthogonal to $k$ recall what
# they did before. With $\beta \lVert k \rVert^2 > 2$ the error grows, so keys are normalised in practice. The price is
# that each step needs the one before: the plain sum over $j$ is gone, and training in parallel takes more work (Yang et
# al. derive a form in chunks).

memory = torch.randn(d_k, d_v, requires_grad=True)
k_1, v_1 = normalize(torch.randn(d_k), dim=0), torch.randn(d_v)
(gradient,) = torch.autograd.grad((k_1 @ memory - v_1).square().sum() / 2, memory)
step = memory - 0.3 * gradient
written = memory + 0.3 * k_1[:, None] * (v_1 - k_1 @ memory)
claims.close("the delta rule is a step of gradient descent on the recall error", written, step, atol=1e-14)

keys, beta = normalize(torch.randn(T, d_k), dim=1), torch.rand(T)
memory, by_matrix = torch.zeros(d_k, d_v), []
for t in range(T):  # with the factor I − β kᵀk, Yang et al.'s form of the recurrence
    memory = (torch.eye(d_k) - beta[t] * keys[t].outer(keys[t])) @ memory + beta[t] * keys[t].outer(v[t])
    by_matrix.append(q[t] @ memory)
claims.close(
    "delta rule by correction equals its matrix recurrence",
    delta_rule(q, keys, v, beta),
    torch.stack(by_matrix),
    atol=1e-13,
)

key = torch.tensor([[0.6, 0.8]] * 2)
three_five = torch.tensor([[3.0], [5.0]])
recalled = {
    "the delta rule": delta_rule(key, key, three_five, torch.ones(2))[1],
    "a plain sum": key[1] @ (key.T @ three_five),
    "linear attention": linear_attention(key, key, three_five)[1],
}
print(
    "a key written with 3, then with 5, recalls", ", ".join(f"{x.item():.3g} by {name}" for name, x in recalled.items())
)
for (name, x), expected in zip(recalled.items(), (5.0, 8.0, 4.0)):
    claims.close(f"after 3 and 5 under one key, {name} recalls {expected:g}", x, expected, atol=1e-14)

other = torch.tensor([[-0.8, 0.6], [0.6, 0.8], [0.6, 0.8], [-0.8, 0.6]])
untouched = delta_rule(other, other, torch.tensor([[7.0], [3.0], [5.0], [0.0]]), torch.tensor([1.0, 1, 1, 0]))
claims.close("an orthogonal key still recalls 7", untouched[3], 7.0, atol=1e-14)
unstable = delta_rule(*key[:1].expand(2, 6, 2), torch.ones(6, 1), torch.full((6,), 3.0))[:, 0] - 1
claims.close(
    "at β = 3 the error of a unit key doubles with each write", unstable, -((-2.0) ** torch.arange(1, 7)), atol=1e-12
)

# %%
# ## What a small state forgets
#
# Write $N$ pairs into a memory, then ask for each. The sum of $k_n^\top v_n$ answers
#
# $$k_n M = v_n + \sum_{m \ne n} (k_n \cdot k_m)\, v_m$$
#
# for unit keys: exact if they are orthogonal, of which there are at most $d_k$. Random unit keys have
# $\mathbb{E}\,(k_n \cdot k_m)^2 = 1/d_k$, so that with independent values the mean squared error is $(N - 1)/d_k$ of
# the values' mean square: beyond $d_k + 1$ pairs, answering 0 would be better. The delta rule errs less, but what it
# corrects for a late key it spoils for earlier ones. Softmax over a cache of all pairs tells them apart if its scores
# are sharp enough, in a memory that grows with $N$.

width, trials, numbers = 16, 500, (1, 2, 4, 8, 16, 32, 64)
misses = {"plain sum": [], "delta rule": [], "softmax": []}
for N in numbers:
    keys, values = normalize(torch.randn(trials, N, width), dim=-1), torch.randn(trials, N, width)
    ask = torch.cat([torch.zeros_like(keys), keys], dim=1)  # write all pairs with β = 1, then read with β = 0
    write = torch.cat([keys, keys], dim=1), torch.cat([values, values], dim=1)
    answers = (
        keys @ (keys.mT @ values),
        delta_rule(ask, *write, torch.cat([torch.ones(N), torch.zeros(N)]))[:, N:],
        attention(keys, keys, values, scale=50.0)[0],
    )
    for miss, answer in zip(misses.values(), answers):
        miss.append((answer - values).square().mean().item())
misses = {name: torch.tensor(miss) for name, miss in misses.items()}
for name, miss in misses.items():
    print(f"{name:>12}: squared error", ", ".join(f"{e:.3f} at {N}" for N, e in zip(numbers, miss.tolist())))

orthogonal, values = torch.linalg.qr(torch.randn(width, width))[0], torch.randn(width, 3)
claims.close(
    "16 orthogonal keys of width 16 recall all their values from a sum",
    orthogonal @ (orthogonal.T @ values),
    values,
    atol=1e-13,
)
expected = (torch.tensor(numbers) - 1) / width
claims.close(
    "N random pairs in a sum miss by (N − 1)/16 of the values' square, N from 4 to 64",
    misses["plain sum"][2:] / expected[2:],
    1.0,
    atol=0.1,
)
claims.holds(
    "the delta rule misses less than the sum, N from 2 to 64", misses["delta rule"][1:] < misses["plain sum"][1:]
)
claims.above(
    "with 64 pairs at width 16 the delta rule misses by more than the values' square", misses["delta rule"][-1], 1
)
claims.below("softmax with a cache of 64 pairs misses by less than 1/1000", misses["softmax"][-1], 0.001)

# %%

fig, ax = plt.subplots()
for (name, miss), marker in zip(misses.items(), "os^"):
    ax.plot(numbers, miss.numpy(), marker=marker, markersize=4, label=name)
ax.axhline(1, color=plot.INK, linewidth=0.8, linestyle=":")
ax.text(64, 0.95, "answering 0", ha="right", va="top")
ax.set(title="A state of fixed size fills up", xlabel="pairs stored, width 16", ylabel="mean squared error")
ax.set_xticks([1, 16, 32, 64])
ax.set_yticks([0, 1, 2, 3, 4])
ax.legend(loc="upper left")
fig.set_label(
    f"Squared error of recall against the number of stored pairs. The plain sum rises in a straight line to "
    f"{misses['plain sum'][-1]:.1f} at {numbers[-1]} pairs, the delta rule more slowly to "
    f"{misses['delta rule'][-1]:.1f}, and softmax attention stays at zero."
)

# %%
# ## When it does not pay
#
# Short texts are cheaper with softmax, as the crossing shows. In seconds it lies elsewhere, since chunks and states
# cost memory traffic and calls as well; the [benchmark of attention](../../benchmarks.md) says where. And recall of
# many exact items is what a small state cannot do: for arbitrary values, no rule makes a matrix of $d_k$ rows recall
# more than $d_k$ pairs, since more than $d_k$ keys depend on each other linearly. Hybrid models, Yang et al.'s among
# them, mix layers that have a state with layers that have a cache or a [window](sliding_window_and_sinks.md).

# %%
# ## Try it
#
# - Pass `feature_map=lambda x: x` to `linear_attention(q, k, v)` and print its largest entry: weights may be negative,
#   denominators come close to 0, and outputs leave the hull of the values by far.
# - Set `width = 64` in the last section: the plain sum's errors fall to a quarter, in a state sixteen times as large.
#   The claim on the delta rule with 64 pairs fails, for now there is room.
# - Lower `scale=50.0` to 4: softmax confuses its keys too, though its cache holds every one of them.
