"""Faults of tutorials' pages known from public bug reports, looked for in every gallery script.

A machine can check three things of text, formula and code: that they use the same indices, that each operand of an
einsum has the letters of its formula, and that a norm stands where its name says. Whether a sentence is true is left
to the claims that every page must make.
"""

import ast
import builtins
import math
import re
import subprocess
import sys

import pytest
import test_conventions
import torch
from conftest import ROOT
from test_gallery import EVERY_SCRIPT, SCRIPTS, blocks, tree
from torch import nn

from attnkit import Block, layer_norm


def foreign_letters(code: str) -> list[str]:
    """Operands of an einsum with another's letter: i counts queries, j counts keys and values."""
    found = []
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("einsum"):
            subscripts = ast.literal_eval(call.args[0]).split("->")[0].split(",")
            for subscript, operand in zip(subscripts, map(ast.unparse, call.args[1:]), strict=True):
                name = re.match(r"\w*", operand)[0].lower()
                foreign = {"q": "j", "queries": "j", "k": "i", "keys": "i", "v": "i", "values": "i"}.get(name, "")
                if foreign and foreign in subscript:
                    found.append(f"{operand} has the letters {subscript}")
    return found


@pytest.mark.parametrize(
    ("code", "n_found"),
    [
        ('torch.einsum("id,jd->ij", q, k)', 0),
        ('torch.einsum("ij,je->ie", weights, v)', 0),
        ('torch.einsum("jd,id->ij", q, k)', 2),
        ('torch.einsum("bij,bie->bje", weights, values)', 1),
    ],
)
def test_text_and_formula_letters_that_are_exchanged_are_found(code, n_found):
    assert len(foreign_letters(code)) == n_found


@EVERY_SCRIPT
def test_text_and_formula_have_i_for_queries_and_j_for_keys(script):
    assert not foreign_letters(script.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("formula", "agrees"),
    [(r"y_i = \sum_j \alpha_{ij} v_j", True), (r"y_t = \sum_s \alpha_{ts} v_s", False), (r"y_i = \sum_l v_l", False)],
)
def test_text_and_formula_that_disagree_on_indices_are_found(tmp_path, formula, agrees):
    page = tmp_path / "page.py"
    code = 'y = torch.einsum("ij,je->ie", weights, v)'
    page.write_text(f'r"""\n# Title\n\n$${formula}$$\n"""\n\n{code}\n', encoding="utf-8")
    check = test_conventions.test_text_and_formula_do_not_disagree_on_indices
    if agrees:
        check(page)
    else:
        with pytest.raises(AssertionError, match="ij,je->ie"):
            check(page)


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("d_ff", [0, 5])
def test_text_and_formula_of_a_norm_are_as_coded(norm, d_ff):
    """x + F(norm(x)) is called pre-norm, norm(x + F(x)) post-norm: on the page, in the docstring and in the code."""
    formulas = {"pre": r"x + F(\operatorname{norm}(x))", "post": r"\operatorname{norm}(x + F(x))", "none": "x + F(x)"}
    assert re.search(rf"{re.escape(formulas[norm])}\$\s+is\s+``\"{norm}\"``", Block.__doc__)
    if norm != "none":
        page = (ROOT / "gallery/8_transformer/block.py").read_text(encoding="utf-8")
        assert re.search(rf"\\text{{{norm}-norm:}} \\quad {re.escape(formulas[norm])}[,.]", page)
    block = Block(4, 2, norm=norm, d_ff=d_ff).double()
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(d_ff))
    wanted = x
    for layer in (lambda y: block.attention(y)[0], *([block.feed_forward] if d_ff else [])):
        if norm == "pre":
            wanted = wanted + layer(layer_norm(wanted))
        elif norm == "post":
            wanted = layer_norm(wanted + layer(wanted))
        else:
            wanted = wanted + layer(wanted)
    torch.testing.assert_close(block(x)[0], wanted, atol=1e-14, rtol=0)
    assert isinstance(block.norm_1, nn.Identity) == (norm == "none")


@pytest.mark.parametrize(
    ("name", "values"),  # at distance 0, 1/2, 1 and 2
    [
        ("Epanechnikov", [0.75, 0.5625, 0, 0]),
        ("triangular", [1, 0.5, 0, 0]),
        ("Gaussian", [0.39894228, 0.35206533, 0.24197072, 0.05399097]),
    ],
)
def test_kernel_names_in_the_code_are_those_of_their_formulas(name, values):
    script = ROOT / "gallery/3_causal_head/kernel_smoothing.py"
    (kernels,) = (node.value for node in tree(script).body if "KERNELS" in ast.unparse(getattr(node, "targets", [])))
    (kernel,) = (value.elts[0] for key, value in zip(kernels.keys, kernels.values) if key.value == name)
    evaluated = eval(ast.unparse(kernel), {"torch": torch, "math": math})
    at = torch.tensor([0.0, 0.5, 1.0, 2.0, -0.5, -2.0], dtype=torch.float64)
    assert evaluated(at).tolist() == pytest.approx([*values, values[1], values[3]], abs=1e-8)


@pytest.mark.parametrize("script", SCRIPTS[::9], ids=lambda script: script.stem)
def test_snippet_stands_alone_with_the_pages_earlier_blocks(script, tmp_path):
    """Half a page, as a reader copies it, runs in a fresh process in an empty folder."""
    code = [text for kind, text, _ in blocks(script) if kind == "code"]
    snippet = "\n".join(code[: len(code) // 2 + 1])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import matplotlib; matplotlib.use('agg')\n{snippet}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@EVERY_SCRIPT
def test_snippet_uses_no_name_before_the_page_has_made_it(script):
    """Names that a block reads at its own level are built in, or bound in it or in a block above it."""
    bound = {*dir(builtins), "__file__"}
    for kind, text, _ in blocks(script):
        if kind == "code":
            module = ast.parse(text)
            names = [node for node in ast.walk(module) if isinstance(node, ast.Name)]
            bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
            bound |= {node.arg for node in ast.walk(module) if isinstance(node, ast.arg)}
            named = ast.FunctionDef | ast.ClassDef | ast.ExceptHandler
            bound |= {node.name for node in ast.walk(module) if isinstance(node, named)}
            for node in ast.walk(module):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            assert not {node.id for node in names} - bound, text
