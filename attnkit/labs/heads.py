"""Checks of lab 2: queries, keys, values, the scale, and several heads side by side."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attnkit import claims
from attnkit.labs._check import exercise, expect, expect_shape, near, random
from attnkit.multi_head import merge_heads, split_heads
from attnkit.scaled_dot_product import attention


@exercise("2.1")
def check_scores(scores: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Every query with every key; as many keys as queries, so that a transpose shows only in the numbers."""
    q, k = random(0, 2, 3, 4), random(1, 2, 3, 4) * 2
    found = scores(q, k)
    expect_shape(found, (2, 3, 3), "a row for each query and a column for each key; is the feature axis summed?")
    expect(not near(found, k @ q.mT), "rows belong to keys: in s_ij the query comes first")
    expect(not near(found, q @ k.mT / 2), "leave the scale for the next exercise")
    expect(not near(found, q @ k.mT / torch.outer(q[0].norm(dim=-1), k[0].norm(dim=-1))), "do not normalise")
    expected = torch.einsum("bid,bjd->bij", q, k)
    claims.close("lab 2: scores are dot products of all queries with all keys", found, expected, atol=1e-12)


@exercise("2.2")
def check_scaled(scaled: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Divided by the root of the width of a key: widths, tokens and batch all differ."""
    q, k = random(0, 2, 3, 16), random(1, 2, 5, 16)
    product = q @ k.mT
    found = scaled(q, k)
    expect_shape(found, (2, 3, 5), "scaling changes no shape")
    expect(not near(found, product), "the scores are not scaled")
    expect(not near(found, product / 16), "divided by d_k itself: the standard deviation grows with its root")
    expect(not near(found, product / math.sqrt(5)), "divided by the root of the number of keys, not of their width")
    expect(not near(found, product * 4), "multiplied by the root of d_k: wide heads would get sharper still")
    claims.close("lab 2: scaled scores are dot products over √d_k", found, product / 4, atol=1e-12)


@exercise("2.3")
def check_attention(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """The softmax runs over the keys, of scaled scores; values have a width of their own."""
    q, k, v = random(0, 2, 4, 8), random(1, 2, 4, 8) * 2, random(2, 2, 4, 3)
    found = attend(q, k, v)
    expect_shape(found, (2, 4, 3), "an output has the features of the values")
    product = q @ k.mT
    over_queries = torch.softmax(product / math.sqrt(8), -2) @ v
    expect(not near(found, over_queries), "the softmax ran over the queries: which axis holds the keys?")
    expect(not near(found, torch.softmax(product, -1) @ v), "the scores were not scaled before the softmax")
    expect(not near(found, product / math.sqrt(8) @ v), "the values were mixed by raw scores: where is the softmax?")
    claims.close("lab 2: attention agrees with attnkit's", found, attention(q, k, v)[0], atol=1e-12)


@exercise("2.4")
def check_split(split: Callable[[Tensor, int], Tensor]) -> None:
    """Each head gets a slice of the features; as many tokens as heads, so that only numbers tell."""
    x = torch.arange(2 * 3 * 6.0).view(2, 3, 6)
    found = split(x, 3)
    expect_shape(found, (2, 3, 3, 2), "the order is (batch, head, token, feature)")
    mixed = x.reshape(2, 3, 3, 2)
    expect(not near(found, mixed), "heads hold tokens: after cutting the features, exchange the axes of token and head")
    strided = x.view(2, 3, 2, 3).permute(0, 3, 1, 2)
    expect(not near(found, strided), "a head got every third feature: it should get neighbours, head before feature")
    reversed_heads = split_heads(x, 3).flip(-3)
    expect(not near(found, reversed_heads), "the heads come in the wrong order: head 0 holds the first features")
    claims.close("lab 2: head h holds features h·d_k to (h + 1)·d_k", found, split_heads(x, 3), atol=0)


@exercise("2.5")
def check_multi_head(multi_head: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]) -> None:
    """Heads attend alone, come back in their places, and are mixed by the output map."""
    x = random(0, 2, 4, 8)
    w_q, w_k, w_v, w_o = (random(seed, 8, 8) / 3 for seed in range(1, 5))
    found = multi_head(x, w_q, w_k, w_v, w_o, 4)
    expect_shape(found, (2, 4, 8), "tokens come out as wide as they went in")
    q, k, v = (split_heads(x @ w, 4) for w in (w_q, w_k, w_v))
    heads = attention(q, k, v)[0]
    expect(not near(found, merge_heads(heads)), "the output map W_O is missing: the heads are not mixed")
    single = attention(x @ w_q, x @ w_k, x @ w_v)[0] @ w_o
    expect(not near(found, single), "one head of full width came out: are the features split before attending?")
    jumbled = heads.reshape(2, 4, 8) @ w_o
    expect(not near(found, jumbled), "heads and tokens are jumbled: undo the exchange of axes before joining features")
    swapped = merge_heads(attention(k, q, v)[0]) @ w_o
    expect(not near(found, swapped), "queries and keys have changed places")
    claims.close("lab 2: multi-head attention is heads, joined and mapped", found, merge_heads(heads) @ w_o, atol=1e-12)
