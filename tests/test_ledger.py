"""Every claim of a build is listed once, with its page, section and line."""

import json
import re

from hooks import ledger, plugin


def test_the_site_lists_every_claim_that_its_pages_print(site):
    listed = json.loads((site / "claims.json").read_text(encoding="utf-8"))
    printed = 0
    for page in [*site.glob("gallery/*/*/index.html"), *site.glob("labs/*/index.html")]:
        printed += len(re.findall(r"^(?:<[^>]+>)*✓ ", page.read_text(encoding="utf-8"), re.M))
    assert len(listed) == printed
    assert {tuple(sorted(entry)) for entry in listed} == {
        ("address", "allowed", "measured", "page", "section", "source", "statement", "title")
    }


def test_the_home_page_and_the_list_give_the_number_of_claims(site):
    count = len(json.loads((site / "claims.json").read_text(encoding="utf-8")))
    assert f"{count:,} claims" in (site / "index.html").read_text(encoding="utf-8")
    html = (site / "claims/index.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<tr>\s*<td>", html)) == count
    assert "{{" not in html


def test_the_source_is_the_line_that_makes_the_claim(root, site):
    for entry in json.loads((site / "claims.json").read_text(encoding="utf-8")):
        name, line = entry["source"].split(":")
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        assert re.match(r"\s*(claims\.(close|holds|below|above)|labs\.check_\w+)\(", lines[int(line) - 1]), entry


def test_the_section_is_the_heading_above_the_claim(root, site):
    entry = next(
        entry
        for entry in json.loads((site / "claims.json").read_text(encoding="utf-8"))
        if entry["statement"] == "no mixture is longer than its longest value"
    )
    assert entry["section"] == "No mixture is longer than its longest value"
    assert entry["address"].endswith("/convex_combination/#no-mixture-is-longer-than-its-longest-value")
    assert plugin.sections(root / "gallery/1_mixtures/convex_combination.py")[0][1] == entry["title"]


def test_statements_made_twice_are_named_with_their_places():
    one = {"statement": "a", "source": "x.py:1"}
    two = {"statement": "a", "source": "y.py:2"}
    assert ledger.stated_twice([one, two, {"statement": "b", "source": "z.py:3"}]) == ["a: x.py:1, y.py:2"]


def test_a_reader_can_choose_one_part_of_the_claims(root, site):
    html = (site / "claims/index.html").read_text(encoding="utf-8")
    parts = [folder for folder in sorted((root / "gallery").iterdir()) if folder.is_dir()]
    for number in range(1, len(parts) + 1):
        assert f'name="part" id="only-{number}"' in html
        assert html.count(f'<div class="part-{number}">') == 1
        assert f"article:has(#only-{number}:checked)" in html
