"""What Lighthouse says of concept pages on a phone, beside the same pages without their formulas.

    make lighthouse

Lighthouse runs with its defaults: a mid-range phone on a slow network, simulated. The site is served from this
machine, compressed as any host would. Each page is loaded five times, in turn with its copy without formulas; the
medians go to benchmarks/lighthouse.md. Fails where a goal is missed.
"""

import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.browser import FLAGS, Quiet, chromium, served

ROOT = Path(__file__).resolve().parent.parent
LIGHTHOUSE = ROOT / ".cache/lighthouse/node_modules/.bin/lighthouse"
# The concept pages with the most formulas and with the most elements.
PAGES = ("gallery/3_causal_head/kernel_smoothing", "gallery/8_transformer/block")
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
RUNS = 5
TEXT = (".html", ".css", ".js", ".json", ".svg", ".txt", ".xml")

Scores = dict[str, float]


class Compressing(Quiet):
    """Serves text compressed, as hosts do."""

    def do_GET(self) -> None:  # noqa: N802  the name that the server calls
        file = Path(self.translate_path(self.path))
        file = file / "index.html" if file.is_dir() else file
        if not file.is_file() or file.suffix not in TEXT:
            return super().do_GET()
        body = gzip.compress(file.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", f"{self.guess_type(file)}; charset=utf-8")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def without_formulas(html: str) -> tuple[str, int]:
    """The page as if it had never had a formula or their font, and how many there were."""
    html = re.sub(r'<link rel="preload"[^>]*math\.woff2"[^>]*>', "", html)
    return re.subn(r"<math\b.*?</math>", "", html, flags=re.S)


def scores(url: str, browser: str) -> Scores:
    """What Lighthouse gives one load of a page, 0 to 100 for each category, and its Cumulative Layout Shift."""
    flags = " ".join(["--headless=new", *FLAGS])
    command = [str(LIGHTHOUSE), url, "--quiet", "--output=json", f"--chrome-flags={flags}"]
    command.append(f"--only-categories={','.join(CATEGORIES)}")
    said = subprocess.run(
        command, env=os.environ | {"CHROME_PATH": browser}, stdout=subprocess.PIPE, check=True, text=True
    )
    report = json.loads(said.stdout)
    for category in CATEGORIES[1:]:
        for audit in report["categories"][category]["auditRefs"]:
            result = report["audits"][audit["id"]]
            if audit["weight"] and result["score"] not in (None, 1):
                print(f"{url}: {category}: {result['title']}", file=sys.stderr)
    found = {category: 100.0 * report["categories"][category]["score"] for category in CATEGORIES}
    return found | {"shift": report["audits"]["cumulative-layout-shift"]["numericValue"]}


@dataclass(frozen=True)
class Row:
    """A page: how many formulas it has, and the medians with and without them."""

    page: str
    formulas: int
    whole: Scores
    bare: Scores


def measured(site: Path, page: str, browser: str) -> Row:
    """Load the page and its copy without formulas in turn; both lie in ``site``, the copy is made here."""
    html, formulas = without_formulas((site / page / "index.html").read_text(encoding="utf-8"))
    bare = f"{page}_without_formulas"  # beside it, so that relative links hold
    (site / bare).mkdir()
    (site / bare / "index.html").write_text(html, encoding="utf-8")
    loads: dict[str, list[Scores]] = {page: [], bare: []}
    with served(site, Compressing) as address:
        for run in range(RUNS):
            for name, found in loads.items():
                print(f"load {run + 1} of {RUNS}: {name}", file=sys.stderr)
                found.append(scores(f"{address}/{name}/", browser))
    return Row(page, formulas, medians(loads[page]), medians(loads[bare]))


def medians(loads: list[Scores]) -> Scores:
    """The median of each score."""
    return {name: statistics.median(load[name] for load in loads) for name in loads[0]}


def missed(row: Row) -> list[str]:
    """The goals that a page does not reach, in words."""
    found = [f"{name}: {row.whole[name]:.0f}, not 100" for name in CATEGORIES[1:] if row.whole[name] < 100]
    performance, bare = row.whole["performance"], row.bare["performance"]
    if performance < 90:
        found.append(f"performance: {performance:.0f}, not 90")
    if performance < bare - 8:
        found.append(f"performance: {performance:.0f}, more than 8 below the {bare:.0f} of the page without formulas")
    if row.whole["shift"] > 0.01:
        found.append(f"layout shift: {row.whole['shift']:.3f}, not .01")
    return [f"{row.page}: {goal}" for goal in found]


def table(rows: list[Row]) -> str:
    """The rows in Markdown, each page followed by its copy without formulas."""
    names = {**{name: name.replace("-", " ") for name in CATEGORIES}, "shift": "layout shift"}
    head = f"| page | formulas | {' | '.join(names.values())} |"
    lines = [head, "| --- " + "| --: " * (len(names) + 1) + "|"]
    for row in rows:
        for formulas, found in ((row.formulas, row.whole), (0, row.bare)):
            cells = [f"{found[name]:.0f}" for name in CATEGORIES] + [f"{found['shift']:.3f}"]
            lines.append(f"| {Path(row.page).name} | {formulas} | {' | '.join(cells)} |")
    lines.append("| goal | any | ≥ 90, within 8 | 100 | 100 | 100 | ≤ .010 |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write the table, and return 1 where a goal is missed."""
    browser = chromium()
    if browser is None:
        print("no browser: install chromium (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        site = Path(shutil.copytree(ROOT / "site", Path(folder) / "site"))
        rows = [measured(site, page, browser) for page in PAGES]
    (ROOT / "benchmarks/lighthouse.md").write_text(table(rows), encoding="utf-8")
    failures = [goal for row in rows for goal in missed(row)]
    print("\n".join(failures) or "every goal is reached", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
