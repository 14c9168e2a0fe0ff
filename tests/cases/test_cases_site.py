"""Faults of published tutorials known from public bug reports, looked for in the site as it is built."""

import re
import socket
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from test_site import Page

from hooks import figures, formulas

SVG = "{http://www.w3.org/2000/svg}"


def black(svg: Path) -> list[str]:
    """Shapes drawn in black where nothing light lies behind them: outside axes that hold an image.

    Black is what an SVG shape has unless it says otherwise, so it must be looked for by inheritance.
    """
    found = []

    def walk(element: ElementTree.Element, fill: str, stroke: str) -> None:
        style = dict(re.findall(r"([\w-]+):\s*([^;]+)", element.get("style", "")))
        fill = style.get("fill", element.get("fill", fill))
        stroke = style.get("stroke", element.get("stroke", stroke))
        if element.tag in (SVG + "defs", SVG + "clipPath", SVG + "style"):
            return
        if element.get("id", "").startswith("axes") and element.find(f".//{SVG}image") is not None:
            return
        seen = {stroke} if float(style.get("fill-opacity", 1)) == 0 else {fill, stroke}
        shape = element.tag in (SVG + "path", SVG + "use", SVG + "rect", SVG + "text")
        if shape and seen & {"black", "#000", "#000000"}:
            found.append(ElementTree.tostring(element, encoding="unicode")[:200])
        for child in element:
            walk(child, fill, stroke)

    walk(ElementTree.parse(svg).getroot(), "black", "none")
    return found


@pytest.mark.parametrize(
    ("colour", "shown"), [("black", True), ((0.0, 0.0, 0.0), True), ("#010203", False), ("#0072B2", False)]
)
def test_figures_at_night_black_ink_would_be_found(tmp_path, colour, shown):
    with plt.style.context("attnkit.paper"):
        fig, ax = plt.subplots()
        ax.text(0.5, 0.5, "a label", color=colour)
        fig.savefig(tmp_path / "a.svg", metadata={"Date": None})
        plt.close(fig)
    figures.finish(tmp_path / "a.svg")
    assert bool(black(tmp_path / "a.svg")) is shown


def test_figures_at_night_have_no_black_on_black(site):
    drawn = list(site.glob("gallery/*/images/*.svg"))
    assert drawn
    for svg in drawn:
        assert not black(svg), svg.name


def test_figures_at_night_thumbnails_are_the_figures(site):
    """The gallery's cards show the same files, which follow the scheme, and no picture made beforehand."""
    cards = [image["src"] for image in Page(site / "gallery/index.html").images if image.get("class") == "thumbnail"]
    assert len(cards) == len(set(cards)) > 3
    for source in cards:
        assert source.endswith(".svg")
        assert "currentColor" in (site / "gallery" / source).read_text(encoding="utf-8")


@pytest.mark.parametrize("tex", [r"\frac{a}{b}", r"\operatorname{softmax}(QK^\top)", r"\sum_{j \le i} \alpha_{ij} v_j"])
def test_maths_offline_is_made_without_a_connection(monkeypatch, tex):
    def refuse(*_, **__):
        raise AssertionError("a formula must not need the network")

    monkeypatch.setattr(socket, "socket", refuse)
    html = formulas.convert(rf'<p><span class="arithmatex">\({tex}\)</span></p>', "a page")
    formulas.on_pre_build(config=None)
    assert html.startswith("<p><math")
    assert r"\(" not in html


def test_maths_offline_is_in_every_page_and_needs_no_script(site):
    """Every formula of the sources is MathML in the page; no page loads a script that could render it later."""
    scripts = list(site.glob("gallery/*/*/index.html"))
    assert scripts
    for page in (*scripts, *site.glob("derivations/*/index.html"), site / "notation/index.html"):
        html = page.read_text(encoding="utf-8")
        assert "<math" in html, page
        assert "arithmatex" not in html, page
        assert not re.findall(r'<script[^>]+src="[^"]*(?:mathjax|katex|polyfill|//)', html, re.I), page


def test_alternative_text_says_what_is_seen(site):
    """A sentence on every figure and card: not the file's name, and not that of another figure."""
    for page in (*site.glob("gallery/*/*/index.html"), site / "gallery/index.html"):
        images = [image for image in Page(page).images if image.get("class") in ("figure", "thumbnail")]  # no logo
        assert images, page
        for image in images:
            stem = Path(image["src"]).stem
            assert stem not in image["alt"], page
            assert "mkd_glr" not in image["alt"], page
            assert len(image["alt"].split()) >= 5, f"{page}: {image['alt']}"
        assert len({image["alt"] for image in images}) == len(images), page


@pytest.mark.parametrize("label", ["", "   ", "\n"])
def test_alternative_text_that_is_missing_stops_the_build(label):
    fig, _ = plt.subplots()
    fig.set_label(label)
    with pytest.raises(figures.FigureError, match="without description"):
        figures.scrape(None, None)
    plt.close(fig)
