"""An upgrade of a running mesh: one node after the other is restarted, under traffic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parents[2] / "examples" / "operator" / "rolling_restart.toml"
PROGRAM = str(Path(sys.executable).parent / "trellis")


@pytest.mark.slow
def test_a_rolling_restart_of_eight_live_nodes_under_traffic_loses_nothing_and_repeats_nothing():
    command = [PROGRAM, "up", "--scenario", str(SCENARIO), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)
    assert (score["nodes"], score["leaves"], score["starts"], score["skipped"]) == (8, 8, 8, 0)
    assert (score["missing"], score["duplicates"], score["disordered"], score["forgone"]) == (0, 0, 0, 0)
    assert score["acknowledged"] > 1_000
    assert score["delivered"] >= score["expected"] > 4_000
