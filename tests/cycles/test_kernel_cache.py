"""Kernels that call kernels of other files are compiled again when one of these files changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HELPER = "from trellis.jit import njit\n@njit(folder=True)\ndef number():\n    return {}\n"
KERNEL = (
    "from helper import number\nfrom trellis.jit import njit\n@njit(folder={})\ndef twice():\n    return 2 * number()\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [True, False])
def test_a_changed_helper_in_another_file_is_seen_by_the_cache(tmp_path, folder):
    """Without `folder` numba goes on with the old helper: that is what the option is for."""
    (tmp_path / "kernel.py").write_text(KERNEL.format(folder))
    found = []
    for value in (1, 20):
        (tmp_path / "helper.py").write_text(HELPER.format(value))
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-B", "-c", "from kernel import twice\nprint(twice())"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        found.append(int(done.stdout))
    assert found == ([2, 40] if folder else [2, 2])
