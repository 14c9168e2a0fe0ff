"""Every numbered equation and every table of docs/derivations/counts.md.

Parameters are counted on models of torch.nn, operations by PyTorch's counter while such a model runs. Both
live on the meta device: shapes without memory.
"""

import itertools
import math
import re
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

PAGE = (Path(__file__).parent.parent / "docs/derivations/counts.md").read_text(encoding="utf-8")


class Shape(NamedTuple):
    """The letters of the page; ``d_k`` is also the width of a value."""

    V: int
    P: int
    d: int
    L: int
    H: int
    H_kv: int
    d_ff: int

    @property
    def d_k(self):
        return self.d // self.H


def gpt2(d, L, H):
    return Shape(V=50257, P=1024, d=d, L=L, H=H, H_kv=H, d_ff=4 * d)


GPT2 = {
    "GPT-2 small": gpt2(768, 12, 12),
    "GPT-2 medium": gpt2(1024, 24, 16),
    "GPT-2 large": gpt2(1280, 36, 20),
    "GPT-2 XL": gpt2(1600, 48, 25),
}
LLAMA = {
    "Llama 2 7B": Shape(V=32000, P=4096, d=4096, L=32, H=32, H_kv=32, d_ff=11008),
    "Llama 3 8B": Shape(V=128256, P=8192, d=4096, L=32, H=32, H_kv=8, d_ff=14336),
}
SMALL = GPT2["GPT-2 small"]
ODD = Shape(V=53, P=23, d=14, L=3, H=7, H_kv=7, d_ff=56)  # for runs: no two sizes alike


