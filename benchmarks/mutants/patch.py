"""Put a mutant into the running process, where tests and scripts hold the functions already."""

import inspect
import sys
from types import FunctionType, ModuleType
from typing import Any

from benchmarks.mutants.rules import Mutant

_MISSING = object()  # of a constant whose statement was removed


def apply(mutant: Mutant) -> None:
    """Give the functions of the loaded module the changed code, whoever imported them under whatever name."""
    module = sys.modules[f"attnkit.{mutant.module}" if mutant.module != "__init__" else "attnkit"]
    special = ("__name__", "__package__", "__file__", "__path__", "__spec__")
    fresh = {name: value for name, value in vars(module).items() if name in special}
    exec(mutant.code, fresh)
    if not mutant.function:
        return _replace_constants(module, fresh)
    owner, old, new = None, vars(module)[mutant.function[0]], fresh[mutant.function[0]]
    if isinstance(old, type) and len(mutant.function) == 1:
        return _replace_everywhere(mutant.function[0], old, new)
    name = mutant.function[0]
    if isinstance(old, type):
        owner, name = old, mutant.function[1]
        old, new = vars(old)[name], vars(new)[name]
    _recode(owner, name, old, new)


def _recode(owner: type | None, name: str, old: Any, new: Any) -> None:
    before, after = _function(old), _function(new)
    if before.__code__.co_freevars != after.__code__.co_freevars:  # a removed super() needs no cell
        setattr(owner, name, new)
        return
    before.__code__, before.__defaults__ = after.__code__, after.__defaults__
    before.__kwdefaults__ = after.__kwdefaults__


def _function(held: Any) -> FunctionType:
    return inspect.unwrap(getattr(held, "__func__", held))


def _replace_constants(module: ModuleType, fresh: dict[str, Any]) -> None:
    for name, old in list(vars(module).items()):
        new = fresh.get(name, _MISSING)
        if not name.startswith("__") and not callable(old) and not isinstance(old, ModuleType) and new != old:
            _replace_everywhere(name, old, new)


def _replace_everywhere(name: str, old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and vars(module).get(name) is old:
            if new is _MISSING:
                delattr(module, name)
            else:
                setattr(module, name, new)
