"""Formula, code and words say the same (the faults of tutorials whose text and code drifted apart)."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from conftest import ROOT
from test_gallery import EVERY_SCRIPT, SCRIPTS, blocks

import attnkit

MODULES = sorted((ROOT / "attnkit").glob("*.py"))


@EVERY_SCRIPT
def test_text_and_formula_do_not_disagree_on_indices(script):
    """An einsum sums over queries i and keys j only where the page's formulas do."""
    prose = "\n".join(text for kind, text, _ in blocks(script) if kind == "text")
    formulas = " ".join("".join(found) for found in re.findall(r"\$\$(.*?)\$\$|\$(.*?)\$", prose, re.S))
    subscripts = set("".join(re.findall(r"_\{?([A-Za-z, ]+)", formulas)))
    code = "\n".join(text for kind, text, _ in blocks(script) if kind == "code")
    for subscript in re.findall(r'einsum\("([^"]*)"', code):
        queries_and_keys = set(subscript) & set("ij")
        assert queries_and_keys <= subscripts, f"{subscript}: the page's formulas have {sorted(subscripts)}"


def names(path: Path) -> set[str]:
    """Every variable, argument and attribute that a file names."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {
        *(node.id for node in nodes if isinstance(node, ast.Name)),
        *(node.arg for node in nodes if isinstance(node, ast.arg)),
        *(node.attr for node in nodes if isinstance(node, ast.Attribute)),
    }


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=lambda path: path.stem)
def test_no_name_is_used_that_notation_rules_out(path):
    assert not names(path) & {"attn", "att", "p_attn", "dots", "energies"}


def test_the_text_says_pre_or_post_norm_only_where_the_code_does():
    for script in (ROOT / "gallery").glob("*/*.py"):
        source = script.read_text(encoding="utf-8")
        words = set(re.findall(r"\b(pre|post)-norm\b", source))
        coded = set(re.findall(r"\"(pre|post)\"", source))
        if "Transformer(" in source or "Block(" in source:
            coded.add(inspect.signature(attnkit.Transformer).parameters["norm"].default)
        assert words <= coded, f"{script.stem} speaks of {words} and codes {coded}"


def test_kernel_names_are_those_of_their_formulas():
    """Epanechnikov is 3/4 max(0, 1 − x²); max(0, 1 − |x|) is the triangular kernel."""
    for script in (ROOT / "gallery").glob("*/*.py"):
        for kind, text, _ in blocks(script):
            if kind == "text" and "Epanechnikov" in text and r"\max" in text:
                assert re.search(r"\\max\(0, 1 - (x|u)\^2\)", text), script.stem
