"""Keep cases that reached something new, so that they can be varied and run again.

A *case* is one trial as data: a seed, and optionally faults and limits that replace those that the seed draws. A case
without them is written as its seed alone, so a corpus stays small enough to commit.

*Features* tell what a trial reached: each kind of fault that took effect, each rare situation with the order of
magnitude of its count, and each kind of trouble or excuse of clients.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.simulate.mesh.draw import KINDS, MeshPlan
from trellis.simulate.mesh.trial import TrialResult, run_trial
from trellis.simulate.schedule import Fault, Schedule

Limits = dict[str, dict[str, Any]]
ENTRIES_MAX = 200
_BASE = 4  # Counts of 1 to 3, 4 to 15, 16 to 63 and so on are one feature each.


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trial. A field that is None is drawn from the seed."""

    seed: int
    faults: tuple[Fault, ...] | None = None
    limits: Limits | None = None

    @property
    def is_drawn(self) -> bool:
        return self.faults is None and self.limits is None

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without the fields that are not given."""
        found: dict[str, Any] = {"seed": self.seed}
        if self.faults is not None:
            found["faults"] = [_short(one) for one in self.faults]
        if self.limits is not None:
            found["limits"] = self.limits
        return found


def _short(fault: Fault) -> dict[str, Any]:
    whole = msgspec.to_builtins(fault)
    return {key: value for key, value in whole.items() if value or key == "time_ms"}


def read_case(path: str | Path) -> Case:
    """Read a case that a campaign has written."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Case)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a case.json of a campaign") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(str(path), f"this is no case ({error})", "name a case.json of a campaign") from error


def run_case(case: Case, plan: MeshPlan) -> TrialResult:
    """Run the trial of a case."""
    schedule = None if case.faults is None else Schedule(case.faults)
    return run_trial(case.seed, plan, schedule, case.limits)


def features_of(result: TrialResult) -> list[str]:
    """Return the features of a trial, in a fixed order."""
    found = [f"fault, {kind}" for kind in KINDS if result.injected[kind]]
    found += [f"{name} x{_magnitude(count)}" for name, count in sorted(result.reached.items())]
    told = [name for name in sorted(result.counts) if name.startswith(("excused, ", "trouble, "))]
    found += [re.sub(r"\d+", "#", name)[:120] for name in told]
    return list(dict.fromkeys(found))


def _magnitude(count: int) -> int:
    size = 1
    while count >= size * _BASE:
        size *= _BASE
    return size


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A case of the corpus, and the features for which it is kept."""

    case: Case
    holds: list[str]


def read_corpus(path: str | Path) -> list[Entry]:
    """Read the cases that a campaign has kept."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=list[Entry])
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a corpus.json of a campaign") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(str(path), f"this is no corpus ({error})", "name a corpus.json of a campaign") from error


class Corpus:
    """The kept cases, and how many trials had each feature."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self.entries = entries or []
        self.seen: Counter[str] = Counter(one for entry in self.entries for one in entry.holds)

    def add(self, case: Case, features: list[str]) -> list[str]:
        """Keep the case if it has features that no case had before. Return these features.

        An earlier case is dropped if the new one has all features for which it was kept.
        """
        new = [one for one in features if one not in self.seen]
        self.seen.update(features)
        if not new or len(self.entries) >= ENTRIES_MAX:
            return new
        had = set(features)
        taken = [one for one in self.entries if had.issuperset(one.holds)]
        self.entries = [one for one in self.entries if not had.issuperset(one.holds)]
        self.entries.append(Entry(case, [*(name for one in taken for name in one.holds), *new]))
        return new

    def weights(self) -> list[float]:
        """Return how often to choose each entry. The rarer its rarest feature, the larger its weight."""
        return [1 / min(self.seen[name] for name in one.holds) for one in self.entries]

    def write(self, path: Path) -> None:
        """Write one case per line, so that two versions can be compared.

        The file is written completely or not at all.
        """
        lines = [json.dumps(one, ensure_ascii=False) for one in self.to_json()]
        with written_whole(path) as beside:
            beside.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")

    def to_json(self) -> list[dict[str, Any]]:
        return [{"case": one.case.to_json(), "holds": one.holds} for one in self.entries]
