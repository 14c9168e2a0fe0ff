"""The closed forms of four derivations that no gallery page claims: softmax, scaling, equivariance, kernel smoothing.

Each test names the equation it evaluates, as it is labelled in docs/derivations/. Expectations are exact:
over all cases of discrete variables, or by quadrature. Sizes that do not matter are different primes.
"""

import itertools
import math

import pytest
import torch

from attnkit.kernel_smoothing import nadaraya_watson, positional_kernel
from attnkit.masks import causal_mask, sliding_window_mask
from attnkit.scaled_dot_product import attention, attention_scores
from attnkit.simplex import entropy, softmax, softmax_jacobian

INF = float("inf")
SIGNS = (-1.0, 1.0)


@pytest.fixture(autouse=True)
def in_double_precision():
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(default)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dirichlet(n, size, seed=0):
    """Points of the simplex, uniformly: exponential variables divided by their sum."""
    e = -torch.rand(n, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()
    return e / e.sum(-1, keepdim=True)


def exactly(actual, expected, atol=1e-14):
    torch.testing.assert_close(torch.as_tensor(actual), torch.as_tensor(expected), atol=atol, rtol=0)


def jacobian(scores):
    """By autograd through torch's own softmax."""
    return torch.autograd.functional.jacobian(lambda s: torch.softmax(s, -1), scores)


def every(values, size):
    """All vectors of this size with entries from the values."""
    return torch.tensor(list(itertools.product(values, repeat=size)), dtype=torch.float64)


def normal_grid(reach, step):
    """Points and probabilities of the trapezoidal rule for a standard normal variable, exact to all digits here."""
    z = step * torch.arange(-round(reach / step), round(reach / step) + 1, dtype=torch.float64)
    density = step * torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    exactly(density.sum(), 1.0)
    return z, density


# Softmax


def compromise(p, scores, tau):
    return p @ scores + tau * entropy(p)


@pytest.mark.parametrize("tau", [0.25, 1.0, 5.0])
def test_weights_that_differ_from_softmax_lose_at_least_half_tau_times_the_squared_distance(tau):
    """eq:soft-8."""
    scores = 2 * randn(7)
    alpha = torch.softmax(scores / tau, -1)
    rivals = torch.cat([dirichlet(1009, 7), alpha + 1e-3 * (dirichlet(101, 7, seed=1) - alpha), torch.eye(7)])
    missing = compromise(alpha, scores, tau) - compromise(rivals, scores, tau)
    assert (missing >= tau / 2 * (rivals - alpha).abs().sum(-1) ** 2).all()


def test_the_margin_of_softmax_cannot_be_doubled():
    """eq:soft-8: near α = (½, ½) the inequality is an equality to leading order, D = 2ε² + O(ε⁴)."""
    eps = 1e-3
    missing = math.log(2) - entropy(torch.tensor([0.5 + eps, 0.5 - eps]))
    exactly(missing / (0.5 * (2 * eps) ** 2), 1.0, atol=1e-6)


def test_the_second_derivative_of_the_divergence_is_the_sum_of_squares_over_weights():
    """eq:soft-9."""
    alpha, p = dirichlet(2, 5)
    z, t = p - alpha, torch.tensor(0.3, requires_grad=True)
    w = alpha + t * z
    (first,) = torch.autograd.grad((w * (w / alpha).log()).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first, t)
    w = w.detach()
    exactly(second, (z.square() / w).sum())
    assert second >= z.abs().sum() ** 2


def test_the_best_compromise_lies_between_the_largest_score_and_that_plus_tau_ln_n():
    """eq:soft-10, with equality on the right for equal scores only."""
    for tau in (0.25, 1.0, 5.0):
        scores = 3 * randn(101, 7)
        best = tau * torch.logsumexp(scores / tau, -1)
        assert (best > scores.amax(-1)).all()
        assert (best < scores.amax(-1) + tau * math.log(7)).all()
        exactly(tau * torch.logsumexp(torch.full((7,), 3.0) / tau, -1), 3.0 + tau * math.log(7))


def test_softmax_with_excluded_entries_is_the_best_compromise_of_the_others():
    """After eq:soft-10."""
    scores = torch.tensor([1.0, -INF, 0.0, 2.0, -INF])
    some = [0, 2, 3]
    alpha = softmax(scores, 0.7)
    assert alpha[[1, 4]].tolist() == [0.0, 0.0]
    best = compromise(alpha[some], scores[some], 0.7)
    exactly(best, 0.7 * torch.logsumexp(scores / 0.7, -1))
    assert (compromise(dirichlet(1009, 3), scores[some], 0.7) < best).all()


def test_with_squares_for_entropy_the_best_compromise_is_a_projection_onto_the_simplex():
    """After eq:soft-10: the scores (1, 0.8, 0.1) project onto (0.6, 0.4, 0)."""
    scores, nearest = torch.tensor([1.0, 0.8, 0.1]), torch.tensor([0.6, 0.4, 0.0])
    rivals = torch.cat([dirichlet(1009, 3), nearest + 1e-3 * (dirichlet(101, 3, seed=1) - nearest)])

    def with_squares(p):
        return p @ scores + (1 - p.square().sum(-1)) / 2

    assert (with_squares(rivals) < with_squares(nearest)).all()
    assert ((rivals - scores).norm(dim=-1) > (nearest - scores).norm()).all()


def test_softmax_is_the_gradient_and_its_jacobian_the_hessian_of_the_best_compromise():
    """eq:soft-11, at a temperature."""
    tau, scores = 0.7, randn(5).requires_grad_()

    def best(s):
        return tau * torch.logsumexp(s / tau, -1)

    (gradient,) = torch.autograd.grad(best(scores), scores)
    hessian = torch.autograd.functional.hessian(best, scores)
    exactly(softmax(scores.detach(), tau), gradient)
    exactly(softmax_jacobian(softmax(scores.detach(), tau)) / tau, hessian)


def test_the_quadratic_form_of_the_jacobian_is_a_variance_and_its_kernel_the_constants():
    """eq:soft-13."""
    scores, z = randn(7), randn(7, seed=1)
    J, alpha = jacobian(scores), torch.softmax(scores, -1)
    mean = sum(a * x for a, x in zip(alpha, z))
    exactly(z @ J @ z, sum(a * (x - mean) ** 2 for a, x in zip(alpha, z)))
    exactly(J @ torch.ones(7), torch.zeros(7))
    assert torch.linalg.matrix_rank(J) == 6


def test_the_eigenvalues_of_the_jacobian_solve_the_secular_equation_and_interlace_with_the_weights():
    """eq:soft-15, eq:soft-17, eq:soft-18 and eq:soft-20."""
    for seed in range(11):
        scores = 2 * randn(7, seed=seed)
        alpha = torch.softmax(scores, -1).sort(descending=True).values
        eigenvalues = torch.linalg.eigvalsh(jacobian(scores)).flip(0)
        exactly(eigenvalues.sum(), 1 - alpha.square().sum())
        exactly(eigenvalues[-1], 0.0)
        roots = eigenvalues[:-1]
        terms = alpha / (alpha - roots[:, None])
        assert (terms.sum(-1).abs() < 1e-10 * terms.abs().amax(-1) ** 2).all()
        assert (alpha[:-1] > roots).all()
        assert (roots > alpha[1:]).all()
        exactly(roots.prod() / alpha.prod(), 7.0, atol=1e-9)


def test_a_weight_that_occurs_n_times_is_an_eigenvalue_n_minus_one_times():
    """eq:soft-18: weights 3/14 twice, 2/14 three times, 1/14 twice; the two other roots lie in the gaps."""
    weights = torch.tensor([3, 3, 2, 2, 2, 1, 1]) / 14
    eigenvalues = torch.linalg.eigvalsh(jacobian(weights.log())).flip(0)
    exactly(eigenvalues[[0, 2, 3, 5, 6]], torch.tensor([3, 2, 2, 1, 0]) / 14)
    # In units of 1/14 the secular equation is 6 / (3 − λ) + 6 / (2 − λ) + 2 / (1 − λ) = 0, or 7λ² − 26λ + 21 = 0.
    exactly(14 * eigenvalues[[1, 4]], torch.tensor([(26 + math.sqrt(88)) / 14, (26 - math.sqrt(88)) / 14]), atol=1e-13)


def test_two_scores_have_the_eigenvalue_twice_the_product_and_equal_scores_one_over_n():
    """eq:soft-19 and below it."""
    exactly(torch.linalg.eigvalsh(jacobian(torch.tensor([0.0, math.log(3)]))), torch.tensor([0.0, 3 / 8]))
    exactly(torch.linalg.eigvalsh(jacobian(torch.zeros(7))), torch.tensor([0.0] + [1 / 7] * 6))


def test_a_variance_is_at_most_a_quarter_of_the_squared_range_and_so_at_most_half_of_the_squared_length():
    """eq:soft-21, step by step."""
    alpha, z = dirichlet(1009, 7), torch.nn.functional.normalize(randn(1009, 7, seed=1), dim=-1)
    a, b = z.amin(-1), z.amax(-1)
    variance = torch.einsum("ni,nij,nj->n", z, softmax_jacobian(alpha), z)
    about_the_middle = (alpha * (z - (a + b)[:, None] / 2) ** 2).sum(-1)
    chain = torch.stack([variance, about_the_middle, (b - a) ** 2 / 4, (a**2 + b**2) / 2, torch.full((1009,), 0.5)])
    assert (chain.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("L", [0.0, 1.0, 5.0, 30.0])
def test_the_bound_of_a_half_is_approached_by_two_equal_scores_far_above_the_others(L):
    """eq:soft-23."""
    scores = torch.tensor([0.0, 0.0] + [-L] * 5)
    largest = torch.linalg.matrix_norm(jacobian(scores), ord=2)
    exactly(largest, 1 / (2 + 5 * math.exp(-L)))
    assert largest < 0.5


def test_the_bound_of_a_half_is_attained_at_halves_and_at_no_other_weights():
    """eq:soft-22 and what follows: excluded entries do not count, any other weights stay below."""
    exactly(torch.linalg.matrix_norm(softmax_jacobian(torch.tensor([0.0, 0.5, 0.0, 0.5])), ord=2), 0.5)
    alpha = torch.cat([dirichlet(1009, 5), torch.tensor([[0.51, 0.49, 0, 0, 0], [0.5, 0.49, 0.01, 0, 0]])])
    assert (torch.linalg.matrix_norm(softmax_jacobian(alpha), ord=2) < 0.5).all()


def test_the_largest_eigenvalue_lies_between_the_second_weight_and_twice_a_weight_times_its_rest():
    """eq:soft-24."""
    weights = torch.softmax(3 * randn(1009, 7), -1)
    largest = torch.linalg.eigvalsh(softmax_jacobian(weights))[:, -1]
    first, second = weights.topk(2).values.unbind(-1)
    assert (largest >= second - 1e-14).all()
    assert (largest <= first + 1e-14).all()
    assert (largest <= (2 * weights * (1 - weights)).amax(-1) + 1e-14).all()


@pytest.mark.parametrize("tau", [0.25, 1.0, 5.0])
def test_weights_move_at_most_one_over_two_tau_times_as_far_as_scores_and_at_a_tie_just_as_far(tau):
    """eq:soft-25."""
    a, b = 2 * randn(1009, 7), 2 * randn(1009, 7, seed=1)
    assert ((softmax(a, tau) - softmax(b, tau)).norm(dim=-1) <= (a - b).norm(dim=-1) / (2 * tau)).all()
    step = 1e-4 * tau
    moved = softmax(torch.tensor([step, -step]), tau) - softmax(torch.zeros(2), tau)
    exactly(moved.norm() / (step * math.sqrt(2)) * 2 * tau, 1.0, atol=1e-7)


# Scaling


def test_mean_and_variance_of_a_dot_product_with_any_means_and_correlations():
    """eq:scal-1 and eq:scal-3, over all 64 cases of q = m + A e and k = n + B f with signs e and f."""
    m, n, A, B = randn(2), randn(2, seed=1), randn(2, 3, seed=2), randn(2, 3, seed=3)
    q, k = m + every(SIGNS, 3) @ A.T, n + every(SIGNS, 3) @ B.T
    products = attention_scores(q, k, scale=1.0)
    C_q, C_k = A @ A.T, B @ B.T
    exactly(products.mean(), m @ n)
    exactly(products.var(correction=0), torch.trace(C_q @ C_k) + m @ C_k @ m + n @ C_q @ n, atol=1e-12)


def test_the_lemma_needs_uncorrelated_entries_in_one_of_the_vectors_only():
    """eq:scal-4 with σ² = 2 and a query whose entries are all the same."""
    q = math.sqrt(2) * every(SIGNS, 1).expand(2, 3)
    k = math.sqrt(2) * every(SIGNS, 3)
    products = attention_scores(q, k, scale=1.0)
    exactly(products.mean(), 0.0)
    exactly(products.var(correction=0), 4.0 * 3)


@pytest.mark.parametrize("same_token", [True, False])
def test_scores_of_random_projections_have_variance_by_the_lengths_of_the_tokens(same_token):
    """eq:scal-5, over all signs of two 2 × 2 matrices with σ_w = 3; also if both vectors come from one token."""
    x = randn(2)
    y = x if same_token else randn(2, seed=1)
    W = 3 * every(SIGNS, 4).view(16, 2, 2)
    products = torch.stack([(x @ A) @ (y @ B) for A in W for B in W])
    exactly(products.mean(), 0.0, atol=1e-13)
    exactly(products.square().mean(), 3.0**4 * x.square().sum() * y.square().sum() * 2, atol=1e-10)


def test_initialised_layers_have_weights_of_variance_one_over_three_times_the_width():
    """eq:scal-5: the variance of a uniform variable between ±1/√d, by its integral, and torch's bound."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = torch.nn.Linear(16, 4099, bias=False)
    assert 0.249 < layer.weight.abs().max() <= 0.25
    exactly(layer.weight.square().mean() * 3 * 16, 1.0, atol=0.02)  # standard error √(4/5) / √(16 · 4099) = 0.0035


@pytest.mark.parametrize("d_k", [1, 2, 3])
def test_the_fourth_moment_of_a_dot_product_of_normal_vectors(d_k):
    """eq:scal-6, exact by three-point Gauss–Hermite nodes, which integrate polynomials up to degree five."""
    nodes, weight = every((-math.sqrt(3), 0.0, math.sqrt(3)), d_k), {True: 2 / 3, False: 1 / 6}
    p = torch.tensor([math.prod(weight[x == 0.0] for x in row) for row in nodes.tolist()])
    exactly(p @ (nodes @ nodes.T) ** 4 @ p, float(3 * d_k**2 + 6 * d_k), atol=1e-12)


def test_correlated_entries_shrink_the_effective_width():
    """eq:scal-9, over all signs: A Aᵀ has the diagonal 2 and the off-diagonal ±1; all equal: r = 1."""
    A = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 0, -1]])
    C = A @ A.T
    r = torch.trace(C) ** 2 / torch.trace(C @ C)
    exactly(r, 2.0)  # eigenvalues 3, 3, 0
    vectors = every(SIGNS, 3) @ A.T
    exactly(attention_scores(vectors, vectors, scale=1.0).square().mean(), 2.0**2 * 3**2 / r, atol=1e-13)
    same = every(SIGNS, 1).expand(2, 5)
    exactly(attention_scores(same, same, scale=1.0).square().mean(), 5.0**2)


def test_entries_with_a_mean_give_a_common_part_that_softmax_does_not_see():
    """eq:scal-10 and eq:scal-11: entries 0 or 2 with probabilities ¾ and ¼, μ = ½, σ² = ¾."""
    q = every((0.0, 0.0, 0.0, 2.0), 2)
    products = attention_scores(q, q, scale=1.0)
    exactly(products.mean(), 0.25 * 2)
    exactly(products.var(correction=0), (9 / 16 + 2 * 3 / 16) * 2)
    exactly((q @ (q - 0.5).T).square().mean(), (9 / 16 + 3 / 16) * 2)
    keys = q[:7]
    exactly(torch.softmax(q @ (keys - 0.5).T, -1), softmax(attention_scores(q, keys, scale=1.0)))


@pytest.mark.parametrize("rho", [-1.0, 0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("values", "kurtosis"), [(SIGNS, 1.0), ((-math.sqrt(3), 0.0, 0.0, 0.0, 0.0, math.sqrt(3)), 3.0)]
)
def test_a_key_that_resembles_the_query_scores_in_proportion_to_the_width(rho, values, kurtosis):
    """eq:scal-12 and eq:scal-13, over all cases at width 2; the second set of values has a normal's kurtosis."""
    sigma, d_k = 1.5, 2
    q, w = (sigma * x for x in every(values, 2 * d_k).split(d_k, dim=1))
    products = (q * (rho * q + math.sqrt(1 - rho**2) * w)).sum(-1)
    exactly(products.mean(), rho * sigma**2 * d_k, atol=1e-12)
    exactly(products.var(correction=0), (1 + (kurtosis - 2) * rho**2) * sigma**4 * d_k, atol=1e-12)


def test_scores_of_one_query_are_uncorrelated_but_share_its_length():
    """eq:scal-14, for queries with entries −2, 0, 0, 2 and two keys of signs."""
    q, keys = every((-2.0, 0.0, 0.0, 2.0), 2), every(SIGNS, 4).view(16, 2, 2)
    scores = attention_scores(q, keys)  # (pairs of keys, queries, the two keys)
    exactly((scores[..., 0] * scores[..., 1]).mean(), 0.0)
    exactly(scores.square().mean(0), (q.square().sum(-1) / 2)[:, None].expand(-1, 2))
    squares = scores.square()
    assert (squares[..., 0] * squares[..., 1]).mean() > 1.4 * squares[..., 0].mean() * squares[..., 1].mean()


def mean_trace_and_score(omega, S):
    """Means of tr J and of Σ α z for softmax(ω z), by quadrature over S standard normal variables."""
    z, p = normal_grid(9.0, 0.18 if S == 3 else 0.05)
    points = torch.cartesian_prod(*[z] * S)
    probability = torch.cartesian_prod(*[p] * S).prod(-1)
    weights = torch.softmax(omega * points, -1)
    return probability @ (1 - weights.square().sum(-1)), probability @ (weights * points).sum(-1)


@pytest.mark.parametrize(("S", "omega"), [(2, 0.5), (2, 1.0), (2, 3.0), (3, 0.5), (3, 1.0), (3, 2.0)])
def test_the_mean_trace_of_the_jacobian_is_the_mean_of_z_under_the_weights_over_omega(S, omega):
    """eq:scal-17 and the bound of eq:scal-18."""
    trace, score = mean_trace_and_score(omega, S)
    exactly(trace, score / omega, atol=1e-11)
    assert trace < {2: 1, 3: 1.5}[S] / math.sqrt(math.pi) / omega


def test_omega_times_the_mean_trace_tends_to_the_mean_of_the_largest():
    """eq:scal-18 for two scores: ω tr J = ω / (2 cosh²(ω u / 2)) with u normal of variance 2."""
    z, p = normal_grid(12.0, 0.001)
    omega = torch.tensor([4.0, 8.0, 16.0, 32.0])
    trace = 0.5 / torch.cosh(omega[:, None] * z / math.sqrt(2)) ** 2 @ p
    missing = 1 / math.sqrt(math.pi) - omega * trace
    assert (missing > 0).all()
    # Expanding the density of u to second order: the error is π^1.5 / 12 ω², up to the order ω^−4.
    off = omega**2 * missing - math.pi**1.5 / 12
    assert (off.abs() < 2 / omega**2).all()


def largest_of(S):
    """Mean of the largest of S standard normal variables: the integral of x times the density S φ(x) Φ(x)^(S−1)."""
    x, p = normal_grid(12.0, 0.01)
    return S * (p * x) @ torch.special.ndtr(x) ** (S - 1)


def test_the_mean_of_the_largest_of_two_three_and_more():
    """eq:scal-19."""
    exactly(largest_of(2), 1 / math.sqrt(math.pi))
    exactly(largest_of(3), 1.5 / math.sqrt(math.pi))
    for S in (2, 3, 8, 32, 1024):
        assert largest_of(S) < math.sqrt(2 * math.log(S))


def test_unscaled_at_width_512_the_trace_over_32_keys_is_that_of_the_limit():
    """eq:scal-18 predicts what the page measures, 0.091; 4,000 rows as there, three standard errors."""
    trace = 1 - softmax(math.sqrt(512) * randn(4000, 32)).square().sum(-1)
    predicted = (largest_of(32) / math.sqrt(512)).item()
    exactly(predicted, 0.091, atol=1e-3)
    exactly(trace.mean(), predicted, atol=3 * trace.std().item() / math.sqrt(4000))


def test_the_trace_is_exponentially_small_in_the_lead_of_the_largest_score():
    """eq:scal-20."""
    scores = 5 * randn(4099, 7)
    first, second = scores.topk(2).values.unbind(-1)
    trace = softmax_jacobian(softmax(scores)).diagonal(dim1=-2, dim2=-1).sum(-1)
    assert (trace <= 2 * 6 * torch.exp(second - first) + 1e-15).all()


def test_few_rows_have_a_large_trace_when_scores_are_unscaled():
    """eq:scal-21 for two scores, by the distribution of their difference."""
    omega = 16.0
    for t in (0.01, 0.1, 0.4):
        # tr J = 2 p (1 − p) > t if and only if |ln(p / (1 − p))| = ω |u| is below this bound
        bound = 2 * math.atanh(math.sqrt(1 - 2 * t))
        share = math.erf(bound / omega / 2)  # u is normal with variance 2
        assert 0 < share < 1 / (math.sqrt(math.pi) * t * omega)


def test_the_derivative_of_the_weights_by_the_query_is_the_jacobian_times_the_keys():
    """eq:scal-22."""
    q, K, c = randn(5), randn(7, 5, seed=1), 0.3
    by_autograd = torch.autograd.functional.jacobian(lambda x: softmax(attention_scores(x[None], K, scale=c))[0], q)
    alpha = torch.softmax(c * K @ q, -1)
    exactly(c * softmax_jacobian(alpha) @ K, by_autograd)
    exactly(c * alpha[:, None] * (K - alpha @ K), by_autograd)


def test_the_mean_squared_gradient_by_the_query_splits_along_and_across_it():
    """eq:scal-23, over all signs in the two dimensions across q; a mean of squares needs two moments only."""
    S, d_k, c, sigma = 3, 3, 0.4, 1.5
    basis = torch.linalg.qr(randn(d_k, d_k)).Q  # q along the first column
    z = randn(S, seed=1)
    q = 2.0 * basis[:, 0]
    squares = []
    for G in every(SIGNS, S * (d_k - 1)).view(-1, S, d_k - 1):
        K = sigma * torch.cat([z[:, None], G], dim=1) @ basis.T
        J = softmax_jacobian(torch.softmax(c * K @ q, -1))
        squares.append((c * J @ K).square().sum())
    J = softmax_jacobian(torch.softmax(c * sigma * 2.0 * z, -1))
    expected = c**2 * sigma**2 * ((J @ z).square().sum() + (d_k - 1) * J.square().sum())
    exactly(torch.stack(squares).mean(), expected)


def test_without_the_scale_the_mean_gradient_by_the_query_stays_bounded():
    """eq:scal-24 for two scores, where the Frobenius norm of J is its trace: √d_k E‖J‖ climbs towards 1/√π."""
    z, p = normal_grid(12.0, 0.001)
    sizes = torch.tensor([w * (p @ (0.5 / torch.cosh(w * z / math.sqrt(2)) ** 2)) for w in (4, 8, 16)])
    J = softmax_jacobian(torch.softmax(randn(101, 2), -1))
    exactly(torch.linalg.matrix_norm(J), J.diagonal(dim1=-2, dim2=-1).sum(-1))
    J = softmax_jacobian(torch.softmax(randn(101, 7), -1))
    assert (torch.linalg.matrix_norm(J) <= J.diagonal(dim1=-2, dim2=-1).sum(-1)).all()
    assert (sizes.diff() > 0).all()
    assert (sizes < 1 / math.sqrt(math.pi)).all()


# Equivariance


def orders_of(T):
    return torch.tensor(list(itertools.permutations(range(T))))


def test_permutation_matrices_move_rows_and_carry_square_matrices_by_index():
    """eq:eqv-1."""
    order, M, X = torch.tensor([2, 0, 4, 1, 3]), randn(5, 5), randn(5, 3)
    P = torch.eye(5)[order]
    for i in range(5):
        assert torch.equal((P @ X)[i], X[order[i]])
        for j in range(5):
            assert (P @ M @ P.T)[i, j] == M[order[i], order[j]]
    exactly(P @ P.T, torch.eye(5))


def test_attention_carries_an_order_of_queries_and_ignores_an_order_of_keys():
    """eq:eqv-3, with a bias that excludes keys, and for eq:eqv-7 the identity on the queries."""
    q, k, v, bias = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2), randn(5, 7, seed=3)
    bias = bias.masked_fill(bias > 1, -INF)
    bias[2] = -INF  # a query that sees no key
    P, P2 = torch.eye(5)[[3, 1, 4, 0, 2]], torch.eye(7)[[6, 2, 0, 5, 1, 4, 3]]
    carried = bias[[3, 1, 4, 0, 2]][:, [6, 2, 0, 5, 1, 4, 3]]
    exactly(attention(P @ q, P2 @ k, P2 @ v, bias=carried)[0], P @ attention(q, k, v, bias=bias)[0])
    exactly(attention(q, P2 @ k, P2 @ v)[0], attention(q, k, v)[0])


def test_any_order_that_moves_a_position_is_seen_by_some_weights():
    """eq:eqv-9: one feature a, scores a a, values a; positions 0 and 2 are equal."""
    a = torch.tensor([1.0, -0.5, 1.0, 2.0])
    column = a[:, None]
    out, _ = attention(column, column, column, scale=1.0)
    m = torch.stack([(a * torch.exp(theta * a)).sum() / torch.exp(theta * a).sum() for theta in a])
    exactly(out[:, 0], m)
    grid = torch.linspace(-3, 3, 61)
    assert (torch.stack([(a * torch.softmax(theta * a, 0)).sum() for theta in grid]).diff() > 0).all()
    for order in orders_of(4):
        assert torch.equal(a[order], a) == torch.allclose(m[order], m, atol=1e-12, rtol=0)


def test_attention_is_equivariant_for_all_weights_under_the_symmetries_of_its_mask_only():
    """eq:eqv-4, eq:eqv-10 and eq:eqv-11, for 24 orders under seven random masks with empty rows among them."""
    T, X = 4, torch.eye(4)  # values one-hot: the output is the weights
    zero = torch.zeros(T, 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(7):
        M = torch.rand(T, T, generator=generator) < 0.5
        for order in orders_of(T):
            P = torch.eye(T)[order]
            back = order.argsort()
            same = attention(zero, zero, P @ X, M)[0] - P @ attention(zero, zero, X, M)[0]
            symmetric = torch.equal(M[back][:, back], M)
            assert symmetric == torch.equal(M[order][:, order], M)  # the index form of the symmetry
            assert symmetric == bool(same.abs().max() < 1e-14)
            carried = attention(zero, zero, X, M[back][:, back])[0]
            exactly(attention(zero, zero, P @ X, M)[0], P @ carried)


def test_an_order_that_changes_a_bias_by_constants_in_each_row_is_not_seen():
    """After eq:eqv-11: B = u + a matrix that reading backwards leaves as it is."""
    T, order = 5, torch.arange(4, -1, -1)
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs() * 1.0
    bias = randn(T, 1) - 0.5 * distance
    assert not torch.allclose(bias[order][:, order], bias)
    q, k, v = randn(T, 3, seed=1), randn(T, 3, seed=2), randn(T, 2, seed=3)
    exactly(attention(q[order], k[order], v[order], bias=bias)[0], attention(q, k, v, bias=bias)[0][order])


def number_of_symmetries(mask):
    return sum(torch.equal(mask[order][:, order], mask) for order in orders_of(len(mask)))


def test_the_symmetries_of_a_mask_form_a_group():
    """eq:eqv-10."""
    document = torch.tensor([0, 0, 1, 1, 2])
    mask = document[:, None] == document
    group = {tuple(o.tolist()) for o in orders_of(5) if torch.equal(mask[o][:, o], mask)}
    assert tuple(range(5)) in group
    for a in group:
        assert tuple(torch.tensor(a).argsort().tolist()) in group
        assert all(tuple(a[i] for i in b) in group for b in group)


@pytest.mark.parametrize("T", [2, 3, 5, 6])
def test_the_number_of_orders_that_leave_a_causal_window_or_band_as_it_is(T):
    """The table of masks, by trying all orders."""
    i = torch.arange(T)
    apart = i[:, None] - i
    assert number_of_symmetries(torch.ones(T, T, dtype=torch.bool)) == math.factorial(T)
    assert number_of_symmetries(causal_mask(T)) == 1
    for window in range(2, T + 1):
        assert number_of_symmetries(sliding_window_mask(T, window=window)) == 1
    assert number_of_symmetries(apart.abs() <= 1) == 2
    if T >= 3:
        assert number_of_symmetries((apart % T == 0) | (apart % T == 1) | (apart % T == T - 1)) == 2 * T


@pytest.mark.parametrize("size", range(1, 7))
def test_the_number_of_orders_that_leave_a_prefix_or_padding_mask_as_it_is(size):
    """The table of masks, T = 6, by trying all orders."""
    key = torch.arange(6)[None].expand(6, 6)
    assert number_of_symmetries((key < size) | causal_mask(6)) == math.factorial(size)
    assert number_of_symmetries(key < size) == math.factorial(size) * math.factorial(6 - size)


@pytest.mark.parametrize(
    ("lengths", "any_order", "causal"),
    [
        ([2, 3], 2 * 6, 1),
        ([2, 2], 2 * 2 * 2, 2),
        ([1, 2, 3], 2 * 6, 1),
        ([2, 2, 2], 2**3 * 6, 6),
        ([1, 1, 1, 3], 6 * 6, 6),
        ([1, 1, 2, 2], 2 * 2 * 2 * 2, 2 * 2),
    ],
)
def test_the_number_of_orders_that_leave_a_document_mask_as_it_is(lengths, any_order, causal):
    """The table of masks: ∏ n_b! times ∏ c_n!, and ∏ c_n!, by trying all orders."""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = document[:, None] == document
    assert number_of_symmetries(mask) == any_order
    assert number_of_symmetries(mask & causal_mask(len(document))) == causal


def test_two_uniform_causal_layers_weigh_tokens_by_differences_of_harmonic_numbers():
    """eq:eqv-13 and eq:eqv-14: by hand 11/18, 5/18 and 2/18 for three tokens."""

    def layer(x):
        zero = torch.zeros(len(x), 1)
        return attention(zero, zero, x, causal_mask(len(x)))[0]

    exactly(layer(layer(torch.eye(3)))[-1], torch.tensor([11, 5, 2]) / 18)
    H = [sum(1 / m for m in range(1, n + 1)) for n in range(8)]
    c = torch.tensor([(H[7] - H[j]) / 7 for j in range(7)])
    x = randn(7, 3)
    exactly(layer(layer(x))[-1], c @ x)
    exactly(layer(torch.eye(7)).mean(0), c)  # the mean of column j
    swapped = x[[0, 4, 2, 3, 1, 5, 6]]
    exactly((layer(layer(swapped)) - layer(layer(x)))[-1], (c[1] - c[4]) * (x[4] - x[1]))


# Kernel smoothing


def test_the_weighted_squared_error_exceeds_that_of_the_estimate_by_the_squared_distance():
    """eq:ks-1 to eq:ks-3."""
    q, keys, values, s = randn(3), randn(7, 3, seed=1), randn(7, 2, seed=2), 0.9
    kappa = torch.exp(-(q - keys).square().sum(-1) / (2 * s**2))
    best = nadaraya_watson(q[None], keys, values, s)[0]

    def error(c):
        return (kappa * (values - c).square().sum(-1)).sum()

    for c in randn(11, 2, seed=3):
        exactly(error(c), error(best) + kappa.sum() * (c - best).square().sum())


def test_a_locally_fitted_line_can_have_negative_weights():
    """After eq:ks-3: at 0, samples at 1, 2 and 3 with equal kernels weigh 4/3, 1/3 and −2/3."""
    x = torch.tensor([1.0, 2.0, 3.0])
    line = torch.linalg.pinv(torch.stack([torch.ones(3), x], dim=1))[0]  # the fitted value at 0
    exactly(line, torch.tensor([4 / 3, 1 / 3, -2 / 3]))


def test_softmax_rows_are_equal_exactly_if_the_scores_differ_by_a_constant():
    """eq:ks-6: the logarithms of the weights give the scores back, up to a constant."""
    a = randn(7)
    exactly(softmax(a + 3.7), softmax(a))
    difference = softmax(a).log() - a
    exactly(difference, difference[:1].expand(7))
    nudged = a + 1e-6 * torch.eye(7)[0]
    assert (softmax(nudged) - softmax(a)).abs().max() > 1e-8


def weights_of_attention(q, keys, s):
    return attention(q, keys, torch.eye(len(keys)), scale=1 / s**2)[1]


def weights_of_smoother(q, keys, s):
    """By the definition, kernel by kernel."""
    kappa = torch.exp(-(q[:, None] - keys).square().sum(-1) / (2 * s**2))
    return kappa / kappa.sum(-1, keepdim=True)


def test_attention_is_a_gaussian_smoother_of_its_own_bandwidth_and_of_no_other():
    """The theorem, with eq:ks-8: keys on a circle, other bandwidths; at q = 0 every bandwidth agrees."""
    angles = torch.tensor([0.1, 0.9, 2.0, 3.1, 5.0])
    keys, q, s = 1.7 * torch.stack([angles.cos(), angles.sin()], dim=1), randn(7, 2), 0.8
    exactly(weights_of_attention(q, keys, s), weights_of_smoother(q, keys, s))
    for other in (0.6, 1.0, 2.0):
        assert (weights_of_attention(q, keys, s) - weights_of_smoother(q, keys, other)).abs().amax(-1).min() > 1e-3
        exactly(weights_of_smoother(torch.zeros(1, 2), keys, other), torch.full((1, 5), 0.2))
    same = keys[:1].expand(5, 2)
    exactly(weights_of_attention(q, same, s), weights_of_smoother(q, same, 2.0))


def test_one_query_suffices_to_tell_attention_from_the_smoother_if_norms_differ():
    """eq:ks-7 and the theorem's first part: the log-odds differ by half the squared norms, for every query alike."""
    keys, s = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), 0.8
    for q in randn(7, 2):
        a, b = weights_of_attention(q[None], keys, s)[0], weights_of_smoother(q[None], keys, s)[0]
        exactly((a[1] / a[0]).log() - (b[1] / b[0]).log(), 3 / (2 * s**2), atol=1e-13)


def test_attention_is_the_smoother_with_samples_counted_by_their_norm():
    """eq:ks-9."""
    q, keys, s = randn(5, 3), randn(7, 3, seed=1), 0.9
    counted = torch.exp(keys.square().sum(-1) / (2 * s**2)) * weights_of_smoother(q, keys, s)
    exactly(weights_of_attention(q, keys, s), counted / counted.sum(-1, keepdim=True))


def test_one_more_feature_makes_each_of_the_two_the_other():
    """eq:ks-10 and eq:ks-11."""
    q, keys, s = randn(5, 3), randn(7, 3, seed=1), 0.9
    squares = keys.square().sum(-1, keepdim=True)
    ones, zeros = torch.ones(5, 1), torch.zeros(5, 1)
    as_attention = weights_of_attention(torch.cat([q, ones], 1), torch.cat([keys, -squares / 2], 1), s)
    exactly(as_attention, weights_of_smoother(q, keys, s))
    for R2 in (squares.max(), 2 * squares.max()):
        lifted = torch.cat([keys, (R2 - squares).sqrt()], 1)
        exactly(lifted.square().sum(-1), R2.expand(7))
        as_smoother = nadaraya_watson(torch.cat([q, zeros], 1), lifted, torch.eye(7), s)
        exactly(as_smoother, weights_of_attention(q, keys, s), atol=1e-13)


def test_the_keys_of_attention_may_lie_on_a_sphere_about_any_centre():
    """eq:ks-12: four keys in three dimensions always do; the smoother's keys are then seen from that centre."""
    q, keys, s = randn(5, 3), randn(4, 3, seed=1), 0.9
    squares = keys.square().sum(-1)
    centre = torch.linalg.solve(2 * (keys[1:] - keys[0]), squares[1:] - squares[0])
    radius = (keys - centre).norm(dim=-1)
    exactly(radius, radius[:1].expand(4), atol=1e-12)
    exactly(weights_of_attention(q, keys, s), weights_of_smoother(q, keys - centre, s), atol=1e-12)
    assert (weights_of_attention(q, keys, s) - weights_of_smoother(q, keys, s)).abs().max() > 0.01


@pytest.mark.parametrize("s", [0.3, 1.0, 3.0])
def test_bounds_on_the_weights_at_small_and_large_bandwidths(s):
    """eq:ks-13, with two nearest samples in a tie, and eq:ks-14."""
    keys = torch.tensor([1.0, -1.0, 1.5, -2.0, 3.0])
    weights = nadaraya_watson(torch.zeros(1), keys, torch.eye(5), s)[0]
    assert weights[0] == weights[1]
    assert weights[2:].sum() <= 3 / 2 * math.exp(-(1.5**2 - 1) / (2 * s**2))
    ratio = math.exp((9 - 1) / (2 * s**2))
    assert (1 / ratio <= 5 * weights).all()
    assert (5 * weights <= ratio).all()


def test_tied_nearest_neighbours_share_at_vanishing_bandwidth():
    """Below eq:ks-13."""
    keys, values = torch.tensor([1.0, -1.0, 1.5]), torch.tensor([2.0, 8.0, 100.0])
    exactly(nadaraya_watson(torch.zeros(1), keys, values, 1e-3), torch.tensor([5.0]))


def test_a_very_wide_smoother_and_weak_attention_are_straight_lines():
    """eq:ks-15 and eq:ks-16: s² times the distance from the mean, which the next order changes by 1/s²."""
    q, keys, values, s = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2), 1e3
    mean = values.mean(0)
    along = (keys - keys.mean(0)).T @ values / 7
    norms = keys.square().sum(-1)
    line = q @ along - 0.5 * (norms - norms.mean()) @ values / 7
    delta = (q[:, None] - keys).square().sum(-1)
    exactly(line, -(delta - delta.mean(-1, keepdim=True)) @ values / 14)
    exactly(s**2 * (nadaraya_watson(q, keys, values, s) - mean), line, atol=1e-4)
    exactly(s**2 * (attention(q, keys, values, scale=1 / s**2)[0] - mean), q @ along, atol=1e-4)


