"""The published table of disagreements is what the libraries answer now."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_published_disagreements_are_those_measured_now():
    command = [sys.executable, "-m", "benchmarks.disagreements"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == (ROOT / "benchmarks/disagreements.md").read_text(encoding="utf-8")
