"""Chromium from the system, and the built site on a local server."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from benchmarks import browser as browsers

from .survey import Visit, survey


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser. Where a browser is a must (``CI`` is set) its absence is a failure."""
    found = browsers.chromium()
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
    with browsers.served(served) as origin:
        yield origin + request.param


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as driver, driver.chromium.launch(executable_path=chromium, args=browsers.FLAGS) as launched:
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
