"""The tool that breaks attnkit: its rules on tiny sources, a mutant in a running process, and what is kept."""

import json
import os
import time

import pytest
import torch

import attnkit.simplex
from benchmarks.mutants import patch, report
from benchmarks.mutants.fork import Died, Step, run
from benchmarks.mutants.results import Results, Verdict, digest
from benchmarks.mutants.rules import mutants


def changes(statement, rule):
    source = f"def f(a, b):\n    {statement}\n"
    return {mutant.change for mutant in mutants("tiny", source, "tiny.py") if mutant.rule == rule}


@pytest.mark.parametrize(
    ("rule", "statement", "expected"),
    [
        ("arithmetic", "return a + b", {"a + b → a - b"}),
        ("arithmetic", "return a @ b", {"a @ b → b @ a"}),
        ("comparison", "return a < b", {"a < b → a <= b", "a < b → a >= b"}),
        ("comparison", "return a and b", {"a and b → a or b"}),
        ("comparison", "return not a", {"not a → a"}),
        ("constant", "return 3", {"3 → 4", "3 → 2", "3 → 6"}),
        ("constant", "return 0", {"0 → 1", "0 → -1"}),
        ("sign", "return -a", {"-a → a"}),
        ("sign", "return 3", {"3 → -3"}),
        ("axis", "return a.sum(dim=-1)", {"-1 → 0", "-1 → -2"}),
        ("argument dropped", "return f(a, b=b)", {"f(a, b=b) → f(b=b)", "f(a, b=b) → f(a)"}),
        ("arguments swapped", "return f(a, b)", {"f(a, b) → f(b, a)"}),
        ("statement removed", "a = b", {"a = b → nothing"}),
        ("True/False", "return True", {"True → False"}),
        ("min/max", "return a.amax()", {"a.amax → a.amin"}),
        ("range", "return range(a)", {"range(a) → range(a + 1)", "range(a) → range(a - 1)"}),
        ("slice", "return a[:b]", {"x[:b] → x[1:b]", "x[:b] → x[:b + 1]", "x[:b] → x[:b - 1]"}),
    ],
)
def test_a_rule_makes_exactly_these_changes(rule, statement, expected):
    assert changes(statement, rule) == expected


def test_docstrings_annotations_imports_and_error_texts_are_left_alone():
    source = (
        '"""Doc 1."""\nimport os\n__all__ = ["f"]\n'
        'def f(a: 2 = None) -> 3:\n    """Doc 4."""\n    raise ValueError(f"{a + 5}")\n'
    )
    assert mutants("tiny", source, "tiny.py") == []


def test_an_input_check_is_told_from_what_a_module_is_for():
    source = "def f(a):\n    if a < 0:\n        raise ValueError\n    return a + 1\n"
    assert {(m.line, m.check) for m in mutants("tiny", source, "tiny.py")} == {(2, True), (4, False)}


def test_a_key_follows_the_code_and_not_its_comments_or_place():
    keys = [{m.key for m in mutants("tiny", source, "tiny.py")} for source in ("x = 1", "# why\nx = 1", "y = 1")]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def wrong_softmax():
    file = attnkit.simplex.__file__
    with open(file, encoding="utf-8") as source:
        found = mutants("simplex", source.read(), file)
    return next(m for m in found if m.change == "wide - peak → wide + peak")


def outcomes(*steps, workers=2):
    found = {}

    def job(name, step):
        found[name] = yield step

    run((job(name, step) for name, step in enumerate(steps)), workers)
    return [found[name] for name in range(len(steps))]


def test_a_mutant_reaches_functions_that_were_imported_before_and_leaves_this_process_alone():
    softmax, wrong = attnkit.simplex.softmax, wrong_softmax()

    def work():
        patch.apply(wrong)
        return softmax(torch.tensor([0.0, 200.0])).tolist()

    ((first, second),) = outcomes(Step(work, 60))
    assert (first, second) != (0.0, 1.0)  # exp(400) is infinite in float32
    assert softmax(torch.tensor([0.0, 200.0])).tolist() == [0.0, 1.0]


def test_a_step_that_never_ends_or_dies_is_told_from_one_that_answers():
    ended = outcomes(Step(lambda: time.sleep(600), 0.2), Step(lambda: os._exit(3), 60), Step(lambda: [1], 60))
    assert ended == [Died("time limit"), Died("exit code 3"), [1]]


def test_verdicts_outlive_the_run_even_if_its_last_line_was_cut_off(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    kept = Verdict("k", "tests", "tests/test_a.py::test", "failed", "p")
    Results(file).add(kept)
    with file.open("a") as cut:
        cut.write(json.dumps({"key": "l"})[:-1])
    again = Results(file)
    assert again.get("k", "tests") == kept
    assert again.get("l", "tests") is None


def test_a_digest_follows_the_bytes(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    before = digest(file)
    file.write_text("2")
    assert digest(file) != before


ENTRY = '[[equivalent]]\nmodule = "tiny"\nline = "return a + b"\nchanges = ["{}"]\nproof = "{}"\n'


@pytest.mark.parametrize(
    ("change", "proof", "killed", "message"),
    [
        ("a + c → a - c", "because", False, "fits no mutant"),
        ("a + b → a - b", "", False, "lacks a proof"),
        ("a + b → a - b", "because", True, "is killed by a test"),
    ],
)
def test_an_equivalent_is_refused_that_is_stale_unproved_or_killed(tmp_path, change, proof, killed, message):
    found, results = mutants("tiny", "def f(a, b):\n    return a + b\n", "tiny.py"), Results(tmp_path / "verdicts")
    file = tmp_path / "benchmarks/mutants/equivalent.toml"
    file.parent.mkdir(parents=True)
    file.write_text(ENTRY.format("a + b → a - b", "because"), encoding="utf-8")
    assert len(report.equivalents(tmp_path, found, results)) == 1
    for mutant in found if killed else []:
        results.add(Verdict(mutant.key, "tests", "tests/t.py::t", "failed", ""))
    file.write_text(ENTRY.format(change, proof), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        report.equivalents(tmp_path, found, results)


def test_the_table_counts_killed_survivors_and_equivalents(tmp_path):
    found = mutants("tiny", "def f(a, b):\n    return a + b\n", "tiny.py")
    results = Results(tmp_path / "verdicts.jsonl")
    for mutant in found:
        killed = "tests/t.py::t" if mutant.rule == "arithmetic" else None
        results.add(Verdict(mutant.key, "tests", killed, "", ""))
    table = report.table(found, results, set())
    assert "| `tiny` | 2 | 0 | 0 | 1 of 2 = 50.0 % | – |" in table
    assert "- line 2, statement removed: `return a + b → nothing`" in table
    equal = {mutant.key for mutant in found if mutant.rule != "arithmetic"}
    assert "| `tiny` | 2 | 1 | 0 | 1 of 1 = 100.0 % | – |" in report.table(found, results, equal)
    assert "## Survived the tests\n\nNone.\n" in report.table(found, results, equal)
    assert "## Survived the pages" not in report.table(found, results, equal)
