r"""
# A recurrence keeps its past at a geometric rate

Take the input and the tanh away from a recurrent net and a matrix power remains. This page shows the
rate at which such a state, and a gradient through it, decays or grows; and what attention does instead.
The [derivation](../../derivations/gradients.md) proves each step, and goes on to the LSTM.

*Sources:* [Bengio, Simard and Frasconi (1994)](../../references.md#bengio1994);
[Pascanu, Mikolov and Bengio (2013)](../../references.md#pascanu2013), section 2;
[Horn and Johnson (2013)](../../references.md#horn2013), corollary 5.6.14;
[Saxe, McClelland and Ganguli (2014)](../../references.md#saxe2014).
"""

# mkdocs_gallery_order = 1

import math

import matplotlib.pyplot as plt
import torch

from attnkit import attention, claims, linear_recurrence, plot, rnn_cell

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## An orthogonal matrix times a number
#
# The linear recurrence $h_t = W h_{t-1}$ has the solution $h_t = W^t h_0$. Let $W = \rho Q$ with an
# orthogonal $Q$. Orthogonal matrices keep lengths, $\lVert Qx \rVert = \lVert x \rVert$, so
#
# $$\lVert h_t \rVert = \rho \, \lVert Q h_{t-1} \rVert = \rho \, \lVert h_{t-1} \rVert
# \quad\Longrightarrow\quad \lVert h_t \rVert = \rho^t \, \lVert h_0 \rVert .$$
#
# Every eigenvalue of $\rho Q$ has modulus $\rho$: the **spectral radius** is the rate. We simulate five
# values of $\rho$ and fit a straight line to $\ln \lVert h_t \rVert$, whose slope is $\ln \rho$.

N, steps = 200, 60
rhos = torch.tensor([0.85, 0.95, 1.0, 1.05, 1.15])
Q = torch.linalg.qr(torch.randn(N, N)).Q
h0 = torch.nn.functional.normalize(torch.randn(N), dim=0)
t = torch.arange(steps + 1.0)

states = torch.stack([linear_recurrence(rho * Q, h0, steps) for rho in rhos])
norms = states.norm(dim=-1)
radius = torch.stack([torch.linalg.eigvals(rho * Q).abs().max() for rho in rhos])
slope = ((t - t.mean()) * norms.log()).sum(-1) / (t - t.mean()).square().sum()  # least squares
for rho, r, s, last in zip(rhos, radius, slope, norms[:, -1]):
    print(f"rho = {rho:.2f}   spectral radius {r:.6f}   fitted rate {s.exp():.6f}   norm at the end {last:9.3g}")

claims.close("a scaled orthogonal recurrence has norm rho to the power t", norms / rhos[:, None] ** t, 1.0, atol=1e-12)
claims.close(
    "the last state of a linear recurrence is a matrix power times the first",
    states[3, -1],
    torch.linalg.matrix_power(rhos[3] * Q, steps) @ h0,
    atol=1e-12,
)
claims.close("the spectral radius of a scaled orthogonal matrix is its scale", radius, rhos, atol=1e-12)
claims.close("the fitted growth rate equals the spectral radius", slope.exp(), radius, atol=1e-12)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.2))
for rho, line in zip(rhos, norms):
    colour = plot.INK if rho == 1 else plot.BLUE if rho < 1 else plot.VERMILLION
    ax.semilogy(t.numpy(), line.numpy(), color=colour, linestyle="-")
    ax.text(steps + 1, line[-1], f"ρ = {rho:.2f}", color=colour, va="center")
ax.set(title="Only ρ = 1 keeps the length", xlabel="step", ylabel="norm of the state", xlim=(0, steps))
fig.set_label(
    f"Norm of the state against the step, on a log axis, for {len(rhos)} values of rho: straight lines "
    "that fall below rho = 1, rise above it, and stay level at it."
)

# %%
# ## An echo in the plane
#
# In two dimensions $Q$ can be a rotation. With the angle $2\pi/11$ the state is back in its direction
# after eleven steps, scaled by $\rho^{11}$. A component of $h_t$ is then an echo of the first input, one
# that is damped, held, or growing.

