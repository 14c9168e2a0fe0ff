"""Where libraries disagree beside attention: recurrent cells, positions, normalisation."""

import keras
import torch
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from attnkit import alibi_slopes, gru_cell, layer_norm, lstm_cell, rms_norm, rotate
from benchmarks.disagreements.answers import Answers
from benchmarks.onnx_runtime import run


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1)


ZERO, ONE = torch.zeros(1, 1), torch.ones(1, 1)


def onnx_cell(operator: str, recurrent: Tensor, biases: Tensor, **options) -> Tensor:
    """The state after one step from input 0, h = 1 for a GRU, and h = 0, c = 1 for an LSTM."""
    state = {"initial_h": ONE[None]} if operator == "GRU" else {"initial_h": ZERO[None], "initial_c": ONE[None]}
    inputs = {"X": ZERO[None], "W": torch.zeros_like(recurrent)[None], "R": recurrent[None], "B": biases.view(1, -1)}
    return run(operator, inputs | {"sequence_lens": None} | state, ["", "Y_h"], hidden_size=1, **options)[0]


def keras_cell(layer, recurrent: Tensor, bias: Tensor, *state: Tensor) -> Tensor:
    layer.build((1, 1))
    layer.set_weights([torch.zeros_like(recurrent.T).numpy(), recurrent.T.numpy(), bias.numpy()])
    return layer(ZERO, list(state))[0]


def torch_gru(recurrent: Tensor, biases: Tensor) -> Tensor:
    cell = nn.GRUCell(1, 1)
    for parameter, value in zip(cell.parameters(), (torch.zeros(3, 1), recurrent, *biases)):
        parameter.copy_(value)
    return cell(ZERO, ONE)


def gru_reset() -> Answers:
    """Only the candidate's recurrent weight and recurrent bias are 1, so that every gate is a half in every order."""
    recurrent, biases = column(0, 0, 1), torch.tensor([[0.0, 0, 0], [0, 0, 1]])
    yield "torch", torch_gru(recurrent, biases)
    for after in (True, False):
        given = biases if after else biases[1]
        name = f"Keras, `reset_after={after}`"
        yield name, keras_cell(keras.layers.GRUCell(1, reset_after=after), recurrent, given, ONE)
    for after in (1, 0):
        name = f"ONNX Runtime, `linear_before_reset={after}`"
        yield name, onnx_cell("GRU", recurrent, biases, linear_before_reset=after)
    yield "attnkit", gru_cell(ZERO, ONE, torch.zeros(3, 1), recurrent, *biases)[0]


def gru_order() -> Answers:
    recurrent, biases = torch.zeros(3, 1), torch.tensor([[1.0, 2, 3], [0, 0, 0]])
    yield "torch (r, z, n)", torch_gru(recurrent, biases)
    yield "Keras (z, r, n)", keras_cell(keras.layers.GRUCell(1), recurrent, biases, ONE)
    yield "ONNX Runtime (z, r, n)", onnx_cell("GRU", recurrent, biases)
    yield "attnkit (r, z, n)", gru_cell(ZERO, ONE, torch.zeros(3, 1), recurrent, *biases)[0]


def lstm_order() -> Answers:
    recurrent, bias = torch.zeros(4, 1), torch.tensor([1.0, 2, 3, 4])
    cell = nn.LSTMCell(1, 1)
    for parameter, value in zip(cell.parameters(), (recurrent, recurrent, bias, torch.zeros(4))):
        parameter.copy_(value)
    yield "torch (i, f, g, o)", cell(ZERO, (ZERO, ONE))[0]
    layer = keras.layers.LSTMCell(1, unit_forget_bias=False)
    yield "Keras (i, f, g, o)", keras_cell(layer, recurrent, bias, ZERO, ONE)
    yield "ONNX Runtime (i, o, f, g)", onnx_cell("LSTM", recurrent, torch.stack((bias, torch.zeros(4))))
    yield "attnkit (i, f, g, o)", lstm_cell(ZERO, (ZERO, ONE), recurrent, recurrent, bias)[0][0]


def rotary() -> Answers:
    x, angles = torch.arange(1.0, 5).view(1, 1, 1, 4), torch.tensor([[[1.0, 0.01]]])
    doubled = torch.cat((angles, angles), dim=-1)
    yield "transformers, Llama", apply_rotary_pos_emb(x, x, doubled.cos(), doubled.sin())[0]
    yield "transformers, GPT-J", gptj.apply_rotary_pos_emb(x, angles.sin(), angles.cos())
    inputs = {"X": x, "cos_cache": angles.cos(), "sin_cache": angles.sin()}
    yield "ONNX Runtime, by default", run("RotaryEmbedding", inputs, ["Y"], opset=23)[0]
    yield "ONNX Runtime, `interleaved=1`", run("RotaryEmbedding", inputs, ["Y"], opset=23, interleaved=1)[0]
    yield 'attnkit, `layout="interleaved"`', rotate(x, torch.tensor([1]))
    yield 'attnkit, `layout="half"`', rotate(x, torch.tensor([1]), layout="half")


def alibi() -> Answers:
    yield "transformers, BLOOM", build_alibi_tensor(torch.ones(1, 2), 6, torch.float32)[:, 0, 1]
    yield "transformers, MPT", build_mpt_alibi_tensor(6, 2).diff(dim=-1)  # one token of distance
    yield "attnkit", alibi_slopes(6)


def layer_norm_eps() -> Answers:
    x = torch.tensor([[0.01, -0.01]])
    yield "torch, LayerNorm", nn.LayerNorm(2)(x)
    yield "ONNX Runtime", run("LayerNormalization", {"X": x, "Scale": torch.ones(2)}, ["Y"])[0]
    yield "Keras, LayerNormalization", keras.layers.LayerNormalization()(x)
    yield "attnkit", layer_norm(x)


def rms_norm_eps() -> Answers:
    x = torch.tensor([[0.001, -0.001]])
    yield "torch, RMSNorm", nn.RMSNorm(2)(x)
    yield "ONNX Runtime", run("RMSNormalization", {"X": x, "scale": torch.ones(2)}, ["Y"], opset=23)[0]
    yield "Keras, RMSNormalization", keras.layers.RMSNormalization()(x)
    yield "transformers, Llama", LlamaRMSNorm(2)(x)
    yield "attnkit", rms_norm(x)


QUESTIONS = (
    ("Where does a GRU reset?", "x = 0, h = 1, recurrent weight and bias of the candidate 1, all else 0", gru_reset),
    ("In which order do a GRU's gates lie?", "x = 0, h = 1, weights 0, biases 1, 2, 3", gru_order),
    ("In which order do an LSTM's gates lie?", "x = h = 0, c = 1, weights 0, biases 1, 2, 3, 4", lstm_order),
    ("Which features does a rotary pair hold?", "x = 1, 2, 3, 4 at position 1", rotary),
    ("ALiBi for six heads: which slopes?", "six heads", alibi),
    ("Which ε does LayerNorm have by default?", "x = 0.01, −0.01", layer_norm_eps),
    ("Which ε does RMSNorm have by default?", "x = 0.001, −0.001", rms_norm_eps),
)
