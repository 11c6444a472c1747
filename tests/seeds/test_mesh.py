"""Whole nodes and real clients under faults: every promise holds in every seed, and a seed is one run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.simulate.mesh import limits
from trellis.simulate.mesh.draw import ALWAYS, KINDS, MeshPlan, draw_faults
from trellis.simulate.mesh.inject import Injector
from trellis.simulate.mesh.natives import Habits
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.seeds import check_mesh
from trellis.simulate.mesh.trial import RESTART, run_trial

SMALL = MeshPlan(nodes_max=4, clients=6, span_s=15.0, quiet_s=35.0, crash_gap_s=8.0)


@pytest.mark.parametrize("first", range(1, 101, 10))
def test_whole_nodes_keep_their_promises(first: int) -> None:
    summary = check_mesh(seeds=10, first_seed=first, plan=SMALL, shrink_runs_max=0)
    assert summary.holds, "\n".join(summary.lines())
    assert summary.counts["owed"] > 0
    assert summary.counts["acknowledged"] > 0
    for kind in (*ALWAYS, RESTART):
        assert summary.injected[kind] >= 10, f"not every seed had a {kind}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_001, 2_001, 100))
def test_whole_nodes_keep_their_promises_over_many_seeds(first: int) -> None:
    summary = check_mesh(seeds=100, first_seed=first)
    assert not summary.failures, "\n".join(summary.lines())


def test_a_seed_is_the_same_run_under_another_hash_seed() -> None:
    program = (
        "import hashlib\n"
        "from seeds.test_mesh import SMALL\n"
        "from trellis.simulate.mesh.trial import RESTART, run_trial\n"
        "result = run_trial(7, SMALL)\n"
        "print(result.digest, hashlib.blake2b(result.history.to_bytes()).hexdigest())\n"
    )
    told = []
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0]) > 100


def test_every_seed_has_a_crash_and_a_partition() -> None:
    for seed in range(1, 60):
        kinds = [one.kind for one in draw_faults(SMALL, ["n0", "n1"], ["c0"], seed).faults]
        assert set(ALWAYS) <= set(kinds), f"seed {seed}"
    schedules = [draw_faults(SMALL, ["n0", "n1"], ["c0"], seed, {"b0": "n0"}) for seed in range(1, 60)]
    drawn = {one.kind for schedule in schedules for one in schedule.faults}
    assert drawn == set(KINDS)


def test_a_seed_in_which_no_client_restarts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lack is put in: clients that never use a name again, and a partition that does nothing."""
    monkeypatch.setattr(Habits, "name", lambda self, slot: f"{slot}-{self.random.getrandbits(64)}")
    monkeypatch.setattr(Injector, "_apply", lambda self, fault: False)
    failures = run_trial(3, SMALL).failures
    assert {f"the seed had no {kind}" for kind in (*ALWAYS, RESTART)} <= set(failures)


def test_limits_that_are_drawn_make_a_valid_configuration() -> None:
    from random import Random

    drawn = set()
    for seed in range(200):
        chosen = limits.draw_limits(Random(seed))
        config = limits.apply_limits(chosen, "n", {"listen": "127.0.0.1:0"})
        drawn |= {f"{table}.{key}" for table, keys in chosen.items() for key in keys}
        assert config.limits.silent_s > config.omen.period_ms * config.omen.silence_max / 1_000
    assert len(drawn) > 40


def test_a_failing_seed_leaves_its_history_and_says_how_to_replay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defect is put in: a node that hands over every message twice."""
    from trellis.live.door import Door

    deliver = Door.deliver
    monkeypatch.setattr(Door, "deliver", lambda self, effect: (deliver(self, effect), deliver(self, effect)))
    words = [
        "--nodes-max",
        "2",
        "--clients",
        "4",
        "--span",
        "5",
        "--seeds",
        "1",
        "--seed",
        "3",
        "-o",
        str(tmp_path / "o"),
    ]
    assert run(["simulate", "mesh", "--check", *words]) == 1
    told = capsys.readouterr().out
    assert "2 times" in told
    assert "trellis simulate mesh --check --nodes-max 2 --clients 4 --span 5 --seeds 1 --seed 3" in told
    assert run(["judge", str(tmp_path / "o" / "seed-3" / "history.jsonl"), "--json"]) == 1
    assert "twice" in {one["kind"] for one in json.loads(capsys.readouterr().out)["violations"]}


def test_a_lost_acknowledged_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is put in: a node that forgets one message in ten on its way to clients."""
    from trellis.live.door import Door

    deliver, count = Door.deliver, [0]

    def forgets(self: Door, effect: object) -> None:
        count[0] += 1
        if count[0] % 10:
            deliver(self, effect)  # type: ignore[arg-type]

    monkeypatch.setattr(Door, "deliver", forgets)
    results = [run_trial(seed, SMALL) for seed in (3, 5)]
    assert any("did not get" in text for one in results for text in one.failures)


def test_situations_that_a_campaign_must_reach_are_those_that_the_source_names() -> None:
    named = {
        text
        for path in (Path(__file__).parents[2] / "src" / "trellis").rglob("*.py")
        if path.name != "reached.py"
        for text in re.findall(r'\breached\(\s*"([^"]+)"\s*\)', path.read_text("utf-8"))
    }
    assert named == set(SITUATIONS)
