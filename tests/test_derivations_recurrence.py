"""Every numbered equation of docs/derivations/gradients.md, against autograd and by hand, in float64."""

import math
from itertools import pairwise

import pytest
import torch
from torch.autograd.functional import jacobian

from attnkit import attention, gru_cell, lstm_cell, rnn_cell

N, D, T = 5, 3, 11  # state, input, steps


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def norm(matrix):
    """Largest singular value."""
    return torch.linalg.matrix_norm(matrix, 2)


def orthogonal(n, seed=0):
    return torch.linalg.qr(randn(n, n, seed=seed)).Q


def exactly(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def product(factors):
    """Later factors from the left; the identity for none."""
    result = torch.eye(N, dtype=torch.float64)
    for factor in factors:
        result = factor @ result
    return result


class PlainNet:
    """h_t = tanh(W h_{t-1} + W_ih x_t + b) over random inputs, with a W of the given norm."""

    def __init__(self, size, seed=0):
        W = randn(N, N, seed=seed)
        self.W, self.W_ih, self.b = size * W / norm(W), randn(N, D, seed=seed + 1), randn(N, seed=seed + 2)
        self.x = randn(T, D, seed=seed + 3)

    def last(self, h, W=None, start=0):
        """The state after step T, from the state h after step ``start``."""
        for x in self.x[start:]:
            h = rnn_cell(x, h, self.W_ih, self.W if W is None else W, self.b)
        return h

    def states(self, h):
        """The states after 0, ..., T steps."""
        states = [h]
        for x in self.x:
            states.append(torch.tanh(self.W @ states[-1] + self.W_ih @ x + self.b))
        return states

    def factors(self, h):
        """J_1, ..., J_T by equation 5."""
        return [torch.diag(1 - h**2) @ self.W for h in self.states(h)[1:]]


# The product of Jacobians


def test_the_jacobian_between_two_states_is_the_product_of_those_in_between():
    """eq:grad-1, eq:grad-2, eq:grad-5."""
    net, h0 = PlainNet(1.3), randn(N, seed=9)
    states, factors = net.states(h0), net.factors(h0)
    for k in (0, 4, T - 1, T):
        exactly(jacobian(lambda h, k=k: net.last(h, start=k), states[k]), product(factors[k:]))


def test_a_loss_of_the_last_state_goes_back_through_the_transposes():
    """eq:grad-3."""
    net, h0, direction = PlainNet(1.3), randn(N, seed=9).requires_grad_(), randn(N, seed=10)
    (net.last(h0) @ direction).backward()
    gradient = direction
    for factor in reversed(net.factors(h0.detach())):
        gradient = factor.T @ gradient
    exactly(h0.grad, gradient)


def parameter_terms(net, h0):
    """The terms k = 1, ..., T of eq:grad-4 for the parameter W, each of shape (N, N, N)."""
    states, factors = net.states(h0), net.factors(h0)
    terms = []
    for k in range(1, T + 1):
        # dF_k/dW at fixed h_{k-1}: entry (a, b, c) is (1 - h_a²) δ_ab h_{k-1, c}
        immediate = torch.einsum("a,ab,c->abc", 1 - states[k] ** 2, torch.eye(N, dtype=torch.float64), states[k - 1])
        terms.append(torch.einsum("ia,abc->ibc", product(factors[k:]), immediate))
    return terms


def test_the_gradient_of_a_parameter_has_one_term_for_each_distance():
    """eq:grad-4."""
    net, h0 = PlainNet(1.3), randn(N, seed=9)
    exactly(jacobian(lambda W: net.last(h0, W), net.W), sum(parameter_terms(net, h0)))


# The upper bound


@pytest.mark.parametrize(("function", "gamma"), [(torch.tanh, 1.0), (torch.sigmoid, 0.25)])
def test_the_steepest_slope_is_1_for_tanh_and_a_quarter_for_the_logistic_function(function, gamma):
    """gamma of eq:grad-6; the identities of the derivatives besides."""
    a = torch.linspace(-8, 8, 1601, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(a).sum(), a)
    assert slope.max() == slope[800] == gamma
    y = function(a).detach()
    exactly(slope, 1 - y**2 if function is torch.tanh else y * (1 - y))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [0.5, 0.9, 1.0, 2.0])
def test_no_product_exceeds_the_norm_of_the_matrix_to_the_power_of_the_steps(size, seed):
    """eq:grad-6, for contractive and for other nets."""
    factors = PlainNet(size, seed).factors(randn(N, seed=9))
    for k in range(T):
        by_step = math.prod(float(norm(factor)) for factor in factors[k:])
        assert norm(product(factors[k:])) <= by_step * (1 + 1e-12)
        assert by_step <= size ** (T - k) * (1 + 1e-12)


