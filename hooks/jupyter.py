"""The one place that knows mkdocs-jupyter from inside.

The plugin finds the labs, executes them and keeps what came out in its cache, whose key is the notebook's text.
What it would show is nbconvert's page with 90 kB of style sheets; here it hands over the executed notebook
instead, and the site shows that like any other page of its own.
"""

import os
import shutil
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs_jupyter import convert
from nbclient.exceptions import CellExecutionError
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode


def hand_over_notebooks() -> None:
    """Let the plugin's rendering give the text of the executed notebook."""

    def executed(path: str, *, execute: bool, kernel_name: str, allow_errors: bool, **_: Any) -> str:
        app = convert.get_nbconvert_app(execute=execute, kernel_name=kernel_name, allow_errors=allow_errors)
        return str(NotebookExporter(config=app.config).from_filename(path)[0])

    setattr(convert, "nb2html", executed)  # noqa: B010  of another type than the original


def run(files: Files, config: MkDocsConfig) -> dict[str, NotebookNode]:
    """Every lab, executed, by the address of its source.

    Called before pages are made, since the ledger counts what the labs claim; when the plugin renders the
    pages it finds them in its cache.

    Raises:
        PluginError: a cell failed; the message shows it.
    """
    plugin: Any = config.plugins["mkdocs-jupyter"]
    # One thread in every kernel, and the same order of sets.
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"})
    found = {}
    for file in files:
        if plugin.should_include(file):
            page = plugin.on_pre_page(Page(None, file, config), config, files)
            try:
                page.render(config, files)
            except CellExecutionError as error:
                raise PluginError(f"{file.src_uri} failed\n\n{error}") from None
            except ValueError:  # a cache file cut short by a build that was killed
                shutil.rmtree(plugin.config["cache_dir"], ignore_errors=True)
                page.render(config, files)
            found[file.src_uri] = read(page.content)
    return found


def read(text: str | None) -> NotebookNode:
    """The notebook that ``text`` holds."""
    return nbformat.reads(text, as_version=4)
