"""What runs, and why: fingerprints, interruptions, two builds at once, and the same bytes every time."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SmallSite

from hooks import engine, plugin, store
from hooks.store import Store


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with its bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """A site of two scripts after one good run of the gallery; tests copy it."""
    site = SmallSite(tmp_path_factory.mktemp("clean") / "project")
    site.add("good")
    site.add("other")
    run = site.run("hooks")
    assert run.returncode == 0, run.stderr
    return site


@pytest.fixture
def site(clean: SmallSite, tmp_path: Path) -> SmallSite:
    """A copy of the clean site, records and outputs included."""
    copy = SmallSite.__new__(SmallSite)
    copy.root = tmp_path / "copy"
    shutil.copytree(clean.root, copy.root)
    return copy


def reasons(site: SmallSite, monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Why each script would run, by name; None for those that would not."""
    monkeypatch.setattr(store, "_package_home", lambda: site.root)
    kept = Store(site.root, plugin.options(site.root))
    return {script.stem: kept.why(script, kept.read(script)) for script in plugin.scripts(site.root)}


def append(site: SmallSite, name: str, text: str = "\n# edited\n") -> None:
    file = site.root / name
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def test_nothing_runs_when_nothing_changed(site, monkeypatch):
    assert reasons(site, monkeypatch) == {"good": None, "other": None}


def test_an_edited_script_runs_alone(site, monkeypatch):
    append(site, "gallery/1_part/good.py")
    assert reasons(site, monkeypatch) == {"good": "changed: gallery/1_part/good.py", "other": None}


@pytest.mark.parametrize(
    "name",
    ["attnkit/simplex.py", "attnkit/claims.py", "attnkit/__init__.py", "attnkit/paper.mplstyle", "hooks/worker.py"],
)
def test_a_file_that_every_page_uses_runs_them_all(site, monkeypatch, name):
    append(site, name)
    assert reasons(site, monkeypatch) == {"good": f"changed: {name}", "other": f"changed: {name}"}


@pytest.mark.parametrize("name", ["attnkit/masks.py", "attnkit/text.py", "hooks/formulas.py", "docs/index.md"])
def test_a_file_that_no_page_uses_runs_nothing(site, monkeypatch, name):
    append(site, name)
    assert reasons(site, monkeypatch) == {"good": None, "other": None}


def test_a_module_deleted_under_a_page_runs_it(site, monkeypatch):
    (site.root / "attnkit/simplex.py").unlink()
    assert reasons(site, monkeypatch)["good"] == "changed: attnkit/simplex.py"


def test_the_plugins_settings_count_and_other_settings_do_not(site, monkeypatch):
    config = site.root / "mkdocs.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("site_name: attnkit", "site_name: other"), encoding="utf-8")
    assert reasons(site, monkeypatch)["good"] is None
    config.write_text(text.replace("capture_repr: []", "capture_repr: [__repr__]"), encoding="utf-8")
    assert reasons(site, monkeypatch)["good"] == "changed: settings"


@pytest.mark.parametrize("name", ["python", *store.VERSIONS])
def test_another_version_runs_everything(site, monkeypatch, name):
    for file in (site.root / ".cache/gallery").rglob("1_part/*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        record["fingerprint"][name] = "0.0"
        file.write_text(json.dumps(record), encoding="utf-8")
    assert reasons(site, monkeypatch) == {"good": f"changed: {name}", "other": f"changed: {name}"}


def test_variables_a_page_may_read_count_and_the_number_of_jobs_does_not(site, monkeypatch):
    monkeypatch.setenv("ATTNKIT_JOBS", "7")
    assert reasons(site, monkeypatch)["good"] is None
    monkeypatch.setenv("ATTNKIT_TEXT", "some.txt")
    assert reasons(site, monkeypatch)["good"] == "changed: environment"


@pytest.mark.parametrize(
    "name", ["good.md", "good.py", "good.ipynb", "images/mkd_glr_good_001.svg"], ids=lambda name: name.split("/")[-1]
)
def test_a_missing_or_damaged_output_is_made_again(site, monkeypatch, name):
    output = site.root / "docs/gallery/1_part" / name
    output.write_bytes(output.read_bytes() + b" ")
    assert reasons(site, monkeypatch)["good"] == f"output gallery/1_part/{name} is damaged"
    output.unlink()
    assert reasons(site, monkeypatch) == {"good": f"output gallery/1_part/{name} is missing", "other": None}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": {}}', "\0"])
def test_a_record_that_cannot_be_read_is_no_record(site, monkeypatch, text):
    (site.root / ".cache/gallery/gallery/1_part/good.json").write_text(text, encoding="utf-8")
    assert reasons(site, monkeypatch) == {"good": "no good run so far", "other": None}


def test_a_file_saved_while_its_script_ran_counts_as_changed(site, monkeypatch):
    monkeypatch.setattr(store, "_package_home", lambda: site.root)
    kept = Store(site.root, plugin.options(site.root))
    script = plugin.scripts(site.root)[0]
    before = kept.snapshot(script)
    record = kept.read(script)
    assert record is not None
    append(site, "attnkit/simplex.py")  # after the script has imported it
    stage = site.root / ".cache/stage"
    (stage / "docs").mkdir(parents=True)
    kept.publish(script, stage, result={"claims": [], "loaded": record.loaded}, seconds=1.0, before=before)
    assert kept.why(script, kept.read(script)) == "changed: attnkit/simplex.py"


def test_the_command_line_lists_explains_and_runs(site):
    listed = site.run("hooks", "--list")
    assert listed.stdout.splitlines() == ["gallery/1_part/good.py", "gallery/1_part/other.py"]
    append(site, "gallery/1_part/good.py")
    assert site.run("hooks", "--why").stdout.splitlines() == [
        "good: changed: gallery/1_part/good.py",
        "other: up to date",
    ]
    run = site.run("hooks", "good", "--jobs", "1")
    assert run.returncode == 0
    assert "good: running" in run.stdout
    assert "1 claims hold" in run.stdout
    assert "1 of 1 scripts are good" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["nobody"], "no script is named nobody"), (["--jobs", "0"], "--jobs must be at least 1, got 0")],
)
def test_a_wrong_call_says_what_is_wrong(site, arguments, complaint):
    run = site.run("hooks", *arguments)
    assert run.returncode == 2
    assert complaint in run.stderr


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_jobs_is_an_error(monkeypatch, jobs):
    monkeypatch.setenv("ATTNKIT_JOBS", jobs)
    with pytest.raises(ValueError, match=f"ATTNKIT_JOBS must be a whole number of at least 1, got '{jobs}'"):
        engine.default_jobs()


