"""What the theme leaves out of its pages is there, and the files that machines look for."""

import re
import xml.etree.ElementTree as ET

import pytest
from mkdocs.exceptions import PluginError

from hooks import theme


def test_the_search_dialog_has_a_name_on_every_page(site):
    for page in site.rglob("*.html"):
        assert page.read_text(encoding="utf-8").count('role="dialog" aria-label="Search"') == 1, page


def test_every_group_of_the_navigation_has_a_name_of_its_own(site):
    html = (site / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'<nav class="md-nav"[^>]* aria-label="(Pages of [^"]+)"', html)
    assert len(named) == len(set(named)) > 10
    assert 'aria-labelledby="__nav_' not in html


def test_a_theme_that_changed_stops_the_build():
    with pytest.raises(PluginError, match="the theme no longer writes"):
        theme.with_names("<html></html>")
    with pytest.raises(PluginError, match="loads its script 0 times"):
        theme.text_first("<html></html>")


def test_every_page_shows_its_text_before_it_runs_the_themes_script(site):
    for page in site.rglob("*.html"):
        scripts = re.findall(r'<script [^>]*src="[^>]*>', page.read_text(encoding="utf-8"))
        assert len(scripts) == 2, page
        assert all(" defer" in script for script in scripts), page


def test_a_missing_page_leads_back_into_the_site(site):
    html = (site / "404.html").read_text(encoding="utf-8")
    assert "There is no such page" in html
    assert 'href="/gallery/"' in html


def test_every_page_has_a_description_of_its_own_for_search_engines_and_links(site):
    seen = {}
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue
        html = page.read_text(encoding="utf-8")
        (description,) = re.findall(r'<meta name="description" content="([^"]*)"', html)
        assert f'<meta property="og:description" content="{description}"' in html
        assert 20 < len(description) < 300, f"{page}: {description}"
        assert description not in seen, f"{page} and {seen[description]}: {description}"
        seen[description] = page


def test_robots_may_read_everything_and_the_outline_names_every_page(site):
    assert (site / "robots.txt").read_text(encoding="utf-8").startswith("User-agent: *\nAllow: /\n")
    outline = (site / "llms.txt").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]*)\)", outline):
        assert (site / link).is_file(), link
    pages = {page.relative_to(site).as_posix() for page in site.rglob("index.html")}
    assert pages == set(re.findall(r"\]\(([^)]*)\)", outline))


def test_a_site_that_knows_its_address_lists_its_pages_for_search_engines(small_site):
    build = small_site.build(SITE_URL="https://example.org/attention/")
    assert build.returncode == 0, build.stderr
    site = small_site.root / "site"
    assert "Sitemap: https://example.org/attention/sitemap.xml" in (site / "robots.txt").read_text(encoding="utf-8")
    listed = [place.text for place in ET.parse(site / "sitemap.xml").iter() if place.tag.endswith("}loc")]
    assert "https://example.org/attention/gallery/1_part/good/" in listed
    html = (site / "gallery/1_part/good/index.html").read_text(encoding="utf-8")
    assert '<link rel="canonical" href="https://example.org/attention/gallery/1_part/good/">' in html


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# T\n\nOne *fine* [link](a.md). Two.\n", "One fine link. Two."),
        ("# T\n\nMix $B$ rows\nof `x`.\n\nMore.\n", "Mix B rows of x."),
        ("# T\n\nFirst. Then $\\frac{1}{2}$ of it. Last.\n", "First. Last."),
        ("# T\n\nShort. " + "Long" * 80 + ".\n", "Short."),
        ("no title\n", ""),
    ],
)
def test_a_page_is_described_by_its_first_sentences_in_words(text, said):
    assert theme.description(text) == said