def test_the_bound_of_a_norm_of_nine_tenths_halves_in_6_6_steps_and_is_a_thousandth_after_65_6():
    """eq:grad-7 and the numbers after it."""
    assert math.log(0.5) / math.log(0.9) == pytest.approx(6.6, abs=0.05)
    assert math.log(1e-3) / math.log(0.9) == pytest.approx(65.6, abs=0.05)
    for share in (0.5, 1e-3):
        assert 0.9 ** (math.log(share) / math.log(0.9)) == pytest.approx(share, rel=1e-13)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_terms_from_far_away_amount_to_no_more_than_a_geometric_tail(rho):
    """eq:grad-8, with the norm of a map from matrices (Frobenius) to states."""
    net, h0 = PlainNet(rho), randn(N, seed=9)
    terms = [term.reshape(N, N * N) for term in parameter_terms(net, h0)]
    C = max(
        norm(torch.einsum("ab,c->abc", torch.diag(1 - h**2), before).reshape(N, N * N))
        for before, h in zip(net.states(h0), net.states(h0)[1:])
    )
    for n in range(T):
        assert norm(sum(terms[: T - n])) <= C * rho**n / (1 - rho)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_a_contractive_net_forgets_where_it_started(rho):
    """eq:grad-9, from starts that are far apart."""
    net, one, other = PlainNet(rho), 3 * randn(N, seed=9), -3 * randn(N, seed=10)
    for t, (h, h_other) in enumerate(zip(net.states(one), net.states(other))):
        assert (h - h_other).norm() <= rho**t * (one - other).norm() * (1 + 1e-12)


# What the norm does not tell


@pytest.mark.parametrize("rho", [0.9, 1.0, 1.1])
def test_at_rest_a_scaled_orthogonal_matrix_attains_the_bound_in_every_direction(rho):
    """eq:grad-10: decay, conservation and growth."""
    net = PlainNet(1.0)
    net.W, net.b, net.x = rho * orthogonal(N), torch.zeros(N, dtype=torch.float64), torch.zeros_like(net.x)
    J = jacobian(net.last, torch.zeros(N, dtype=torch.float64))
    exactly(J, torch.linalg.matrix_power(net.W, T))
    exactly(torch.linalg.svdvals(J), torch.full((N,), rho**T, dtype=torch.float64))


def test_the_norm_of_a_power_lies_between_the_powers_of_spectral_radius_and_norm():
    """eq:grad-11, and the limit of the n-th root that is stated after it."""
    M = randn(N, N, seed=3) / 3
    radius = torch.linalg.eigvals(M).abs().max()
    assert radius < 0.9 * norm(M), "the two sides are to differ"
    for n in range(1, 40):
        power = norm(torch.linalg.matrix_power(M, n))
        assert radius**n * (1 - 1e-12) <= power <= norm(M) ** n * (1 + 1e-12)
    root = norm(torch.linalg.matrix_power(M / radius, 4000)) ** (1 / 4000)
    exactly(root, 1.0, atol=1e-3)


def test_factors_of_spectral_radius_0_have_a_product_that_explodes():
    """eq:grad-12."""
    M1 = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    M2 = M1.T
    assert torch.equal(M1 @ M1, torch.zeros_like(M1)), "nilpotent, so all eigenvalues are 0"
    for n in range(1, 9):
        assert torch.linalg.matrix_power(M1 @ M2, n).tolist() == [[4.0**n, 0], [0, 0]]


# The explosion side


def test_a_norm_above_1_does_not_suffice_for_explosion():
    """After eq:grad-12: at rest nothing is left of the gradient after two steps."""
    W, still = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    assert norm(W) == 2
    one_step = lambda h: rnn_cell(still, h, torch.zeros(2, 2, dtype=torch.float64), W)  # noqa: E731
    assert torch.equal(jacobian(one_step, still), W)
    assert not jacobian(lambda h: one_step(one_step(h)), still).any()


def test_a_spectral_radius_above_1_suffices_for_explosion_at_rest():
    """By the left side of eq:grad-11."""
    net = PlainNet(2.0)
    net.b, net.x = torch.zeros(N, dtype=torch.float64), torch.zeros_like(net.x)
    radius = torch.linalg.eigvals(net.W).abs().max()
    assert radius > 1
    assert norm(jacobian(net.last, torch.zeros(N, dtype=torch.float64))) >= radius**T > 1