def test_a_gaussian_kernel_rounds_to_zero_between_38_and_39_bandwidths():
    """eq:ks-17."""
    reach = math.sqrt(2150 * math.log(2))
    assert 38 < reach < 39
    assert torch.exp(torch.tensor(-((0.999 * reach) ** 2) / 2)) > 0
    assert torch.exp(torch.tensor(-((1.001 * reach) ** 2) / 2)) == 0


@pytest.mark.parametrize("s", [0.5, 2.0, 8.0])
def test_the_step_from_a_row_of_the_positional_kernel_to_the_next(s):
    """eq:ks-20; no row is Toeplitz exactly, but the relative step is below κ(i + 1)."""
    A = positional_kernel(31, s)
    kappa = [math.exp(-(m**2) / (2 * s**2)) for m in range(31)]
    for i in range(30):
        for j in range(i + 1):
            step = (A[i, j] - A[i + 1, j + 1]).item()
            relative = kappa[i + 1] / sum(kappa[: i + 2])
            assert relative < kappa[i + 1] or kappa[i + 1] == 0
            assert step == pytest.approx(A[i, j].item() * relative, abs=1e-15)


def test_a_kernel_that_ends_is_toeplitz_exactly_and_a_running_mean_nowhere():
    """Below eq:ks-20: a window of four from row 3 on; for s = ∞ the relative step is 1 / (i + 2)."""
    _, A = attention(torch.zeros(11, 1), torch.zeros(11, 1), torch.eye(11), sliding_window_mask(11, window=4))
    exactly(A[4:, 1:], A[3:-1, :-1], atol=0.0)
    assert (A[3:, 1:][0] != A[2:-1, :-1][0]).any()
    A = positional_kernel(11, INF)
    for i in range(10):
        exactly((A[i, 0] - A[i + 1, 1]) / A[i, 0], 1 / (i + 2))


