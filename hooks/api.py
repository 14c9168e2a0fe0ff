"""MkDocs hook: API entries link to the pages that use them, and code on the pages links to the entries."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from hooks import pages, plugin, uses
from hooks.project import repository_of, root_of

LIST = "{{ entries }}"
FOLD = 3  # a list of pages longer than this is folded
THEIR_CSS = "assets/_mkdocstrings.css"  # for boxes and badges that we do not show

_CODE = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.S)
# A name, with the module before it if there is one; not a part of a longer chain, nor what is assigned to.
_NAME = re.compile(
    r'(?<!<span class="o">\.</span>)(?P<before>(?:<span class="n">(?P<module>\w+)</span><span class="o">\.</span>)?)'
    r'<span class="n">(?P<name>\w+)</span>(?!\s*<span class="o">=</span>)'
)

_used: dict[str, list[str]] = {}  # see used_on


@event_priority(-100)  # after mkdocstrings
def on_config(config: MkDocsConfig) -> None:
    config.extra_css = [css for css in config.extra_css if str(css) != THEIR_CSS]


@event_priority(-100)
def on_post_build(config: MkDocsConfig) -> None:
    (Path(config.site_dir) / THEIR_CSS).unlink(missing_ok=True)


def on_files(files: Files, config: MkDocsConfig) -> None:
    root = root_of(config)
    if faults := uses.faults(root):
        raise PluginError("the API reference is not complete:\n" + "\n".join(faults))
    _used.clear()
    _used.update(used_on(root))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if not page.file.src_uri.startswith("api/"):
        return text
    root = root_of(config)
    homes, repository = uses.public_names(root), repository_of(config)
    text = text.replace(LIST, listing(root, _flat(config.nav)))
    return uses.ENTRY.sub(lambda name: f"{name[0]}\n\n{about(name[1], homes, _used, repository)}", text)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    root = root_of(config)
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


def about(name: str, homes: dict[str, str], used: dict[str, list[str]], repository: str) -> str:
    """What stands under an entry: where the name is defined, tested and used."""
    files = [f"attnkit/{homes[name]}.py", f"tests/test_{homes[name]}.py"]
    shown = [f"[`{path}`]({repository}/blob/HEAD/{path})" if repository else f"`{path}`" for path in files]
    where = used.get(name, [])
    text = f"Defined in {shown[0]}, tested in {shown[1]}."
    if len(where) > FOLD:
        links = "\n".join(f"    - {link}" for link in where)
        return f'{text}\n{{: .entry-files }}\n\n??? entry-uses "Used on {len(where)} pages"\n\n{links}\n'
    return f"{text} Used on {' · '.join(where) or 'no page'}.\n{{: .entry-files }}\n"


def listing(root: Path, order: list[str]) -> str:
    """Every entry, page by page in the order of the navigation."""
    text = ""
    for source in order:
        page = root / "docs" / source
        if source.startswith("api/") and (names := uses.ENTRY.findall(page.read_text(encoding="utf-8"))):
            links = ", ".join(f"[`{name}`]({page.name}#attnkit.{name})" for name in names)
            text += f"## [{pages.title(page.read_text(encoding='utf-8'))}]({page.name})\n\n{links}\n\n"
    return text.rstrip()


def linked(content: str, local: dict[str, str], homes: dict[str, str], targets: dict[str, str]) -> str:
    """A page whose code links to the entries: in each block, each public name where it is first used.

    Args:
        content: the page's HTML.
        local: what the script calls the names that it takes from attnkit, and what they are there.
        homes: the module of every public name.
        targets: the address of the entry of every public name.
    """

    def block(code: re.Match[str]) -> str:
        seen: set[str] = set()

        def link(found: re.Match[str]) -> str:
            module = found["module"]
            name = local.get(found["name"], "") if module is None else found["name"]
            ours = module is None or (module in local and homes.get(name) == local[module])
            if not ours or name not in targets or name in seen:
                return found[0]
            seen.add(name)
            return f'{found["before"]}<a class="entry" href="{targets[name]}">{found["name"]}</a>'

        return _NAME.sub(link, code[0])

    return _CODE.sub(block, content)


def _flat(nav: Any) -> list[str]:
    """The pages of a navigation as it is written, in order."""
    if isinstance(nav, dict):
        nav = list(nav.values())
    return [page for entry in nav for page in _flat(entry)] if isinstance(nav, list) else [nav]
