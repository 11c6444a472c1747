"""Cases that people give: whatever cannot be run is told in one line, and short spans have what every seed has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trellis.cli.main import run
from trellis.judge import History
from trellis.judge.history import Up
from trellis.simulate.mesh.campaign import STATE
from trellis.simulate.mesh.corpus import Case
from trellis.simulate.mesh.draw import ALWAYS, KINDS, MeshPlan
from trellis.simulate.mesh.seeds import Checker
from trellis.simulate.mesh.trial import LACKS, Trial, run_trial
from trellis.simulate.schedule import Fault, Schedule

CHECK = ["simulate", "mesh", "--check", "--nodes-max", "1", "--clients", "1", "--span", "1", "--seeds", "1"]
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no node": ({"kind": "crash", "nodes": []}, "a crash of no node"),
    "unknown kind": ({"kind": "explode", "nodes": ["n0"]}, '"explode" is no kind of fault'),
    "unknown node": ({"kind": "crash", "nodes": ["n99"]}, '"n99", which the mesh of this seed has not'),
    "unknown peer": ({"kind": "slow", "nodes": ["n0"], "peers": ["n7"]}, '"n7", which the mesh of this seed has not'),
    "no peer": ({"kind": "one-way", "nodes": ["n0"]}, "a one-way of n0 without peers"),
    "no broker": ({"kind": "broker-crash", "nodes": ["n0"]}, '"n0", which the mesh of this seed has not'),
    "before the start": ({"time_ms": -5, "kind": "crash", "nodes": ["n0"]}, "a crash at -5 ms"),
    "negative": ({"kind": "slow", "nodes": ["n0"], "peers": ["c0"], "value": -4.0}, "a slow of -4"),
    "no probability": ({"kind": "lossy", "nodes": ["n0"], "peers": ["c0"], "value": 4.0}, "a lossy of 4"),
}
LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"delivery": {"window_ms": "soon"}}, "limits.delivery: Expected `int`, got `str`"),
    "negative": ({"delivery": {"window_ms": -1}}, "limits.delivery: window_ms is -1"),
    "unknown key": ({"limits": {"nonsense": 3}}, 'the simulator draws no limit "limits.nonsense"'),
    "unknown table": ({"nonsense": {"x": 3}}, 'limits has no table "nonsense"'),
}


def refused(words: list[str], told: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert str(file) in line
    assert told in line


@pytest.mark.parametrize("name", BROKEN)
def test_a_case_with_a_fault_that_its_mesh_cannot_have_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, told = BROKEN[name]
    case, corpus = tmp_path / "case.json", tmp_path / "corpus.json"
    given = {"seed": 1, "faults": [{"time_ms": 20_000, **fault}]}
    case.write_text(json.dumps(given))
    refused([*CHECK, "--case", str(case)], told, case, capsys)
    corpus.write_text(json.dumps([{"case": given, "holds": ["x"]}]))
    refused([*CHECK, "--campaign", str(tmp_path / "new"), "--corpus", str(corpus)], told, corpus, capsys)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", LIMITS)
def test_a_case_with_limits_that_no_node_takes_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, told = LIMITS[name]
    case = tmp_path / "case.json"
    case.write_text(json.dumps({"seed": 1, "limits": limits}))
    refused([*CHECK, "--case", str(case)], told, case, capsys)


def test_files_that_are_nested_without_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = '{"x":' + "[" * 100_000
    state, file = tmp_path / "campaign" / STATE, tmp_path / "deep.json"
    state.parent.mkdir()
    state.write_text(deep)
    file.write_text(deep)
    refused([*CHECK, "--campaign", str(state.parent)], "this is no campaign", state, capsys)
    refused([*CHECK, "--case", str(file)], "this is no case", file, capsys)
    refused([*CHECK, "--campaign", str(tmp_path / "new"), "--corpus", str(file)], "this is no corpus", file, capsys)


def test_a_campaign_whose_file_has_a_broken_case_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*CHECK, "--campaign", str(tmp_path)]
    assert run(words) in (0, 1)
    state = tmp_path / STATE
    kept = json.loads(state.read_text())
    kept["planned"] = [{"seed": 1, "faults": [{"time_ms": 20_000, "kind": "explode", "nodes": ["n0"]}]}]
    state.write_text(json.dumps(kept))
    capsys.readouterr()
    refused([*words, "--seeds", "2"], '"explode" is no kind of fault', state, capsys)


def test_every_kind_of_fault_is_drawn_for_hosts_that_its_mesh_has(tmp_path: Path) -> None:
    """What a seed draws can be given as a case."""
    from trellis.simulate.mesh.checked import check_case

    plan = MeshPlan(span_s=1.0)
    for seed in range(2 * len(KINDS)):
        faults = Trial(seed, plan, None, None).schedule.faults
        check_case(Case(seed, faults), plan, "drawn")


@pytest.mark.parametrize("span_s", [1.0, 2.0, 5.0])
def test_every_seed_of_a_short_span_draws_a_crash_and_a_partition(span_s: float) -> None:
    plan = MeshPlan(span_s=span_s)
    for seed in range(1, 60):
        kinds = {one.kind for one in Trial(seed, plan, None, None).schedule.faults}
        assert set(ALWAYS) <= kinds, f"seed {seed}"


def test_a_crash_that_finds_no_node_happens_when_everything_heals() -> None:
    plan = MeshPlan(nodes_max=1, clients=1, span_s=1.0, quiet_s=30.0)
    stop = Fault(20_000, "freeze", ("n0",), duration_ms=9_000)
    result = run_trial(1, plan, Schedule((stop, Fault(20_500, "crash", ("n0",), duration_ms=4_000))))
    assert result.injected["crash"] == 1
    assert result.failures == []


def test_a_failure_that_a_case_cannot_show_is_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case names its faults. That the draw has no crash shows only when the seed is drawn again."""
    result = run_trial(1, MeshPlan(nodes_max=1, clients=1, span_s=1.0, quiet_s=30.0))
    result.failures = [f"{LACKS}crash"]
    monkeypatch.setattr("trellis.simulate.mesh.seeds.quiet_trial", lambda case, plan: pytest.fail("it is run again"))
    failure = Checker(MeshPlan()).failure(Case(1), result, 0)
    assert failure.shrunk is None
    assert not any("faults alone" in line or "smallest" in line for line in failure.lines())


@pytest.mark.parametrize(("period_ms", "longest_s"), [(500, 13.0), (1_500, 39.0)])
def test_a_node_that_has_just_started_may_still_join_at_the_end(period_ms: int, longest_s: float) -> None:
    """OMen waits 20 periods for the view of a joiner at most, and a join takes some more."""
    trial = Trial(1, MeshPlan(), None, {"omen": {"period_ms": period_ms}})
    ends_s = trial.world.now_s
    assert trial._may_join("n0", History([Up(ends_s - longest_s + 0.1, "n0")]))
    assert not trial._may_join("n0", History([Up(ends_s - longest_s - 0.1, "n0")]))
