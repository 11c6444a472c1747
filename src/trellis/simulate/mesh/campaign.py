"""Run a campaign: many trials over days, which can be interrupted and resumed, and which explore rare cases further.

A campaign that is given a corpus first runs its cases unchanged. They were kept because they are rare, and the code may
have changed since. Then most cases are drawn at random. The others vary cases of the corpus (`corpus.py`, `vary.py`).

A campaign runs in batches. The cases of a batch follow from the campaign's seed, the number of the batch and the corpus
before it. So the results depend neither on the number of processes nor on where the campaign was interrupted. A resumed
campaign first repeats the cases that have failed, because the code may have been corrected since.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trellis import ids
from trellis.errors import InputError
from trellis.simulate.mesh.checked import check_case
from trellis.simulate.mesh.corpus import Case, Corpus, Entry, features_of
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.seeds import COMMAND, SHRINK_RUNS_MAX, Checker
from trellis.simulate.mesh.summary import Failure, MeshSummary
from trellis.simulate.mesh.vary import vary
from trellis.simulate.pool import Progress, until_enough
from trellis.simulate.run import make_folder, write_json

STATE, CORPUS = "campaign.json", "corpus.json"
BATCH = 16  # cases between two writes of the state
_DRAWN_SHARE = 0.75  # share of cases drawn at random: variations of few cases find less (docs/simulator-mutants.md)
_VERSION = 1


class State(msgspec.Struct):
    """The state of a campaign, as its file holds it."""

    plan: MeshPlan
    summary: MeshSummary
    corpus: list[Entry]
    drawn: int = 0  # number of cases that were drawn at random
    # feature -> number of trials that had it
    seen: dict[str, Annotated[int, Meta(ge=1)]] = msgspec.field(default_factory=dict)
    digest: str = ""  # digest over the digests of all trials
    # cases to run next: the given corpus, or the rest of the present batch
    planned: list[Case] = msgspec.field(default_factory=list)
    version: int = _VERSION


class Campaign:
    """A campaign in memory. `resume` and `write` connect it with its folder."""

    def __init__(
        self, plan: MeshPlan, first_seed: int, corpus: list[Entry] | None = None, *, is_guided: bool = True
    ) -> None:
        """Begin a campaign. It keeps the cases of `corpus` that still reach something rare with today's code.

        `is_guided`: if False, all cases are drawn, and cases of the corpus are neither run nor varied.
        """
        self.is_guided = is_guided
        given = [one.case for one in corpus or ()] if is_guided else []
        self.state = State(plan, MeshSummary(first_seed), [], planned=given)
        self.corpus = Corpus()

    @property
    def summary(self) -> MeshSummary:
        return self.state.summary

    # The file

    @classmethod
    def resume(cls, folder: Path, plan: MeshPlan, first_seed: int, corpus: list[Entry] | None = None) -> Campaign:
        """Continue the campaign in `folder`, or begin one there with the cases of `corpus`."""
        path = folder / STATE
        if not path.exists():
            return cls(plan, first_seed, corpus)
        try:
            state = msgspec.json.decode(path.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(str(path), f"this is no campaign ({error})", "name another folder") from error
        if state.version != _VERSION:
            raise InputError(
                str(path), f"this campaign is of version {state.version}, not {_VERSION}", "name a new folder"
            )
        if (state.plan, state.summary.first_seed) != (plan, first_seed):
            raise InputError(
                str(path), "this campaign began with another plan or seed", "repeat its options, or name a new folder"
            )
        for case in (*state.planned, *(one.case for one in state.corpus)):
            check_case(case, plan, f"{path}: case of seed {case.seed}")
        if not all(one.holds and state.seen.keys() >= set(one.holds) for one in state.corpus):
            raise InputError(str(path), "this is no campaign (a case is kept for nothing)", "name another folder")
        campaign = cls(plan, first_seed)
        campaign.state = state
        campaign.corpus = Corpus(list(state.corpus))
        campaign.corpus.seen.clear()
        campaign.corpus.seen.update(state.seen)
        return campaign

    def write(self, folder: Path) -> None:
        """Write the state, and the corpus in a file of its own for other campaigns.

        Each is written completely or not at all.
        """
        state = self.state
        kept: dict[str, Any] = msgspec.to_builtins(state)
        kept["corpus"] = self.corpus.to_json()
        kept["planned"] = [one.to_json() for one in state.planned]
        kept["seen"] = dict(sorted(self.corpus.seen.items()))
        kept["summary"]["failures"] = [_told(one) for one in state.summary.failures]
        write_json(kept, folder / STATE)  # the first file: by it the folder is known as that of a campaign
        self.corpus.write(folder / CORPUS)

    # Trials

    def run(
        self,
        seeds: int,
        *,
        jobs: int = 1,
        folder: Path | None = None,
        failures_max: int | None = None,
        shrink_runs_max: int = SHRINK_RUNS_MAX,
        command: tuple[str, ...] = COMMAND,
        progress: Progress | None = None,
    ) -> MeshSummary:
        """Continue until `seeds` trials are done in all. Write the state before the first batch and after each.

        First repeat the cases that have failed. Those that pass with the present code are no failures any more.
        """
        summary = self.summary
        checker = Checker(self.state.plan, command, folder, shrink_runs_max)
        again = checker.run([one.case for one in summary.failures], jobs)
        summary.failures = [one for one, (_, result) in zip(summary.failures, again, strict=True) if not result.holds]
        if folder is not None:
            self.write(folder)
        while summary.seeds < seeds and not _is_enough(summary, failures_max):
            cases = self._take(seeds - summary.seeds)
            for case, result in until_enough(checker.run(cases, jobs), summary, seeds, None, progress):
                self.corpus.add(case, features_of(result))
                summary.add(result)
                self.state.digest = f"{ids.stream(self.state.digest, result.digest):x}"
                summary.digests.clear()  # There are thousands of them, so only the digest over all is kept.
                if not result.holds:
                    summary.failures.append(checker.failure(case, result, len(summary.failures)))
            if folder is not None:
                self.write(folder)
        return summary

    def _take(self, most: int) -> list[Case]:
        """Return the next cases: from the planned ones, or from a new batch.

        Return at most `most` and at most one batch.
        """
        planned = self.state.planned or [self._next(self.summary.seeds + number) for number in range(BATCH)]
        count = min(most, BATCH)
        self.state.planned = planned[count:]
        return planned[:count]

    def _next(self, number: int) -> Case:
        state, entries = self.state, self.corpus.entries
        random = Random(ids.stream(state.summary.first_seed, "campaign", number))
        if not self.is_guided or not entries or random.random() < _DRAWN_SHARE:
            state.drawn += 1
            return Case(state.summary.first_seed + state.drawn - 1)
        chosen, other = random.choices(entries, self.corpus.weights(), k=2)
        return vary(chosen.case, other.case, state.plan, random)


def open_folder(folder: str | Path) -> Path:
    """Create the folder of a campaign, or reuse that of an earlier one."""
    return make_folder(folder, STATE)


def _told(failure: Failure) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(failure)
    found["case"] = failure.case.to_json()
    return found


def _is_enough(summary: MeshSummary, failures_max: int | None) -> bool:
    return failures_max is not None and len(summary.failures) >= failures_max
