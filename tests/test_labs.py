"""The labs: one source makes both forms, every check passes the solution and names each slip."""

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from conftest import ROOT

from attnkit import labs
from hooks import jupyter, lab_page, notebooks

SOURCES = notebooks.sources(ROOT)
by_lab = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


@pytest.fixture(autouse=True)
def plain_figures(monkeypatch):
    """Figures are drawn without a window and forgotten after each test."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    yield
    plt.close("all")


def tags(cell):
    return cell.metadata.get("tags", [])


def code_cells(source):
    return [cell for cell in notebooks.cells(source) if cell.cell_type == "code"]


def edits(cell):
    """The slips of a cell: what to replace in the solution, by what, and the words that must name it."""
    return ast.literal_eval(cell.source.removeprefix("slips = "))


def exercises(source):
    return [cell for cell in code_cells(source) if "exercise" in tags(cell)]


@by_lab
def test_a_lab_has_four_to_six_exercises_each_with_hint_check_and_slips(source):
    kinds = [
        (tags(cell) or ["check" if "labs.check_" in cell.source else "other"])[0] for cell in notebooks.cells(source)
    ]
    steps = [kinds[n : n + 4] for n, kind in enumerate(kinds) if kind == "exercise"]
    assert 4 <= len(steps) <= 6
    assert all(step == ["exercise", "hint", "check", "slips"] for step in steps)


@by_lab
def test_each_check_passes_the_solution_and_names_every_slip(source):
    namespace, solution, check = {}, "", ""
    for cell in code_cells(source):
        if "slips" in tags(cell):
            found = edits(cell)
            assert len(found) >= 3, solution
            for old, new, words in found:
                assert solution.count(old) == 1, old
                wrong = dict(namespace)
                exec(solution.replace(old, new), wrong)
                with pytest.raises(labs.CheckError, match=re.escape(words)):
                    exec(check, wrong)
            continue
        if "exercise" in tags(cell):
            solution = cell.source
        if "labs.check_" in cell.source:
            check = cell.source
        exec(cell.source, namespace)


@by_lab
def test_each_check_greets_an_exercise_that_is_not_written(source):
    namespace, skeleton = {}, ""
    for cell in code_cells(source):
        if "slips" in tags(cell):
            continue
        if "exercise" in tags(cell):
            skeleton = notebooks.skeleton(cell.source)
        if "labs.check_" in cell.source:
            unwritten = dict(namespace)
            exec(skeleton, unwritten)
            with pytest.raises(labs.NotWrittenError, match=r"^Exercise \d\.\d is yours to write"):
                exec(cell.source, unwritten)
        exec(cell.source, namespace)


def run(notebook, folder, **options):
    """Execute a notebook in a fresh kernel that knows attnkit and nothing of the project."""
    path = folder / "lab.ipynb"
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", path.name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))


@by_lab
def test_an_unsolved_notebook_with_the_solutions_filled_in_runs_to_its_end(source, tmp_path):
    notebook = jupyter.read(notebooks.unsolved(source, ""))
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.endswith("raise NotImplementedError"):
            folded = next(
                c.source for c in notebook.cells[notebook.cells.index(cell) :] if "worked solution" in c.source
            )
            cell.source = re.search(r"```python\n(.*)\n```", folded, re.S)[1]
    result = run(notebook, tmp_path)
    assert result.returncode == 0, result.stderr
    executed = nbformat.read(tmp_path / "lab.nbconvert.ipynb", 4)
    printed = "".join(o.get("text", "") for c in executed.cells for o in c.get("outputs", []))
    assert printed.count("✓ lab ") > len(exercises(source))


def test_an_unsolved_notebook_as_it_is_stops_at_its_first_exercise_with_a_friendly_word(tmp_path):
    result = run(jupyter.read(notebooks.unsolved(SOURCES[0], "")), tmp_path)
    assert result.returncode != 0
    assert "Exercise 1.1 is yours to write" in result.stderr
    assert "_check.py" not in result.stderr


@by_lab
def test_both_forms_are_the_same_bytes_every_time_and_have_stable_ids(source):
    for make in (lambda: notebooks.solved(source, {"a": "b"}), lambda: notebooks.unsolved(source, "")):
        text = make()
        assert text == make()
        nbformat.validate(jupyter.read(text))
        ids = [cell["id"] for cell in json.loads(text)["cells"]]
        assert len(set(ids)) == len(ids)


@by_lab
def test_the_unsolved_form_says_how_to_install_and_links_only_where_the_site_is_known(source):
    alone = notebooks.unsolved(source, "")
    assert "pip install" in alone
    assert "](../" not in alone
    assert "](https://example.org/gallery/" in notebooks.unsolved(source, "https://example.org/")


def test_a_change_in_what_a_lab_depends_on_makes_another_notebook():
    assert notebooks.solved(SOURCES[0], {"attnkit/a.py": "1"}) != notebooks.solved(SOURCES[0], {"attnkit/a.py": "2"})


@by_lab
def test_a_built_lab_is_light_has_described_figures_and_its_download(source, site):
    data = (site / "labs" / source.stem / "index.html").read_bytes()
    assert len(gzip.compress(data)) <= 60_000
    html = data.decode()
    assert "<style" not in html.split("<article", 1)[1]
    assert "jp-" not in html
    figures = re.findall(rf'<img [^>]*images/{source.stem}_\d\.svg"[^>]*>', html)
    assert figures
    for figure in figures:
        assert re.search(r'alt="[^"]{20,}"', figure)
        assert 'loading="lazy"' in figure
    exercise = (site / "labs/exercises" / f"{source.stem}.ipynb").read_text(encoding="utf-8")
    assert exercise.count('"    raise NotImplementedError"') == len(exercises(source))
    assert html.count("<summary>A worked solution</summary>") == len(exercises(source))


def test_the_claims_of_the_labs_are_in_the_ledger(site):
    listed = json.loads((site / "claims.json").read_text(encoding="utf-8"))
    for source in SOURCES:
        of_lab = [entry for entry in listed if entry["page"] == f"labs/{source.stem}/"]
        assert len(of_lab) >= len(exercises(source))
        for entry in of_lab:
            number = int(entry["source"].split(":")[1])
            line = source.read_text(encoding="utf-8").splitlines()[number - 1]
            assert re.match(r"(labs\.check_\w+|claims\.\w+)\(", line), entry


def test_the_package_to_upload_is_whole(site):
    with zipfile.ZipFile(site / "labs/attnkit.zip") as archive:
        names = {name.removeprefix("attnkit-source/") for name in archive.namelist()}
    assert {"pyproject.toml", "attnkit/__init__.py", "attnkit/labs/__init__.py", "attnkit/paper.mplstyle"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


LAB = """# %% [markdown]
# # A lab
#
# What it is.

