"""attnkit: attention in small, readable PyTorch functions.

Every public name can be taken from the package itself, ``from attnkit import attention``.
Names are looked up when first used (PEP 562), so ``import attnkit`` loads neither torch nor
matplotlib, and a page that uses one mechanism depends on the modules of that mechanism only.
"""

from importlib import import_module

_MODULES = {
    "simplex": ("softmax", "softmax_jacobian", "entropy"),
    "scaled_dot_product": ("attention", "attention_scores"),
    "masks": ("causal_mask", "sliding_window_mask", "padding_mask"),
    "multi_head": ("split_heads", "merge_heads", "repeat_heads", "Head", "MultiHeadAttention"),
    "kernel_smoothing": ("nadaraya_watson", "positional_kernel"),
    "sinusoidal": ("sinusoidal_encoding",),
    "rotary": ("rotate", "rotary_frequencies", "positions_from_mask"),
    "alibi": ("alibi_slopes", "alibi_bias"),
    "online_softmax": ("tiled_attention", "merge_partials"),
    "kv_cache": ("KVCache",),
    "linear": ("linear_attention", "elu_plus_one", "delta_rule"),
    "transformer": (
        "layer_norm",
        "rms_norm",
        "LayerNorm",
        "FeedForward",
        "Block",
        "Transformer",
        "count_parameters",
    ),
    "recurrent": ("rnn_cell", "lstm_cell", "gru_cell", "linear_recurrence", "LSTMGates", "GRUGates"),
    "additive": ("AdditiveAttention",),
    "seq2seq": ("Seq2Seq",),
    "tasks": ("adding_batch", "reverse_batch", "sort_batch", "lookup_batch", "group_batch"),
    "training": ("fit", "falling_tail", "History"),
    "text": ("CharTokenizer", "load_text"),
    "claims": ("close", "holds", "below", "above", "Claim", "ClaimError"),
    "plot": ("heatmap", "INK", "BLUE", "VERMILLION", "GREEN", "PURPLE", "PALETTE"),
}
_PACKAGES = ("labs",)  # their names are imported from them: from attnkit.labs import check_softmax
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f"attnkit.{_HOME[name]}"), name)
    if name in _MODULES or name in _PACKAGES:
        return import_module(f"attnkit.{name}")
    raise AttributeError(f"module 'attnkit' has no attribute {name!r}")


def __dir__():
    return [*__all__, *_MODULES, *_PACKAGES]
