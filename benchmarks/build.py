"""How long a build takes after each kind of edit, beside what else could build the same scripts.

    make bench        # or: python -m benchmarks.build

Everything is measured in one run, each row once after the rows it builds on, and written as ratios to
benchmarks/build.md. R is the time plain MkDocs takes to render the same generated tree.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Cost, run
from hooks import plugin
from hooks.engine import default_jobs
from hooks.store import Store

ROOT = Path(__file__).resolve().parent.parent
MKDOCS = [sys.executable, "-m", "mkdocs", "build", "--quiet"]
QUIET = {"NO_MKDOCS_2_WARNING": "1", "SOURCE_DATE_EPOCH": "0"}
SPHINX = ["sphinx==8.2.3", "sphinx-gallery==0.22.1", "joblib==1.5.2", "torch==2.13.0", "matplotlib"]

SMALL_SCRIPT = '''r"""
# Page number {number}

*Sources:* none.
"""

import matplotlib.pyplot as plt
import torch

from attnkit import claims, softmax

plt.style.use("attnkit.paper")

# %%
# Weights.

weights = softmax(torch.zeros({number} + 1))
claims.close("the weights of page {number} sum to 1", weights.sum(), 1.0, atol=1e-6)

# %%

fig, ax = plt.subplots()
ax.plot(weights.numpy())
fig.set_label("A level line.")
'''


def project(folder: Path, *, generated: int = 0) -> Path:
    """A copy of this project in ``folder``, with so many generated scripts instead of the gallery if any."""
    for name in ("attnkit", "hooks", "docs", "gallery", "benchmarks"):
        # Parts 1 to 3, where nothing is trained: what is measured is the build, not an optimiser.
        left_out = {"docs": ["gallery"], "gallery": ["[4-9]_*"]}.get(name, [])
        ignore = shutil.ignore_patterns("__pycache__", *left_out)
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    _configure(folder)
    if generated:
        shutil.rmtree(folder / "gallery")
        (folder / "gallery/1_part").mkdir(parents=True)
        (folder / "gallery/README.md").write_text("# Gallery\n\nAll.\n")
        (folder / "gallery/1_part/README.md").write_text("# Part\n\nSome.\n")
        for number in range(generated):
            (folder / f"gallery/1_part/page_{number:03}.py").write_text(SMALL_SCRIPT.format(number=number))
    return folder


def _configure(folder: Path, *, plain: bool = False, engine: bool = True) -> None:
    """Write mkdocs.yml, not strict: with everything, without gallery and hooks, or without the engine's hooks."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config = re.sub(r"^strict: true$", "strict: false", config, flags=re.M)  # links lead to parts left out
    if plain:
        config = re.sub(r"^hooks: .*$", "", config, flags=re.M)
        config = re.sub(r"^  - gallery:\n(      .*\n)+", "", config, flags=re.M)
        config = re.sub(r"^  - Gallery: gallery\n", "", config, flags=re.M)
    if not engine:
        config = re.sub(r"^hooks: .*$", "hooks: [hooks/formulas.py]", config, flags=re.M)
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def edits(folder: Path) -> dict[str, Cost]:
    """Builds of the real gallery, each after one kind of edit."""
    project(folder)
    script = folder / "gallery/2_queries_keys_values/projections.py"
    costs = {"cold": run(MKDOCS, folder, **QUIET), "nothing changed": run(MKDOCS, folder, **QUIET)}
    _append(script, "\n# edited\n")
    costs["one script edited"] = run(MKDOCS, folder, **QUIET)
    _append(folder / "attnkit/kernel_smoothing.py", "\n# edited\n")
    costs["one module edited"] = run(MKDOCS, folder, **QUIET)
    _append(folder / "docs/notation.md", "\nEdited.\n")
    costs["one docs page edited"] = run(MKDOCS, folder, **QUIET)
    _configure(folder, plain=True)
    costs["R: plain MkDocs, same tree"] = run(MKDOCS, folder, **QUIET)
    alone = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    costs["that script alone"] = run([sys.executable, str(script)], folder, **alone)
    return costs


def plugin_alone(folder: Path) -> dict[str, Cost]:
    """The same scripts by mkdocs-gallery without the engine."""
    project(folder)
    _configure(folder, engine=False)
    return {
        "plugin alone, cold": run(MKDOCS, folder, **QUIET),
        "plugin alone, nothing changed": run(MKDOCS, folder, **QUIET),
    }


