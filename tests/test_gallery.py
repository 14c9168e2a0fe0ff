"""What every gallery script keeps to, and that each runs alone."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT

import attnkit
from hooks import plugin

SCRIPTS = plugin.scripts(ROOT)
EVERY_SCRIPT = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)

# Places where a decimal is a name: sections, equations, versions.
PLACE = re.compile(
    r"\b(sections?|equations?|figures?|theorems?|propositions?|lemmas?|chapters?|appendi(x|ces)|tables?|version)"
    r"\s+[A-Z]?[\d.]+((,| and| to|–)\s*[\d.]+)*",
    re.I,
)
DECIMAL = re.compile(r"\d\.\d|\d\s?%")


def blocks(script: Path) -> list[tuple[str, str, int]]:
    from mkdocs_gallery.py_source_parser import split_code_and_text_blocks

    return split_code_and_text_blocks(script)[1]


def prose(script: Path) -> str:
    return "\n\n".join(text for kind, text, _ in blocks(script) if kind == "text")


def tree(script: Path) -> ast.Module:
    return ast.parse(script.read_text(encoding="utf-8"))


def claim_calls(module: ast.AST) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "claims"
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, subprocess.CompletedProcess[str]]:
    """Every script, run alone in a fresh process, in a folder of its own, with warnings as errors."""

    def run(script: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            # torch 2.5 leaves a folder of its own to the interpreter's clearing up.
            [sys.executable, "-W", "error", "-W", "ignore:Implicitly cleaning up", str(script)],
            cwd=tmp_path_factory.mktemp(script.stem),
            env=os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(SCRIPTS, pool.map(run, SCRIPTS), strict=True))


def test_there_are_scripts_in_every_part():
    parts = [part for part in (ROOT / "gallery").iterdir() if part.is_dir() and part.name != "__pycache__"]
    assert parts
    assert {script.parent for script in SCRIPTS} == set(parts)
    assert all((part / "README.md").exists() for part in parts)


@EVERY_SCRIPT
def test_a_script_runs_alone_and_makes_claims(script, runs):
    run = runs[script]
    assert run.returncode == 0, run.stderr
    assert len(re.findall(r"^✓ ", run.stdout, re.M)) >= 3, "fewer than three claims"
    assert run.stderr == ""


@EVERY_SCRIPT
def test_a_script_begins_with_a_raw_docstring_title_and_sources(script):
    assert script.read_text(encoding="utf-8").startswith('r"""\n# ')
    docstring = ast.get_docstring(tree(script))
    assert docstring is not None
    assert "*Sources:* [" in docstring
    assert "references.md#" in docstring


@EVERY_SCRIPT
def test_a_script_uses_the_style_and_ends_with_things_to_try(script):
    assert 'plt.style.use("attnkit.paper")' in script.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", prose(script), re.M)
    assert headings[-1] == "Try it"


@EVERY_SCRIPT
def test_claims_stand_before_the_figure_that_shows_them(script):
    """Figures appear above a block's own output, so a block with both would show the figure first."""
    claimed = 0
    for kind, text, line in blocks(script):
        if kind == "text":
            continue
        module = ast.parse(text)
        draws = "plt.figure(" in text or "plt.subplots(" in text
        assert not (draws and claim_calls(module)), f"line {line}: claims and a figure in one block"
        assert not draws or claimed, f"line {line}: a figure before any claim"
        claimed += len(claim_calls(module))


@EVERY_SCRIPT
def test_a_script_imports_only_what_a_reader_has(script):
    known = {"torch", "numpy", "matplotlib", "attnkit", *sys.stdlib_module_names}
    public = {*attnkit.__all__, *dir(attnkit)}
    for node in ast.walk(tree(script)):
        if isinstance(node, ast.Import):
            for name in node.names:
                assert name.name.split(".")[0] in known
                assert not name.name.startswith("attnkit.")
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module.split(".")[0] in known
            if node.module.startswith("attnkit"):
                assert node.module == "attnkit", "take public names from the package itself"
                assert {name.name for name in node.names} <= public


@EVERY_SCRIPT
def test_numbers_in_prose_are_printed_not_typed(script):
    text = re.sub(r"\$\$.*?\$\$|\$.*?\$|`[^`]*`|\]\([^)]*\)", " ", prose(script), flags=re.S)
    text = re.sub(r"^\*Sources:\*.*?(?=^\s*$|\Z)", " ", text, flags=re.S | re.M)
    text = PLACE.sub(" ", text)
    typed = [line.strip() for line in text.splitlines() if DECIMAL.search(line)]
    assert not typed


@EVERY_SCRIPT
def test_numbers_in_printed_strings_are_formatted_not_typed(script):
    module = tree(script)
    module.body = module.body[1:]  # the docstring is prose
    statements = {id(node) for call in claim_calls(module) for node in ast.walk(call.args[0])}
    formats = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.FormattedValue) and node.format_spec
        for part in ast.walk(node.format_spec)
    }
    options = {
        id(keyword.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "annotate"
    }
    typed = [
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in statements | formats | options
        and DECIMAL.search(node.value)
    ]
    assert not typed


def test_titles_and_file_names_are_unique():
    titles = Counter(re.search(r"^# (.+)$", prose(script), re.M)[1] for script in SCRIPTS)
    stems = Counter(script.stem for script in SCRIPTS)
    assert not [title for title, count in (titles + stems).items() if count > 1]


def test_every_script_has_its_own_place_in_its_part():
    for part in {script.parent for script in SCRIPTS}:
        places = [plugin.header(script, "order", 99) for script in SCRIPTS if script.parent == part]
        assert places == list(range(1, len(places) + 1)), part.name


def test_no_claim_is_stated_twice(runs):
    stated = Counter(
        line.split("   ")[0] for run in runs.values() for line in run.stdout.splitlines() if line.startswith("✓ ")
    )
    assert not [statement for statement, count in stated.items() if count > 1]


@pytest.mark.parametrize("page", ["3_causal_head/text_patterns", "8_transformer/char_lm"])
def test_the_text_pages_take_any_file(tmp_path, page):
    text = ROOT.parent / "shared" / "data" / "tinyshakespeare" / "input.txt"
    if not text.exists():
        pytest.skip("the Shakespeare text is not on this machine: ../shared/data/tinyshakespeare/input.txt")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / f"gallery/{page}.py")],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg", "ATTNKIT_TEXT": str(text)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    numbers = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", run.stdout)}
    assert {1_115_394, 65} <= numbers


def test_the_readme_snippet_runs(capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == re.search(r"# (tensor.*)", snippet)[1]
