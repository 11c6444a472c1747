"""What a node tells about itself: few lines, whole again in every file, and no harm where the disk fails."""

from __future__ import annotations

import errno
import json
import resource
import signal
from pathlib import Path

import pytest

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
        self.telemetry.look()

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
    assert node.telemetry.counters == {"failed": 3}


def test_subscriptions_that_a_full_disk_did_not_take_are_told_when_there_is_room_again(tmp_path, monkeypatch):
    node = Node(tmp_path / "events.jsonl")
    node.start()
    append = node.telemetry._append

    def full(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(node.telemetry, "_append", full)
    node.wanted = {"b"}
    node.look()
    assert events(node.path) == [("join",), ("subscribe", "a")]
    monkeypatch.setattr(node.telemetry, "_append", append)
    node.look()
    node.look()
    assert events(node.path) == [("join",), ("subscribe", "a"), ("unsubscribe", "a"), ("subscribe", "b")]


def test_publications_that_a_full_disk_did_not_take_are_told_over_the_longer_time(tmp_path, monkeypatch):
    node = Node(tmp_path / "events.jsonl")
    node.start()

    def full(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    node.telemetry.published("b", 10)
    with monkeypatch.context() as patch:
        patch.setattr(node.telemetry, "_append", full)
        node.look()
    node.telemetry.published("b", 20)
    node.look()
    node.look()
    sums = [(line["count"], line["bytes"], line["seconds"]) for line in lines(node.path) if line["event"] == "publish"]
    assert sums == [(2, 30, 20.0)]


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system does not limit the size of files")
def test_a_disk_that_is_full_in_the_midst_of_a_line_leaves_no_half_line(tmp_path):
    """The kernel takes a part of the lines, and refuses the rest."""
    node = Node(tmp_path / "events.jsonl")
    node.start()
    before = node.path.read_bytes()
    node.wanted = {"a", *(f"topic {number}" for number in range(50))}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
        node.look()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert node.path.read_bytes() == before
    node.look()
    assert len(events(node.path)) == 52


def test_a_new_file_that_could_not_be_begun_begins_with_all_that_is_in_force_later(tmp_path, monkeypatch):
    node = Node(tmp_path / "events.jsonl", file_bytes=100, files_max=3)
    node.start()
    append = node.telemetry._append

    def full(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(node.telemetry, "_append", full)
    node.telemetry.published("b", 1)
    node.look()
    monkeypatch.setattr(node.telemetry, "_append", append)
    node.telemetry.published("b", 1)
    node.look()
    assert events(node.path)[:2] == [("join",), ("subscribe", "a")]


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
