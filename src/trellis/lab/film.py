"""A recorded run as the dashboard shows it: the events of its page, and its series.  [live/view.py]"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from trellis.errors import InputError
from trellis.live.view import Event, MeshView
from trellis.simulate.record import Line, Replay

RECORDING = "recording.jsonl.gz"
SAMPLES = 600  # at most, over the whole run
EVENTS_MAX = 400_000


def film(run: Path) -> bytes:
    """`run` is a recording, or the folder of a run that has one. What /replay.json says."""
    path = run / RECORDING if run.is_dir() else run
    if run.is_dir() and not path.exists():
        raise InputError(str(run), "there is no recording in this folder", "simulate with --record")
    end_ms = _duration_ms(path)
    replay, camera = Replay(path), _Camera(max(1_000, -(-end_ms // SAMPLES)))
    for line in replay:
        camera.take(line)
        if len(camera.events) > EVENTS_MAX:
            raise InputError(str(path), f"more than {EVENTS_MAX:,} events", "record a shorter or a smaller run")
    camera.sample_until(end_ms)
    return msgspec.json.encode(
        {
            "mode": "replay",
            "overlay": replay.header["protocol"],
            "seed": replay.header["seed"],
            "end_ms": end_ms,
            "events": camera.events,
            "series": camera.series,
        }
    )


def _duration_ms(path: Path) -> int:
    replay = Replay(path)
    for _ in replay:
        pass
    return int(replay.time_ms)


class _Camera:
    def __init__(self, every_ms: int) -> None:
        self.every_ms, self.next_ms = every_ms, every_ms
        self.view = MeshView()
        self.events: list[Event] = []
        self.series: list[dict[str, Any]] = []
        self.sent = self._sent_before = 0
        self._lives: dict[str, int] = {}

    def take(self, line: Line) -> None:
        at_ms = int(line["t"])
        self.sample_until(at_ms - 1)
        view = self.view
        match line["e"]:
            case "up":
                name = line["n"]
                self._lives[name] = self._lives.get(name, 0) + 1
                view.put(name, line["topics"], at_ms, incarnation=self._lives[name])
            case "topics":
                view.put(line["n"], line["topics"], at_ms, incarnation=self._lives[line["n"]])
            case "down":
                name = line["n"]
                view.down(name, "left" if line["how"] == "leave" else "down", at_ms)
                for u, v in [pair for pair in view.links if name in pair]:
                    view.link(u, v, "gone", at_ms)
            case "link":
                view.link(line["u"], line["v"], "up", at_ms)
            case "unlink":
                view.link(line["u"], line["v"], "gone", at_ms)
            case "deliver":
                view.totals["delivered"] += 1
            case "sent":
                self.sent += sum(line["types"].values())
            case "fault" if line["kind"] not in ("crash", "leave", "join"):  # these are told as nodes that come and go
                self.events.append(("fault", {"at_ms": at_ms, "nodes": line["nodes"], "text": line["text"]}))
        self.events += view.drain()

    def sample_until(self, at_ms: int) -> None:
        """`every_ms`, as far as the run has come."""
        while self.next_ms <= at_ms:
            row = self.view.sample(self.next_ms)
            del row["numbers"]
            row["sent_s"] = round(1_000 * (self.sent - self._sent_before) / self.every_ms, 1)
            self._sent_before = self.sent
            self.series.append(row)
            self.next_ms += self.every_ms
