"""The one place that knows mkdocs-gallery from inside; tests/test_plugin.py says what it relies on."""

import logging
import re
import warnings
from pathlib import Path
from typing import Any

from mkdocs.utils.yaml import yaml_load

from hooks import pages

GALLERY, DOCS = "gallery", "docs"
#: What the plugin copies into every site and no page of this one shows.
UNUSED = ("sg_gallery*.css", "binder_badge_logo.svg", "broken_example.png", "broken_stamp.svg", "no_image.png")
LONGEST_OUTPUT = 20_000  # characters, of one block

# Marks where a block's printed text begins and ends in what parse_and_execute gives back, in place
# of the plugin's own fence, which a text with a fence of its own would break out of.
_MARK = "\x00"


def options(root: Path) -> dict[str, Any]:
    """The plugin's settings, as they stand in ``mkdocs.yml``."""
    with (root / "mkdocs.yml").open(encoding="utf-8") as file:
        config = yaml_load(file)
    for entry in config["plugins"]:
        if isinstance(entry, dict) and "gallery" in entry:
            return dict(entry["gallery"])
    raise KeyError(f"no plugin named gallery with settings in {root / 'mkdocs.yml'}")


def scripts(root: Path) -> list[Path]:
    """Every gallery script in reading order: part by part, within a part as ``# mkdocs_gallery_order`` says."""
    return sorted(
        (root / GALLERY).glob("*/*.py"), key=lambda script: (script.parent, header(script, "order", 99), script)
    )


def header(script: Path, name: str, default: float) -> float:
    """A number set in the script by ``# mkdocs_gallery_<name> = <number>``."""
    from mkdocs_gallery.py_source_parser import extract_file_config

    return float(extract_file_config(script.read_text(encoding="utf-8")).get(name, default))


def builds_on(script: Path) -> tuple[str, ...]:
    """The stems of the pages that a script builds on, from ``# mkdocs_gallery_builds_on = [...]``."""
    from mkdocs_gallery.py_source_parser import extract_file_config

    return tuple(extract_file_config(script.read_text(encoding="utf-8")).get("builds_on", ()))


def render(script: Path, root: Path, docs: Path) -> None:
    """Run ``script`` and write its page, figures, notebook and copy below ``docs / "gallery"``."""
    from mkdocs_gallery import gen_single
    from mkdocs_gallery.gen_data_model import AllInformation
    from mkdocs_gallery.gen_gallery import parse_config
    from mkdocs_gallery.notebook import jupyter_notebook, save_notebook
    from mkdocs_gallery.py_source_parser import remove_config_comments, split_code_and_text_blocks

    from hooks import figures  # imports torch: only in a script's own process

    settings = options(root) | {"image_scrapers": (figures.scrape,), "reset_modules": ()}
    everything = AllInformation(
        gallery_conf=parse_config(settings, mkdocs_conf=None),
        mkdocs_conf={"docs_dir": str(docs), "site_dir": str(docs)},
        project_root_dir=root,
    )
    everything.add_gallery(root / GALLERY, docs / "gallery")
    everything.populate_subsections()
    everything.collect_script_files()
    parts = [part for gallery in everything.galleries for part in gallery.subsections]
    (one,) = (found for part in parts for found in part.scripts if found.src_py_file == script)

    one.gallery.make_generated_dir()
    one.make_dwnld_py_file()
    one.init_before_processing()
    blocks = split_code_and_text_blocks(script)[1]
    gen_single.CODE_OUTPUT = f"{_MARK}{{0}}{_MARK}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=r"mkdocs_gallery\.")
        outputs, _, _ = gen_single.parse_and_execute(one, blocks)
    shown = [(kind, remove_config_comments(text), line) for kind, text, line in blocks]
    save_notebook(jupyter_notebook(one, shown), one.ipynb_file)
    markdown = pages.page(
        script.relative_to(root).as_posix(),
        script.stem,
        [_block(kind, text, output) for (kind, text, _), output in zip(shown, outputs) if text.strip()],
    )
    one.md_file.write_text(markdown, encoding="utf-8")


def _block(kind: str, text: str, output: str) -> pages.Block:
    figures, *parts = output.split(_MARK)
    printed = _MARK.join(parts[:-1])
    if len(printed) > LONGEST_OUTPUT:
        raise ValueError(f"a block printed {len(printed):,} characters; a page shows at most {LONGEST_OUTPUT:,}")
    # What UTF-8 cannot hold is shown as an escape.
    return pages.Block(kind, text, figures, printed.encode("utf-8", "backslashreplace").decode("utf-8"))


def sections(script: Path) -> list[tuple[int, str]]:
    """First line and heading of every section, in order; the first is the title."""
    from mkdocs_gallery.py_source_parser import split_code_and_text_blocks

    found = []
    for kind, text, line in split_code_and_text_blocks(script)[1]:
        if kind == "text" and (heading := re.search(r"^#+ (.+)$", text, re.M)):
            found.append((line, heading[1].strip()))
    return found


def quiet() -> None:
    """Keep the plugin from what it need not do or say in this process, where no script runs.

    It would import matplotlib, draw a progress bar for pages that are made already, warn of spaces in
    the path to a clone, and sum up times of runs that did not happen.
    """
    from mkdocs_gallery import gen_gallery, gen_single

    setattr(gen_single, "tqdm", lambda scripts, **_: scripts)  # noqa: B010  not a name it exports
    setattr(gen_gallery, "_import_matplotlib", lambda: None)  # noqa: B010  likewise
    gen_gallery.check_spaces_in_filenames = lambda files: None
    gen_gallery.logger.setLevel(logging.WARNING)


def page_of(script: Path, root: Path) -> Path:
    """Where the page of a script is written."""
    return root / DOCS / script.relative_to(root).with_suffix(".md")


def mark_as_made(script: Path, root: Path) -> None:
    """Leave the md5 file by which the plugin knows that a script need not run."""
    from mkdocs_gallery.utils import get_md5sum

    _mark(script, root).write_text(get_md5sum(script, mode="t"), encoding="utf-8")


def unmark(root: Path) -> None:
    """Remove those files again: left behind, they would make the plugin keep whatever lies there."""
    for script in scripts(root):
        _mark(script, root).unlink(missing_ok=True)


def _mark(script: Path, root: Path) -> Path:
    return root / DOCS / script.relative_to(root).with_suffix(".py.md5")
