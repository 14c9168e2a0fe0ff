"""Laws of attention, for all shapes, dtypes, masks and strides; after each a number worked out by hand.

By hand: scores ln 1 and ln 3 are weights 1/4 and 3/4.
"""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from naive import column
from strategies import DTYPES, STRIDES, allowed, inputs, randn, restrided, seeds, sizes
from torch.autograd import grad

from attnkit import attention, attention_scores, softmax

INF = float("inf")


def close(actual, wanted, atol=1e-13):
    torch.testing.assert_close(actual, wanted, atol=atol, rtol=0)


def quarter(values, **options):
    """One query whose weights over the first two of the values are 1/4 and 3/4."""
    scores = column(0, math.log(3), *[0] * (len(values) - 2))
    out, weights = attention(column(1), scores, column(*values), **options)
    return out.item(), weights[0].tolist()


def by_formula(q, k, v, mask, bias, scale, softcap):
    """Weights and output in float64, exponentials divided by their sum and nothing else."""
    q, k, v = q.double(), k.double(), v.double()
    scores = torch.einsum("...id,...jd->...ij", q, k) * scale
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    masses = torch.where(mask, torch.exp(scores + bias), 0.0)
    total = masses.sum(-1, keepdim=True)
    weights = masses / torch.where(total > 0, total, 1.0)
    return torch.einsum("...ij,...je->...ie", weights, v), weights


@given(inputs(DTYPES), st.sampled_from((0.3, 1.0)), st.sampled_from((None, 0.7, 30.0)), seeds)
def test_it_is_its_formula_in_every_dtype(call, scale, softcap, seed):
    q, k, v, mask = call
    bias = randn(seed, q.shape[-2], k.shape[-2])
    out, weights = attention(q, k, v, mask, bias=bias, scale=scale, softcap=softcap)
    wanted_out, wanted_weights = by_formula(q, k, v, mask, bias, scale, softcap)
    assert out.dtype == weights.dtype == v.dtype
    largest = v.abs().max().item() if v.numel() else 1.0
    close(weights.double(), wanted_weights, allowed(v.dtype))
    close(out.double(), wanted_out, allowed(v.dtype, largest))


def test_it_is_its_formula_by_hand():
    out, weights = quarter([8, 4])
    assert out == pytest.approx(5.0, abs=1e-14)
    assert weights == pytest.approx([0.25, 0.75], abs=1e-15)


@given(inputs(), st.sampled_from((None, 0.5)))
def test_weights_lie_on_the_simplex_or_are_zero(call, softcap):
    _, weights = attention(*call, softcap=softcap)
    alive = call.mask.broadcast_to(weights.shape).any(-1)
    assert (weights >= 0).all()
    close(weights.sum(-1), alive.double())
    assert not weights[~call.mask.broadcast_to(weights.shape)].any()


def test_weights_on_the_simplex_by_hand():
    assert quarter([1, 1, 1], mask=torch.tensor([True, False, False]))[1] == [1.0, 0.0, 0.0]


@given(inputs(smallest=1), seeds)
def test_outputs_lie_in_the_convex_hull_of_the_visible_values(call, seed):
    """In any direction no output reaches beyond the farthest visible value."""
    q, k, v, mask = call
    out, weights = attention(q, k, v, mask)
    direction = randn(seed, v.shape[-1])
    along = (v @ direction).unsqueeze(-2).expand(weights.shape)
    visible = mask.broadcast_to(weights.shape)
    alive = visible.any(-1)
    reach = along.masked_fill(~visible, -INF).amax(-1)
    assert ((out @ direction)[alive] <= reach[alive] + 1e-13).all()


def test_the_convex_hull_by_hand():
    # (0, 0) and (1, 1) with weights 1/4 and 3/4: on their diagonal; the bounding box alone would allow more
    out, _ = attention(column(1), column(0, math.log(3)), torch.tensor([[0.0, 0], [1, 1]], dtype=torch.float64))
    close(out, torch.tensor([[0.75, 0.75]], dtype=torch.float64))


@given(inputs(), st.floats(-50, 50), seeds)
def test_a_constant_added_to_the_scores_of_a_query_changes_nothing(call, constant, seed):
    bias = randn(seed, call.q.shape[-2], call.k.shape[-2])
    shift = constant * randn(seed + 1, call.q.shape[-2], 1)
    close(attention(*call, bias=bias + shift)[0], attention(*call, bias=bias)[0], 1e-12)


