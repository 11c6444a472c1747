"""Does varying the corpus find defects more often than drawing at random? `python -m seeds.guided MUTANT`, from tests/.

A corpus is gathered on the code as it is. Then as many trials are run with the mutant of each sort: drawn at random,
the cases of the corpus as they are, and variations of them. What counts is the share of the trials that find it.
"""

from __future__ import annotations

import argparse
import logging
from random import Random

import pytest

from seeds.mesh_mutants import MUTANTS
from trellis.simulate.mesh.corpus import Case, Corpus, features_of, run_case
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.trial import Trial
from trellis.simulate.mesh.vary import vary

PLAN = MeshPlan()


def gather(trials: int) -> Corpus:
    """Return the corpus of a campaign that only draws."""
    corpus = Corpus()
    for seed in range(1, trials + 1):
        corpus.add(Case(seed), features_of(run_case(Case(seed), PLAN)))
    return corpus


def variations(corpus: Corpus, count: int) -> list[Case]:
    random, entries, weights = Random(5), corpus.entries, corpus.weights()
    pairs = [random.choices(entries, weights, k=2) for _ in range(count)]
    return [vary(one.case, other.case, PLAN, random) for one, other in pairs]


def finds(mutant: str, case: Case, only: str) -> bool:
    """Tell whether the case fails with the mutant alone. A case without a fault of the kind `only` is not run."""
    faults = case.faults if case.faults is not None else Trial(case.seed, PLAN, None, None).schedule.faults
    if only and all(one.kind != only for one in faults):
        return False
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[mutant](patch)
        holds = run_case(case, PLAN).holds
    return not holds and run_case(case, PLAN).holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutant", choices=list(MUTANTS), metavar="MUTANT")
    parser.add_argument("--only", default="", help="a kind of fault: cases without it are counted and not run")
    parser.add_argument("--gather", type=int, default=200, help="trials for the corpus")
    parser.add_argument("--trials", type=int, default=160, help="of each sort")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    corpus = gather(chosen.gather)
    sorts = {
        "drawn": [Case(seed) for seed in range(10_001, 10_001 + chosen.trials)],
        "corpus": [one.case for one in corpus.entries],
        "varied": variations(corpus, chosen.trials),
    }
    for name, cases in sorts.items():
        found = sum(finds(chosen.mutant, one, chosen.only) for one in cases)
        print(f"{chosen.mutant}, {name}: {found} of {len(cases)} trials", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
