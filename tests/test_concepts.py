"""Which page builds on which: named in the scripts, in reading order, drawn on the front page."""

import re

import pytest
from conftest import ROOT
from mkdocs.exceptions import PluginError

from hooks import concepts


def test_every_page_but_the_two_beginnings_builds_on_another():
    known = concepts.concepts(ROOT)
    assert [stem for stem, concept in known.items() if not concept.builds_on] == [
        "convex_combination",
        "linear_recurrence",
    ]


def test_what_a_page_leads_to_builds_on_it():
    known = concepts.concepts(ROOT)
    assert {(b, stem) for stem, concept in known.items() for b in concept.builds_on} == {
        (stem, later) for stem, concept in known.items() for later in concept.leads_to
    }


@pytest.mark.parametrize(
    ("before", "complaint"),
    [("nowhere", "good builds on nowhere, which is no page"), ("later", "good builds on later, which comes after it")],
)
def test_a_page_can_only_build_on_one_that_comes_before_it(small_site, before, complaint):
    small_site.add("later")
    script = small_site.root / "gallery/1_part/good.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(
        text.replace('"""\n\n', f'"""\n\n# mkdocs_gallery_builds_on = ["{before}"]\n\n', 1), encoding="utf-8"
    )
    with pytest.raises(PluginError, match=complaint):
        concepts.concepts(small_site.root)


def test_the_map_links_every_page_and_has_an_arc_for_every_prerequisite(site):
    html = (site / "index.html").read_text(encoding="utf-8")
    (drawn,) = re.findall(r'<svg class="map".*?</svg>', html, re.S)
    known = concepts.concepts(ROOT)
    links = re.findall(r'<a href="([^"]+)">', drawn)
    assert links == [f"{c.script.relative_to(ROOT).with_suffix('').as_posix()}/" for c in known.values()]
    assert all((site / link / "index.html").is_file() for link in links)
    assert len(re.findall(r"M[\d.]+ [\d.]+A", drawn)) == sum(len(c.builds_on) for c in known.values())