angle, turns = 2 * math.pi / 11, 4
rotation = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
echo_rhos = (0.9, 1.0, 1.1)
start = torch.tensor([1.0, 0.0])
echoes = torch.stack([linear_recurrence(rho * rotation, start, 11 * turns) for rho in echo_rhos])

claims.close(
    "after one turn the damped echo is at (0.313811, 0)", echoes[0, 11], torch.tensor([0.31381059609, 0.0]), atol=1e-12
)
claims.close("the held echo returns to its start after every turn", echoes[1, ::11], start, atol=1e-13)
claims.close(
    "the growing echo gains the same factor in every turn",
    echoes[2, ::11, 0],
    1.1 ** t[: 11 * turns + 1 : 11],
    atol=1e-10,
)

# %%

fig, axes = plt.subplots(3, 1, figsize=(4.8, 4.2), sharex=True)
for ax, rho, echo in zip(axes, echo_rhos, echoes):
    ax.axhline(0, color=plot.INK, linewidth=0.6)
    ax.plot(echo[:, 0].numpy(), color=plot.BLUE, linestyle="-", marker="o", markersize=3, linewidth=1)
    ax.set_ylabel(f"ρ = {rho:.1f}")
    limit = max(1.2, 1.1 * float(echo[:, 0].abs().max()))
    ax.set(ylim=(-limit, limit), xticks=range(0, 11 * turns + 1, 11))
axes[0].set_title("An echo: damped, held, growing")
axes[-1].set_xlabel("step")
fig.set_label(
    f"First component of a rotating state over {turns} turns, three panels: it dies out, swings evenly, "
    f"and grows to {echoes[2, :, 0].abs().max():.0f} times its start."
)

# %%
# ## Where the spectral radius is not the whole story
#
# For any matrix, $\rho(W) = \lim_{t} \lVert W^t \rVert^{1/t}$: the radius is the rate in the *long* run.
# Before that, a matrix without an orthogonal basis of eigenvectors can amplify although $\rho(W) < 1$. By
# induction,
#
# $$W = \begin{pmatrix} \rho & 1 \\ 0 & \rho \end{pmatrix} \quad\Longrightarrow\quad
# W^t = \begin{pmatrix} \rho^t & t\rho^{t-1} \\ 0 & \rho^t \end{pmatrix},$$
#
# and $t\rho^{t-1}$ grows until $t = -1/\ln\rho$. What bounds *every* step is the largest singular value
# $\lVert W \rVert$, never smaller than the radius: $\lVert W^t \rVert \le \lVert W \rVert^t$.

sheared = torch.tensor([[0.9, 1.0], [0.0, 0.9]])
path = linear_recurrence(sheared, torch.tensor([0.0, 1.0]), 300)
print(f"largest norm {path.norm(dim=-1).max():.2f}, at step {path.norm(dim=-1).argmax()}")
print(f"after {len(path) - 1} steps {path[-1].norm():.2g}")

claims.close(
    "a sheared recurrence of radius 0.9 has grown to (3.874205, 0.348678) after ten steps",
    path[10],
    torch.tensor([3.87420489, 0.3486784401]),
    atol=1e-12,
)
claims.below("in the end the sheared recurrence decays all the same", path[-1].norm(), 1e-9)

# %%
# ## The gradient takes the same road back
#
# Put input and tanh back: $h_t = \tanh(a_t)$, $a_t = W_{ih} x_t + W h_{t-1}$. By the chain rule the
# influence of a state on a later one is a product of as many factors as there are steps between them,
#
# $$\frac{\partial h_T}{\partial h_0} = \prod_{t=T}^{1} \operatorname{diag}(1 - h_t^2) \, W,
# \qquad \left\lVert \frac{\partial h_T}{\partial h_0} \right\rVert \le \lVert W \rVert^T,$$
#
# since $0 < 1 - h_t^2 \le 1$. With $\lVert W \rVert < 1$ the gradient must vanish. With $\lVert W \rVert > 1$
# it may explode, but need not: the tanh damps. Our $W$ is again a multiple of an orthogonal matrix, for which
# equality holds at rest, $h_t = 0$.