@pytest.mark.parametrize(("s", "L"), [(2.0, 4), (2.0, 7), (8.0, 24), (8.0, 72)])
def test_a_convolution_misses_the_positional_kernel_by_no_more_than_its_tail(s, L):
    """eq:ks-21 and eq:ks-22: against torch's conv1d, and the distance of the weights exactly."""
    T, values = 97, randn(97, 3)
    A, kappa = positional_kernel(T, s), torch.exp(-(torch.arange(T) ** 2) / (2 * s**2))
    cut = kappa[: L + 1] / kappa[: L + 1].sum()
    slid = torch.nn.functional.conv1d(values.T[:, None], cut.flip(0)[None, None])[:, 0].T
    Z = kappa.cumsum(0)
    gap = 2 * (1 - Z[L] / Z[L:])
    tail = 2 * s**2 / L * math.exp(-(L**2) / (2 * s**2))
    assert (gap <= tail).all()
    assert ((A @ values)[L:] - slid).norm(dim=-1).le(gap * values.norm(dim=-1).max() + 1e-15).all()
    cut_matrix = torch.stack(
        [torch.cat([torch.zeros(i - L), cut.flip(0), torch.zeros(T - 1 - i)]) for i in range(L, T)]
    )
    exactly((A[L:] - cut_matrix).abs().sum(-1), gap)


