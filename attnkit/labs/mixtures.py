"""Checks of lab 1: softmax, its temperature, and mixtures that stay in the hull of their values."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnkit import claims
from attnkit.labs._check import exercise, expect, expect_shape, near

_SCORES = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [4.0, 0.0, 2.0]], dtype=torch.float64)


@exercise("1.1")
def check_softmax(softmax: Callable[[Tensor], Tensor]) -> None:
    """Exponentials over their sum, along the last axis; square scores, so that no shape helps."""
    weights = softmax(_SCORES)
    expect_shape(weights, (3, 3), "there is one weight for each score; did a sum lose its axis, or keep only that?")
    expect(weights > 0, "a weight is not positive: are the scores exponentiated before they are divided?")
    over_queries = near(weights.sum(0), 1) and not near(weights.sum(-1), 1)
    expect(not over_queries, "every column sums to 1, so you summed over the queries: which axis is the last?")
    expect(not near(weights.sum(), 1), "all nine weights together sum to 1: each row has its own sum, `dim=-1`")
    expect(near(weights.sum(-1), 1), "the rows do not sum to 1: divide by the sum of the same exponentials")
    log_odds = weights[0, 1].log() - weights[0, 0].log()
    expect(near(log_odds, 1), "a lead of 1 must multiply a weight by e: is it the natural exponential?")
    claims.close("lab 1: softmax agrees with torch's", weights, torch.softmax(_SCORES, -1), atol=1e-12)


@exercise("1.2")
def check_stable_softmax(softmax: Callable[[Tensor], Tensor]) -> None:
    """No overflow, no row that vanishes because another is far above it, and still softmax."""
    expect_shape(softmax(_SCORES), (3, 3), "subtracting the largest score must keep the axes, `keepdim=True`")
    high = softmax(torch.tensor([[1000.0, 999.0, 998.0]]))
    expect(high.isfinite(), "scores of 1000 give NaN: what must be subtracted before the exponential?")
    wide = softmax(torch.tensor([[0.0, 1000.0]]))
    expect(wide.isfinite(), "a row from 0 to 1000 gives NaN: subtract its largest score, not its smallest")
    rows = torch.tensor([[1000.0, 999.0, 998.0], [0.0, -1.0, -2.0], [-1000.0, -1001.0, -1002.0]])
    apart = softmax(rows)
    expect(apart.isfinite(), "a low row beside a high one gives NaN: each row needs its own largest score, `dim=-1`")
    expect(near(apart.sum(-1), 1), "the rows no longer sum to 1: subtract the same number from a whole row")
    by_hand = torch.tensor([0.66524096, 0.24472847, 0.09003057])
    claims.close("lab 1: softmax ignores a shift of each row by ±1000", apart, by_hand, atol=1e-6)


@exercise("1.3")
def check_temperature(tempered: Callable[[Tensor, float], Tensor]) -> None:
    """The scores are divided by the temperature, before the softmax."""
    weights = tempered(_SCORES, 0.5)
    expect_shape(weights, (3, 3), "temperature is one number, it changes no shape")
    expect(near(weights.sum(-1), 1), "the rows do not sum to 1: divide the scores by the temperature, not the weights")
    expect(not near(weights, torch.softmax(_SCORES, -1)), "temperature has no effect: is it used?")
    expect(not near(weights, torch.softmax(_SCORES * 0.5, -1)), "cold made it softer: divide by it, do not multiply")
    expect(not near(weights, torch.softmax(_SCORES / 0.25, -1)), "the temperature acts twice: divide by it once")
    logs = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64).log()
    fourteenths = torch.tensor([[1.0, 4.0, 9.0]], dtype=torch.float64) / 14
    claims.close("lab 1: temperature 1/2 squares the ratios 1 : 2 : 3", tempered(logs, 0.5), fourteenths, atol=1e-12)


@exercise("1.4")
def check_mixture(mixture: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Rows of the result are sums over keys, also for a batch."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 3, 3, generator=generator, dtype=torch.float64)
    values = torch.rand(2, 3, 3, generator=generator, dtype=torch.float64)
    out = mixture(weights, values)
    expect_shape(out, (2, 3, 3), "one mixture for each query, in each sequence: (…, T, d_v)")
    expect(not near(out, weights.mT @ values), "the sum runs over the queries: which index of the weights is the key?")
    expect(not near(out, weights @ values.mT), "features were summed: the values must not be transposed")
    expect(not near(out, weights * values), "weights and values were multiplied entry by entry, and nothing summed")
    expected = torch.einsum("bij,bje->bie", weights, values)
    claims.close("lab 1: a mixture is the sum over keys of weight times value", out, expected, atol=1e-12)


@exercise("1.5")
def check_excess(excess: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """The support function separates a point of the bounding box from the hull."""
    values = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    points = torch.tensor([[1 / 3, 1 / 3], [0.9, 0.9]], dtype=torch.float64)
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    found = excess(points, values, directions)
    expect_shape(found, (2,), "one number for each point: the largest over the directions")
    expect(found[0] <= 0, "a point inside is said to be out: compare with the farthest value, not with the nearest")
    expect(found[1] > 0, "(0.9, 0.9) passes, though only the bounding box holds it: use the worst direction")
    reach = torch.tensor([-1 / 3, 0.8], dtype=torch.float64)
    claims.close("lab 1: the centroid is 1/3 inside, (0.9, 0.9) is 0.8 beyond", found, reach, atol=1e-12)
