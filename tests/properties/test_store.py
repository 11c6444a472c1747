"""The log of a store keeps what it said it keeps, whatever happens to its disk. [docs/durable.md]"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.store import Story
from trellis.simulate.disks import DiskFaults, PowerLost
from trellis.store import log as log_module
from trellis.store import records
from trellis.store.log import Batch, Log


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_what_is_certain_survives_losses_of_power(seed: int) -> None:
    Story(seed).run(120)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_full_disk_loses_nothing_that_is_certain(seed: int) -> None:
    story = Story(seed, DiskFaults(room=2_500))
    story.run(100)
    story.disk.faults.room = story.disk.budget = None
    for _ in range(4):
        story.commit()
    assert not story.log.is_due, "it does not recover when there is room"


@given(seed=st.integers(0, 2**32), fault=st.sampled_from(["lost_sync", "sync_error", "read_error", "flip"]))
@settings(max_examples=120, deadline=None)
def test_a_bad_disk_never_makes_the_log_tell_anything_false(seed: int, fault: str) -> None:
    Story(seed, DiskFaults(**{fault: 0.5 if fault == "flip" else 0.05})).run(100)


def _history(budget: int | None, torn: int = 0) -> int:
    """Run a small history until the power is lost after `budget` bytes. Return what it would have cost in all."""
    story = Story(torn, segment_bytes=150)
    story.disk.budget = most = 100_000 if budget is None else budget
    try:
        for _ in range(3):
            for _ in range(3):
                story.append()
            story.commit()
            story.release()
        assert story.disk.budget is not None
        left = story.disk.budget
    except PowerLost:
        left = 0
    story.disk.lose_power()
    story.restart()
    return most - left


@pytest.mark.parametrize("torn", range(4))
def test_the_power_may_be_lost_at_every_byte_of_a_small_history(torn: int) -> None:
    cost = _history(None, torn)
    assert cost > 300
    for budget in range(cost + 1):
        _history(budget, torn)


def test_one_flipped_bit_anywhere_loses_at_most_the_record_that_has_it() -> None:
    story = Story(3, segment_bytes=400)
    for _ in range(12):
        story.append()
        story.commit()
    total = len(story.certain)
    for name in story.disk.names():
        if name.endswith(records.INDEX):
            continue
        for offset in range(story.disk.size(name)):
            other = Story(3, segment_bytes=400)
            for _ in range(12):
                other.append()
                other.commit()
            other.disk.flip_bit(name, offset, offset % 8)
            other.disk.remove(name.removesuffix(records.SEGMENT) + records.INDEX)
            other.disk.counts["flip"] = 1
            other.restart()
            is_header = offset < records.HEADER_BYTES
            assert is_header or len(other.certain) >= total - 1, f"{name} at {offset}"


# Does the checker find anything? Each mutant removes one thing that the promise rests on.


def _leaves_the_sync_out(patch: pytest.MonkeyPatch) -> None:
    whole = Batch.write

    def write(self: Batch, disk: object) -> None:
        self.steps = [step for step in self.steps if step.what != "sync"]
        whole(self, disk)  # type: ignore[arg-type]

    patch.setattr(Batch, "write", write)


def _looks_at_no_checksum(patch: pytest.MonkeyPatch) -> None:
    def read(salt: int, offset: int, data: bytes, at: int = 0) -> tuple[bytes, bytes] | None:
        if len(data) - at < records.PREFIX_BYTES:
            return None
        _, head, body, _ = records._PREFIX.unpack_from(data, at)
        start = at + records.PREFIX_BYTES
        return (data[start : start + head], data[start + head : start + head + body]) if head else None

    patch.setattr(records, "read_record", read)
    patch.setattr(log_module, "read_record", read)


def _writes_the_index_before_the_data(patch: pytest.MonkeyPatch) -> None:
    whole = Log.take_batch

    def take_batch(self: Log) -> Batch:
        batch = whole(self)
        batch.steps.sort(key=lambda step: step.what != "index")
        return batch

    patch.setattr(Log, "take_batch", take_batch)


def _removes_segments_without_a_new_snapshot(patch: pytest.MonkeyPatch) -> None:
    whole = Log._append_snapshot

    def append_snapshot(self: Log) -> None:
        if len(self.segments) < 2:
            whole(self)
        self.segments[-1].has_snapshot = True

    patch.setattr(Log, "_append_snapshot", append_snapshot)


@pytest.mark.parametrize(
    "mutant",
    [
        _leaves_the_sync_out,
        _looks_at_no_checksum,
        _writes_the_index_before_the_data,
        _removes_segments_without_a_new_snapshot,
    ],
)
def test_a_planted_defect_is_found(mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)  # type: ignore[operator]
    with pytest.raises((AssertionError, ValueError, KeyError)):  # the checker's word, or a log that breaks
        _check_thoroughly()


def _check_thoroughly() -> None:
    for seed in range(12):
        for budget in range(_history(None, seed) + 1):
            _history(budget, seed)
        for number in range(20):
            Story(20 * seed + number).run(100, crash=0.1)
