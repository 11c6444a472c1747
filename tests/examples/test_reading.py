"""What reading refuses, and how it says so: file, line, what, and what to do next."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trellis.errors import InputError
from trellis.model import Interests, read_churn, read_interests, read_overlay, write_table
from trellis.model.read import read_rows

INTERESTS = Interests.from_pairs({"n1": ["a", "b"], "n2": ["b"], "n3": ["a"]})


def refusal(read, path: Path, content: bytes | str, *arguments: object) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read(path, *arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert "; " in message, "an error says what to do next"
    return message.replace(str(path), path.name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty; its first line must name the columns"),
        ("node\ttopic\n", "i.tsv: there is no subscription in it"),
        ("node\tsubject\nn1\ta\n", "i.tsv:1: column topic is missing"),
        ("node\ttopic\tweight\nn1\ta\t3\n", "i.tsv:1: column 'weight' is not known"),
        ("node\ttopic\ttopic\nn1\ta\ta\n", "i.tsv:1: a column is there twice"),
        ("node\ttopic\nn1\ta\nn2\tb\nn1\ta\n", 'i.tsv:4: node "n1" subscribes to topic "a" twice'),
        ("node\ttopic\nn1\ta\nn2\n", "i.tsv:3: 1 fields where 2 belong"),
        ("node\ttopic\nn1\ta\nn2\tb\tc\n", "i.tsv:3: 3 fields where 2 belong"),
        ("node\ttopic\nn1\ta\n\nn2\tb\n", "i.tsv:3: the node is empty"),
        ("node\ttopic\nn1\ta\nn2\t\n", "i.tsv:3: the topic is empty"),
        (b"node\ttopic\nn1\ta\nn2\t\xff\xfe\n", "i.tsv:3: the text is not UTF-8"),
        (b"node\xff\ttopic\nn1\ta\n", "i.tsv:1: the text is not UTF-8"),
        ('node\ttopic\nn1\t"a\nn2\tb\n', "i.tsv:2: cannot be split into fields"),
        ('node\ttopic\nn1\t"a', "i.tsv:2: cannot be split into fields"),
        ('node\ttopic\nn1\t"a\nn2\t"b\n', "i.tsv:2: cannot be split into fields"),
        ('node\ttopic\nn1\t"a\nb"\nn2\tc\nn2\tc\n', "i.tsv:5: node "),  # a name with a line end in it counts two lines
    ],
)
def test_a_wrong_interests_table_is_refused_with_its_line(tmp_path, content, message):
    assert message in refusal(read_interests, tmp_path / "i.tsv", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("u\tv\nn1\tn2\nn3\tn3\n", 'o.tsv:3: node "n3" is linked to itself'),
        ("u\tv\nn1\tn2\nn2\tn1\n", 'o.tsv:3: the link "n1" - "n2" is repeated'),
        ("u\tv\nn1\tn2\nn1\tn9\n", 'o.tsv:3: v "n9" is no node of the interests'),
        ("u\tw\nn1\tn2\n", "o.tsv:1: column v is missing"),
    ],
)
def test_a_wrong_overlay_is_refused_with_its_line(tmp_path, content, message):
    assert message in refusal(read_overlay, tmp_path / "o.tsv", content, INTERESTS.nodes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1\tn1\tleave\t\n2\tn1\tcrash\t\n", 'c.tsv:3: crash of node "n1", which is not there'),
        ("1\tn1\tleave\t\n2\tn1\tjoin\t\n3\tn1\tjoin\t\n", 'c.tsv:4: node "n1" joins but is already there'),
        ("1\tn9\tleave\t\n", 'c.tsv:2: leave of node "n9", which is not there'),
        ("1\tn9\tjoin\t\n", 'c.tsv:2: node "n9" joins without interests'),
        ("1\tn9\tjoin\t\n1\tn9\tsubscribe\ta\n1\tn9\tsubscribe\ta\n", 'c.tsv:4: node "n9" subscribes to "a" twice'),
        ("1\tn1\tsubscribe\ta\n", 'c.tsv:2: node "n1" already subscribes to "a"'),
        ("1\tn2\tunsubscribe\ta\n", 'c.tsv:2: node "n2" does not subscribe to "a"'),
        ("1\tn1\tsubscribe\t\n", "c.tsv:2: a row of event subscribe lacks a topic"),
        ("1\tn1\tleave\ta\n", "c.tsv:2: a row of event leave has a topic"),
        ("1\tn1\tvanish\t\n", 'c.tsv:2: event "vanish" is no event'),
        ("2\tn1\tleave\t\n1\tn2\tleave\t\n", "c.tsv:3: the time falls"),
        ("soon\tn1\tleave\t\n", 'c.tsv:2: time "soon" is not a number'),
        ("inf\tn1\tleave\t\n", "c.tsv:2: time is not a finite number"),
    ],
)
def test_a_churn_event_that_cannot_happen_is_refused_with_its_line(tmp_path, rows, message):
    content = "time\tnode\tevent\ttopic\n" + rows
    assert message in refusal(read_churn, tmp_path / "c.tsv", content, INTERESTS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a\t1\nb\t-2\n", "r.tsv:3: rate -2 is negative"),
        ("a\t1\na\t2\n", 'r.tsv:3: topic "a" has a rate already'),
        ("a\t1\nc\t2\n", 'r.tsv:3: topic "c" is no topic of the interests'),
        ("a\t1\n", 'r.tsv: topic "b" has no rate'),
    ],
)
def test_wrong_rates_are_refused(tmp_path, rows, message):
    write_table(INTERESTS.to_table(), tmp_path / "i.tsv")
    read = lambda path: read_interests(tmp_path / "i.tsv", rates=path)  # noqa: E731
    assert message in refusal(read, tmp_path / "r.tsv", "topic\trate\n" + rows)


def test_a_truncated_gzip_file_is_refused(tmp_path):
    whole = gzip.compress(b"node\ttopic\n" + b"".join(b"n%d\ta\n" % number for number in range(1000)))
    assert "the gzip stream is damaged" in refusal(read_interests, tmp_path / "i.tsv.gz", whole[:-20])
    assert "the gzip stream is damaged" in refusal(read_interests, tmp_path / "j.tsv.gz", b"node\ttopic\nn1\ta\n")


def test_a_truncated_or_damaged_parquet_file_is_refused(tmp_path):
    path = tmp_path / "whole.parquet"
    write_table(INTERESTS.to_table(), path)
    whole = path.read_bytes()
    assert "not a whole Parquet file" in refusal(read_interests, tmp_path / "i.parquet", whole[:-30])
    assert "not a whole Parquet file" in refusal(read_interests, tmp_path / "i.parquet", b"")
    damaged = whole[:4] + bytes(byte ^ 0xFF for byte in whole[4:24]) + whole[24:]
    assert "damaged" in refusal(read_interests, tmp_path / "i.parquet", damaged)


def test_a_parquet_row_is_named_by_its_part_and_number(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for part, rows in enumerate([["n1", "n2"], ["n3", "n1"]]):
        pq.write_table(pa.table({"node": rows, "topic": ["a", "a"]}), folder / f"part-0000{part}.parquet")
    with pytest.raises(InputError, match=r'part-00001\.parquet, row 2: node "n1" subscribes to topic "a" twice'):
        read_interests(folder)


def test_text_in_a_parquet_file_that_is_not_utf8_is_refused(tmp_path):
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], "int32")), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"node": ["n1"], "topic": broken}), tmp_path / "i.parquet")
    with pytest.raises(InputError, match="column topic holds text that is not UTF-8"):
        read_interests(tmp_path / "i.parquet")


def test_columns_of_the_wrong_type_are_refused(tmp_path):
    pq.write_table(pa.table({"node": [1.5], "topic": ["a"]}), tmp_path / "i.parquet")
    with pytest.raises(InputError, match="column node is double; names are text or whole numbers"):
        read_interests(tmp_path / "i.parquet")


def test_a_column_of_lists_is_refused(tmp_path):
    pq.write_table(pa.table({"node": [["n1"], ["n2"]], "topic": ["a", "b"]}), tmp_path / "i.parquet")
    with pytest.raises(InputError, match=r"column node is list<.*; names are text or whole numbers"):
        read_interests(tmp_path / "i.parquet")


def test_missing_values_in_parquet_are_refused(tmp_path):
    pq.write_table(pa.table({"node": ["n1", None], "topic": ["a", "b"]}), tmp_path / "i.parquet")
    with pytest.raises(InputError, match="row 2: the node is empty"):
        read_interests(tmp_path / "i.parquet")


def test_an_unfinished_or_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="the folder holds no Parquet part"):
        read_interests(tmp_path)
    (tmp_path / "_temporary").mkdir()
    with pytest.raises(InputError, match="has not finished"):
        read_interests(tmp_path)


def test_a_name_that_tells_no_format_and_a_missing_file_are_refused(tmp_path):
    (tmp_path / "i.txt").write_text("node\ttopic\n")
    with pytest.raises(InputError, match="its name does not tell the format"):
        read_interests(tmp_path / "i.txt")
    for name in ("i.tsv", "i.parquet"):
        with pytest.raises(InputError, match=r"cannot be read|there is no such file"):
            read_interests(tmp_path / name)


def test_a_folder_of_parts_reads_as_one_table_and_hidden_files_are_not_parts(tmp_path):
    pq.write_table(pa.table({"node": [7], "topic": ["a"]}), tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"node": [10], "topic": ["b"]}), tmp_path / "part-1.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "_rejected.parquet").write_bytes(b"not a part")
    interests = read_interests(tmp_path)
    assert list(interests.nodes) == ["7", "10"]  # whole numbers are names like any other, in their order


def test_columns_may_come_in_any_order_and_lines_may_end_in_crlf(tmp_path):
    (tmp_path / "i.csv").write_bytes(b"topic,node\r\na,n1\r\nb,n1\r\n")
    assert read_interests(tmp_path / "i.csv").to_table().to_pydict() == {"node": ["n1", "n1"], "topic": ["a", "b"]}


def test_a_table_of_no_kind_of_ours_is_refused_with_the_kinds_we_know(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"no table of ours has the columns a, b; we know interests: node, topic"):
        read_rows(tmp_path / "x.csv")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "i.tsv"
    path.write_text("precious")
    unwritable = pa.table({"node": ["n1"], "topic": [[1, 2]]})  # a list is no field
    with pytest.raises(pa.ArrowNotImplementedError):
        write_table(unwritable, path)
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["i.tsv"]


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "o.tsv"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is a device or a pipe"):
        write_table(INTERESTS.to_table(), pipe)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["o.tsv"]


def test_an_output_is_refused_before_the_work_where_its_folder_is_missing(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        write_table(INTERESTS.to_table(), tmp_path / "nowhere" / "i.tsv")
