"""Additive attention: by hand, against the formula in loops, and by its laws.

The sizes are different primes: B = 2, T = 3, S = 5, d_query = 7, d_key = 11, d_attn = 13, d_v = 17.
"""

import math

import pytest
import torch

from attnkit.additive import AdditiveAttention


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def filled(d_query=7, d_key=11, d_attn=13, seed=0):
    """The module in float64, every parameter drawn from its own seed."""
    additive = AdditiveAttention(d_query, d_key, d_attn).double()
    with torch.no_grad():
        for i, weight in enumerate(additive.parameters()):
            weight.copy_(randn(*weight.shape, seed=seed + 17 * i))
    return additive


def of_ones():
    additive = AdditiveAttention(1, 1, 1).double()
    for weight in additive.parameters():
        torch.nn.init.ones_(weight)
    return additive


def inputs():
    return randn(2, 3, 7, seed=1), randn(2, 5, 11, seed=2), randn(2, 5, 17, seed=3)


def by_loop(additive, query, keys, values):
    """One query after the other, one key after the other; scores in plain Python."""
    W_q, W_k, w = additive.query.weight.tolist(), additive.key.weight.tolist(), additive.score.weight[0].tolist()

    def score(q, k):
        hidden = [
            sum(a * b for a, b in zip(row_q, q)) + sum(a * b for a, b in zip(row_k, k))
            for row_q, row_k in zip(W_q, W_k)
        ]
        return sum(a * math.tanh(h) for a, h in zip(w, hidden))

    scores = torch.tensor(
        [[[score(q, k) for k in ks] for q in qs] for qs, ks in zip(query.tolist(), keys.tolist())], dtype=torch.float64
    )
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return weights @ values, weights


# by hand


def test_additive_score_of_one_query_and_two_keys():
    query, keys = torch.tensor([[0.5]]).double(), torch.tensor([[0.0], [1.0]]).double()
    out, weights = of_ones()(query, keys)
    exactly(weights, torch.tensor([[0.391019, 0.608981]]).double(), atol=5e-7)
    exactly(out, torch.tensor([[0.608981]]).double(), atol=5e-7)  # the mean of the keys themselves


def test_additive_score_changes_with_the_keys_and_with_the_query():
    query, keys = torch.tensor([[0.5]]).double(), torch.tensor([[0.0], [1.0]]).double()
    exactly(of_ones()(query, -keys)[1], torch.tensor([[0.715904, 0.284096]]).double(), atol=5e-7)
    exactly(of_ones()(4 * query, keys)[1], torch.tensor([[0.492244, 0.507756]]).double(), atol=5e-7)


def test_additive_score_without_tanh_would_forget_the_query():
    """Near 0 the tanh is the identity: the weights tend to those of W_k k alone, (.268941, .731059) here."""
    additive = of_ones()
    with torch.no_grad():
        for weight, factor in zip(additive.parameters(), (1e-4, 1e-4, 1e4)):
            weight.mul_(factor)
    keys = torch.tensor([[0.0], [1.0]]).double()
    for query in (0.5, -3.0):
        exactly(
            additive(torch.tensor([[query]]).double(), keys)[1],
            torch.tensor([[0.268941, 0.731059]]).double(),
            atol=1e-6,
        )


# against loops


def test_the_batched_module_equals_loops_over_the_formula():
    query, keys, values = inputs()
    additive = filled()
    for actual, expected in zip(additive(query, keys, values), by_loop(additive, query, keys, values)):
        exactly(actual, expected)


def test_keys_serve_as_values_unless_others_are_given():
    query, keys, _ = inputs()
    additive = filled()
    for actual, expected in zip(additive(query, keys), additive(query, keys, keys)):
        assert torch.equal(actual, expected)


def test_weights_do_not_depend_on_the_values():
    query, keys, values = inputs()
    assert torch.equal(filled()(query, keys, values)[1], filled()(query, keys, 2 * values + 1)[1])


