"""Every citation has an entry, every entry is cited, and they link to each other."""

import re

from hooks import references

TEXTS = {
    "a.md": "# First page\n\n[A](references.md#one2000), again [A](references.md#one2000)\n",
    "gallery/1_part/b.md": "# Second page\n\n[A](../../references.md#one2000) [B](../../references.md#two2001)\n",
}


def test_an_entry_links_back_to_each_page_once_in_reading_order():
    text = references.with_citations("- One.\n{: #one2000 }\n- Two.\n{: #two2001 }\n", references.citations(TEXTS))
    one, two = re.findall(r"Cited on (.*)</span>\n\{: #", text)
    assert one == "[First page](a.md) · [Second page](gallery/1_part/b.md)"
    assert two == "[Second page](gallery/1_part/b.md)"


def test_what_does_not_match_is_named_with_page_and_key():
    assert references.faults(TEXTS, ["one2000", "two2001"]) == []
    assert references.faults(TEXTS, ["one2000", "one2000", "three2002"]) == [
        "gallery/1_part/b.md cites two2001, which references.md does not list",
        "references.md lists three2002, which no page cites",
        "references.md lists one2000 2 times",
    ]


def test_a_citation_that_is_shown_as_code_is_none():
    text = "# T\n\n`[A](references.md#one2000)`\n\n```\n[A](references.md#one2000)\n```\n[B](references.md#two2001)\n"
    assert references.citations({"a.md": text}) == {"two2001": [("a.md", "T")]}


def test_the_build_refuses_an_entry_that_nobody_cites_and_a_citation_without_entry(small_site):
    page = small_site.root / "docs/references.md"
    page.write_text("# References\n\n- N.\n{: #nobody1999 }\n", encoding="utf-8")
    build = small_site.build()
    assert build.returncode != 0
    assert "references.md lists nobody1999, which no page cites" in build.stderr
    assert "gallery/1_part/good.md cites somebody2000, which references.md does not list" in build.stderr


def test_the_site_links_every_entry_to_pages_that_link_to_it(site):
    html = (site / "references/index.html").read_text(encoding="utf-8")
    entries = re.findall(r'<li id="(\w+)">(.*?)</li>', html, re.S)
    assert entries
    for key, entry in entries:
        links = re.findall(r'<a href="\.\./([^"]*)"', entry.split("Cited on")[1])
        assert links, key
        for link in links:
            assert f'references/#{key}"' in (site / link / "index.html").read_text(encoding="utf-8"), f"{key}: {link}"
