"""Formulas become MathML, bad ones stop the build, and the font holds what they show."""

import io

import markdown
import pytest
from fontTools.ttLib import TTFont
from mkdocs.exceptions import PluginError

from hooks import formulas, mathfont


def rendered(markdown_text: str) -> str:
    """The HTML of a page after the hook; problems are kept until ``finish``."""
    html = markdown.markdown(
        markdown_text, extensions=["pymdownx.arithmatex"], extension_configs={"pymdownx.arithmatex": {"generic": True}}
    )
    return formulas.convert(html, "some/page.md")


@pytest.fixture(autouse=True)
def a_new_build():
    formulas.on_pre_build(config=None)


def test_a_formula_becomes_mathml_that_search_passes_over():
    html = rendered(r"Weights $\alpha$ and" "\n\n" r"$$\sum_j \alpha_j = 1$$")
    assert html.count("<math data-search-exclude") == 2
    assert '<annotation encoding="application/x-tex">\\alpha</annotation>' in html
    assert '<div class="formula"><math data-search-exclude display="block">' in html
    assert "arithmatex" not in html


def test_characters_that_html_escapes_are_read_as_tex():
    assert "<mo>&lt;</mo>" in rendered("$a < b$")
    assert rendered(r"$$\begin{aligned} a &= b \end{aligned}$$").count("<mtd") == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (r"$\sofmax(x)$", r'some/page.md: 0: Unknown command "\sofmax". in the formula  \sofmax(x)'),
        (r"$$\frac{a$$", r"in the formula  \frac{a"),
        (r"$$x \eqref{eq:none}$$", "reference to an equation that this page does not have:  x \\eqref{eq:none}"),
        (
            "$a = \\eqref{eq:one}$\n\n$$\\begin{equation}a = b\\label{eq:one}\\end{equation}$$",
            "a link within a formula, which a screen reader cannot reach:  a = \\eqref{eq:one}",
        ),
        ("## A heading with $x$", "a formula in a heading"),
        ("Text $$x$$ text", "a display formula within a paragraph"),
        ("$✈$", "no glyph for '✈'"),
    ],
)
def test_a_bad_formula_is_reported_with_page_and_formula(text, complaint, tmp_path):
    rendered(text)
    with pytest.raises(PluginError) as stop:
        formulas.finish(tmp_path)
    assert "some/page.md: " in str(stop.value)
    assert complaint in str(stop.value)


def test_every_bad_formula_is_reported_at_once(tmp_path):
    rendered(r"$\one$ and $\two$")
    with pytest.raises(PluginError, match=r"(?s)2 problems.*\\one.*\\two"):
        formulas.finish(tmp_path)


def test_a_reference_links_to_a_later_equation():
    html = rendered("See $\\eqref{eq:one}$.\n\n$$\\begin{equation}a = b\\label{eq:one}\\end{equation}$$\n")
    assert 'See <a href="#eq:one">(1)</a>.' in html
    assert 'id="eq:one"' in html


def test_a_bad_formula_stops_the_build_before_a_page_is_written(small_site):
    (small_site.root / "docs/index.md").write_text("# Home\n\n$\\sofmax$\n", encoding="utf-8")
    build = small_site.build()
    assert build.returncode != 0
    assert r'index.md: 0: Unknown command "\sofmax"' in build.stderr
    assert not (small_site.root / "site/index.html").exists()


def test_a_page_with_formulas_fetches_the_font_early(small_site):
    assert small_site.build().returncode == 0
    html = (small_site.root / "site/gallery/1_part/good/index.html").read_text(encoding="utf-8")
    assert 'rel="preload" href="../../../assets/math.woff2"' in html
    assert (small_site.root / "site/assets/math.woff2").stat().st_size > 1000


def characters_of(font: bytes) -> set[int]:
    return set(TTFont(io.BytesIO(font)).getBestCmap())


def test_the_font_holds_letters_upright_and_italic_and_what_the_renderer_draws():
    held = characters_of(mathfont.subset({"h", "T", "α"}))
    assert {ord("h"), 0x210E, ord("T"), 0x1D447, ord("α"), 0x1D6FC} <= held
    assert {ord("√"), ord("("), ord("‖")} <= held, "a root vanishes silently where its sign is missing"


def test_the_font_keeps_the_taller_variants_of_a_fence():
    font = TTFont(io.BytesIO(mathfont.subset({"("})))
    assert "MATH" in font
    variants = font["MATH"].table.MathVariants
    assert font.getBestCmap()[ord("(")] in variants.VertGlyphCoverage.glyphs


def test_the_font_is_small_and_the_same_every_time():
    letters = {chr(c) for c in range(ord("a"), ord("z") + 1)}
    assert mathfont.subset(letters) == mathfont.subset(letters)
    assert len(mathfont.subset(letters)) < 45_000


def test_characters_without_a_glyph_are_named_and_spaces_need_none():
    assert mathfont.missing({"x", "✈", " ", "\u2061"}) == ["✈"]


def test_a_kept_font_is_used_again_and_a_damaged_one_is_not(tmp_path, monkeypatch):
    folder = tmp_path / "font"
    font = mathfont.cached_subset({"x"}, folder)
    assert font == mathfont.subset({"x"})
    (kept,) = folder.iterdir()
    kept.write_bytes(font[:-1])
    assert mathfont.cached_subset({"x"}, folder) == font
    monkeypatch.setattr(mathfont, "subset", lambda characters: b"made again")
    assert mathfont.cached_subset({"x"}, folder) == font
    assert mathfont.cached_subset({"x", "y"}, folder) == b"made again"
