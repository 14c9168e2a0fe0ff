"""The Markdown of a page and of the gallery's index."""

import re
from html import unescape

import pytest

from hooks import pages
from hooks.pages import Block


def test_a_page_shows_prose_code_output_and_figures_in_the_scripts_order():
    blocks = [Block("text", "# Title\n"), Block("code", "\nprint(1)\n", figures="![a](b.svg)", printed="1\n")]
    page = pages.page("gallery/1_part/one.py", "one", blocks)
    order = [page.index(part) for part in ("# Title", "```python\nprint(1)\n```", "```{.text .output}\n1\n```", "![a]")]
    assert order == sorted(order)
    assert page.startswith("<!-- Generated from gallery/1_part/one.py")
    assert "[`one.ipynb`](one.ipynb)" in page


def test_code_is_shown_with_its_blank_lines():
    page = pages.page("p", "p", [Block("code", "a = 1\n\n\ndef f():\n    pass\n")])
    assert "a = 1\n\n\ndef f()" in page


@pytest.mark.parametrize("printed", ["```\nfence\n```", "````", "# no title\n\n<b>not bold</b>"])
def test_output_cannot_break_out_of_its_block(printed):
    page = pages.page("p", "p", [Block("code", "pass", printed=printed)])
    fence = page.split("{.text .output}")[0].splitlines()[-1]
    assert fence not in printed
    assert f"{fence}{{.text .output}}\n{printed}\n{fence}" in page


def test_a_page_without_a_title_is_an_error():
    with pytest.raises(ValueError, match="without a title"):
        pages.title("no heading")


def test_markup_in_a_description_stays_text():
    import markdown

    alt = r"a_b_c *d* `e` [f] $g$ <h> back\slash"
    html = markdown.markdown(pages.image(alt, "x.svg", 1, 1), extensions=["attr_list"])
    (shown,) = re.findall('alt="(.*?)"', html)
    assert unescape(shown) == alt
