"""Softmax, its Jacobian and the entropy: by hand, against torch, and by the laws they obey."""

import math
import re

import pytest
import torch

from attnkit.simplex import entropy, softmax, softmax_jacobian

INF = float("inf")


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=1e-15):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# softmax: numbers that can be checked by hand


def test_softmax_of_logarithms_gives_their_shares():
    scores = torch.tensor([0.0, math.log(2), math.log(3)], dtype=torch.float64)
    exactly(softmax(scores), torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64))


def test_temperature_divides_the_scores():
    scores = torch.tensor([0.0, 2 * math.log(3)], dtype=torch.float64)
    exactly(softmax(scores, 2.0), torch.tensor([1 / 4, 3 / 4], dtype=torch.float64))
    exactly(softmax(scores, temperature=0.5), torch.tensor([1 / 82, 81 / 82], dtype=torch.float64))


def test_the_default_temperature_is_one_and_the_default_axis_the_last():
    scores = randn(3, 5)
    assert torch.equal(softmax(scores), softmax(scores, 1.0, -1))


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2, -3, -4])
@pytest.mark.parametrize("temperature", [0.25, 1.0, 5.0])
def test_softmax_equals_torch_along_every_axis(dim, temperature):
    scores = randn(2, 3, 5, 7)
    exactly(softmax(scores, temperature, dim), torch.softmax(scores / temperature, dim))


def test_softmax_of_a_scalar_is_one():
    assert softmax(torch.tensor(-3.0)) == 1.0


# softmax: laws


def test_weights_are_on_the_simplex_and_keep_the_order_of_the_scores():
    scores = 3 * randn(7, 11)
    weights = softmax(scores)
    assert (weights > 0).all()
    exactly(weights.sum(-1), torch.ones(7, dtype=torch.float64))
    assert torch.equal(weights.argsort(), scores.argsort())


def test_adding_a_constant_per_slice_changes_nothing():
    scores = randn(5, 7)
    exactly(softmax(scores + randn(5, 1, seed=1)), softmax(scores))
    exactly(softmax(scores + randn(1, 7, seed=2), dim=0), softmax(scores, dim=0))


def test_permuted_scores_give_permuted_weights():
    scores, order = randn(5, 7), torch.tensor([3, 0, 6, 2, 5, 1, 4])
    exactly(softmax(scores[:, order]), softmax(scores)[:, order])


