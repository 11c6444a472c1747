"""Does varying the corpus find defects sooner than drawing at random? `python -m seeds.guided MUTANT...`, from tests/.

A corpus is gathered on the code as it is. Then each mutant is looked for by campaigns that vary that corpus, and by
campaigns that only draw, with the same numbers of trials and the same seeds of campaigns.
"""

from __future__ import annotations

import argparse
import logging

import pytest

from seeds.mesh_mutants import MUTANTS
from trellis.simulate.mesh import campaign as campaigns
from trellis.simulate.mesh.campaign import Campaign
from trellis.simulate.mesh.corpus import Entry, run_case
from trellis.simulate.mesh.draw import MeshPlan

PLAN = MeshPlan(nodes_max=3, clients=5, form_s=17.0, span_s=12.0, quiet_s=18.0, crash_gap_s=5.0)


def trials_until_found(mutant: str, first_seed: int, corpus: list[Entry], most: int, *, is_guided: bool) -> int | None:
    """Return how many trials a campaign needed, or None if `most` were not enough."""
    campaign = Campaign(PLAN, first_seed, list(corpus), is_guided=is_guided)
    while campaign.summary.seeds < most:
        before = len(campaign.summary.failures)
        with pytest.MonkeyPatch.context() as patch:
            MUTANTS[mutant](patch)
            campaign.run(campaign.summary.seeds + 1, shrink_runs_max=0)
        for failure in campaign.summary.failures[before:]:
            if run_case(failure.case, PLAN).holds:
                return campaign.summary.seeds
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="+", choices=list(MUTANTS), metavar="MUTANT")
    parser.add_argument("--gather", type=int, default=100, help="trials for the corpus")
    parser.add_argument("--most", type=int, default=60, help="trials of one campaign")
    parser.add_argument("--campaigns", type=int, default=5)
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    campaigns.BATCH = 4
    first = Campaign(PLAN, 1)
    first.run(chosen.gather, shrink_runs_max=0)
    entries = first.corpus.entries
    print(f"corpus: {len(entries)} cases of {chosen.gather} trials", flush=True)  # noqa: T201
    for mutant in chosen.mutants:
        for is_guided in (False, True):
            found = [
                trials_until_found(mutant, 10_000 * number, entries, chosen.most, is_guided=is_guided)
                for number in range(1, chosen.campaigns + 1)
            ]
            print(mutant, "guided" if is_guided else "random", found, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
