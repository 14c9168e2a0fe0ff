"""Claims: every way to fail, what the message says, what is printed and what is recorded."""

import re
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from attnkit import claims
from attnkit.claims import Claim, ClaimError, above, below, close, holds

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def records(monkeypatch):
    """A list of records of this test's own."""
    monkeypatch.setattr(claims, "records", [])
    return claims.records


def here():
    """The line this is called on."""
    return sys._getframe(1).f_lineno


def says(message):
    return "^" + re.escape(message) + "$"


# A claim that holds: what is printed and recorded


def test_what_close_prints_and_records(records, capsys):
    close("halves add up", 0.75, 0.5, atol=0.25)
    assert capsys.readouterr().out == "✓ halves add up   off by 0.25, allowed 0.25\n"
    assert records == [Claim("halves add up", "off by 0.25,", "allowed 0.25", here() - 2)]


def test_what_close_prints_with_a_relative_tolerance(records, capsys):
    close("a tenth of forty", 43.0, 40.0, atol=0.5, rtol=0.1)
    assert capsys.readouterr().out == "✓ a tenth of forty   off by 3, allowed 0.5 + 0.1·|expected|\n"
    assert records[0].allowed == "allowed 0.5 + 0.1·|expected|"


def test_what_holds_prints_and_records(records, capsys):
    holds("one is one", True)
    holds("squares are positive", torch.tensor([[1, 2, 3], [4, 5, 6]]) > 0)
    assert capsys.readouterr().out == "✓ one is one   true\n✓ squares are positive   true in all 6 cases\n"
    assert records == [
        Claim("one is one", "true", "", here() - 4),
        Claim("squares are positive", "true in all 6 cases", "", here() - 4),
    ]


def test_what_below_and_above_print_and_record(records, capsys):
    below("a third is small", 1 / 3, 0.5)
    above("a third is large", 1 / 3, 0.25)
    assert capsys.readouterr().out == "✓ a third is small   0.3333 < 0.5\n✓ a third is large   0.3333 > 0.25\n"
    assert records == [
        Claim("a third is small", "0.3333", "< 0.5", here() - 4),
        Claim("a third is large", "0.3333", "> 0.25", here() - 4),
    ]


def test_the_measured_number_is_the_worst_of_a_tensor(records):
    close("several deviations", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.5, 2.75]), atol=1)
    below("several small ones", torch.tensor([0.25, 0.75, 0.5]), 1)
    above("several large ones", torch.tensor([4.0, 2.0, 3.0]), 1)
    assert [claim.measured for claim in records] == ["off by 0.5,", "0.75", "2"]


def test_claims_are_recorded_in_the_order_in_which_they_held(records):
    for i in range(3):
        holds(f"statement {i}", True)
    assert [claim.statement for claim in records] == ["statement 0", "statement 1", "statement 2"]


def test_a_claim_over_several_lines_is_recorded_at_its_first(records):
    first = here() + 1
    close(
        "over several lines",
        1.0,
        1.0,
        atol=1e-12,
    )
    below(
        "also over several lines",
        1.0,
        2.0,
    )
    assert [claim.line for claim in records] == [first, first + 6]


def test_a_claim_made_in_a_function_is_recorded_at_its_own_line(records):
    def check():
        holds("from a function", True)
        return here() - 1

    line = check()
    assert records[0].line == line


def test_the_line_is_that_of_the_script_for_every_kind_of_claim(tmp_path, records):
    script = """from attnkit.claims import *

close('a', 1, 1, atol=0)
holds('b', True)


below('c', 1, 2)
above('d', 2, 1)
"""
    exec(compile(script, tmp_path / "page.py", "exec"), {})
    assert [(claim.statement, claim.line) for claim in records] == [("a", 3), ("b", 4), ("c", 7), ("d", 8)]


def test_a_record_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Claim("a", "1", "< 2", 3).measured = "0"


def test_a_claim_error_is_an_assertion_error():
    assert issubclass(ClaimError, AssertionError)


def test_a_claim_that_fails_is_neither_printed_nor_recorded(records, capsys):
    failing = [
        lambda: close("false", 1, 2, atol=0),
        lambda: holds("false", False),
        lambda: below("false", 2, 1),
        lambda: above("false", 1, 2),
    ]
    for fail in failing:
        with pytest.raises(ClaimError):
            fail()
    assert records == []
    assert capsys.readouterr().out == ""


def test_a_printed_bound_is_never_contradicted_by_the_printed_number(records):
    for value, bound in ((0.49999999, 0.5), (0.33336, 0.33337), (-0.33337, -0.33336), (1 / 3 - 1e-9, 1 / 3)):
        below("under", value, bound)
        above("over", bound, value)
    for under, over in zip(records[::2], records[1::2]):
        assert float(under.measured) < float(under.allowed.removeprefix("< "))
        assert float(over.measured) > float(over.allowed.removeprefix("> "))


