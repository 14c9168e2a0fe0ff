"""MkDocs hook: API entries link to the pages that use them, and code on the pages links to the entries."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from hooks import pages, plugin, uses

LIST = "{{ entries }}"

_ENTRY = re.compile(r"^::: attnkit\.(\w+)$", re.M)
_CODE = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.S)
# A name, with the module before it if there is one; not a part of a longer chain, nor what is assigned to.
_NAME = re.compile(
    r'(?<!<span class="o">\.</span>)(?P<before>(?:<span class="n">(?P<module>\w+)</span><span class="o">\.</span>)?)'
    r'<span class="n">(?P<name>\w+)</span>(?!\s*<span class="o">=</span>)'
)


def on_files(files: Files, config: MkDocsConfig) -> None:
    root = _root(config)
    if (root / "docs/api").is_dir() and (faults := uses.faults(root)):
        raise PluginError("the API reference is not complete:\n" + "\n".join(faults))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if not page.file.src_uri.startswith("api/"):
        return text
    root = _root(config)
    used, homes = used_on(root), uses.public_names(root)
    text = text.replace(LIST, listing(root))
    return _ENTRY.sub(lambda name: f"{name[0]}\n\n{about(name[1], homes, used, config.extra)}", text)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    root = _root(config)
    script = (root / page.file.src_uri).with_suffix(".py")
    if not page.file.src_uri.startswith(f"{plugin.GALLERY}/") or not script.is_file():
        return content
    targets = {}
    for name, listed in uses.entries(root).items():
        if file := files.get_file_from_path(listed[0]):
            targets[name] = get_relative_url(f"{file.url}#attnkit.{name}", page.url)
    return linked(content, uses.imported(uses.parsed(script)), uses.public_names(root), targets)


def used_on(root: Path) -> dict[str, list[str]]:
    """For every public name, links from a page of the reference to the pages that use it, in reading order."""
    found: dict[str, list[str]] = {}
    for script in plugin.scripts(root):
        source = script.relative_to(root).with_suffix(".md").as_posix()
        link = f"[{pages.title(script.read_text(encoding='utf-8'))}](../{source})"
        for name in uses.uses(script, root):
            found.setdefault(name, []).append(link)
    return found


def about(name: str, homes: dict[str, str], used: dict[str, list[str]], extra: Mapping[str, Any]) -> str:
    """What stands under an entry: where the name is used, defined and tested."""
    module, where = homes[name], used.get(name, [])
    files = [f"`{path}`" for path in (f"attnkit/{module}.py", f"tests/test_{module}.py")]
    if repository := extra.get("repository", "").rstrip("/"):
        files = [f"[{path}]({repository}/blob/HEAD/{path.strip('`')})" for path in files]
    lines = [f"Defined in {files[0]}, tested in {files[1]}."]
    if len(where) > 3:
        shown = "\n".join(f"    - {link}" for link in where)
        return f'{lines[0]}\n{{: .entry-files }}\n\n??? entry-uses "Used on {len(where)} pages"\n{shown}\n'
    pages_of = " · ".join(where) if where else "no page yet"
    return f"{lines[0]} Used on: {pages_of}.\n{{: .entry-files }}\n"


def listing(root: Path) -> str:
    """The front page's list: every page of the reference with the names it describes."""
    names: dict[str, list[str]] = {}
    for name, (page, *_) in uses.entries(root).items():
        names.setdefault(page.removeprefix("api/"), []).append(name)
    lines = []
    for page, described in names.items():
        title = pages.title((root / "docs/api" / page).read_text(encoding="utf-8"))
        links = " · ".join(f"[`{name}`]({page}#attnkit.{name})" for name in described)
        lines.append(f"[{title}]({page})\n:   {links}\n")
    return "\n".join(lines)


def linked(content: str, local: dict[str, str], public: dict[str, str], targets: dict[str, str]) -> str:
    """The HTML of a page with the first use of each public name, in each block of its code, made a link.

    Args:
        content: the page.
        local: what its script imports from attnkit, see ``uses.imported``.
        public: the public names with their modules.
        targets: the address of the entry for each public name.
    """

    def in_block(block: re.Match[str]) -> str:
        done: set[str] = set()

        def link(found: re.Match[str]) -> str:
            module = local.get(found["module"]) if found["module"] else None
            name = found["name"] if found["module"] else local.get(found["name"], "")
            known = public.get(name) == module if found["module"] else name in public
            if not known or name in done or name not in targets:
                return found[0]
            done.add(name)
            return f'{found["before"]}<a href="{targets[name]}">{found["name"]}</a>'

        return _NAME.sub(link, block[0])

    return _CODE.sub(in_block, content)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).resolve().parent
