"""Record a run as JSON lines (`.jsonl` or `.jsonl.gz`), which a replay or a dashboard reads step by step.

The first line is the header and the last one is the end. Between them is one line per event, in time order, with `t` in
milliseconds:

    {"trellis": "recording", "version": 1, "protocol": "spidercast", "seed": 7, "parameters": {...}}
    {"t": 0, "e": "up", "n": "n3", "topics": ["a", "b"]}      a node starts
    {"t": 10, "e": "link", "u": "n1", "v": "n3"}              a link stands: both ends claim it
    {"t": 950, "e": "unlink", "u": "n1", "v": "n3"}           it no longer stands
    {"t": 1000, "e": "sent", "types": {"Connect": 12}}        messages sent since the previous "sent" line
    {"t": 1200, "e": "topics", "n": "n3", "topics": ["a"]}    the topics of a node have changed
    {"t": 1500, "e": "fault", "kind": "pause", "nodes": ["n1"], "text": "pause n1 for 900 ms"}
    {"t": 1700, "e": "deliver", "n": "n3", "topic": "a", "origin": "n1", "seq": 4}
    {"t": 2000, "e": "down", "n": "n1", "how": "crash"}       all its links end; there are no unlink lines
    {"t": 9000, "e": "end", "digest": "...", "overlay": "..."}

A reader ignores lines of a kind that it does not know.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.protocols.effects import Deliver, NodeId, Topic
from trellis.simulate.engine import Engine
from trellis.simulate.system import Watcher

VERSION = 1
Line = dict[str, Any]


class Recorder(Watcher):
    """Keeps the encoded lines of a run in memory. `write` puts them into a file."""

    def __init__(self) -> None:
        self.engine: Engine
        self._lines: list[bytes] = []
        self._claims: dict[NodeId, dict[NodeId, None]] = {}  # claims of living nodes, as this recorder has seen them
        self._sent: dict[str, int] = {}
        self._encode = msgspec.json.Encoder().encode

    def attach(self, engine: Engine) -> None:
        self.engine = engine
        engine.watchers.append(self)

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._claims[node] = {}
        self._add(e="up", n=node, topics=topics)

    def on_node_down(self, node: NodeId, how: str) -> None:
        self._claims.pop(node, None)
        self._add(e="down", n=node, how=how)

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._add(e="topics", n=node, topics=topics)

    def on_claim(self, node: NodeId, peer: NodeId, up: bool) -> None:
        if up:
            self._claims[node][peer] = None
        else:
            self._claims[node].pop(peer, None)
        if node in self._claims.get(peer, ()):
            self._add(e="link" if up else "unlink", u=min(node, peer), v=max(node, peer))

    def on_deliver(self, node: NodeId, delivery: Deliver) -> None:
        self._add(e="deliver", n=node, topic=delivery.topic, origin=delivery.origin, seq=delivery.sequence)

    def on_fault(self, kind: str, nodes: tuple[NodeId, ...], text: str) -> None:
        self._add(e="fault", kind=kind, nodes=nodes, text=text)

    def tick(self) -> None:
        """Add a line with the messages sent since the last tick."""
        sent = self.engine.sent_by_type()
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        since = {kind: count for kind, count in since.items() if count}
        if since:
            self._add(e="sent", types=since)
        self._sent = sent

    def write(self, path: str | Path, parameters: dict[str, Any]) -> None:
        """End the recording, and write it to a file completely or not at all."""
        self.tick()
        engine = self.engine
        header = {"trellis": "recording", "version": VERSION, "protocol": engine.system.name}
        head = self._encode({**header, "seed": engine.world.seed, "parameters": parameters})
        end = {"t": engine.world.now_us / 1000, "e": "end"}
        last = self._encode({**end, "digest": engine.hexdigest(), "overlay": engine.overlay_digest()})
        path = Path(path)
        with written_whole(path) as beside, beside.open("wb") as plain:
            # The gzip header has no name and no time, so the same run gives the same bytes.
            file: Any = gzip.GzipFile(filename="", fileobj=plain, mode="wb", mtime=0) if path.suffix == ".gz" else plain
            for line in (head, *self._lines, last):
                file.write(line + b"\n")
            if file is not plain:
                file.close()

    def _add(self, **fields: Any) -> None:
        time_us = self.engine.world.now_us
        fields = {"t": time_us // 1000 if time_us % 1000 == 0 else time_us / 1000, **fields}
        self._lines.append(self._encode(fields))


class Replay:
    """Reads a recording step by step. After each step `nodes`, `links` and `sent` are as they were at that time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lines = _read_lines(self.path)
        self.header = next(self._lines, {})
        if self.header.get("trellis") != "recording" or self.header.get("version") != VERSION:
            raise InputError(str(path), "is not a recorded run that we can read", "make one with `--record`")
        self.time_ms = 0.0
        self.nodes: dict[NodeId, tuple[Topic, ...]] = {}
        self.links: dict[tuple[NodeId, NodeId], None] = {}
        self.sent: dict[str, int] = {}
        self.end: Line | None = None
        self._pending: Line | None = None

    def __iter__(self) -> Iterator[Line]:
        while (line := self._next()) is not None:
            self._take(line)
            yield line

    def until(self, time_ms: float) -> None:
        """Read all lines up to and including that time."""
        while (line := self._next()) is not None:
            if line.get("t", 0) > time_ms:
                self._pending = line
                return
            self._take(line)

    def _next(self) -> Line | None:
        line, self._pending = self._pending or next(self._lines, None), None
        if line is None and self.end is None:
            raise InputError(str(self.path), "the recording breaks off", "record the run again")
        return line

    def _take(self, line: Line) -> None:
        try:
            self._apply(line)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                str(self.path), f"{line} cannot have happened ({error!r})", "record the run again"
            ) from error

    def _apply(self, line: Line) -> None:
        self.time_ms = float(line["t"])
        match line["e"]:
            case "up" | "topics":
                self.nodes[line["n"]] = tuple(line["topics"])
            case "down":
                del self.nodes[line["n"]]
                self.links = {link: None for link in self.links if line["n"] not in link}
            case "link":
                self.links[line["u"], line["v"]] = None
            case "unlink":
                del self.links[line["u"], line["v"]]
            case "sent":
                for kind, count in line["types"].items():
                    self.sent[kind] = self.sent.get(kind, 0) + count
            case "end":
                self.end = line


