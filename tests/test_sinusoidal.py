"""The sinusoidal encoding: by hand, against a loop of the paper's formula, and by its laws.

Primes throughout: batch 2, positions 7 and 11, d_model 13 or 6.
"""

import math

import pytest
import torch

from attnkit.sinusoidal import sinusoidal_encoding

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def exactly(actual, expected, atol=0.0):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def loop(positions, d_model, base=10000.0):
    """The two formulas of section 3.5, one entry at a time."""
    rows = []
    for p in positions:
        row = []
        for feature in range(d_model):
            i = feature // 2
            angle = p / base ** (2 * i / d_model)
            row.append(math.sin(angle) if feature % 2 == 0 else math.cos(angle))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


# By hand


def test_position_0_is_zeros_and_ones():
    assert sinusoidal_encoding(torch.tensor([0]), 6).tolist() == [[0, 1, 0, 1, 0, 1]]


def test_the_exponent_holds_the_number_of_the_feature_not_twice_that():
    # CASES 13; with 2i of an even feature index the last two would be 0.0001 and 1.
    expected = torch.tensor([0.841471, 0.540302, 0.00999983, 0.99995])
    exactly(sinusoidal_encoding(torch.tensor(1), 4), expected, atol=5e-7)


def test_an_odd_width_ends_with_a_sine():
    # CASES 14
    expected = torch.tensor([0.841471, 0.540302, 0.025116, 0.999685, 0.000631])
    exactly(sinusoidal_encoding(torch.tensor(1), 5), expected, atol=5e-7)
    exactly(sinusoidal_encoding(torch.tensor(1), 1), torch.tensor([0.841471]), atol=5e-7)


def test_a_quarter_turn_of_the_first_pair():
    exactly(
        sinusoidal_encoding(torch.tensor([math.pi / 2], dtype=torch.float64), 2),
        torch.tensor([[1.0, 0.0]], dtype=torch.float64),
        atol=1e-15,
    )


# Against the formula


@pytest.mark.parametrize("d_model", [1, 2, 5, 6, 13])
@pytest.mark.parametrize("base", [2.0, 10000.0, 500000.0])
def test_it_equals_a_loop_over_the_formula(d_model, base):
    positions = torch.tensor([0.0, 1.0, 2.0, 57.0, 1000.0, 0.25, -3.0], dtype=torch.float64)
    encoding = sinusoidal_encoding(positions, d_model, base)
    exactly(encoding, loop(positions.tolist(), d_model, base), atol=1e-12)


# Laws


def test_a_shift_rotates_each_pair_backwards():
    omega = 10000 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    at, moved = (sinusoidal_encoding(torch.arange(11, dtype=torch.float64) + k, 6) for k in (0, 17))
    c, s = (17 * omega).cos(), (17 * omega).sin()
    sines, cosines = at[:, 0::2], at[:, 1::2]
    exactly(moved[:, 0::2], c * sines + s * cosines, atol=1e-13)
    exactly(moved[:, 1::2], c * cosines - s * sines, atol=1e-13)


def test_inner_products_are_sums_of_cosines_of_the_distance():
    positions = torch.arange(11, dtype=torch.float64)
    encoding = sinusoidal_encoding(positions, 6)
    omega = 10000 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    distance = positions[:, None] - positions
    exactly(encoding @ encoding.T, (distance[..., None] * omega).cos().sum(-1), atol=1e-13)


@pytest.mark.parametrize("shape", [(), (7,), (2, 7), (2, 1, 7), (0,)])
def test_positions_of_any_shape_gain_one_axis(shape):
    positions = torch.arange(math.prod(shape)).view(shape)
    encoding = sinusoidal_encoding(positions, 13)
    assert encoding.shape == (*shape, 13)
    exactly(encoding.view(-1, 13), sinusoidal_encoding(positions.flatten(), 13))


def test_each_length_in_a_row_is_right():
    # CASES 29: no table of the first length
    for T in (7, 11, 7):
        exactly(sinusoidal_encoding(torch.arange(T, dtype=torch.float64), 6), loop(range(T), 6), atol=1e-14)


def test_gradients_reach_real_positions():
    positions = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    sinusoidal_encoding(positions, 2)[0, 0].backward()
    exactly(positions.grad, torch.tensor([math.cos(0.3)], dtype=torch.float64), atol=1e-15)


# Dtypes


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_positions_of_any_real_dtype_give_the_same_encoding(dtype):
    encoding = sinusoidal_encoding(torch.arange(101).to(dtype), 6)
    assert encoding.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exactly(encoding.double(), loop(range(101), 6), atol=1e-5)


def test_integers_follow_the_default_dtype():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        encoding = sinusoidal_encoding(torch.arange(2001), 6)
    finally:
        torch.set_default_dtype(before)
    exactly(encoding, loop(range(2001), 6), atol=1e-12)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_half_precision_positions_are_all_different_or_refused(dtype, limit):
    encoding = sinusoidal_encoding(torch.arange(limit + 1).to(dtype), 64)
    assert len(encoding.unique(dim=0)) == limit + 1
    with pytest.raises(ValueError, match=f"count exactly up to {limit}, got {limit + 2}"):
        sinusoidal_encoding(torch.arange(limit + 3).to(dtype), 64)


def test_integers_beyond_the_angles_dtype_are_refused():
    with pytest.raises(ValueError, match="float32 count exactly up to 16777216, got 16777218"):
        sinusoidal_encoding(torch.tensor([16777218]), 6)


# Errors


def test_wrong_arguments_are_named_with_what_was_given():
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        sinusoidal_encoding(torch.arange(3), 0)
    with pytest.raises(ValueError, match=r"base must be greater than 0, got -1\.0"):
        sinusoidal_encoding(torch.arange(3), 6, base=-1.0)
    for wrong in (torch.tensor([True]), torch.tensor([1j])):
        with pytest.raises(TypeError, match=f"positions must be integers or floating point, got {wrong.dtype}"):
            sinusoidal_encoding(wrong, 6)


@pytest.mark.parametrize("base", [0.0, -0.5])
def test_a_base_that_is_not_positive_is_named(base):
    with pytest.raises(ValueError, match="base must be greater than 0"):
        sinusoidal_encoding(torch.arange(3), 4, base=base)


def test_a_base_below_one_is_allowed():
    torch.testing.assert_close(sinusoidal_encoding(torch.tensor([1]), 4, base=0.25)[0, 2], torch.tensor(2.0).sin())


def test_the_first_position_that_float32_cannot_tell_from_its_neighbour_is_refused():
    assert sinusoidal_encoding(torch.tensor([2**24]), 2).isfinite().all()
    with pytest.raises(ValueError, match="count exactly up to 16777216, got 16777217"):
        sinusoidal_encoding(torch.tensor([2**24 + 1]), 2)
