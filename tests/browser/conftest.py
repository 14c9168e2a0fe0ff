"""Chromium from the system, and the built site on a local server."""

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from .survey import FLAGS, Visit, survey


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *arguments):
        """A test that passes says nothing."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser. Where a browser is a must (``CI`` is set) its absence is a failure."""
    found = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("no browser: install chromium (Debian: apt-get install chromium) to test the pages as a reader sees them")
    return found


@pytest.fixture(scope="session", params=["/", "/some/where/"], ids=["at the root", "under a path"])
def address(request: pytest.FixtureRequest, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served."""
    served = tmp_path_factory.mktemp("served")
    place = served / request.param.strip("/")
    if place == served:
        served = site
    else:
        place.parent.mkdir(parents=True)
        place.symlink_to(site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{request.param}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as driver, driver.chromium.launch(executable_path=chromium, args=FLAGS) as launched:
        yield launched


@pytest.fixture
def page(browser: Browser):
    """A fresh desktop tab that may use the clipboard."""
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        yield context.new_page()


@pytest.fixture(scope="session")
def visits(site: Path, address: str, chromium: str, root: Path) -> list[Visit]:
    """Every page, opened once on a phone and once on a desktop."""
    pages = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    pages.sort(key=lambda name: (site / name).stat().st_size)  # the longest are taken first, from the end
    return survey(chromium, address, pages, root / ".cache" / "screenshots")
