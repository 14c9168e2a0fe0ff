"""MkDocs hook: what a gallery page has besides its own text.

At the top: time to read, what the page builds on, and ways to take it along. After a block: the code of
each function of attnkit used there for the first time. At the end: its claims, and where they lead.
"""

import ast
import html
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext

from hooks import concepts, ledger, plugin, uses
from hooks.concepts import Concept
from hooks.project import ending_of, repository_of, root_of

WORDS_PER_MINUTE = 180  # of prose with formulas, read with care; code counts by its words
SERVICE = ("claims", "plot")  # modules that check and draw: linked, not unfolded on every page

# A code block of the script with all it printed and drew.
_BLOCK = re.compile(r"^(`{3,})python\n(?P<code>.*?)\n\1\n(?:\n+(`{3,})\{\.text.*?\n\3\n|\n+!\[.*\n)*", re.M | re.S)

_known: dict[str, Concept] = {}
_claims: list[dict[str, Any]] = []


def on_files(files: Files, config: MkDocsConfig) -> None:
    root = root_of(config)
    _known.clear()
    _known.update(concepts.concepts(root))
    _claims[:] = ledger.entries(root, ending_of(config))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    root = root_of(config)
    concept = _known.get(Path(page.file.src_uri).stem)
    if concept is None or plugin.page_of(concept.script, root) != root / "docs" / page.file.src_uri:
        return text
    return furnished(text, concept, _known, [entry for entry in _claims if entry["page"] == page.url], root)


def on_page_context(context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation) -> None:
    """Who edits a page edits its script."""
    root = root_of(config)
    script = (root / page.file.src_uri).with_suffix(".py")
    if script.is_file() and (repository := repository_of(config)):
        page.edit_url = f"{repository}/edit/main/{script.relative_to(root).as_posix()}"


def furnished(text: str, concept: Concept, known: dict[str, Concept], listed: list[dict[str, Any]], root: Path) -> str:
    """The page with everything a reader may want at hand."""
    body, _, download = text.partition("\n## Download\n")
    if not download:  # the page of a script that failed, in a preview
        return text
    local, public = uses.imported(uses.parsed(concept.script)), uses.public_names(root)
    shown: set[str] = set()

    def with_implementations(block: re.Match[str]) -> str:
        used = uses.used_in(ast.parse(block["code"]), local, public)
        new = [name for name in used if name not in shown and public[name] not in SERVICE]
        shown.update(new)
        return block[0] + "".join(_implementation(name, public[name], root) for name in new)

    body = _BLOCK.sub(with_implementations, body)
    first = body.index("```python")
    return f"{body[:first]}{_top(text, concept, known)}\n\n{body[first:]}\n{_end(concept, known, listed)}"


def _top(text: str, concept: Concept, known: dict[str, Concept]) -> str:
    minutes = round(len(re.findall(r"\w+", re.sub(r"^!\[.*$", "", text, flags=re.M))) / WORDS_PER_MINUTE)
    stem = concept.script.stem
    before = _links(concept.builds_on, concept, known) or "nothing before it"
    return (
        '<div class="furniture" markdown>\n\n'
        f"{minutes} minutes · builds on {before}\n\n"
        '<button class="md-button" type="button" data-copy-script hidden>Copy the whole script</button> '
        f"[{stem}.py]({stem}.py) · [{stem}.ipynb]({stem}.ipynb)\n\n</div>"
    )


def _links(stems: tuple[str, ...], concept: Concept, known: dict[str, Concept]) -> str:
    here = concept.script.parent
    found = []
    for stem in stems:
        script = known[stem].script
        folder = "" if script.parent == here else f"../{script.parent.name}/"
        found.append(f'[{stem.replace("_", " ")}]({folder}{stem}.md "{known[stem].title}")')
    return ", ".join(found)


def _implementation(name: str, module: str, root: Path) -> str:
    """A box to unfold, with the code of a public name."""
    source = source_of(root / f"attnkit/{module}.py", name)
    listing = "\n".join(f"    {line}".rstrip() for line in source.splitlines())
    return (
        f'\n??? implementation "`{name}`, as it is in attnkit/{module}.py"\n\n'
        f"    [Its description](../../{uses.entry(name, root)}), its tests: `tests/test_{module}.py`\n\n"
        f"    ```python\n{listing}\n    ```\n"
    )


def source_of(module: Path, name: str) -> str:
    """The source of a function or class of ``module`` without its docstrings, which the reference shows."""
    text = module.read_text(encoding="utf-8")
    lines = text.splitlines()
    definitions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    (node,) = (definition for definition in definitions if definition.name == name)
    hidden: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner) is not None:
            first = inner.body[0]
            hidden.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    begin = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    kept = [lines[n - 1] for n in range(begin, (node.end_lineno or begin) + 1) if n not in hidden]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).replace(":\n\n", ":\n")


def _end(concept: Concept, known: dict[str, Concept], listed: list[dict[str, Any]]) -> str:
    table = ledger.table(listed, lambda entry: html.escape(entry["statement"]))
    text = (
        "\n## Claims of this page { data-search-exclude }\n\n"
        f'<details class="claims-of-page"><summary>{len(listed)} claims held when this page was built</summary>\n'
        f"{table}\n</details>\n"
    )
    if concept.leads_to:
        text += f"\n## What builds on it {{ data-search-exclude }}\n\n{_links(concept.leads_to, concept, known)}\n"
    return text
