"""attnkit against transformers: rotary layouts, soft caps, ALiBi, grouped heads, and a cache against none.

Nothing is downloaded: models are made from their configuration, with random weights.
"""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

from attnkit import KVCache, alibi_bias, alibi_slopes, attention, causal_mask, repeat_heads, rotate, split_heads

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("n_heads", "T", "d_k"), [(1, 1, 2), (4, 7, 8), (2, 65, 64)])
def test_the_layout_half_is_llamas(n_heads, T, d_k):
    q, k = torch.randn(2, 3, n_heads, T, d_k)
    config = LlamaConfig(hidden_size=n_heads * d_k, num_attention_heads=n_heads, head_dim=d_k)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(T)[None])
    for ours, theirs in zip((q, k), llama.apply_rotary_pos_emb(q, k, cos, sin)):
        torch.testing.assert_close(rotate(ours, layout="half"), theirs, **CLOSE)


@pytest.mark.parametrize(("T", "d_k"), [(1, 2), (9, 8), (33, 64)])
def test_the_layout_interleaved_is_gpt_js(T, d_k):
    x = torch.randn(2, 5, T, d_k)
    sin, cos = gptj.create_sinusoidal_positions(T, d_k)[None].chunk(2, dim=-1)
    theirs = gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)  # tokens before heads there
    torch.testing.assert_close(rotate(x, layout="interleaved"), theirs, **CLOSE)


@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_partial_rotary_is_gpt_neoxs(rotary_dim):
    q, k = torch.randn(2, 2, 3, 11, 16)
    angles = torch.arange(11.0)[:, None] * 10000.0 ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)
    angles = torch.cat((angles, angles), dim=-1)[None]
    theirs, _ = neox.apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    torch.testing.assert_close(rotate(q, layout="half", rotary_dim=rotary_dim), theirs, **CLOSE)


@pytest.mark.parametrize("softcap", [None, 0.5, 50.0])
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_soft_capped_grouped_attention_is_gemma_2s(softcap, n_heads, n_kv_heads):
    q, k, v = torch.randn(2, n_heads, 5, 8), torch.randn(2, n_kv_heads, 5, 8), torch.randn(2, n_kv_heads, 5, 8)
    hidden = torch.zeros(5, 5).masked_fill(~causal_mask(5), -torch.inf)
    module = SimpleNamespace(head_dim=8, num_key_value_groups=n_heads // n_kv_heads, training=False)
    theirs, their_weights = eager_attention_forward(module, q, k, v, hidden, softcap=softcap)
    out, weights = attention(q, repeat_heads(k, n_heads), repeat_heads(v, n_heads), causal_mask(5), softcap=softcap)
    torch.testing.assert_close(out, theirs.transpose(1, 2), **CLOSE)
    torch.testing.assert_close(weights, their_weights, **CLOSE)


@pytest.mark.parametrize(("n_kv_heads", "times"), [(1, 1), (1, 4), (3, 2), (5, 3)])
def test_heads_are_repeated_in_transformers_order(n_kv_heads, times):
    x = torch.randn(2, n_kv_heads, 3, 4)
    assert repeat_heads(x, n_kv_heads * times).equal(llama.repeat_kv(x, times))


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8, 12, 20, 32])
def test_alibi_is_blooms_up_to_what_softmax_cannot_see(n_heads):
    T = 7
    theirs = build_alibi_tensor(torch.ones(1, T), n_heads, torch.float32)  # slope × key position, one row for all
    slopes = theirs[:, 0, 1]
    torch.testing.assert_close(alibi_slopes(n_heads), slopes, atol=1e-7, rtol=1e-6)
    shift = alibi_bias(n_heads, T) - theirs.view(n_heads, 1, T)
    spread = shift - shift[..., :1]  # the same for all keys of a query: softmax does not change
    assert spread.masked_fill(~causal_mask(T), 0.0).abs().max() < 1e-5


def test_decoding_with_our_cache_gives_the_attention_of_a_whole_llama_layer():
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=6,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    layer = model.model.layers[0].self_attn
    x = torch.randn(1, 9, 24)
    cos, sin = model.model.rotary_emb(x, torch.arange(9)[None])
    whole, _ = layer(x, position_embeddings=(cos, sin), attention_mask=_causal(9))
    cache, outputs = KVCache(), []
    for t in range(9):
        q, k, v = (
            split_heads(projection(x[:, t : t + 1]), n)
            for projection, n in ((layer.q_proj, 6), (layer.k_proj, 2), (layer.v_proj, 2))
        )
        q, k = (rotate(y, torch.tensor([t]), layout="half") for y in (q, k))
        k, v = cache.append(k, v)
        out, _ = attention(q, repeat_heads(k, 6), repeat_heads(v, 6))
        outputs.append(layer.o_proj(out.transpose(1, 2).flatten(2)))
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, **CLOSE)


def _causal(T):
    return torch.zeros(1, 1, T, T).masked_fill(~causal_mask(T), -torch.inf)