W, W_ih = 0.9 * torch.linalg.qr(torch.randn(32, 32)).Q, 0.3 * torch.randn(32, 3)
inputs = torch.randn(steps, 3)


def last_state(h, inputs):
    """Run the tanh recurrence over the inputs."""
    for x in inputs:
        h = rnn_cell(x, h, W_ih, W)
    return h


jacobian = torch.autograd.functional.jacobian(lambda h: last_state(h, inputs), torch.zeros(32))
at_rest = torch.autograd.functional.jacobian(lambda h: last_state(h, 0 * inputs), torch.zeros(32))

product, h, through = torch.eye(32), torch.zeros(32), [1.0]
for x in inputs:
    h = torch.tanh(W_ih @ x + W @ h)
    product = torch.diag(1 - h**2) @ W @ product
    through.append(float(torch.linalg.matrix_norm(product, 2)))
bound = 0.9**t
print(f"norm of the gradient over {steps} steps: {through[-1]:.2e}, bound {bound[-1]:.2e}")

claims.close(
    "autograd through the recurrence gives the product of its step Jacobians",
    jacobian / through[-1],
    product / through[-1],
    atol=1e-13,
)
claims.holds(
    "no gradient through the tanh recurrence exceeds the norm of W to the power of the steps",
    torch.tensor(through) <= bound * (1 + 1e-12),
)
claims.close(
    "at rest sixty steps pass exactly 0.001797 of the gradient", torch.linalg.svdvals(at_rest), 0.9**60, atol=1e-15
)

# %%
# ## Attention has no road to travel
#
# An attention output is $\sum_j \alpha_j v_j$, so $\partial\, \mathrm{out} / \partial v_j = \alpha_j I$ (for
# weights that do not themselves depend on $v_j$). The distance does not enter. Uniform weights over $S$
# keys pass $1/S$ from each: less than the recurrence from nearby, more from far away. Learned weights
# pass anything from 0 to 1.

S = steps + 1
q, k, v = torch.zeros(1, 1), torch.zeros(S, 1), torch.randn(S, 4)
to_values = torch.autograd.functional.jacobian(lambda v: attention(q, k, v)[0][0], v)  # (4, S, 4)
passed = torch.linalg.matrix_norm(to_values.transpose(0, 1), 2)

claims.close(
    "uniform attention over 61 keys passes 1/61 of the gradient from every distance", passed, 1 / 61, atol=1e-15
)
claims.above(
    "from sixty steps back attention passes more than nine times the bound of the recurrence",
    passed[0] / bound[-1],
    9.0,
)

# %%

fig, ax = plt.subplots(figsize=(4.8, 3.2))
ax.semilogy(t.numpy(), bound.numpy(), color=plot.BLUE, label="recurrence, bound")
ax.semilogy(t.numpy(), through, color=plot.VERMILLION, label="recurrence, measured")
ax.semilogy(t.numpy(), passed.flip(0).numpy(), color=plot.GREEN, label="uniform attention")
ax.set(title="Attention passes gradients at any distance", xlabel="distance in steps", ylabel="norm of the Jacobian")
ax.legend()
fig.set_label(
    "Norm of the Jacobian against the distance in steps, on a log axis. The recurrence's bound falls as a "
    f"straight line to {bound[-1]:.1e}, the measured one below it; attention stays level at {passed[0]:.3f}."
)

# %%
# ## Try it
#
# - Replace `Q` by `torch.randn(N, N) / math.sqrt(N)`: its spectral radius is near 1, but a Gaussian matrix is
#   not normal, the norms leave their straight lines, and the first claim stops the page.
# - Double `W_ih`: the tanh saturates, and the measured gradient falls further below its bound.
# - Give one key a score of 10 (`k[7] = 10`, `q[0] = 1`): attention passes nearly all of the gradient to
#   token 7, and next to nothing elsewhere.
