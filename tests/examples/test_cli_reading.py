"""Tables that others have written: other column names, other columns, no header, repeated rows. No Spark is needed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.model import read_interests

EXPORT = "when,client_id,subscription\n1,a,x\n2,b,x\n3,a,x\n4,b,y\n5,c,y\n3,a,x\n"
PAIRS = {("a", "x"), ("b", "x"), ("b", "y"), ("c", "y")}
HOW = ["--columns", "node=client_id,topic=subscription"]
MERGED = "export.csv: 2 repeated rows were merged; --repeated refuse stops at the first instead\n"


@pytest.fixture
def export(tmp_path, monkeypatch):
    """A folder with the export of a broker, an overlay over it and a churn trace; commands run inside."""
    monkeypatch.chdir(tmp_path)
    Path("export.csv").write_text(EXPORT)
    Path("o.tsv").write_text("u\tv\na\tb\nb\tc\n")
    Path("c.tsv").write_text("time\tnode\tevent\ttopic\n1\ta\tleave\t\n")
    return "export.csv"


def pairs_of(path: str, **how: object) -> set[tuple[str, str]]:
    table = read_interests(path, **how).to_table()
    return set(zip(table["node"].to_pylist(), table["topic"].to_pylist(), strict=True))


def refused(capsys, *arguments: str) -> str:
    assert run(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "command",
    [
        "plan export.csv -o out.tsv",
        "profile export.csv",
        "check export.csv o.tsv",
        "maintain export.csv o.tsv --churn c.tsv -o out.tsv",
        "simulate spidercast export.csv -o out",
        "churn random export.csv --rounds 2 -o out.tsv",
        "convert export.csv out.tsv",
    ],
)
def test_every_command_that_reads_interests_takes_an_export_as_it_is(export, capsys, command):
    assert run([*command.split(), *HOW]) == 0
    assert MERGED in capsys.readouterr().err, "it says how many rows were merged"
    assert "export.csv:4: node" in refused(capsys, *command.split(), *HOW, "--repeated", "refuse")


def test_convert_writes_each_subscription_once_in_the_order_of_the_rows(export, capsys):
    assert run(["convert", "export.csv", "i.tsv", *HOW]) == 0
    assert Path("i.tsv").read_text() == "node\ttopic\na\tx\nb\tx\nb\ty\nc\ty\n"


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("i.csv", EXPORT, {"columns": "client_id,subscription"}),
        ("i.csv", EXPORT, {"columns": "2,3"}),
        ("i.csv", EXPORT, {"columns": {"topic": 3, "node": "client_id"}}),
        ("i.csv", EXPORT.replace("client_id", "node"), {"columns": "topic=subscription"}),
        ("i.tsv", EXPORT.replace(",", "\t"), {"columns": "2,3"}),
        ("i.csv", EXPORT.split("\n", 1)[1], {"columns": "2,3", "header": False}),
        ("i.csv", "a,x\nb,x\nb,y\nc,y\n", {"header": False}),
        ("i.log", EXPORT.replace(",", ";"), {"columns": "2,3", "separator": ";"}),
        ("i.log", "a\tx\nb\tx\nb\ty\nc\ty\n", {"header": False, "separator": "tab"}),
        ("i.csv", "\ufeffnode,topic\na,x\nb,x\nb,y\nc,y\n", {}),  # as spreadsheets write it
        ("i.csv", '\ufeff"a",x\nb,x\nb,y\nc,y\n', {"header": False}),
    ],
)
def test_a_layout_finds_the_columns_wherever_they_are(tmp_path, name, content, how):
    (tmp_path / name).write_text(content, "utf-8")
    assert pairs_of(str(tmp_path / name), **how, repeated="merge") == PAIRS


def test_columns_of_a_parquet_file_are_found_by_name_and_by_number(tmp_path):
    path = tmp_path / "i.parquet"
    rows = {"when": [1, 2, 3, 4, 5], "who": ["a", "b", "b", "c", "a"], "what": ["x", "x", "y", "y", "x"]}
    pq.write_table(pa.table(rows), path)
    for columns in ("who,what", "2,3", "topic=what,node=who"):
        assert pairs_of(str(path), columns=columns, repeated="merge") == PAIRS
    with pytest.raises(InputError, match=r"i\.parquet, row 5: node"):
        read_interests(path, columns="who,what")
    with pytest.raises(InputError, match="names its columns itself; leave out --no-header"):
        read_interests(path, header=False)


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ([], ["export.csv:1: ", '"when, client_id, subscription"', "--columns node=NAME,topic=NAME", "--no-header"]),
        (["--columns", "who,what"], ['export.csv:1: there is no column "who"', "when, client_id, subscription"]),
        (["--columns", "1,4"], ['there is no column "4"']),
        (["--columns", "2,2"], ["one column is named twice"]),
        (["--columns", "node=2,topic=client_id"], ["two of our columns are the same one"]),
        (["--columns", "client_id"], ["does not say which column is which", "node=NAME,topic=NAME"]),
        (["--columns", "node=2,subject=3"], ["subject", "the columns of interests are node, topic"]),
        (["--no-header"], ["export.csv:1: the line has 3 fields", "--columns node=1,topic=2"]),
        (["--no-header", "--columns", "2,9"], ["export.csv:1: there is no field 9", "numbers from 1 to 3"]),
        (["--separator", ";;"], ["is not one character"]),
        ([*HOW, "--repeated", "sometimes"], ["--repeated sometimes", "merge, refuse"]),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_with_the_columns_that_are_there(export, capsys, options, messages):
    said = refused(capsys, "profile", "export.csv", *options)
    for message in messages:
        assert message in said


def test_a_row_that_is_too_short_is_named_by_its_line_in_a_foreign_table(export, capsys):
    Path("export.csv").write_text(EXPORT + "7,d\n")
    assert "export.csv:8: 2 fields where 3 belong" in refused(capsys, "profile", "export.csv", *HOW)
    Path("bare.csv").write_text("1,a,x\n2,,x\n")
    said = refused(capsys, "profile", "bare.csv", "--no-header", "--columns", "2,3")
    assert "bare.csv:2: the node is empty" in said


def test_a_program_must_ask_before_repeated_rows_are_merged(export):
    with pytest.raises(InputError, match=r'export\.csv:4: node "a" subscribes to topic "x" twice'):
        read_interests("export.csv", columns="client_id,subscription")
    assert pairs_of("export.csv", columns="client_id,subscription", repeated="merge") == PAIRS


LINES = (
    '{"when": 1, "client": "a", "topic": "x"}\n{"client": "b", "topic": "x", "qos": 1}\n\n'
    '{"client": "a", "topic": "x"}\n{"topic": "y", "client": "b"}\n{"client": "c", "topic": "y"}\n'
)


@pytest.mark.parametrize("name", ["i.jsonl", "i.ndjson", "i.jsonl.gz"])
def test_json_lines_are_read_by_their_keys(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(LINES.encode()) if name.endswith(".gz") else b"\xef\xbb\xbf" + LINES.encode())
    for columns in ("client,topic", "node=client", "topic=topic,node=client"):
        assert pairs_of(str(path), columns=columns, repeated="merge") == PAIRS
    with pytest.raises(InputError, match=rf"{name}:4: node \"a\" subscribes to topic \"x\" twice"):
        read_interests(path, columns="client,topic")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="no subscription"):
        read_interests(path)


def test_plan_check_and_convert_take_json_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("i.jsonl").write_text(LINES)
    assert run("plan i.jsonl --columns client,topic -o o.csv".split()) == 0
    assert "i.jsonl: 1 repeated row was merged" in capsys.readouterr().err
    assert run("check i.jsonl o.csv --columns client,topic".split()) == 0
    assert run("convert i.jsonl i.tsv --columns client,topic".split()) == 0
    assert Path("i.tsv").read_text() == "node\ttopic\na\tx\nb\tx\nb\ty\nc\ty\n"
    Path("numbers.jsonl").write_text('{"node": 7, "topic": "t", "more": [1]}\n{"node": "8", "topic": "t"}\n')
    assert pairs_of("numbers.jsonl") == {("7", "t"), ("8", "t")}


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ('{"node": "a"', [], "i.jsonl:2: not a JSON object"),
        ('["a", "x"]', [], "i.jsonl:2: not a JSON object"),
        ('{"node": "a", "topic": ["x"]}', [], "i.jsonl:2: topic is neither text nor a whole number"),
        ('{"node": true, "topic": "x"}', [], "i.jsonl:2: node is neither text nor a whole number"),
        ('{"node": "a"}', [], 'i.jsonl:2: there is no key "topic"; the keys are node'),
        ('{"node": "a", "topic": null}', [], "i.jsonl:2: the topic is empty"),
        ('{"node": "a", "topic": "\\ud800"}', [], "i.jsonl:2: not a JSON object"),
        ("[" * 100_000, [], "i.jsonl:2: not a JSON object"),
        ("x" * (1 << 20 | 1), [], "i.jsonl:2: the line is longer than"),
        ("", ["--columns", "who,what"], 'i.jsonl:1: there is no column "who"'),
        ("", ["--columns", "subject=node"], "subject"),
        ("", ["--no-header"], "leave out --no-header"),
        ("", ["--separator", ";"], "leave out --separator"),
    ],
)
def test_json_lines_that_are_wrong_are_refused_with_their_line(tmp_path, monkeypatch, capsys, line, options, message):
    monkeypatch.chdir(tmp_path)
    Path("i.jsonl").write_text('{"node": "b", "topic": "x"}\n' + line + "\n")
    assert message in refused(capsys, "profile", "i.jsonl", *options)
