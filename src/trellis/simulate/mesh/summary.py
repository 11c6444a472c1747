"""What many trials of whole nodes showed. Plain data: a campaign keeps it in a file and goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trellis.simulate.mesh.corpus import Case
from trellis.simulate.mesh.draw import KINDS
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.trial import TrialResult
from trellis.simulate.schedule import Fault

_ENOUGH = 400  # seeds after which every situation must have been reached
_TOLD_MAX = 20  # failures of one trial that are kept


class Failure(msgspec.Struct, frozen=True):
    """A trial that does not hold."""

    case: Case
    what: tuple[str, ...]  # why, the first few
    count: int  # of all
    faults: int
    replay: str  # the command that runs it again
    shrunk: tuple[Fault, ...] | None = None  # the smallest schedule found that still fails; None: not tried


class MeshSummary(msgspec.Struct):
    """What `trellis simulate mesh --check` says at its end."""

    first_seed: int
    seeds: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)
    injected: dict[str, int] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    virtual_s: float = 0.0
    digests: list[str] = msgspec.field(default_factory=list)

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
        self.digests.append(result.digest)

    @property
    def never(self) -> list[str]:
        """Situations that no seed reached, after `_ENOUGH` seeds. Fewer seeds say nothing."""
        return [one for one in SITUATIONS if not self.reached.get(one)] if self.seeds >= _ENOUGH else []

    @property
    def missing(self) -> list[str]:
        """Kinds of faults that took effect in no seed, although there were as many seeds as kinds."""
        return [kind for kind in KINDS if not self.injected.get(kind)] if self.seeds >= len(KINDS) else []

    @property
    def holds(self) -> bool:
        """Whether every seed holds. Where nothing was published there was nothing to hold."""
        return not self.failures and not self.never and not self.missing and self.counts.get("published", 0) > 0

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
            "reached": {one: self.reached.get(one, 0) for one in SITUATIONS},
            "never_reached": self.never,
            "virtual_s": round(self.virtual_s, 3),
            "digests": self.digests,
        }

    def lines(self) -> Iterator[str]:
        """Return sentences for people. The last one sums up."""
        for one in self.failures:
            varied = "" if one.case.is_drawn else ", varied"
            yield f"seed {one.case.seed}{varied}: {one.count} failures"
            yield from (f"  {text}" for text in one.what[:5])
            yield f"  replay: {one.replay}"
            if one.shrunk is not None:
                yield f"  {len(one.shrunk)} of {one.faults} faults are enough:"
                yield from (f"    {_words(fault)}" for fault in one.shrunk)
        yield "injected: " + ", ".join(f"{kind} {self.injected.get(kind, 0):,}" for kind in KINDS)
        yield "reached: " + ", ".join(f"{one} {self.reached.get(one, 0):,}" for one in SITUATIONS)
        yield from (f"{kind} took effect in no seed: raise --seeds" for kind in self.missing)
        yield from (f'"{one}" was never reached: raise --seeds, or make it more likely' for one in self.never)
        sums = ", ".join(f"{self.counts.get(one, 0):,} {one}" for one in ("sessions", "published", "acknowledged"))
        sums += f", {self.counts.get('refused', 0):,} refused, {self.counts.get('owed', 0):,} deliveries owed"
        yield f"{sums}, {self.virtual_s:,.0f} virtual seconds"
        yield self.verdict()

    def verdict(self) -> str:
        """Return one sentence."""
        return f"mesh: seeds {self.first_seed}..{self.first_seed + self.seeds - 1}: {self._verdict()}"

    def _verdict(self) -> str:
        if self.holds:
            return "all hold"
        if self.failures:
            return f"{len(self.failures):,} fail"
        if not self.counts.get("published", 0):
            return "nothing was published, so nothing was checked: give more clients, nodes or seeds, or a longer span"
        return "not all was reached"


def failed(result: TrialResult, case: Case, replay: str, shrunk: tuple[Fault, ...] | None) -> Failure:
    """Return what is kept of a result that does not hold."""
    what = tuple(result.failures[:_TOLD_MAX])
    return Failure(case, what, len(result.failures), len(result.schedule.faults), replay, shrunk)


def _words(fault: Fault) -> str:
    to = f" to {','.join(fault.peers)}" if fault.peers else ""
    lasts = f" for {fault.duration_ms} ms" if fault.duration_ms else ""
    return f"{fault.time_ms / 1000:9.3f} s  {fault.kind} {','.join(fault.nodes)}{to}{lasts}"
