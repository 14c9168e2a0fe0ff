"""Rotary embedding as the ONNX standard has it.

The standard takes tables of cosines and sines, and its cases fill them with random numbers c and s, which belong to
no angle: r (cos θ, sin θ) = (c, s) has r ≠ 1. Each pair of features is therefore turned by its own θ and stretched
by r here. What the cases prove is which features make a pair, which are left alone, and which way a pair turns.
"""

import pytest
import torch
from onnx_cases import Case, cases
from torch import Tensor

from attnkit import merge_heads, rotate, split_heads

CASES = cases("RotaryEmbedding")


def computed(case: Case) -> Tensor:
    x = case.inputs["X"]
    flat = x.ndim == 3
    if flat:
        x = split_heads(x, case.attributes["num_heads"])
    cos, sin = case.inputs["cos_cache"], case.inputs["sin_cache"]
    if "position_ids" in case.inputs:
        cos, sin = cos[case.inputs["position_ids"]], sin[case.inputs["position_ids"]]
    width = case.attributes.get("rotary_embedding_dim") or x.shape[-1]
    layout = "interleaved" if case.attributes.get("interleaved") else "half"
    out = x.clone()
    for pair in range(width // 2):
        features = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pair + width // 2)
        only = torch.zeros_like(x)
        only[..., list(features)] = x[..., list(features)]
        angle = torch.atan2(sin[..., pair], cos[..., pair])[:, None]
        length = torch.hypot(sin[..., pair], cos[..., pair])[:, None, :, None]
        # Every pair turns by this pair's angle; all but this pair are 0.
        turned = rotate(only, angle, layout=layout, rotary_dim=width, frequencies=torch.ones(width // 2))
        out[..., list(features)] = (length * turned)[..., list(features)]
    return merge_heads(out) if flat else out


def test_there_are_as_many_cases_as_the_standard_has():
    assert len(CASES) == 8


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rotary_agrees_with_the_case_of_the_standard(case):
    torch.testing.assert_close(computed(case), case.outputs["Y"], **case.tolerance())
