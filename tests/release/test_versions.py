"""Versions of the wire: what was recorded decodes for ever, and nodes of neighbouring versions work together."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from release.frames import UNIONS, samples
from trellis.live.frames import VERSION, VERSION_OLDEST
from trellis.live.shell import LiveNode
from trellis.live.talk import CLIENT_VERSION, CLIENT_VERSION_OLDEST

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
RECORDINGS = sorted(GOLDEN.glob("version-*.txt"))
NOW = GOLDEN / f"version-{VERSION}.txt"
HEAD = "# union, kind of message, its bytes, what they say. Never edit a line of a version that was released.\n"


def lines_now() -> list[str]:
    found = []
    for union, message in samples():
        said = msgspec.json.encode(message).decode()
        found.append("\t".join([union, type(message).__name__, UNIONS[union][1].encode(message).hex(), said]))
    return found


def lines_of(recording: Path) -> list[list[str]]:
    return [line.split("\t") for line in recording.read_text("utf-8").splitlines() if not line.startswith("#")]


def has(found: Any, recorded: Any) -> bool:
    """Whether everything that was recorded is there: later versions may add fields, at the end or with names."""
    if isinstance(recorded, dict):
        return isinstance(found, dict) and all(key in found and has(found[key], recorded[key]) for key in recorded)
    if isinstance(recorded, list):
        return isinstance(found, list) and all(map(has, found[: len(recorded)], recorded))
    return bool(found == recorded)


def test_this_version_sends_what_was_recorded_of_it():
    text = HEAD + "".join(f"{line}\n" for line in lines_now())
    if os.environ.get("TRELLIS_REWRITE_GOLDEN"):
        NOW.write_text(text, "utf-8")
        pytest.skip("the recording was written: look at its diff, and run without TRELLIS_REWRITE_GOLDEN")
    remedy = "a changed wire form needs a new VERSION (docs/upgrading.md)"
    assert text.splitlines() == NOW.read_text("utf-8").splitlines(), remedy


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_every_frame_that_was_ever_recorded_still_says_the_same(recording):
    recorded = lines_of(recording)
    assert len(recorded) > 40
    for union, kind, data, said in recorded:
        message = UNIONS[union][1].decode(bytes.fromhex(data))
        assert type(message).__name__ == kind
        assert has(json.loads(msgspec.json.encode(message)), json.loads(said)), kind


def test_what_a_later_version_adds_is_skipped():
    """A newer node says hello with fields that we do not know, in a map and in an array."""
    hello = next(message for union, message in samples() if union == "control" and type(message).__name__ == "Hello")
    told = msgspec.to_builtins(hello)
    told["address"] = [*told["address"], "a field of tomorrow"]
    newer = msgspec.msgpack.encode({**told, "features": ["tomorrow"]})
    assert UNIONS["control"][1].decode(newer) == hello


def test_we_understand_the_version_before_ours_and_no_older_one():
    assert max(1, VERSION - 1) == VERSION_OLDEST
    assert max(1, CLIENT_VERSION - 1) == CLIENT_VERSION_OLDEST
    assert [path.stem for path in RECORDINGS] == [f"version-{one}" for one in range(1, VERSION + 1)]


async def joined_by(first: LiveNode, speaks: tuple[int, int]) -> LiveNode:
    """A node of another version, whose seed is `first`."""
    other = LiveNode(config("b", (peer_address(first),)))
    await other.start()
    other.transport.speaks = speaks  # nothing was sent yet: that takes a turn of the loop
    return other


@pytest.mark.parametrize("later", [0, 1], ids=["same", "next"])
def test_a_node_of_the_next_version_works_with_this_one(later):
    async def work() -> None:
        async with mesh("a") as (old,), trellis.connect(client_address(old)) as reader:
            new = await joined_by(old, (VERSION, VERSION + later))
            try:
                async with trellis.connect(client_address(new)) as writer:
                    await reader.subscribe("t")
                    await writer.subscribe("t")
                    receipt = await writer.publish("t", b"from the new one")
                    assert set(receipt.holders) == {"a", "b"}
                    assert (await anext(reader)).payload == b"from the new one"
                    versions = {new.transport.peers["a"].tag.version, old.transport.peers["b"].tag.version}
                    assert versions == {VERSION}, "both speak what the older one knows"
            finally:
                await new.stop(in_order=False)

    run(work())


@pytest.mark.parametrize("dialler", ["new", "old"])
def test_a_node_two_versions_ahead_refuses_and_both_say_so_in_a_clear_line(dialler, caplog):
    async def work() -> None:
        async with mesh("a") as (first,):
            future, today = (VERSION + 1, VERSION + 2), (VERSION_OLDEST, VERSION)
            first.transport.speaks = today if dialler == "new" else future
            second = await joined_by(first, future if dialler == "new" else today)
            new, old = (second, first) if dialler == "new" else (first, second)
            try:
                await until(lambda: new.transport.counters["cut version"] >= 1)
                await until(lambda: old.transport.counters["refused version"] >= 1)
                assert not new.transport.peers
            finally:
                await second.stop(in_order=False)
            told = f"{old.name} speaks trellis-mesh {VERSION}, too old for {new.name}, "
            told += f"which speaks trellis-mesh {VERSION + 2} and {VERSION + 1}; upgrade it"
            assert f"{new.name}: refused a peer: {told}" in caplog.messages
            assert any(line.startswith(f"{old.name}: ") and line.endswith(told) for line in caplog.messages[1:])

    with caplog.at_level(logging.WARNING, "trellis.live"):
        run(work())
