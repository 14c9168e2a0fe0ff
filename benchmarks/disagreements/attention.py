"""Where libraries disagree on attention itself: masks, windows, scales, caps, shared heads, lengths."""

from types import SimpleNamespace

import keras
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import sliding_window_causal_mask_function
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.models.llama.modeling_llama import repeat_kv

from attnkit import attention, causal_mask, repeat_heads, sliding_window_mask
from benchmarks.disagreements.answers import Answers, or_refuses
from benchmarks.onnx_runtime import run


def tokens(*numbers: float) -> Tensor:
    """One feature per token, shape (1, 1, tokens, 1)."""
    return torch.tensor(numbers, dtype=torch.float32).view(1, 1, -1, 1)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask=None, **options) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q, k, v, mask, **options)


def onnx_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past=(None, None), **options) -> Tensor:
    inputs = {"Q": q, "K": k, "V": v, "attn_mask": mask, "past_key": past[0], "past_value": past[1]}
    # A present is only allowed beside a past.
    outputs = ["Y"] if past[0] is None else ["Y", "present_key", "present_value"]
    return run("Attention", inputs, outputs, opset=25, **options)[0]


def multi_head(x: Tensor, blocked: Tensor, **options) -> Tensor:
    """nn.MultiheadAttention of width 1 whose scores are all 0 and whose values are ``x``."""
    module = nn.MultiheadAttention(1, 1, bias=False, batch_first=True).eval()
    module.in_proj_weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
    module.out_proj.weight.fill_(1.0)
    return module(x[0], x[0], x[0], attn_mask=blocked, **options)[0]


def causal() -> Answers:
    q, k, v = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 4, 1), tokens(0, 1, 2, 3)
    yield "torch, `is_causal`", sdpa(q, k, v, is_causal=True)
    yield "torch, `causal_lower_right`", sdpa(q, k, v, causal_lower_right(2, 4))
    yield "ONNX Runtime, all keys new", onnx_attention(q, k, v, is_causal=1)
    past = k[:, :, :2], v[:, :, :2]
    new = k[:, :, 2:].contiguous(), v[:, :, 2:].contiguous()
    yield "ONNX Runtime, two of the keys past", onnx_attention(q, *new, past=past, is_causal=1)
    keras_layer = keras.layers.Attention()
    yield "Keras, `use_causal_mask`", keras_layer([q[0], v[0], k[0]], use_causal_mask=True)
    yield "attnkit, `offset=0`", attention(q, k, v, causal_mask(2, 4))[0]
    yield "attnkit, `offset=S - T`", attention(q, k, v, causal_mask(2, 4, offset=2))[0]


def polarity() -> Answers:
    zero, v, lower = torch.zeros(1, 1, 3, 1), tokens(0, 1, 2), torch.ones(3, 3, dtype=torch.bool).tril()
    yield "torch, SDPA", sdpa(zero, zero, v, lower)
    # A triangle of True blocks the last query from all keys in the other reading.
    yield "torch, MultiheadAttention", multi_head(v, lower, need_weights=True)
    yield "ONNX Runtime", onnx_attention(zero, zero, v, lower)
    yield "attnkit", attention(zero, zero, v, lower)[0]


def dead_row() -> Answers:
    zero, v, mask = torch.zeros(1, 1, 2, 1), tokens(1, 3), torch.tensor([[True, True], [False, False]])
    yield "torch, SDPA", sdpa(zero, zero, v, mask)
    yield "torch, MultiheadAttention with weights", multi_head(v, ~mask, need_weights=True)
    yield "torch, MultiheadAttention without", multi_head(v, ~mask, need_weights=False)
    yield "ONNX Runtime", onnx_attention(zero, zero, v, mask)
    layer = keras.layers.MultiHeadAttention(1, 1, use_bias=False)
    layer.build((1, 2, 1), (1, 2, 1))
    layer.set_weights([torch.full(w.shape, float(n >= 2)).numpy() for n, w in enumerate(layer.weights)])
    yield "Keras, MultiHeadAttention", layer(v[0], v[0], attention_mask=mask[None])
    module = SimpleNamespace(head_dim=1, num_key_value_groups=1, training=False)
    lowest = torch.zeros(2, 2).masked_fill(~mask, torch.finfo(torch.float32).min)
    yield "transformers, eager", eager_attention_forward(module, zero, zero, v, lowest)[0]
    yield "attnkit", attention(zero, zero, v, mask)[0]


