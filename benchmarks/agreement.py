"""Count how many of the ONNX standard's own cases agree with attnkit, per operator, and say why the others are not run.

    make peers-tables

Runs the tests of those cases and counts what passed; a case that fails ends the command.
"""

import contextlib
import sys
from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "tests" / "peers"


class Tally:
    """Counts the cases that pass, by operator, while pytest runs."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Note the operator of a case whose test has passed."""
        report = yield
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case and call.when == "call" and report.passed:
            self.passed[case.operator] += 1
        return report


def main() -> None:
    tally = Tally()
    tests = map(str, sorted(FOLDER.glob("test_onnx_*.py")))
    with contextlib.redirect_stdout(sys.stderr):
        if status := pytest.main(["-q", "--override-ini", "addopts=", *tests], plugins=[tally]):
            sys.exit(status)
    # pytest has put the folder of the tests on the path.
    import test_onnx_linear
    import test_onnx_recurrent
    from onnx_cases import MODULES, cases

    reasons = test_onnx_linear.LEFT_OUT | test_onnx_recurrent.LEFT_OUT
    print("| operator of ONNX | cases | agree | not run, and why |\n| --- | --- | --- | --- |")
    for operator in sorted(MODULES):
        every = cases(operator)
        why = Counter(reasons[case.name] for case in every if case.name in reasons)
        if tally.passed[operator] + why.total() != len(every):
            sys.exit(f"{operator}: {len(every)} cases, {tally.passed[operator]} passed, {why.total()} left out")
        left_out = "<br>".join(f"{n}: {reason}" for reason, n in why.items())
        print(f"| {operator} | {len(every)} | {tally.passed[operator]} | {left_out} |")


if __name__ == "__main__":
    main()
