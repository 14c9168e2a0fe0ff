"""What holds on every page, on a phone and on a desktop."""

from urllib.parse import urlsplit

import pytest

from .survey import SHIFT, shift_on_a_slow_phone

pytestmark = pytest.mark.parametrize("address", ["/"], indirect=True, ids=["at the root"])


def test_every_page_is_surveyed_at_both_widths(visits):
    assert len({(seen.name, seen.width) for seen in visits}) == len(visits)
    assert sum(seen.width == "phone" for seen in visits) == sum(seen.width == "desktop" for seen in visits) > 36


def test_axe_finds_nothing_in_light_or_dark(visits, subtests):
    for seen in visits:
        with subtests.test(page=seen.name, width=seen.width):
            assert not seen.violations


def test_the_console_is_silent_and_no_request_fails(visits):
    assert not [(seen.name, seen.complaints) for seen in visits if seen.complaints]


def test_only_the_sites_own_host_is_asked(visits, address):
    hosts = {urlsplit(url).netloc for seen in visits for url in seen.requests if not url.startswith("data:")}
    assert hosts == {urlsplit(address).netloc}


def test_no_page_scrolls_sideways_at_320_pixels(visits):
    assert not [(seen.name, seen.sideways) for seen in visits if seen.sideways > 0]


def test_nothing_moves_while_a_slow_phone_loads_a_page(visits):
    assert not [(seen.name, seen.shift) for seen in visits if seen.shift > 0.01]


def test_what_is_put_above_the_text_late_would_be_noticed(page, address):
    assert shift_on_a_slow_phone(page, address) == 0
    page.evaluate("scrollTo(0, 0); document.querySelector('h1').insertAdjacentHTML('beforebegin', '<p>Late<p>Later')")
    assert page.evaluate(SHIFT) > 0.01


def test_no_formula_falls_back_to_another_font(visits):
    fonts = {seen.name: seen.formula_fonts for seen in visits if seen.formula_fonts}
    assert fonts
    assert not {name: used for name, used in fonts.items() if any("fallback" in font for font in used)}


def test_concept_pages_ask_for_at_most_20_files_and_hold_at_most_4500_elements(visits):
    concepts = [seen for seen in visits if seen.name.count("/") == 3]
    assert concepts
    assert not [(seen.name, len(seen.requests)) for seen in concepts if len(seen.requests) > 20]
    assert not [(seen.name, seen.elements) for seen in concepts if seen.elements > 4_500]
