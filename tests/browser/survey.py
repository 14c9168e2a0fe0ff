"""Open every page once per width and write down what the tests judge."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.browser import FLAGS

WIDTHS = {"phone": (360, 740), "desktop": (1280, 900)}
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

# All rules; what costs time and helps nobody here is left out, the shortest selector of each element first of all.
VIOLATIONS = """axe.run({resultTypes: ["violations"], selectors: false, ancestry: false, xpath: false}).then(
  ({violations}) => violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html}`)))"""

# Figures that wait until they are scrolled to are asked for at once.
EVERYTHING_LOADED = """Promise.all([document.fonts.ready, ...Array.from(document.images, (image) => {
  image.loading = "eager";
  return image.decode();
})]).then(() => true)"""


# Lighthouse's phone: what it calls slow 4G, and a processor four times slower than this one.
SLOW_NETWORK = {
    "offline": False,
    "latency": 150,  # ms
    "downloadThroughput": 1.6e6 / 8,  # bytes per second
    "uploadThroughput": 750e3 / 8,
}
SLOWDOWN = 4

# Read to the end, so that every figure comes in late, then add up all that moved without the reader's doing.
SHIFT = """async () => {
  const drawn = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await drawn();
  }
  await Promise.all(Array.from(document.images, (image) => image.decode()));
  await drawn();
  let moved = 0;
  new PerformanceObserver((list) => {
    for (const shift of list.getEntries()) moved += shift.hadRecentInput ? 0 : shift.value;
  }).observe({ type: "layout-shift", buffered: true });
  await drawn();
  await drawn();
  return moved;
}"""


@dataclass
class Visit:
    """One page at one width."""

    name: str
    width: str
    elements: int = 0
    sideways: int = 0  # pixels that a screen of 320 lacks
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # console errors, exceptions, failed requests
    violations: list[str] = field(default_factory=list)  # of axe's rules, light and dark
    shift: float = 0.0  # of the layout, on a slow phone
    formula_fonts: set[str] = field(default_factory=set)


def survey(chromium: str, address: str, pages: list[str], pictures: Path) -> list[Visit]:
    """Visit all pages, in as many browsers as there are cores, each with a driver and a thread of its own."""
    waiting = iter([(name, width) for name in reversed(pages) for width in WIDTHS])  # shared by the workers

    def worker() -> list[Visit]:
        with sync_playwright() as driver, driver.chromium.launch(executable_path=chromium, args=FLAGS) as browser:
            return [visit(browser, address, name, width, pictures) for name, width in waiting]

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        return [seen for work in [pool.submit(worker) for _ in range(cores)] for seen in work.result()]


def visit(browser: Browser, address: str, name: str, width: str, pictures: Path) -> Visit:
    seen = Visit(name, width)
    size = dict(zip(("width", "height"), WIDTHS[width]))
    with browser.new_context(viewport=size, color_scheme="light") as context:
        page = context.new_page()
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("requestfailed", lambda request: seen.complaints.append(f"{request.url}: {request.failure}"))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and seen.complaints.append(said.text))
        if width == "phone":
            seen.shift = shift_on_a_slow_phone(page, address + name.removesuffix("index.html"))
        else:
            page.goto(address + name.removesuffix("index.html"), wait_until="load")
        page.evaluate(EVERYTHING_LOADED)
        seen.elements = page.evaluate("document.querySelectorAll('*').length")
        page.evaluate(AXE)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            seen.violations += [f"{scheme}: {violation}" for violation in page.evaluate(VIOLATIONS)]
            if (width, scheme) in (("phone", "light"), ("desktop", "dark")):
                picture = pictures / width / f"{name.removesuffix('/index.html').replace('/', '-')}.png"
                page.screenshot(path=picture, full_page=True)
        if width == "phone":
            seen.formula_fonts = fonts_of_formulas(page)
            page.set_viewport_size({"width": 320, "height": 740})
            seen.sideways = page.evaluate("document.documentElement.scrollWidth - 320")
    return seen


def shift_on_a_slow_phone(page: Page, url: str) -> float:
    """Open the page as a slow phone does; how much of it moved (an upper bound of Cumulative Layout Shift)."""
    tools = page.context.new_cdp_session(page)
    tools.send("Network.enable")
    tools.send("Network.emulateNetworkConditions", SLOW_NETWORK)
    tools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    page.goto(url, wait_until="load")
    shift = float(page.evaluate(SHIFT))
    tools.detach()  # and with it the throttling
    return shift


def fonts_of_formulas(page: Page) -> set[str]:
    """The fonts that the browser really draws formulas with."""
    tools = page.context.new_cdp_session(page)
    tools.send("DOM.enable")
    tools.send("CSS.enable")
    document = tools.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    selector = "math :is(mi, mo, mn, mtext, ms)"
    leaves = tools.send("DOM.querySelectorAll", {"nodeId": document, "selector": selector})["nodeIds"]
    used = (tools.send("CSS.getPlatformFontsForNode", {"nodeId": leaf})["fonts"] for leaf in leaves)
    return {f"{font['familyName']}{'' if font['isCustomFont'] else ' (fallback)'}" for fonts in used for font in fonts}
