"""Checks of lab 3: a causal head, and tests that can tell a good head from a bad one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnkit import claims
from attnkit.labs._check import exercise, expect, expect_shape, near, random
from attnkit.masks import causal_mask
from attnkit.scaled_dot_product import attention


def _causal(x: Tensor) -> Tensor:
    return attention(x, x, x, causal_mask(x.shape[-2]))[0]


def _open(x: Tensor) -> Tensor:
    return attention(x, x, x)[0]


@exercise("3.1")
def check_causal_mask(mask: Callable[[int], Tensor]) -> None:
    """Each query sees itself and the past; True means may see."""
    found = mask(4)
    expect_shape(found, (4, 4), "a row for each query and a column for each key")
    expect(found.dtype == torch.bool, "a mask is boolean: compare positions")
    expect(not torch.equal(found, ~causal_mask(4)), "the mask shows the future only: True means may see")
    expect(not found[2, 3], "your mask lets position 2 see position 3: which index is the query's?")
    expect(found.diagonal(), "no position sees itself, and position 0 sees nothing: j ≤ i, with equality")
    claims.holds("lab 3: query i sees key j exactly if j ≤ i", found == causal_mask(4))


@exercise("3.2")
def check_masked_weights(masked: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Masking comes before the softmax and with minus infinity."""
    scores, mask = random(0, 4, 4), causal_mask(4)
    found = masked(scores, mask)
    expect_shape(found, (4, 4), "masking changes no shape")
    after = torch.softmax(scores, -1) * mask
    expect(not near(found, after), "the rows no longer sum to 1: mask the scores before the softmax, not the weights")
    expect(not near(found, torch.softmax(scores * mask, -1)), "a score of 0 is no mask, it still gets e⁰ = 1: use −inf")
    expect(not near(found, torch.softmax(scores, -1)), "the mask has no effect: masked_fill returns a new tensor")
    hidden = torch.softmax(scores.masked_fill(mask, -torch.inf), -1)
    expect(not near(found[:-1], hidden[:-1]), "the wrong side is hidden: fill where the mask is False")
    low = masked(torch.tensor([[-1e10, 0.0]]).double(), torch.tensor([[True, False]]))
    expect(near(low[0, 0], 1), "a visible score of −10¹⁰ lost against a hidden one: no finite fill is low enough")
    expected = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
    claims.close("lab 3: masked weights are a softmax over the past", found, expected, atol=1e-12)


@exercise("3.3")
def check_perturbation(leaks: Callable[[Callable[[Tensor], Tensor], Tensor, int], Any]) -> None:
    """The test must pass a causal head and catch one that looks ahead."""
    x = random(0, 6, 4)
    kept = x.clone()
    expect(not leaks(_causal, x, 3), "a causal head is accused: outputs from the changed position on may move")
    expect(torch.equal(x, kept), "your test changed the reader's x: work on a clone")
    expect(leaks(_open, x, 3), "a head without a mask passes: change token t, run the head again, compare before t")
    expect(leaks(lambda x: x.flip(0), x, 5), "a leak to position 0 is missed: compare all outputs before the change")
    found = torch.tensor([bool(leaks(f, x, 3)) for f in (_causal, _open)])
    claims.holds("lab 3: a changed token finds the head that looks ahead", found == torch.tensor([False, True]))


@exercise("3.4")
def check_gradient(reach: Callable[[Callable[[Tensor], Tensor], Tensor, int], Tensor]) -> None:
    """The norm of the gradient of one output at every token."""
    x = random(0, 5, 4)
    found = reach(_causal, x, 2)
    expect_shape(found, (5,), "one number for each token: the norm over its features")
    expect(found[3:] == 0, "a causal head gets a gradient from the future: start from output i alone, not from all")
    expect(found[:3] > 0, "a visible token has no gradient: is x a leaf that requires one?")
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_causal(leaf)[2].sum(), leaf)
    expect(not near(found, gradient.abs().amax(-1)), "the largest entry was taken: ask for the norm")
    expect(not near(found, gradient.square().sum(-1)), "the squares were summed: a norm is the root of that")
    claims.close("lab 3: output 2 has a gradient at tokens 0 to 2 only", found, gradient.norm(dim=-1), atol=1e-12)


@exercise("3.5")
def check_order(order_blind: Callable[[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor], Any]) -> None:
    """Permuting rows passes for any layer; only permuting the tokens before positions are added can tell."""
    embedding, positions = random(0, 5, 8), random(1, 5, 8) * 2
    order = torch.tensor([3, 0, 4, 1, 2])
    expect(
        order_blind(_open, embedding, torch.zeros(5, 8), order),
        "attention without positions is said to see order: outputs must be compared in the new order too",
    )
    expect(
        order_blind(_open, embedding, torch.ones(5, 8), order),
        "constant positions mark no place, and yet the outputs differ: add the positions in both runs",
    )
    expect(
        not order_blind(_open, embedding, positions, order),
        "positions go unnoticed. That is the trap: the rows carried them along; permute tokens, leave positions",
    )
    expect(
        not order_blind(_causal, embedding, torch.zeros(5, 8), order),
        "a causal head is called blind to order: compare all the outputs, not their sum",
    )
    found = torch.tensor([bool(order_blind(_open, embedding, p, order)) for p in (0 * positions, positions)])
    claims.holds("lab 3: permuted tokens, not rows, reveal positions", found == torch.tensor([True, False]))