def test_a_constant_added_by_hand():
    assert quarter([8, 4], bias=column(700))[0] == pytest.approx(5.0, abs=1e-12)


@given(inputs(), seeds)
def test_queries_permuted_permute_outputs_and_keys_permuted_with_their_values_change_none(call, seed):
    q, k, v, mask = call
    mask = mask.broadcast_to(*mask.shape[:-2], q.shape[-2], k.shape[-2])
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(n, generator=generator) for n in (q.shape[-2], k.shape[-2]))
    out, weights = attention(q, k, v, mask)
    moved = attention(q[..., rows, :], k[..., columns, :], v[..., columns, :], mask[..., rows, :][..., columns])
    close(moved[0], out[..., rows, :])
    close(moved[1], weights[..., rows, :][..., columns])


def test_a_permutation_by_hand():
    out, weights = attention(column(1), column(math.log(3), 0), column(4, 8))
    assert out.item() == pytest.approx(5.0, abs=1e-14)
    assert weights[0].tolist() == pytest.approx([0.75, 0.25], abs=1e-15)


@given(inputs(), seeds)
def test_hiding_keys_from_all_queries_equals_deleting_them(call, seed):
    q, k, v, _ = call
    kept = torch.rand(k.shape[-2], generator=torch.Generator().manual_seed(seed)) < 0.5
    masked, weights = attention(q, k, v, kept)
    deleted, fewer = attention(q, k[..., kept, :], v[..., kept, :])
    close(masked, deleted)
    close(weights[..., kept], fewer)


def test_hiding_a_key_by_hand():
    assert quarter([8, 4, 1e6], mask=torch.tensor([True, True, False]))[0] == pytest.approx(5.0, abs=1e-14)


@given(inputs(), st.sampled_from((None, 0.5)))
def test_a_bias_of_minus_infinity_is_a_mask(call, softcap):
    q, k, v, mask = call
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -INF)
    for biased, masked in zip(attention(q, k, v, bias=bias, softcap=softcap), attention(*call, softcap=softcap)):
        assert torch.equal(biased, masked)


def test_a_bias_of_minus_infinity_by_hand():
    assert quarter([8, 4], bias=torch.tensor([0.0, -INF])) == (8.0, [1.0, 0.0])


@given(inputs(), st.floats(0.1, 4))
def test_scale_factor_of_the_queries_and_inverse_temperature_are_one(call, factor):
    q, k, v, mask = call
    _, scaled = attention(q, k, v, mask, scale=factor)
    close(attention(factor * q, k, v, mask, scale=1.0)[1], scaled)
    scores = attention_scores(q, k, scale=1.0).masked_fill(~mask, -INF)
    close(softmax(scores, temperature=1 / factor), scaled, 1e-12)


@given(inputs(smallest=1))
def test_the_scale_is_one_over_the_root_of_the_width_unless_given(call):
    for default, told in zip(attention(*call), attention(*call, scale=call.q.shape[-1] ** -0.5)):
        close(default, told)


