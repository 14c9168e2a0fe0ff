"""MkDocs hook: formulas become MathML at build time, in a font cut down to the glyphs they use.

No JavaScript, nothing to wait for, and a formula that cannot be read fails the build.
"""

import html
import re
from pathlib import Path
from typing import Any

from math_core import LatexError, LatexToMathML
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from hooks import mathfont
from hooks.project import root_of

FONT = "assets/math.woff2"

# What pymdownx.arithmatex (generic) leaves: \( inline \) in a span, \[ display \] in a div.
_FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<display>.*?)\\\]\s*</div>',
    re.S,
)
_HEADING = re.compile(r"<h([1-6])\b[^>]*>.*?</h\1>", re.S)
_ANNOTATION = re.compile(r"<annotation.*?</annotation>", re.S)
_LONE_REFERENCE = re.compile(r'<math[^>]*><semantics><mtext>(<a href="#[^"]*">\(.*?\)</a>)</mtext>.*')

_convert = LatexToMathML(annotation=True, fancy_error=False)
_problems: list[str] = []
_characters: dict[str, str] = {}  # each with the page that used it first


def on_pre_build(config: MkDocsConfig) -> None:
    _problems.clear()  # `mkdocs serve` builds again in the same process
    _characters.clear()


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return convert(content, page.file.src_uri)


def convert(content: str, where: str) -> str:
    """The HTML of a page with its formulas as MathML; what is wrong with them is kept for ``finish``."""
    for heading in _HEADING.finditer(content):
        if "arithmatex" in heading[0]:
            _problems.append(f"{where}: a formula in a heading (the contents list would show TeX): {heading[0]}")
    matches = list(_FORMULA.finditer(content))
    rendered = iter(_render([_source(match) for match in matches], where))
    content = _FORMULA.sub(lambda match: next(rendered), content)
    if "$<math" in content:
        _problems.append(f"{where}: a display formula within a paragraph: put blank lines around $$…$$")
    return content


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Every page is read and none is written yet."""
    files.append(File.generated(config, FONT, content=finish(root_of(config))))


def finish(root: Path) -> bytes:
    """The font for all formulas converted so far.

    Raises:
        PluginError: a formula was bad; the message lists them all.
    """
    for character in mathfont.missing(set(_characters)):
        _problems.append(f"{_characters[character]}: the mathematics font has no glyph for {character!r}")
    if _problems:
        raise PluginError(f"{len(_problems)} problems with formulas\n" + "\n".join(_problems))
    return mathfont.cached_subset(set(_characters), root / ".cache" / "font")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Fetch the font early on pages that need it, so that nothing moves when it arrives.

    Pages opened as files have their font at once, and may not preload any.
    """
    if "<math" not in output or not config.use_directory_urls:
        return output
    url = get_relative_url(FONT, page.url)
    preload = f'<link rel="preload" href="{url}" as="font" type="font/woff2" crossorigin>'
    return output.replace("</title>", f"</title>{preload}", 1)


def _source(match: re.Match[str]) -> tuple[str, bool]:
    display = match["display"] is not None
    return html.unescape(match["display"] if display else match["inline"]).strip(), display


def _render(formulas: list[tuple[str, bool]], where: str) -> list[str]:
    """MathML of all formulas of a page; together, so that references to later equations resolve."""
    try:
        results: list[str] = _convert.convert_all(formulas)
    except LatexError:
        _problems.extend(_refused(formulas, where))
        return ["" for _ in formulas]
    return [_place(mathml, tex, display, where) for mathml, (tex, display) in zip(results, formulas)]


def _refused(formulas: list[tuple[str, bool]], where: str) -> list[str]:
    found = []
    for tex, display in formulas:
        try:
            _convert.convert_with_local_state(tex, displaystyle=display)
        except LatexError as error:
            found.append(f"{where}: {error} in the formula  {tex}")
    return found


def _place(mathml: str, tex: str, display: bool, where: str) -> str:
    if "(??)" in mathml:
        _problems.append(f"{where}: reference to an equation that this page does not have:  {tex}")
    if reference := _LONE_REFERENCE.match(mathml):
        return reference[1]
    if "<a " in mathml:
        _problems.append(f"{where}: a link within a formula, which a screen reader cannot reach:  {tex}")
    for character in html.unescape(re.sub(r"<[^>]+>", "", _ANNOTATION.sub("", mathml))):
        _characters.setdefault(character, where)
    mathml = mathml.replace("<math", "<math data-search-exclude", 1)
    return f'<div class="formula">{mathml}</div>' if display else mathml
