"""The files of a run: its figures as JSON, and its history as compressed JSON lines. Each is written whole."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.fire.judge import Verdict, judge
from benchmarks.fire.run import Outcome

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.judge.history import Event

HISTORY = ".jsonl.xz"
FIGURES = ".json"
_BYTES_MAX = 1 << 30  # of a history, when it is read: more than any run writes
_DECODER = msgspec.json.Decoder(Event)


@dataclass
class Kept:
    """A run as it was read from its two files."""

    about: dict[str, Any]
    events: list[Event]
    verdict: Verdict

    @property
    def system(self) -> str:
        return str(self.about["system"])

    @property
    def case(self) -> tuple[int, str, int]:
        """Brokers, schedule, bytes of a payload."""
        load = self.about["load"]
        return load["brokers"], load["schedule"], load["payload"]


def name_of(system: str, brokers: int, schedule: str, payload: int, seed: int) -> str:
    return f"{system}-{brokers}-{schedule}-{payload}-{seed}"


def keep(outcome: Outcome, folder: Path, **more: Any) -> Path:
    """Write both files. Return the path of the figures."""
    load = outcome.load
    stem = name_of(outcome.system, load.brokers, load.schedule, load.payload, load.seed)
    with written_whole(folder / f"{stem}{HISTORY}") as temporary:
        temporary.write_bytes(lzma.compress(outcome.history.to_bytes()))
    path = folder / f"{stem}{FIGURES}"
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps({**outcome.to_json(), **more}, indent=1, sort_keys=True) + "\n", "utf-8")
    return path


def read_events(path: Path) -> list[Event]:
    """Read a history, compressed or not."""
    try:
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.LZMADecompressor().decompress(data, _BYTES_MAX)
        return [_DECODER.decode(line) for line in data.splitlines() if line]
    except (OSError, lzma.LZMAError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is no history ({error})", "name a file that a run has written") from error


def read(path: Path) -> Kept:
    """Read a run by its figures' file, and judge its history anew."""
    try:
        about = json.loads(path.read_text("utf-8"))
        since = float(about["since"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), f"has no figures of a run ({error})", "remove it, or run the case again") from error
    events = read_events(path.with_name(path.name.removesuffix(FIGURES) + HISTORY))
    return Kept(about, events, judge(events, since))


def read_all(folder: Path) -> list[Kept]:
    """Read every run of a folder."""
    paths = [one for one in sorted(folder.glob(f"*{FIGURES}")) if one.with_name(one.stem + HISTORY).exists()]
    if not paths:
        raise InputError(str(folder), "holds no runs", "run the benchmark first: python -m benchmarks.fire run")
    return [read(path) for path in paths]
