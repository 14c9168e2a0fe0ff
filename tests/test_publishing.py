"""The workflow that publishes the site runs the two commands and nothing that could change under it."""

import re

import pytest
import yaml
from conftest import ROOT

FILE = ROOT / ".github/workflows/pages.yml"


@pytest.fixture(scope="module")
def jobs():
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))["jobs"]


def test_the_site_is_built_and_proved_before_it_is_handed_over(jobs):
    steps = jobs["build"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make site", "make test"]
    assert "run" not in steps[-1]
    assert steps[-1]["with"] == {"path": "site"}
    assert jobs["deploy"]["needs"] == "build"


def test_every_action_is_pinned_to_a_commit_and_names_its_version():
    uses = re.findall(r"uses: (.*)", FILE.read_text(encoding="utf-8"))
    assert len(uses) == 5
    for action in uses:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_only_the_job_that_publishes_may_write(jobs):
    assert yaml.safe_load(FILE.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert jobs["build"]["permissions"] == {"contents": "read", "pages": "read"}
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
