"""Kernel smoothing: the Gaussian by hand and by loops, its limits, and its kinship with attention."""

import math

import pytest
import torch

from attnkit.kernel_smoothing import nadaraya_watson, positional_kernel
from attnkit.masks import causal_mask
from attnkit.scaled_dot_product import attention

INF = float("inf")


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def exactly(actual, expected, atol=1e-14):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def kernel_weights(query, keys, bandwidth):
    """What each key weighs: the estimate for values that are one-hot."""
    return nadaraya_watson(query, keys, torch.eye(len(keys), dtype=keys.dtype), bandwidth)


# nadaraya_watson: by hand


def test_kernel_names_gaussian_means_exp_of_minus_half_the_squared_distance():
    # At 0, 1, 2 and 3 bandwidths: 1, e^−½, e^−2, e^−4½. A triangle or Epanechnikov's parabola would
    # be 0 from one bandwidth on.
    weights = kernel_weights(double(5.0), double(5.0, 7.0, 1.0, 11.0), 2.0)
    powers = double(1.0, math.exp(-0.5), math.exp(-2.0), math.exp(-4.5))
    exactly(weights, (powers / powers.sum())[None])


def test_kernel_names_gaussian_is_the_same_in_the_positional_kernel():
    weights = positional_kernel(4, 2.0, causal=False).double()[0]
    powers = double(1.0, math.exp(-1 / 8), math.exp(-4 / 8), math.exp(-9 / 8))
    exactly(weights, powers / powers.sum(), atol=1e-7)


def test_a_bandwidth_chosen_for_odds_of_two_to_one():
    # Distances 0 and 1 with s² = 1 / (2 ln 2): kernels 1 and ½.
    estimate = nadaraya_watson(double(0.0), double(0.0, 1.0), double(3.0, 9.0), math.sqrt(0.5 / math.log(2)))
    exactly(estimate, double(5.0))


def test_halfway_between_two_samples_is_their_mean_at_any_bandwidth():
    for bandwidth in (1e-3, 0.5, 8.0, INF):
        exactly(nadaraya_watson(double(0.5), double(0.0, 1.0), double(2.0, 4.0), bandwidth), double(3.0))


def test_estimates_equal_the_formula_by_loops():
    queries, keys, values, s = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2), 0.8
    estimates = nadaraya_watson(queries, keys, values, s)
    assert estimates.shape == (5, 2)
    for i in range(5):
        kernels = [math.exp(-sum((queries[i, d] - keys[j, d]) ** 2 for d in range(3)) / (2 * s**2)) for j in range(7)]
        exactly(estimates[i], sum(kappa * values[j] for j, kappa in enumerate(kernels)) / sum(kernels))


# nadaraya_watson: laws


def test_moving_and_stretching_the_line_with_its_bandwidth_changes_nothing():
    queries, keys, values = randn(5), randn(7, seed=1), randn(7, seed=2)
    estimates = nadaraya_watson(queries, keys, values, 0.7)
    exactly(nadaraya_watson(queries + 3, keys + 3, values, 0.7), estimates)
    exactly(nadaraya_watson(-4 * queries, -4 * keys, values, 2.8), estimates)


def test_estimates_are_linear_in_the_values_and_keep_constants():
    queries, keys, a, b = randn(5), randn(7, seed=1), randn(7, seed=2), randn(7, seed=3)
    mixed = nadaraya_watson(queries, keys, 2 * a - b, 0.7)
    exactly(mixed, 2 * nadaraya_watson(queries, keys, a, 0.7) - nadaraya_watson(queries, keys, b, 0.7))
    exactly(nadaraya_watson(queries, keys, torch.full((7,), 3.0).double(), 0.7), torch.full((5,), 3.0).double())


def test_the_order_of_the_samples_does_not_matter():
    queries, keys, values, order = randn(5), randn(7, seed=1), randn(7, seed=2), torch.tensor([6, 2, 0, 5, 1, 4, 3])
    exactly(nadaraya_watson(queries, keys[order], values[order], 0.7), nadaraya_watson(queries, keys, values, 0.7))


