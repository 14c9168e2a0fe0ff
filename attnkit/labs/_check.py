"""How a check speaks: one friendly sentence that names the slip, no wall of traceback."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import torch
from torch import Tensor

from attnkit.claims import ClaimError

P = ParamSpec("P")


class CheckError(AssertionError):
    """An exercise is not solved yet; the message names the likely slip."""

    def _render_traceback_(self) -> list[str]:
        """What Jupyter prints in place of a traceback."""
        return [f"✗ {self}"]


class NotWrittenError(CheckError):
    """The exercise still says ``raise NotImplementedError``."""


def exercise(number: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate a check: what stops it becomes one sentence that begins with the exercise's number."""

    def decorate(check: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(check)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                check(*args, **kwargs)
            except NotImplementedError:
                raise NotWrittenError(
                    f"Exercise {number} is yours to write: replace `raise NotImplementedError` in the cell above "
                    "by your own lines, run it, then run this cell again."
                ) from None
            except CheckError as slip:
                raise CheckError(f"Exercise {number}: {slip}") from None
            except ClaimError as error:
                raise CheckError(f"Exercise {number} is not there yet. {str(error).removeprefix('✗ ')}") from None

        return checked

    return decorate


def expect(condition: Any, slip: str) -> None:
    """Raise CheckError with ``slip`` unless the condition holds, in every entry where it is a tensor."""
    if not torch.as_tensor(condition).all():
        raise CheckError(slip)


def expect_shape(result: Any, shape: tuple[int, ...], slip: str) -> None:
    """Raise CheckError unless ``result`` is a tensor of this shape; ``slip`` says what another shape means."""
    if result is None:
        raise CheckError("your function returned None: does it end with `return`?")
    if not isinstance(result, Tensor):
        raise CheckError(f"your function returned a {type(result).__name__}, a tensor was expected")
    if tuple(result.shape) != shape:
        raise CheckError(f"the shape should be {shape} and is {tuple(result.shape)}: {slip}")


def near(a: Tensor, b: Any, atol: float = 1e-6) -> bool:
    """Whether two results agree as numbers; NaN agrees with nothing."""
    b = torch.as_tensor(b, dtype=a.dtype)
    return a.shape == torch.broadcast_shapes(a.shape, b.shape) and bool(((a - b).abs() <= atol).all())


def random(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers in double precision, the same for every reader."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
