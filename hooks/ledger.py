"""MkDocs hook: every claim of this build on one page and in ``claims.json``, its number on the front page."""

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from hooks import jupyter, lab_page, pages, plugin
from hooks.project import ending_of, root_of
from hooks.store import Store

COUNT, COUNT_PAGES = "{{ claims }}", "{{ pages }}"

_entries: list[dict[str, Any]] = []


@event_priority(-100)
def on_files(files: Files, config: MkDocsConfig) -> None:
    root = root_of(config)
    ending = ending_of(config)
    _entries[:] = entries(root, ending)
    for address, lab in jupyter.run(files, config).items():
        _entries.extend(lab_page.claims(lab, lab_page.stem_of(address), ending))
    if twice := stated_twice(_entries):
        raise PluginError("claims stated twice, so that nobody could tell them apart:\n" + "\n".join(twice))
    listing = json.dumps(_entries, indent=1, ensure_ascii=False) + "\n"
    files.append(File.generated(config, "claims.json", content=listing))
    files.append(File.generated(config, "claims.md", content=markdown(root, _entries)))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri not in ("index.md", "claims.md"):
        return text
    return with_counts(text, _entries)


def with_counts(text: str, listed: list[dict[str, Any]]) -> str:
    """Put the number of claims, and of pages that make them, where the text asks for them."""
    number_of_pages = len({entry["page"] for entry in listed})
    return text.replace(COUNT, f"{len(listed):,}").replace(COUNT_PAGES, str(number_of_pages))


def entries(root: Path, ending: str = "/") -> list[dict[str, Any]]:
    """The claims of all recorded scripts, in reading order, each with the page and section that makes it.

    ``ending`` is what follows a page's name in its address.
    """
    store, found = Store(root, plugin.options(root)), []
    for script in plugin.scripts(root):
        record = store.read(script)
        if record is None:  # only while serving: its page shows the failure
            continue
        sections = plugin.sections(script)
        source = script.relative_to(root)
        for claim in record.claims:
            section = next(heading for line, heading in reversed(sections) if line <= claim["line"])
            address = f"{source.with_suffix('').as_posix()}{ending}"
            anchor = "" if section == sections[0][1] else f"#{slugify(section, '-')}"
            found.append(
                {
                    "statement": claim["statement"],
                    "measured": claim["measured"].rstrip(","),
                    "allowed": claim["allowed"].removeprefix("allowed "),
                    "title": sections[0][1],
                    "section": section,
                    "page": address,
                    "address": address + anchor,
                    "source": f"{source.as_posix()}:{claim['line']}",
                }
            )
    return found


def stated_twice(listed: list[dict[str, Any]]) -> list[str]:
    """Statements that occur more than once, each with the places that make it."""
    places: dict[str, list[str]] = {}
    for entry in listed:
        places.setdefault(entry["statement"], []).append(entry["source"])
    return [f"{statement}: {', '.join(where)}" for statement, where in places.items() if len(where) > 1]


def markdown(root: Path, listed: list[dict[str, Any]]) -> str:
    """The page: a table for each script, under a heading for each part."""
    text = (
        "---\ndescription: Every claim that this build checked, with what was measured and allowed.\n---\n\n"
        f"# All {COUNT} claims of this build\n\n"
        "Each of them was computed again and held when this site was built; had one failed, there would be "
        "no site. The same list for machines: [claims.json](claims.json).\n"
    )
    parts = list(dict.fromkeys(_home(entry["page"])[0] for entry in listed))
    titles = [pages.title((root / part).read_text(encoding="utf-8")) for part in parts]
    text += f"\n{_choice(titles)}\n"
    for number, (part, title) in enumerate(zip(parts, titles), start=1):
        text += f'\n<div class="part-{number}" markdown>\n\n## {title}\n'
        of_part = [entry for entry in listed if _home(entry["page"])[0] == part]
        for address in dict.fromkeys(entry["page"] for entry in of_part):
            of_page = [entry for entry in of_part if entry["page"] == address]
            text += f"\n### [{of_page[0]['title']}]({_home(address)[1]})\n\n{table(of_page, _linked)}\n"
        text += "\n</div>\n"
    return text


def _choice(titles: list[str]) -> str:
    """Buttons to see one part alone; the style sheet hides the others, no script is needed."""
    buttons = ['<label><input type="radio" name="part" checked> all parts</label>']
    rules = []
    for number, title in enumerate(titles, start=1):
        buttons.append(f'<label><input type="radio" name="part" id="only-{number}"> {html.escape(title)}</label>')
        rules.append(f'article:has(#only-{number}:checked) [class^="part-"]:not(.part-{number}) {{ display: none }}')
    style = f"<style>{' '.join(rules)}</style>"
    return f'{style}<fieldset class="choice"><legend>Show</legend>{"".join(buttons)}</fieldset>'


def _home(address: str) -> tuple[str, str]:
    """The text that introduces a page's part, and the page's own source as Markdown links to it."""
    path = address.removesuffix("/").removesuffix(".html")
    if path.startswith("labs/"):
        return "docs/labs/index.md", f"{path}.ipynb"
    return f"{Path(path).parent.as_posix()}/README.md", f"{path}.md"


def table(listed: list[dict[str, Any]], statement: Callable[[dict[str, Any]], str]) -> str:
    """Claims in HTML with what was measured and allowed; ``statement`` gives the first cell of each."""
    rows = "".join(
        f"<tr><td>{statement(entry)}</td>"
        f"<td>{html.escape(entry['measured'])}</td><td>{html.escape(entry['allowed'])}</td></tr>\n"
        for entry in listed
    )
    head = "<tr><th>claim</th><th>measured</th><th>allowed</th></tr>"
    return f"<table><thead>{head}</thead><tbody>\n{rows}</tbody></table>"


def _linked(entry: dict[str, Any]) -> str:
    """A statement as a link from the page of claims to the section that makes it."""
    claims = "claims/" if entry["page"].endswith("/") else "claims.html"
    return f'<a href="{get_relative_url(entry["address"], claims)}">{html.escape(entry["statement"])}</a>'
