"""Break one thing, and the pages that rest on it refuse to be built, naming the claim."""

import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, SmallSite

ATTENTION, MASKS, HEADS = "scaled_dot_product.py", "masks.py", "multi_head.py"

# What is broken: the module, each text there with the text instead, a page that must refuse.
FAULTS = {
    "the scale is dropped": (ATTENTION, {"1.0 / math.sqrt(q.shape[-1])": "1.0"}, "multi_head"),
    "the causal mask is shifted by one": (
        MASKS,
        {"return _distance(T, S, offset) >= 0": "return _distance(T, S, offset) >= -1"},
        "causal_head",
    ),
    "softmax runs over the queries": (ATTENTION, {"softmax(scores)": "softmax(scores, dim=-2)"}, "weights_and_values"),
    "heads are split by a view": (
        HEADS,
        {
            "x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).transpose(-3, -2)": (
                "x.reshape(*x.shape[:-2], n_heads, x.shape[-2], x.shape[-1] // n_heads)"
            )
        },
        "multi_head",
    ),
    "the mask comes after the softmax": (
        ATTENTION,
        {
            'scores = scores.masked_fill(~mask, float("-inf"))': "pass",
            "weights = softmax(scores).to(v.dtype)": (
                "weights = softmax(scores).to(v.dtype)\n"
                "    weights = weights if mask is None else weights.masked_fill(~mask, 0)"
            ),
        },
        "masking",
    ),
    "an LSTM's input and forget gates are swapped": (
        "recurrent.py",
        {"i, f, g, o = (linear(x, w_ih, b_ih)": "f, i, g, o = (linear(x, w_ih, b_ih)"},
        "adding_problem",
    ),
    "a GRU resets before the product": (
        "recurrent.py",
        {
            "n = torch.tanh(input_n + r * hidden_n)": (
                "n = torch.tanh(input_n + linear(r * h, w_hh.chunk(3)[2], None if b_hh is None else b_hh.chunk(3)[2]))"
            )
        },
        "adding_problem",
    ),
    "the additive score has no tanh": (
        "additive.py",
        {"hidden = torch.tanh(self.query(query)": "hidden = (self.query(query)"},
        "additive_attention",
    ),
    "alignment scores do not see the source": (
        "additive.py",
        {"self.key(keys).unsqueeze(-3)": "self.key(torch.zeros_like(keys)).unsqueeze(-3)"},
        "additive_attention",
    ),
    "rotary frequencies fall half as fast": (
        "rotary.py",
        {"base ** (-even / max(rotary_dim, 1))": "base ** (-even / 2 / max(rotary_dim, 1))"},
        "rotary",
    ),
    "the sinusoid's exponent doubles an even index": (
        "sinusoidal.py",
        {"base ** (-even / d_model)": "base ** (-2 * even / d_model)"},
        "sinusoidal",
    ),
    "ALiBi starts at slope 1": (
        "alibi.py",
        {"[2 ** (-8 * h / power) for h in range(1, power + 1)]": "[2 ** (-8 * h / power) for h in range(power)]"},
        "alibi",
    ),
    "the running maximum is not updated": (
        "online_softmax.py",
        {"                row_max = new_max\n": ""},
        "online_softmax",
    ),
    "the accumulator is not rescaled": (
        "online_softmax.py",
        {"mixed = rescale * mixed + unnormalised": "mixed = mixed + unnormalised"},
        "online_softmax",
    ),
    "the cache's offset is ignored": (
        "transformer.py",
        {"causal_mask(T, n + T, offset=n)": "causal_mask(T, n + T)"},
        "block",
    ),
    "heads are tiled instead of repeated": (
        HEADS,
        {
            "x.repeat_interleave(n_heads // n_kv_heads, dim=-3)": (
                "x.repeat(*[1] * (x.ndim - 3), n_heads // n_kv_heads, 1, 1)"
            )
        },
        "grouped_query",
    ),
    "a window shows one key more": (
        MASKS,
        {"(distance < window)": "(distance <= window)"},
        "sliding_window_and_sinks",
    ),
    "linear attention has no normaliser": (
        "linear.py",
        {"(mixed / total.masked_fill(total == 0, 1.0)).to(v.dtype)": "mixed.to(v.dtype)"},
        "linear_attention",
    ),
    "LayerNorm takes the unbiased variance": (
        "transformer.py",
        {
            "deviation.square().mean(dim=-1, keepdim=True)": (
                "deviation.square().sum(dim=-1, keepdim=True) / (x.shape[-1] - 1)"
            )
        },
        "block",
    ),
    "the residual is left out": (
        "transformer.py",
        {"x = self.norm_1(x + found) if self.post else x + found": ("x = self.norm_1(found) if self.post else found")},
        "block",
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> SmallSite:
    """The real gallery in a folder where the package can be broken."""
    site = SmallSite(tmp_path / "project")
    shutil.rmtree(site.root / "gallery")
    shutil.copytree(ROOT / "gallery", site.root / "gallery")
    return site


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_package_stops_the_page_that_rests_on_it(project, fault):
    module, changes, page = FAULTS[fault]
    file = project.root / "attnkit" / module
    source = file.read_text(encoding="utf-8")
    for right, wrong in changes.items():
        assert source.count(right) == 1, "the fault no longer fits the code"
        source = source.replace(right, wrong)
    file.write_text(source, encoding="utf-8")
    run = project.run("hooks", page)
    assert run.returncode == 1
    assert re.search(rf"/{page}\.py, line \d+\n    ✗ .+: off by .+, allowed ", run.stderr)
    assert "0 of 1 scripts are good" in run.stdout


def test_a_broken_link_stops_the_build(small_site):
    index = small_site.root / "docs/index.md"
    index.write_text(index.read_text() + "\n[nowhere](nowhere.md)\n", encoding="utf-8")
    build = small_site.build()
    assert build.returncode != 0
    assert "nowhere.md" in build.stderr
    assert not (small_site.root / "site").exists(), "a site that failed could be published"


def test_a_broken_anchor_stops_the_build(small_site):
    index = small_site.root / "docs/index.md"
    index.write_text(index.read_text() + "\n[nowhere](claims.md#nowhere)\n", encoding="utf-8")
    build = small_site.build()
    assert build.returncode != 0
    assert "#nowhere" in build.stderr


# What a script does at its end, and what the build says of it.
BAD_ENDINGS = {
    "warns": ('import warnings\nwarnings.warn("look out")', "UserWarning: look out"),
    "raises": ("raise ValueError('broken')", "ValueError: broken"),
    "claims_falsely": ('claims.close("one is two", 1.0, 2.0, atol=0.5)', "✗ one is two: off by 1, allowed 0.5"),
    "leaves_early": ("import sys\nsys.exit(0)", "called sys.exit(0)"),
    "leaves_at_once": ("import os\nos._exit(0)", "its process ended before the script did: exit code 0"),
    "crashes": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    "describes_no_figure": ("plt.subplots()", "a figure without description"),
    "takes_too_long": ("# mkdocs_gallery_time_limit = 5\nimport time\ntime.sleep(60)", "took longer than 5 s"),
    "takes_too_much": ("# mkdocs_gallery_memory_limit = 6\ntorch.zeros(2**31)", "can't allocate memory"),
    "claims_nothing": (None, "the script made no claim"),
    "draws_nothing": (None, "the script drew no figure"),
}


@pytest.fixture(scope="module")
def bad_site(tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """A site with one good script and one for each bad ending."""
    site = SmallSite(tmp_path_factory.mktemp("bad") / "project")
    site.add("good")
    for name, (ending, _) in BAD_ENDINGS.items():
        script = site.add(name, f"\n{ending}\n" if ending else "")
        source = script.read_text(encoding="utf-8")
        if name == "claims_nothing":
            script.write_text(source.replace("claims.close(", "print(").replace(", atol=1e-6", ""), encoding="utf-8")
        if name == "draws_nothing":
            script.write_text(source[: source.index("# %%\n\nfig, ax")], encoding="utf-8")
    return site


@pytest.fixture(scope="module")
def two_builds(bad_site) -> list[str]:
    """What two builds in a row say, the second after the first has failed."""
    builds = [bad_site.build() for _ in range(2)]
    assert [build.returncode for build in builds] == [1, 1]
    assert not (bad_site.root / "site").exists(), "a site that failed could be published"
    return [build.stderr for build in builds]


@pytest.mark.parametrize("name", BAD_ENDINGS)
def test_a_script_that_does_not_end_well_stops_this_build_and_the_next(two_builds, name):
    for said in two_builds:
        (report,) = (part for part in said.split("\n\ngallery/1_part/")[1:] if part.startswith(f"{name}.py"))
        assert BAD_ENDINGS[name][1] in report


def test_all_failures_are_reported_together_with_their_lines(two_builds, bad_site):
    assert f"{len(BAD_ENDINGS)} of {len(BAD_ENDINGS) + 1} scripts failed" in two_builds[0]
    script = (bad_site.root / "gallery/1_part/raises.py").read_text(encoding="utf-8")
    line = script.splitlines().index("raise ValueError('broken')") + 1
    assert f"gallery/1_part/raises.py, line {line}\n    ValueError: broken\nTraceback" in two_builds[0]


def test_only_the_bad_scripts_run_again(two_builds):
    assert "good: running" in two_builds[0]
    assert "good: running" not in two_builds[1]


def test_a_claim_stated_twice_stops_the_build(small_site):
    small_site.add("bad", '\nclaims.holds("said twice", True)\nclaims.holds("said twice", True)\n')
    build = small_site.build()
    assert build.returncode != 0
    assert "said twice: gallery/1_part/bad.py:" in build.stderr
