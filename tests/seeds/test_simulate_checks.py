"""Checks over seeds: the same results however they are run, and the checker is proven to catch."""

from __future__ import annotations

import json
from functools import partial

import pytest

from trellis.measure.connectivity import connectivity
from trellis.model import read_interests, read_overlay
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.schedule import Fault, FaultPlan, Schedule, read_schedule
from trellis.simulate.seeds import check_seeds
from trellis.simulate.shrink import shrink
from trellis.simulate.systems.toys import Mesh, Quiet

SMALL = CheckConfig(instance=InstanceDraw(10, 4, 3))


def test_the_mesh_holds_and_every_kind_of_fault_took_effect():
    summary = check_seeds(Mesh, seeds=18, config=SMALL)
    assert list(summary.lines())[-1] == "mesh: seeds 1..18: all hold"
    assert summary.holds
    assert summary.missing == ()
    assert set(summary.injected) == set(FaultPlan().kinds)
    assert summary.totals["repairs"] > 0
    assert summary.totals["connectivity_checks"] >= 18
    assert summary.totals["settled"] == summary.totals["tco"] == 18


def test_one_process_and_two_come_to_the_same_results(tmp_path):
    first, second = (
        check_seeds(Mesh, seeds=4, first_seed=20, config=SMALL, jobs=jobs, folder=tmp_path / str(jobs))
        for jobs in (1, 2)
    )
    assert first.to_json() == second.to_json()
    assert len(set(first.digests)) == 4
    files = sorted(path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*.*"))
    assert len(files) == 4 * 3 + 1
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes(), file


def test_encoding_every_message_changes_no_digest():
    plain = check_seed(Mesh, 7, SMALL)
    encoded = check_seed(Mesh, 7, CheckConfig(instance=InstanceDraw(10, 4, 3), encode=True))
    assert plain == encoded


def test_every_seed_leaves_tables_that_a_check_agrees_on(tmp_path):
    summary = check_seeds(Mesh, seeds=3, config=SMALL, folder=tmp_path / "out")
    for seed in (1, 2, 3):
        folder = tmp_path / "out" / f"seed-{seed}"
        interests = read_interests(folder / "interests.tsv")
        assert connectivity(interests, read_overlay(folder / "overlay.tsv", interests.nodes)).is_tco
        assert read_schedule(folder / "schedule.tsv").faults
    written = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert written == summary.to_json()
    assert written["tco"] == 3


@pytest.mark.parametrize("mutant", ["no-timeout", "no-retry", "one-sided", "forgets-rejoined"])
def test_a_mutant_is_found_and_its_schedule_shrinks(mutant, tmp_path):
    make = partial(Mesh, mutant)
    command = ("trellis", "simulate", "mesh", "a file.tsv", "--check")
    found = check_seeds(make, seeds=40, config=SMALL, failures_max=1, folder=tmp_path / "out", command=command)
    assert not found.holds
    (failure,) = found.failures
    seed = failure.result.seed
    assert failure.replay == f"trellis simulate mesh 'a file.tsv' --check --seeds 1 --seed {seed}"
    # The replay fails in the same way, and so does the smallest schedule, which is smaller than what was drawn.
    again = check_seed(make, seed, SMALL)
    assert again == failure.result
    smallest = read_schedule(tmp_path / "out" / f"seed-{seed}" / "shrunk.tsv")
    assert smallest == failure.shrunk
    assert len(smallest.faults) <= min(2, len(again.happened.faults) - 1)
    assert check_seed(make, seed, SMALL, schedule=smallest).failure is not None
    # It is the mutant's fault, not the schedule's.
    assert check_seed(Mesh, seed, SMALL, schedule=smallest).failure is None


def test_a_failure_says_what_broke_and_how_to_run_it_again():
    found = check_seeds(partial(Mesh, "one-sided"), seeds=1, config=SMALL)
    lines = list(found.lines())
    assert "should be linked to all others" in lines[0]
    assert lines[1] == "  replay: trellis simulate mesh --check --seeds 1 --seed 1"
    assert lines[-1] == "mesh: seeds 1..1: 1 fail"


class Crooked(Mesh):
    """Breaks down in the middle of a run: a finding as well."""

    def check_always(self, world):
        if world.now_ms >= 9000:
            raise KeyError("gone")


def test_a_node_or_a_system_that_breaks_down_is_a_failure_with_its_place():
    result = check_seed(Crooked, 1, SMALL)
    assert result.failure == "KeyError: 'gone'"
    assert "in check_always" in result.details
    assert result.time_ms == 9000


class Restless(Mesh):
    settle_ms_max = 1000


def test_a_system_that_is_not_quiet_in_time_is_a_failure():
    assert "not quiet" in check_seed(Restless, 1, SMALL).failure


class Loose(Mesh):
    """Promises a TCO, but its nodes find nobody."""

    def make_node(self, node, topics, random, world):
        return Quiet(node)

    def check_settled(self, world): ...


def test_an_overlay_that_is_no_tco_is_a_failure_where_one_was_promised():
    assert check_seed(Loose, 1, SMALL).failure.startswith("no TCO: ")


def test_a_promised_kind_that_never_takes_effect_is_a_failure():
    """Nobody is left to leave where all must stay."""
    plan = FaultPlan(kinds=("leave", "loss"), down_share_max=0.0)
    found = check_seeds(Mesh, seeds=3, config=CheckConfig(instance=InstanceDraw(6, 2, 2), plan=plan))
    assert not found.failures
    assert found.missing == ("leave",)
    assert not found.holds
    assert list(found.lines())[-1] == "mesh: seeds 1..3: not all kinds seen"


def test_shrinking_finds_the_two_faults_that_matter_within_its_budget():
    faults = tuple(Fault(time, "leave", (f"n{time}",)) for time in range(20))
    runs = []

    def fails(schedule):
        runs.append(schedule)
        names = {fault.nodes[0] for fault in schedule.faults}
        return {"n3", "n17"} <= names

    smallest, used = shrink(Schedule(faults), fails)
    assert [fault.nodes[0] for fault in smallest.faults] == ["n3", "n17"]
    assert used == len(runs) <= 60
    barely, used = shrink(Schedule(faults), fails, runs_max=5)
    assert used == 5
    assert fails(barely)


def test_shrinking_says_so_when_no_fault_is_needed():
    smallest, used = shrink(Schedule((Fault(1, "leave", ("a",)),)), lambda schedule: True)
    assert (smallest, used) == (Schedule(), 1)
