"""Describe faults and churn of a run as data: timed faults that are drawn, written, read, shrunk and replayed.

| kind                          | nodes            | other fields                                                    |
| ----------------------------- | ---------------- | --------------------------------------------------------------- |
| crash                         | given            |                                                                 |
| crash-uniform, -adjacent, ... | given, or chosen | `value`: how many                                               |
| restart                       | given, or chosen | `duration_ms` down, then a new incarnation of the same name     |
| pause                         | given, or chosen | `duration_ms`                                                   |
| leave                         | given, or chosen |                                                                 |
| join                          | given, or chosen | `topics`; none: those of the interests table                    |
| interest                      | given, or chosen | becomes subscribe or unsubscribe when it happens                |
| return                        | given, or chosen | `topics`, or chosen: the node leaves them, and subscribes       |
|                               |                  | again after `duration_ms`; `value`: how often                   |
| subscribe, unsubscribe        | given            | `topics`                                                        |
| publish                       | given, or chosen | `topics`                                                        |
| loss, duplicate, reorder      |                  | `duration_ms`, `value`: probability                             |
| asymmetric-loss               | the senders      | `peers`: the receivers, `duration_ms`, `value`: probability     |
| partition                     | one side         | `duration_ms`                                                   |
| slow                          | given, or chosen | `duration_ms`, `value`: more milliseconds on every message      |
| absent                        | given            | at time 0: these nodes are not there at the start               |

"Or chosen": if no node is given, one is chosen when the fault happens, from the state of the run and a random stream of
its own. The schedule as it happened names all nodes, so dropping one fault leaves the others as they are. A fault that
cannot happen (a crash of a node that is down) is skipped and counted as skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from trellis.errors import InputError
from trellis.files import written_whole

# Kinds that a check draws by default. Kinds of crashes differ in the nodes that they hit.
FAULT_KINDS = (
    "crash-uniform",  # any living nodes
    "crash-adjacent",  # a node and some of its neighbors, at the same instant
    "crash-ring",  # consecutive nodes on the ring of `System.ring_key`
    "crash-hub",  # the node with most links
    "restart",  # a crash, and later a new incarnation of the same name
    "pause",  # A node stops and later resumes. Its timers and messages wait.
    "leave",  # a departure that the node announces
    "join",
    "interest",  # subscribe or unsubscribe
    "loss",
    "asymmetric-loss",  # from some nodes to some others, in this direction only
    "duplicate",
    "reorder",
    "partition",
    "slow",  # All messages of a node take longer.
)
# Kinds that a check draws only if its plan names them.
MORE_KINDS = ("return",)  # A node leaves topics, perhaps all of its topics, and subscribes to them again.
GIVEN_KINDS = ("crash", "subscribe", "unsubscribe", "publish", "absent")  # written by hand, or made from churn traces


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault. The module's docstring says which fields each kind uses."""

    time_ms: int
    kind: str
    nodes: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    duration_ms: int = 0
    value: float = 0.0


class FaultPlan(msgspec.Struct, frozen=True):
    """What a check draws for each seed. A system restricts it to the faults that it promises to survive."""

    kinds: tuple[str, ...] = FAULT_KINDS
    start_ms: int = 5_000  # Faults begin here, when the overlay has had time to form.
    span_ms: int = 40_000  # Faults begin within this time. Then everything is healed.
    faults_max: int = 12  # in one schedule; there are at least 3
    duration_ms_min: int = 500
    duration_ms_max: int = 8_000
    crash_size_max: int = 2  # nodes that crash at the same instant
    # least time between two faults that take nodes away (OMen: the time that one repair may take)
    crash_gap_ms: int = 0
    # Longest time between the two parts of a split crash or leave, so that the second part comes during the repair of
    # the first. 0: nothing is split.
    stagger_ms: int = 0
    # share of all nodes that may be absent or down; a crash that would exceed it is skipped
    down_share_max: float = 0.5
    loss_max: float = 0.05  # largest probability of a loss window; asymmetric loss goes up to ten times this value
    duplicate_max: float = 0.1
    reorder_max: float = 0.2
    slow_ms_max: int = 400

    def __post_init__(self) -> None:
        known = (*FAULT_KINDS, *MORE_KINDS)
        unknown = [kind for kind in self.kinds if kind not in known]
        if unknown or not self.kinds:
            raise InputError("", f"fault kinds {', '.join(unknown) or '(none)'}", f"choose from {', '.join(known)}")