def test_the_tolerance_is_stated_as_it_was_given():
    with pytest.raises(
        ClaimError, match=says("✗ a fine tolerance: off by 0.0127, allowed 0.0125; worst at (): 0.0127 against 0")
    ):
        close("a fine tolerance", 0.0127, 0.0, atol=0.0125)
    with pytest.raises(ClaimError, match=r"allowed 0\.125 \+ 0\.0125·\|expected\|;"):
        close("another fine tolerance", 2.0, 1.0, atol=0.125, rtol=0.0125)


# close: what holds


@pytest.mark.parametrize(
    ("actual", "expected", "atol", "rtol"),
    [
        (1.0, 1.0, 0.0, 0.0),
        (1.25, 1.0, 0.25, 0.0),  # at the bound
        (0.75, 1.0, 0.25, 0.0),
        (-8.0, -4.0, 0.0, 1.0),  # |b|, not b
        (9.0, 8.0, 0.5, 0.0625),  # 0.5 + 8/16
        (INF, INF, 0.0, 0.0),
        (-INF, -INF, 0.0, 0.5),
        ([1.0, INF], [1.0, INF], 0.0, 0.0),
        (3, 3.0, 0.0, 0.0),
        (True, 1, 0.0, 0.0),
        (torch.tensor(0.1, dtype=torch.float64), 0.1, 0.0, 0.0),  # a Python number is a double
        ([0.1, 0.2], torch.tensor([0.1, 0.2], dtype=torch.float64), 0.0, 0.0),
        (np.float32(0.5), torch.tensor(0.5, dtype=torch.bfloat16), 0.0, 0.0),
        (np.array([1, 2]), torch.tensor([1, 2]), 0.0, 0.0),
        (torch.tensor([1.0, 2.0], requires_grad=True), (1.0, 2.0), 0.0, 0.0),
    ],
)
def test_close_holds(actual, expected, atol, rtol, records):
    close("they agree", actual, expected, atol=atol, rtol=rtol)
    assert len(records) == 1


def test_close_compares_in_double_precision():
    tiny = torch.tensor(1.0, dtype=torch.float64) + 2**-50
    close("within", tiny, 1.0, atol=2**-50)
    with pytest.raises(ClaimError):
        close("beyond", tiny, 1.0, atol=2**-51)


def test_one_of_the_shapes_must_hold_the_other():
    matrix = torch.arange(15.0).view(3, 5)
    close("a scalar for all", torch.full((3, 5), 7.0), 7.0, atol=0)
    close("a row for all", matrix - matrix[:, :1], torch.arange(5.0), atol=0)
    close("a row against many", torch.arange(5.0), matrix - matrix[:, :1], atol=0)
    close("a column for all", matrix - torch.arange(5.0), matrix[:, :1], atol=0)


# close: what fails


@pytest.mark.parametrize(
    ("actual", "expected", "atol", "rtol"),
    [
        (1.0, 1.0000001, 0.0, 0.0),
        (1.2500001, 1.0, 0.25, 0.0),
        (0.7499999, 1.0, 0.25, 0.0),
        (16.0, 8.0, 0.0, 0.5),  # within half of the actual, not of the expected
        (NAN, 1.0, 1e9, 0.0),
        (1.0, NAN, 1e9, 0.0),
        (NAN, NAN, 1e9, 0.0),
        (NAN, NAN, 1e9, 1e9),
        (INF, 1.0, 1e9, 0.0),
        (1.0, INF, 1e9, 0.0),
        (1.0, INF, 1e9, 0.5),
        (INF, -INF, 1e9, 0.5),
        (-INF, INF, 1e9, 0.0),
        (1.0 + 1e-9, 1.0, 1e-12, 0.0),  # numbers that float32 cannot tell apart
        ([0.1, 0.2], [0.1, 0.2 + 1e-12], 1e-14, 0.0),
        ([1.0, 2.0, NAN], [1.0, 2.0, 3.0], 1e9, 0.0),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], 0.25, 0.0),
    ],
)
def test_close_fails(actual, expected, atol, rtol):
    with pytest.raises(ClaimError, match=r"^✗ they agree: off by .*, allowed .*; worst at \(.*\): .* against .*$"):
        close("they agree", actual, expected, atol=atol, rtol=rtol)


def test_what_close_says_when_it_fails():
    actual = torch.zeros(2, 3, 5)
    actual[1, 2, 3], actual[0, 1, 1] = 1.5, 1.25
    with pytest.raises(
        ClaimError, match=says("✗ all zero: off by 1.5, allowed 0.5; worst at (1, 2, 3): 1.5 against 0")
    ):
        close("all zero", actual, 0.0, atol=0.5)