class Block(nn.Module):
    """A block with the shapes of GPT-2 or, ``gated``, of Llama; its products, and none of the rest."""

    def __init__(self, s, gated):
        super().__init__()
        self.s, self.gated, bias = s, gated, not gated
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(s.d), norm(s.d)
        self.qkv = nn.Linear(s.d, (s.H + 2 * s.H_kv) * s.d_k, bias=bias)
        self.output = nn.Linear(s.H * s.d_k, s.d, bias=bias)
        self.up, self.down = nn.Linear(s.d, s.d_ff, bias=bias), nn.Linear(s.d_ff, s.d, bias=bias)
        if gated:
            self.gate = nn.Linear(s.d, s.d_ff, bias=bias)

    def forward(self, x, count, past=None):
        s = self.s
        with count("queries, keys, values"):
            heads = self.qkv(self.norm1(x)).unflatten(-1, (-1, s.d_k)).transpose(-2, -3)
        q, k, v = heads.split([s.H, s.H_kv, s.H_kv], dim=-3)
        if past is not None:
            k, v = torch.cat([past[0], k], -2), torch.cat([past[1], v], -2)
        shared = [each.repeat_interleave(s.H // s.H_kv, dim=-3) for each in (k, v)]
        with count("scores"):
            scores = q @ shared[0].transpose(-1, -2)
        with count("mixtures"):
            out = torch.softmax(scores, -1) @ shared[1]
        with count("output projections"):
            x = x + self.output(out.transpose(-2, -3).flatten(-2))
        with count("feed-forward layers"):
            hidden = self.up(self.norm2(x))
            x = x + self.down(nn.functional.silu(self.gate(x)) * hidden if self.gated else nn.functional.gelu(hidden))
        return x, (k, v)


class Model(nn.Module):
    """GPT-2: learned positions and tied logits. Llama: neither (and no rotations, which have no parameters)."""

    def __init__(self, s, gated=False):
        super().__init__()
        self.tokens = nn.Embedding(s.V, s.d)
        self.positions = None if gated else nn.Embedding(s.P, s.d)
        self.blocks = nn.ModuleList([Block(s, gated) for _ in range(s.L)])
        self.norm = nn.RMSNorm(s.d) if gated else nn.LayerNorm(s.d)
        self.logits = nn.Linear(s.d, s.V, bias=False)
        if not gated:
            self.logits.weight = self.tokens.weight

    def forward(self, tokens, count=None, past=None, last_only=False):
        count = count or uncounted
        offset = 0 if past is None else past[0][0].shape[-2]
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(offset, offset + tokens.shape[-1], device=tokens.device))
        kept = []
        for i, block in enumerate(self.blocks):
            x, pair = block(x, count, None if past is None else past[i])
            kept.append(pair)
        with count("logits"):
            logits = self.logits(self.norm(x[..., -1:, :] if last_only else x))
        return logits, kept


@contextmanager
def uncounted(part):
    yield


def build(s, gated=False):
    with torch.device("meta"):
        return Model(s, gated)


def size(*modules):
    """Parameters, shared ones once."""
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def meta_tokens(n):
    return torch.zeros(n, dtype=torch.long, device="meta")


def flops(run, *arguments, **options):
    with FlopCounterMode(display=False) as counter:
        result = run(*arguments, **options)
    return counter.get_total_flops(), result


def table(header):
    """Rows of the table of the page whose header begins with the given cell: first cell → the other cells."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    cells = [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in rows]
    return {name: rest for name, *rest in cells}


def number(text):
    """The integer in a cell such as 1,234."""
    return int(text.replace(",", ""))


# The closed forms of the page


def attention_parameters(s):
    """eq:cnt-2."""
    return s.d * (s.H * s.d_k + s.H_kv * s.d_k + s.H_kv * s.d_k + s.H * s.d_k)


def parameters(s):
    """eq:cnt-5."""
    return s.V * s.d + s.P * s.d + s.L * (12 * s.d**2 + 13 * s.d) + 2 * s.d


def gated_parameters(s):
    """eq:cnt-6."""
    return 2 * s.V * s.d + s.L * (attention_parameters(s) + 3 * s.d * s.d_ff + 2 * s.d) + s.d


def forward_flops(s, T):
    """eq:cnt-9."""
    return s.L * (24 * T * s.d**2 + 4 * T**2 * s.d) + 2 * T * s.d * s.V


def forward_flops_without_masked_scores(s, T):
    """eq:cnt-9 with eq:cnt-11."""
    return forward_flops(s, T) - 4 * s.L * T**2 * s.d + 2 * s.L * T * (T + 1) * s.d


def step_flops(s, t):
    """eq:cnt-19."""
    return s.L * (24 * s.d**2 + 4 * t * s.d) + 2 * s.d * s.V


def cache_bytes(s, T=1, B=1, b=2):
    """eq:cnt-17."""
    return b * B * T * s.L * s.H_kv * (s.d_k + s.d_k)


# Parameters


def test_the_letters_are_those_of_the_table():
    letters = table("letter")
    values = [number(cells[1]) for cells in letters.values()]
    assert values == [SMALL.V, SMALL.P, SMALL.d, SMALL.L, SMALL.H, SMALL.H_kv, SMALL.d_k, SMALL.d_ff]


@pytest.mark.parametrize(("n", "m"), [(3, 5), (7, 2)])
def test_a_linear_map_has_a_matrix_and_a_bias_and_a_layer_norm_two_numbers_per_feature(n, m):
    """eq:cnt-1."""
    assert size(nn.Linear(n, m)) == n * m + m
    assert size(nn.LayerNorm(n)) == 2 * n


@pytest.mark.parametrize(("d", "H", "H_kv", "d_k", "d_v"), [(11, 6, 3, 5, 7), (12, 4, 4, 3, 3), (12, 2, 2, 6, 6)])
def test_attention_has_four_maps_of_these_sizes(d, H, H_kv, d_k, d_v):
    """eq:cnt-2 with all sizes different, and 4d² with them alike, for two numbers of heads."""
    shapes = [(d, H * d_k), (d, H_kv * d_k), (d, H_kv * d_v), (H * d_v, d)]
    counted = size(*[nn.Linear(n, m, bias=False) for n, m in shapes])
    assert counted == d * (H * d_k + H_kv * d_k + H_kv * d_v + H * d_v)
    if d == 12:
        assert counted == 4 * d**2 == size(nn.MultiheadAttention(d, H, bias=False))
        assert size(nn.MultiheadAttention(d, H)) == 4 * d**2 + 4 * d


@pytest.mark.parametrize(("d", "d_ff"), [(5, 7), (5, 20)])
def test_a_feed_forward_layer_has_two_maps(d, d_ff):
    """eq:cnt-3."""
    counted = size(nn.Linear(d, d_ff), nn.Linear(d_ff, d))
    assert counted == 2 * d * d_ff + d_ff + d
    assert d_ff != 4 * d or counted == 8 * d**2 + 5 * d


@pytest.mark.parametrize("d", [12, 768])
def test_a_block_has_twelve_squares_and_thirteen_times_its_width(d):
    """eq:cnt-4: our block, and torch's encoder layer, which has the same parts."""
    with torch.device("meta"):
        torch_layer = nn.TransformerEncoderLayer(d, 4, 4 * d)
    assert size(build(gpt2(d, 1, 4)).blocks) == size(torch_layer) == 12 * d**2 + 13 * d


def test_gpt2_small_line_by_line():
    """eq:cnt-5: each row of the first table of parameters, its shape and its number, against the modules."""
    model = build(SMALL)
    block = model.blocks[0]
    expected = {
        "token vectors": [model.tokens],
        "position vectors": [model.positions],
        "block: first LayerNorm": [block.norm1],
        "block: queries, keys, values": [block.qkv],
        "block: output projection": [block.output],
        "block: second LayerNorm": [block.norm2],
        "block: into the feed-forward layer": [block.up],
        "block: out of the feed-forward layer": [block.down],
        "one block": [block],
        "twelve blocks": [model.blocks],
        "last LayerNorm": [model.norm],
        "all": [model],
    }
    rows = table("part of GPT-2 small")
    assert list(rows) == list(expected)
    for name, (shape, count) in rows.items():
        assert number(count) == size(*expected[name]), name
        if shape:  # "768 × 768 + 768"
            assert eval(shape.replace(",", "").replace("×", "*")) == number(count), name
    assert size(model) == parameters(SMALL) == 124_439_808


def test_nearly_a_third_of_gpt2_small_is_vocabulary_and_an_untied_head_would_add_as_much():
    """After the table of GPT-2 small."""
    model = build(SMALL)
    assert 0.30 < size(model.tokens) / size(model) < 1 / 3
    model.logits.weight = nn.Parameter(torch.empty(SMALL.V, SMALL.d, device="meta"))
    assert size(model) == parameters(SMALL) + SMALL.V * SMALL.d


@pytest.mark.parametrize("name", GPT2)
def test_the_same_formula_counts_every_gpt2(name):
    """eq:cnt-5 and its second table."""
    width, depth, count = (number(cell) for cell in list(table_of_models())[list(GPT2).index(name)][1:])
    s = GPT2[name]
    assert (width, depth) == (s.d, s.L)
    assert size(build(s)) == parameters(s) == count


def table_of_models():
    """The rows of the table of the four sizes: two tables begin with the cell "model"."""
    return [[cell.strip() for cell in row.strip("| ").split("|")] for row in re.findall(r"^\| GPT-2 .*$", PAGE, re.M)]


@pytest.mark.parametrize("name", LLAMA)
def test_the_formula_of_the_other_recipe_counts_llama(name):
    """eq:cnt-6 and its table."""
    s = LLAMA[name]
    row = re.search(rf"^\| {name} \|(.*)\|$", PAGE, re.M)[1]
    *shape, count = (number(cell) for cell in row.split("|"))
    assert shape == [s.V, s.d, s.L, s.H, s.H_kv, s.d_ff]
    assert size(build(s, gated=True)) == gated_parameters(s) == count
    assert count == {"Llama 2 7B": 6_738_415_616, "Llama 3 8B": 8_030_261_248}[name]


# Operations


@pytest.mark.parametrize(("n", "m", "p"), [(2, 3, 5), (7, 1, 4)])
def test_a_product_costs_two_operations_for_each_triple_of_indices(n, m, p):
    """eq:cnt-7: by a loop that counts, from a sum of 0, and by PyTorch's counter."""
    A, B = torch.randn(n, m, dtype=torch.float64), torch.randn(m, p, dtype=torch.float64)
    operations, result = 0, torch.zeros(n, p, dtype=torch.float64)
    for i, k in itertools.product(range(n), range(p)):
        for j in range(m):
            result[i, k] += A[i, j] * B[j, k]
            operations += 2
    torch.testing.assert_close(result, A @ B, atol=1e-14, rtol=0)
    assert operations == flops(torch.matmul, A, B)[0] == 2 * n * m * p


def by_part(s, T):
    """Operations of each part while the model runs on T tokens."""
    counted = {}

    @contextmanager
    def count(part):
        with FlopCounterMode(display=False) as counter:
            yield
        counted[part] = counted.get(part, 0) + counter.get_total_flops()

    total, _ = flops(build(s), meta_tokens(T), count)
    return counted | {"all": total}


def test_a_block_costs_24_t_d_squared_and_4_t_squared_d():
    """eq:cnt-8: each line of it, for shapes of which no two are alike."""
    s, T = ODD._replace(L=1), 11
    assert by_part(s, T) == {
        "queries, keys, values": 2 * T * 3 * s.d**2,
        "scores": s.H * 2 * T**2 * s.d_k,
        "mixtures": s.H * 2 * T**2 * s.d_k,
        "output projections": 2 * T * s.d**2,
        "feed-forward layers": 2 * T * 8 * s.d**2,
        "logits": 2 * T * s.d * s.V,
        "all": 24 * T * s.d**2 + 4 * T**2 * s.d + 2 * T * s.d * s.V,
    }


@pytest.mark.parametrize(("s", "T"), [(ODD, 1), (ODD, 11), (SMALL, 64)])
def test_a_forward_pass_costs_this_in_all_and_per_token(s, T):
    """eq:cnt-9, eq:cnt-10."""
    counted, _ = flops(build(s), meta_tokens(T))
    assert counted == forward_flops(s, T)
    assert counted / T == 2 * (12 * s.L * s.d**2 + s.V * s.d) + 4 * s.L * T * s.d
    weights_in_products = sum(p.numel() for name, p in build(s).named_parameters() if p.ndim == 2) - s.P * s.d
    assert weights_in_products == 12 * s.L * s.d**2 + s.V * s.d


def test_gpt2_small_part_by_part_on_1024_tokens():
    """eq:cnt-9: each row of the table of operations, its formula and its number, while the model runs."""
    counted, rows = by_part(SMALL, 1024), table("part of GPT-2 small, all blocks")
    assert rows.keys() == counted.keys()
    values = {"L": SMALL.L, "T": 1024, "d": SMALL.d, "V": SMALL.V, "C": lambda T: forward_flops(SMALL, T)}
    for part, (formula, count) in rows.items():
        assert number(count) == counted[part], part
        code = formula.strip("$").replace("^", "**")
        if part != "all":
            code = "*".join(re.findall(r"\d+|[A-Za-z](?:\*\*\d)?", code))
        assert eval(code, values) == counted[part], part
    assert counted["all"] == 291_648_307_200


@pytest.mark.parametrize("T", [1, 2, 11])
def test_a_causal_mask_leaves_half_of_the_scores_and_their_diagonal(T):
    """eq:cnt-11: two products for each visible pair, layer and head."""
    pairs = int(torch.ones(T, T).tril().sum())
    assert pairs == T * (T + 1) // 2
    two_products = pairs * 2 * (ODD.d_k + ODD.d_k) * ODD.H * ODD.L
    assert two_products == 2 * ODD.L * T * (T + 1) * ODD.d
    assert two_products + forward_flops(ODD, T) - 4 * ODD.L * T**2 * ODD.d == forward_flops_without_masked_scores(
        ODD, T
    )


def test_the_count_of_kaplan_is_what_skipping_tends_to():
    """After eq:cnt-11: 2LTd per token is half of the last term of eq:cnt-10, and the limit of eq:cnt-11."""
    T, (L, d) = 10**6, (SMALL.L, SMALL.d)
    assert 2 * L * T * (T + 1) * d / T == pytest.approx(2 * L * T * d, rel=2e-6)


def test_the_gradients_of_a_product_are_two_products_of_the_same_cost():
    """eq:cnt-12."""
    X, W, G = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 5), (5, 7), (3, 7)))
    X.requires_grad_(), W.requires_grad_()
    once, Y = flops(torch.matmul, X, W)
    twice, _ = flops(Y.backward, G)
    torch.testing.assert_close(X.grad, G @ W.detach().T, atol=1e-14, rtol=0)
    torch.testing.assert_close(W.grad, X.detach().T @ G, atol=1e-14, rtol=0)
    assert twice == 2 * once == 2 * 2 * 3 * 5 * 7


