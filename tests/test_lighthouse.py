"""What Lighthouse is given to judge, and which results are good enough."""

import gzip
import urllib.request

import pytest

from benchmarks import lighthouse

PAGE = "part/page"
GOOD = {"performance": 95.0, "accessibility": 100.0, "best-practices": 100.0, "seo": 100.0, "shift": 0.0}
FONT = '<link rel="preload" href="../math.woff2" as="font">'
HTML = f"<title>T</title>{FONT}<p>On <math><mi>x</mi></math>, <math>\n</math>."


def test_pages_come_compressed_with_and_without_their_formulas_in_turn(tmp_path, monkeypatch):
    (tmp_path / PAGE).mkdir(parents=True)
    (tmp_path / PAGE / "index.html").write_text(HTML, encoding="utf-8")
    loads = []

    def scores(url, browser):
        with urllib.request.urlopen(url) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            loads.append(gzip.decompress(answer.read()).decode())
        return GOOD | {"performance": float(len(loads))}

    monkeypatch.setattr(lighthouse, "scores", scores)
    row = lighthouse.measured(tmp_path, PAGE, "browser")
    assert loads == [HTML, "<title>T</title><p>On , ."] * 5
    assert row.formulas == 2
    assert (row.whole["performance"], row.bare["performance"]) == (5.0, 6.0)  # medians of 1, 3, … and 2, 4, …


@pytest.mark.parametrize(
    ("whole", "bare", "goal"),
    [
        ({}, {}, None),
        ({"seo": 99.0}, {}, "seo: 99, not 100"),
        ({"performance": 89.0}, {"performance": 89.0}, "performance: 89, not 90"),
        ({"performance": 90.0}, {"performance": 98.5}, "more than 8 below"),
        ({"shift": 0.011}, {}, "layout shift: 0.011"),
    ],
)
def test_a_goal_that_is_missed_is_named(whole, bare, goal):
    missed = lighthouse.missed(lighthouse.Row(PAGE, 2, GOOD | whole, GOOD | bare))
    assert len(missed) == (goal is not None)
    assert all(goal in said for said in missed)
