"""Logs that are rotated, copied, compressed, truncated or half written: each complete line is read once."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from trellis.pipeline import tail
from trellis.pipeline.logs import LogError, complete_logs, lines_between
from trellis.pipeline.tail import Tail


class Reader:
    """Reads a folder as Spark does: offsets travel as JSON, and a batch is what lies between two of them."""

    def __init__(self, folder):
        self.tail, self.offset = Tail([str(folder)]), {}

    def ahead(self):
        """Return the next offset, without going there."""
        return json.loads(json.dumps(self.tail.latestOffset(self.offset)))

    def between(self, end):
        lines = []
        for piece in self.tail.partitions(self.offset, end):
            for batch in self.tail.read(piece):
                lines += [line.decode() for line in batch.column("line").to_pylist()]
        return sorted(lines)

    def batch(self):
        end = self.ahead()
        lines, self.offset = self.between(end), end
        return lines


@pytest.fixture
def log(tmp_path):
    return tmp_path / "a.log"


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path)


def append(path, text):
    with path.open("a") as stream:
        stream.write(text)


def test_a_line_that_is_half_written_waits_for_its_end(log, reader):
    append(log, "one")
    assert reader.batch() == []
    append(log, "\r\ntwo\nthr")
    assert reader.batch() == ["one", "two"]
    append(log, "ee\n")
    assert reader.batch() == ["three"]
    assert reader.batch() == []


def test_a_renamed_log_goes_on_under_its_new_name(log, reader):
    append(log, "one\ntwo\n")
    assert reader.batch() == ["one", "two"]
    log.rename(log.with_name("a.log.1"))
    append(log.with_name("a.log.1"), "three\n")
    append(log, "new\n")
    assert reader.batch() == ["new", "three"]
    log.with_name("a.log.1").rename(log.with_name("a.log.2"))
    log.rename(log.with_name("a.log.1"))
    append(log, "newest\n")
    assert reader.batch() == ["newest"]


def test_a_log_that_is_copied_and_truncated_counts_once(log, reader):
    append(log, "one\ntwo\n")
    assert reader.batch() == ["one", "two"]
    append(log, "three\n")
    copy = log.with_name("a.log.1")
    copy.write_text("one\nt")  # The copy is being written.
    assert reader.batch() == ["three"]
    append(log, "four\n")
    copy.write_text(log.read_text())
    os.truncate(log, 0)
    assert reader.batch() == ["four"]
    append(log, "new\n")
    assert reader.batch() == ["new"]


def test_a_log_that_is_compressed_counts_once_and_a_new_gz_is_read(log, reader):
    append(log, "one\ntwo\n")
    assert reader.batch() == ["one", "two"]
    append(log, "three\n")
    log.with_name("a.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    assert reader.batch() == ["three"]
    log.with_name("b.log.gz").write_bytes(gzip.compress(b"un\ndeux\nhalf"))
    assert reader.batch() == ["deux", "un"]
    assert reader.batch() == []


def test_a_gz_that_is_being_written_is_read_when_it_is_whole(log, reader, monkeypatch):
    zipped, whole = log.with_name("a.gz"), gzip.compress(b"one\n" * 1000)
    zipped.write_bytes(whole[:-9])
    assert reader.batch() == []
    zipped.write_bytes(whole)
    assert len(reader.batch()) == 1000
    broken = log.with_name("b.gz")
    broken.write_bytes(whole[:-9])
    os.utime(broken, (1, 1))
    with pytest.raises(LogError, match=r"b\.gz cannot be read: the gzip stream is damaged"):
        reader.batch()


def test_a_log_that_is_out_of_sight_for_a_while_is_not_read_again(log, reader):
    append(log, "one\n")
    assert reader.batch() == ["one"]
    aside = log.rename(log.with_name(".hidden"))
    append(log.with_name("b.log"), "other\n")
    assert reader.batch() == ["other"]
    aside.rename(log)
    append(log, "two\n")
    assert reader.batch() == ["two"]


def test_a_log_that_is_replaced_is_read_from_its_begin(log, reader):
    append(log, "one\ntwo\n")
    assert reader.batch() == ["one", "two"]
    log.unlink()
    append(log, "un\n")
    assert reader.batch() == ["un"]
    log.write_text("uno\ndue\ntre\n")  # in place, and longer than it was
    assert reader.batch() == ["due", "tre", "uno"]


def test_a_log_that_is_replaced_by_one_with_the_same_first_line_is_another_log(log, reader):
    append(log, "version 2\none\n")
    assert reader.batch() == ["one", "version 2"]
    log.write_text("version 2\nuno\ndue\n")
    assert reader.batch() == ["due", "uno", "version 2"]


def test_a_log_that_is_truncated_and_begins_with_the_same_line_is_refused(log, reader):
    append(log, "version 2\none\n")
    assert reader.batch() == ["one", "version 2"]
    os.truncate(log, len("version 2\n"))
    with pytest.raises(LogError, match=r"a\.log was truncated: it has 10 bytes, and 14 were read of it"):
        reader.batch()


def test_two_logs_that_begin_alike_are_both_read(log, reader):
    append(log, "version 2\n")
    append(log.with_name("b.log"), "version 2\n")
    assert reader.batch() == ["version 2"]  # They are the same so far.
    append(log, "one\n")
    append(log.with_name("b.log"), "uno\n")
    assert reader.batch() == ["one", "uno", "version 2"]
    append(log, "two\n")
    append(log.with_name("b.log"), "due\n")
    assert reader.batch() == ["due", "two"]


def test_a_log_that_is_renamed_after_the_batch_was_planned_is_found(log, reader):
    append(log, "one\ntwo\n")
    (piece,) = reader.tail.partitions({}, reader.ahead())
    log.rename(log.with_name("a.log.1"))
    append(log, "another log, at least as long\n")
    (batch,) = reader.tail.read(piece)
    assert batch.column("line").to_pylist() == [b"one", b"two"]


def test_a_log_that_is_deleted_before_all_of_it_was_read_is_told(log, reader):
    append(log, "one\n")
    end = reader.ahead()
    log.unlink()
    with pytest.raises(LogError, match="a log was deleted before all of it was read, at byte 0 of 4"):
        reader.between(end)


def test_an_offset_stays_the_same_while_nothing_grows(log, reader):
    """Spark compares offsets as text, and starts a batch when they differ."""
    for name in "cab":
        append(log.with_name(f"{name}.log"), f"{name}\n")
    reader.batch()
    log.with_name("a.log").unlink()
    assert json.dumps(reader.ahead()) == json.dumps(reader.offset)
    append(log.with_name("b.log"), "more\n")
    assert list(reader.ahead().values())[-1]["stop"] == 7


def test_marks_of_logs_that_are_gone_are_kept_up_to_a_number(log, reader, monkeypatch):
    monkeypatch.setattr(tail, "GONE_MAX", 2)
    for number in range(5):
        log.write_text(f"log {number}\n")
        assert reader.batch() == [f"log {number}"]
    assert len(reader.offset) == 3


def test_hidden_files_are_left_out_and_patterns_reach_into_folders(log, tmp_path):
    append(log, "one\n")
    for name in (".hidden/a.log", "_temporary/a.log", "deep/er/b.log"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("two\n")
    assert sorted(one.path for one in complete_logs([str(tmp_path)])) == [str(log), str(tmp_path / "deep/er/b.log")]
    assert [one.path for one in complete_logs([str(tmp_path / "**" / "b.*")])] == [str(tmp_path / "deep/er/b.log")]
    assert len(list(complete_logs([str(log), str(log)]))) == 1


def test_what_cannot_be_followed_is_told(log, reader, monkeypatch):
    append(log.with_name("a.log.zst"), "x")
    with pytest.raises(LogError, match=r"a\.log\.zst cannot be read: \.zst is not followed"):
        reader.batch()
    log.with_name("a.log.zst").unlink()
    append(log, "one\n")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("trellis.pipeline.logs._plain_log", refused)
    with pytest.raises(LogError, match=r"a\.log cannot be read: Permission denied"):
        reader.batch()


def test_lines_end_as_in_the_batch_jobs_and_a_byte_order_mark_is_none(log):
    log.write_bytes(b"\xef\xbb\xbfone\rtwo\r\n\nthree\n")
    assert list(lines_between(str(log), 0, log.stat().st_size)) == [b"one", b"two", b"", b"three"]


def test_a_first_line_of_any_length_is_no_obstacle(log, reader, monkeypatch):
    monkeypatch.setattr("trellis.pipeline.logs.FIRST_LINE_BYTES_MAX", 4)
    append(log, "a long first line")
    assert reader.batch() == []
    append(log, "\ntwo\n")
    assert reader.batch() == ["a long first line", "two"]