def scalar_net(w, h, steps):
    """States of h_t = tanh(w h_{t-1}), and the derivative of each step."""
    states, slopes = [h], []
    for _ in range(steps):
        states.append(math.tanh(w * states[-1]))
        slopes.append(w * (1 - states[-1] ** 2))
    return states, slopes


@pytest.mark.parametrize("w", [1.1, 2.0, 5.0])
@pytest.mark.parametrize("start", [1e-6, 0.3, 7.0])
def test_the_same_weight_explodes_at_rest_and_vanishes_where_the_state_settles(w, start):
    """eq:grad-13: a fixed point with a slope between 0 and 1, reached monotonically from every positive start."""
    assert scalar_net(w, 0.0, 40) == ([0.0] * 41, [w] * 40)
    states, slopes = scalar_net(w, start, 2000)
    fixed = states[-1]
    assert math.tanh(w * fixed) == pytest.approx(fixed, abs=1e-15)
    assert 0 < w * (1 - fixed**2) < 1
    assert slopes[-1000:] == pytest.approx([w * (1 - fixed**2)] * 1000, rel=1e-9)
    assert math.prod(slopes) < 1e-100
    moves = [(later - earlier) * (1 if start < fixed else -1) for earlier, later in pairwise(states)]
    assert min(moves) >= -1e-15


def test_the_derivative_of_the_scalar_net_is_what_autograd_finds():
    """For the factors used with eq:grad-13."""
    h = start = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    for _ in range(T):
        h = torch.tanh(2 * h)
    h.backward()
    assert start.grad.item() == pytest.approx(math.prod(scalar_net(2.0, 0.3, T)[1]), rel=1e-13)


def test_the_fixed_point_of_weight_2_is_at_0_957504_with_slope_0_166372():
    """The numbers after eq:grad-13."""
    fixed = scalar_net(2.0, 1.0, 200)[0][-1]
    assert fixed == pytest.approx(0.957504, abs=5e-7)
    assert 2 * (1 - fixed**2) == pytest.approx(0.166372, abs=5e-7)
    assert scalar_net(2.0, -1.0, 200)[0][-1] == -fixed


# Gated nets


def lstm_weights(recurrent, seed=0):
    """w_ih, w_hh, b_ih, b_hh, with recurrent matrices of the given size."""
    return randn(4 * N, D, seed=seed), recurrent * randn(4 * N, N, seed=seed + 1), randn(4 * N, seed=seed + 2), None


def run_lstm(state, inputs, weights):
    """State after all inputs and the gates of every step; ``state`` is c and h in one vector."""
    c, h = state.split(N)
    steps = []
    for x in inputs:
        before = c
        (h, c), gates = lstm_cell(x, (h, c), *weights)
        steps.append((before, c, gates))
    return torch.cat([c, h]), steps


def lstm_factor(before, c, gates, w_hh):
    """The matrix of eq:grad-15, from the abbreviations below it."""
    i, f, g, o = gates
    W_hi, W_hf, W_hg, W_ho = w_hh.split(N)
    E = torch.diag(before * f * (1 - f)) @ W_hf + torch.diag(g * i * (1 - i)) @ W_hi + torch.diag(i * (1 - g**2)) @ W_hg
    P = torch.diag(o * (1 - c.tanh() ** 2))
    R = torch.diag(c.tanh() * o * (1 - o)) @ W_ho
    return torch.cat([torch.cat([torch.diag(f), E], 1), torch.cat([P @ torch.diag(f), P @ E + R], 1)])


def test_an_lstm_step_has_the_jacobian_of_four_blocks():
    """eq:grad-14, eq:grad-15: one step, and several as a product."""
    inputs, state, weights = randn(T, D, seed=5), randn(2 * N, seed=6), lstm_weights(1.0)
    _, steps = run_lstm(state, inputs, weights)
    factors = [lstm_factor(*step, weights[1]) for step in steps]
    exactly(jacobian(lambda s: run_lstm(s, inputs[:1], weights)[0], state), factors[0])
    expected = torch.eye(2 * N, dtype=torch.float64)
    for factor in factors:
        expected = factor @ expected
    exactly(jacobian(lambda s: run_lstm(s, inputs, weights)[0], state), expected)


def lstm_memory_and_direct_path(recurrent):
    """∂c_T/∂c_0 by autograd, and eq:grad-16."""
    inputs, state, weights = randn(T, D, seed=5), randn(2 * N, seed=6), lstm_weights(recurrent)
    _, steps = run_lstm(state, inputs, weights)
    J = jacobian(lambda s: run_lstm(s, inputs, weights)[0], state)
    return J[:N, :N], torch.diag(torch.stack([gates.f for *_, gates in steps]).prod(0))


