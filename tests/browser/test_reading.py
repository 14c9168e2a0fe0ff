"""What a reader does: search, scroll a formula, copy, go dark, do without scripts."""

import pytest

PAGE = "gallery/1_mixtures/convex_combination/"


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


def test_the_copy_button_puts_exactly_the_block_on_the_clipboard(page, address):
    page.goto(address + PAGE)
    blocks = page.locator(".highlight:not(.output) pre:visible")
    assert blocks.count() > 2
    for number in range(blocks.count()):
        block = blocks.nth(number)
        block.hover()
        block.locator(".md-code__button[data-md-type=copy]").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.rstrip("\n") == block.locator("code").text_content().rstrip("\n")


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
