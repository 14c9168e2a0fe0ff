"""What a gallery page has besides its own text: at the top, after its code, at the end."""

import json
import re

from conftest import ROOT

from hooks import concepts, furniture, plugin


def html_of(site, script) -> str:
    return (site / script.relative_to(ROOT).with_suffix("") / "index.html").read_text(encoding="utf-8")


def test_every_page_says_at_its_top_how_long_it_takes_and_what_it_builds_on(site):
    for stem, concept in concepts.concepts(ROOT).items():
        html = html_of(site, concept.script)
        (top,) = re.findall(r'<div class="furniture">(.*?)</div>', html, re.S)
        assert html.index(top) < html.index('<div class="highlight"'), stem
        assert re.search(r"\b[1-9]\d* minutes · builds on ", top), stem
        for before in concept.builds_on or ["nothing before it"]:
            assert before.replace("_", " ") in top
        assert f'href="{stem}.py"' in top or f'href="../{stem}.py"' in top
        assert f"{stem}.ipynb" in top


def test_every_page_ends_with_its_claims_and_with_what_builds_on_it(site):
    listed = json.loads((site / "claims.json").read_text(encoding="utf-8"))
    for stem, concept in concepts.concepts(ROOT).items():
        html = html_of(site, concept.script)
        (table,) = re.findall(r'<details class="claims-of-page">(.*?)</details>', html, re.S)
        own = [entry for entry in listed if entry["source"].startswith(concept.script.relative_to(ROOT).as_posix())]
        assert table.count("<tr>") == len(own) + 1, stem
        assert f"{len(own)} claims held" in table
        end = html[html.index(table) :]
        for later in concept.leads_to:
            assert f">{later.replace('_', ' ')}</a>" in end, stem


def test_a_function_can_be_unfolded_once_after_the_block_that_first_uses_it(site):
    html = html_of(site, ROOT / "gallery/3_causal_head/masking.py")
    boxes = re.findall(r'<details class="implementation".*?</details>', html, re.S)
    names = [re.search(r"<summary><code>(\w+)</code>", box)[1] for box in boxes]
    assert names == ["causal_mask", "attention", "attention_scores", "padding_mask", "sliding_window_mask"]
    for name, box in zip(names, boxes):
        assert f"#attnkit.{name}" in box
        assert "tests/test_" in box
        assert re.sub(r"<[^>]+>", "", box).count(f"def {name}(") == 1


def test_what_is_unfolded_is_the_source_without_its_docstring():
    for module, name in (("masks", "causal_mask"), ("multi_head", "MultiHeadAttention")):
        source = (ROOT / f"attnkit/{module}.py").read_text(encoding="utf-8")
        shown = furniture.source_of(ROOT / f"attnkit/{module}.py", name)
        assert '"""' not in shown
        for line in shown.splitlines():
            assert line in source.splitlines()
        compile(shown, name, "exec")


def test_every_page_names_the_script_to_edit_where_the_repository_is_known(small_site):
    build = small_site.build(REPOSITORY_URL="https://example.org/attnkit")
    assert build.returncode == 0, build.stderr
    html = (small_site.root / "site/gallery/1_part/good/index.html").read_text(encoding="utf-8")
    assert 'href="https://example.org/attnkit/edit/main/gallery/1_part/good.py"' in html


def test_search_passes_over_what_is_said_elsewhere(site):
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    assert "as it is in attnkit/" not in index
    assert "claims held when this page was built" not in index


def test_scripts_keep_their_headers_to_themselves(site):
    for script in plugin.scripts(ROOT):
        assert "mkdocs_gallery_" not in html_of(site, script), script.stem
