r"""One training loop for every trained page: Adam, clipped gradients, a falling rate, a held-out curve.

Pages: ``gallery/4_recurrence/adding_problem.py`` and every later page that trains.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

__all__ = ["History", "falling_tail", "fit"]


@dataclass
class History:
    """What ``fit`` recorded.

    Attributes:
        loss: training loss of every step.
        steps: the steps after which the model was evaluated, from 0 (untrained) to the last.
        held_out: what ``evaluate`` returned after each of them.
    """

    loss: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    held_out: list[Any] = field(default_factory=list)


def falling_tail(done: float) -> float:
    r"""Constant for the first half of the training, then half a cosine down to 0.

    Args:
        done: share of the training that is over, from 0 to 1.

    Returns:
        Factor of the learning rate, from 1 to 0.

    Example:
        >>> [round(falling_tail(done), 2) for done in (0, 0.5, 0.75, 1)]
        [1.0, 1.0, 0.5, 0.0]
    """
    return 1.0 if done < 0.5 else 0.5 - 0.5 * math.cos(2 * math.pi * done)


def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    steps: int,
    lr: float,
    clip: float | None = 1.0,
    schedule: Callable[[float], float] = falling_tail,
    evaluate: Callable[[], Any] | None = None,
    every: int = 50,
    progress: bool = True,
) -> History:
    r"""Train ``model`` in place, one fresh batch per step, and leave it in evaluation mode.

    A progress bar runs where standard error is a terminal and tqdm is installed; nothing is printed
    elsewhere.

    Args:
        model: its parameters are trained by Adam.
        loss: draws a batch and returns the scalar loss of ``model`` on it.
        steps: number of batches.
        lr: learning rate before the schedule.
        clip: largest norm of the gradient over all parameters; None lets every norm pass.
        schedule: factor of ``lr``, given the share of training that is over, from 0 to 1.
        evaluate: measures ``model``, in evaluation mode and without gradients, before the first step,
            after every ``every`` steps, and at the end. Whatever it returns is kept: a float, or a
            tuple of floats for several curves.
        every: steps between evaluations.
        progress: whether to show a bar at all.

    Returns:
        The training loss of each step and the held-out curve.

    Raises:
        ValueError: ``steps`` or ``every`` is below 1.
        RuntimeError: the gradient is not finite (with ``clip``).

    Source:
        Kingma and Ba (2015), "Adam"; clipping by the norm: Pascanu, Mikolov and Bengio (2013), "On the
        difficulty of training recurrent neural networks", algorithm 1.

    Example:
        >>> line = nn.Linear(1, 1)
        >>> x = torch.linspace(-1, 1, 9)[:, None]
        >>> history = fit(line, lambda: (line(x) - 3 * x).square().mean(), steps=200, lr=0.1)
        >>> round(line.weight.item(), 3)
        3.0
    """
    for name, value in (("steps", steps), ("every", every)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = LambdaLR(optimizer, lambda step: schedule(step / steps))
    history = History()

    def measure(step: int) -> None:
        if evaluate is not None:
            model.eval()
            with torch.no_grad():
                history.held_out.append(evaluate())
            history.steps.append(step)

    measure(0)
    for step in _bar(steps, progress):
        model.train()
        optimizer.zero_grad()
        batch_loss = loss()
        batch_loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip, error_if_nonfinite=True)
        optimizer.step()
        scheduler.step()
        history.loss.append(batch_loss.item())
        if (step + 1) % every == 0 or step + 1 == steps:
            measure(step + 1)
    model.eval()
    return history


def _bar(steps: int, progress: bool) -> Iterable[int]:
    """Count the steps, behind a progress bar where one can be shown."""
    try:
        tqdm = import_module("tqdm").tqdm
    except ImportError:  # a convenience, not a dependency
        return range(steps)
    # disable=None: no bar unless standard error is a terminal.
    return tqdm(range(steps), disable=None if progress else True, leave=False)
