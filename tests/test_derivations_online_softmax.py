"""Every numbered equation of docs/derivations/online_softmax.md, in float64.

The recursion is written here as on the page and compared with a softmax over all keys at once, which knows
no tiles.
"""

import itertools
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnkit import attention

INF = math.inf
S, D_V = 13, 3


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=1e-13):
    actual, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (actual, expected))
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def finite_or_zero(m):
    """eq:os-12."""
    return torch.where(m == -INF, 0.0, m)


def empty():
    """State of the empty set, the start of eq:os-9."""
    return (
        torch.tensor(-INF, dtype=torch.float64),
        torch.zeros((), dtype=torch.float64),
        torch.zeros(D_V, dtype=torch.float64),
    )


def one_tile_more(state, s, v):
    """eq:os-8, with the subtraction of eq:os-12."""
    m, total, a = state
    new = torch.maximum(m, s.max())
    reference = finite_or_zero(new)
    c, e = torch.exp(m - reference), torch.exp(s - reference)
    return new, c * total + e.sum(), c * a + e @ v


def state_of(s, v):
    """eq:os-4 with the convention eq:os-5, key by key and from the definition."""
    m = max(s.tolist(), default=-INF)
    weights = [math.exp(x - m) if x > -INF else 0.0 for x in s.tolist()]
    return m, sum(weights), [sum(w * x for w, x in zip(weights, column)) for column in v.T.tolist()]


def results(state):
    """eq:os-7: logsumexp and output."""
    m, total, a = state
    return m + total.log(), a / torch.where(total == 0, 1.0, total)


def directly(s, v):
    """eq:os-1 and eq:os-2, from sums of plain exponentials."""
    Z = sum(math.exp(x) for x in s.tolist())
    z = sum((math.exp(x) * y for x, y in zip(s.tolist(), v)), torch.zeros(D_V, dtype=torch.float64))
    return (math.log(Z), z / Z) if Z > 0 else (-INF, torch.zeros(D_V, dtype=torch.float64))


def scores(hidden=(), seed=0):
    s = 3 * randn(S, seed=seed)
    s[list(hidden)] = -INF
    return s


HIDDEN = {
    "nothing hidden": (),
    "the first tile": (0, 1, 2, 3),
    "a tile in the middle": (4, 5, 6, 7),
    "the last, shorter tile": (12,),
    "all but one key": tuple(j for j in range(S) if j != 6),
    "everything": tuple(range(S)),
}
EVERY_MASK = pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
TILES = {
    "fours and a shorter last one": [range(0, 4), range(4, 8), range(8, 12), range(12, 13)],
    "single keys": [[j] for j in range(S)],
    "one tile": [range(S)],
    "uneven and out of order": [[12, 0, 5], [7], [1, 2, 3, 4, 6, 8], [11, 9, 10]],
}
EVERY_TILING = pytest.mark.parametrize("tiles", TILES.values(), ids=TILES)


# What is to be computed


@EVERY_MASK
def test_two_sums_give_the_logsumexp_and_the_output_of_attention(hidden):
    """eq:os-1, eq:os-2: torch's logsumexp, and attention with identity keys so that the scores are the query."""
    s, v = scores(hidden), randn(S, D_V, seed=1)
    lse, out = directly(s, v)
    exactly(torch.logsumexp(s, 0), lse)
    visible = (s > -INF)[None]
    query = torch.where(s > -INF, s, 0.0)[None]
    exactly(attention(query, torch.eye(S, dtype=torch.float64), v, visible, scale=1.0)[0][0], out)


def test_the_sums_of_disjoint_sets_add():
    """eq:os-3."""
    s, v = scores((2, 9)), randn(S, D_V, seed=1)
    (whole, out), (one, out_one), (two, out_two) = (
        directly(s[part], v[part]) for part in (slice(None), slice(5), slice(5, S))
    )
    exactly(math.exp(whole), math.exp(one) + math.exp(two), atol=1e-11)
    exactly(math.exp(whole) * out, math.exp(one) * out_one + math.exp(two) * out_two, atol=1e-11)


