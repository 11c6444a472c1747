"""`trellis store`: check, copy and export a store, also while a node uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trellis.cli.main import app
from trellis.errors import InputError
from trellis.protocols.delivery.records import Handed, Kept, encode
from trellis.store.checks import copy
from trellis.store.disk import FolderDisk
from trellis.store.log import Log


def filled(folder: Path, messages: int = 20) -> tuple[FolderDisk, Log]:
    disk = FolderDisk(folder)
    salts = iter(range(1, 1_000))
    log = Log(disk, 512, lambda: next(salts), lambda: [])
    assert list(log.restored()) == []
    log.begin()
    for number in range(1, messages + 1):
        log.append(encode(Kept("news", "a", 7, number, 1_000 + number, 0)), b"payload %d" % number)
        log.append(encode(Handed("news", "a", 7, number)), keeps=False)
        batch = log.take_batch()
        batch.write(disk)
        log.written(batch)
    return disk, log


def command(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["store", *map(str, words)])
    return result.exit_code, result.output


def test_a_store_that_is_in_use_is_checked_and_good(tmp_path: Path) -> None:
    disk, log = filled(tmp_path / "a")
    code, told = command("check", tmp_path / "a", "--json")
    about = json.loads(told)
    assert (code, about["records"], about["damaged"]) == (0, 40, [])
    assert about["segments"] == len(log.segments) > 2
    assert about["indexed"] == about["segments"] - 1
    disk.close()


def test_a_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    disk, log = filled(tmp_path / "a")
    disk.close()
    victim = tmp_path / "a" / log.segments[0].name
    data = bytearray(victim.read_bytes())
    data[100] ^= 4
    victim.write_bytes(data)
    code, told = command("check", tmp_path / "a")
    assert code == 1
    assert f"{victim.name}: damaged" in told


def test_a_damaged_segment_is_set_aside_and_the_rest_of_it_is_kept(tmp_path: Path) -> None:
    disk, log = filled(tmp_path / "a")
    disk.close()
    name = log.segments[0].name
    victim = tmp_path / "a" / name
    data = bytearray(victim.read_bytes())
    data[100] ^= 4
    victim.write_bytes(data)
    victim.with_suffix(".index").unlink()
    disk = FolderDisk(tmp_path / "a")
    log = Log(disk, 512, lambda: 5, lambda: [])
    found = list(log.restored())
    log.begin()
    while log.is_due:
        batch = log.take_batch()
        batch.write(disk)
        log.written(batch)
    disk.close()
    assert len(found) == 39
    assert log.recovered.damaged == [name]
    assert not victim.exists()
    assert victim.with_suffix(".damaged").exists()
    assert command("check", tmp_path / "a")[0] == 0


def test_a_copy_that_was_taken_while_the_node_writes_can_be_opened(tmp_path: Path) -> None:
    disk, _ = filled(tmp_path / "a")
    assert command("copy", tmp_path / "a", tmp_path / "b")[0] == 0
    disk.close()
    target = FolderDisk(tmp_path / "b")
    again = Log(target, 512, lambda: 5, lambda: [])
    assert len(list(again.restored())) == 40
    target.close()
    assert command("copy", tmp_path / "a", tmp_path / "b")[0] != 0, "a copy was overwritten"


def test_segments_that_are_begun_during_a_copy_are_in_it(tmp_path: Path) -> None:
    source, log = filled(tmp_path / "a", 4)

    class Slow(FolderDisk):
        def write_whole(self, name: str, data: bytes) -> None:
            super().write_whole(name, data)
            for number in range(100, 104):
                if log.next < 60:
                    log.append(encode(Kept("news", "a", 7, number + log.next, 0, 0)), b"x" * 100)
            if log.is_due:
                batch = log.take_batch()
                batch.write(source)
                log.written(batch)

    target = Slow(tmp_path / "b")
    copy(source, target)
    target.close()
    source.close()
    opened = FolderDisk(tmp_path / "b")
    again = Log(opened, 512, lambda: 5, lambda: [])
    assert len(list(again.restored())) == log.next
    opened.close()


def test_messages_are_exported_to_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    disk, _ = filled(tmp_path / "a")
    code, told = command("export", tmp_path / "a", "-o", tmp_path / "out.parquet", "--json")
    disk.close()
    assert (code, json.loads(told)["messages"]) == (0, 20)
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["sequence"] for row in table] == list(range(1, 21))
    assert table[4]["payload"] == b"payload 5"


def test_two_processes_cannot_write_to_one_store(tmp_path: Path) -> None:
    disk, _ = filled(tmp_path / "a")
    with pytest.raises(InputError, match="another process uses this store"):
        FolderDisk(tmp_path / "a")
    disk.close()
