"""Whole nodes and real clients under faults: every promise holds in every seed, and a seed is one run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.judge.history import Connected
from trellis.simulate.mesh import checked, limits
from trellis.simulate.mesh.draw import ALWAYS, KINDS, MeshPlan, draw_faults
from trellis.simulate.mesh.hostile import HOSTILE
from trellis.simulate.mesh.inject import Injector
from trellis.simulate.mesh.natives import Habits
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.seeds import check_mesh
from trellis.simulate.mesh.trial import RESTART, Trial, run_trial
from trellis.simulate.schedule import Fault, Schedule

SMALL = MeshPlan(nodes_max=4, clients=6, span_s=15.0, quiet_s=35.0, crash_gap_s=8.0)
SHORT = MeshPlan(nodes_max=3, clients=6, form_s=17.0, span_s=8.0, quiet_s=10.0, crash_gap_s=5.0)


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


RUN_SEEDS = """
import sys
from pathlib import Path
from seeds.test_mesh import SHORT
from trellis.judge import write_history
from trellis.simulate.mesh.trial import run_trial
for seed in map(int, sys.argv[2:]):
    result = run_trial(seed, SHORT)
    write_history(result.history, Path(sys.argv[1]) / f"{seed}.jsonl")
    Path(sys.argv[1], f"{seed}.digest").write_text(result.digest)
"""


def test_two_interpreters_with_other_hash_seeds_write_the_same_history_byte_for_byte(tmp_path: Path) -> None:
    """The seeds: several nodes, sidecars with brokers, and a hostile peer or client."""
    seeds = [
        _first_seed(lambda one: len(one.names) > 2),
        _first_seed(lambda one: bool(one.sites)),
        _first_seed(lambda one: any(fault.kind in HOSTILE for fault in one.schedule.faults)),
    ]
    running = []
    for hash_seed in ("1", "2"):
        (tmp_path / hash_seed).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", RUN_SEEDS, str(tmp_path / hash_seed), *seeds]
        running.append(subprocess.Popen(words, env=environment))
    try:
        assert [one.wait(300) for one in running] == [0, 0]
    finally:
        for one in running:
            one.kill()
    for seed in seeds:
        for name in (f"{seed}.jsonl", f"{seed}.digest"):
            first, second = ((tmp_path / hash_seed / name).read_bytes() for hash_seed in ("1", "2"))
            assert first == second, name
        assert (tmp_path / "1" / f"{seed}.jsonl").stat().st_size > 1_000, seed


def _first_seed(is_wanted: Callable[[Trial], bool]) -> str:
    """Return the first seed that is wanted, without thousands of topics: those take long."""
    for seed in range(1, 200):
        trial = Trial(seed, SHORT, None, None)
        if is_wanted(trial) and all(one.kind != "many-topics" for one in trial.schedule.faults):
            return str(seed)
    raise AssertionError("no seed has that")


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


def test_some_brokers_hear_nothing_of_their_sidecars_until_their_connection_ends() -> None:
    """Only then do sidecars and brokers have much to send again."""
    found = 0
    for seed in range(1, 101):
        faults = draw_faults(SMALL, ["n0", "n1"], ["c0"], seed, {"b0": "n1"}).faults
        ends = {(one.kind, one.time_ms) for one in faults if (one.nodes, one.peers) == (("n1",), ("b0",))}
        found += any(("reset", time_ms + 3_900) in ends for kind, time_ms in ends if kind == "one-way")
    assert 20 < found < 60


def test_limits_that_are_drawn_make_a_valid_configuration() -> None:
    from random import Random

    drawn = set()
    for seed in range(200):
        chosen = limits.draw_limits(Random(seed))
        config = limits.apply_limits(chosen, "n", {"listen": "127.0.0.1:0"})
        drawn |= {f"{table}.{key}" for table, keys in chosen.items() for key in keys}
        assert config.limits.silent_s > config.omen.period_ms * config.omen.silence_max / 1_000
    assert len(drawn) > 40
    assert {"delivery.copies", "limits.topics_max", "mqtt.suback_s", "mqtt.packet_bytes_max"} <= drawn


NOT_DRAWN = {
    "mqtt.broker_session_s",  # the simulated broker keeps sessions for good
    # Clients publish with QoS 2 and whole histories. With less they would be refused from their first message on.
    "mqtt.payload_bytes_max",
    "mqtt.qos_max",
}


def test_every_limit_and_time_out_of_the_tables_is_drawn() -> None:
    """OMen's own numbers apart, of which docs/simulator.md says why."""
    for table, config in checked.CONFIGS.items():
        if table == "omen":
            continue
        default = config()
        fields = {field: getattr(default, field) for field in config.__struct_fields__}
        numbers = {field for field, value in fields.items() if type(value) in (int, float)}
        numbers -= {key.partition(".")[2] for key in NOT_DRAWN if key.startswith(f"{table}.")}
        assert numbers == set(limits.TABLES[table])
        for key, values in limits.TABLES[table].items():
            for value in values:
                checked.check_limits({table: {key: value}}, "here")


