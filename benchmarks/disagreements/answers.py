"""An answer, and how a table says it."""

from collections.abc import Callable, Iterator

from torch import Tensor

#: Who answers, and what: numbers, or a word where there are none.
Answers = Iterator[tuple[str, Tensor | str]]


def or_refuses(ask: Callable[[], Tensor], error: type[Exception]) -> Tensor | str:
    """What ``ask`` answers, or that it raises ``error``."""
    try:
        return ask()
    except error:
        return f"refuses ({error.__name__})"


def row(question: str, given: str, answers: Answers) -> str:
    """One line of the table; the answers of attnkit, named so, have a column of their own."""
    ours, theirs = [], []
    for who, answer in answers:
        name = who.removeprefix("attnkit").lstrip(", ")
        column = ours if who.startswith("attnkit") else theirs
        column.append(f"{name}: {_said(answer)}" if name else _said(answer))
    return f"| {question} | {given} | {'<br>'.join(theirs)} | {'<br>'.join(ours)} |"


def _said(answer: Tensor | str) -> str:
    """Numbers with four digits, in the order of their axes."""
    if isinstance(answer, str):
        return answer
    return ", ".join(f"{x:.4g}" for x in answer.detach().double().flatten().tolist())
