"""STIX Two Math, cut down to the glyphs that the site's formulas use."""

import hashlib
import io
import shutil
import unicodedata
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import fontTools
from fontTools.ttLib import TTFont

#: Letters whose mathematical italics stand outside the alphabets.
_ITALIC = dict(zip("∂∇ϵϑϰϕϱϖıȷ", "𝜕𝛻𝜖𝜗𝜘𝜙𝜚𝜛𝚤𝚥"))

#: Drawn by MathML itself or stretched from these: roots, fences, bars, braces, accents.
_BY_THE_RENDERER = "√‖|⟨⟩(){}[]⌊⌋⌈⌉¯ˆ˜→⏞⏟−′"


@cache
def _source() -> bytes:
    # Looked up, not imported: the package itself is of no use here.
    found = distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf")
    return Path(str(found)).read_bytes()


@cache
def _covered() -> frozenset[int]:
    return frozenset(TTFont(io.BytesIO(_source()), lazy=True).getBestCmap() or ())


def missing(characters: set[str]) -> list[str]:
    """Characters that the font cannot draw, in order; spaces and invisible operators need no glyph."""
    return sorted(c for c in characters if _visible(c) and not all(ord(s) in _covered() for s in _shown_as(c)))


def cached_subset(characters: set[str], folder: Path) -> bytes:
    """As ``subset``, kept in ``folder`` for the next build that needs the same glyphs.

    A kept font carries its own digest in its name, so a torn or damaged one is made again.
    """
    wanted = "".join(sorted(characters)) + fontTools.version + Path(__file__).read_text(encoding="utf-8")
    key = hashlib.sha256(wanted.encode() + _source()).hexdigest()
    for kept in folder.glob(f"{key}-*.woff2"):
        font = kept.read_bytes()
        if kept.stem == f"{key}-{hashlib.sha256(font).hexdigest()}":
            return font
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    font = subset(characters)
    (folder / f"{key}-{hashlib.sha256(font).hexdigest()}.woff2").write_bytes(font)
    return font


def subset(characters: set[str]) -> bytes:
    """The font as WOFF2 with the glyphs for ``characters``, their variants and the layout constants."""
    from fontTools import subset as font_subset  # slow to import, and often not needed

    options = font_subset.Options(layout_features=[], flavor="woff2", hinting=False, notdef_outline=True)
    options.recalc_timestamp = False
    font = font_subset.load_font(io.BytesIO(_source()), options)
    cutter = font_subset.Subsetter(options)
    shown = {s for c in characters | set(_BY_THE_RENDERER) for s in _shown_as(c)}
    cutter.populate(unicodes=sorted(ord(s) for s in shown if ord(s) in _covered()))
    cutter.subset(font)
    _even_roots(font)
    out = io.BytesIO()
    font_subset.save_font(font, out, options)
    return out.getvalue()


def _even_roots(font: TTFont) -> None:
    """Make every size of the root sign as wide as the smallest.

    Chromium keeps room for the widest whatever size it draws, which leaves a gap after a small root.
    """
    root = (font.getBestCmap() or {})[ord("√")]
    variants = font["MATH"].table.MathVariants
    sizes = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(root)]
    names = {record.VariantGlyph for record in sizes.MathGlyphVariantRecord}
    names |= {part.glyph for part in sizes.GlyphAssembly.PartRecords}
    width = font["hmtx"][root][0]
    for name in sorted(names - {root}):
        narrower = width / font["hmtx"][name][0]
        glyph = font["glyf"][name]
        glyph.coordinates.scale((narrower, 1))
        glyph.coordinates.toInt()
        glyph.recalcBounds(font["glyf"])
        font["hmtx"][name] = (width, glyph.xMin)


def _visible(character: str) -> bool:
    return unicodedata.category(character) not in ("Cf", "Cc", "Zs")


def _shown_as(character: str) -> set[str]:
    """A lone letter is shown as a mathematical italic, upright inside a word: keep both."""
    if character == "h":
        return {"h", "ℎ"}  # U+210E: the block of mathematical italics has a hole there
    if character in _ITALIC:
        return {character, _ITALIC[character]}
    for first, last, italic in (("a", "z", 0x1D44E), ("A", "Z", 0x1D434), ("α", "ω", 0x1D6FC), ("Α", "Ω", 0x1D6E2)):
        if first <= character <= last:
            return {character, chr(italic + ord(character) - ord(first))}
    return {character}