def test_single_precision_overflows_above_88_73_and_loses_very_negative_scores():
    """The numbers after eq:os-3."""
    assert torch.exp(torch.tensor(88.72)).isfinite()
    assert torch.exp(torch.tensor(88.73)) == INF
    assert torch.exp(torch.tensor([-104.0, -200.0])).sum() == 0


# The state and one tile more


@EVERY_MASK
def test_the_state_is_bounded_and_holds_both_results(hidden):
    """eq:os-4, eq:os-5, eq:os-6, eq:os-7."""
    s, v = scores(hidden), randn(S, D_V, seed=1)
    m, total, a = (torch.tensor(part, dtype=torch.float64) for part in state_of(s, v))
    if len(hidden) < S:
        assert 1 <= total <= S - len(hidden)
        assert a.norm() <= total * v.norm(dim=1).max() * (1 + 1e-12)
    else:
        assert (m, total, a.tolist()) == (-INF, 0, [0] * D_V)
    for actual, expected in zip(results((m, total, a)), directly(s, v)):
        exactly(actual, expected)


@EVERY_MASK
@EVERY_TILING
def test_after_each_tile_the_state_is_that_of_the_keys_so_far(tiles, hidden):
    """eq:os-8, eq:os-9: the induction, with all three cases of the proof, up to the output."""
    s, v, state, seen = scores(hidden), randn(S, D_V, seed=1), empty(), []
    for tile in tiles:
        state = one_tile_more(state, s[list(tile)], v[list(tile)])
        seen += tile
        for actual, expected in zip(state, state_of(s[seen], v[seen])):
            exactly(actual, expected)
    for actual, expected in zip(results(state), directly(s, v)):
        exactly(actual, expected)


@EVERY_TILING
def test_scores_that_overflow_alone_are_no_matter_to_the_state(tiles):
    """eq:os-7 at scores near 1000 and near -1000, against the shifted scores."""
    s, v = scores(), randn(S, D_V, seed=1)
    lse, out = directly(s, v)
    for shift in (1000.0, -1000.0):
        state = empty()
        for tile in tiles:
            state = one_tile_more(state, s[list(tile)] + shift, v[list(tile)])
        exactly(results(state)[0], lse + shift, atol=1e-12)
        exactly(results(state)[1], out, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (4, 5, 6, 7)])
def test_the_factors_are_at_most_1_and_their_product_telescopes(hidden):
    """eq:os-10."""
    s, maxima = scores(hidden), []
    for tile in TILES["fours and a shorter last one"]:
        maxima.append(max([*maxima[-1:], s[list(tile)].max().item()]))
    factors = [math.exp(before - after) for before, after in itertools.pairwise(maxima)]
    assert all(0 <= c <= 1 for c in factors)
    for u in range(len(maxima)):
        assert math.prod(factors[u:]) == pytest.approx(math.exp(maxima[u] - maxima[-1]), rel=1e-13)


def test_three_keys_in_two_tiles_by_hand():
    """eq:os-11."""
    s = torch.tensor([2.0, 1.0, 5.0], dtype=torch.float64).log()
    v = torch.tensor([8.0, 0.0, 4.0], dtype=torch.float64)[:, None].expand(3, D_V)
    first = one_tile_more(empty(), s[:2], v[:2])
    second = one_tile_more(first, s[2:], v[2:])
    for actual, expected in zip(first, (math.log(2), 3 / 2, [8.0] * D_V)):
        exactly(actual, expected, atol=1e-15)
    for actual, expected in zip(second, (math.log(5), 8 / 5, [36 / 5] * D_V)):
        exactly(actual, expected, atol=1e-14)
    lse, out = results(second)
    exactly(lse, math.log(8), atol=1e-14)
    exactly(out, [9 / 2] * D_V, atol=1e-14)


# Tiles in which nothing is visible