# %%
import matplotlib.pyplot as plt
from attnkit import claims

claims.holds("one is one", 1 == 1)
fig, ax = plt.subplots()
fig.set_label("An empty pair of axes.")
plt.show()
"""


def with_lab(small_site, text):
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, small_site.root)
    config = small_site.root / "mkdocs.yml"
    nav = "  - Labs: [labs/index.md, labs/1_lab.ipynb]\n  - Claims: claims.md\n"
    config.write_text(config.read_text(encoding="utf-8").replace("  - Claims: claims.md\n", nav), encoding="utf-8")
    folder = small_site.root / "docs/labs"
    folder.mkdir()
    (folder / "index.md").write_text("# Labs\n\n[One](1_lab.ipynb)\n", encoding="utf-8")
    (folder / "1_lab.py").write_text(text, encoding="utf-8")
    return small_site.build()


def test_a_small_lab_is_built_and_counted(small_site):
    result = with_lab(small_site, LAB)
    assert result.returncode == 0, result.stderr
    assert "one is one" in (small_site.root / "site/claims.json").read_text(encoding="utf-8")
    assert (small_site.root / "site/labs/images/1_lab_1.svg").exists()

    page = (small_site.root / "site/labs/1_lab/index.html").read_bytes()
    for cached in small_site.root.glob(".cache/mkdocs-jupyter/*.json"):
        cached.write_text("cut short", encoding="utf-8")
    assert small_site.build().returncode == 0
    assert (small_site.root / "site/labs/1_lab/index.html").read_bytes() == page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1 == 1", "1 == 2", "one is one: false in 1 of 1"),
        ('fig.set_label("An empty pair of axes.")', "", "a figure without description"),
        ("plt.show()", "plt.show()\n# %% [markdown]\n# [Gone](gone.md)", "gone.md"),
        ("What it is.", "It is $\\frac{1$.", "problems with formulas"),
    ],
    ids=["false claim", "figure without description", "broken link", "bad formula"],
)
def test_a_fault_in_a_lab_fails_the_build(small_site, old, new, message):
    result = with_lab(small_site, LAB.replace(old, new))
    assert result.returncode != 0
    assert message in result.stdout + result.stderr
    assert not (small_site.root / "site").exists()


def test_the_claims_of_a_lab_are_read_as_they_were_printed():
    measured = [
        lab_page._CLAIMED.match(line)
        for line in (
            "✓ a is b   off by 1e-9, allowed 1e-06",
            "✓ a is small   0.5 < 1",
            "✓ a holds   true in all 3 cases",
        )
    ]
    assert [m["statement"] for m in measured] == ["a is b", "a is small", "a holds"]
    assert [m["measured"] for m in measured] == ["off by 1e-9", "0.5", "true in all 3 cases"]
    assert [m["within"] or m["bound"] for m in measured] == ["1e-06", "< 1", None]
