"""Attention as the ONNX standard has it: masks of every rank, caches, grouped heads, windows, half precision.

All cases can be said with the public functions of attnkit; none is left out.
"""

import pytest
import torch
from onnx_cases import Case, cases
from torch import Tensor

from attnkit import (
    KVCache,
    attention,
    attention_scores,
    causal_mask,
    merge_heads,
    padding_mask,
    repeat_heads,
    sliding_window_mask,
    split_heads,
)

CASES = cases("Attention")


def offsets(case: Case, batch: int, T: int) -> list[int]:
    """How many keys come before the first query of each sequence."""
    if "past_key" in case.inputs:
        return [case.inputs["past_key"].shape[-2]] * batch
    lengths = case.inputs.get("nonpad_kv_seqlen")
    return [0] * batch if lengths is None else [int(n) - T for n in lengths]


def visible(case: Case, batch: int, T: int, S: int) -> Tensor:
    """Which keys the attributes let each query see, shape (batch, 1, T, S)."""
    may_see = torch.ones(batch, 1, T, S, dtype=torch.bool)
    left, right = (case.attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    for sequence, offset in zip(may_see, offsets(case, batch, T)):
        past = causal_mask(T, S, offset=offset)
        if case.attributes.get("is_causal"):
            sequence &= past
        if left >= 0:  # the standard does not count the query's own place, we do
            sequence &= sliding_window_mask(T, S, window=left + 1, offset=offset) | ~past
        if right >= 0:
            sequence &= causal_mask(T, S, offset=offset + right)
    if "nonpad_kv_seqlen" in case.inputs:
        may_see &= padding_mask(case.inputs["nonpad_kv_seqlen"], S)
    return may_see


def mask_and_bias(case: Case, S: int) -> tuple[Tensor | None, Tensor | None]:
    """The case's mask as ours, boolean, or its float terms; one that is too short hides the keys beyond it."""
    given = case.inputs.get("attn_mask")
    if given is None:
        return None, None
    hidden = False if given.dtype == torch.bool else -torch.inf
    given = torch.nn.functional.pad(given, (0, S - given.shape[-1]), value=hidden)
    return (given, None) if given.dtype == torch.bool else (None, given)


def computed(case: Case) -> dict[str, Tensor]:
    """All outputs of the operator, computed with attnkit."""
    q, k, v = (case.inputs[name] for name in "QKV")
    flat = q.ndim == 3
    if flat:
        q = split_heads(q, case.attributes["q_num_heads"])
        k, v = (split_heads(x, case.attributes["kv_num_heads"]) for x in (k, v))
    cache = KVCache()
    if "past_key" in case.inputs:
        cache.append(case.inputs["past_key"], case.inputs["past_value"])
    k, v = cache.append(k, v)
    batch, n_heads, T, _ = q.shape
    S = k.shape[-2]
    mask, bias = mask_and_bias(case, S)
    may_see = visible(case, batch, T, S)
    if mask is not None:
        may_see = may_see & mask
    repeated = repeat_heads(k, n_heads), repeat_heads(v, n_heads)
    options = {"scale": case.attributes.get("scale"), "softcap": case.attributes.get("softcap") or None}
    out, weights = attention(q, *repeated, may_see, bias=bias, **options)
    return {
        "Y": merge_heads(out) if flat else out,
        "present_key": k,
        "present_value": v,
        "qk_matmul_output": _scores(case, q, repeated[0], may_see, bias, weights, options),
    }


def _scores(case, q, k, may_see, bias, weights, options) -> Tensor:
    """What the operator shows of its scores: raw, capped, with bias and mask, or the weights."""
    mode = case.attributes.get("qk_matmul_output_mode", 0)
    if mode == 3:
        return weights
    scores = attention_scores(q, k, options["scale"])
    if mode >= 1 and options["softcap"]:
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    if mode == 2:
        scores = (scores if bias is None else scores + bias).masked_fill(~may_see, -torch.inf)
    return scores


def test_there_are_as_many_cases_as_the_standard_has():
    assert len(CASES) == 93


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attention_agrees_with_the_case_of_the_standard(case):
    ours = computed(case)
    assert case.outputs.keys() <= ours.keys()
    for name, wanted in case.outputs.items():
        assert ours[name].shape == wanted.shape, name
        torch.testing.assert_close(ours[name].to(wanted.dtype), wanted, **case.tolerance())
