"""MkDocs hook: what the theme leaves out of its pages, and the files that machines look for."""

import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

#: Pieces of the theme's HTML that a screen reader cannot name, with the name they get.
NAMED = {'<div class="md-search" data-md-component="search" role="dialog">': "Search"}

#: Code that is shown in the colour of plain code: names, punctuation, operators, white space.
_PLAIN = re.compile(r'<span class="[nopw]">([^<]*)</span>')

#: A group of the navigation, which refers to a label that is not shown everywhere, and its title within.
_GROUP = re.compile(
    r'aria-labelledby="__nav_[\d_]+_label"(?P<rest>[^>]*>\s*<label class="md-nav__title"[^>]*>\s*'
    r'<span class="md-nav__icon md-icon"></span>\s*(?P<title>[^<]+?)\s*</label>)'
)
#: What search passes over: all code, and on a page of the reference what is found better where it points.
_UNSEARCHED = re.compile(
    r'<(?:div class="(?:[^"]* )?highlight|details class="(?:implementation|entry-uses|mkdocstrings-source)'
    r'|p class="entry-files)"'
)

#: The theme's script, which would otherwise run, and measure the page, before the text is first shown.
_SCRIPT = re.compile(r'<script (?=src="[^"]*assets/javascripts/bundle\.[^"]*")')

_outline: list[tuple[str, str, str]] = []  # section, title, address of every page in reading order


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    _outline.clear()
    for page in nav.pages:
        section = [*page.ancestors][-1].title if page.ancestors else "Start"
        _outline.append((str(section), page.file.src_uri, page.url))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Search knows words: with all code in it, its index would be twice as heavy."""
    return _UNSEARCHED.sub(r"\g<0> data-search-exclude", content)


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    if said := description(text):
        page.meta.setdefault("description", said)


def description(text: str, longest: int = 250) -> str:
    """What a page's first paragraph says in words alone, cut after a sentence."""
    paragraph = re.search(r"^# .+\n+((?:.+\n)+)", text, re.M)
    words = " ".join(paragraph[1].split()) if paragraph else ""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)
    words = re.sub(r"\$(\w+)\$|[*`]", r"\1", words)
    said = ""
    for sentence in re.split(r"(?<=[.?!]) ", words):
        if "$" not in sentence and len(said) + len(sentence) < longest:
            said = f"{said} {sentence}".strip()
    return said


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    # Half of a page's elements would be there to say that they have no colour.
    return with_names(text_first(_PLAIN.sub(r"\1", output)))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    return with_names(text_first(output)) if template_name == "404.html" else output


def text_first(output: str) -> str:
    """The HTML with the theme's script deferred: it runs when the page has been read and can be shown.

    Raises:
        PluginError: it is not there, so the theme has changed.
    """
    deferred, found = _SCRIPT.subn("<script defer ", output)
    if found != 1:
        raise PluginError(f"the theme loads its script {found} times, not once (hooks/theme.py)")
    return deferred


def with_names(output: str) -> str:
    """The HTML with the theme's unnamed pieces named.

    Raises:
        PluginError: one of them is not there, so the theme has changed.
    """
    for piece, name in NAMED.items():
        if piece not in output:
            raise PluginError(f"the theme no longer writes {piece}: look what it writes instead (hooks/theme.py)")
        output = output.replace(piece, f'{piece[:-1]} aria-label="{name}">')
    return _GROUP.sub(lambda group: f'aria-label="Pages of {group["title"]}"{group["rest"]}', output)


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    site = config.site_url or ""
    files.append(File.generated(config, "robots.txt", content=robots(site)))
    titles = {file.src_uri: str(file.page.title) for file in files.documentation_pages() if file.page}
    entries = [(section, titles[source], address) for section, source, address in _outline]
    files.append(File.generated(config, "llms.txt", content=llms(config, entries)))


def robots(site: str) -> str:
    """Everybody may read everything; where the site knows its address, so does its list of pages."""
    text = "User-agent: *\nAllow: /\n"
    return text + f"Sitemap: {site.rstrip('/')}/sitemap.xml\n" if site else text


def llms(config: MkDocsConfig, outline: list[tuple[str, str, str]]) -> str:
    """The site's outline in plain Markdown (llmstxt.org), links relative to the file."""
    text, last = f"# {config.site_name}\n\n> {config.site_description}\n", ""
    for section, title, address in outline:
        if section != last:
            text, last = f"{text}\n## {section}\n\n", section
        file = address if address.endswith(".html") else str(PurePosixPath(address) / "index.html")
        text += f"- [{title}]({file})\n"
    return text