def test_a_tile_in_which_nothing_is_visible_leaves_every_state_bitwise_as_it_is():
    """eq:os-12: in front, in the middle, at the end."""
    hidden, v = torch.full((4,), -INF, dtype=torch.float64), randn(4, D_V)
    for state in (empty(), one_tile_more(empty(), randn(4, seed=1), v)):
        assert all(torch.equal(*pair) for pair in zip(one_tile_more(state, hidden, v), state))


def test_without_the_replacement_such_a_tile_gives_nan():
    """Before eq:os-12: why it is needed."""
    hidden = torch.full((4,), -INF, dtype=torch.float64)
    assert torch.exp(hidden - hidden.max()).isnan().all()


def test_a_large_negative_number_hides_in_front_and_shows_where_nothing_is_visible():
    """After eq:os-12."""
    v, fill = randn(S, D_V, seed=1), torch.full((4,), -1e9, dtype=torch.float64)
    leaked = one_tile_more(empty(), fill, v[:4])
    exactly(results(leaked)[1], v[:4].mean(0))
    s = scores(range(4))
    exactly(results(one_tile_more(leaked, s[4:], v[4:]))[1], directly(s, v)[1])


# Merging


def merge(one, other):
    """eq:os-13, relative to the larger logsumexp."""
    reference = finite_or_zero(torch.maximum(one[0], other[0]))
    lse = reference + torch.log(torch.exp(one[0] - reference) + torch.exp(other[0] - reference))
    finite = finite_or_zero(lse)
    return lse, torch.exp(one[0] - finite) * one[1] + torch.exp(other[0] - finite) * other[1]


IDENTITY = (torch.tensor(-INF, dtype=torch.float64), torch.zeros(D_V, dtype=torch.float64))


def pair(seed):
    return 5 * randn(seed=seed), randn(D_V, seed=seed + 100)


def same(one, other, atol=1e-13):
    exactly(one[0], other[0], atol)
    exactly(one[1], other[1], atol)


@EVERY_MASK
def test_the_merged_result_is_that_of_the_union_for_every_cut(hidden):
    """eq:os-13."""
    s, v = scores(hidden), randn(S, D_V, seed=1)
    whole = directly(s, v)
    for cut in range(S + 1):
        parts = [directly(s[part], v[part]) for part in (slice(cut), slice(cut, S))]
        same(merge(*[(torch.tensor(lse, dtype=torch.float64), out) for lse, out in parts]), whole)


def test_the_merged_output_lies_on_the_segment_at_the_logistic_function_of_the_difference():
    """eq:os-14."""
    (one, out_one), (two, out_two) = pair(1), pair(2)
    lse, out = merge((one, out_one), (two, out_two))
    share = torch.sigmoid(one - two)
    exactly(torch.exp(one - lse), share)
    exactly(torch.exp(two - lse), 1 - share)
    exactly(out, out_two + share * (out_one - out_two))


@pytest.mark.parametrize("seeds", list(itertools.combinations(range(6), 3)))
def test_merging_is_associative_and_commutative(seeds):
    """The claim before eq:os-15."""
    a, b, c = (pair(seed) for seed in seeds)
    same(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert all(torch.equal(*parts) for parts in zip(merge(a, b), merge(b, a)))


def test_minus_infinity_and_zero_are_the_identity_bitwise():
    """The claim before eq:os-15, for an ordinary pair and for the identity itself."""
    for other in (pair(1), IDENTITY):
        assert all(torch.equal(*parts) for parts in zip(merge(IDENTITY, other), other))
        assert all(torch.equal(*parts) for parts in zip(merge(other, IDENTITY), other))


def test_exponentials_turn_merging_into_addition_and_back():
    """eq:os-15."""

    def phi(p):
        return p[0].exp(), p[0].exp() * p[1]

    for one, other in itertools.product([pair(1), pair(2), pair(3), IDENTITY], repeat=2):
        merged = phi(merge(one, other))
        for actual, x, y in zip(merged, phi(one), phi(other)):
            torch.testing.assert_close(actual, x + y, atol=0, rtol=1e-12)
    Z, z = phi(pair(1))
    same((Z.log(), z / Z), pair(1))


def test_many_parts_are_merged_by_attention_over_the_parts():
    """eq:os-16: by a loop of merges, by a tree of them, and by attention with scores lse and values out."""
    parts = [pair(seed) for seed in range(7)]
    lse, out = torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts])
    at_once = torch.logsumexp(lse, 0), attention(lse[None], torch.eye(7, dtype=torch.float64), out, scale=1.0)[0][0]
    loop = IDENTITY
    for p in parts:
        loop = merge(loop, p)
    tree = list(parts)
    while len(tree) > 1:
        tree = [merge(*tree[i : i + 2]) if i + 1 < len(tree) else tree[i] for i in range(0, len(tree), 2)]
    same(loop, at_once)
    same(tree[0], at_once)