def test_gradients_of_all_inputs_and_parameters_are_right():
    additive = filled(2, 3, 5)
    query, keys, values = (randn(*shape, seed=i).requires_grad_() for i, shape in enumerate([(2, 2), (3, 3), (3, 2)]))

    def out_and_weights(query, keys, values, *parameters):
        return torch.func.functional_call(additive, dict(zip(names, parameters)), (query, keys, values))

    names = [name for name, _ in additive.named_parameters()]
    assert torch.autograd.gradcheck(out_and_weights, (query, keys, values, *additive.parameters()))


# one query per set of keys


def test_a_single_query_is_the_row_of_a_query_axis_of_one():
    query, keys, values = inputs()
    additive = filled()
    out, weights = additive(query[:, 1], keys, values)
    expected_out, expected_weights = additive(query, keys, values)
    assert (out.shape, weights.shape) == ((2, 17), (2, 5))
    exactly(out, expected_out[:, 1])
    exactly(weights, expected_weights[:, 1])
    exactly(additive(query[1, 1], keys[1], values[1])[0], expected_out[1, 1])


def test_the_mask_of_a_single_query_has_the_shape_of_its_weights():
    query, keys, values = inputs()
    mask = torch.tensor([[True, True, False, False, False], [True, False, True, True, False]])
    additive = filled()
    out, weights = additive(query[:, 1], keys, values, mask)
    assert (weights[~mask] == 0).all()
    exactly(out, additive(query, keys, values, mask[:, None])[0][:, 1])
    short = additive(query[:, 1], keys[:, :2], values[:, :2])
    exactly(additive(query[:, 1], keys, values, mask[0])[0], short[0])


# shapes


def test_leading_axes_are_kept_and_broadcast():
    query, keys, values = inputs()
    additive = filled()
    out, weights = additive(query, keys, values)
    more = additive(query.expand(19, 2, 3, 7), keys, values)
    assert more[0].shape == (19, 2, 3, 17)
    assert more[1].shape == (19, 2, 3, 5)
    exactly(more[0][4], out)
    exactly(additive(query[0], keys[0], values[0])[1], weights[0])


def test_two_lengths_in_a_row_through_additive_attention():
    additive = filled()
    query, keys, values = inputs()
    long = randn(2, 11, 11, seed=5)
    first = additive(query, keys, values)
    assert additive(query, long)[1].shape == (2, 3, 11)
    for actual, expected in zip(additive(query, keys, values), first):
        assert torch.equal(actual, expected)


def test_no_keys_give_output_zero():
    out, weights = filled()(randn(2, 3, 7), randn(2, 0, 11), randn(2, 0, 17))
    assert weights.shape == (2, 3, 0)
    assert torch.equal(out, torch.zeros(2, 3, 17, dtype=torch.float64))


# masks


def test_masking_a_key_equals_deleting_it():
    query, keys, values = inputs()
    additive = filled()
    mask = torch.tensor([True, False, True, True, False])
    out, weights = additive(query, keys, values, mask)
    expected_out, expected_weights = additive(query, keys[:, mask], values[:, mask])
    exactly(out, expected_out)
    exactly(weights[..., mask], expected_weights)
    assert (weights[..., ~mask] == 0).all()


def test_a_query_that_sees_no_key_gets_output_zero_and_finite_gradients():
    additive = filled()
    query, keys, values = (x.requires_grad_() for x in inputs())
    mask = torch.tensor([[True] * 5, [False] * 5, [False, True, True, False, False]])
    out, weights = additive(query, keys, values, mask)
    assert (weights[:, 1] == 0).all()
    assert (out[:, 1] == 0).all()
    exactly(weights[:, [0, 2]].sum(-1), torch.ones(2, 2, dtype=torch.float64))
    out.sum().backward()
    assert (query.grad[:, 1] == 0).all()
    assert all(x.grad.isfinite().all() for x in (query, keys, values, *additive.parameters()))


# laws


