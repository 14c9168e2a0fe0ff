"""The two forms of a lab, made from its one source: solved for the site, unsolved for the reader.

A source is a script in jupytext's percent format. Cells tagged ``exercise`` hold the worked solution; the
unsolved form keeps their signatures and docstrings. Cells tagged ``hint`` are folded in both forms. Cells
tagged ``slips`` are in neither: each slip is an edit of the solution above it, used by the tests.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

LABS = "docs/labs"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}

# Runs before a lab on the site, and is not shown.
SETUP = "import sys\n\nsys.path.append('../..')\nfrom hooks import kernel\n\nkernel.prepare()"

INSTALL = """\
**To run this notebook** you need Jupyter, VS Code or Colab, and the package `attnkit` (it brings PyTorch and
matplotlib along). With a clone of the repository: `python -m pip install --editable .` in its folder. Without one,
as in Colab: download `attnkit.zip` from the page of the labs{address}, put it beside this notebook and run
`%pip install ./attnkit.zip` in a cell of its own."""


def sources(root: Path) -> list[Path]:
    """The labs, in order."""
    return sorted((root / LABS).glob("[0-9]_*.py"))


def cells(source: Path) -> list[NotebookNode]:
    """The cells of a source, each with the line of the source on which its text begins."""
    read: list[NotebookNode] = jupytext.read(source).cells
    lines = source.read_text(encoding="utf-8").splitlines()
    starts = [number + 1 for number, line in enumerate(lines, 1) if line.startswith("# %%")]
    if len(starts) != len(read):
        raise ValueError(f"{source.name}: every cell must begin with '# %%': {len(read)} cells, {len(starts)} marks")
    for cell, start in zip(read, starts):
        cell.metadata["line"] = next(n for n in range(start, len(lines) + 1) if lines[n - 1].strip())
    return read


def solved(source: Path, vouched: dict[str, str]) -> str:
    """The form that the site executes and shows; ``vouched`` names what its outputs depend on."""
    found = [new_code_cell(SETUP, metadata={"tags": ["setup"]})]
    for tag, cell in _in_order(source):
        line = {"line": cell.metadata["line"]}
        if tag in ("skeleton", "solution"):
            text = skeleton(cell.source) if tag == "skeleton" else cell.source
            found.append(new_code_cell(text, metadata={"tags": [tag], **line}))
        elif cell.cell_type == "markdown":
            found.append(new_markdown_cell(folded("Hint", cell.source) if tag == "hint" else cell.source))
        else:
            found.append(new_code_cell(cell.source, metadata=line))
    return _written(found, {"vouched": vouched})


def unsolved(source: Path, site_url: str) -> str:
    """The form to download: skeletons to fill in, and the solutions as folded text."""
    found: list[NotebookNode] = []
    for tag, cell in _in_order(source):
        if tag == "skeleton":
            found.append(new_code_cell(skeleton(cell.source)))
        elif tag == "solution":
            found.append(new_markdown_cell(folded("A worked solution", f"```python\n{cell.source}\n```")))
        elif cell.cell_type == "markdown":
            text = portable(cell.source, site_url)
            found.append(new_markdown_cell(folded("Hint", text) if tag == "hint" else text))
        else:
            found.append(new_code_cell(cell.source))
    found.insert(1, new_markdown_cell(INSTALL.format(address=f", {site_url}labs/" if site_url else "")))
    return _written(found, {})


def _in_order(source: Path) -> Iterator[tuple[str, NotebookNode]]:
    """What a reader meets, each with its part: a skeleton, then its hints, then its solution; no slips."""
    solution = None
    for cell in cells(source):
        tag = next(iter(cell.metadata.get("tags", [])), "")
        if solution is not None and tag != "hint":
            yield "solution", solution
            solution = None
        if tag == "exercise":
            yield "skeleton", cell
            solution = cell
        elif tag != "slips":
            yield tag, cell


def skeleton(solution: str) -> str:
    """The functions of a solution with their docstrings, each body replaced by ``raise NotImplementedError``."""
    lines = solution.splitlines()
    for node in reversed(ast.parse(solution).body):
        if isinstance(node, ast.FunctionDef):
            doc = node.body[0]
            if ast.get_docstring(node) is None or len(node.body) < 2:
                raise ValueError(f"{node.name} must have a docstring and a body: the reader gets the first")
            assert doc.end_lineno is not None
            assert node.end_lineno is not None
            lines[doc.end_lineno : node.end_lineno] = ["    raise NotImplementedError"]
    return "\n".join(lines)


def folded(summary: str, text: str) -> str:
    """Markdown that a reader unfolds, in Jupyter and Colab as on the site."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def portable(text: str, site_url: str) -> str:
    """Links to pages of the site made absolute; only their words where nobody said where the site will be."""

    def absolute(link: re.Match[str]) -> str:
        words, path, anchor = link.groups(default="")
        return f"[{words}]({site_url}{path}/{anchor})" if site_url else words

    return re.sub(r"\[([^\]]+)\]\(\.\./([\w/]+)\.(?:md|ipynb)(#[\w-]+)?\)", absolute, text)


def _written(found: list[NotebookNode], metadata: dict[str, Any]) -> str:
    for number, cell in enumerate(found):
        cell["id"] = f"cell-{number:02}"  # nbformat would draw one at random
    language = {"name": "python"}
    notebook = new_notebook(cells=found, metadata={"kernelspec": KERNEL, "language_info": language, **metadata})
    return str(nbformat.writes(notebook)) + "\n"