@pytest.mark.parametrize("T", [2, 11])
def test_a_training_step_costs_three_forward_passes(T):
    """After eq:cnt-12: forward and backward through the whole model."""
    model = build(ODD)
    counted, _ = flops(lambda: model(meta_tokens(T))[0].sum().backward())
    assert counted == 3 * forward_flops(ODD, T)


# Where the square overtakes the rest


def square(s, T):
    """Operations of scores and mixtures."""
    return 4 * s.L * T**2 * s.d


@pytest.mark.parametrize("s", [SMALL, ODD])
def test_in_a_block_the_square_overtakes_at_six_times_the_width(s):
    """eq:cnt-13: counted just there, and one token to each side."""
    one = s._replace(L=1)
    for T, sign in ((6 * s.d - 1, -1), (6 * s.d, 0), (6 * s.d + 1, 1)):
        counted = by_part(one, T)
        attention = counted["scores"] + counted["mixtures"]
        rest = counted["all"] - counted["logits"] - attention
        assert (attention > rest) - (attention < rest) == sign
    assert 6 * SMALL.d == 4608


@pytest.mark.parametrize("T", [1, 1024, 6702, 6703, 100_000])
def test_against_the_whole_model_the_share_of_the_square_is_t_over_t_and_the_border(T):
    """eq:cnt-14, and its number for GPT-2 small."""
    border = 6 * SMALL.d + SMALL.V / (2 * SMALL.L)
    assert 6702 < border < 6703
    assert square(SMALL, T) / forward_flops(SMALL, T) == pytest.approx(T / (T + border), rel=1e-13)
    assert (square(SMALL, T) > forward_flops(SMALL, T) / 2) == (T >= 6703)
    assert 1 / 8 < 1024 / (1024 + border) < 1 / 7


