"""The recurrent encoder and decoder: its steps written out with torch's cells, and its laws.

The sizes are different primes: B = 2, T = 3, S = 5, n_symbols = 7, d_model = 11.
"""

import inspect

import pytest
import torch

from attnkit.seq2seq import Seq2Seq

DESIGNS = [
    {"bidirectional": bidirectional, "local_values": local_values, "context_only": context_only}
    for bidirectional in (False, True)
    for local_values in (False, True)
    for context_only in (False, True)
]
EVERY_DESIGN = pytest.mark.parametrize(
    "design", DESIGNS, ids=lambda d: "-".join(k for k, on in d.items() if on) or "default"
)


def exactly(actual, expected, atol=1e-12):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def model_of(design, seed=0):
    """The model in float64, its parameters drawn from a seed."""
    model = Seq2Seq(7, 11, **design).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, dtype=torch.float64, generator=generator))
    return model


def symbols(*shape, seed=0):
    return torch.randint(7, shape, generator=torch.Generator().manual_seed(seed))


def read_by_cells(gru, x, suffix, backwards):
    """One direction of an encoder, cell by cell; the state of each position."""
    cell = torch.nn.GRUCell(x.shape[-1], gru.hidden_size).double()
    cell.load_state_dict(
        {name: getattr(gru, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    )
    h, states = x.new_zeros(len(x), gru.hidden_size), [None] * x.shape[1]
    for j in reversed(range(x.shape[1])) if backwards else range(x.shape[1]):
        h = states[j] = cell(x[:, j], h)
    return torch.stack(states, dim=1)


def by_steps(model, design, source, before):
    """Logits and weights, one step after the other, straight from the docstring's equations."""
    e = model.source_embedding.weight[source]
    h = read_by_cells(model.encoder, e, "", backwards=False)
    if design["bidirectional"]:
        h = torch.cat([h, read_by_cells(model.encoder, e, "_reverse", backwards=True)], dim=-1)
    keys, values = (torch.cat([e, h], -1), e) if design["local_values"] else (h, h)
    states = read_by_cells(model.decoder, model.target_embedding.weight[before], "", backwards=False)
    logits, rows = [], []
    for s in states.unbind(1):
        hidden = torch.tanh((s @ model.attention.query.weight.T)[:, None] + keys @ model.attention.key.weight.T)
        weights = torch.softmax(hidden @ model.attention.score.weight[0], -1)
        u = (weights[:, :, None] * values).sum(1)
        if not design["context_only"]:
            u = torch.tanh(torch.cat([u, s], -1) @ model.combine.weight.T + model.combine.bias)
        logits.append(u @ model.output.weight.T + model.output.bias)
        rows.append(weights)
    return torch.stack(logits, 1), torch.stack(rows, 1)


@EVERY_DESIGN
def test_teacher_forcing_equals_the_equations_step_by_step(design):
    model, source, target = model_of(design), symbols(2, 5), symbols(2, 3, seed=1)
    before = torch.cat([torch.full((2, 1), 7), target[:, :2]], dim=1)
    for actual, expected in zip(model(source, target), by_steps(model, design, source, before)):
        exactly(actual, expected)


@EVERY_DESIGN
def test_decoding_feeds_the_model_its_own_symbols(design):
    """What greedy decoding writes is the argmax of teacher forcing on what it wrote; the weights agree too."""
    model, source = model_of(design), symbols(2, 5)
    tokens, weights = model.decode(source, steps=13)
    logits, forced_weights = model(source, tokens)
    assert torch.equal(logits.argmax(-1), tokens)
    exactly(weights, forced_weights)


def test_decoding_cannot_see_a_target():
    assert list(inspect.signature(Seq2Seq.decode).parameters) == ["self", "source", "steps"]


@EVERY_DESIGN
def test_a_prediction_sees_no_target_symbol_from_its_own_on(design):
    model, source, target = model_of(design), symbols(2, 5), symbols(2, 5, seed=1)
    logits, weights = model(source, target)
    for t in range(5):
        changed = target.clone()
        changed[:, t:] = (changed[:, t:] + 1) % 7
        other_logits, other_weights = model(source, changed)
        exactly(other_logits[:, : t + 1], logits[:, : t + 1])
        exactly(other_weights[:, : t + 1], weights[:, : t + 1])
        if t < 4:
            assert (other_weights[:, t + 1] - weights[:, t + 1]).abs().max() > 1e-6


@EVERY_DESIGN
def test_alignment_weights_are_a_mixture_that_depends_on_the_source(design):
    model, source, target = model_of(design), symbols(2, 5), symbols(2, 3, seed=1)
    weights = model(source, target)[1]
    exactly(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    changed = source.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 7
    assert (model(changed, target)[1] - weights).abs().amax((1, 2)).min() > 1e-4


def test_the_source_reaches_the_output_through_the_attention_alone():
    model, target = model_of(DESIGNS[0]), symbols(2, 3, seed=1)
    model.encode = lambda source: (torch.ones(2, 5, 11).double(), torch.ones(2, 5, 11).double())
    exactly(model(symbols(2, 5), target)[0], model(symbols(2, 5, seed=4), target)[0])


def test_local_values_know_their_own_symbol_and_no_other():
    source = symbols(2, 5)
    changed = source.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 7
    others = torch.tensor([0, 1, 3, 4])
    for bidirectional in (False, True):
        local = model_of({"local_values": True, "bidirectional": bidirectional})
        assert torch.equal(local.encode(changed)[1][:, others], local.encode(source)[1][:, others])
        states = model_of({"bidirectional": bidirectional})
        moved = (states.encode(changed)[1] - states.encode(source)[1]).abs().amax((0, 2)) > 1e-6
        assert moved.tolist() == [bidirectional, bidirectional, True, True, True]


def test_local_values_read_alone_make_the_logits_a_weighted_vote():
    model, source, target = model_of({"local_values": True, "context_only": True}), symbols(2, 5), symbols(2, 3, seed=1)
    logits, weights = model(source, target)
    votes = model.output(model.source_embedding.weight)[source]
    exactly(logits, torch.einsum("btj,bjc->btc", weights, votes))


def test_the_last_state_of_the_backward_encoder_stands_at_position_zero():
    model, source = model_of({"bidirectional": True}), symbols(2, 5)
    values = model.encode(source)[1]
    changed = source.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 7
    other = model.encode(changed)[1]
    assert torch.equal(other[:, 0, :11], values[:, 0, :11])
    assert (other[:, 0, 11:] - values[:, 0, 11:]).abs().max() > 1e-6


@EVERY_DESIGN
def test_two_lengths_in_a_row_through_seq2seq(design):
    model = model_of(design)
    for S in (5, 13, 5):
        source = symbols(2, S, seed=S)
        expected = model_of(design).decode(source)
        for actual, wanted in zip(model.decode(source), expected):
            assert torch.equal(actual, wanted)
        assert model.decode(source)[1].shape == (2, S, S)


@EVERY_DESIGN
def test_a_batch_is_its_sources_one_by_one(design):
    model, source, target = model_of(design), symbols(2, 5), symbols(2, 3, seed=1)
    logits, weights = model(source, target)
    for b in range(2):
        one_logits, one_weights = model(source[b : b + 1], target[b : b + 1])
        exactly(one_logits[0], logits[b])
        exactly(one_weights[0], weights[b])


@EVERY_DESIGN
def test_every_parameter_gets_a_gradient(design):
    model = model_of(design)
    logits, _ = model(symbols(2, 5), symbols(2, 3, seed=1))
    logits.logsumexp(-1).sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in model.parameters())


def test_decoding_asks_for_no_gradient_and_keeps_the_mode():
    model = model_of({}).train()
    assert not model.decode(symbols(2, 5))[1].requires_grad
    assert model.training


def test_there_must_be_a_step_to_decode():
    with pytest.raises(ValueError, match=r"^steps must be at least 1, got 0$"):
        model_of({}).decode(symbols(2, 5), steps=0)


def test_unless_asked_the_encoder_reads_one_way_and_the_state_is_read_too():
    model = Seq2Seq(n_symbols=5, d_model=3)
    assert not model.encoder.bidirectional
    assert model.combine is not None
    assert model.target_embedding.num_embeddings == 6  # one more says "begin"


def test_a_single_step_may_be_decoded():
    tokens, weights = Seq2Seq(n_symbols=5, d_model=3).decode(symbols(2, 4) % 5, steps=1)
    assert (tokens.shape, weights.shape) == ((2, 1), (2, 1, 4))