def test_weights_follow_a_permutation_of_the_keys_and_the_output_stays():
    query, keys, values = inputs()
    additive, order = filled(), torch.tensor([3, 0, 4, 1, 2])
    out, weights = additive(query, keys, values)
    permuted_out, permuted_weights = additive(query, keys[:, order], values[:, order])
    exactly(permuted_out, out)
    exactly(permuted_weights, weights[..., order])


def test_scores_are_bounded_however_long_queries_and_keys_are():
    query, keys, _ = inputs()
    additive = filled()
    weights = additive(1e6 * query, 1e6 * keys)[1]
    bound = math.exp(2 * additive.score.weight.abs().sum().item())
    assert (weights.amax(-1) <= bound * weights.amin(-1)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_and_in_its_dtype(dtype):
    out, weights = filled().to(dtype)(torch.full((3, 7), 200.0, dtype=dtype), torch.full((5, 11), 200.0, dtype=dtype))
    assert out.dtype == weights.dtype == dtype
    assert out.isfinite().all()
    assert torch.equal(weights, torch.full((3, 5), 0.2, dtype=dtype))


def test_there_are_three_matrices_and_no_bias():
    shapes = {name: tuple(weight.shape) for name, weight in AdditiveAttention(7, 11, 13).named_parameters()}
    assert shapes == {"query.weight": (13, 7), "key.weight": (13, 11), "score.weight": (1, 13)}


# errors


def test_widths_must_be_those_of_the_module():
    query, keys, values = inputs()
    with pytest.raises(ValueError, match=r"^query must have shape \(\.\.\., d_query\) with width 7, got \(2, 3, 5\)$"):
        filled()(query[..., :5], keys, values)
    with pytest.raises(ValueError, match=r"^keys must have shape \(\.\.\., S, d_key\) with width 11, got \(2, 5, 7\)$"):
        filled()(query, keys[..., :7], values)
    with pytest.raises(ValueError, match=r"^keys must have shape \(\.\.\., S, d_key\) with width 11, got \(11,\)$"):
        filled()(query, keys[0, 0], values)


def test_keys_and_values_must_hold_the_same_number_of_tokens():
    query, keys, values = inputs()
    message = (
        r"^keys and values must hold the same number of tokens: "
        r"keys have shape \(2, 5, 11\), values have shape \(2, 3, 17\)$"
    )
    with pytest.raises(ValueError, match=message):
        filled()(query, keys, values[:, :3])


def test_leading_axes_must_broadcast():
    query, keys, values = inputs()
    with pytest.raises(ValueError, match=r"query and keys do not broadcast: query has \(3,\), keys has \(2,\)$"):
        filled()(randn(3, 3, 7), keys, values)
    with pytest.raises(ValueError, match=r"keys and values do not broadcast: keys has \(2,\), values has \(3,\)$"):
        filled()(query, keys, randn(3, 5, 17))


def test_the_mask_must_be_boolean_and_fit_the_weights():
    query, keys, values = inputs()
    with pytest.raises(TypeError, match=r"^mask must be boolean \(True: may see\), got torch.float32$"):
        filled()(query, keys, values, torch.ones(3, 5))
    message = r"^mask must broadcast to the weights: mask has shape {}, the weights have shape \(2, 3, 5\)$"
    for shape in ((3, 7), (2, 1, 1, 5)):
        with pytest.raises(ValueError, match=message.format(str(shape).replace("(", r"\(").replace(")", r"\)"))):
            filled()(query, keys, values, torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize(("S", "d_v"), [(1, 3), (3, 1)])
def test_a_single_query_loses_its_own_axis_only(S, d_v):
    out, weights = filled(2, 3, 5)(randn(1, 2), randn(1, S, 3), randn(1, S, d_v))
    assert (out.shape, weights.shape) == ((1, d_v), (1, S))


def test_a_query_without_an_axis_and_values_without_tokens_are_named():
    with pytest.raises(ValueError, match="query must have shape"):
        filled(2, 3, 5)(randn(), randn(4, 3))
    with pytest.raises(ValueError, match="keys and values must hold the same number of tokens"):
        filled(2, 3, 5)(randn(1, 2), randn(4, 3), randn(4))
