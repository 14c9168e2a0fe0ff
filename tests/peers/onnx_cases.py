"""The cases that the ONNX standard ships for its own operators, as torch tensors.

Since onnx 1.23 they are built in memory, each after seeding numpy with 0, so they are the same everywhere.
"""

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

#: The module of onnx.backend.test.case.node that makes the cases of each operator.
MODULES = {
    "Attention": "attention",
    "GRU": "gru",
    "LayerNormalization": "layernormalization",
    "LinearAttention": "linear_attention",
    "LSTM": "lstm",
    "RMSNormalization": "rmsnormalization",
    "RNN": "rnn",
    "RotaryEmbedding": "rotaryembedding",
    "Softmax": "softmax",
}


@dataclass(frozen=True)
class Case:
    """One case: what goes in by the operator's own names, and what must come out."""

    operator: str
    name: str
    attributes: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]

    def tolerance(self) -> dict[str, float]:
        """How far apart two right results may be: a few units in the last place of the type they are given in."""
        types = {x.dtype for x in self.outputs.values()}
        if torch.bfloat16 in types:
            return {"atol": 2e-2, "rtol": 2e-2}
        return {"atol": 2e-3, "rtol": 5e-3} if torch.float16 in types else {"atol": 1e-6, "rtol": 1e-5}


def cases(operator: str) -> list[Case]:
    """All cases of one operator, by name; the variants that spell it out in other operators are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the makers divide by zero on purpose
        node = importlib.import_module("onnx.backend.test.case.node")
        importlib.import_module(f"onnx.backend.test.case.node.{MODULES[operator]}")
    made = [case for case in node._NodeTestCases if "_expanded" not in case.name]
    return sorted((_read(case) for case in made if _is_for(case, operator)), key=lambda case: case.name)


def _is_for(case: Any, operator: str) -> bool:
    nodes = case.model.graph.node
    return len(nodes) == 1 and nodes[0].op_type == operator


def _read(case: Any) -> Case:
    node = case.model.graph.node[0]
    version = next(o.version for o in case.model.opset_import if o.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    given, wanted = case.data_sets[0]
    return Case(
        node.op_type,
        case.name.removeprefix("test_"),
        {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute},
        _named(node.input, schema.inputs, given),
        _named(node.output, schema.outputs, wanted),
    )


def _named(used: Any, formal: Any, arrays: Any) -> dict[str, Tensor]:
    """Arrays by the names of the standard; an optional one that is not used has an empty name in the node."""
    present = [declared.name for declared, name in zip(formal, used) if name]
    return dict(zip(present, map(_tensor, arrays)))


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _tensor(array: Any) -> Tensor:
    array = numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else np.array(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))