def test_the_worst_of_close_is_where_the_tolerance_is_exceeded_most():
    # 3 off is within a tenth of 100, 1 off is not within a tenth of 1.
    with pytest.raises(
        ClaimError, match=says("✗ relative: off by 1, allowed 0 + 0.1·|expected|; worst at (1,): 2 against 1")
    ):
        close("relative", [103.0, 2.0], [100.0, 1.0], atol=0, rtol=0.1)


def test_nan_is_worse_than_any_deviation():
    with pytest.raises(ClaimError, match=says("✗ all zero: off by nan, allowed 1; worst at (1,): nan against 0")):
        close("all zero", [5.0, NAN, 7.0], 0.0, atol=1)


@pytest.mark.parametrize(("shape", "other"), [((0,), (0,)), ((0, 3), (3,)), ((0,), ()), ((), (2, 0))])
def test_close_fails_on_nothing(shape, other):
    with pytest.raises(ClaimError, match=says("✗ nothing: nothing to check, the tensor is empty")):
        close("nothing", torch.ones(shape), torch.ones(other), atol=1)


@pytest.mark.parametrize(("shape", "other"), [((3,), (5,)), ((2, 3), (2,)), ((0,), (3,)), ((2, 3), (3, 2))])
def test_close_fails_on_shapes_that_do_not_broadcast(shape, other):
    with pytest.raises(ClaimError, match=says(f"✗ shapes: shapes do not fit, {shape} against {other}")):
        close("shapes", torch.ones(shape), torch.ones(other), atol=1)


@pytest.mark.parametrize(("shape", "other"), [((5, 1), (5,)), ((5,), (5, 1)), ((3, 1), (1, 4)), ((2, 1, 3), (5, 3))])
def test_close_fails_on_shapes_that_broadcast_to_neither_of_the_two(shape, other):
    # A column against a row compares every pair, which nobody means.
    with pytest.raises(ClaimError, match=says(f"✗ shapes: shapes do not fit, {shape} against {other}")):
        close("shapes", torch.ones(shape), torch.ones(other), atol=1)


@pytest.mark.parametrize("tolerance", [INF, NAN, -1e-9])
def test_a_tolerance_must_be_a_number_from_zero_up(tolerance):
    message = f"must be a finite number of at least 0, got {tolerance}$"
    with pytest.raises(ValueError, match=f"^atol {message}"):
        close("anything goes", 1.0, 1.0, atol=tolerance)
    with pytest.raises(ValueError, match=f"^rtol {message}"):
        close("anything goes", 1.0, 1.0, atol=0.0, rtol=tolerance)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_imaginary_part_is_not_dropped():
    with pytest.raises((ClaimError, TypeError)):
        close("conjugates are equal", torch.tensor(1 + 2j), torch.tensor(1 - 2j), atol=0)
    with pytest.raises((ClaimError, TypeError)):
        below("imaginary numbers are ordered", torch.tensor(1 + 2j), 2.0)
    for make in (complex, np.complex64, np.asarray, lambda z: [z], lambda z: np.array([[z]])):
        with pytest.raises((ClaimError, TypeError)):
            close("conjugates are equal", make(1 + 2j), make(1 - 2j), atol=0)


@pytest.mark.parametrize("claim", [lambda: close("text", "1", "1", atol=0), lambda: below("text", "1", 2)])
def test_text_is_no_number(claim):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        claim()


# holds


@pytest.mark.parametrize("condition", [True, torch.tensor(True), torch.ones(2, 3, dtype=torch.bool), [True, True]])
def test_holds_holds(condition, records):
    holds("so it is", condition)
    assert len(records) == 1


def test_holds_takes_numpy(records):
    holds("a number", np.float64(1) < 2)
    holds("an array", np.arange(3) < 3)
    assert [claim.measured for claim in records] == ["true", "true in all 3 cases"]


@pytest.mark.parametrize("condition", [False, torch.tensor(False), np.bool_(False)])
def test_holds_fails_on_false(condition):
    with pytest.raises(ClaimError, match=says("✗ so it is: false in 1 of 1 cases, first at ()")):
        holds("so it is", condition)


def test_holds_says_how_often_and_where_first():
    condition = torch.ones(2, 3, 5, dtype=torch.bool)
    condition[0, 2, 4] = condition[1, 0, 0] = condition[1, 2, 3] = False
    with pytest.raises(ClaimError, match=says("✗ so it is: false in 3 of 30 cases, first at (0, 2, 4)")):
        holds("so it is", condition)


def test_holds_fails_on_nothing():
    for shape in ((0,), (3, 0)):
        with pytest.raises(ClaimError, match=says("✗ so it is: nothing to check, the tensor is empty")):
            holds("so it is", torch.ones(shape, dtype=torch.bool))
    with pytest.raises((ClaimError, TypeError)):
        holds("so it is", [])


