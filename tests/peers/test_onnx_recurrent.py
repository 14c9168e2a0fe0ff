"""RNN, LSTM and GRU as the ONNX standard has them: gates in another order, directions, batch first.

The standard's cases have equal weights in all gates, so they cannot tell a swapped gate: torch's own modules with
random weights do that, in test_recurrent.py.
"""

import pytest
import torch
from onnx_cases import Case, cases
from torch import Tensor

from attnkit import gru_cell, lstm_cell, rnn_cell

#: Where our gates stand in the standard's order: i, o, f, c for (i, f, g, o); z, r, h for (r, z, n).
ORDER = {"RNN": [0], "LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}
LEFT_OUT = {
    "lstm_with_peepholes": "our cell has no peepholes",
    # The two forms agree where all units of a state are equal, which they are in the other cases.
    "gru_seq_length": "the standard resets the state before its product unless told otherwise, ours and torch's after",
}
ALL = [(operator, case) for operator in ORDER for case in cases(operator)]


def in_our_order(stacked: Tensor, operator: str) -> Tensor:
    gates = stacked.chunk(len(ORDER[operator]))
    return torch.cat([gates[n] for n in ORDER[operator]])


def step(operator: str, x: Tensor, state: tuple[Tensor, ...], weights: list[Tensor]) -> tuple[Tensor, ...]:
    if operator == "LSTM":
        return lstm_cell(x, state, *weights)[0]
    if operator == "GRU":
        return (gru_cell(x, *state, *weights)[0],)
    return (rnn_cell(x, *state, *weights),)


def computed(operator: str, case: Case) -> dict[str, Tensor]:
    """Y, Y_h and Y_c of the operator, computed with our cell."""
    batch_first = case.attributes.get("layout") == 1
    x = case.inputs["X"].transpose(0, 1) if batch_first else case.inputs["X"]
    outputs, last = [], []
    for n, (w, r) in enumerate(zip(case.inputs["W"], case.inputs["R"])):
        w, r = in_our_order(w, operator), in_our_order(r, operator)
        biases = case.inputs["B"][n].chunk(2) if "B" in case.inputs else (torch.zeros(len(w)), torch.zeros(len(w)))
        weights = [w, r, *(in_our_order(b, operator) for b in biases)]
        backwards = n == 1 or case.attributes.get("direction") == "reverse"
        state = tuple(torch.zeros(x.shape[1], r.shape[1]) for _ in range(1 + (operator == "LSTM")))
        states = []
        for token in x.flip(0) if backwards else x:
            state = step(operator, token, state, weights)
            states.append(state[0])
        outputs.append(torch.stack(states[::-1] if backwards else states))
        last.append(state)
    result = {"Y": torch.stack(outputs, dim=1), "Y_h": torch.stack([state[0] for state in last])}
    if operator == "LSTM":
        result["Y_c"] = torch.stack([state[1] for state in last])
    if batch_first:
        result = {"Y": result["Y"].permute(2, 0, 1, 3), "Y_h": result["Y_h"].transpose(0, 1)}
    return result


def test_there_are_as_many_cases_as_the_standard_has_and_those_left_out_are_among_them():
    assert len(ALL) == 18
    assert LEFT_OUT.keys() <= {case.name for _, case in ALL}


@pytest.mark.parametrize(
    ("operator", "case"), [pytest.param(o, c, id=c.name) for o, c in ALL if c.name not in LEFT_OUT]
)
def test_a_cell_agrees_with_the_case_of_the_standard(operator, case):
    ours = computed(operator, case)
    for name, wanted in case.outputs.items():
        torch.testing.assert_close(ours[name], wanted, **case.tolerance())


def test_the_form_that_resets_before_the_product_is_another_function():
    (case,) = (case for _, case in ALL if case.name == "gru_seq_length")
    assert (computed("GRU", case)["Y_h"] - case.outputs["Y_h"]).abs().max() > 1e-4


def test_only_the_case_with_peepholes_has_peepholes():
    assert [case.name for _, case in ALL if "P" in case.inputs] == ["lstm_with_peepholes"]