def test_at_nine_bandwidths_the_tail_is_below_the_spacing_of_double_precision():
    """eq:ks-22 with L = 9 s and s = 8."""
    assert 2 * 8 / 9 * math.exp(-81 / 2) < 2**-52


@pytest.mark.parametrize("s", [0.5, 1.0, 2.0, 8.0])
def test_the_weight_of_the_current_token_far_from_the_edge(s):
    """eq:ks-23: Poisson's sum, and the weight 2 / (1 + s √(2π)) where only its first term counts."""
    theta = 1 + 2 * sum(math.exp(-2 * (math.pi * n * s) ** 2) for n in range(1, 9))
    Z = 0.5 + s * math.sqrt(2 * math.pi) / 2 * theta
    exactly(positional_kernel(101, s)[-1, -1], 1 / Z)
    exactly(positional_kernel(201, s, causal=False)[100, 100], 1 / (2 * Z - 1))
    approximate = 2 / (1 + s * math.sqrt(2 * math.pi))
    assert abs(approximate * Z - 1) < 3 * math.exp(-2 * math.pi**2 * s**2) + 1e-15


def test_a_symmetric_learned_kernel_is_a_gaussian_with_samples_counted_by_their_length():
    """eq:ks-25."""
    x, y, C = randn(5, 3), randn(7, 3, seed=1), randn(3, 2, seed=2)
    M = C @ C.T
    distance = ((x[:, None] - y) @ C).square().sum(-1)
    lengths = (x @ C).square().sum(-1)[:, None] + (y @ C).square().sum(-1)
    exactly(x @ M @ y.T, -distance / 2 + lengths / 2)
    counted = torch.exp((y @ C).square().sum(-1) / 2) * weights_of_smoother(x @ C, y @ C, 1.0)
    weights = attention(x @ C, y @ C, torch.eye(7), scale=1.0)[1]
    exactly(weights, counted / counted.sum(-1, keepdim=True))
