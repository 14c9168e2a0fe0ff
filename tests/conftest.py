"""What several tests share: where the project is, and the site as this tree builds it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every machine and in every run, however slow; nothing is remembered between runs.
settings.register_profile("attnkit", derandomize=True, deadline=None, max_examples=30, database=None)
settings.load_profile("attnkit")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder that holds mkdocs.yml."""
    return ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly from the tree as it is now."""
    return built(tmp_path_factory.mktemp("built") / "site")


@pytest.fixture(scope="session")
def offline_site(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, to be opened from disk; after the other, whose pages and figures it finds in the cache."""
    return built(tmp_path_factory.mktemp("offline") / "site", OFFLINE="true")


def built(folder: Path, **environment: str) -> Path:
    """The folder, with the site in it."""
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


SCRIPT = '''r"""
# {title}

One claim and one figure.

*Sources:* [Somebody (2000)](../../references.md#somebody2000), section 1.
"""

import matplotlib.pyplot as plt
import torch

from attnkit import claims, softmax

plt.style.use("attnkit.paper")

# %%
# ## Step
#
# Weights $\\alpha$ sum to one:
#
# $$\\sum_j \\alpha_j = 1.$$

weights = softmax(torch.zeros(4))
claims.close("the weights of {title} sum to 1", weights.sum(), 1.0, atol=1e-6)

# %%

fig, ax = plt.subplots()
ax.bar(range(4), weights.numpy())
fig.set_label("Four bars of equal height, drawn for {title}.")
{more}
# %%
# ## Try it
#
# - More bars.
'''


class SmallSite:
    """A site of its own in a temporary folder: the real hooks and package, a gallery made to order."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in ("attnkit", "hooks"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("api", "assets", "theme"):
            shutil.copytree(ROOT / "docs" / name, folder / "docs" / name)
        (folder / "docs/index.md").write_text("# Home\n\nWelcome to $x$.\n", encoding="utf-8")
        (folder / "docs/references.md").write_text("# References\n\n- S.\n{: #somebody2000 }\n", encoding="utf-8")
        api = sorted(f"api/{page.name}" for page in (folder / "docs/api").glob("*.md"))
        nav = "nav:\n  - Home: index.md\n  - Gallery: gallery\n  - Claims: claims.md\n  - References: references.md\n"
        nav += f"  - API: [{', '.join(api)}]\n"
        config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        (folder / "mkdocs.yml").write_text(re.sub(r"^nav:\n( +.*\n)+", nav, config, flags=re.M), encoding="utf-8")
        (folder / "gallery/1_part").mkdir(parents=True)
        (folder / "gallery/README.md").write_text("# The gallery\n\nAll.\n", encoding="utf-8")
        (folder / "gallery/1_part/README.md").write_text("# 1 · Part\n\nSome.\n", encoding="utf-8")

    def add(self, stem: str, more: str = "") -> Path:
        """Write a good script, with ``more`` at its end, and return its path."""
        script = self.root / "gallery/1_part" / f"{stem}.py"
        script.write_text(SCRIPT.format(title=f"page {stem}", more=more), encoding="utf-8")
        return script

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """``python -m`` with ``arguments`` in the site's folder, without colours."""
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def build(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """A strict build into ``site/``."""
        return self.run("mkdocs", "build", "--strict", **environment)


@pytest.fixture
def small_site(tmp_path: Path) -> SmallSite:
    """A small site with one good script, ``good``."""
    made = SmallSite(tmp_path / "project")
    made.add("good")
    return made