class Schedule(msgspec.Struct, frozen=True):
    """Faults in time order, and the nodes that are absent at the start."""

    faults: tuple[Fault, ...] = ()  # in time order
    absent: tuple[str, ...] = ()  # nodes that are not there at the start

    @property
    def end_ms(self) -> int:
        """Return when the last fault has happened and ended."""
        return max((fault.time_ms + fault.duration_ms for fault in self.faults), default=0)


_COLUMNS = ("time_ms", "kind", "nodes", "peers", "topics", "duration_ms", "value")
_LISTS = ("nodes", "peers", "topics")
_PLAIN = re.compile(r"[\w.:@-]+")  # A list of such names is written as a,b. Any other list is written as JSON.


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule. `.json`: a list of faults; otherwise TSV with one row per fault.

    In TSV a list of names is `a,b`, or JSON if a name is not plain.
    """
    path, rows = Path(path), _rows(schedule)
    with written_whole(path) as beside:
        if path.suffix == ".json":
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
            return
        with beside.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(_COLUMNS)
            for row in rows:
                fields = msgspec.structs.asdict(row)
                table.writerow([_cell(fields[column]) for column in _COLUMNS])


def read_schedule(path: str | Path) -> Schedule:
    """Read a schedule that `write_schedule` wrote, or that somebody wrote by hand.

    Raise InputError if it makes no sense.
    """
    path = Path(path)
    try:
        if path.suffix == ".json":
            return _schedule(msgspec.json.decode(path.read_bytes(), type=list[Fault]), path)
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            if sorted(rows.fieldnames or ()) != sorted(_COLUMNS):
                raise InputError(f"{path}:1", "these are not the columns of a schedule", f"name {', '.join(_COLUMNS)}")
            faults = []
            for row in rows:
                try:
                    faults.append(_fault(row))
                except (msgspec.MsgspecError, TypeError, ValueError) as error:
                    raise InputError(f"{path}:{rows.line_num}", f"no fault ({error})", "mend the row") from error
            return _schedule(faults, path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "check the path and its rights") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"no schedule ({error})", "write one with `trellis simulate --check -o`") from error


def _rows(schedule: Schedule) -> list[Fault]:
    absent = [Fault(0, "absent", nodes=schedule.absent)] if schedule.absent else []
    return [*absent, *schedule.faults]


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        plain = all(_PLAIN.fullmatch(name) for name in value)
        return ",".join(value) if plain else msgspec.json.encode(value).decode()
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)


def _fault(row: dict[str, str]) -> Fault:
    fields: dict[str, object] = {"kind": row["kind"], "time_ms": int(row["time_ms"]), "value": float(row["value"])}
    fields["duration_ms"] = int(row["duration_ms"])
    for column in _LISTS:
        text = row[column]
        listed = msgspec.json.decode(text, type=tuple[str, ...]) if text.startswith("[") else tuple(text.split(","))
        fields[column] = listed if text else ()
    return Fault(**fields)  # type: ignore[arg-type]


def _schedule(rows: Iterable[Fault], path: Path) -> Schedule:
    listed = list(rows)
    for fault in listed:
        known = (*FAULT_KINDS, *MORE_KINDS, *GIVEN_KINDS)
        if fault.kind not in known:
            raise InputError(str(path), f'fault kind "{fault.kind}" is not known', f"choose from {', '.join(known)}")
        if fault.time_ms < 0 or fault.duration_ms < 0:
            raise InputError(str(path), f"a {fault.kind} at {fault.time_ms} ms", "times and durations are not negative")
    happening = sorted((fault for fault in listed if fault.kind != "absent"), key=lambda fault: fault.time_ms)
    absent = sorted({name for fault in listed if fault.kind == "absent" for name in fault.nodes})
    return Schedule(tuple(happening), tuple(absent))