def test_without_recurrent_matrices_the_memory_passes_the_product_of_forget_gates():
    """eq:grad-16."""
    memory, direct = lstm_memory_and_direct_path(0.0)
    exactly(memory, direct)


def test_small_recurrent_matrices_change_the_additive_path_in_proportion():
    """After eq:grad-16: the other paths are of the order of the matrices."""
    rests = [norm(torch.sub(*lstm_memory_and_direct_path(size))) for size in (1e-3, 1e-4, 1e-5)]
    assert rests[0] > 0
    for large, small in pairwise(rests):
        exactly(large / small, 10.0, atol=0.05)


def test_with_forget_gates_of_1_the_memory_passes_the_gradient_unchanged():
    """The constant error carrousel, after eq:grad-16."""
    w_ih, w_hh, b, _ = lstm_weights(0.0)
    w_ih, b = w_ih.clone(), b.clone()
    w_ih[N : 2 * N], b[N : 2 * N] = 0, 50  # the logistic function of 50 is 1 in float64
    state = randn(2 * N, seed=6)
    J = jacobian(lambda s: run_lstm(s, randn(T, D, seed=5), (w_ih, w_hh, b, None))[0], state)
    exactly(J[:N, :N], torch.eye(N), atol=0)


@pytest.mark.parametrize("n0", [1, 2, 7, 40])
def test_a_forget_bias_of_ln_n_keeps_more_than_a_third_over_n_steps(n0):
    """eq:grad-17, through the cell itself; the bias 0 halves at each step."""
    zero = torch.zeros(4, 1, dtype=torch.float64)

    def kept(bias, steps):
        b = torch.tensor([0.0, bias, 0.0, 0.0], dtype=torch.float64)

        def last(c):
            h = torch.zeros(1, dtype=torch.float64)
            for _ in range(steps):
                (h, c), _ = lstm_cell(zero[0], (h, c), zero, zero, b)
            return c

        return jacobian(last, torch.ones(1, dtype=torch.float64)).item()

    for steps in (1, n0, 3 * n0):
        assert kept(math.log(n0), steps) == pytest.approx((1 + 1 / n0) ** -steps, rel=1e-13)
    assert kept(math.log(n0), n0) > math.exp(-1) > 1 / 3
    assert kept(0.0, n0) == 2.0**-n0


def test_without_recurrent_matrices_a_gru_passes_the_product_of_update_gates():
    """eq:grad-18."""
    w_ih, w_hh, b = randn(3 * N, D, seed=1), torch.zeros(3 * N, N, dtype=torch.float64), randn(3 * N, seed=2)
    inputs, h0 = randn(T, D, seed=3), randn(N, seed=4)

    def last(h):
        for x in inputs:
            h, _ = gru_cell(x, h, w_ih, w_hh, b)
        return h

    gates = torch.stack([torch.sigmoid(w_ih[N : 2 * N] @ x + b[N : 2 * N]) for x in inputs])
    exactly(jacobian(last, h0), torch.diag(gates.prod(0)))


# Attention

S, D_K, D_V, D_MODEL = 7, 3, 5, 2


def attend(q, k, v):
    """Output of one query: q of shape (d_k,), out of shape (d_v,)."""
    return attention(q[None], k, v)[0][0]


def one_query(seed=0):
    """A query, keys, values, their weights and output, the latter two from sums written out."""
    q, k, v = randn(D_K, seed=seed), randn(S, D_K, seed=seed + 1), randn(S, D_V, seed=seed + 2)
    exponentials = [math.exp(float(q @ key) / math.sqrt(D_K)) for key in k]
    weights = [e / sum(exponentials) for e in exponentials]
    return q, k, v, weights, sum(w * value for w, value in zip(weights, v))


def test_the_differential_of_attention_has_one_term_for_each_key():
    """eq:grad-19, along a random direction, against forward-mode autograd."""
    q, k, v, weights, out = one_query()
    dq, dk, dv = randn(D_K, seed=5), randn(S, D_K, seed=6), randn(S, D_V, seed=7)
    _, actual = torch.autograd.functional.jvp(attend, (q, k, v), (dq, dk, dv))
    expected = torch.zeros(D_V, dtype=torch.float64)
    for j in range(S):
        ds = (q @ dk[j] + k[j] @ dq) / math.sqrt(D_K)
        expected += weights[j] * (dv[j] + (v[j] - out) * ds)
    exactly(actual, expected)


