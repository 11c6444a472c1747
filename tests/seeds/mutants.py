"""How many seeds does it take until a defect is found? `python -m seeds.mutants NAME --seeds 500`, from tests/.

A mutant counts as found by a failure of a kind that the code without it does not show for the same seed.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from seeds.mesh_mutants import MUTANTS
from trellis.judge.verdict import KINDS
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.trial import Trial, TrialResult, run_trial

PLAN = MeshPlan(nodes_max=4, clients=5, form_s=17.0, span_s=30.0, quiet_s=32.0, crash_gap_s=8.0)


@dataclass(frozen=True)
class Found:
    """A mutant, and the first seed at which it showed itself."""

    mutant: str
    seeds: int  # that were run, the last one of them found it
    seed: int
    kind: str  # the judge's rule, or what else went wrong
    text: str


def find(mutant: str, *, seeds: int, first: int = 1, plan: MeshPlan = PLAN, only: Sequence[str] = ()) -> Found | None:
    """Return where `mutant` is found first, or None if none of the seeds finds it.

    `only`: seeds without a fault of these kinds are counted and not run. That saves time where nothing else can show
    the mutant.
    """
    for count, seed in enumerate(range(first, first + seeds), 1):
        if only and not any(one.kind in only for one in Trial(seed, plan, None, None).schedule.faults):
            continue
        mutated = run_mutant(mutant, seed, plan)
        if mutated.holds:
            continue
        known = {kind for kind, _ in _kinds(run_trial(seed, plan))}
        for kind, text in _kinds(mutated):
            if kind not in known:
                return Found(mutant, count, seed, kind, text)
    return None


def run_mutant(mutant: str, seed: int, plan: MeshPlan) -> TrialResult:
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[mutant](patch)
        return run_trial(seed, plan)


def _kinds(result: TrialResult) -> Iterator[tuple[str, str]]:
    """Yield for each failure what kind it is of: a rule of the judge, or what a process did."""
    for text in result.failures:
        rule = text.partition(":")[0]
        yield rule if rule in KINDS else re.sub(r"\w*\d\w*|0x\w+", "?", text)[:60], text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="NAME", help=f"of {', '.join(MUTANTS)}; all if none is given")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--only", default="", help="kinds of faults, with commas: seeds without them are not run")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for name in chosen.mutants or MUTANTS:
        found = find(name, seeds=chosen.seeds, first=chosen.seed, only=[one for one in chosen.only.split(",") if one])
        if found is None:
            print(f"{name}: not found in {chosen.seeds} seeds", flush=True)  # noqa: T201
        else:
            print(f"{name}: {found.seeds} seeds, {found.kind}: {found.text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
