"""Entries link to the pages that use them, code on the pages links to the entries."""

import re
from html import unescape

import pygments
from conftest import ROOT
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import attnkit
from hooks import api, plugin, uses

LOCAL = {"attention": "attention", "disorder": "entropy", "claims": "claims"}
HOMES = {"attention": "scaled_dot_product", "entropy": "simplex", "close": "claims"}
TARGETS = {name: f"to/{name}" for name in HOMES}


def linked(code: str, start: str = '<div class="highlight"><pre>') -> str:
    return api.linked(f"{start}{code}</pre></div>", LOCAL, HOMES, TARGETS)


def name(text: str) -> str:
    return ".".join(f'<span class="n">{part}</span>' for part in text.split(".")).replace(
        ".", '<span class="o">.</span>'
    )


def test_a_name_is_linked_where_a_block_uses_it_first():
    assert linked(name("attention") + name("attention")).count('<a class="entry" href="to/attention">') == 1
    assert '<a class="entry" href="to/entropy">disorder</a>' in linked(name("disorder"))
    assert f'{name("claims")}<span class="o">.</span><a class="entry" href="to/close">close</a>' in linked(
        name("claims.close")
    )


def test_what_only_looks_like_a_name_of_the_package_is_not_linked():
    for other in ("torch.attention", "x.claims.close", "close", "entropy", "plot.close"):
        assert "<a" not in linked(name(other)), other
    assert "<a" not in linked(name("attention") + '<span class="o">=</span>'), "a keyword or an assignment"
    assert "<a" not in linked(name("attention"), start='<div class="output highlight"><pre>')


def test_an_entry_names_its_files_and_links_them_where_the_repository_is_known():
    here = api.about("entropy", {"entropy": "simplex"}, {}, "")
    assert here.startswith("Defined in `attnkit/simplex.py`, tested in `tests/test_simplex.py`. Used on no page.")
    there = api.about("entropy", {"entropy": "simplex"}, {}, "https://example.org/r")
    assert "[`tests/test_simplex.py`](https://example.org/r/blob/HEAD/tests/test_simplex.py)" in there


def test_every_entry_names_files_that_exist():
    for module in attnkit._MODULES:
        assert (ROOT / f"tests/test_{module}.py").is_file()


def test_a_few_pages_are_named_and_many_are_folded():
    few = api.about("a", {"a": "m"}, {"a": ["[x](y)"] * 3}, "")
    many = api.about("a", {"a": "m"}, {"a": ["[x](y)"] * 4}, "")
    assert "Used on [x](y) · [x](y) · [x](y)." in few
    assert '??? entry-uses "Used on 4 pages"' in many


def test_every_public_name_is_described_once_on_the_site(site):
    headings = []
    for page in (site / "api").glob("*/index.html"):
        headings += re.findall(r'<h2 id="attnkit\.(\w+)"', page.read_text(encoding="utf-8"))
    assert sorted(headings) == attnkit.__all__


def test_entries_and_pages_link_to_each_other_as_the_scripts_say(site):
    wanted, entries, pages = set(), set(), set()
    for script in plugin.scripts(ROOT):
        address = script.relative_to(ROOT).with_suffix("").as_posix()
        wanted |= {(used, address) for used in uses.uses(script)}
        html = (site / address / "index.html").read_text(encoding="utf-8")
        pages |= {(target, address) for target in re.findall(r'class="entry" href="[^"]*#attnkit\.(\w+)"', html)}
    for page in (site / "api").glob("*/index.html"):
        parts = re.split(r'<h2 id="attnkit\.(\w+)"', page.read_text(encoding="utf-8"))
        for described, text in zip(parts[1::2], parts[2::2]):
            article = text.split("</article>")[0]
            entries |= {(described, link) for link in re.findall(r'href="\.\./\.\./(gallery/[^"]+)/"', article)}
    assert entries == wanted
    assert pages == wanted


def test_links_leave_the_code_as_it_is_in_the_script():
    targets = {public: public for public in attnkit.__all__}
    for script in plugin.scripts(ROOT):
        source = script.read_text(encoding="utf-8").strip()
        page = pygments.highlight(source, PythonLexer(), HtmlFormatter(nowrap=True))
        local = uses.imported(uses.parsed(script))
        html = api.linked(f'<div class="highlight"><pre>{page}</pre></div>', local, uses.public_names(), targets)
        assert html.count('class="entry"') == len(uses.uses(script)), script.stem
        assert unescape(re.sub(r"<[^>]+>", "", html)).strip() == source


def test_docstrings_show_formulas_and_examples(site):
    html = (site / "api/attention/index.html").read_text(encoding="utf-8")
    entry = re.split(r'<h2 id="attnkit\.', html)[4]
    assert entry.startswith('attention"')
    assert '<math data-search-exclude display="block">' in entry
    assert '<span class="gp">&gt;&gt;&gt; </span>' in entry
    assert "<strong>Source:</strong> Vaswani et al. (2017)" in entry
    assert "Examples:</span>" in entry


def test_the_build_refuses_a_reference_that_misses_a_public_name(small_site):
    (small_site.root / "docs/api/masks.md").unlink()
    build = small_site.build()
    assert build.returncode != 0
    assert "causal_mask has no entry in docs/api" in build.stderr
    assert "softmax has no entry" not in build.stderr