def test_low_temperature_is_argmax_and_high_temperature_is_uniform():
    scores = torch.tensor([1.2, 4.5, 2.0, 0.8], dtype=torch.float64)
    exactly(softmax(scores, 1e-3), torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    exactly(softmax(scores, 1e12), torch.full((4,), 0.25, dtype=torch.float64), atol=1e-11)


# softmax: the edges of the number range


@pytest.mark.parametrize("offset", [1000.0, -1000.0, 1e30])
def test_large_scores_do_not_overflow(offset):
    scores = torch.tensor([offset, offset, -INF])
    assert softmax(scores).tolist() == [0.5, 0.5, 0.0]


def test_finite_scores_that_overflow_when_divided_still_give_weights():
    # Only the differences matter, and they are finite.
    assert softmax(torch.tensor([3e38, 1e38]), temperature=0.5).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_temperature_is_argmax_and_the_largest_are_uniform(dtype):
    scores = torch.tensor([1.0, 2.0, -INF], dtype=dtype)
    assert softmax(scores, torch.finfo(dtype).tiny).tolist() == [0.0, 1.0, 0.0]
    for temperature in (torch.finfo(dtype).max, 1e300, INF):  # 1e300 is infinite in float32
        assert softmax(scores, temperature).tolist() == [0.5, 0.5, 0.0]


def test_gradients_at_the_smallest_and_the_largest_temperature_are_finite():
    scores = torch.tensor([1.0, 2.0, -INF], requires_grad=True)
    for temperature in (torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max, INF):
        (grad,) = torch.autograd.grad(softmax(scores, temperature)[0], scores)
        assert grad.isfinite().all()


def test_an_excluded_entry_gets_weight_zero_and_the_rest_compete_as_if_it_were_absent():
    scores = randn(5)
    with_excluded = torch.cat([scores[:2], torch.tensor([-INF]), scores[2:]])
    weights = softmax(with_excluded)
    assert weights[2] == 0
    exactly(weights[[0, 1, 3, 4, 5]], softmax(scores))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_slice_without_choice_gets_weight_zero_and_gradient_zero(dim):
    scores = torch.tensor([[-INF, -INF, -INF], [0.0, -INF, 0.0]], dtype=torch.float64)
    scores = (scores if dim == 1 else scores.T.contiguous()).requires_grad_()
    weights = softmax(scores, dim=dim)
    expected = torch.tensor([[0, 0, 0], [0.5, 0, 0.5]], dtype=torch.float64)
    assert torch.equal(weights, expected if dim == 1 else expected.T)
    slopes = torch.tensor([[3.0, 5.0, 7.0], [2.0, 11.0, 0.0]], dtype=torch.float64)
    (weights * (slopes if dim == 1 else slopes.T)).sum().backward()
    expected_grad = torch.tensor([[0, 0, 0], [0.5, 0, -0.5]], dtype=torch.float64)
    exactly(scores.grad, expected_grad if dim == 1 else expected_grad.T)


def test_nan_scores_are_not_hidden():
    weights = softmax(torch.tensor([[0.0, math.nan], [0.0, 0.0]]))
    assert weights[0].isnan().all()
    assert weights[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exponentiated_in_float32_and_returned_as_it_came(dtype):
    scores = (5 * randn(3, 4099)).to(dtype)
    weights = softmax(scores)
    assert weights.dtype == dtype
    assert torch.equal(weights, torch.softmax(scores.float(), -1).to(dtype))


def test_half_precision_survives_a_temperature_that_leaves_its_range():
    scores = torch.tensor([60000.0, 59968.0], dtype=torch.float16)
    exactly(softmax(scores, 0.5).float(), torch.tensor([1.0, 0.0]), atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_keeps_its_dtype(dtype):
    assert softmax(torch.zeros(3, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5), (2, 0, 3)])
def test_softmax_of_nothing_is_nothing(shape):
    scores = torch.zeros(shape, requires_grad=True)
    weights = softmax(scores)
    assert weights.shape == shape
    weights.sum().backward()
    assert scores.grad.shape == shape


def test_softmax_of_strided_and_broadcast_scores():
    strided = randn(7, 5).T
    broadcast = randn(5, 1).expand(5, 3)
    exactly(softmax(strided), torch.softmax(strided.contiguous(), -1))
    exactly(softmax(broadcast), torch.full((5, 3), 1 / 3, dtype=torch.float64))


def test_softmax_leaves_its_input_alone():
    scores = torch.tensor([-INF, 1.0, 2.0])
    softmax(scores)
    assert scores.tolist() == [-INF, 1.0, 2.0]


@pytest.mark.parametrize("dim", [-1, 0])
def test_the_gradient_of_softmax_is_right_to_second_order(dim):
    scores = randn(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: softmax(s, 0.7, dim), scores)
    assert torch.autograd.gradgradcheck(lambda s: softmax(s, 0.7, dim), scores)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_softmax_wants_floating_point(dtype):
    with pytest.raises(TypeError, match=rf"^scores must be floating point, got {dtype}$"):
        softmax(torch.zeros(3, dtype=dtype))


@pytest.mark.parametrize("temperature", [0.0, -1.5, math.nan, 1e-40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_softmax_wants_a_temperature_that_is_positive_in_the_dtype_it_computes_in(dtype, temperature):
    message = re.escape(f"temperature must be at least 1.18e-38 for torch.float32, got {temperature}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        softmax(torch.zeros(3, dtype=dtype), temperature)


@pytest.mark.parametrize("temperature", [0.0, -1.5, math.nan, 1e-310])
def test_softmax_in_double_precision_takes_smaller_temperatures(temperature):
    assert softmax(torch.tensor([0.0, 1.0], dtype=torch.float64), 1e-40).tolist() == [0.0, 1.0]
    message = re.escape(f"temperature must be at least 2.23e-308 for torch.float64, got {temperature}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        softmax(torch.zeros(3, dtype=torch.float64), temperature)


# softmax_jacobian


def test_the_jacobian_of_a_half_and_two_quarters():
    J = softmax_jacobian(torch.tensor([0.5, 0.25, 0.25]))
    assert (16 * J).tolist() == [[4, -2, -2], [-2, 3, -1], [-2, -1, 3]]


def test_the_jacobian_equals_autograd_for_every_row_of_a_batch():
    scores = randn(2, 3, 5)
    J = softmax_jacobian(softmax(scores))
    assert J.shape == (2, 3, 5, 5)
    for b in range(2):
        for t in range(3):
            exactly(J[b, t], torch.autograd.functional.jacobian(softmax, scores[b, t]))


def test_at_another_temperature_the_jacobian_is_divided_by_it():
    scores, temperature = randn(5), 0.3
    by_autograd = torch.autograd.functional.jacobian(lambda s: softmax(s, temperature), scores)
    exactly(softmax_jacobian(softmax(scores, temperature)) / temperature, by_autograd, atol=1e-14)


def test_the_jacobian_is_symmetric_sums_to_zero_and_is_no_steeper_than_a_half():
    J = softmax_jacobian(softmax(4 * randn(101, 7)))
    assert torch.equal(J, J.mT)
    exactly(J.sum(-1), torch.zeros(101, 7, dtype=torch.float64))
    eigenvalues = torch.linalg.eigvalsh(J)
    assert eigenvalues.min() >= -1e-15
    assert eigenvalues.max() <= 0.5
    steepest = softmax_jacobian(torch.tensor([0.5, 0.5], dtype=torch.float64))
    exactly(torch.linalg.eigvalsh(steepest), torch.tensor([0.0, 0.5], dtype=torch.float64))


def test_the_jacobian_of_no_weights_is_empty():
    assert softmax_jacobian(torch.zeros(3, 0)).shape == (3, 0, 0)


# entropy


def test_entropy_by_hand():
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]]).double()
    exactly(entropy(weights), math.log(2) * torch.tensor([1.5, 0.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_entropy_equals_torch_along_every_axis(dim):
    weights = torch.softmax(randn(3, 5, 7), dim)
    expected = torch.distributions.Categorical(probs=weights.movedim(dim, -1)).entropy()
    exactly(entropy(weights, dim), expected, atol=1e-14)


def test_entropy_lies_between_zero_and_the_logarithm_of_the_number_of_weights():
    H = entropy(softmax(3 * randn(101, 7)))
    assert (H > 0).all()
    assert (math.log(7) > H).all()


def test_entropy_grows_with_temperature():
    scores = torch.tensor([1.2, 4.5, 2.0, 0.8], dtype=torch.float64)
    H = torch.stack([entropy(softmax(scores, tau)) for tau in (0.05, 0.25, 1.0, 5.0, 25.0)])
    assert (H.diff() > 0).all()


def test_entropy_of_no_weights_is_zero():
    assert entropy(torch.zeros(3, 0)).tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_of_entropy_through_softmax():
    scores = randn(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: entropy(softmax(s)), scores)


def test_the_gradient_of_entropy_stays_finite_where_an_entry_is_excluded():
    scores = torch.tensor([0.0, math.log(3), -INF], dtype=torch.float64, requires_grad=True)
    entropy(softmax(scores)).backward()
    # ∂H/∂s_j = −α_j (ln α_j + H), for α = (1/4, 3/4, 0)
    slope = 3 / 16 * math.log(3)
    exactly(scores.grad, torch.tensor([slope, -slope, 0.0], dtype=torch.float64))


def test_entropy_names_the_smallest_of_negative_weights():
    with pytest.raises(ValueError, match=r"^weights must be at least 0, the smallest is -0.25$"):
        entropy(torch.tensor([[0.5, 0.5], [1.25, -0.25]]))


def test_the_largest_finite_temperature_still_weighs_and_the_next_is_infinite():
    largest = torch.finfo(torch.float32).max
    weights = softmax(torch.tensor([largest, 0.0]), temperature=largest)
    torch.testing.assert_close(weights, torch.tensor([1.0, math.exp(-1)]) / (1 + math.exp(-1)))
    assert softmax(torch.tensor([largest, 0.0]), temperature=2 * largest).tolist() == [0.5, 0.5]


def test_the_slope_of_the_entropy_at_weight_zero_is_zero():
    weights = torch.tensor([0.5, 0.5, 0.0], requires_grad=True)
    entropy(weights).backward()
    assert weights.grad[2] == 0
