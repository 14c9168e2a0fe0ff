"""The site opened from disk, without any server."""

import pytest

from .survey import fonts_of_formulas

PAGE = "gallery/1_mixtures/convex_combination.html"


@pytest.fixture
def disk(offline_site):
    return offline_site.as_uri()


def test_a_page_opened_as_a_file_has_its_formulas_figures_claims_and_no_complaint(page, disk):
    complaints = []
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or complaints.append(asked.url))
    page.goto(f"{disk}/{PAGE}")
    assert not [font for font in fonts_of_formulas(page) if "fallback" in font]
    figure = page.locator("img.figure").first
    figure.scroll_into_view_if_needed()
    assert figure.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    assert page.locator(".claims-of-page tbody tr").count() > 2
    assert not complaints


def test_links_lead_from_file_to_file(page, disk):
    page.goto(f"{disk}/index.html")
    page.locator("svg.map a").first.click()
    page.wait_for_url(f"{disk}/{PAGE}")
    page.locator("a.md-footer__link--next").click()
    page.wait_for_url(f"{disk}/gallery/1_mixtures/softmax_temperature.html")


def test_search_works_without_a_server(page, disk):
    page.goto(f"{disk}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    found = page.locator(".md-search-result__item a").first
    found.wait_for()
    assert "softmax" in found.text_content().lower()
    assert found.get_attribute("href").startswith(disk)


def test_without_scripts_a_page_opened_as_a_file_is_complete(browser, disk):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{disk}/{PAGE}")
        assert page.locator("h1").is_visible()
        assert page.locator("math").first.bounding_box()["width"] > 0
        assert page.locator("img.figure").first.bounding_box()["height"] > 100
