"""MkDocs hook: run the gallery before the plugin looks at it, and clear up after it."""

import logging
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files

from hooks import engine, pages, plugin
from hooks.project import root_of
from hooks.store import Store

log = logging.getLogger("mkdocs.hooks.gallery")

_serving = False
_site: Path | None = None
_lock: FileLock | None = None


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    global _serving
    _serving = command == "serve"
    plugin.quiet()


@event_priority(-100)  # after mkdocs-gallery
def on_config(config: MkDocsConfig) -> None:
    """Leave out the plugin's style sheets: they are made for its own thumbnails and for light pages."""
    global _site
    _site = Path(config.site_dir)
    config.extra_css = [css for css in config.extra_css if not str(css).startswith("sg_gallery")]


@event_priority(100)  # before mkdocs-gallery, which then finds every page already made
def on_pre_build(config: MkDocsConfig) -> None:
    global _lock
    root = root_of(config)
    store = Store(root, plugin.options(root))
    _lock = store.lock(log.info)
    scripts = plugin.scripts(root)
    stale = [script for script in scripts if store.why(script, store.read(script))]
    failures = engine.run(store, stale, jobs=engine.default_jobs(), say=log.info)
    if failures:
        report = f"{len(failures)} of {len(scripts)} scripts failed\n\n"
        report += "\n\n".join(failure.report(root) for failure in failures)
        if not _serving:
            raise PluginError(report)
        print(report, file=sys.stderr)  # MkDocs would count a logged error, and a strict build stop there
    store.sweep([record for script in scripts if (record := store.read(script))])
    for failure in failures:  # the preview lives on and shows what is wrong
        page = pages.failure(failure.script.stem, failure.report(root))
        plugin.page_of(failure.script, root).write_text(page, encoding="utf-8")
    for script in scripts:
        plugin.mark_as_made(script, root)


@event_priority(-100)
def on_files(files: Files, config: MkDocsConfig) -> None:
    """Take the plugin's marks away (only a record says that a page may be kept), redo its index and order."""
    root = root_of(config)
    plugin.unmark(root)
    scripts = plugin.scripts(root)
    pages.write_index(root / plugin.GALLERY, scripts, root / plugin.DOCS / "gallery")
    place = {script.relative_to(root).with_suffix(".md").as_posix(): number for number, script in enumerate(scripts)}
    config.nav = _in_reading_order(config.nav, place)


@event_priority(-100)
def on_post_build(config: MkDocsConfig) -> None:
    for name in plugin.UNUSED:
        for path in Path(config.site_dir).glob(name):
            path.unlink()
    _release()


@event_priority(-100)
def on_build_error(error: Exception) -> None:
    """A build that failed leaves no site that somebody could publish."""
    if not _serving and _site is not None:
        shutil.rmtree(_site, ignore_errors=True)
    _release()


def _in_reading_order(nav: Any, place: dict[str, int]) -> Any:
    """The navigation with the pages of each part, which the plugin sorts by name, in their own order."""
    if isinstance(nav, list):
        # Sorting is stable, so whatever is no gallery page stays where it is, before those that are.
        ordered = sorted(nav, key=lambda entry: place.get(next(iter(entry.values())), -1) if _is_page(entry) else -1)
        return [_in_reading_order(entry, place) for entry in (ordered if any(map(_is_page, nav)) else nav)]
    if isinstance(nav, dict):
        return {title: _in_reading_order(entry, place) for title, entry in nav.items()}
    return nav


def _is_page(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())


def _release() -> None:
    global _lock
    if _lock is not None:
        _lock.release()
        _lock = None
