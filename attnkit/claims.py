r"""Say what a page verified: each claim is checked, printed with its measured number, and recorded.

A claim that fails raises, so a page with a false claim cannot be built.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Claim", "ClaimError", "above", "below", "close", "holds"]


class ClaimError(AssertionError):
    """A claim did not hold; the message says what was measured and what was allowed."""


@dataclass(frozen=True)
class Claim:
    """A claim that held.

    Attributes:
        statement: what is claimed, a sentence.
        measured: the number found, with words that say what it is.
        allowed: what the number was held against.
        line: the line of the script that made the claim.
    """

    statement: str
    measured: str
    allowed: str
    line: int


#: The claims that held in this process, in order; the build takes them from here.
records: list[Claim] = []


def close(statement: str, actual: Any, expected: Any, *, atol: float, rtol: float = 0.0) -> None:
    r"""Claim that two results agree: $|a - b| \le \text{atol} + \text{rtol}\,|b|$ in every entry.

    Args:
        statement: what is claimed, a sentence.
        actual: what was computed; a tensor or anything ``torch.as_tensor`` takes.
        expected: what it should be; the shapes must broadcast to one of the two.
        atol: largest absolute deviation allowed.
        rtol: largest relative deviation allowed, in units of ``expected``.

    Raises:
        TypeError: a result is complex.
        ValueError: a tolerance is negative, infinite or NaN.
        ClaimError: an entry deviates more, is NaN, or there are none to compare.

    Example:
        >>> close("halves add up", 0.5 + 0.5, 1.0, atol=1e-12)
        ✓ halves add up   off by 0, allowed 1e-12
    """
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {tolerance}")
    a, b = _double(actual), _double(expected)
    shapes = tuple(a.shape), tuple(b.shape)
    try:
        a, b = torch.broadcast_tensors(a, b)
    except RuntimeError:
        raise ClaimError(f"✗ {statement}: shapes do not fit, {shapes[0]} against {shapes[1]}") from None
    if tuple(a.shape) not in shapes:  # a column against a row would compare every pair
        raise ClaimError(f"✗ {statement}: shapes do not fit, {shapes[0]} against {shapes[1]}")
    off = torch.where(a == b, 0.0, (a - b).abs())  # equal infinities agree; their difference is NaN
    excess = off - (atol + rtol * b.abs() if rtol else atol)
    allowed = f"{atol:g}" + (f" + {rtol:g}·|expected|" if rtol else "")
    worst = _worst(statement, excess)
    if not excess[worst] <= 0:
        raise ClaimError(
            f"✗ {statement}: off by {off[worst]:.3g}, allowed {allowed}; "
            f"worst at {worst}: {a[worst]:.6g} against {b[worst]:.6g}"
        )
    _record(statement, f"off by {off.max():.2g},", f"allowed {allowed}")


def holds(statement: str, condition: Any) -> None:
    """Claim that a condition is true, in every entry where it is a tensor.

    Args:
        statement: what is claimed, a sentence.
        condition: a boolean, or a boolean tensor with at least one entry.

    Raises:
        TypeError: ``condition`` is not boolean.
        ClaimError: an entry is false, or there are none.

    Example:
        >>> holds("squares are non-negative", torch.tensor([-1.0, 2.0]) ** 2 >= 0)
        ✓ squares are non-negative   true in all 2 cases
    """
    if getattr(condition, "shape", None) == ():  # some versions of torch take NumPy's arrays, not its booleans
        condition = condition[...]  # an array without axes
    true = torch.as_tensor(condition)
    if true.dtype != torch.bool:
        raise TypeError(f"condition must be boolean, got {true.dtype}")
    worst = _worst(statement, (~true).double())
    if not true[worst]:
        raise ClaimError(f"✗ {statement}: false in {(~true).sum()} of {true.numel()} cases, first at {worst}")
    _record(statement, f"true in all {true.numel()} cases" if true.numel() > 1 else "true", "")


def below(statement: str, value: Any, bound: float) -> None:
    """Claim that a measured number stays below a bound (equality is not enough).

    Args:
        statement: what is claimed, a sentence.
        value: the number, or a tensor of which every entry must stay below.
        bound: the bound.

    Raises:
        ClaimError: the value reaches the bound, is NaN, or there is none.

    Example:
        >>> below("a third is under a half", 1 / 3, 0.5)
        ✓ a third is under a half   0.3333 < 0.5
    """
    _record(statement, *_bounded(statement, _double(value), bound, sign=1.0, relation="<"))


def above(statement: str, value: Any, bound: float) -> None:
    """Claim that a measured number stays above a bound (equality is not enough).

    Args:
        statement: what is claimed, a sentence.
        value: the number, or a tensor of which every entry must stay above.
        bound: the bound.

    Raises:
        ClaimError: the value is at or under the bound, is NaN, or there is none.

    Example:
        >>> above("a third is over a quarter", 1 / 3, 0.25)
        ✓ a third is over a quarter   0.3333 > 0.25
    """
    _record(statement, *_bounded(statement, _double(value), bound, sign=-1.0, relation=">"))


def _bounded(statement: str, value: Tensor, bound: float, *, sign: float, relation: str) -> tuple[str, str]:
    worst = _worst(statement, sign * value)
    number, measured, limit = value[worst].item(), f"{value[worst]:.4g}", f"{bound:g}"
    true = sign * number < sign * bound
    if (sign * float(measured) < sign * float(limit)) != true:  # rounding would tell another story
        measured, limit = repr(number), repr(float(bound))
    if not true:
        raise ClaimError(f"✗ {statement}: measured {measured}, allowed {relation} {limit}; worst at {worst}")
    return measured, f"{relation} {limit}"


def _worst(statement: str, badness: Tensor) -> tuple[int, ...]:
    """Index of the largest entry; NaN counts as largest."""
    if badness.numel() == 0:
        raise ClaimError(f"✗ {statement}: nothing to check, the tensor is empty")
    flat = badness.nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=float("-inf")).argmax()
    return tuple(int(i) for i in torch.unravel_index(flat, badness.shape))


def _double(x: Any) -> Tensor:
    """``x`` in float64; a plain number never passes through float32, torch's default."""
    if torch.as_tensor(x).is_complex():
        raise TypeError("claims compare real numbers, got complex ones: claim their real and imaginary parts")
    return x.detach().double() if isinstance(x, Tensor) else torch.as_tensor(x, dtype=torch.float64)


def _record(statement: str, measured: str, allowed: str) -> None:
    line = sys._getframe(2).f_lineno  # of the script that called close, holds, below or above
    records.append(Claim(statement, measured, allowed, line))
    print(f"✓ {statement}   {measured} {allowed}".rstrip())
