"""Checks of lab 5: sinusoidal encodings and rotary positions."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnkit import claims
from attnkit.labs._check import exercise, expect, expect_shape, near, random
from attnkit.rotary import rotate
from attnkit.sinusoidal import sinusoidal_encoding

_OMEGA = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)


@exercise("5.1")
def check_frequencies(frequencies: Callable[[int], Tensor]) -> None:
    """One frequency for each pair, from 1 downwards."""
    found = frequencies(8)
    expect_shape(found, (4,), "one frequency for each pair of features, so half as many as features")
    expect(near(found[0], 1), "the first pair turns by 1 radian per token: pair 0 has the exponent 0")
    expect(found[1] < 1, "frequencies grow: the exponent is negative")
    expect(
        not near(found[1], 0.01, 1e-4),
        "each step is a hundredth of the one before: the exponent is 2p/d, the feature's number once",
    )
    expect(not near(found[1], 10**-0.5, 1e-4), "the exponent is half of what it should be: 2p/d, not p/d")
    claims.close("lab 5: frequencies at width 8 are 1, 0.1, 0.01, 0.001", found, _OMEGA, atol=1e-6)


@exercise("5.2")
def check_sinusoidal(encode: Callable[[Tensor, int], Tensor]) -> None:
    """Sine and cosine side by side, sharing a frequency."""
    positions = torch.arange(5)
    found = encode(positions, 8)
    expect_shape(found, (5, 8), "a row for each position, a column for each feature")
    expected = sinusoidal_encoding(positions, 8).to(found.dtype)
    expect(not near(found[0, 0], 1), "position 0 begins with 1: the sine comes first")
    halves = torch.cat([expected[:, 0::2], expected[:, 1::2]], -1)
    expect(not near(found, halves), "all sines come before all cosines: here they alternate, pair by pair")
    expect(not near(found[:, 1], found[:, 0]), "both features of a pair are the same: one is a sine, one a cosine")
    one_on = sinusoidal_encoding(positions + 1, 8).to(found.dtype)
    expect(not near(found, one_on), "the first position is taken as 1: positions count from 0")
    claims.close("lab 5: the encoding is attnkit's, sine and cosine in turn", found, expected, atol=1e-6)


@exercise("5.3")
def check_shift(shift: Callable[[Tensor, int], Tensor]) -> None:
    """A shift turns each pair and knows nothing of the position."""
    pe = sinusoidal_encoding(torch.arange(12).double(), 8)
    found = shift(pe[:5], 7)
    expect_shape(found, (5, 8), "a shifted encoding is as wide as before")
    expect(not near(found, pe[:5] + pe[7]), "encodings were added: a shift is a rotation of each pair")
    back = sinusoidal_encoding(torch.arange(5).double() - 7, 8)
    expect(not near(found, back), "the encoding moved back: the sine of a sum has a plus, sin·cos + cos·sin")
    expect(near(found.square().sum(-1), 4), "lengths have changed: cos(a + b) = cos·cos − sin·sin, mind the minus")
    claims.close("lab 5: turning by 7 moves an encoding by 7 tokens", found, pe[7:], atol=1e-6)


@exercise("5.4")
def check_rotary(rotary: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Neighbours turn together, counter-clockwise, by position times frequency."""
    x, positions = random(1, 4, 8), torch.tensor([0, 1, 5, 9])
    found = rotary(x, positions)
    expect_shape(found, (4, 8), "turning changes no shape")
    expect(near(found[0], x[0]), "position 0 was turned: its angle is 0")
    expect(not near(found, rotate(x, -positions)), "turned clockwise: the minus belongs to the first feature")
    half = rotate(x, positions, layout="half")
    expect(not near(found, half), "feature p was paired with p + d/2: here neighbours 2p and 2p + 1 turn together")
    expect(near(found.norm(dim=-1), x.norm(dim=-1)), "lengths have changed: a rotation has one minus sign, in one row")
    claims.close("lab 5: neighbours turn by position times frequency", found, rotate(x, positions), atol=1e-6)


@exercise("5.5")
def check_rotary_scores(scores: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Both sides are turned, so only the distance is left."""
    q, k, positions = random(1, 6, 8), random(2, 6, 8), torch.arange(6)
    found = scores(q, k, positions)
    expect_shape(found, (6, 6), "a row for each query and a column for each key")
    product = q @ k.mT / 8**0.5
    expect(not near(found, product), "nothing is turned: the scores do not know the positions")
    turned_q, turned_k = rotate(q, positions), rotate(k, positions)
    expect(not near(found, turned_q @ k.mT / 8**0.5), "only the queries are turned: the score sees i, not i − j")
    expect(not near(found, q @ turned_k.mT / 8**0.5), "only the keys are turned: the score sees j, not i − j")
    opposed = turned_q @ rotate(k, -positions).mT / 8**0.5
    expect(not near(found, opposed), "query and key turn in opposite senses: the score sees i + j, not i − j")
    expect(not near(found, turned_q @ turned_k.mT), "the scale 1/√d_k is missing")
    expect(near(found, turned_q @ turned_k.mT / 8**0.5), "the scores are not those of turned queries and keys")
    moved = scores(q, k, positions + 100)
    claims.close("lab 5: rotary scores stay when all positions grow by 100", moved, found, atol=1e-4)
