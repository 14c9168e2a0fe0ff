"""Which names of attnkit a script uses, and that each public name has exactly one entry in the reference."""

import pytest
from conftest import ROOT

import attnkit
from hooks import plugin, uses

SCRIPT = """
import torch
from attnkit import attention, causal_mask, claims, entropy as disorder, plot, softmax
from elsewhere import Head

def of(x):
    return disorder(x)

claims.close("one", attention(x, mask=causal_mask(3)), 1)
claims.close("two", plot.INK, claims.unknown)
torch.softmax(x)
other.attention.heatmap(Head)
"""


def test_names_come_in_the_order_of_their_first_use_and_an_import_is_no_use(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    assert uses.uses(script) == ("entropy", "close", "attention", "causal_mask", "INK")


def test_every_script_uses_every_name_that_it_imports():
    modules = set(uses.public_names().values())
    for script in plugin.scripts(ROOT):
        taken = set(uses.imported(uses.parsed(script)).values())
        assert taken - modules <= set(uses.uses(script)), script.stem


def test_the_public_names_are_those_of_the_package():
    assert uses.public_names() == attnkit._HOME


def test_every_public_name_has_exactly_one_entry():
    assert not uses.faults()
    assert sorted(uses.entries()) == attnkit.__all__


def test_a_missing_a_double_and_an_unknown_entry_are_faults(tmp_path):
    (tmp_path / "attnkit").mkdir()
    (tmp_path / "docs/api").mkdir(parents=True)
    (tmp_path / "attnkit/__init__.pyi").write_text(
        "from attnkit.one import a as a\nfrom attnkit.one import b as b\n", encoding="utf-8"
    )
    (tmp_path / "docs/api/x.md").write_text("::: attnkit.a\n\n::: attnkit.c\n", encoding="utf-8")
    (tmp_path / "docs/api/y.md").write_text("::: attnkit.a\n", encoding="utf-8")
    assert uses.faults(tmp_path) == [
        "b has no entry in docs/api",
        "a has 2 entries: api/x.md, api/y.md",
        "api/x.md has an entry for c, no public name",
    ]


def test_an_entry_is_a_page_and_an_anchor():
    assert uses.entry("attention") == "api/attention.md#attnkit.attention"
    with pytest.raises(KeyError, match="atention"):
        uses.entry("atention")
