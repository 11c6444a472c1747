"""What a check of whole nodes tells people: failures, counts, and commands to go on with."""

from __future__ import annotations

from collections import Counter

import pytest

from trellis.judge import History
from trellis.simulate.mesh.corpus import Case
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.seeds import Checker
from trellis.simulate.mesh.summary import Failure, MeshSummary, kinds_of
from trellis.simulate.mesh.trial import TrialResult
from trellis.simulate.schedule import Fault, Schedule


def test_a_schedule_is_shrunk_to_one_that_fails_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the crash the trial fails, too, but another promise is broken then."""
    crash, pause = Fault(1_000, "crash", ("n0",)), Fault(2_000, "pause", ("n1",), duration_ms=300)

    def told(case: Case, plan: MeshPlan) -> TrialResult:
        faults = case.faults or ()
        failures = ["lost: s did not get m1"] if crash in faults else ["twice: s got m1 2 times"]
        empty: dict[str, int] = {}
        return TrialResult(
            seed=1,
            nodes=2,
            failures=failures,
            digest="",
            schedule=Schedule(faults),
            limits={},
            injected=empty,  # type: ignore[arg-type]
            reached=empty,  # type: ignore[arg-type]
            counts=empty,  # type: ignore[arg-type]
            history=None,  # type: ignore[arg-type]
            seconds=1.0,
        )

    monkeypatch.setattr("trellis.simulate.mesh.seeds.quiet_trial", told)
    case = Case(1, (crash, pause))
    failure = Checker(MeshPlan()).failure(case, told(case, MeshPlan()), 0)
    assert failure.shrunk == (crash,)
    assert "  smallest schedule that still fails so: 1 of 2 faults are enough:" in list(failure.lines())


def test_failures_are_of_one_kind_if_they_differ_in_names_and_numbers_only() -> None:
    assert kinds_of(["lost: c1 at n0", "lost: c2 at n1"]) == {"lost"}
    assert len(kinds_of(["n0 does not run at the end", "n13 does not run at the end"])) == 1
    assert len(kinds_of(["n0 does not run at the end", "n0: 3 handlers raised"])) == 2


def test_a_failure_with_many_reasons_says_how_many_are_not_shown() -> None:
    failure = Failure(Case(7), tuple(f"lost: m{number}" for number in range(20)), 31, 4, "trellis simulate mesh")
    told = list(failure.lines())
    assert told[0] == "seed 7: 31 failures"
    assert "  and 26 more" in told
    assert told[-1] == "  replay with -o DIR to keep what clients saw"


def test_situations_that_were_not_reached_are_told_apart_from_those_that_were() -> None:
    summary = MeshSummary(1, seeds=1, counts={"published": 1}, reached={"a home is not sure": 1_204})
    told = list(summary.lines())
    assert "reached: a home is not sure 1,204" in told
    (missing,) = (line for line in told if line.startswith("not reached: "))
    assert "a gap is skipped, a publication is acknowledged" in missing


def test_a_check_of_many_seeds_that_owes_no_delivery_fails() -> None:
    """It says how much was owed, and in how many seeds nothing was."""
    summary = MeshSummary(1)
    for seed in range(1, 21):
        assert summary.holds or seed == 1
        summary.add(told_by(seed, owed=0))
    assert not summary.holds
    *_, owed, verdict = summary.lines()
    assert owed == "0 deliveries owed; none in 20 of 20 seeds"
    assert "no delivery was owed, so no loss could be found" in verdict
    summary.add(told_by(21, owed=1_234))
    assert summary.holds
    assert "1,234 deliveries owed; none in 20 of 21 seeds" in list(summary.lines())
    assert summary.to_json()["seeds_that_owed_nothing"] == 20


def told_by(seed: int, **counts: int) -> TrialResult:
    """Return what a seed showed that holds."""
    return TrialResult(
        seed=seed,
        nodes=2,
        failures=[],
        digest="",
        schedule=Schedule(),
        limits={},
        injected=Counter(),
        reached=Counter(),
        counts=Counter(published=9, **counts),
        history=History(),
        seconds=1.0,
    )
