"""What a function makes on the way lies where its inputs lie, not on the default device.

``meta``, the device without memory, stands in for an accelerator: nothing mixes with it unnoticed.
"""

import pytest
import torch

import attnkit


def x():
    return torch.arange(24.0).view(2, 3, 4).sin()


def tokens():
    return torch.tensor([[0, 2, 1], [1, 1, 0]])


def transformer(positions):
    torch.manual_seed(0)
    model = attnkit.Transformer(3, 8, 2, 1, context=5, positions=positions, causal=False).requires_grad_(False)
    return lambda tokens: model(tokens)[0]


CALLS = {
    "padding_mask": lambda: (lambda lengths: attnkit.padding_mask(lengths, 4), torch.tensor([1, 3])),
    "rotate": lambda: (attnkit.rotate, x()),
    "sinusoidal_encoding": lambda: (lambda positions: attnkit.sinusoidal_encoding(positions, 4), torch.arange(3)),
    "a transformer with learned positions": lambda: (transformer("learned"), tokens()),
    "a transformer with rotary positions": lambda: (transformer("rotary"), tokens()),
}


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_made_on_the_way_lies_where_the_input_lies(name):
    call, argument = CALLS[name]()
    expected = call(argument)
    with torch.device("meta"):
        assert torch.empty(1).is_meta
        actual = call(argument)
    assert actual.device.type == "cpu"
    assert torch.equal(actual, expected)
