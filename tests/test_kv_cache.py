"""The cache: any chunking gives the full forward pass, and nothing that was returned changes.

The axes have different primes: B = 2, H = 3, T = 13, d_k = 5, d_v = 7.
"""

import pytest
import torch

from attnkit.kv_cache import KVCache
from attnkit.masks import causal_mask, sliding_window_mask
from attnkit.multi_head import repeat_heads
from attnkit.online_softmax import tiled_attention
from attnkit.rotary import rotate
from attnkit.scaled_dot_product import attention

CHUNKS = [[1] * 13, [13], [5, 8], [4, 1, 1, 7], [12, 1], [1, 12], [0, 6, 0, 7]]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def qkv():
    return randn(2, 3, 13, 5), randn(2, 3, 13, 5, seed=1), randn(2, 3, 13, 7, seed=2)


def exactly(actual, expected, atol=1e-14):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def decode(step, chunks, *tensors):
    """Concatenated outputs of ``step(offset, cache, *chunk of each tensor)``."""
    cache, out = KVCache(), []
    for parts in zip(*(x.split(chunks, dim=-2) for x in tensors)):
        out.append(step(len(cache), cache, *parts))
    assert len(cache) == sum(chunks)
    return torch.cat(out, dim=-2)


# By hand


def test_it_counts_its_tokens_and_keeps_their_order():
    cache = KVCache()
    assert len(cache) == 0
    cache.append(torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0]]))
    assert len(cache) == 2
    k, v = cache.append(torch.tensor([[3.0]]), torch.tensor([[30.0]]))
    assert k.tolist() == [[1.0], [2.0], [3.0]]
    assert v.tolist() == [[10.0], [20.0], [30.0]]
    assert len(cache) == 3


def test_equal_keys_decode_to_the_running_mean():
    def step(offset, cache, q, k, v):
        k, v = cache.append(k, v)
        return attention(q, k, v, causal_mask(len(q), len(k), offset=offset))[0]

    zeros, values = torch.zeros(4, 1), torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    for chunks in ([1, 1, 1, 1], [2, 2], [4]):
        assert decode(step, chunks, zeros, zeros, values).flatten().tolist() == [0.0, 0.5, 1.0, 1.5]


# Any chunking


@pytest.mark.parametrize("chunks", CHUNKS)
def test_any_chunking_equals_the_full_forward_pass(chunks):
    def step(offset, cache, q, k, v):
        k, v = cache.append(k, v)
        return attention(q, k, v, causal_mask(q.shape[-2], len(cache), offset=offset))[0]

    exactly(decode(step, chunks, *qkv()), attention(*qkv(), causal_mask(13))[0])


@pytest.mark.parametrize("chunks", CHUNKS)
def test_any_chunking_with_rotary_positions_a_window_and_tiles(chunks):
    def step(offset, cache, q, k, v):
        positions = offset + torch.arange(q.shape[-2])
        k, v = cache.append(rotate(k, positions), v)
        mask = sliding_window_mask(q.shape[-2], len(cache), window=4, offset=offset)
        return tiled_attention(rotate(q, positions), k, v, mask, block=3)

    q, k, v = qkv()
    q, k = q[..., :4], k[..., :4]
    expected, _ = attention(rotate(q), rotate(k), v, sliding_window_mask(13, window=4))
    exactly(decode(step, chunks, q, k, v), expected)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_key_heads_are_kept_before_they_are_repeated(chunks):
    def step(offset, cache, q, k, v):
        k, v = cache.append(k, v)
        assert k.shape[-3] == 1
        mask = causal_mask(q.shape[-2], len(cache), offset=offset)
        return attention(q, repeat_heads(k, 3), repeat_heads(v, 3), mask)[0]

    q, k, v = qkv()
    k, v = k[:, :1], v[:, :1]
    expected, _ = attention(q, k, v, causal_mask(13))
    exactly(decode(step, chunks, q, k, v), expected)


# State


def test_what_was_returned_stays_as_it_was():
    cache = KVCache()
    k, v = cache.append(randn(3, 5), randn(3, 7, seed=1))
    before = k.clone(), v.clone()
    cache.append(randn(2, 5, seed=2), randn(2, 7, seed=3))
    assert torch.equal(k, before[0])
    assert torch.equal(v, before[1])


def test_two_caches_share_nothing():
    one, other = KVCache(), KVCache()
    one.append(randn(3, 5), randn(3, 7))
    assert len(other) == 0


def test_an_empty_cache_takes_its_shape_from_the_first_tokens():
    cache = KVCache()
    k, v = cache.append(torch.zeros(2, 3, 0, 5), torch.zeros(2, 3, 0, 7))
    assert (k.shape, v.shape, len(cache)) == ((2, 3, 0, 5), (2, 3, 0, 7), 0)
    with pytest.raises(ValueError, match="k must fit the tokens held"):
        cache.append(torch.zeros(2, 3, 1, 11), torch.zeros(2, 3, 1, 7))


def test_gradients_reach_every_token():
    q, k, v = (x.requires_grad_() for x in qkv())
    cache = KVCache()
    for new_k, new_v in zip(k.split([6, 7], dim=-2), v.split([6, 7], dim=-2)):
        k_all, v_all = cache.append(new_k, new_v)
    ours = torch.autograd.grad(attention(q, k_all, v_all)[0].sum(), (k, v))
    expected = torch.autograd.grad(attention(q, k, v)[0].sum(), (k, v))
    exactly(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_tokens_keep_their_dtype_and_their_bytes(dtype):
    cache = KVCache()
    for _ in range(11):
        k, v = cache.append(torch.zeros(2, 3, 1, 5, dtype=dtype), torch.zeros(2, 3, 1, 7, dtype=dtype))
    assert k.dtype == v.dtype == dtype
    assert k.nbytes + v.nbytes == 11 * 2 * 3 * (5 + 7) * dtype.itemsize


# Errors


def test_keys_and_values_of_different_length_are_refused_and_nothing_is_kept():
    cache = KVCache()
    message = r"^k and v must hold .*: k has shape \(2, 5\), v has shape \(3, 7\)$"
    with pytest.raises(ValueError, match=message):
        cache.append(torch.zeros(2, 5), torch.zeros(3, 7))
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("name", "k", "v"),
    [
        ("k", torch.zeros(3, 1, 7), torch.zeros(3, 1, 7)),
        ("k", torch.zeros(2, 1, 5), torch.zeros(3, 1, 7)),
        ("k", torch.zeros(1, 5), torch.zeros(3, 1, 7)),
        ("v", torch.zeros(3, 1, 5), torch.zeros(3, 1, 11)),
    ],
)
def test_tokens_that_do_not_fit_those_held_are_refused_and_nothing_is_kept(name, k, v):
    cache = KVCache()
    cache.append(torch.zeros(3, 2, 5), torch.zeros(3, 2, 7))
    with pytest.raises(ValueError, match=rf"^{name} must fit the tokens held .*: it has shape .*, those held "):
        cache.append(k, v)
    assert len(cache) == 2


def test_another_dtype_is_refused():
    cache = KVCache()
    cache.append(torch.zeros(2, 5), torch.zeros(2, 7))
    with pytest.raises(TypeError, match=r"^v must have the dtype .*: it is torch.float16, not torch.float32$"):
        cache.append(torch.zeros(1, 5), torch.zeros(1, 7).half())


def test_tokens_need_two_axes():
    with pytest.raises(ValueError, match=r"^k must have shape \(\.\.\., tokens, features\), got \(5,\)$"):
        KVCache().append(torch.zeros(5), torch.zeros(1, 7))
