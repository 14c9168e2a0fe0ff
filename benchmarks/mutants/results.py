"""What was found so far: one line of JSON for each verdict, so that an interrupted run goes on where it was."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Verdict:
    """How a mutant fared against the tests, or against the pages.

    Attributes:
        key: of the mutant.
        judge: ``"tests"`` or ``"pages"``.
        by: the test or script that killed it; None for a survivor.
        how: what that one died of.
        proof: digest of what killed it, or of all that did not.
    """

    key: str
    judge: str
    by: str | None
    how: str
    proof: str


class Results:
    """The verdicts in a file to which lines are only added; the last one counts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        verdicts = [Verdict(**json.loads(line)) for line in lines if line.endswith("}")]  # the last may be cut off
        self._held = {(verdict.key, verdict.judge): verdict for verdict in verdicts}

    def get(self, key: str, judge: str) -> Verdict | None:
        """The verdict on a mutant, if there is one."""
        return self._held.get((key, judge))

    def add(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        self._held[verdict.key, verdict.judge] = verdict
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")


def digest(*files: Path) -> str:
    """Digest of the files' bytes."""
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]
