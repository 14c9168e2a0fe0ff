"""Faults of norms, losses and training modes known from public bug reports: the reported input and others of its kind.

And of linear attention, the one row there is about attention without softmax.
"""

import ast
import math

import pytest
import torch
from conftest import ROOT
from torch import nn
from torch.nn.functional import cross_entropy

import attnkit
from attnkit import (
    AdditiveAttention,
    Block,
    Head,
    MultiHeadAttention,
    Seq2Seq,
    Transformer,
    layer_norm,
    linear_attention,
)


def test_dropout_is_nowhere_so_that_train_and_eval_are_one_function():
    """Nothing in attnkit drops anything: no name of its code speaks of dropout."""
    for module in (ROOT / "attnkit").glob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        names = [getattr(node, name, "") or "" for node in ast.walk(tree) for name in ("id", "attr", "arg")]
        assert not [name for name in names if isinstance(name, str) and "drop" in name.lower()], module.name


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (MultiHeadAttention(6, 2), (torch.ones(3, 6),)),
        (Head(6, 2, context=5), (torch.ones(3, 6),)),
        (AdditiveAttention(6, 6, 4), (torch.ones(2, 6), torch.ones(3, 6))),
        (Block(6, 2), (torch.ones(3, 6),)),
        (Transformer(5, 6, 2, 2, context=4), (torch.tensor([0, 3, 1]),)),
        (Seq2Seq(5, 6), (torch.tensor([[0, 3, 1]]), torch.tensor([[1, 2]]))),
    ],
    ids=lambda x: type(x).__name__,
)
def test_dropout_in_eval_and_in_training_gives_the_same_twice(module, inputs):
    assert not [part for part in module.modules() if isinstance(part, nn.modules.dropout._DropoutNd)]
    outputs = [mode(inputs) for mode in (lambda x: module.train()(*x), lambda x: module.eval()(*x)) for _ in range(2)]
    assert all(torch.equal(out[0], outputs[0][0]) for out in outputs)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([1.0, 0, 0, 0], [1.732005, -0.577335, -0.577335, -0.577335]),  # as reported; 1.5 and −0.5 by d − 1
        ([2.0, 0], [1 / math.sqrt(1 + 1e-5), -1 / math.sqrt(1 + 1e-5)]),  # variance 1
        ([1.0, 2, 3], [-1 / math.sqrt(2 / 3 + 1e-5), 0, 1 / math.sqrt(2 / 3 + 1e-5)]),
        ([5.0], [0.0]),  # a single feature has no deviation
        ([7.0, 7, 7], [0.0, 0, 0]),
        ([0.0, 1e-3], [-5e-4 / math.sqrt(2.5e-7 + 1e-5), 5e-4 / math.sqrt(2.5e-7 + 1e-5)]),  # ε inside the root
    ],
)
def test_layer_norm_divides_by_the_biased_deviation_with_epsilon_inside_the_root(x, wanted):
    normed = layer_norm(torch.tensor(x, dtype=torch.float64))
    assert normed.tolist() == pytest.approx(wanted, abs=1e-6)
    assert attnkit.LayerNorm(len(x)).double()(torch.tensor(x).double()).tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("tokens", "n_symbols", "wanted"),
    [
        ([0, 1, 2], 3, 9.08e-5),  # as reported; 10.0001 if the logits are asked about their own token
        ([2, 0, 1, 2], 3, math.log(1 + 2 * math.exp(-10))),
        ([1, 0], 4, math.log(1 + 3 * math.exp(-10))),
    ],
)
def test_label_shift_asks_logits_about_the_next_token(tokens, n_symbols, wanted):
    """A model that ends with 10 on the next token, through the slices that every page uses."""
    tokens = torch.tensor(tokens)
    model = Transformer(n_symbols, n_symbols, 1, 0, positions="none", norm="none")
    follows = torch.zeros(n_symbols, n_symbols)
    follows[tokens[:-1], tokens[1:]] = 10.0
    model.token.weight.data, model.output.weight.data = follows, torch.eye(n_symbols)
    logits, _ = model(tokens[:-1])
    assert cross_entropy(logits, tokens[1:]).item() == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("n_symbols", [3, 6])
def test_label_shift_by_the_logits_of_a_causal_model_that_cannot_see_the_label(n_symbols):
    """If the label could be seen, changing it would change the logits it is compared with."""
    model = Transformer(n_symbols, 6, 2, 2, context=4)
    tokens = torch.tensor([0, 1, 2, 0])
    for t in (1, 3):
        other = tokens.clone()
        other[t] = (tokens[t] + 1) % n_symbols
        assert torch.equal(model(tokens)[0][:t], model(other)[0][:t])


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 3, 5], [1, 2, 3]),  # as reported; 1, 4, 9 without the denominator
        ([2, 4, 9], [2, 3, 5]),
        ([-6], [-6]),
        ([1.0] * 130, [1.0] * 130),  # longer than two of its chunks
        ([2.0 * t for t in range(130)], [float(t) for t in range(130)]),
    ],
)
def test_linear_attention_is_divided_by_the_keys_so_far(values, wanted):
    v = torch.tensor(values, dtype=torch.float64)[:, None]
    q = torch.zeros(len(values), 2, dtype=torch.float64)
    for feature_map in (torch.ones_like, attnkit.elu_plus_one):  # both are 1 at 0
        out = linear_attention(q, q, v, feature_map=feature_map)
        torch.testing.assert_close(out[:, 0], torch.tensor(wanted, dtype=torch.float64), atol=1e-13, rtol=0)


def test_linear_attention_by_hand_with_unequal_keys():
    """φ the identity, keys 1 and 3, values 0 and 4: first 0, then (1·0 + 3·4)/(1 + 3) = 3, whatever the query."""
    q, k, v = (torch.tensor(x, dtype=torch.float64)[:, None] for x in ([5.0, 2.0], [1.0, 3.0], [0.0, 4.0]))
    for causal, wanted in ((True, [0.0, 3.0]), (False, [3.0, 3.0])):
        assert linear_attention(q, k, v, feature_map=lambda x: x, causal=causal)[:, 0].tolist() == wanted
