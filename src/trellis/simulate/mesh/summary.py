"""Sum up many trials of whole nodes. A summary is plain data, so a campaign can keep it in a file and continue it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trellis.judge.verdict import KINDS as RULES
from trellis.simulate.mesh.corpus import Case
from trellis.simulate.mesh.draw import KINDS
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.trial import TrialResult
from trellis.simulate.schedule import Fault

_ENOUGH = 500  # seeds after which every situation must have been reached
_OWING = 20  # number of seeds of which at least one must owe a delivery
_TOLD_MAX = 20  # most failures of one trial that are kept
_SHOWN = 5  # how many of them are shown


class Failure(msgspec.Struct, frozen=True):
    """A failed trial."""

    case: Case
    what: tuple[str, ...]  # the first few failures
    count: int  # number of all failures
    # Number of faults in its schedule.
    faults: int
    replay: str  # command that runs it again
    # smallest schedule found that still fails in the same way; None if none was searched for
    shrunk: tuple[Fault, ...] | None = None
    folder: str = ""  # folder with its history
    replay_shrunk: str = ""  # command that runs the smallest schedule; empty without a folder

    def lines(self) -> Iterator[str]:
        """Yield lines for people: what failed, how to run it again, and where to look."""
        varied = "" if self.case.is_drawn else ", varied"
        yield f"seed {self.case.seed}{varied}: {self.count} failures"
        yield from (f"  {text}" for text in self.what[:_SHOWN])
        if self.count > _SHOWN:
            yield f"  and {self.count - _SHOWN:,} more"
        yield f"  replay: {self.replay}"
        if self.shrunk is not None:
            enough = f"{len(self.shrunk)} of {self.faults} faults are enough:" if self.shrunk else "no fault is needed"
            yield f"  smallest schedule that still fails so: {enough}"
            yield from (f"    {_words(fault)}" for fault in self.shrunk)
        if self.replay_shrunk:
            yield f"  replay with these faults alone: {self.replay_shrunk}"
        if self.folder:
            yield f"  what clients saw: trellis judge {shlex.quote(f'{self.folder}/history.jsonl')}"
        else:
            yield "  replay with -o DIR to keep what clients saw"


class MeshSummary(msgspec.Struct):
    """The summary that `trellis simulate mesh --check` prints at its end."""

    first_seed: int
    seeds: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)
    injected: dict[str, int] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    virtual_s: float = 0.0
    digests: list[str] = msgspec.field(default_factory=list)
    idle: int = 0  # seeds in which no delivery was owed

    def add(self, result: TrialResult) -> None:
        self.seeds += 1
        for mine, more in (
            (self.injected, result.injected),
            (self.counts, result.counts),
            (self.reached, result.reached),
        ):
            for key, count in more.items():
                mine[key] = mine.get(key, 0) + count
        self.virtual_s += result.seconds
        self.idle += not result.counts.get("owed", 0)
        self.digests.append(result.digest)

    @property
    def never(self) -> list[str]:
        """Return situations that no seed reached. With fewer than `_ENOUGH` seeds there are none."""
        return [one for one in SITUATIONS if not self.reached.get(one)] if self.seeds >= _ENOUGH else []

    @property
    def missing(self) -> list[str]:
        """Return kinds of faults that took effect in no seed, although there were at least as many seeds as kinds."""
        return [kind for kind in KINDS if not self.injected.get(kind)] if self.seeds >= len(KINDS) else []

    @property
    def owes_nothing(self) -> bool:
        """Return whether no delivery was owed, although there were enough seeds. Then no loss could have been found."""
        return self.seeds >= _OWING and not self.counts.get("owed", 0)

    @property
    def holds(self) -> bool:
        """Return whether no seed failed and the check was able to find failures."""
        is_whole = not self.failures and not self.never and not self.missing
        return is_whole and not self.owes_nothing and self.counts.get("published", 0) > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "holds": self.holds,
            "failures": [
                {
                    "seed": one.case.seed,
                    "what": list(one.what),
                    "replay": one.replay,
                    "faults": one.faults,
                    "faults_shrunk": None if one.shrunk is None else len(one.shrunk),
                }
                for one in self.failures
            ],
            "injected": dict(sorted(self.injected.items())),
            "counts": dict(sorted(self.counts.items())),
            "seeds_that_owed_nothing": self.idle,
            "reached": {one: self.reached.get(one, 0) for one in SITUATIONS},
            "never_reached": self.never,
            "virtual_s": round(self.virtual_s, 3),
            "digests": self.digests,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people to read. The last one is the verdict."""
        for one in self.failures:
            yield from one.lines()
        yield from _counted("injected", "injected in no seed", KINDS, self.injected)
        yield from _counted("reached", "not reached", SITUATIONS, self.reached)
        yield from (f"{kind} took effect in no seed: raise --seeds" for kind in self.missing)
        yield from (f'"{one}" was never reached: raise --seeds, or make it more likely' for one in self.never)
        sums = ", ".join(f"{self.counts.get(one, 0):,} {one}" for one in ("sessions", "published", "acknowledged"))
        yield f"{sums}, {self.counts.get('refused', 0):,} refused, {self.virtual_s:,.0f} virtual seconds"
        yield f"{self.counts.get('owed', 0):,} deliveries owed; none in {self.idle:,} of {self.seeds:,} seeds"
        yield self.verdict()

    def verdict(self) -> str:
        """Return the verdict as one sentence."""
        return f"mesh: seeds {self.first_seed}..{self.first_seed + self.seeds - 1}: {self._verdict()}"

    def _verdict(self) -> str:
        if self.holds:
            return "all hold"
        if self.failures:
            return f"{len(self.failures):,} fail"
        if not self.counts.get("published", 0):
            return "nothing was published, so nothing was checked: give more clients, nodes or seeds, or a longer span"
        if self.owes_nothing:
            return "no delivery was owed, so no loss could be found: give more clients or a longer span"
        return "not all was reached"


def _counted(some: str, none: str, names: Sequence[str], counts: Mapping[str, int]) -> Iterator[str]:
    """Yield one line for the names that were counted, and one for those that were not."""
    if found := [f"{one} {counts[one]:,}" for one in names if counts.get(one)]:
        yield f"{some}: {', '.join(found)}"
    if rest := [one for one in names if not counts.get(one)]:
        yield f"{none}: {', '.join(rest)}"


def kinds_of(failures: Iterable[str]) -> set[str]:
    """Return the kinds of failures: rules of the judge, or texts of other failures without names and numbers."""
    rules = ((text.partition(":")[0], text) for text in failures)
    return {rule if rule in RULES else re.sub(r"\w*\d\w*", "?", text)[:60] for rule, text in rules}


def failed(
    result: TrialResult,
    case: Case,
    replay: str,
    shrunk: tuple[Fault, ...] | None,
    folder: str = "",
    replay_shrunk: str = "",
) -> Failure:
    """Return what is kept of a failed result."""
    what, faults = tuple(result.failures[:_TOLD_MAX]), len(result.schedule.faults)
    return Failure(case, what, len(result.failures), faults, replay, shrunk, folder, replay_shrunk)


def _words(fault: Fault) -> str:
    to = f" to {','.join(fault.peers)}" if fault.peers else ""
    lasts = f" for {fault.duration_ms} ms" if fault.duration_ms else ""
    return f"{fault.time_ms / 1000:9.3f} s  {fault.kind} {','.join(fault.nodes)}{to}{lasts}"