def test_the_jacobians_by_values_keys_and_query_carry_the_weights():
    """eq:grad-20; the last is also a covariance under the weights."""
    q, k, v, weights, out = one_query()
    by_q, by_k, by_v = jacobian(attend, (q, k, v))
    for j in range(S):
        exactly(by_v[:, j], weights[j] * torch.eye(D_V, dtype=torch.float64))
        exactly(by_k[:, j], weights[j] * torch.outer(v[j] - out, q) / math.sqrt(D_K))
    exactly(by_q, sum(w * torch.outer(v[j] - out, k[j]) for j, w in enumerate(weights)) / math.sqrt(D_K))
    mean_key = sum(w * key for w, key in zip(weights, k))
    covariance = sum(w * torch.outer(v[j] - out, k[j] - mean_key) for j, w in enumerate(weights))
    exactly(by_q, covariance / math.sqrt(D_K))


def test_a_token_reaches_the_output_through_one_factor_its_weight():
    """eq:grad-21, with column vectors and the query from elsewhere."""
    x, W_K, W_V = randn(S, D_MODEL, seed=1), randn(D_K, D_MODEL, seed=2), randn(D_V, D_MODEL, seed=3)
    q = randn(D_K, seed=4)
    out, weights = attention(q[None], x @ W_K.T, x @ W_V.T)
    J = jacobian(lambda x: attend(q, x @ W_K.T, x @ W_V.T), x)
    for j in range(S):
        v = W_V @ x[j]
        exactly(J[:, j], weights[0, j] * (W_V + torch.outer(v - out[0], q) @ W_K / math.sqrt(D_K)))
        bound = weights[0, j] * (norm(W_V) + (v - out[0]).norm() * (W_K.T @ q).norm() / math.sqrt(D_K))
        assert norm(J[:, j]) <= bound * (1 + 1e-12)


def test_equal_scores_pass_one_over_t_of_the_gradient_at_every_distance():
    """eq:grad-22."""
    J = jacobian(lambda v: attend(torch.zeros(D_K, dtype=torch.float64), randn(S, D_K), v), randn(S, D_V))
    for j in range(S):
        exactly(norm(J[:, j]), 1 / S, atol=1e-15)


def test_uniform_attention_overtakes_the_bound_of_nine_tenths_at_34_steps():
    """The numbers after eq:grad-22."""
    assert all(0.9**n > 1 / (n + 1) for n in range(1, 34))
    assert all(0.9**n < 1 / (n + 1) for n in range(34, 1000))


def test_the_weights_divide_a_gradient_among_the_values():
    """eq:grad-23, for one query and for several."""
    q, k, v, *_ = one_query()
    J = jacobian(lambda v: attend(q, k, v), v)
    exactly(sum(norm(J[:, j]) for j in range(S)), 1.0)
    queries, gradient, values = randn(4, D_K, seed=8), randn(4, D_V, seed=9), v.clone().requires_grad_()
    out, weights = attention(queries, k, values)
    out.backward(gradient)
    exactly(values.grad, torch.einsum("ij,ie->je", weights.detach(), gradient))


@pytest.mark.parametrize("seed", range(5))
def test_a_weight_is_bounded_by_the_gap_to_the_largest_score(seed):
    """eq:grad-24."""
    q, k, v, *_ = one_query(seed)
    scores = k @ (5 * q) / math.sqrt(D_K)
    _, weights = attention(5 * q[None], k, v)
    assert (weights[0] <= torch.exp(scores - scores.max())).all()


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 4.0, 16.0])
def test_a_saturated_softmax_passes_nothing_to_the_scores(sharpness):
    """eq:grad-25, down to a nearly one-hot row; at the last sharpness next to nothing is left."""
    scores, v = sharpness * torch.arange(S, dtype=torch.float64), randn(S, D_V)
    J = jacobian(lambda s: torch.softmax(s, 0) @ v, scores)
    weight, widest = torch.softmax(scores, 0)[-1], torch.cdist(v, v).max()
    lengths = J.norm(dim=0)
    assert lengths[-1] <= weight * (1 - weight) * widest * (1 + 1e-12)
    assert (lengths[:-1] <= (1 - weight) * widest * (1 + 1e-12)).all()
    assert sharpness < 16 or lengths.max() < 1e-6


@pytest.mark.parametrize("size", [0.05, 0.5])
def test_residual_layers_keep_all_singular_values_between_two_powers(size):
    """eq:grad-26, for layers that are not linear."""
    L, matrices = 6, [randn(N, N, seed=seed) for seed in range(6)]
    matrices = [size * M / norm(M) for M in matrices]

    def stack(x):
        for M in matrices:
            x = x + torch.tanh(M @ x)
        return x

    values = torch.linalg.svdvals(jacobian(stack, randn(N, seed=9)))
    assert (1 - size) ** L <= values.min() <= values.max() <= (1 + size) ** L
