"""The training loop: what it does to the parameters, what it records, what it prints."""

import importlib
import inspect
import math

import pytest
import torch
from torch import nn

from attnkit import falling_tail, fit
from attnkit.training import History


class Point(nn.Module):
    """One parameter, started at 0."""

    def __init__(self, start=0.0):
        super().__init__()
        self.at = nn.Parameter(torch.tensor([start], dtype=torch.float64))


def test_a_quadratic_is_minimised():
    point = Point()
    history = fit(point, lambda: (point.at - 3).square().sum(), steps=300, lr=0.1)
    assert point.at.item() == pytest.approx(3, abs=1e-3)
    assert history.loss[0] == 9
    assert len(history.loss) == 300


def test_the_first_step_of_adam_moves_by_the_learning_rate():
    point = Point()
    fit(point, lambda: (point.at - 3).square().sum(), steps=1, lr=0.25)
    assert point.at.item() == pytest.approx(0.25, abs=1e-7)


def test_steps_follow_the_schedule():
    # With a constant gradient every step of Adam moves by the learning rate of that step.
    point, seen, at = Point(), [], []

    def schedule(done):
        seen.append(done)
        return 1 - done

    def loss():
        at.append(point.at.item())
        return -point.at.sum()

    fit(point, loss, steps=4, lr=1.0, schedule=schedule)
    moves = [b - a for a, b in zip(at, [*at[1:], point.at.item()])]
    assert moves == pytest.approx([1.0, 0.75, 0.5, 0.25], abs=1e-6)
    assert seen[:4] == [0, 0.25, 0.5, 0.75]


def test_the_falling_tail_is_level_then_falls_to_zero():
    assert [falling_tail(done) for done in (0.0, 0.25, 0.49)] == [1, 1, 1]
    values = [falling_tail(done) for done in (0.5, 0.625, 0.75, 0.875, 1.0)]
    assert values == pytest.approx([1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0], abs=1e-12)


@pytest.mark.parametrize(("clip", "expected"), [(1.0, [0.6, 0.8]), (None, [6.0, 8.0]), (20.0, [6.0, 8.0])])
def test_gradients_are_clipped_by_their_common_norm(clip, expected):
    a, b = Point(), Point()
    both = nn.ModuleList([a, b])
    fit(both, lambda: 6 * a.at.sum() + 8 * b.at.sum(), steps=1, lr=0.1, clip=clip)
    assert [a.at.grad.item(), b.at.grad.item()] == pytest.approx(expected, rel=1e-5)


def test_gradients_do_not_add_up_over_steps():
    point = Point()
    fit(point, lambda: 2 * point.at.sum(), steps=5, lr=0.1, clip=None)
    assert point.at.grad.item() == 2


def test_the_held_out_curve_starts_untrained_and_ends_with_the_last_step():
    point = Point()
    history = fit(
        point, lambda: (point.at - 3).square().sum(), steps=7, lr=0.1, evaluate=lambda: point.at.item(), every=3
    )
    assert history.steps == [0, 3, 6, 7]
    assert history.held_out[0] == 0
    assert history.held_out == sorted(set(history.held_out))
    assert history.held_out[-1] == point.at.item()


def test_a_step_that_is_last_and_due_is_measured_once():
    point = Point()
    history = fit(point, lambda: point.at.sum(), steps=6, lr=0.1, evaluate=lambda: (1.0, 2.0), every=3)
    assert history.steps == [0, 3, 6]
    assert history.held_out == [(1.0, 2.0)] * 3


def test_training_runs_in_training_mode_and_evaluation_without_gradients():
    point, modes = Point(), []

    def loss():
        modes.append(("train", point.training, torch.is_grad_enabled()))
        return point.at.sum()

    def evaluate():
        modes.append(("evaluate", point.training, torch.is_grad_enabled()))
        return 0.0

    fit(point, loss, steps=2, lr=0.1, evaluate=evaluate, every=1)
    evaluation, training = ("evaluate", False, False), ("train", True, True)
    assert modes == [evaluation, training, evaluation, training, evaluation]
    assert not point.training


def test_without_evaluation_the_model_is_left_in_evaluation_mode_too():
    point = Point()
    history = fit(point, lambda: point.at.sum(), steps=1, lr=0.1)
    assert not point.training
    assert history == History(loss=[0.0])


def test_a_gradient_that_is_not_finite_stops_the_training():
    point = Point()
    with pytest.raises(RuntimeError, match="non-finite"):
        fit(point, lambda: point.at.sum() * float("nan"), steps=3, lr=0.1)


@pytest.mark.parametrize("argument", ["steps", "every"])
def test_numbers_of_steps_below_one_are_refused(argument):
    point = Point()
    with pytest.raises(ValueError, match=f"{argument} must be at least 1, got 0"):
        fit(point, lambda: point.at.sum(), **({"steps": 1, "lr": 0.1} | {argument: 0}))


@pytest.mark.parametrize("progress", [True, False])
def test_nothing_is_printed_where_standard_error_is_no_terminal(progress, capsys):
    point = Point()
    fit(point, lambda: point.at.sum(), steps=3, lr=0.1, progress=progress)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_the_bar_only_if_it_wants_one(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    point = Point()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fit(point, lambda: point.at.sum(), steps=3, lr=0.1, progress=False)
    assert capsys.readouterr().err == ""
    fit(point, lambda: point.at.sum(), steps=3, lr=0.1)
    seen = capsys.readouterr()
    assert "3/3" in seen.err or "0/3" in seen.err
    assert seen.err.split("\r")[-2:] == [" " * len(seen.err.split("\r")[-2]), ""]  # the bar is wiped off at the end
    assert seen.out == ""


def test_training_works_without_tqdm(monkeypatch):
    original = importlib.import_module

    def without_tqdm(name, *args):
        if name == "tqdm":
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr("attnkit.training.import_module", without_tqdm)
    point = Point()
    assert len(fit(point, lambda: point.at.sum(), steps=3, lr=0.1).loss) == 3


def test_unless_asked_gradients_are_clipped_at_one_and_every_fiftieth_step_is_evaluated():
    point = Point()
    history = fit(point, lambda: (point.at - 3).square().sum(), steps=101, lr=0.1, evaluate=lambda: 0.0)
    assert history.steps == [0, 50, 100, 101]
    assert inspect.signature(fit).parameters["clip"].default == 1.0