def test_scale_by_hand():
    # width 4: 2 · ln 3 over √4
    q, k = torch.zeros(1, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
    q[0, 0], k[1, 0] = 2.0, math.log(3)
    assert attention(q, k, column(8, 4))[0].item() == pytest.approx(5.0, abs=1e-14)
    # doubled, ln 3 is ln 9: weights 1/10 and 9/10
    assert quarter([8, 4], scale=2.0)[1] == pytest.approx([0.1, 0.9], abs=1e-15)


@given(inputs())
def test_a_batch_is_a_loop_over_its_members(call):
    q, k, v, mask = call
    out, weights = attention(q, k, v, mask)
    mask = mask.broadcast_to(weights.shape)
    for member in itertools.product(*map(range, out.shape[:-2])):
        close(attention(q[member], k[member], v[member], mask[member])[0], out[member])


def test_a_batch_by_hand():
    q, k, v = torch.zeros(2, 1, 1), torch.zeros(2, 2, 1), torch.tensor([[[1.0], [3.0]], [[10.0], [30.0]]])
    assert attention(q, k, v)[0].flatten().tolist() == [2.0, 20.0]


@given(inputs(), st.floats(-3, 3), seeds)
def test_it_is_linear_in_the_values(call, factor, seed):
    q, k, v, mask = call
    other = randn(seed, *v.shape)
    together = attention(q, k, v + factor * other, mask)[0]
    close(together, attention(q, k, v, mask)[0] + factor * attention(q, k, other, mask)[0])


def test_linear_in_the_values_by_hand():
    assert quarter([16, 8])[0] - quarter([8, 4])[0] == pytest.approx(5.0, abs=1e-14)


@given(inputs(smallest=1), st.floats(0.1, 2), st.floats(1, 1000))
def test_a_softcap_bounds_the_ratio_of_visible_weights(call, softcap, factor):
    """Scores within ±c: no visible weight is more than e^2c times another."""
    q, k, v, mask = call
    _, weights = attention(factor * q, k, v, mask, softcap=softcap)
    visible = mask.broadcast_to(weights.shape)
    largest = weights.masked_fill(~visible, -INF).amax(-1)
    smallest = weights.masked_fill(~visible, INF).amin(-1)
    assert (largest <= smallest * math.exp(2 * softcap) * (1 + 1e-13)).all()


def test_a_softcap_by_hand():
    # scores far beyond ±ln(3)/2 become ±ln(3)/2, which is ln 3 apart
    _, weights = attention(column(1), column(-1e9, 1e9), column(0, 0), softcap=math.log(3) / 2)
    assert weights[0].tolist() == pytest.approx([0.25, 0.75], abs=1e-15)


@given(inputs(DTYPES), st.sampled_from((None, 0.5)))
def test_a_dead_row_is_zero_and_sends_no_gradient(call, softcap):
    q, k, v = (x.requires_grad_() for x in (call.q, call.k, call.v))
    out, weights = attention(q, k, v, call.mask, softcap=softcap)
    dead = ~call.mask.broadcast_to(weights.shape).any(-1)
    assert not out[dead].any()
    assert not weights[dead].any()
    gradients = grad(out.masked_fill(~dead.unsqueeze(-1), 0.0).sum() + weights[dead].sum(), (q, k, v))
    assert not any(gradient.any() for gradient in gradients)
    assert all(gradient.isfinite().all() for gradient in grad(attention(q, k, v, call.mask)[0].sum(), (q, k, v)))


def test_a_dead_row_by_hand():
    assert quarter([8, 4], mask=torch.tensor([False, False])) == (0.0, [0.0, 0.0])


@given(inputs(DTYPES), st.lists(st.sampled_from(STRIDES), min_size=3, max_size=3))
def test_strides_change_nothing(call, how):
    q, k, v, mask = call
    largest = v.abs().max().item() if v.numel() else 1.0
    views = [restrided(x, h) for x, h in zip((q, k, v), how)]
    for moved, plain in zip(attention(*views, restrided(mask.double(), how[0]).bool()), attention(*call)):
        close(moved.double(), plain.double(), allowed(v.dtype, largest))


@given(sizes, sizes, sizes, seeds)
def test_one_tensor_expanded_over_a_batch_is_that_of_its_copies(T, S, d, seed):
    q, k, v = (randn(seed + n, 1, tokens, d).expand(3, tokens, d) for n, tokens in enumerate((T, S, S)))
    mask = torch.ones(1, 1, S, dtype=torch.bool).expand(3, T, S)
    for expanded, copied in zip(attention(q, k, v, mask), attention(*(x.clone() for x in (q, k, v, mask)))):
        close(expanded, copied)


def test_strides_by_hand():
    wide = torch.tensor([[8.0, 100.0], [4.0, 100.0]], dtype=torch.float64)
    assert attention(column(1), column(0, math.log(3)), wide[:, :1])[0].item() == pytest.approx(5.0, abs=1e-14)


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from(("width", "length", "mask", "bias")))
def test_sizes_that_do_not_fit_are_both_named(a, b, what):
    assume(a != b and (b != 1 or what in ("width", "length")))  # a single entry of mask or bias broadcasts
    q, k, v, options = torch.zeros(2, 3), torch.zeros(a, 3), torch.zeros(a, 4), {}
    if what == "width":
        q, k = torch.zeros(2, a), torch.zeros(5, b)
    elif what == "length":
        v = torch.zeros(b, 4)
    else:
        options = {what: torch.zeros(2, b, dtype=torch.bool if what == "mask" else torch.float32)}
    with pytest.raises(ValueError, match=rf"\b{a}\b.*\b{b}\b"):
        attention(q, k, v, **options)
