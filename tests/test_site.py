"""The built site as a reader's browser gets it: everything there, nothing foreign, no TeX left."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from conftest import ROOT

from hooks import plugin

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """Links, ids, images and visible text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.references: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.images: list[dict[str, str]] = []
        self.formulas = 0
        self.text = ""
        self._hidden = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.append(found["id"])
        for name in ("href", "src"):
            if name in found:
                self.references.append((tag, found.get("rel", ""), found[name]))
        for candidate in found.get("srcset", "").split(","):
            if candidate.strip():
                self.references.append((tag, "", candidate.split()[0]))
        if tag == "img":
            self.images.append(found)
        self.formulas += tag == "math"
        if tag in ("script", "style", "code", "pre", "annotation"):
            self._hidden += 1

    def handle_endtag(self, tag):
        if tag in ("script", "style", "code", "pre", "annotation"):
            self._hidden -= 1

    def handle_data(self, data):
        if not self._hidden:
            self.text += data


def read(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return read(site)


def built(script: Path) -> str:
    return f"{script.relative_to(ROOT).with_suffix('').as_posix()}/index.html"


def test_every_script_has_a_page_with_claims_figures_and_formulas(site, pages):
    for script in plugin.scripts(ROOT):
        page = pages[built(script)]
        html = (site / built(script)).read_text(encoding="utf-8")
        assert html.count("✓ ") >= 3, script.stem
        assert page.formulas, script.stem
        pictures = [image for image in page.images if f"mkd_glr_{script.stem}_" in image["src"]]
        assert pictures, script.stem


def test_every_page_has_one_title_and_a_language(site, pages):
    for name in pages:
        html = (site / name).read_text(encoding="utf-8")
        assert '<html lang="en"' in html, name
        assert html.count("<h1") == 1, name


def test_nothing_is_loaded_from_another_host(pages, site):
    for name, page in pages.items():
        for tag, rel, reference in page.references:
            foreign = urlsplit(reference).netloc != ""
            assert not foreign or tag == "a" or rel in ("canonical", "next", "prev"), f"{name}: <{tag}> {reference}"
    for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        addresses = re.findall(r"""url\(['"]?((?:https?:)?//[^'")]+)""", sheet.read_text(encoding="utf-8"))
        assert not addresses, sheet


def broken_links(pages: dict[str, Page], site: Path) -> list[str]:
    broken = []
    for name, page in pages.items():
        if name == "404.html":  # served at any depth, so its links begin with /
            continue
        for _, _, reference in page.references:
            parts = urlsplit(reference)
            if parts.scheme in ("mailto", "data", "javascript") or parts.netloc:
                continue
            target = urlsplit(urljoin(f"http://site/{name}", reference))
            path = unquote(target.path).removeprefix("/")
            if path == "" or path.endswith("/"):
                path += "index.html"
            if not reference or not (site / path).is_file():
                broken.append(f"{name}: {reference!r}")
            elif path in pages and target.fragment and unquote(target.fragment) not in pages[path].ids:
                broken.append(f"{name}: {reference!r} (no such anchor)")
    return broken


def test_every_link_anchor_and_image_leads_somewhere(pages, site):
    assert not broken_links(pages, site)


def test_opened_from_disk_every_link_names_a_file(offline_site):
    pages = read(offline_site)
    assert not broken_links(pages, offline_site)
    internal = {
        f"{name}: {reference}"
        for name, page in pages.items()
        for _, _, reference in page.references
        if not urlsplit(reference).netloc and name != "404.html"
    }
    assert not {link for link in internal if urlsplit(link.partition(": ")[2]).path.endswith("/")}
    assert json.loads((offline_site / "claims.json").read_text(encoding="utf-8"))[0]["page"].endswith(".html")
    listed = re.findall(r"\]\((.+?)\)", (offline_site / "llms.txt").read_text(encoding="utf-8"))
    assert listed
    assert all((offline_site / file).is_file() for file in listed)


def test_ids_are_unique_on_every_page(pages):
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name


def test_every_image_says_what_is_seen_and_how_large_it_is(pages):
    for name, page in pages.items():
        for image in page.images:
            assert len(image.get("alt", "")) > 20, f"{name}: {image}"
            assert image.get("width", "").isdigit(), f"{name}: {image}"
            assert image.get("height", "").isdigit(), f"{name}: {image}"


def test_no_tex_is_left_for_a_reader_to_see(pages):
    for name, page in pages.items():
        left = re.findall(r"\\\(|\\\[|\$\$|\\begin\{|\\frac|\\mathbb|\(\?\?\)", page.text)
        assert not left, name
        assert "arithmatex" not in page.text


def test_figures_follow_the_readers_colour_scheme_and_hold_no_date(site):
    figures = list(site.glob("gallery/*/images/*.svg"))
    assert figures
    for figure in figures:
        svg = figure.read_text(encoding="utf-8")
        assert "prefers-color-scheme" in svg
        assert "currentColor" in svg, figure
        assert "<metadata" not in svg
        assert "#010203" not in svg


def test_the_search_index_holds_words_and_no_tex(site):
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "convex" in index
    assert not re.findall(r"\\\\(frac|alpha|sum|mathbb|operatorname)\b", index)
    assert "x-tex" not in index


def test_no_by_products_of_the_build_are_published(site):
    assert not [path for path in site.rglob("*") if path.suffix in {".md5", ".pickle", ".md", ".new"}]
    assert not list(site.rglob("thumb"))


def test_pages_can_be_downloaded_as_script_and_notebook(site):
    for script in plugin.scripts(ROOT):
        folder = site / script.relative_to(ROOT).parent
        assert (folder / script.name).read_bytes() == script.read_bytes()
        assert (folder / f"{script.stem}.ipynb").exists()


def test_pages_follow_each_other_in_reading_order(site):
    wanted = [built(script).removesuffix("index.html") for script in plugin.scripts(ROOT)]
    html = (site / built(plugin.scripts(ROOT)[0])).read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"]*)" class="md-nav__link', html)
    page = f"http://site/{wanted[0]}"
    found = [urlsplit(urljoin(page, link)).path.removeprefix("/") for link in links]
    assert [path for path in dict.fromkeys(found) if path in wanted] == wanted
