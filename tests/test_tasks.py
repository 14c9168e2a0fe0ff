"""Each task: the target by a plain loop, what a seed fixes, and the errors."""

from statistics import mean

import pytest
import torch

from attnkit import adding_batch, group_batch, lookup_batch, reverse_batch, sort_batch

B = 97


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("task", [adding_batch, reverse_batch, sort_batch, lookup_batch, group_batch])
def test_a_seed_fixes_the_batch_and_another_seed_draws_another(task):
    first, again, other = task(B, generator()), task(B, generator()), task(B, generator(1))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not all(torch.equal(a, b) for a, b in zip(first, other))


@pytest.mark.parametrize("task", [adding_batch, reverse_batch, sort_batch, lookup_batch, group_batch])
def test_a_generator_goes_on_to_another_batch_and_leaves_the_global_one_alone(task):
    before, source = torch.random.get_rng_state(), generator()
    first, second = task(B, source), task(B, source)
    assert not all(torch.equal(a, b) for a, b in zip(first, second))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("length", [2, 3, 7, 40])
def test_adding_has_one_mark_in_each_half_and_their_sum_as_target(length):
    x, target = adding_batch(B, generator(), length=length)
    assert x.shape == (B, length, 2)
    assert target.shape == (B,)
    for sequence, wanted in zip(x.tolist(), target.tolist()):
        marks = [t for t, (_, mark) in enumerate(sequence) if mark == 1]
        assert len(marks) == 2
        assert marks[0] < length // 2 <= marks[1]
        assert sum(mark for _, mark in sequence) == 2
        assert wanted == pytest.approx(sum(sequence[t][0] for t in marks), abs=1e-6)


def test_adding_marks_reach_every_step():
    x, _ = adding_batch(1009, generator(), length=7)
    assert (x[..., 1].sum(0) > 0).all()


def test_adding_follows_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        x, target = adding_batch(3, generator())
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype == target.dtype == torch.float64


def test_reverse_reads_from_the_back():
    source, target = reverse_batch(B, generator(), n_symbols=5, length=7)
    assert source.shape == target.shape == (B, 7)
    assert source.dtype == torch.long
    assert [row[::-1] for row in source.tolist()] == target.tolist()
    assert set(source.flatten().tolist()) == set(range(5))


def test_sort_puts_distinct_symbols_in_ascending_order():
    source, target = sort_batch(B, generator(), n_symbols=11, length=7)
    assert source.shape == target.shape == (B, 7)
    assert [sorted(row) for row in source.tolist()] == target.tolist()
    assert all(len(set(row)) == 7 for row in source.tolist())
    assert set(source.flatten().tolist()) == set(range(11))


def test_sort_may_use_every_symbol():
    _, target = sort_batch(3, generator(), n_symbols=5, length=5)
    assert target.tolist() == [[0, 1, 2, 3, 4]] * 3


def test_lookup_returns_the_value_of_the_item_with_the_queried_key():
    keys, values, query, target = lookup_batch(B, generator(), n_items=3, n_keys=7, n_values=5)
    assert keys.shape == values.shape == (B, 3)
    assert query.shape == target.shape == (B,)
    for key, value, wanted, answer in zip(keys.tolist(), values.tolist(), query.tolist(), target.tolist()):
        assert len(set(key)) == 3
        assert dict(zip(key, value))[wanted] == answer
    assert set(keys.flatten().tolist()) == set(range(7))
    assert set(values.flatten().tolist()) == set(range(5))


def test_lookup_asks_for_every_position():
    keys, _, query, _ = lookup_batch(B, generator())
    assert set((keys == query[:, None]).nonzero()[:, 1].tolist()) == set(range(6))


def test_group_means_are_those_of_a_loop():
    keys, values, target = group_batch(B, generator(), n_tokens=7, n_keys=3)
    assert keys.shape == values.shape == target.shape == (B, 7)
    for key, value, wanted in zip(keys.tolist(), values.tolist(), target.tolist()):
        means = [mean(v for k, v in zip(key, value) if k == own) for own in key]
        assert wanted == pytest.approx(means, abs=1e-6)


def test_the_sizes_of_the_pages_are_the_defaults():
    assert adding_batch(2, generator())[0].shape == (2, 40, 2)
    assert reverse_batch(2, generator())[0].shape == (2, 10)
    assert sort_batch(2, generator())[0].shape == (2, 8)
    assert lookup_batch(2, generator())[0].shape == (2, 6)
    assert group_batch(2, generator())[0].shape == (2, 10)


@pytest.mark.parametrize(
    ("task", "sizes", "message"),
    [
        (adding_batch, {"length": 1}, "length must be at least 2, one token per mark, got 1"),
        (sort_batch, {"n_symbols": 5, "length": 7}, "length is 7, n_symbols is 5"),
        (lookup_batch, {"n_items": 11, "n_keys": 7}, "n_items is 11, n_keys is 7"),
        (lookup_batch, {"n_items": 0}, "n_items is 0, n_keys is 8"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_named(task, sizes, message):
    with pytest.raises(ValueError, match=message):
        task(3, generator(), **sizes)


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        (adding_batch, {"length": 40}),
        (reverse_batch, {"n_symbols": 12, "length": 10}),
        (sort_batch, {"n_symbols": 12, "length": 8}),
        (lookup_batch, {"n_items": 6, "n_keys": 8, "n_values": 8}),
        (group_batch, {"n_tokens": 10, "n_keys": 4}),
    ],
)
def test_a_batch_without_sizes_is_one_of_these_sizes(task, sizes):
    for named, default in zip(task(50, generator(), **sizes), task(50, generator())):
        assert torch.equal(named, default)


@pytest.mark.parametrize("n_items", [1, 8])
def test_lookup_takes_a_single_item_and_as_many_as_there_are_keys(n_items):
    keys, _, query, target = lookup_batch(1, generator(), n_items=n_items)
    assert (keys.shape, query.shape, target.shape) == ((1, n_items), (1,), (1,))
