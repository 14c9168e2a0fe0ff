"""The Transformer: by hand, against torch's modules in float64 with copied weights, and by its laws.

The sizes are different primes where they may be: B = 2, T = 5, H = 3, vocabulary 13, d_ff = 17.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, relu

from attnkit.kv_cache import KVCache
from attnkit.masks import causal_mask, padding_mask
from attnkit.multi_head import MultiHeadAttention
from attnkit.rotary import rotate
from attnkit.transformer import Block, FeedForward, LayerNorm, Transformer, count_parameters, layer_norm, rms_norm


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exactly(actual, expected, atol=1e-12):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def filled(module, seed=0):
    """The module in float64, every parameter drawn from its own seed."""
    module = module.double()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=seed + 17 * i) / math.sqrt(parameter.shape[-1]))
    return module


def tokens_of(*shape, seed=0):
    return torch.randint(13, shape, generator=torch.Generator().manual_seed(seed))


# layer_norm, rms_norm


def test_layer_norm_divides_by_the_biased_deviation():
    y = layer_norm(torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))
    exactly(y, torch.tensor([1.732005, -0.577335, -0.577335, -0.577335], dtype=torch.float64), atol=5e-7)


def test_layer_norm_adds_eps_inside_the_root():
    # mean 0, variance 1, eps 3: divided by 2, not by 1 + 3 or 1 + √3.
    y = layer_norm(torch.tensor([1.0, -1.0], dtype=torch.float64), eps=3.0)
    assert y.tolist() == [0.5, -0.5]


def test_rms_norm_divides_by_the_root_of_the_mean_square_and_does_not_shift():
    x = torch.tensor([3.0, 4.0, 0.0, 0.0], dtype=torch.float64)
    exactly(rms_norm(x, eps=0.0), torch.tensor([1.2, 1.6, 0.0, 0.0], dtype=torch.float64))
    exactly(rms_norm(torch.full((7,), 2.0, dtype=torch.float64), eps=5.0), torch.full((7,), 2 / 3, dtype=torch.float64))


@pytest.mark.parametrize("d", [1, 2, 19])
@pytest.mark.parametrize("affine", [False, True])
def test_norms_equal_torch(d, affine):
    x = 3 + 2 * randn(2, 5, d, seed=3)
    weight, bias = (randn(d, seed=4), randn(d, seed=5)) if affine else (None, None)
    exactly(layer_norm(x, weight, bias), nn.functional.layer_norm(x, (d,), weight, bias))
    exactly(layer_norm(x, weight, bias, eps=0.1), nn.functional.layer_norm(x, (d,), weight, bias, eps=0.1))
    exactly(rms_norm(x, weight), nn.functional.rms_norm(x, (d,), weight, eps=1e-6))


def test_norm_gradients_equal_torch():
    x, cotangent = randn(5, 19, seed=3), randn(5, 19, seed=4)
    weight, bias = randn(19, seed=5), randn(19, seed=6)
    pairs = (
        (lambda *a: layer_norm(*a), lambda x, w, b: nn.functional.layer_norm(x, (19,), w, b)),
        (lambda x, w, b: rms_norm(x, w) + b, lambda x, w, b: nn.functional.rms_norm(x, (19,), w, 1e-6) + b),
    )
    for ours, theirs in pairs:
        grads = []
        for f in (ours, theirs):
            inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
            f(*inputs).backward(cotangent)
            grads.append([t.grad for t in inputs])
        for a, b in zip(*grads):
            exactly(a, b)


def test_the_modules_of_torch_have_the_same_numbers_and_parameters():
    x = 3 + randn(2, 5, 19, seed=3)
    ours, theirs = filled(LayerNorm(19)), nn.LayerNorm(19).double()
    theirs.load_state_dict(ours.state_dict())
    exactly(ours(x), theirs(x))
    theirs = nn.RMSNorm(19, eps=1e-6).double()
    exactly(rms_norm(x, theirs.weight), theirs(x))
    fresh = LayerNorm(19)
    assert (fresh.weight == 1).all()
    assert (fresh.bias == 0).all()


def test_layer_norm_ignores_shift_and_scale_and_rms_norm_scale_only():
    x = randn(5, 19)
    exactly(layer_norm(7 * x + 11, eps=0.0), layer_norm(x, eps=0.0))
    exactly(rms_norm(7 * x, eps=0.0), rms_norm(x, eps=0.0))
    assert (rms_norm(x + 11, eps=0.0) - rms_norm(x, eps=0.0)).abs().max() > 0.1
    exactly(rms_norm(x - x.mean(-1, keepdim=True), eps=1e-5), layer_norm(x))


def test_a_constant_token_is_normalised_to_the_bias():
    exactly(layer_norm(torch.full((7,), 5.0), None, torch.arange(7.0)), torch.arange(7.0), atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_norms_do_not_overflow(dtype):
    x = torch.tensor([30000.0, -30000.0, 30000.0, -30000.0]).to(dtype)
    for y in (layer_norm(x), rms_norm(x)):
        assert y.dtype == dtype
        exactly(y.float(), torch.tensor([1.0, -1, 1, -1]), atol=0)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 1), (3, 0)])
def test_norms_of_no_tokens_or_features_are_empty_and_silent(shape):
    x = torch.zeros(shape, dtype=torch.float64)
    for norm in (layer_norm, rms_norm):  # warnings are errors
        assert norm(x).shape == shape


def test_a_norm_refuses_a_weight_that_would_spread():
    x = torch.zeros(2, 5, 19)
    with pytest.raises(ValueError, match=r"^weight must have one entry per feature of x: weight has shape \(1,\), x"):
        layer_norm(x, torch.ones(1))
    with pytest.raises(ValueError, match=r"bias has shape \(5, 19\), x has shape \(2, 5, 19\)$"):
        layer_norm(x, None, torch.zeros(5, 19))
    with pytest.raises(ValueError, match=r"^weight must have one entry per feature of x"):
        rms_norm(x, torch.ones(17))


# FeedForward, Block


def test_feed_forward_acts_on_each_token_by_itself():
    ffn, x = filled(FeedForward(19, 17)), randn(2, 5, 19, seed=3)
    for b in range(2):
        for t in range(5):
            hidden = gelu(ffn.up.weight @ x[b, t] + ffn.up.bias)
            exactly(ffn(x)[b, t], ffn.down.weight @ hidden + ffn.down.bias)


def test_feed_forward_is_four_times_as_wide_inside_unless_told():
    assert FeedForward(19).up.weight.shape == (76, 19)
    assert count_parameters(FeedForward(19)) == 8 * 19**2 + 5 * 19
    assert count_parameters(FeedForward(19, 17, bias=False)) == 2 * 17 * 19
    ffn = filled(FeedForward(19, 17, activation=torch.tanh))
    x = randn(5, 19)
    exactly(ffn(x), ffn.down(torch.tanh(ffn.up(x))))


def with_torch_weights(block, norm, activation):
    """nn.TransformerEncoderLayer with the weights of ours."""
    twin = nn.TransformerEncoderLayer(
        21, 3, 17, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    ours = block.state_dict()
    sources = [ours[f"attention.{name}.weight"] for name in ("query", "key", "value")]
    biases = [ours[f"attention.{name}.bias"] for name in ("query", "key", "value")]
    state = {"self_attn.in_proj_weight": torch.cat(sources), "self_attn.in_proj_bias": torch.cat(biases)}
    names = {
        "attention.output": "self_attn.out_proj",
        "feed_forward.up": "linear1",
        "feed_forward.down": "linear2",
        "norm_1": "norm1",
        "norm_2": "norm2",
    }
    for mine, its in names.items():
        for kind in ("weight", "bias"):
            state[f"{its}.{kind}"] = ours[f"{mine}.{kind}"]
    twin.load_state_dict(state)
    return twin


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", [gelu, relu])
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_equals_torch(norm, activation, causal):
    block = filled(Block(21, 3, d_ff=17, norm=norm, activation=activation))
    twin = with_torch_weights(block, norm, activation)
    x, mask = randn(2, 5, 21, seed=3), causal_mask(5) if causal else None
    blocked = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    exactly(block(x, mask)[0], twin(x, src_mask=blocked))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_has_torchs_gradients(norm):
    block = filled(Block(21, 3, d_ff=17, norm=norm))
    twin = with_torch_weights(block, norm, gelu)
    x, cotangent = randn(2, 5, 21, seed=3), randn(2, 5, 21, seed=4)
    block(x)[0].backward(cotangent)
    twin(x).backward(cotangent)
    ours = torch.cat([getattr(block.attention, name).weight.grad for name in ("query", "key", "value")])
    exactly(ours, twin.self_attn.in_proj_weight.grad, atol=1e-11)
    exactly(block.norm_1.weight.grad, twin.norm1.weight.grad, atol=1e-11)
    exactly(block.feed_forward.up.weight.grad, twin.linear1.weight.grad, atol=1e-11)


def test_each_norm_is_placed_as_it_is_named():
    x = randn(5, 21, seed=3)
    for norm in ("pre", "post", "none"):
        block = filled(Block(21, 3, d_ff=17, norm=norm))
        n1, n2, att, ffn = block.norm_1, block.norm_2, block.attention, block.feed_forward
        if norm == "pre":
            middle = x + att(n1(x))[0]
            expected = middle + ffn(n2(middle))
        elif norm == "post":
            middle = n1(x + att(x)[0])
            expected = n2(middle + ffn(middle))
        else:
            middle = x + att(x)[0]
            expected = middle + ffn(middle)
        exactly(block(x)[0], expected, atol=0)


@pytest.mark.parametrize("norm", ["pre", "none"])
def test_a_block_that_finds_nothing_passes_its_tokens_on(norm):
    block = filled(Block(21, 3, d_ff=17, norm=norm))
    with torch.no_grad():
        for linear in (block.attention.output, block.feed_forward.down):
            linear.weight.zero_()
            linear.bias.zero_()
    x = randn(5, 21, seed=3)
    assert torch.equal(block(x)[0], x)


def test_a_post_norm_block_that_finds_nothing_still_normalises():
    block = Block(21, 3, norm="post").double()
    with torch.no_grad():
        for linear in (block.attention.output, block.feed_forward.down):
            linear.weight.zero_()
            linear.bias.zero_()
    x = randn(5, 21, seed=3)
    exactly(block(x)[0], layer_norm(layer_norm(x)))


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_a_block_without_feed_forward_is_attention_only(norm):
    block = filled(Block(21, 3, d_ff=0, norm=norm, bias=False))
    assert count_parameters(block) == 4 * 21**2 + (0 if norm == "none" else 42)
    x = randn(5, 21, seed=3)
    att, n1 = block.attention, block.norm_1
    expected = {"pre": lambda: x + att(n1(x))[0], "post": lambda: n1(x + att(x)[0]), "none": lambda: x + att(x)[0]}
    exactly(block(x)[0], expected[norm](), atol=0)


def test_a_block_takes_any_mask_and_returns_the_weights_it_used():
    block, x = filled(Block(21, 3)), randn(2, 5, 21, seed=3)
    _, weights = block(x, padding_mask([5, 2], 5))
    assert weights.shape == (2, 3, 5, 5)
    assert (weights[1, ..., 2:] == 0).all()
    exactly(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))


def test_a_block_refuses_a_norm_it_does_not_know():
    with pytest.raises(ValueError, match=r'^norm must be "pre", "post" or "none", got \'sandwich\'$'):
        Block(21, 3, norm="sandwich")


# rotary and cache in MultiHeadAttention


def test_rotary_turns_queries_and_keys_but_no_values():
    mha = filled(MultiHeadAttention(12, 3, rotary=rotate))
    plain = MultiHeadAttention(12, 3).double()
    plain.load_state_dict(mha.state_dict())
    x = randn(5, 12, seed=3)
    q, k, v = (layer(x).view(5, 3, 4).transpose(0, 1) for layer in (mha.query, mha.key, mha.value))
    scores = rotate(q) @ rotate(k).mT / 2
    expected = (scores.softmax(-1) @ v).transpose(0, 1).reshape(5, 12)
    exactly(mha(x)[0], mha.output(expected))
    assert (mha(x)[0] - plain(x)[0]).abs().max() > 0.01


def test_rotary_may_be_any_function_of_features_and_positions():
    seen = []

    def spy(x, positions):
        seen.append((tuple(x.shape), positions.tolist()))
        return x

    mha, cache = filled(MultiHeadAttention(12, 6, 2, rotary=spy)), KVCache()
    mha(randn(3, 12), cache=cache)
    mha(randn(2, 12), cache=cache)
    assert seen == [((6, 3, 2), [0, 1, 2]), ((2, 3, 2), [0, 1, 2]), ((6, 2, 2), [3, 4]), ((2, 2, 2), [3, 4])]


def test_the_cache_holds_shared_heads_once():
    mha, cache = filled(MultiHeadAttention(12, 6, 2)), KVCache()
    _, weights = mha(randn(5, 12), cache=cache)
    assert cache._k.shape == (2, 5, 2)
    assert weights.shape == (6, 5, 5)


@pytest.mark.parametrize("options", [{"cache": KVCache()}, {}])
def test_a_memory_has_neither_cache_nor_rotary_positions(options):
    mha = MultiHeadAttention(12, 3, rotary=None if options else rotate)
    with pytest.raises(ValueError, match=r"^memory must not be given with a cache or rotary positions"):
        mha(torch.zeros(5, 12), torch.zeros(7, 12), **options)


# Transformer


def model(positions="learned", norm="pre", **options):
    return filled(Transformer(13, 12, 3, 2, context=12, positions=positions, norm=norm, **options))


def test_a_transformer_is_its_parts_one_after_the_other():
    ours, tokens = model(), tokens_of(2, 5)
    x = ours.token.weight[tokens] + ours.position.weight[:5]
    for block in ours.blocks:
        x, _ = block(x, causal_mask(5))
    logits, weights = ours(tokens)
    assert (logits.shape, len(weights), weights[1].shape) == ((2, 5, 13), 2, (2, 3, 5, 5))
    exactly(logits, ours.norm(x) @ ours.output.weight.T)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_transformer_equals_torchs_encoder_under_a_causal_mask(norm):
    ours = filled(Transformer(13, 21, 3, 2, positions="none", norm=norm, d_ff=17))
    tokens = tokens_of(2, 5)
    x = ours.token(tokens)
    for block in ours.blocks:
        x = with_torch_weights(block, norm, gelu)(x, src_mask=torch.ones(5, 5, dtype=torch.bool).triu(1))
    last = nn.LayerNorm(21).double()
    if norm == "pre":
        last.load_state_dict(ours.norm.state_dict())
        x = last(x)
    exactly(ours(tokens)[0], x @ ours.output.weight.T)


CHUNKS = ([1] * 12, [5, 7], [4, 1, 1, 6], [12], [11, 1])


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1}, {"d_ff": 0}], ids=str)
def test_any_chunking_equals_the_full_forward(chunks, positions, norm, options):
    ours, tokens = model(positions, norm, **options), tokens_of(2, 12)
    expected, expected_weights = ours(tokens)
    caches = [KVCache() for _ in ours.blocks]
    parts = [ours(chunk, caches) for chunk in tokens.split(chunks, dim=1)]
    exactly(torch.cat([logits for logits, _ in parts], dim=1), expected)
    assert [len(cache) for cache in caches] == [12, 12]
    start = 0
    for n, (_, weights) in zip(chunks, parts):
        for layer, all_of_them in zip(weights, expected_weights):
            exactly(layer, all_of_them[..., start : start + n, : start + n])
        start += n


def test_a_later_token_changes_no_earlier_logits():
    for positions in ("learned", "rotary", "none"):
        ours, tokens = model(positions), tokens_of(2, 12)
        changed = tokens.clone()
        changed[:, 7] = (changed[:, 7] + 1) % 13
        before, after = ours(tokens)[0], ours(changed)[0]
        assert torch.equal(before[:, :7], after[:, :7])
        assert (before[:, 7:] != after[:, 7:]).any(-1).all()


def test_a_transformer_that_is_not_causal_sees_the_future():
    ours = model(causal=False)
    _, weights = ours(tokens_of(5))
    assert all((layer > 0).all() for layer in weights)


def test_without_positions_and_mask_the_order_of_tokens_does_not_matter():
    order, tokens = torch.tensor([3, 0, 4, 1, 2]), tokens_of(5)
    blind = model("none", causal=False)
    exactly(blind(tokens[order])[0], blind(tokens)[0][order])
    for positions in ("learned", "rotary"):
        ours = model(positions, causal=False)
        assert (ours(tokens[order])[0] - ours(tokens)[0][order]).abs().max() > 1e-3


def test_logits_at_a_token_are_for_the_next_one():
    # Token i writes 10 on the logit of token i + 1: the loss of the shifted text is small.
    ours = Transformer(3, 3, 1, 0, positions="none", norm="none").double()
    with torch.no_grad():
        ours.token.weight.copy_(torch.eye(3))
        ours.output.weight.copy_(10 * torch.eye(3).roll(1, 0))
    tokens = torch.tensor([0, 1, 2])
    logits, _ = ours(tokens)
    assert cross_entropy(logits[:-1], tokens[1:]).item() == pytest.approx(9.08e-5, abs=5e-8)
    assert cross_entropy(logits[:-1], tokens[:-1]).item() == pytest.approx(10.0001, abs=5e-5)


def test_rotary_logits_do_not_depend_on_where_the_text_starts():
    ours, tokens = model("rotary", "none", d_ff=0), tokens_of(5)
    shifted = Transformer(13, 12, 3, 2, positions="rotary", norm="none", d_ff=0).double()
    shifted.load_state_dict(ours.state_dict())
    for block in shifted.blocks:
        block.attention.rotary = lambda x, positions: rotate(x, positions + 100)
    exactly(shifted(tokens)[0], ours(tokens)[0])


def test_three_lengths_in_a_row_train_and_eval_are_one_function():
    ours = model("rotary")
    fresh = {T: model("rotary")(tokens_of(T))[0] for T in (7, 11)}
    for T in (7, 11, 7):
        assert torch.equal(ours(tokens_of(T))[0], fresh[T])
        assert torch.equal(ours.eval()(tokens_of(T))[0], fresh[T])


@pytest.mark.parametrize(
    ("n_layers", "d", "n_heads", "total"), [(12, 768, 12, 124_439_808), (24, 1024, 16, 354_823_168)]
)
def test_gpt_2_is_counted_to_the_last_parameter(n_layers, d, n_heads, total):
    with torch.device("meta"):
        gpt2 = Transformer(50_257, d, n_heads, n_layers, context=1024, tied=True)
        untied = Transformer(50_257, d, n_heads, n_layers, context=1024)
    assert count_parameters(gpt2) == total
    assert count_parameters(untied) == total + 50_257 * d
    assert count_parameters(gpt2.blocks[0]) == 12 * d**2 + 13 * d


def test_tied_logits_are_products_with_the_token_vectors():
    ours, tokens = model(tied=True), tokens_of(5)
    hidden = {}
    ours.norm.register_forward_hook(lambda module, args, out: hidden.update(last=out))
    logits, _ = ours(tokens)
    exactly(logits, hidden["last"] @ ours.token.weight.T)
    assert ours.output.weight is ours.token.weight


def test_every_parameter_learns():
    for options in ({}, {"tied": True}, {"norm": "post"}, {"positions": "rotary"}, {"n_kv_heads": 1}):
        ours = model(**options)
        logits, _ = ours(tokens_of(2, 12))
        logits.square().sum().backward()
        for name, parameter in ours.named_parameters():
            # a key bias moves all scores of a query alike, unless keys are turned after it is added
            if name.endswith("key.bias") and options.get("positions") != "rotary":
                exactly(parameter.grad, torch.zeros_like(parameter))
            else:
                assert parameter.grad.abs().max() > 1e-9, name


def test_a_text_longer_than_the_context_is_refused_before_the_caches_change():
    ours, caches = model(), [KVCache(), KVCache()]
    ours(tokens_of(7), caches)
    message = r"^tokens must be at most context = 12, cached ones included, got 13$"
    with pytest.raises(ValueError, match=message):
        ours(tokens_of(6), caches)
    assert [len(cache) for cache in caches] == [7, 7]
    with pytest.raises(ValueError, match=message):
        ours(tokens_of(13))
    assert Transformer(13, 12, 3, 1, positions="rotary")(tokens_of(37))[0].shape == (37, 13)


def test_caches_must_fit_the_blocks_and_one_another():
    with pytest.raises(ValueError, match=r"one for each of 2 causal blocks, .* they hold \[0\], causal is True$"):
        model()(tokens_of(5), [KVCache()])
    uneven = [KVCache(), KVCache()]
    uneven[1].append(randn(3, 5, 4), randn(3, 5, 4))
    with pytest.raises(ValueError, match=r"they hold \[0, 5\]"):
        model()(tokens_of(5), uneven)
    with pytest.raises(ValueError, match=r"causal is False$"):
        model(causal=False)(tokens_of(5), [KVCache(), KVCache()])


def test_positions_are_one_of_three_and_learned_ones_need_a_context():
    with pytest.raises(ValueError, match=r'^positions must be "learned", "rotary" or "none", got \'alibi\'$'):
        Transformer(13, 12, 3, 2, positions="alibi")
    with pytest.raises(ValueError, match=r"^context must be given for learned positions, got None$"):
        Transformer(13, 12, 3, 2)


@pytest.mark.parametrize("bias", [False, True])
def test_a_block_hands_its_bias_to_attention_and_feed_forward_alike(bias):
    block = Block(6, 2, bias=bias)
    maps = [module for module in block.modules() if isinstance(module, nn.Linear)]
    assert len(maps) == 6
    assert all((one.bias is not None) == bias for one in maps)


def test_tied_token_vectors_start_with_the_variance_of_one_over_their_width():
    torch.manual_seed(0)
    model = Transformer(vocab_size=997, d_model=64, n_heads=2, n_layers=1, context=3, tied=True)
    assert model.token.weight.std().item() == pytest.approx(1 / 8, rel=0.02)


def test_positions_and_mask_are_made_where_the_tokens_are():
    model = Transformer(vocab_size=7, d_model=6, n_heads=3, n_layers=1, context=5).to("meta")
    logits, _ = model(torch.zeros(1, 4, dtype=torch.int64, device="meta"))
    assert (logits.device.type, logits.shape) == ("meta", (1, 4, 7))


def test_a_block_hands_on_how_many_key_and_value_heads_it_has():
    assert Block(6, 2, 1).attention.n_kv_heads == 1