@pytest.mark.parametrize(
    ("condition", "dtype"),
    [
        (1, "torch.int64"),
        (1.0, "torch.float32"),
        (np.float64(1), "torch.float64"),
        (torch.ones(3), "torch.float32"),
        (torch.ones(3, dtype=torch.uint8), "torch.uint8"),
        (np.ones(3), "torch.float64"),
    ],
)
def test_holds_wants_a_condition(condition, dtype):
    with pytest.raises(TypeError, match=says(f"condition must be boolean, got {dtype}")):
        holds("so it is", condition)


def test_comparisons_with_nan_are_false_and_so_is_the_claim():
    with pytest.raises(ClaimError, match=r"first at \(1,\)$"):
        holds("not negative", torch.tensor([0.0, NAN]) >= 0)


# below and above


@pytest.mark.parametrize("value", [0.5 - 1e-12, -INF, 0, torch.tensor([0.25, -3.0]), np.array([[0.1]]), [0.1, 0.2]])
def test_below_holds(value, records):
    below("small", value, 0.5)
    assert len(records) == 1


@pytest.mark.parametrize("value", [0.5 + 1e-12, INF, 1, torch.tensor([0.75, 3.0]), np.array([[0.6]]), [0.6, 0.7]])
def test_above_holds(value, records):
    above("large", value, 0.5)
    assert len(records) == 1


@pytest.mark.parametrize("value", [0.5, 0.5 + 1e-12, INF, NAN, 1, torch.tensor([0.25, 0.5]), [NAN, 0.25]])
def test_below_fails(value):
    with pytest.raises(ClaimError, match=r"^✗ small: measured .*, allowed < 0\.5; worst at \(.*\)$"):
        below("small", value, 0.5)


@pytest.mark.parametrize("value", [0.5, 0.5 - 1e-12, -INF, NAN, 0, torch.tensor([0.75, 0.5]), [NAN, 0.75]])
def test_above_fails(value):
    with pytest.raises(ClaimError, match=r"^✗ large: measured .*, allowed > 0\.5; worst at \(.*\)$"):
        above("large", value, 0.5)


@pytest.mark.parametrize("claim", [below, above])
def test_a_bound_that_is_nan_is_met_by_nothing(claim):
    for value in (0.0, INF, -INF, NAN):
        with pytest.raises(ClaimError):
            claim("anything", value, NAN)


@pytest.mark.parametrize("bound", [0.0, -1.5, 2.0])
def test_equality_at_a_bound_is_not_enough(bound):
    for claim in (below, above):
        with pytest.raises(ClaimError):
            claim("equal", bound, bound)


def test_below_and_above_say_what_is_worst_and_where():
    value = torch.arange(30.0).view(2, 3, 5)
    value[0, 1, 2], value[1, 0, 4] = 99.0, -7.0
    with pytest.raises(ClaimError, match=says("✗ small: measured 99, allowed < 29.5; worst at (0, 1, 2)")):
        below("small", value, 29.5)
    with pytest.raises(ClaimError, match=says("✗ large: measured -7, allowed > -0.25; worst at (1, 0, 4)")):
        above("large", value, -0.25)


def test_nan_is_worse_than_any_value():
    with pytest.raises(ClaimError, match=says("✗ small: measured nan, allowed < 1; worst at (1,)")):
        below("small", [5.0, NAN, 7.0], 1)
    with pytest.raises(ClaimError, match=says("✗ large: measured nan, allowed > 1; worst at (2,)")):
        above("large", [-5.0, 2.0, NAN], 1)


@pytest.mark.parametrize("claim", [below, above])
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_below_and_above_fail_on_nothing(claim, shape):
    with pytest.raises(ClaimError, match=says("✗ nothing: nothing to check, the tensor is empty")):
        claim("nothing", torch.ones(shape), 1.0)


def test_a_bound_is_compared_in_double_precision():
    just_under = torch.tensor(1.0, dtype=torch.float64) - 2**-53
    below("just under one", just_under, 1.0)
    with pytest.raises(ClaimError):
        above("just under one", just_under, 1.0)


LARGEST = sys.float_info.max


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        ([float("inf"), 3.0], 4.0),
        ([float("-inf"), -3.0], -4.0),
        ([LARGEST, float("inf")], float("inf")),
        ([float("-inf"), -LARGEST], -LARGEST),
    ],
)
def test_an_infinite_entry_is_ranked_above_or_below_every_finite_one(value, bound):
    with pytest.raises(ClaimError, match="measured"):
        below("infinite", torch.tensor(value, dtype=torch.float64), bound)


def test_bounds_near_the_largest_number_are_compared_as_they_are():
    below("below", 0.9 * LARGEST, 0.95 * LARGEST)
    above("above", 0.95 * LARGEST, 0.9 * LARGEST)
