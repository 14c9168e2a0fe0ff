"""Rotary embedding: by hand, against complex numbers and matrix exponentials, and by its laws.

The axes have different primes throughout: B = 2, H = 3, T = 5, S = 7, pairs 11.
"""

import math

import pytest
import torch

from attnkit.masks import causal_mask, padding_mask
from attnkit.rotary import positions_from_mask, rotary_frequencies, rotate
from attnkit.scaled_dot_product import attention, attention_scores
from attnkit.sinusoidal import sinusoidal_encoding

LAYOUTS = pytest.mark.parametrize("layout", ["interleaved", "half"])
HALF = [torch.float16, torch.bfloat16]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=0.0):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


def pairs_of(layout, d):
    """The two features of each pair."""
    return [(2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d // 2) for i in range(d // 2)]


def matrix(p, d, layout, base=10000.0):
    """The rotation at position p as a d × d matrix, filled entry by entry."""
    R = torch.eye(d, dtype=torch.float64)
    for i, (a, b) in enumerate(pairs_of(layout, d)):
        angle = p / base ** (2 * i / d)
        R[a, a] = R[b, b] = math.cos(angle)
        R[a, b], R[b, a] = -math.sin(angle), math.sin(angle)
    return R


# By hand


def test_one_pair_turns_by_one_radian_per_token():
    x = float64([1, 0], [1, 0], [0, 1])
    expected = float64([1, 0], [math.cos(1), math.sin(1)], [-math.sin(2), math.cos(2)])
    exactly(rotate(x), expected, atol=1e-16)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("interleaved", (-1.14264, 1.922076, 2.959851, 4.0298)),
        ("half", (-1.984111, 1.959901, 2.462378, 4.0198)),
    ],
)
def test_the_two_layouts_by_number(layout, expected):
    # CASES 11
    x = float64([1, 2, 3, 4])
    exactly(rotate(x, torch.tensor([1]), layout=layout), float64(expected), atol=1e-6)


def test_heads_turn_with_the_token_not_with_the_head():
    # CASES 12, in the axis order (H, T, d): three heads, so that a wrong axis shows in the shape too
    out = rotate(torch.ones(3, 2, 2, dtype=torch.float64))
    expected = float64([1, 1], [-0.3011687, 1.381773])
    exactly(out, expected.expand(3, 2, 2), atol=5e-7)


def test_tokens_before_heads_take_positions_with_an_axis_for_the_heads():
    # CASES 12 as filed, in the axis order (T, H, d)
    x = torch.ones(2, 3, 2, dtype=torch.float64)
    out = rotate(x, torch.arange(2)[:, None])
    exactly(out, rotate(x.transpose(0, 1)).transpose(0, 1))
    exactly(out[1], float64(-0.3011687, 1.381773).expand(3, 2), atol=5e-7)