def fill() -> Answers:
    """The key that may be seen has a score so low that a large finite fill is no longer lower."""
    q, k, v, mask = tokens(1), tokens(-2e9, 0), tokens(5, 7), torch.tensor([[True, False]])
    yield "torch, SDPA", sdpa(q, k, v, mask)
    yield "ONNX Runtime", onnx_attention(q, k, v, mask)
    yield "Keras, Attention", keras.layers.Attention()([q[0], v[0], k[0]], mask=[None, mask])
    yield "attnkit", attention(q, k, v, mask)[0]


def window() -> Answers:
    zero, places = torch.zeros(1, 1, 6, 1), torch.arange(6)
    each = torch.eye(6)[None, None]
    last = onnx_attention(zero, zero, each, is_causal=1, left_window_size=2)[..., -1, :]
    yield "ONNX Runtime, Attention", (last > 0).sum()
    may_see = sliding_window_causal_mask_function(2)
    yield "transformers", sum(may_see(0, 0, places[-1], key).long() for key in places)
    yield "attnkit", sliding_window_mask(6, window=2)[-1].sum()


def scale() -> Answers:
    q, k = torch.tensor([[[[2.0, 0, 0, 0]]]]), torch.tensor([[[[2.0, 0, 0, 0], [0, 0, 0, 0]]]])
    v = tokens(1, 0)
    yield "torch, SDPA", sdpa(q, k, v)
    yield "ONNX Runtime", onnx_attention(q, k, v)
    yield "Keras, Attention", keras.layers.Attention()([q[0], v[0], k[0]])
    yield "attnkit", attention(q, k, v)[0]


def softcap() -> Answers:
    q, k, v, bias = tokens(1), tokens(2, 0), tokens(1, 0), torch.tensor([[3.0, 0.0]])
    yield "ONNX Runtime", onnx_attention(q, k, v, bias, softcap=1.0)
    module = SimpleNamespace(head_dim=1, num_key_value_groups=1, training=False)
    yield "transformers, Gemma 2", eager_attention_forward(module, q, k, v, bias, softcap=1.0)[0]
    yield "attnkit", attention(q, k, v, bias=bias, softcap=1.0)[0]


def short_mask() -> Answers:
    q, k, v, mask = tokens(0), torch.zeros(1, 1, 4, 1), tokens(0, 1, 2, 3), torch.tensor([[True, True]])
    yield "ONNX Runtime", onnx_attention(q, k, v, mask)
    yield "torch, SDPA", or_refuses(lambda: sdpa(q, k, v, mask), RuntimeError)
    yield "attnkit", or_refuses(lambda: attention(q, k, v, mask)[0], ValueError)


def grouped() -> Answers:
    q, k, v = torch.zeros(1, 4, 1, 1), torch.zeros(1, 2, 1, 1), torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
    yield "torch, `enable_gqa`", sdpa(q, k, v, enable_gqa=True)
    yield "ONNX Runtime", onnx_attention(q, k, v)
    yield "transformers, `repeat_kv`", repeat_kv(v, 2)
    yield "attnkit", attention(q, repeat_heads(k, 4), repeat_heads(v, 4))[0]


def lengths() -> Answers:
    # The keys are a part of a longer tensor: what is read past their end is then another 0 and not foreign memory.
    q, k, v = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 6, 1)[:, :, :5], tokens(0, 1, 2, 3, 4, 5)
    yield "torch, SDPA by its own choice", or_refuses(lambda: scaled_dot_product_attention(q, k, v), RuntimeError)
    yield "torch, SDPA under MATH", or_refuses(lambda: sdpa(q, k, v), RuntimeError)
    yield "attnkit", or_refuses(lambda: attention(q, k, v)[0], ValueError)


QUESTIONS = (
    ("Causal with more keys than queries: which corner?", "q = k = 0, two queries, v = 0, 1, 2, 3", causal),
    ("What does True in a mask mean?", "q = k = 0, v = 0, 1, 2, a lower triangle of True", polarity),
    ("What does a query get that may see no key?", "q = k = 0, v = 1, 3, the second query sees nothing", dead_row),
    ("Is a hidden key always lower?", "scores −2·10⁹ (seen) and 0 (hidden), v = 5, 7", fill),
    ("How many keys does a window of 2 show?", "the last of six queries", window),
    ("By what are scores scaled?", "q = (2, 0, 0, 0), k = (2, 0, 0, 0) and 0, v = 1, 0", scale),
    ("Is the cap before the bias?", "scores 2, 0, bias 3, 0, cap 1, v = 1, 0", softcap),
    ("A mask shorter than the keys?", "q = k = 0, v = 0, 1, 2, 3, mask True, True", short_mask),
    ("Which query heads share a key head?", "four query heads, two key heads, v = 10 and 20", grouped),
    ("Values without a key?", "five keys of 0, v = 0, 1, 2, 3, 4, 5", lengths),
)
