"""What a reader does: search, scroll a formula, copy, go dark, do without scripts."""

import os
import subprocess
import sys

import pytest

PAGE = "gallery/1_mixtures/convex_combination/"
UNFOLDING = "gallery/2_queries_keys_values/scaling/"  # uses functions whose code can be unfolded


def test_without_scripts_text_formulas_and_figures_are_there(browser, address):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address + PAGE)
        assert page.locator("h1").is_visible()
        assert page.locator("math").first.bounding_box()["width"] > 0
        figure = page.locator("img.figure").first
        figure.scroll_into_view_if_needed()
        assert figure.bounding_box()["height"] > 100


def test_the_keyboard_leads_from_search_to_a_formula_and_scrolls_it(page, address):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.locator(".md-search-result__item a").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url.split("?")[0].rstrip("/") != address.rstrip("/"))
    scrollable = page.locator(".formula[tabindex]")
    page.goto(address + "derivations/softmax/")
    scrollable.first.wait_for()
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.formula')"):
            break
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.matches('.formula') && document.activeElement.scrollLeft > 0")


def test_the_dark_scheme_can_be_chosen_and_stays(page, address):
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.locator("label[title='Switch to dark']").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page.goto(address + PAGE)
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"


@pytest.mark.parametrize(("name", "fewest"), [(PAGE, 3), ("labs/2_heads/", 3), ("api/masks/", 3), ("benchmarks/", 3)])
def test_the_copy_button_puts_exactly_the_block_on_the_clipboard(page, address, name, fewest):
    page.goto(address + name)
    blocks = page.locator(".highlight:not(.output) pre:visible")
    assert blocks.count() >= fewest
    for number in range(blocks.count()):
        block = blocks.nth(number)
        block.hover()
        block.locator(".md-code__button[data-md-type=copy]").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.rstrip("\n") == block.locator("code").text_content().rstrip("\n")


def test_the_whole_script_is_copied_without_output_or_unfolded_code_and_runs_alone(page, address, tmp_path):
    page.goto(address + UNFOLDING)
    page.locator("details.implementation summary").first.click()
    page.locator("[data-copy-script]").click()
    page.get_by_text("Copied", exact=True).wait_for()
    script = page.evaluate("navigator.clipboard.readText()")
    blocks = page.locator(".highlight:not(.output, details .highlight) code").all_text_contents()
    assert script == "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"MPLBACKEND": "agg"}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("✓ ") == page.locator(".claims-of-page tbody tr").count() > 2


FOCUSED = """() => {
  const element = document.activeElement, box = element.getBoundingClientRect(), style = getComputedStyle(element);
  return {
    place: [...document.querySelectorAll("article *")].indexOf(element),
    shown: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    marked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    html: element.outerHTML.slice(0, 120),
  };
}"""
REACHABLE = """() => [...document.querySelectorAll("article *")].flatMap((element, place) =>
  element.tabIndex >= 0 && element.checkVisibility({ visibilityProperty: true }) ? [place] : [])"""


@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_can_be_read_from_top_to_bottom_by_keyboard(page, address, width):
    page.set_viewport_size({"width": width, "height": 740})
    page.goto(address + UNFOLDING)
    page.locator(".md-code__button").first.wait_for(state="attached")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == "Skip to content"
    page.keyboard.press("Enter")
    expected = page.evaluate(REACHABLE)
    stops = []
    while not stops or stops[-1]["place"] >= 0 or stops[0]["place"] < 0:
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
        assert len(stops) < 500
    inside = [stop for stop in stops if stop["place"] >= 0]
    assert [stop["place"] for stop in inside] == expected  # everything, in the order of the text
    assert not [stop["html"] for stop in inside if not stop["shown"] or not stop["marked"]]
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Control+Home")
    page.wait_for_function("scrollY === 0")
    for _ in range(100):
        page.keyboard.press("Space")
    page.wait_for_function("scrollY + innerHeight >= document.documentElement.scrollHeight - 1")


def test_what_is_folded_opens_and_closes_by_keyboard(page, address):
    page.goto(address + UNFOLDING)
    for name in ("details.implementation", "details.claims-of-page"):
        folded = page.locator(name).first
        folded.locator("summary").focus()
        page.keyboard.press("Enter")
        assert folded.get_attribute("open") is not None
        page.keyboard.press("Enter")
        assert folded.get_attribute("open") is None


@pytest.mark.parametrize(("formula", "fence"), [("p math", "$"), (".formula math", "$$")])
def test_copying_a_formula_gives_its_latex(page, address, formula, fence):
    page.goto(address + PAGE)
    tex = page.evaluate(
        """selector => {
          const math = document.querySelector(selector);
          getSelection().selectAllChildren(math);
          document.execCommand("copy");
          return math.querySelector("annotation").textContent.trim();
        }""",
        formula,
    )
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(fence)
    assert copied.endswith(fence)
    assert copied.strip("$\n") == tex
