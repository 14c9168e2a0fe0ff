"""MkDocs hook: every citation has an entry, every entry is cited, and each entry links back to its pages."""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGE = "references.md"

_CITATION = re.compile(r"references(?:\.md|/)#(\w+)")
_ENTRY = re.compile(r"\n\{: #(\w+) \}$", re.M)
_SHOWN = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", re.M | re.S)  # code, which may show how to cite
_TITLE = re.compile(r"^# (.+)$", re.M)

_cited: dict[str, list[tuple[str, str]]] = {}


@event_priority(-200)  # after the gallery and whatever else makes pages
def on_files(files: Files, config: MkDocsConfig) -> None:
    texts = {file.src_uri: _text(file) for file in files.documentation_pages()}
    if PAGE not in texts:
        return
    listed = _ENTRY.findall(texts.pop(PAGE))
    if wrong := faults(texts, listed):
        raise PluginError("citations and references do not match:\n" + "\n".join(wrong))
    _cited.clear()
    _cited.update(citations(texts))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return with_citations(text, _cited) if page.file.src_uri == PAGE else text


def citations(texts: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """For every cited key the pages that cite it, each with its title."""
    found: dict[str, list[tuple[str, str]]] = {}
    for source, text in texts.items():
        title = _TITLE.search(text)
        for key in dict.fromkeys(_CITATION.findall(_SHOWN.sub("", text))):
            found.setdefault(key, []).append((source, title[1].strip() if title else Path(source).stem))
    return found


def faults(texts: dict[str, str], listed: list[str]) -> list[str]:
    """A citation without an entry, with its pages; an entry that nobody cites or that stands twice."""
    cited = citations(texts)
    missing = [
        f"{source} cites {key}, which {PAGE} does not list"
        for key, where in cited.items()
        for source, _ in where
        if key not in listed
    ]
    idle = [f"{PAGE} lists {key}, which no page cites" for key in listed if key not in cited]
    twice = [f"{PAGE} lists {key} {listed.count(key)} times" for key in dict.fromkeys(listed) if listed.count(key) > 1]
    return missing + idle + twice


def with_citations(text: str, cited: dict[str, list[tuple[str, str]]]) -> str:
    """The list of references, each entry followed by links to the pages that cite it."""

    def back(entry: re.Match[str]) -> str:
        links = " · ".join(f"[{title}]({source})" for source, title in cited[entry[1]])
        return f' <span class="cited" data-search-exclude>Cited on {links}</span>{entry[0]}'

    return _ENTRY.sub(back, text)


def _text(file: File) -> str:
    """The Markdown of a page; of a notebook, that of its text cells."""
    text = file.content_string
    if not file.src_uri.endswith(".ipynb"):
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
