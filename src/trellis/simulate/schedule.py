"""What is done to a run, as data: timed faults that are drawn, written, read, shrunk and replayed.

| kind                          | nodes            | other fields                                                    |
| ----------------------------- | ---------------- | --------------------------------------------------------------- |
| crash                         | who              |                                                                 |
| crash-uniform, -adjacent, ... | who, or chosen   | `value`: how many                                               |
| restart                       | who, or chosen   | `duration_ms` down, then a new incarnation of the same name     |
| pause                         | who, or chosen   | `duration_ms`                                                   |
| leave                         | who, or chosen   |                                                                 |
| join                          | who, or chosen   | `topics`; none: those of the interests table                    |
| interest                      | who, or chosen   | chosen when it happens: becomes subscribe or unsubscribe        |
| return                        | who, or chosen   | `topics`, or chosen: left, and taken up again `duration_ms`     |
|                               |                  | later; `value`: how often                                       |
| subscribe, unsubscribe        | who              | `topics`                                                        |
| publish                       | who              | `topics`                                                        |
| loss, duplicate, reorder      |                  | `duration_ms`, `value`: probability                             |
| asymmetric-loss               | from whom        | `peers`: to whom, `duration_ms`, `value`: probability           |
| partition                     | one side         | `duration_ms`                                                   |
| slow                          | who, or chosen   | `duration_ms`, `value`: more milliseconds on every message      |
| absent                        | who              | at time 0: these nodes are not there at the start               |

"Or chosen": where no node is given, one is chosen when the fault happens, from the state of the run and a stream of
chance of its own. The schedule as it happened names everybody, so dropping one fault leaves the others as they are.
A fault that cannot happen (a crash of a node that is down) is skipped and counted as skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from trellis.errors import InputError
from trellis.files import written_whole

# What a check draws by default. A crash is told apart by who is hit.
FAULT_KINDS = (
    "crash-uniform",  # any living node
    "crash-adjacent",  # nodes next to each other in the overlay, at the same instant
    "crash-ring",  # nodes that follow each other on the ring of `System.ring_key`
    "crash-hub",  # the node with most links
    "restart",  # crash, and back after a while under the same name: a new incarnation
    "pause",  # a node that stops and later goes on; its timers and messages wait
    "leave",  # in order
    "join",
    "interest",  # subscribe or unsubscribe
    "loss",
    "asymmetric-loss",  # from some nodes to some others, not back
    "duplicate",
    "reorder",
    "partition",
    "slow",  # all messages of a node take longer
)
# What a check draws only where its plan names it.
MORE_KINDS = ("return",)  # a node leaves topics, perhaps all it has, and takes them up again
GIVEN_KINDS = ("crash", "subscribe", "unsubscribe", "publish", "absent")  # by hand and from churn traces


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    time_ms: int
    kind: str
    nodes: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    duration_ms: int = 0
    value: float = 0.0


class FaultPlan(msgspec.Struct, frozen=True):
    """What a check draws for each seed. A system narrows it to what it promises to survive."""

    kinds: tuple[str, ...] = FAULT_KINDS
    start_ms: int = 5_000  # faults begin here: the overlay has had time to form
    span_ms: int = 40_000  # and go on for so long; then everything is healed
    faults_max: int = 12  # in one schedule; the least is 3
    duration_ms_min: int = 500
    duration_ms_max: int = 8_000
    crash_size_max: int = 2  # nodes that crash at the same instant
    crash_gap_ms: int = 0  # between two faults that take nodes away (OMen: the time one repair may take)
    stagger_ms: int = 0  # a group may go in two parts, the second so much later at most: while the first is mended
    down_share_max: float = 0.5  # of all nodes, absent or down; a crash that would pass it is skipped
    loss_max: float = 0.05  # probability of a loss window; asymmetric loss goes up to ten times this
    duplicate_max: float = 0.1
    reorder_max: float = 0.2
    slow_ms_max: int = 400

    def __post_init__(self) -> None:
        known = (*FAULT_KINDS, *MORE_KINDS)
        unknown = [kind for kind in self.kinds if kind not in known]
        if unknown or not self.kinds:
            raise InputError("", f"fault kinds {', '.join(unknown) or '(none)'}", f"choose from {', '.join(known)}")


class Schedule(msgspec.Struct, frozen=True):
    faults: tuple[Fault, ...] = ()  # in time order
    absent: tuple[str, ...] = ()  # not there at the start

    @property
    def end_ms(self) -> int:
        """When the last fault has happened and ended."""
        return max((fault.time_ms + fault.duration_ms for fault in self.faults), default=0)


_COLUMNS = ("time_ms", "kind", "nodes", "peers", "topics", "duration_ms", "value")
_LISTS = ("nodes", "peers", "topics")
_PLAIN = re.compile(r"[\w.:@-]+")  # a list of such names is written a,b; any other one as JSON


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """`.json`: a list of faults; `.tsv`: one row a fault, names as `a,b`, or as JSON where one is not plain."""
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
