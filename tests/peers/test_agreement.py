"""The published counts name every operator of the standard that is compared, with as many cases as it has."""

import re
from pathlib import Path

from onnx_cases import MODULES, cases

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "agreement.md"


def test_the_published_counts_are_those_of_the_standard():
    counted = dict(re.findall(r"^\| (\w+) \| (\d+) \|", TABLE.read_text(encoding="utf-8"), re.M))
    assert counted == {operator: str(len(cases(operator))) for operator in MODULES}