def test_a_part_merged_twice_counts_twice():
    """eq:os-17: the output alone stays, but no longer when a third part follows."""
    p, other = pair(1), pair(2)
    same(merge(p, p), (p[0] + math.log(2), p[1]))
    assert (merge(merge(p, p), other)[1] - merge(p, other)[1]).norm() > 1e-3


def test_an_empty_part_must_not_hold_nan():
    """The third remark after eq:os-15."""
    assert merge((IDENTITY[0], IDENTITY[1] * math.nan), pair(1))[1].isnan().all()
    assert torch.equal(merge((IDENTITY[0], IDENTITY[1] + 7), pair(1))[1], pair(1)[1])


def test_rounding_makes_the_last_digits_depend_on_the_order():
    """The fourth remark after eq:os-15: some of twenty triples differ, and none by more than rounding."""
    differences = []
    for seed in range(20):
        a, b, c = pair(seed), pair(seed + 20), pair(seed + 40)
        differences.append((merge(merge(a, b), c)[1] - merge(a, merge(b, c))[1]).abs().max().item())
    assert 0 < max(differences) < 1e-14


# Gradients by recomputation

T, KEYS, D_K = 5, 7, 2
MASK = torch.ones(T, KEYS, dtype=torch.bool).tril(1)
MASK[3] = False  # a query that sees nothing


def tensors():
    q, k, v = randn(T, D_K, seed=1), randn(KEYS, D_K, seed=2), randn(KEYS, D_V, seed=3)
    return q, k, v, randn(T, D_V, seed=4), randn(T, seed=5)


def masked_scores(q, k):
    return (q @ k.T / math.sqrt(D_K)).masked_fill(~MASK, -INF)


def logsumexp_of_rows(s):
    """ln Σ exp of the visible scores of each row; −inf, without a gradient, where there are none."""
    sums = torch.where(MASK, s, 0.0).exp().mul(MASK).sum(1)
    return torch.where(sums > 0, torch.where(sums > 0, sums, 1.0).log(), -INF)


def by_blocks(q, k, v, out, lse, g, mu=None, block=2):
    """eq:os-18, eq:os-20 to eq:os-22, from blocks of scores: gradients by q, k and v."""
    D, beta = (g * out).sum(1), 1 / math.sqrt(D_K)
    mu = torch.zeros_like(D) if mu is None else mu
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for rows, keys in itertools.product(torch.arange(T).split(block), torch.arange(KEYS).split(block)):
        s = (beta * q[rows] @ k[keys].T).masked_fill(~MASK[rows][:, keys], -INF)
        weights = torch.exp(s - finite_or_zero(lse[rows])[:, None])
        ds = weights * (g[rows] @ v[keys].T - D[rows, None] + mu[rows, None])
        dv[keys] += weights.T @ g[rows]
        dq[rows] += beta * ds @ k[keys]
        dk[keys] += beta * ds.T @ q[rows]
    return dq, dk, dv


def test_one_number_per_query_gives_back_every_weight():
    """eq:os-18, a query that sees nothing included."""
    q, k, v, *_ = tensors()
    s = masked_scores(q, k)
    weights = torch.exp(s - finite_or_zero(torch.logsumexp(s, 1))[:, None])
    exactly(weights, attention(q, k, v, MASK)[1], atol=1e-15)
    assert not weights[3].any()


