"""MkDocs hook: which page builds on which, and the map of it on the front page.

A script names the pages it builds on, ``# mkdocs_gallery_builds_on = ["scaling"]``, by their stems.
"""

import html
from dataclasses import dataclass
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from hooks import pages, plugin
from hooks.project import ending_of, root_of

MAP = "{{ map }}"
ROW, LEFT, WIDTH = 24, 104, 360  # of the map, in pixels: height of a row, room for the arcs, all


@dataclass(frozen=True)
class Concept:
    """A gallery page, with the stems of those it builds on and of those that build on it."""

    script: Path
    title: str
    builds_on: tuple[str, ...]
    leads_to: tuple[str, ...]


def concepts(root: Path) -> dict[str, Concept]:
    """All concepts by stem, in reading order.

    Raises:
        PluginError: a script builds on a page that does not come before it; all such are named.
    """
    scripts = plugin.scripts(root)
    needs = {script.stem: plugin.builds_on(script) for script in scripts}
    wrong = []
    for number, (stem, before) in enumerate(needs.items()):
        earlier = list(needs)[:number]
        for other in before:
            if other not in earlier:
                where = "comes after it" if other in needs else "is no page"
                wrong.append(f"{stem} builds on {other}, which {where}")
    if wrong:
        raise PluginError("\n".join(wrong))
    return {
        script.stem: Concept(
            script,
            pages.title(script.read_text(encoding="utf-8")),
            needs[script.stem],
            tuple(stem for stem, before in needs.items() if script.stem in before),
        )
        for script in scripts
    }


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if MAP not in text:
        return text
    root = root_of(config)
    return text.replace(MAP, drawn(root, concepts(root), ending_of(config)))


def drawn(root: Path, known: dict[str, Concept], ending: str = "/") -> str:
    """An arc diagram: a row for each page, an arc from each to those it builds on.

    ``ending`` is what follows a page's name in its address.
    """
    rows: dict[str, float] = {}
    lines, y, part = [], 0.0, None
    for stem, concept in known.items():
        if concept.script.parent != part:
            part = concept.script.parent
            y += 1.5 * ROW if rows else 0.75 * ROW
            name = pages.title((part / "README.md").read_text(encoding="utf-8")).split(",")[0]
            lines.append(f'<text class="part" x="{LEFT + 12}" y="{y + 4:g}">{html.escape(name)}</text>')
        y += ROW
        rows[stem] = y
        address = concept.script.relative_to(root).with_suffix("").as_posix()
        lines.append(
            f'<a href="{address}{ending}"><circle cx="{LEFT}" cy="{y:g}" r="4"/>'
            f'<text x="{LEFT + 12}" y="{y + 4:g}">{html.escape(stem.replace("_", " "))}</text></a>'
        )
    arcs = [_arc(rows[before], rows[stem]) for stem, concept in known.items() for before in concept.builds_on]
    return (
        f'<svg class="map" viewBox="0 0 {WIDTH} {y + ROW:g}" width="{WIDTH}" height="{y + ROW:g}" role="group" '
        f'aria-label="Map of all pages; an arc joins a page to those it builds on">'
        f'<path d="{" ".join(arcs)}"/>{"".join(lines)}</svg>'
    )


def _arc(above: float, below: float) -> str:
    """A half ellipse on the left, from one row down to another; the farther the rows, the wider."""
    height = (below - above) / 2
    near, far = 2 * ROW, LEFT - 12
    width = height if height <= near else near + (far - near) * height / (height + 4 * near)
    return f"M{LEFT} {above:g}A{width:.1f} {height:g} 0 0 0 {LEFT} {below:g}"