def test_left_padding_does_not_shift_positions():
    # CASES 23
    mask = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
    assert positions_from_mask(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert positions_from_mask(torch.tensor([True, True, False])).tolist() == [0, 1, 1]
    assert positions_from_mask(torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)


def test_the_frequencies_by_hand():
    exactly(rotary_frequencies(4, dtype=torch.float64), float64(1, 0.01), atol=1e-16)
    exactly(rotary_frequencies(6, 8.0, dtype=torch.float64), float64(1, 0.5, 0.25), atol=1e-15)
    assert rotary_frequencies(0).shape == (0,)


# Against independent computations


@LAYOUTS
def test_it_equals_the_matrix_at_every_position(layout):
    x = randn(2, 3, 5, 22)
    out = rotate(x, layout=layout)
    for p in range(5):
        exactly(out[:, :, p], x[:, :, p] @ matrix(p, 22, layout).T, atol=1e-14)


def test_the_interleaved_layout_is_a_product_of_complex_numbers():
    x, positions = randn(2, 3, 5, 22), float64(0, 1, 100, -7, 0.3)
    angles = positions[:, None] * 10000 ** (-torch.arange(11, dtype=torch.float64) / 11)
    turned = torch.view_as_complex(x.unflatten(-1, (11, 2))) * torch.exp(1j * angles)
    exactly(rotate(x, positions), torch.view_as_real(turned).flatten(-2), atol=1e-13)


@LAYOUTS
def test_rotation_is_the_exponential_of_an_antisymmetric_generator(layout):
    # docs/derivations/rotary.md, equations 5 to 7
    generator = torch.zeros(6, 6, dtype=torch.float64)
    for i, (a, b) in enumerate(pairs_of(layout, 6)):
        generator[b, a] = 10000 ** (-i / 3)
        generator[a, b] = -generator[b, a]
    x = randn(1, 6)
    for p in (0.5, 1.0, 13.0):
        exactly(rotate(x, float64(p), layout=layout), x @ torch.matrix_exp(p * generator).T, atol=1e-12)


# Laws


@LAYOUTS
def test_moving_all_positions_changes_no_score(layout):
    q, k = randn(2, 3, 5, 22), randn(2, 3, 7, 22, seed=1)
    near = attention_scores(rotate(q, layout=layout), rotate(k, layout=layout))
    far = attention_scores(
        rotate(q, torch.arange(5) + 1000, layout=layout), rotate(k, torch.arange(7) + 1000, layout=layout)
    )
    exactly(far, near, atol=1e-12)


def test_a_score_is_amplitudes_times_cosines_of_phases():
    # docs/derivations/rotary.md, equation 9
    q, k = randn(1, 22), randn(1, 22, seed=1)
    a, b = (torch.view_as_complex(x.view(11, 2)) for x in (q, k))
    omega = 10000 ** (-torch.arange(11, dtype=torch.float64) / 11)
    score = rotate(q, float64(19)) @ rotate(k, float64(2)).T
    exactly(score[0, 0], (a.abs() * b.abs() * ((2 - 19) * omega + b.angle() - a.angle()).cos()).sum(), atol=1e-13)


@LAYOUTS
def test_rotations_compose_and_undo(layout):
    # docs/derivations/rotary.md, equation 4
    x = randn(2, 3, 5, 22)
    twice = rotate(rotate(x, float64(3), layout=layout), float64(14), layout=layout)
    exactly(twice, rotate(x, float64(17), layout=layout), atol=1e-14)
    exactly(rotate(twice, float64(-17), layout=layout), x, atol=1e-14)


@LAYOUTS
def test_norms_stay_and_position_0_changes_nothing(layout):
    x = randn(2, 3, 5, 22)
    exactly(rotate(x, layout=layout).norm(dim=-1), x.norm(dim=-1), atol=1e-14)
    assert torch.equal(rotate(x, torch.tensor(0), layout=layout), x)


def test_the_layouts_agree_after_one_permutation():
    x = randn(2, 3, 5, 22)
    to_halves = [a for a, _ in pairs_of("interleaved", 22)] + [b for _, b in pairs_of("interleaved", 22)]
    exactly(rotate(x[..., to_halves], layout="half"), rotate(x)[..., to_halves])


def test_a_mix_of_layouts_is_not_relative():
    q, k = randn(5, 22), randn(7, 22, seed=1)
    near = rotate(q) @ rotate(k, layout="half").T
    far = rotate(q, torch.arange(5) + 1000) @ rotate(k, torch.arange(7) + 1000, layout="half").T
    assert (far - near).abs().max() > 1


def test_rotation_with_a_decay_is_relative_too_if_keys_undo_it():
    # docs/derivations/rotary.md, equation 15
    q, k, rho, m, n = randn(1, 22), randn(1, 22, seed=1), 0.9, 19, 2
    score = (rho**m * rotate(q, float64(m))) @ (rho**-n * rotate(k, float64(n))).T
    exactly(score, rho ** (m - n) * (q @ rotate(k, float64(n - m)).T), atol=1e-13)


def test_any_generator_works_if_keys_take_the_inverse_transpose():
    # docs/derivations/rotary.md, equation 14
    generator, q, k = randn(3, 3) / 3, randn(3, seed=1), randn(3, seed=2)

    def score(m, n):
        return (torch.matrix_exp(m * generator) @ q) @ (torch.matrix_exp(-n * generator).T @ k)

    exactly(score(2.0, 1.0), score(5.0, 4.0), atol=1e-12)


def test_the_sinusoidal_encoding_is_one_vector_turned_backwards():
    # docs/derivations/rotary.md, equation 13
    start = float64(0, 1).repeat(11).expand(5, 22)
    exactly(sinusoidal_encoding(torch.arange(5, dtype=torch.float64), 22), rotate(start, -torch.arange(5)), atol=1e-15)


def test_a_turned_query_looks_back_a_chosen_distance():
    k = randn(1, 22)
    keys = rotate(k.expand(500, 22), -torch.arange(500))
    for r in (0, 1, 17, 400):
        assert (keys @ rotate(k, torch.tensor([-r])).T).argmax() == r


def test_left_padded_text_scores_like_the_text_alone():
    x = randn(1, 3, 5, 22)
    mask = torch.tensor([[False, False, True, True, True, True, True]])
    padded = torch.cat((randn(1, 3, 2, 22, seed=1), x), dim=-2)
    positions = positions_from_mask(mask)[:, None]
    see = mask[:, None, None] & causal_mask(7)
    turned, alone = rotate(padded, positions), rotate(x)
    out, _ = attention(turned, turned, padded, see)
    exactly(out[..., 2:, :], attention(alone, alone, x, causal_mask(5))[0], atol=1e-14)
    # Padding on the right needs no positions of its own.
    assert torch.equal(positions_from_mask(padding_mask([3], 5)[0, 0, 0])[:3], torch.arange(3))


# Partial rotation and frequencies


@LAYOUTS
def test_partial_rotation_turns_the_first_features_and_leaves_the_rest(layout):
    x = randn(2, 3, 5, 13)
    out = rotate(x, layout=layout, rotary_dim=6)
    exactly(out[..., :6], rotate(x[..., :6], layout=layout))
    assert torch.equal(out[..., 6:], x[..., 6:])
    assert torch.equal(rotate(x, layout=layout, rotary_dim=0), x)


def test_the_base_sets_the_frequencies():
    x = randn(5, 22)
    exactly(rotate(x, base=500.0), rotate(x, frequencies=rotary_frequencies(22, 500.0, dtype=torch.float64)))
    assert (rotate(x, base=500.0) - rotate(x)).abs().max() > 0.1


def test_given_frequencies_replace_the_base():
    x = randn(5, 4)
    turned = rotate(x, frequencies=float64(math.pi, 0))
    signs = float64(1, -1, 1, -1, 1)[:, None]
    exactly(turned[:, :2], signs * x[:, :2], atol=1e-14)
    assert torch.equal(turned[:, 2:], x[:, 2:])


def test_dividing_positions_is_dividing_frequencies():
    x, omega = randn(5, 22), rotary_frequencies(22, dtype=torch.float64)
    exactly(rotate(x, torch.arange(5) / 8), rotate(x, frequencies=omega / 8), atol=1e-15)


def test_the_ntk_base_keeps_the_first_frequency_and_divides_the_last():
    for d, s in ((22, 3.0), (128, 8.0)):
        omega, slower = (rotary_frequencies(d, 10000.0 * f, dtype=torch.float64) for f in (1.0, s ** (d / (d - 2))))
        assert slower[0] == omega[0] == 1
        exactly(omega / slower, s ** (2 * torch.arange(d // 2, dtype=torch.float64) / (d - 2)), atol=1e-13)


# Shapes


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 5), (3, 5), (2, 1, 5), (2, 3, 5), (2, 1, 1)])
def test_positions_broadcast_to_the_tokens(shape):
    x = randn(2, 3, 5, 22)
    positions = torch.arange(math.prod(shape)).view(shape)
    out, everywhere = rotate(x, positions), positions.expand(2, 3, 5)
    for b in range(2):
        for h in range(3):
            exactly(out[b, h], rotate(x[b, h], everywhere[b, h]), atol=1e-15)


def test_positions_may_add_leading_axes_and_pass_the_still_features_along():
    x = randn(5, 13)
    out = rotate(x, torch.arange(35).view(7, 5), rotary_dim=6)
    assert out.shape == (7, 5, 13)
    assert torch.equal(out[..., 6:], x[:, 6:].expand(7, 5, 7))


def test_each_length_in_a_row_is_right():
    # CASES 29: no table of the first length
    for T in (7, 11, 7):
        x = randn(T, 6)
        exactly(rotate(x), torch.stack([x[p] @ matrix(p, 6, "interleaved").T for p in range(T)]), atol=1e-14)


def test_no_tokens_and_no_features_are_fine():
    assert rotate(torch.zeros(3, 0, 22)).shape == (3, 0, 22)
    assert rotate(torch.zeros(3, 5, 0)).shape == (3, 5, 0)


def test_gradients_pass_through_the_inverse_rotation():
    x, cotangent = randn(5, 22).requires_grad_(), randn(5, 22, seed=1)
    (grad,) = torch.autograd.grad(rotate(x), x, cotangent)
    exactly(grad, rotate(cotangent, -torch.arange(5)), atol=1e-15)


# Dtypes


@LAYOUTS
@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
def test_the_result_has_the_dtype_of_x(dtype, layout):
    x = randn(2, 3, 5, 22).to(dtype)
    out = rotate(x, layout=layout)
    assert out.dtype == dtype
    wide = rotate(x.double(), layout=layout)
    exactly(out.double(), wide, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_does_not_merge_positions(dtype):
    # At position 257 bfloat16 would have turned by 256: cosine −0.0398.
    x = torch.tensor([[1.0, 0.0]], dtype=dtype)
    exactly(rotate(x, torch.tensor([257]))[0, 0].double(), float64(0.8193)[0], atol=2**-8)
    default = rotate(torch.ones(4099, 2, dtype=dtype))
    exactly(default.double(), rotate(torch.ones(4099, 2, dtype=torch.float64)), atol=2**-7)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64, torch.uint8, torch.int32, torch.int64])