def sphinx_gallery(folder: Path) -> dict[str, Cost]:
    """The same scripts by sphinx-gallery with as many processes, in an environment of its own."""
    project(folder)
    environment = folder / "environment"
    run([sys.executable, "-m", "venv", str(environment)], folder)
    python = str(environment / "bin/python")
    constraint = ["--constraint", str(ROOT / "requirements.txt")]
    run([python, "-m", "pip", "install", "--quiet", *constraint, *SPHINX], folder)
    for readme in (folder / "gallery").rglob("README.md"):
        heading, _, rest = readme.read_text(encoding="utf-8").partition("\n")
        title = heading.lstrip("# ")
        readme.with_suffix(".rst").write_text(f"{title}\n{'=' * len(title)}\n{rest}", encoding="utf-8")
        readme.unlink()
    for script in (folder / "gallery").glob("*/*.py"):
        underlined = re.sub(
            r"^# (.*)$", lambda m: f"{m[1]}\n{'=' * len(m[1])}", script.read_text("utf-8"), count=1, flags=re.M
        )
        script.write_text(underlined, encoding="utf-8")
    (folder / "source").mkdir()
    (folder / "source/index.rst").write_text("Site\n====\n\n.. toctree::\n\n   gallery/index\n")
    (folder / "source/conf.py").write_text(
        "extensions = ['sphinx_gallery.gen_gallery']\n"
        f"sphinx_gallery_conf = dict(examples_dirs='../gallery', gallery_dirs='gallery', filename_pattern=r'\\.py$',\n"
        f"    reset_modules=('matplotlib', 'reset_torch.reset'), parallel={default_jobs()},\n"
        f"    within_subsection_order='FileNameSortKey', min_reported_time=10**6)\n"
    )
    # Scripts share processes there, and torch's default dtype would leak from one into the next.
    reset = "import torch\n\n\ndef reset(conf, name):\n    torch.set_default_dtype(torch.float32)\n"
    (folder / "reset_torch.py").write_text(reset)
    command = [python, "-m", "sphinx", "-q", "-b", "html", "source", "out"]
    one_thread = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    costs = {
        "sphinx-gallery, cold": run(command, folder, **one_thread),
        "sphinx-gallery, nothing changed": run(command, folder, **one_thread),
    }
    _append(folder / "gallery/2_queries_keys_values/projections.py", "\n# edited\n")
    costs["sphinx-gallery, one script edited"] = run(command, folder, **one_thread)
    return costs


def growth(folder: Path) -> dict[int, Cost]:
    """Cold builds of 10, 40 and 160 generated scripts."""
    return {n: run(MKDOCS, project(folder / str(n), generated=n), **QUIET) for n in (10, 40, 160)}


def targets(costs: dict[str, Cost], script_seconds: float) -> list[tuple[str, float, float]]:
    """Rows with a target: name, measured seconds, allowed seconds."""
    rendering = costs["R: plain MkDocs, same tree"].wall
    own = costs["that script alone"].wall
    return [
        ("nothing changed", costs["nothing changed"].wall, 1.3 * rendering + 1),
        ("one docs page edited", costs["one docs page edited"].wall, 1.3 * rendering + 1),
        ("one script edited", costs["one script edited"].wall, 1.3 * rendering + 2 + own),
        ("cold", costs["cold"].wall, 1.25 * script_seconds / default_jobs() + 1.3 * rendering + 5),
    ]


def table(costs: dict[str, Cost], grown: dict[int, Cost], script_seconds: float) -> str:
    """The results as Markdown."""
    rendering = costs["R: plain MkDocs, same tree"]
    lines = ["| build | wall / R | cpu / R | peak memory, MiB |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {cost.wall / rendering.wall:.2f} | {cost.cpu / rendering.cpu:.2f} | {cost.memory:.0f} |"
        for name, cost in costs.items()
    ]
    lines += ["", "| target | measured / allowed |", "|---|---|"]
    lines += [f"| {name} | {measured / allowed:.2f} |" for name, measured, allowed in targets(costs, script_seconds)]
    lines += ["", "| generated scripts | wall, of 10 scripts | peak memory, of 10 scripts |", "|---|---|---|"]
    lines += [f"| {n} | {c.wall / grown[10].wall:.2f} | {c.memory / grown[10].memory:.2f} |" for n, c in grown.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything and write benchmarks/build.md."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        costs = edits(folder / "edits")
        store = Store(folder / "edits", plugin.options(ROOT))
        seconds = sum(record.seconds for s in plugin.scripts(folder / "edits") if (record := store.read(s)))
        costs |= plugin_alone(folder / "plugin") | sphinx_gallery(folder / "sphinx")
        result = table(costs, growth(folder / "growth"), seconds)
        scripts = len(plugin.scripts(folder / "edits"))
    jobs = default_jobs()
    head = f"{scripts} scripts of parts 1 to 3, {jobs} at once, {os.cpu_count()} cores; one run of `make bench`.\n\n"
    (ROOT / "benchmarks/build.md").write_text(head + result, encoding="utf-8")
    print(head + result)


if __name__ == "__main__":
    main()
