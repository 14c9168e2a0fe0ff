"""What earlier builds left and whether it may be kept: records, fingerprints, outputs, the lock.

A record is written last and removed first. Whatever is killed in between leaves outputs without a
record, and those are made again.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from mkdocs.exceptions import PluginError

VERSIONS = ("torch", "numpy", "matplotlib", "mkdocs-gallery")
#: Everything that turns a script into a page; other hooks work on the finished page.
MACHINERY = ("hooks/figures.py", "hooks/pages.py", "hooks/plugin.py", "hooks/worker.py")


@dataclass(frozen=True)
class Record:
    """A script's last good run."""

    fingerprint: dict[str, str]
    outputs: dict[str, str]
    claims: list[dict[str, Any]]
    seconds: float
    loaded: list[str] = field(default_factory=list)


class Store:
    """The records of a site, in ``.cache/gallery``, and the outputs they vouch for, in ``docs/gallery``."""

    def __init__(self, root: Path, settings: dict[str, Any]) -> None:
        self.root, self.docs = root, root / "docs"
        self.cache = root / ".cache" / "gallery"
        _must_be_writable(self.cache)
        _must_be_writable(self.docs / "gallery")
        self._common = {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in VERSIONS},
            "settings": _digest(json.dumps(settings, sort_keys=True).encode()),
            "environment": _digest(json.dumps(_environment()).encode()),
            **{name: digest_of(root / name) for name in MACHINERY},
        }

    def lock(self, say: Callable[[str], None]) -> FileLock:
        """Hold the store for this build alone, after waiting for any other; the system frees it at our end."""
        lock, holder = FileLock(self.cache / "lock"), self.cache / "holder"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = holder.read_text(encoding="utf-8") if holder.exists() else "another build"
            say(f"waiting for {who}, which holds {self.cache / 'lock'}")
            lock.acquire()
        holder.write_text(f"the build with process id {os.getpid()}", encoding="utf-8")
        return lock

    def read(self, script: Path) -> Record | None:
        """The record of ``script``, or None if there is none that can be read."""
        try:
            return Record(**json.loads(self._file(script).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def why(self, script: Path, record: Record | None) -> str | None:
        """Why ``script`` has to run, in words; None if its outputs are those of a clean build."""
        if record is None:
            return "no good run so far"
        now = self.fingerprint(script, record.loaded)
        changed = sorted(k for k in now.keys() | record.fingerprint.keys() if now.get(k) != record.fingerprint.get(k))
        if changed:
            return f"changed: {', '.join(changed)}"
        for name, digest in record.outputs.items():
            if digest_of(self.docs / name) != digest:
                return f"output {name} is {'damaged' if (self.docs / name).exists() else 'missing'}"
        return None

    def fingerprint(self, script: Path, loaded: list[str]) -> dict[str, str]:
        """Everything the outputs of ``script`` depend on, each with its digest or version."""
        home = _package_home()
        files = {name: digest_of(home / name) for name in (*loaded, "attnkit/paper.mplstyle")}
        return {script.relative_to(self.root).as_posix(): digest_of(script), **files, **self._common}

    def publish(
        self, script: Path, stage: Path, *, result: dict[str, Any], seconds: float, before: dict[str, str]
    ) -> Record:
        """Move what the run left in ``stage`` into place, and vouch for it.

        Args:
            script: the script that ran.
            stage: the folder its process wrote to.
            result: what its process reported.
            seconds: how long it took.
            before: digests of all files it may depend on, taken before it started; a file saved
                while the script ran is seen as changed by the next build.
        """
        self.forget(script)
        outputs = {}
        for source in sorted(p for p in (stage / "docs").rglob("*") if p.is_file() and p.suffix != ".md5"):
            name = source.relative_to(stage / "docs").as_posix()
            outputs[name] = digest_of(source)
            target = self.docs / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # Written beside its place, on the same file system, and moved there whole.
            aside = target.with_name(f".{target.name}.part")
            shutil.copyfile(source, aside)
            os.replace(aside, target)
        fingerprint = self.fingerprint(script, result["loaded"])
        fingerprint |= {name: digest for name, digest in before.items() if name in fingerprint}
        record = Record(fingerprint, outputs, result["claims"], round(seconds, 2), result["loaded"])
        file = self._file(script)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")
        os.replace(temporary, file)
        return record

    def snapshot(self, script: Path) -> dict[str, str]:
        """Digests of everything ``script`` may load, as it stands now."""
        home = _package_home()
        return self.fingerprint(script, [p.relative_to(home).as_posix() for p in (home / "attnkit").rglob("*.py")])

    def forget(self, script: Path) -> None:
        """Stop vouching for the outputs of ``script``."""
        self._file(script).unlink(missing_ok=True)

    def sweep(self, records: list[Record]) -> list[str]:
        """Remove whatever lies in ``docs/gallery`` that no record vouches for; return its names."""
        keep = {name for record in records for name in record.outputs} | {"gallery/index.md"}
        gallery, removed = self.docs / "gallery", []
        for path in sorted(gallery.rglob("*"), reverse=True):  # children before their folders
            name = path.relative_to(self.docs).as_posix()
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif name not in keep:
                path.unlink()
                removed.append(name)
        return removed

    def _file(self, script: Path) -> Path:
        return (self.cache / script.relative_to(self.root)).with_suffix(".json")


def _must_be_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PluginError(f"the build must be able to write to {folder}: {error.strerror}") from None


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes; "none" if there is no such file."""
    try:
        return _digest(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return "none"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _environment() -> dict[str, str]:
    """Variables a page may read, such as the text to use; how many run at once changes no page."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith("ATTNKIT_") and k != "ATTNKIT_JOBS"}


def _package_home() -> Path:
    """The folder that holds the package ``attnkit``, found without importing it."""
    spec = importlib.util.find_spec("attnkit")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("attnkit is not installed: python -m pip install -e .")
    return Path(spec.origin).parent.parent