def test_outputs_of_renamed_scripts_and_stray_files_disappear(site):
    before = tree(site.root / "docs/gallery")
    (site.root / "gallery/1_part/good.py").rename(site.root / "gallery/1_part/renamed.py")
    (site.root / "docs/gallery/1_part/stray.md").write_text("stray", encoding="utf-8")
    (site.root / "docs/gallery/9_gone").mkdir()
    assert site.run("hooks").returncode == 0
    after = tree(site.root / "docs/gallery")
    assert {name.replace("good", "renamed") for name in before} == set(after)
    assert not (site.root / "docs/gallery/9_gone").exists()


def test_a_page_that_draws_less_loses_its_old_figures(site):
    script = site.root / "gallery/1_part/good.py"
    source = script.read_text(encoding="utf-8")
    more = '\nfig, ax = plt.subplots()\nfig.set_label("A second, empty figure.")\n'
    script.write_text(source.replace("# %%\n# ## Try it", f"{more}\n# %%\n# ## Try it"), encoding="utf-8")
    assert site.run("hooks").returncode == 0
    second = site.root / "docs/gallery/1_part/images/mkd_glr_good_002.svg"
    assert second.exists()
    script.write_text(source, encoding="utf-8")
    assert site.run("hooks").returncode == 0
    assert not second.exists()


@pytest.mark.parametrize("seconds", [0.5, 2.0, 2.6, 3.2, 4.0])
def test_a_killed_run_leaves_nothing_that_the_next_takes_for_good(site, clean, seconds):
    shutil.rmtree(site.root / ".cache")
    shutil.rmtree(site.root / "docs/gallery")
    process = subprocess.Popen([sys.executable, "-m", "hooks"], cwd=site.root, stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = site.run("hooks")
    assert run.returncode == 0, run.stderr
    assert tree(site.root / "docs") == tree(clean.root / "docs")


def test_a_run_killed_between_two_moves_is_made_again(site, clean, monkeypatch):
    monkeypatch.setattr(store, "_package_home", lambda: site.root)
    kept = Store(site.root, plugin.options(site.root))
    script = plugin.scripts(site.root)[0]
    record = kept.read(script)
    stage = site.root / ".cache/stage"
    (stage / "docs/gallery/1_part").mkdir(parents=True)
    for name in ("good.md", "good.py"):
        (stage / "docs/gallery/1_part" / name).write_text("half", encoding="utf-8")
    replaced = []

    def replace_once(source, target):
        if replaced:
            raise KeyboardInterrupt
        replaced.append(target)
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", replace_once)
        with pytest.raises(KeyboardInterrupt):
            kept.publish(script, stage, result={"claims": [], "loaded": record.loaded}, seconds=1.0, before={})
    assert kept.read(script) is None, "a record vouches for half of an output"
    assert site.run("hooks").returncode == 0
    assert tree(site.root / "docs") == tree(clean.root / "docs")


def test_two_builds_at_once_wait_for_each_other(site, clean):
    shutil.rmtree(site.root / ".cache")
    shutil.rmtree(site.root / "docs/gallery")
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "hooks"], cwd=site.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("waiting for the build with process id" in text for text in said) == 1
    assert sum("running" in text for text in said) == 1, "the second had nothing left to do"
    assert tree(site.root / "docs") == tree(clean.root / "docs")


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_another_folder_and_another_number_of_jobs_give_the_same_site(site, tmp_path, jobs):
    elsewhere = SmallSite(tmp_path / "a folder with spaces and ümläuts")
    elsewhere.add("good")
    elsewhere.add("other")
    built = []
    for one in (site, elsewhere):
        build = one.build(ATTNKIT_JOBS=jobs, SOURCE_DATE_EPOCH="0")
        assert build.returncode == 0, build.stderr
        built.append(tree(one.root / "site"))
    assert built[0] == built[1]


