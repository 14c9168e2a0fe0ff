"""LinearAttention as the ONNX standard has it: the plain sum and the delta rule, without decay.

The standard has no feature map and does not divide by the sum of the weights; it scales the output by 1/√d_k.
"""

import pytest
import torch
from onnx_cases import Case, cases
from torch import Tensor

from attnkit import delta_rule, linear_attention, merge_heads, split_heads

CASES = cases("LinearAttention")
DECAY = "attnkit has no state that decays"
#: The cases with a decay, and the reason why they are left out.
LEFT_OUT = {case.name: DECAY for case in CASES if "decay" in case.inputs}


def computed(case: Case) -> Tensor:
    q = split_heads(case.inputs["query"], case.attributes["q_num_heads"])
    k, v = (split_heads(case.inputs[name], case.attributes["kv_num_heads"]) for name in ("key", "value"))
    if case.attributes["update_rule"] == "delta":
        out = delta_rule(q, k, v, case.inputs["beta"].transpose(-1, -2))
    else:
        row_sum = (q * k.cumsum(-2)).sum(-1, keepdim=True)  # what ours divides by and the standard does not
        out = row_sum * linear_attention(q, k, v, feature_map=lambda x: x)
    return merge_heads(out / q.shape[-1] ** 0.5)


def test_every_case_is_computed_or_left_out_for_its_decay():
    assert len(CASES) == 14
    assert sorted(case.name for case in CASES if case.name not in LEFT_OUT) == [
        "linear_attention_delta",
        "linear_attention_linear",
        "linear_attention_linear_t1_no_past",
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in LEFT_OUT], ids=lambda case: case.name)
def test_linear_attention_agrees_with_the_case_of_the_standard(case):
    torch.testing.assert_close(computed(case), case.outputs["output"], **case.tolerance())
