"""MkDocs hook: make the two forms of every lab, show the solved one as it was executed, offer the other."""

import io
import platform
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hooks import jupyter, lab_page, notebooks
from hooks.project import root_of
from hooks.store import digest_of

VERSIONS = ("torch", "numpy", "matplotlib", "ipykernel", "mkdocs-jupyter")


def on_pre_build(config: MkDocsConfig) -> None:
    """Write the solved forms where mkdocs-jupyter looks for them."""
    jupyter.hand_over_notebooks()
    root = root_of(config)
    wanted = {source.with_suffix(".ipynb"): source for source in notebooks.sources(root)}
    for stale in set((root / notebooks.LABS).glob("*.ipynb")) - wanted.keys():
        stale.unlink()
    depends_on = vouched(root)
    for path, source in wanted.items():
        text = notebooks.solved(source, depends_on)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # a preview would take it for an edit
            path.write_text(text, encoding="utf-8")


@event_priority(-50)  # after mkdocs-jupyter, which would take these for labs to show
def on_files(files: Files, config: MkDocsConfig) -> None:
    """Offer the unsolved forms, and the package to those who have no clone."""
    root = root_of(config)
    for source in notebooks.sources(root):
        exercises = notebooks.unsolved(source, config.site_url or "")
        files.append(File.generated(config, f"labs/exercises/{source.stem}.ipynb", content=exercises))
    if notebooks.sources(root):
        files.append(File.generated(config, "labs/attnkit.zip", content=archive(root)))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Render an executed lab by the site's own Markdown: its links are checked, its formulas found."""
    plugin: Any = config.plugins["mkdocs-jupyter"]
    if not plugin.should_include(page.file):
        return content
    lab, stem = jupyter.read(content), lab_page.stem_of(page.file.src_uri)
    page.markdown, figures = lab_page.page(lab, stem)
    for address, svg in figures.items():
        files.append(File.generated(config, f"labs/{address}", content=svg))
    page.meta["description"] = lab_page.description(lab)
    Page.render(page, config, files)
    assert page.content is not None
    return page.content


def vouched(root: Path) -> dict[str, str]:
    """All that the outputs of a lab depend on besides its cells: a change makes a new notebook, which is run."""
    files = [*(root / "attnkit").rglob("*.py"), root / "attnkit/paper.mplstyle"]
    files += [root / f"hooks/{name}.py" for name in ("figures", "kernel")]
    versions: dict[str, Any] = {name: version(name) for name in VERSIONS}
    digests = {file.relative_to(root).as_posix(): digest_of(file) for file in sorted(files)}
    return {"python": platform.python_version(), **versions, **digests}


def archive(root: Path) -> bytes:
    """The package as pip installs it from a file, the same bytes every time."""
    files = [*(root / "attnkit").rglob("*.py*"), root / "attnkit/paper.mplstyle", root / "attnkit/py.typed"]
    files += [root / name for name in ("LICENSE", "README.md", "pyproject.toml")]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archived:
        for file in sorted(set(files)):
            if file.suffix != ".pyc":
                entry = zipfile.ZipInfo(f"attnkit-source/{file.relative_to(root).as_posix()}")
                entry.compress_type = zipfile.ZIP_DEFLATED
                archived.writestr(entry, file.read_bytes())
    return packed.getvalue()