def test_scripts_do_not_reach_each_other(small_site):
    leaks = """
import os, random, sys, warnings
os.environ["LEAK"] = "yes"; os.chdir("/"); random.seed(7); torch.manual_seed(7); warnings.simplefilter("ignore")
sys.modules["leak"] = sys; torch.set_default_dtype(torch.float64); plt.rcParams["lines.linewidth"] = 9
"""
    small_site.add("a_leaks", leaks)
    probe = """
import os, sys, warnings
claims.holds("no variable leaks", "LEAK" not in os.environ)
claims.holds("the folder is the script's own", os.getcwd().endswith("1_part"))
claims.holds("no module leaks", "leak" not in sys.modules)
claims.holds("no default leaks", torch.get_default_dtype() == torch.float32)
claims.holds("no style leaks", plt.rcParams["lines.linewidth"] < 9)
try:
    warnings.warn("heard")
except UserWarning:
    heard = True
claims.holds("warnings are errors", heard)
claims.holds("one thread", torch.get_num_threads() == 1)
"""
    small_site.add("b_probes", probe)
    run = small_site.run("hooks", "--jobs", "1")
    assert run.returncode == 0, run.stderr


def test_what_a_script_prints_is_shown_whatever_it_is(small_site):
    odd = r"""
print("```\nnot the end\n```")
print("\x1b[31mred\x1b[0m")
print("half a character: \udcff")
print("<script>alert(1)</script> {{ claims }} $x$ ## no heading")
"""
    small_site.add("odd", odd)
    assert small_site.build().returncode == 0
    html = (small_site.root / "site/gallery/1_part/odd/index.html").read_text(encoding="utf-8")
    assert "```\nnot the end\n```" in html
    assert "\nred\n" in html
    assert "half a character: \\udcff" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; {{ claims }} $x$ ## no heading" in html


def test_ten_megabytes_of_output_are_refused_by_name(small_site):
    small_site.add("talks", "\nprint('x' * 10_000_000)\n")
    run = small_site.run("hooks")
    assert run.returncode == 1
    assert "ValueError: a block printed 10,000,001 characters; a page shows at most 20,000" in run.stderr


@contextlib.contextmanager
def mounted(folder: Path, options: str):
    """A small file system of its own on ``folder``; the test is skipped where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", ["16k", "32k"])
def test_a_full_disk_fails_the_build_and_leaves_nothing(site, clean, size):
    shutil.rmtree(site.root / ".cache")
    shutil.rmtree(site.root / "docs/gallery")
    with mounted(site.root / ".cache", f"size={size}"):
        run = site.run("hooks")
        assert run.returncode == 1
        assert "0 of 2 scripts are good" in run.stdout
        assert "its process ended before the script did" in run.stderr or "No space left on device" in run.stderr
    run = site.run("hooks")
    assert run.returncode == 0, run.stderr
    assert tree(site.root / "docs") == tree(clean.root / "docs")


def test_a_full_disk_under_the_pages_fails_the_build_and_leaves_nothing(site, clean):
    shutil.rmtree(site.root / ".cache")
    shutil.rmtree(site.root / "docs/gallery")
    with mounted(site.root / "docs/gallery", "size=40k"):
        run = site.run("hooks")
        assert run.returncode == 1
        assert "its outputs could not be stored: " in run.stderr
        assert "No space left on device" in run.stderr
    run = site.run("hooks")
    assert run.returncode == 0, run.stderr
    assert tree(site.root / "docs") == tree(clean.root / "docs")


def test_a_read_only_docs_folder_is_named(site):
    with mounted(site.root / "docs/gallery", "ro"):
        build = site.build()
    assert build.returncode != 0
    assert f"the build must be able to write to {site.root / 'docs/gallery'}: Read-only file system" in build.stderr


def test_a_folder_that_cannot_be_written_is_named(site):
    shutil.rmtree(site.root / "docs/gallery")
    (site.root / "docs/gallery").write_text("a file where the folder should be", encoding="utf-8")
    build = site.build()
    assert build.returncode != 0
    assert f"the build must be able to write to {site.root / 'docs/gallery'}: File exists" in build.stderr
