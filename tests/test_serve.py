"""A live preview follows every kind of edit, shows what fails, and recovers."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Preview:
    """``mkdocs serve`` on a site, and what it shows."""

    def __init__(self, site) -> None:
        self.site, self.log = site, site.root / "serve.log"
        self.port = free_port()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{self.port}"],
                cwd=site.root,
                env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
                stdout=log,
                stderr=log,
            )

    def shows(self, page: str, text: str, seconds: float = 120) -> None:
        """Wait until ``page`` holds ``text``."""
        end = time.monotonic() + seconds
        html = ""
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=5) as answer:
                    html = answer.read().decode()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                html = ""
            if text in html:
                return
            time.sleep(0.3)
        raise AssertionError(f"{page} never showed {text!r}\n{self.log.read_text()}")

    def runs(self) -> list[str]:
        """The scripts that have run so far, in order."""
        return re.findall(r"(\w+): running", self.log.read_text(encoding="utf-8"))


@pytest.fixture
def preview(small_site):
    small_site.add("other")
    made = Preview(small_site)
    yield made
    made.process.terminate()  # not SIGINT, which a shell's background jobs ignore
    made.process.wait(timeout=60)


def test_a_preview_follows_edits_shows_failures_and_recovers(preview):
    root = preview.site.root
    page = "gallery/1_part/good/"
    script = root / "gallery/1_part/good.py"
    source = script.read_text(encoding="utf-8")
    preview.shows(page, "the weights of page good sum to 1")
    assert sorted(preview.runs()) == ["good", "other"]

    script.write_text(source.replace("One claim and one figure.", "Edited once."), encoding="utf-8")
    preview.shows(page, "Edited once.")
    assert preview.runs()[2:] == ["good"]

    script.write_text(source + '\nclaims.close("one is two", 1.0, 2.0, atol=0.1)\n', encoding="utf-8")
    preview.shows(page, "✗ one is two: off by 1, allowed 0.1")
    preview.shows("gallery/1_part/other/", "the weights of page other sum to 1")
    assert "1 of 2 scripts failed" in preview.log.read_text(encoding="utf-8")

    script.write_text(source.replace("One claim and one figure.", "Mended."), encoding="utf-8")
    preview.shows(page, "Mended.")
    assert set(preview.runs()[2:]) == {"good"}, "an edit of one script ran another"

    runs = len(preview.runs())
    index = root / "docs/index.md"
    index.write_text(index.read_text(encoding="utf-8") + "\nA new sentence.\n", encoding="utf-8")
    preview.shows("", "A new sentence.")
    assert len(preview.runs()) == runs, "an edit of a docs page ran a script"

    module = root / "attnkit/simplex.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    end = time.monotonic() + 120
    while len(preview.runs()) < runs + 2 and time.monotonic() < end:
        time.sleep(0.3)
    assert sorted(preview.runs()[runs:]) == ["good", "other"]
    preview.shows(page, "Mended.")