def test_it_is_attention_with_a_bias_of_half_the_squared_key_norm():
    queries, keys, values, s = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2), 0.7
    bias = -keys.square().sum(-1) / (2 * s**2)
    exactly(attention(queries, keys, values, bias=bias, scale=1 / s**2)[0], nadaraya_watson(queries, keys, values, s))


def test_it_is_dot_product_attention_only_if_the_keys_are_equally_long():
    queries, keys, values, s = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2), 0.7
    equal = keys / keys.norm(dim=-1, keepdim=True)
    exactly(attention(queries, equal, values, scale=1 / s**2)[0], nadaraya_watson(queries, equal, values, s))
    assert (
        attention(queries, keys, values, scale=1 / s**2)[0] - nadaraya_watson(queries, keys, values, s)
    ).abs().max() > 0.1


# nadaraya_watson: limits


@pytest.mark.parametrize("bandwidth", [INF, 1e9])
def test_an_infinite_bandwidth_gives_the_mean(bandwidth):
    keys, values = randn(7, 3, seed=1), randn(7, 2, seed=2)
    exactly(nadaraya_watson(randn(5, 3), keys, values, bandwidth), values.mean(0).expand(5, 2))


def test_a_small_bandwidth_gives_the_nearest_neighbour():
    queries, keys, values = randn(5, 3), randn(7, 3, seed=1), randn(7, 2, seed=2)
    nearest = torch.cdist(queries, keys).argmin(-1)
    assert torch.equal(nadaraya_watson(queries, keys, values, 1e-3), values[nearest])


@pytest.mark.parametrize(("bandwidth", "dtype"), [(2e-19, torch.float32), (2e-154, torch.float64)])
def test_the_smallest_bandwidths_still_give_the_nearest_neighbour(bandwidth, dtype):
    # The distance over the squared bandwidth leaves the number range, its differences decide all the same.
    keys, values = torch.tensor([0.0, 1.25], dtype=dtype), torch.tensor([3.0, 7.0], dtype=dtype)
    queries = torch.tensor([0.0, 0.5, 0.75], dtype=dtype)
    assert nadaraya_watson(queries, keys, values, bandwidth).tolist() == [3.0, 3.0, 7.0]


def test_the_smallest_bandwidths_leave_every_token_to_itself():
    for causal in (True, False):
        assert torch.equal(positional_kernel(3, 2e-19, causal), torch.eye(3))


def test_the_largest_finite_bandwidths_give_the_mean():
    exactly(nadaraya_watson(double(0.5), double(0.0, 1.0), double(2.0, 8.0), 1e200), double(5.0))
    for bandwidth in (1e18, 1e19, 1e20, 1e150, 1e200):
        assert torch.equal(positional_kernel(3, bandwidth), positional_kernel(3, INF))