def test_skipping_masked_scores_moves_the_border_to_twice_the_length():
    """After eq:cnt-14."""
    border = 6 * SMALL.d + SMALL.V / (2 * SMALL.L)
    for T in (math.floor(2 * border - 1), math.ceil(2 * border - 1)):
        scores = 2 * SMALL.L * T * (T + 1) * SMALL.d
        prevails = 2 * scores > forward_flops_without_masked_scores(SMALL, T)
        assert prevails == (2 * border - 1 < T)


@pytest.mark.parametrize(("name", "border"), [("Llama 2 7B", 24_704), ("Llama 3 8B", 26_624)])
def test_with_grouped_heads_the_border_counts_query_heads(name, border):
    """eq:cnt-15: counted on one block that runs on just so many tokens."""
    s = LLAMA[name]._replace(L=1)
    block = build(s, gated=True).blocks[0]
    weights = sum(p.numel() for p in block.parameters() if p.ndim == 2)
    assert weights == attention_parameters(s) + 3 * s.d * s.d_ff
    assert weights / (s.H * (s.d_k + s.d_k)) == border
    x = torch.empty(border, s.d, device="meta")
    total, _ = flops(block, x, uncounted)
    assert total == 2 * (2 * border * weights)
    assert f"{border:,}" in PAGE


