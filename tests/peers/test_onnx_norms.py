"""LayerNormalization, RMSNormalization and Softmax as the ONNX standard has them."""

import math

import pytest
import torch
from onnx_cases import Case, cases
from torch import Tensor

from attnkit import layer_norm, rms_norm, softmax

COUNTS = {"LayerNormalization": 19, "RMSNormalization": 19, "Softmax": 7}


def flattened(case: Case) -> tuple[Tensor, list[int]]:
    """The input with all axes from the case's own on made one, and its first shape: the standard norms over several."""
    x = case.inputs["X"]
    axis = case.attributes.get("axis", -1) % x.ndim
    return x.reshape(*x.shape[:axis], math.prod(x.shape[axis:])), list(x.shape)


@pytest.mark.parametrize("operator", COUNTS)
def test_there_are_as_many_cases_as_the_standard_has(operator):
    assert len(cases(operator)) == COUNTS[operator]


@pytest.mark.parametrize("case", cases("LayerNormalization"), ids=lambda case: case.name)
def test_layer_norm_agrees_with_the_case_of_the_standard(case):
    x, shape = flattened(case)
    weight, bias = case.inputs["Scale"].flatten(), case.inputs["B"].flatten()
    out = layer_norm(x, weight, bias, eps=case.attributes.get("epsilon", 1e-5)).reshape(shape)
    torch.testing.assert_close(out, case.outputs["Y"], **case.tolerance())


@pytest.mark.parametrize("case", cases("RMSNormalization"), ids=lambda case: case.name)
def test_rms_norm_agrees_with_the_case_of_the_standard(case):
    x, shape = flattened(case)
    out = rms_norm(x, case.inputs["scale"].flatten(), eps=case.attributes.get("epsilon", 1e-5)).reshape(shape)
    torch.testing.assert_close(out, case.outputs["Y"], **case.tolerance())


@pytest.mark.parametrize("case", cases("Softmax"), ids=lambda case: case.name)
def test_softmax_agrees_with_the_case_of_the_standard(case):
    out = softmax(case.inputs["input"], dim=case.attributes.get("axis", -1))
    torch.testing.assert_close(out, case.outputs["output"], **case.tolerance())