def test_positions_of_any_real_dtype_give_the_same_rotation(dtype):
    x = randn(101, 6).float()
    exactly(rotate(x, torch.arange(101).to(dtype)), rotate(x), atol=2e-5)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_positions_that_their_dtype_cannot_count_are_refused(dtype, limit):
    rotate(torch.ones(1, 2), torch.tensor([limit], dtype=dtype))
    with pytest.raises(ValueError, match=f"count exactly up to {limit}, got {limit + 2}"):
        rotate(torch.ones(1, 2), torch.tensor([limit + 2], dtype=dtype))


def test_double_input_has_double_angles():
    x = randn(1, 2)
    exactly(rotate(x, torch.tensor([10**6])), x @ matrix(10**6, 2, "interleaved").T, atol=1e-10)
    exactly(rotate(x.float(), float64(10**6)).double(), x @ matrix(10**6, 2, "interleaved").T, atol=1e-6)


# Errors


def test_wrong_arguments_are_named_with_both_sizes():
    x = torch.ones(3, 5, 6)
    with pytest.raises(TypeError, match=r"x must be floating point, got torch\.int64"):
        rotate(torch.ones(5, 6, dtype=torch.long))
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., tokens, features\), got \(6,\)"):
        rotate(torch.ones(6))
    with pytest.raises(ValueError, match='layout must be "interleaved" or "half", got \'neox\''):
        rotate(x, layout="neox")
    with pytest.raises(ValueError, match="rotary_dim is 3, x has 6 features"):
        rotate(x, rotary_dim=3)
    with pytest.raises(ValueError, match="rotary_dim is 8, x has 6 features"):
        rotate(x, rotary_dim=8)
    with pytest.raises(ValueError, match="rotary_dim is 7, x has 7 features"):
        rotate(torch.ones(5, 7))
    with pytest.raises(ValueError, match=r"positions must broadcast to .* \(3, 5\), got shape \(7,\)"):
        rotate(x, torch.arange(7))
    with pytest.raises(ValueError, match=r"positions must broadcast to .* \(3, 1\), got shape \(7,\)"):
        rotate(torch.ones(3, 1, 6), torch.arange(7))  # would stretch one token to seven
    with pytest.raises(ValueError, match=r"\(rotary_dim/2,\) = \(3,\), got \(4,\)"):
        rotate(x, frequencies=torch.ones(4))
    for wrong in (torch.tensor([True]), torch.tensor([1j])):
        with pytest.raises(TypeError, match=f"positions must be integers or floating point, got {wrong.dtype}"):
            rotate(x, wrong)
    with pytest.raises(ValueError, match="rotary_dim must be even and at least 0, got 5"):
        rotary_frequencies(5)
    with pytest.raises(ValueError, match="base must be greater than 0, got 0"):
        rotary_frequencies(6, 0)
    with pytest.raises(TypeError, match=r"mask must be boolean \(True: a token\), got torch\.int64"):
        positions_from_mask(torch.tensor([0, 1]))


def test_a_base_below_one_is_allowed():
    torch.testing.assert_close(rotary_frequencies(4, base=0.25), torch.tensor([1.0, 2.0]))


def test_frequencies_are_never_narrower_than_float32():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert rotary_frequencies(4).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
