"""A lab that was executed, as a page of the site: its Markdown, its figures, its claims."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.exceptions import PluginError
from nbformat import NotebookNode

from hooks import pages
from hooks.notebooks import LABS

SVG = "image/svg+xml"
_CLAIMED = re.compile(r"^✓ (?P<statement>.+?)   (?P<measured>.+?)(?:, allowed (?P<within>.+)| (?P<bound>[<>] .+))?$")
_CLAIMS = re.compile(r"\b(labs\.check_\w+|claims\.(close|holds|below|above))\(")


def page(lab: NotebookNode, stem: str) -> tuple[str, dict[str, str]]:
    """The page's Markdown, and the text of each of its figures by address relative to the page's source."""
    parts = [f"<!-- Generated from {LABS}/{stem}.py: edit that. -->"]
    figures: dict[str, str] = {}
    for cell in _shown(lab):
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("<details>", '<details class="quote" markdown="1">'))
            continue
        shown = [pages.fenced(cell.source, "python")]
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stdout":
                shown += pages.output(output.text)
            elif SVG in output.get("data", {}):
                address = f"images/{stem}_{len(figures) + 1}.svg"
                figures[address] = output.data[SVG]
                shown.append(_image(output.metadata[SVG], address, stem))
            else:
                raise PluginError(f"{stem}: only printed text and figures are shown, not {dict(output)}")
        text = "\n\n".join(shown)
        if "solution" in cell.metadata.get("tags", []):
            summary = "<summary>A worked solution</summary>"
            text = f'<details class="quote" markdown="1">\n{summary}\n\n{text}\n\n</details>'
        parts.append(text)
    parts.append(f"## Download\n\nThe lab to solve at home: [`{stem}.ipynb`](exercises/{stem}.ipynb)")
    return "\n\n".join(parts) + "\n", figures


def description(lab: NotebookNode) -> str:
    """The sentences under the title, without their markup."""
    first = next(cell for cell in lab.cells if cell.cell_type == "markdown")
    paragraph = first.source.split("\n\n")[1]
    return " ".join(re.sub(r"\[([^\]]+)\]\([^)]*\)|[*_`$]", r"\1", paragraph).split())


def claims(lab: NotebookNode, stem: str, ending: str = "/") -> Iterator[dict[str, Any]]:
    """What the lab printed with a tick, as entries of the ledger; ``ending`` as there."""
    title = section = ""
    for cell in _shown(lab):
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^#+ (.+)$", cell.source, re.M):
                title, section = title or heading, heading
            continue
        made = [
            found for o in cell.outputs for line in o.get("text", "").splitlines() if (found := _CLAIMED.match(line))
        ]
        lines = [n for n, line in enumerate(cell.source.splitlines()) if _CLAIMS.search(line)]
        if len(made) != len(lines):
            raise PluginError(f"{stem}: {len(lines)} lines make {len(made)} claims:\n{cell.source}")
        for claim, line in zip(made, lines):
            address = f"labs/{stem}{ending}"
            yield {
                "statement": claim["statement"],
                "measured": claim["measured"],
                "allowed": claim["within"] or claim["bound"] or "",
                "title": title,
                "section": section,
                "page": address,
                "address": address + ("" if section == title else f"#{slugify(section, '-')}"),
                "source": f"{LABS}/{stem}.py:{cell.metadata['line'] + line}",
            }


def _shown(lab: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in lab.cells if "setup" not in cell.metadata.get("tags", [])]


def _image(metadata: dict[str, Any], address: str, stem: str) -> str:
    if not metadata["alt"]:
        raise PluginError(f"{stem}: {pages.UNDESCRIBED}")
    return pages.image(html.unescape(metadata["alt"]), address, metadata["width"], metadata["height"])


def stem_of(source_uri: str) -> str:
    """The name that a lab's page, source and figures share."""
    return Path(source_uri).stem
