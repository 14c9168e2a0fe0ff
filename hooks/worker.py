"""What happens in the process of one script: run it, say how it went, in files of its own folder."""

import dataclasses
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

RESULT = "result.json"


def work(script: Path, root: Path, stage: Path, memory_limit: int | None) -> None:
    """Render ``script`` into ``stage / "docs"`` and write ``stage / "result.json"``.

    The file says ``{"ok": true, …}`` only after everything else is written, so a process that ends in
    any other way, ``os._exit`` and signals included, has failed.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # so that the engine can end it together with whatever it starts
    with (stage / "log.txt").open("wb", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        result = _run(script, root, stage, memory_limit)
    except BaseException as error:  # SystemExit too: a script that leaves early has not been checked
        result = {"ok": False, **_describe(error, script)}
    temporary = stage / f"{RESULT}.part"
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(stage / RESULT)


def _run(script: Path, root: Path, stage: Path, memory_limit: int | None) -> dict[str, Any]:
    import torch

    from attnkit import claims
    from hooks import plugin

    if memory_limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    torch.set_num_threads(1)
    claims.records.clear()
    plugin.render(script, root, stage / "docs")
    pictures = sorted((stage / "docs").glob(f"gallery/*/images/mkd_glr_{script.stem}_[0-9]*.svg"))
    if not claims.records:
        raise RuntimeError("the script made no claim: check what it says with attnkit.claims")
    if not pictures:
        raise RuntimeError("the script drew no figure")
    return {
        "ok": True,
        "claims": [dataclasses.asdict(claim) for claim in claims.records],
        "loaded": sorted(_files_of("attnkit")),
    }


def _files_of(package: str) -> set[str]:
    """The package's files that this process imported, relative to the folder that holds the package."""
    home = Path(sys.modules[package].__path__[0]).parent
    found = set()
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name == package or name.startswith(f"{package}.")) and module.__file__:
            found.add(Path(module.__file__).relative_to(home).as_posix())
    return found


def _describe(error: BaseException, script: Path) -> dict[str, Any]:
    """One line a person can act on, where it happened, and the traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script.as_posix()]
    said = str(error) or "no message"
    if isinstance(error, SystemExit):
        said = f"the script called sys.exit({error.code!r}), so the rest of it was not checked"
    return {
        "line": frames[-1].lineno if frames else None,
        "what": said if type(error).__name__ == "ClaimError" else f"{type(error).__name__}: {said}",
        "traceback": "".join(traceback.format_exception(error)),
    }
