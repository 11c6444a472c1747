"""The rules of the house, checked with everything else: lint, types, layers, and what a start may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports",)],
    ids=["ruff", "format", "mypy", "layers"],
)
def test_the_house_rules_hold(command):
    done = run(str(BIN / command[0]), *command[1:])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("start", ["import trellis.cli.main", "import trellis"])
def test_a_start_loads_no_heavy_package(start):
    heavy = {"numba", "numpy", "pyspark", "pyarrow", "scipy", "matplotlib", "pandas"}
    done = run(sys.executable, "-c", f"{start}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert "trellis" in done.stdout.split()
    assert not heavy & {module.split(".")[0] for module in done.stdout.split()}


def test_the_protocols_load_no_heavy_package():
    done = run(sys.executable, "-c", "import trellis.protocols, trellis.ids, trellis.errors, sys\nprint(*sys.modules)")
    assert not {"numpy", "asyncio", "pyarrow"} & set(done.stdout.split())


def test_the_lock_names_no_package_index():
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index" not in lock
    assert "--hash=sha256:" in lock
