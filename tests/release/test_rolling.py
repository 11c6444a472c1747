"""An upgrade of a running mesh: one node after the other is restarted, under traffic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "operator" / "rolling_restart.py"


@pytest.mark.slow
def test_a_rolling_restart_of_eight_live_nodes_under_traffic_loses_nothing_and_repeats_nothing():
    done = subprocess.run([sys.executable, str(SCRIPT), "--nodes", "8"], capture_output=True, text=True, timeout=1_800)
    assert done.returncode == 0, done.stdout + done.stderr
    score = json.loads(done.stdout)
    assert (score["nodes"], score["leaves"], score["starts"]) == (8, 8, 8)
    assert (score["missing"], score["duplicates"], score["disordered"], score["forgone"]) == (0, 0, 0, 0)
    assert score["acknowledged"] > 500
    assert score["delivered"] >= score["expected"] > 1_000
