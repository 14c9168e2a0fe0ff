"""What a reader downloads, compressed: no page, figure, script or font is heavier than it may be."""

import gzip
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from hooks import plugin

TEXT = {".html", ".css", ".js", ".svg", ".json", ".xml"}
kB = 1_000  # noqa: N816


def weight(path: Path) -> int:
    """Bytes on the wire, as an ordinary server sends them."""
    return len(gzip.compress(path.read_bytes())) if path.suffix in TEXT else path.stat().st_size


def loaded(page: Path) -> set[Path]:
    """The files that a page's own HTML asks for."""
    html = page.read_text(encoding="utf-8")
    links = re.findall(r'<link\b(?=[^>]*rel="(?:stylesheet|preload|icon)")[^>]*?href="([^"]+)"', html)
    links += re.findall(r'<(?:script|img)\b[^>]*?src="([^"]+)"', html)
    local = [unquote(urlsplit(link).path) for link in links if not link.startswith("data:")]
    return {(page.parent / link).resolve() for link in local}


@pytest.fixture(scope="module")
def concepts(site: Path, root: Path) -> list[Path]:
    return [(site / script.relative_to(root)).with_suffix("") / "index.html" for script in plugin.scripts(root)]


def heavier(files, most: int) -> dict[str, int]:
    return {str(path): weight(path) for path in files if weight(path) > most}


def test_every_html_page_is_at_most_40_kb(site):
    pages = [page for page in site.rglob("*.html") if "labs" not in page.parts]
    assert not heavier(pages, 40 * kB)


def test_a_notebook_page_is_at_most_60_kb(site):
    assert not heavier(site.glob("labs/*/index.html"), 60 * kB)


def test_a_concept_page_with_everything_it_loads_is_at_most_260_kb(concepts):
    totals = {str(page): weight(page) + sum(map(weight, loaded(page))) for page in concepts}
    assert totals
    assert not {page: total for page, total in totals.items() if total > 260 * kB}


def test_style_sheets_and_scripts_of_a_concept_page_are_at_most_75_kb(concepts):
    for page in concepts:
        assert sum(weight(path) for path in loaded(page) if path.suffix in {".css", ".js"}) <= 75 * kB, page


def test_the_mathematics_font_is_at_most_45_kb(site):
    assert weight(site / "assets" / "math.woff2") <= 45 * kB


def test_no_figure_is_over_40_kb(site):
    figures = [*site.rglob("images/*.svg"), *site.rglob("images/*.webp"), *site.rglob("images/*.png")]
    assert figures
    assert not heavier(figures, 40 * kB)


def test_javascript_of_our_own_is_at_most_10_kb(site):
    ours = [*site.glob("assets/*.js")]
    assert ours
    assert sum(map(weight, ours)) <= 10 * kB


def test_the_search_index_is_at_most_150_kb(site):
    assert weight(site / "search" / "search_index.json") <= 150 * kB
