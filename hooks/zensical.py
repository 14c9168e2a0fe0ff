"""Render the same tree with Zensical, to see that nothing here depends on MkDocs: ``python -m hooks.zensical EXE``.

The gallery must have been run (``python -m hooks``); EXE is the program of Zensical's own environment.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hooks import formulas, ledger, plugin

CONFIG = """\
site_name: attnkit
site_dir: site
theme: { name: material, font: false }
extra_css: [assets/attnkit.css]
markdown_extensions:
  - admonition
  - attr_list
  - def_list
  - footnotes
  - md_in_html
  - tables
  - toc: { permalink: true }
  - pymdownx.arithmatex: { generic: true }
  - pymdownx.highlight
  - pymdownx.superfences
"""


def main(executable: str) -> int:
    """Return 0 if every gallery page came out with its figures and formulas; print what is missing."""
    root = Path.cwd()
    stage = root / ".cache" / "zensical"
    shutil.rmtree(stage, ignore_errors=True)
    # The API reference is made by a plugin that Zensical does not run.
    shutil.copytree(root / plugin.DOCS, stage / "docs", ignore=shutil.ignore_patterns("api"))
    _write_claims(root, stage / "docs")
    (stage / "zensical.yml").write_text(CONFIG, encoding="utf-8")
    subprocess.run([executable, "build", "--strict", "--config-file", "zensical.yml"], cwd=stage, check=True)
    site = stage / "site"
    for page in sorted(site.rglob("*.html")):
        html = formulas.convert(page.read_text(encoding="utf-8"), page.relative_to(site).as_posix())
        page.write_text(html, encoding="utf-8")
    (site / formulas.FONT).write_bytes(formulas.finish(root))
    scripts = plugin.scripts(root)
    missing = [line for script in scripts for line in _missing(script.relative_to(root), stage)]
    print("\n".join(missing) or f"Zensical rendered all {len(scripts)} gallery pages with their figures and formulas")
    return 1 if missing else 0


def _write_claims(root: Path, docs: Path) -> None:
    listed = ledger.entries(root)
    (docs / "claims.json").write_text(json.dumps(listed), encoding="utf-8")
    (docs / "claims.md").write_text(ledger.markdown(root, listed), encoding="utf-8")
    for name in ("index.md", "claims.md"):
        (docs / name).write_text(
            ledger.with_counts((docs / name).read_text(encoding="utf-8"), listed), encoding="utf-8"
        )


def _missing(script: Path, stage: Path) -> list[str]:
    source = (stage / "docs" / script.with_suffix(".md")).read_text(encoding="utf-8")
    page = stage / "site" / script.with_suffix("") / "index.html"
    if not page.exists():
        return [f"{script}: no page"]
    html = page.read_text(encoding="utf-8")
    found = [f"{script}: formula left as TeX"] if "arithmatex" in html or "<math" not in html else []
    for name in re.findall(r"\((images/mkd_glr_\S+?\.svg)\)", source):
        if Path(name).name not in html or not (page.parent.parent / name).exists():
            found.append(f"{script}: figure {name} is missing")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