def test_limits_that_were_drawn_first_stay_what_they_were() -> None:
    from random import Random

    chosen = limits.draw_limits(Random(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MORE", {})
        fewer = limits.draw_limits(Random(1))
    assert any(chosen[table].keys() - fewer[table].keys() for table in chosen)
    for table, keys in fewer.items():
        assert {key: chosen[table][key] for key in keys} == keys


def test_limits_that_attackers_use_up_are_left_out_where_there_are_attackers() -> None:
    given = {"limits": {"clients_max": 2, "silent_s": 6.0}, "mqtt": {"clients_max": 2, "sessions_max": 3}}
    for kind, left in (("crowd", {"limits": {"silent_s": 6.0}, "mqtt": {}}), ("crash", given)):
        schedule = Schedule((Fault(21_000, kind, ("n0",), duration_ms=1_000),))
        trial = Trial(1, MeshPlan(nodes_max=2, clients=1, sites=0.0, lies=0.0), schedule, given)
        assert trial.limits == left
        assert trial._promise().clients_max == ({} if kind == "crowd" else {"native": 2, "mqtt": 2})
        assert trial._promise().sessions_max == (None if kind == "crowd" else 3)


def test_the_judge_follows_the_limits_of_a_seed() -> None:
    trial = Trial(1, SMALL, None, {"delivery": {"copies": 3, "window_ms": 30_000, "registered_ms": 10_000}})
    promise = trial._promise()
    assert (promise.copies, promise.window_s, promise.registered_s) == (3, 30.0, 10.0)


def test_limits_of_which_clients_of_brokers_are_not_told_are_left_out_where_there_are_brokers() -> None:
    given = {"limits": {"topics_max": 4, "silent_s": 6.0}}
    for sites, left in ((1.0, {"silent_s": 6.0}), (0.0, given["limits"])):
        plan = MeshPlan(nodes_max=2, clients=1, sites=sites, lies=0.0)
        assert Trial(1, plan, None, given).limits["limits"] == left


def test_a_failing_seed_leaves_its_history_and_says_how_to_replay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defect is put in: a node that hands over every message twice."""
    from trellis.live.client_port import ClientPort

    deliver = ClientPort.deliver
    monkeypatch.setattr(ClientPort, "deliver", lambda self, effect: (deliver(self, effect), deliver(self, effect)))
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
    assert "smallest schedule that still fails so: no fault is needed" in told
    (again,) = re.findall("replay with these faults alone: trellis (.+)", told)
    assert run(again.split()) == 1
    assert "2 times" in capsys.readouterr().out
    assert f"trellis judge {tmp_path}/o/seed-3/history.jsonl" in told
    assert run(["judge", str(tmp_path / "o" / "seed-3" / "history.jsonl"), "--json"]) == 1
    assert "twice" in {one["kind"] for one in json.loads(capsys.readouterr().out)["violations"]}


def test_a_lost_acknowledged_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is put in: a node that forgets one message in ten on its way to clients."""
    from trellis.live.client_port import ClientPort

    deliver, count = ClientPort.deliver, [0]

    def forgets(self: ClientPort, effect: object) -> None:
        count[0] += 1
        if count[0] % 10:
            deliver(self, effect)  # type: ignore[arg-type]

    monkeypatch.setattr(ClientPort, "deliver", forgets)
    results = [run_trial(seed, SMALL) for seed in (3, 5)]
    assert any("did not get" in text for one in results for text in one.failures)


def test_an_acknowledgement_before_there_are_copies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is put in: a node acknowledges what it alone holds, although others subscribe."""
    from trellis.protocols.delivery.copies import Copies

    monkeypatch.setattr(Copies, "_look_at", Copies._acknowledge)
    results = (run_trial(seed, SMALL) for seed in range(1, 9))
    assert any(text.startswith("copies: ") for one in results for text in one.failures)


def test_clients_of_a_seed_say_which_protocol_they_speak() -> None:
    events = run_trial(1, SHORT).history.events
    assert {one.speaks for one in events if isinstance(one, Connected)} == {"native", "mqtt"}


def test_situations_that_a_campaign_must_reach_are_those_that_the_source_names() -> None:
    named = {
        text
        for path in (Path(__file__).parents[2] / "src" / "trellis").rglob("*.py")
        if path.name != "reached.py"
        for text in re.findall(r'\breached\(\s*"([^"]+)"\s*\)', path.read_text("utf-8"))
    }
    assert named == set(SITUATIONS)