@pytest.mark.parametrize("T", [63, 64, 65])
def test_the_weights_outgrow_the_tokens_at_the_width_of_a_head(T):
    """eq:cnt-16: numbers in the weights of a layer against numbers in its tokens."""
    weights, tokens = torch.empty(SMALL.H, T, T, device="meta"), torch.empty(T, SMALL.d, device="meta")
    assert weights.numel() / tokens.numel() == pytest.approx(T / SMALL.d_k, rel=1e-15)
    assert SMALL.d_k == 64


# The cache


def prefix(s, T, gated=False, dtype=torch.float16):
    """Keys and values of every block after a pass over T tokens, in the given dtype."""
    _, kept = build(s, gated).to(dtype)(meta_tokens(T))
    return kept


@pytest.mark.parametrize("name", ["GPT-2 small", *LLAMA])
def test_the_bytes_of_a_cache_are_those_of_its_keys_and_values(name):
    """eq:cnt-17 and its table: bytes per token and per sequence, on the tensors a pass leaves behind."""
    s, gated = (SMALL, False) if name == "GPT-2 small" else (LLAMA[name], True)
    counted = sum(x.numel() * x.element_size() for pair in prefix(s, 3, gated) for x in pair)
    assert counted == cache_bytes(s, T=3)
    per_token, length, whole = table("model, 16-bit numbers")[name]
    in_bytes, in_kib = per_token.split(" = ")
    assert cache_bytes(s) == number(in_bytes) == int(in_kib.removesuffix(" KiB")) * 2**10
    assert number(length) == s.P
    unit = {"MiB": 2**20, "GiB": 2**30}
    amount, name_of_unit = whole.split()
    assert cache_bytes(s, T=s.P) == int(amount) * unit[name_of_unit]