def replay_lines(path: str | Path, *, since_ms: float = 0, until_ms: float | None = None) -> Iterator[str]:
    """Yield a recording as readable text, from one time to another, and then the state at the end."""
    replay = Replay(path)
    for line in replay:
        if until_ms is not None and line["t"] > until_ms:
            break
        if line["t"] >= since_ms:
            yield say(line)
    run = f"{replay.header['protocol']}, seed {replay.header['seed']}"
    yield f"{run}: {len(replay.nodes)} nodes, {len(replay.links)} links"


def say(line: Line) -> str:
    """Return one line of a recording as readable text."""
    match line["e"]:
        case "up":
            what = (
                f"{line['n']} starts with {', '.join(line['topics'][:6])}{', ...' if len(line['topics']) > 6 else ''}"
            )
        case "down":
            what = f"{line['n']} {'leaves' if line['how'] == 'leave' else 'crashes'}"
        case "topics":
            what = f"{line['n']} wants {', '.join(line['topics'])}"
        case "link":
            what = f"{line['u']} - {line['v']} linked"
        case "unlink":
            what = f"{line['u']} - {line['v']} no longer linked"
        case "sent":
            what = "sent " + ", ".join(f"{count} {kind}" for kind, count in sorted(line["types"].items()))
        case "deliver":
            what = f"{line['n']} gets {line['topic']} {line['seq']} of {line['origin']}"
        case "fault":
            what = f"fault: {line['text']}"
        case "end":
            what = f"end, digest {line['digest']}"
        case other:
            what = other
    return f"{line['t'] / 1000:10.3f} s  {what}"


def _read_lines(path: Path) -> Iterator[Line]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    reached = 0
    try:
        with path.open("rb") as plain:
            file: Any = gzip.GzipFile(fileobj=plain) if path.suffix == ".gz" else plain
            for line in file:
                reached += 1
                yield decode(line)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}:{reached}", f"is no JSON object ({error})", "record the run again") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), f"the gzip stream is damaged ({error})", "record the run again") from error
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", "check the path") from error
