"""What a node tells about itself: few lines, whole again in every file, and no harm where the disk fails."""

from __future__ import annotations

import json
from pathlib import Path

import trellis
from live.lives import client_address, mesh, run, until
from trellis.live.telemetry import Telemetry, TelemetryConfig


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(path: Path) -> list[tuple[object, ...]]:
    return [tuple(one[key] for key in ("event", "topic", "count") if key in one) for one in lines(path)]


class Node:
    def __init__(self, path: Path, **limits: int) -> None:
        self.now, self.wanted, self.path = 100.0, {"a"}, path
        config = TelemetryConfig(file=str(path), **limits)  # type: ignore[arg-type]
        self.telemetry = Telemetry(config, "n1", lambda: self.wanted, lambda: self.now)

    def start(self) -> None:
        self.telemetry._write([self.telemetry._line("join"), *self.telemetry._changes()])

    def look(self, later: float = 10.0) -> None:
        self.now += later
        self.telemetry.look()


def test_publications_are_summed_up_and_a_topic_that_came_and_went_is_not_told(tmp_path):
    node = Node(tmp_path / "events.jsonl")
    node.start()
    for size in (10, 20, 30):
        node.telemetry.published("b", size)
    node.wanted = {"a", "c"}
    node.wanted = {"b"}
    node.look()
    node.look()
    assert events(node.path) == [
        ("join",),
        ("subscribe", "a"),
        ("unsubscribe", "a"),
        ("subscribe", "b"),
        ("publish", "b", 3),
    ]
    assert lines(node.path)[-1] == {
        "time": 110.0, "node": "n1", "event": "publish", "topic": "b", "count": 3, "bytes": 60, "seconds": 10.0,
    }  # fmt: skip


def test_a_full_file_is_put_aside_and_the_next_begins_with_all_that_is_in_force(tmp_path):
    node = Node(tmp_path / "events.jsonl", file_bytes=400, files_max=3)
    node.start()
    for _ in range(40):
        node.telemetry.published("b", 1)
        node.look()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["events.jsonl", "events.jsonl.1", "events.jsonl.2"]
    for path in tmp_path.iterdir():
        assert events(path)[:2] == [("join",), ("subscribe", "a")]
        assert path.stat().st_size < 800


def test_a_disk_that_fails_is_counted_and_nothing_else(tmp_path):
    node = Node(tmp_path / "nowhere" / "events.jsonl")
    node.start()
    node.look()
    node.telemetry.published("b", 1)
    node.look()
    assert node.telemetry.counters == {"failed": 2}


def test_a_live_node_tells_what_its_clients_want_and_publish(tmp_path):
    path = tmp_path / "events.jsonl"

    async def work() -> None:
        async with mesh("a", "b", telemetry=TelemetryConfig(file=str(path), interval_s=0.2)) as nodes:
            async with trellis.connect(client_address(nodes[0])) as client:
                await client.subscribe("t")
                for _ in range(5):
                    await client.publish("t", b"x" * 10)
                await until(lambda: ("subscribe", "t") in events(path))
            await until(lambda: ("unsubscribe", "t") in events(path))
            assert sum(n for event, _, n in (one for one in events(path) if one[0] == "publish")) == 5  # type: ignore[misc]
            await nodes[1].stop()
            assert ("leave",) in events(path)

    run(work())
