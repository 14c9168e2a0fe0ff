"""The Markdown of the gallery: a page from a script's blocks, and an index with a card per page."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

#: What is wrong with a figure that says nothing to those who cannot see it.
UNDESCRIBED = 'a figure without description: say what is to be seen with fig.set_label("…")'

_IMAGE = re.compile(r"^!\[(?P<alt>.*)\]\((?P<source>\S+)\)\{(?P<attributes>.*)\}$", re.M)


@dataclass(frozen=True)
class Block:
    """A piece of a script: prose, or code with what it printed and drew."""

    kind: str
    text: str
    figures: str = ""
    printed: str = ""


def page(source: str, stem: str, blocks: list[Block]) -> str:
    """The page of the script at ``source``, prose, code, output and figures in the script's order."""
    parts = [f"<!-- Generated from {source}: edit that. -->"]
    for block in blocks:
        if block.kind == "text":
            parts.append(block.text.strip())
        else:
            parts.append(fenced(block.text, "python"))
            parts.extend(output(block.printed))
            if block.figures.strip():
                parts.append(block.figures.strip())
    parts.append(f"## Download\n\nThe page to run at home: [`{stem}.py`]({stem}.py) · [`{stem}.ipynb`]({stem}.ipynb)")
    return "\n\n".join(parts) + "\n"


def failure(stem: str, report: str) -> str:
    """What a live preview shows in place of a page whose script failed."""
    return f"# {stem} failed\n\nThis page comes back when its script runs to its end.\n\n{fenced(report, 'text')}\n"


def title(markdown: str) -> str:
    """The heading of a page or README."""
    found = re.search(r"^# (.+)$", markdown, re.M)
    if found is None:
        raise ValueError("a page without a title: it should begin with '# …'")
    return found[1].strip()


def write_index(gallery: Path, scripts: list[Path], docs: Path) -> None:
    """Write the gallery's front page: every part with its README and a card for each of its pages."""
    text = (gallery / "README.md").read_text(encoding="utf-8").strip()
    for part in dict.fromkeys(script.parent for script in scripts):
        readme = (part / "README.md").read_text(encoding="utf-8").strip()
        text += f'\n\n#{readme}\n\n<div class="cards" markdown>\n'
        for script in (script for script in scripts if script.parent == part):
            text += _card(part.name, script.stem, (docs / part.name / f"{script.stem}.md").read_text(encoding="utf-8"))
        text += "\n</div>"
    (docs / "index.md").write_text(text + "\n", encoding="utf-8")


def _card(part: str, stem: str, markdown: str) -> str:
    image = ""
    if picture := _IMAGE.search(markdown):  # a page that failed has none
        attributes = picture["attributes"].replace(".figure", ".thumbnail")
        image = f"![{picture['alt']}]({part}/{picture['source']}){{{attributes}}} "
    return f"\n[{image}{title(markdown)}]({part}/{stem}.md)\n"


def output(printed: str) -> list[str]:
    """What a block printed: claims are sentences and may wrap, anything else keeps its lines."""
    runs = itertools.groupby(printed.splitlines(), key=lambda line: line.startswith("✓ "))
    texts = [(claims, "\n".join(lines)) for claims, lines in runs]
    return [
        fenced(text, "{.text .output .claims}" if claims else "{.text .output}")
        for claims, text in texts
        if text.strip()
    ]


def image(alt: str, source: str, width: int, height: int) -> str:
    """A figure with its description, in which nothing is read as markup, and its size in pixels."""
    alt = re.sub(r"[\\`*_\[\]<>$&]", lambda mark: f"&#{ord(mark[0])};", alt)
    return f'![{alt}]({source}){{: .figure width="{width}" height="{height}" loading="lazy" }}'


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any run of backticks within."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = text.strip("\n")
    return f"{fence}{language}\n{lines}\n{fence}"