def test_several_sequences_and_wider_numbers_multiply_the_cache():
    """eq:cnt-17: B and b."""
    _, kept = build(ODD)(torch.zeros(5, 11, dtype=torch.long, device="meta"))
    counted = sum(x.numel() * x.element_size() for pair in kept for x in pair)
    assert counted == cache_bytes(ODD, T=11, B=5, b=4)


def test_the_cache_outgrows_the_parameters_of_llama_2_between_25705_and_25706_tokens():
    """eq:cnt-18."""
    s = LLAMA["Llama 2 7B"]
    assert 25_705 < gated_parameters(s) / (s.L * s.H_kv * (s.d_k + s.d_k)) < 25_706
    assert cache_bytes(s, T=25_705) < 2 * gated_parameters(s) < cache_bytes(s, T=25_706)


@pytest.mark.parametrize("s", [ODD, SMALL])
@pytest.mark.parametrize("t", [2, 3, 19])
def test_a_step_with_a_cache_costs_this(s, t):
    """eq:cnt-19: a pass of one token over the keys and values of t − 1 others."""
    model = build(s)
    _, past = model(meta_tokens(t - 1))
    assert flops(model, meta_tokens(1), past=past)[0] == step_flops(s, t)


@pytest.mark.parametrize("T", [1, 2, 7])
def test_writing_with_a_cache_costs_one_causal_pass(T):
    """eq:cnt-20: counted token by token."""
    model, past, counted = build(ODD), None, 0
    for _ in range(T):
        cost, (_, past) = flops(model, meta_tokens(1), past=past)
        counted += cost
    L, d, V = ODD.L, ODD.d, ODD.V
    assert counted == L * (24 * T * d**2 + 2 * T * (T + 1) * d) + 2 * T * d * V
    assert counted == forward_flops_without_masked_scores(ODD, T) == sum(step_flops(ODD, t) for t in range(1, T + 1))


def without_cache(s, T):
    """eq:cnt-21, times three to stay whole."""
    return s.L * (36 * T * (T + 1) * s.d**2 + 2 * T * (T + 1) * (2 * T + 1) * s.d) + 6 * T * s.d * s.V


@pytest.mark.parametrize("T", [1, 2, 7])
def test_writing_without_a_cache_costs_a_pass_for_each_token(T):
    """eq:cnt-21: counted token by token, logits of the last one only."""
    model = build(ODD)
    counted = sum(flops(model, meta_tokens(t), last_only=True)[0] for t in range(1, T + 1))
    assert 3 * counted == without_cache(ODD, T)


def test_without_a_cache_gpt2_small_takes_376_times_as_much_for_1024_tokens():
    """After eq:cnt-21, and that the cost grows with the cube."""
    ratio = without_cache(SMALL, 1024) / 3 / forward_flops_without_masked_scores(SMALL, 1024)
    assert round(ratio) == 376
    assert without_cache(SMALL, 2 * 10**8) / without_cache(SMALL, 10**8) == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize(("name", "expected"), [("Llama 2 7B", 1), ("Llama 3 8B", 4)])
def test_attention_to_a_cache_does_few_operations_per_byte(name, expected):
    """eq:cnt-22: operations counted on one block, divided by the bytes of its keys and values."""
    s, t = LLAMA[name]._replace(L=1), 37
    block = build(s, gated=True).to(torch.float16).blocks[0]
    _, past = block(torch.empty(t - 1, s.d, dtype=torch.float16, device="meta"), uncounted)
    counted = 0

    @contextmanager
    def count(part):
        nonlocal counted
        with FlopCounterMode(display=False) as counter:
            yield
        counted += counter.get_total_flops() if part in ("scores", "mixtures") else 0

    _, kept = block(torch.empty(1, s.d, dtype=torch.float16, device="meta"), count, past)
    read = sum(x.numel() * x.element_size() for x in kept)
    assert counted / read == 2 / 2 * s.H / s.H_kv == expected
