"""A reader who copies a page's code, or downloads its notebook, gets code that runs.

Block by block in a fresh process is what a notebook does. So each page's blocks are held to be the cells of its
notebook, and the notebooks are run.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path

import pytest
from conftest import ROOT

from hooks import plugin

SCRIPTS = plugin.scripts(ROOT)
EVERY_SCRIPT = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
BLOCK = re.compile(r'<div class="(?:language-python )?highlight"[^>]*>.*?<code[^>]*>(.*?)</code>', re.S)


def notebook_of(script: Path, site: Path) -> Path:
    return (site / script.relative_to(ROOT)).with_suffix(".ipynb")


@pytest.fixture(scope="module")
def runs(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """What went wrong in each notebook, run top to bottom in a fresh kernel."""

    def run(script: Path) -> str:
        notebook = tmp_path_factory.mktemp(script.stem) / "notebook.ipynb"
        notebook.write_bytes(notebook_of(script, site).read_bytes())
        result = subprocess.run(
            [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--stdout", str(notebook)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return result.stderr[-3000:] if result.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(SCRIPTS, pool.map(run, SCRIPTS), strict=True))


@EVERY_SCRIPT
def test_the_blocks_of_a_page_are_the_cells_of_its_notebook(script, site):
    html = (site / script.relative_to(ROOT)).with_suffix("") / "index.html"
    shown = re.sub(r"<details.*?</details>", "", html.read_text(encoding="utf-8"), flags=re.S)
    blocks = [unescape(re.sub(r"<[^>]+>", "", block)).strip() for block in BLOCK.findall(shown)]
    cells = json.loads(notebook_of(script, site).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    assert code[0] == "%matplotlib inline"
    assert blocks == code[1:]


@EVERY_SCRIPT
def test_a_notebook_runs_top_to_bottom_in_a_fresh_kernel(script, runs):
    assert not runs[script]