def test_a_query_far_from_every_sample_takes_the_nearest():
    # Every kernel underflows to 0; the ratio is still right.
    exactly(nadaraya_watson(double(1000.0), double(0.0, 1.0), double(2.0, 4.0), 1.0), double(4.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_distances_do_not_overflow(dtype):
    queries, keys = torch.tensor([0.0, 1024.0], dtype=dtype), torch.tensor([512.0, -512.0], dtype=dtype)
    values = torch.tensor([2.0, 4.0], dtype=dtype)
    estimates = nadaraya_watson(queries, keys, values, 100.0)
    assert estimates.dtype == dtype
    assert estimates.tolist() == [3.0, 2.0]


# nadaraya_watson: shapes, dtype, gradients


def test_points_on_a_line_need_no_feature_axis():
    queries, keys, values = randn(5), randn(7, seed=1), randn(7, seed=2)
    full = nadaraya_watson(queries[:, None], keys[:, None], values[:, None], 0.7)
    assert full.shape == (5, 1)
    for q in (queries, queries[:, None]):
        for k in (keys, keys[:, None]):
            assert torch.equal(nadaraya_watson(q, k, values, 0.7), full[:, 0])
            assert torch.equal(nadaraya_watson(q, k, values[:, None], 0.7), full)


def test_leading_axes_are_batches_and_broadcast():
    queries, keys, values = randn(2, 1, 5, 3), randn(11, 7, 3, seed=1), randn(2, 11, 7, 13, seed=2)
    estimates = nadaraya_watson(queries, keys, values, 0.7)
    assert estimates.shape == (2, 11, 5, 13)
    for b in range(2):
        for h in range(11):
            exactly(estimates[b, h], nadaraya_watson(queries[b, 0], keys[h], values[b, h], 0.7))


def test_strided_samples():
    queries, keys, values = randn(3, 5).mT, randn(3, 7, seed=1).mT, randn(2, 7, seed=2).mT
    expected = nadaraya_watson(queries.contiguous(), keys.contiguous(), values.contiguous(), 0.7)
    exactly(nadaraya_watson(queries, keys, values, 0.7), expected)


def test_no_queries_give_no_estimates_and_no_samples_give_zero():
    assert nadaraya_watson(randn(0, 3), randn(7, 3), randn(7, 2), 0.7).shape == (0, 2)
    assert nadaraya_watson(randn(0), randn(7), randn(7), 0.7).shape == (0,)
    assert torch.equal(nadaraya_watson(randn(5, 3), randn(0, 3), randn(0, 2), 0.7), torch.zeros(5, 2).double())


def test_two_lengths_in_a_row():
    for T in (7, 11, 7):
        values = torch.arange(float(T), dtype=torch.float64)
        exactly(nadaraya_watson(values, values, values, INF), torch.full((T,), (T - 1) / 2, dtype=torch.float64))
        assert positional_kernel(T, 2.0).shape == (T, T)


def test_gradients_are_right():
    inputs = [x.requires_grad_() for x in (randn(3, 2), randn(5, 2, seed=1), randn(5, 2, seed=2))]
    assert torch.autograd.gradcheck(lambda q, k, v: nadaraya_watson(q, k, v, 0.7), inputs)


# positional_kernel


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bandwidth", [0.5, 2.0, 8.0, INF])
def test_the_positional_kernel_is_its_formula(bandwidth, causal):
    weights = positional_kernel(7, bandwidth, causal)
    for i in range(7):
        row = [math.exp(-((i - j) ** 2) / (2 * bandwidth**2)) if j <= i or not causal else 0.0 for j in range(7)]
        exactly(weights[i], torch.tensor([x / sum(row) for x in row]), atol=1e-7)


def test_the_positional_kernel_is_causal_unless_told_and_sees_nothing_of_the_future():
    assert torch.equal(positional_kernel(5, 2.0), positional_kernel(5, 2.0, causal=True))
    assert (positional_kernel(5, 2.0)[~causal_mask(5)] == 0).all()
    assert (positional_kernel(5, 2.0, causal=False) > 0).all()


def test_an_infinite_bandwidth_is_the_running_mean():
    v = randn(7, 3).float()
    running = v.cumsum(0) / torch.arange(1, 8)[:, None]
    exactly(positional_kernel(7, INF) @ v, running, atol=1e-6)
    exactly(positional_kernel(7, INF, causal=False), torch.full((7, 7), 1 / 7), atol=1e-7)


def test_the_positional_kernel_is_toeplitz_away_from_the_edge():
    weights = positional_kernel(101, 2.0, causal=False)
    inner = weights[30:71]
    for row in range(1, len(inner)):
        exactly(inner[row].roll(-row), inner[0], atol=1e-7)
    assert (weights[0].roll(50) - weights[50]).abs().max() > 0.1


def test_the_positional_kernel_is_nadaraya_watson_on_positions():
    position, v = torch.arange(7.0), randn(7, 2).float()
    exactly(positional_kernel(7, 1.5, causal=False) @ v, nadaraya_watson(position, position, v, 1.5), atol=1e-6)


def test_the_positional_kernel_has_the_default_dtype():
    default = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            weights = positional_kernel(7, 2.0)
            assert weights.dtype == dtype
            exactly(weights.sum(-1), torch.ones(7), atol=8 * torch.finfo(dtype).eps)
    finally:
        torch.set_default_dtype(default)


@pytest.mark.parametrize("causal", [True, False])
def test_a_positional_kernel_over_few_tokens(causal):
    assert positional_kernel(0, 2.0, causal).shape == (0, 0)
    assert positional_kernel(1, 2.0, causal).tolist() == [[1.0]]


# Errors


@pytest.mark.parametrize("bandwidth", [0.0, -1.5, math.nan])
def test_a_bandwidth_must_be_positive(bandwidth):
    message = f"^bandwidth must be greater than 0, got {bandwidth}$"
    with pytest.raises(ValueError, match=message):
        nadaraya_watson(randn(5), randn(7), randn(7), bandwidth)
    with pytest.raises(ValueError, match=message):
        positional_kernel(5, bandwidth)


def test_a_bandwidth_must_be_large_enough_to_be_squared():
    with pytest.raises(ValueError, match=r"^bandwidth is too small for torch.float64: its square is 0.0$"):
        nadaraya_watson(randn(5), randn(7), randn(7), 1e-170)
    with pytest.raises(ValueError, match=r"^bandwidth is too small for torch.float32: its square is 1e-40$"):
        positional_kernel(5, 1e-20)
    with pytest.raises(ValueError, match=r"^bandwidth is too small for torch.float32"):
        nadaraya_watson(*[torch.zeros(5, dtype=torch.float16)] * 3, 1e-20)


def test_queries_and_keys_must_have_one_width():
    message = r"^queries and keys must have the same width: queries have 3 features, keys have 1$"
    with pytest.raises(ValueError, match=message):
        nadaraya_watson(randn(5, 3), randn(7), randn(7), 0.7)


def test_lengths_of_keys_and_values_must_agree_and_the_error_names_both():
    message = r"^keys and values must hold the same number of samples: keys hold 5, values hold 6$"
    with pytest.raises(ValueError, match=message):
        nadaraya_watson(randn(3), randn(5), randn(6), 0.7)
    with pytest.raises(ValueError, match=r"keys hold 7, values hold 1$"):
        nadaraya_watson(randn(2, 3, 2), randn(2, 7, 2), randn(2, 1, 2), 0.7)


def test_leading_axes_that_do_not_broadcast_are_an_error_that_names_both():
    message = "^leading axes of {} and {} do not broadcast: {} has \\(2,\\), {} has \\(11,\\)$"
    with pytest.raises(ValueError, match=message.format(*["queries", "keys"] * 2)):
        nadaraya_watson(randn(2, 5, 3), randn(11, 7, 3), randn(7, 1), 0.7)
    with pytest.raises(ValueError, match=message.format(*["weights", "values"] * 2)):
        nadaraya_watson(randn(5, 3), randn(2, 7, 3), randn(11, 7, 1), 0.7)
    with pytest.raises(ValueError, match=message.format(*["weights", "values"] * 2)):
        nadaraya_watson(randn(2, 5, 3), randn(7, 3), randn(11, 7, 1), 0.7)


@pytest.mark.parametrize("name", ["queries", "keys", "values"])
def test_queries_keys_and_values_must_be_floating_point(name):
    arguments = {"queries": torch.zeros(5), "keys": torch.zeros(7), "values": torch.zeros(7)}
    arguments[name] = arguments[name].long()
    with pytest.raises(TypeError, match=f"^{name} must be floating point, got torch.int64$"):
        nadaraya_watson(**arguments, bandwidth=0.7)


def test_values_on_a_line_serve_a_batch_of_queries():
    queries, keys, values = randn(2, 3, 1), randn(4, seed=1), randn(4, seed=2)
    out = nadaraya_watson(queries, keys, values, 0.7)
    exactly(out, torch.stack([nadaraya_watson(one, keys, values, 0.7) for one in queries]))
    assert out.shape == (2, 3)


def test_the_smallest_bandwidth_is_the_one_whose_square_is_a_normal_number():
    points = torch.tensor([0.0, 1.0])
    assert nadaraya_watson(points, points, torch.tensor([3.0, 5.0]), 2.0**-63).tolist() == [3.0, 5.0]
    with pytest.raises(ValueError, match="bandwidth is too small"):
        nadaraya_watson(points, points, points, 2.0**-64)
