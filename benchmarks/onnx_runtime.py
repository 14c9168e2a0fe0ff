"""Ask ONNX Runtime for one operator, for the tests and the table of disagreements."""

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor


def run(
    operator: str,
    inputs: dict[str, Tensor | None],
    outputs: list[str],
    *,
    domain: str = "",
    opset: int = 22,
    **attributes: object,
) -> list[Tensor]:
    """The outputs of one operator, on one thread; an input that is None, or an output named "", is left out."""
    kinds = {
        np.dtype("float32"): TensorProto.FLOAT,
        np.dtype("int32"): TensorProto.INT32,
        np.dtype("int64"): TensorProto.INT64,
        np.dtype("bool"): TensorProto.BOOL,
    }
    arrays = {name: x.numpy() for name, x in inputs.items() if x is not None}
    names = [name if x is not None else "" for name, x in inputs.items()]
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info(name, kinds[a.dtype], a.shape) for name, a in arrays.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [torch.from_numpy(x) for x in session.run(None, arrays)]