def test_the_differentials_of_output_and_logsumexp():
    """eq:os-19, along a random direction of scores and values, against forward-mode autograd."""
    s, v, ds, dv = randn(KEYS, seed=1), randn(KEYS, D_V, seed=2), randn(KEYS, seed=3), randn(KEYS, D_V, seed=4)

    def both(s, v):
        Z = s.exp().sum()
        return (s.exp() @ v) / Z, Z.log()

    (out, _), (d_out, d_lse) = torch.autograd.functional.jvp(both, (s, v), (ds, dv))
    weights = [math.exp(x) / sum(math.exp(y) for y in s.tolist()) for x in s.tolist()]
    exactly(d_out, sum(w * (dv[j] + (v[j] - out) * ds[j]) for j, w in enumerate(weights)))
    exactly(d_lse, sum(w * ds[j] for j, w in enumerate(weights)))


def test_the_row_sum_of_the_softmax_gradient_is_the_gradient_times_the_output():
    """eq:os-20: D, for each query."""
    q, k, v, g, _ = tensors()
    out, weights = attention(q, k, v, MASK)
    exactly((weights * (g @ v.T)).sum(1), (g * out).sum(1))


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_gradients_from_blocks_equal_those_of_autograd(block):
    """eq:os-18, eq:os-20, eq:os-21; no NaN for the query that sees nothing."""
    q, k, v, g, _ = tensors()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, _ = attention(*leaves, MASK)
    out.backward(g)
    lse = torch.logsumexp(masked_scores(q, k), 1)
    for actual, leaf in zip(by_blocks(q, k, v, out.detach(), lse, g, block=block), leaves):
        exactly(actual, leaf.grad)


def test_gradients_through_the_logsumexp_too_equal_those_of_autograd():
    """eq:os-22."""
    q, k, v, g, mu = tensors()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, _ = attention(*leaves, MASK)
    lse = logsumexp_of_rows(leaves[0] @ leaves[1].T / math.sqrt(D_K))
    sees = MASK.any(1)
    ((out * g).sum() + (lse * mu)[sees].sum()).backward()
    for actual, leaf in zip(by_blocks(q, k, v, out.detach(), lse.detach(), g, mu * sees), leaves):
        exactly(actual, leaf.grad)


@pytest.mark.parametrize("detach", [True, False])
def test_the_running_maximum_is_a_constant_to_the_gradient(detach):
    """The remark after eq:os-22, by autograd through the recursion, with the maximum detached and without."""
    s, v, g = scores(range(4)), randn(S, D_V, seed=1), randn(D_V, seed=2)

    def online(s, v):
        m, total, a = empty()
        for tile in TILES["fours and a shorter last one"]:
            tile_s, tile_v = s[list(tile)], v[list(tile)]
            new = torch.maximum(m, tile_s.max())
            new = new.detach() if detach else new
            reference = finite_or_zero(new)
            c, e = torch.exp(m - reference), torch.exp(tile_s - reference)
            m, total, a = new, c * total + e.sum(), c * a + e @ tile_v
        return a / total

    def at_once(s, v):
        return torch.softmax(s, 0) @ v

    for function in (online, at_once):
        leaves = [s.clone().requires_grad_(), v.clone().requires_grad_()]
        function(*leaves).backward(g)
        if function is online:
            gradients = [leaf.grad for leaf in leaves]
    for actual, leaf in zip(gradients, leaves):
        exactly(actual, leaf.grad)


def test_the_backward_pass_has_five_products_where_the_forward_pass_has_two():
    """The last paragraph on gradients: three products of width d_k and two of width d_v, by PyTorch's counter."""
    q, k, v, g, _ = tensors()
    with FlopCounterMode(display=False) as forward:
        out, _ = attention(q, k, v, MASK)
    lse = torch.logsumexp(masked_scores(q, k), 1)
    with FlopCounterMode(display=False) as backward:
        by_blocks(q, k, v, out, lse, g)
    assert forward.get_total_flops() == 2 * T * KEYS * (D_K + D_V)
    assert backward.get_total_flops() == 2 * T * KEYS * (3 * D_K + 2 * D_V)
