"""`trellis pipeline`, typed as a user types it; Spark runs in the session of the tests."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from trellis.cli import spark as cli_spark
from trellis.cli.main import run


@pytest.fixture
def opened(spark, monkeypatch):
    """What a command asked of its session; the one of the tests is given instead of a new one."""
    asked: list[dict] = []

    @contextmanager
    def open_session(master, **options):
        asked.append({"master": master, **options})
        yield spark

    monkeypatch.setattr("trellis.pipeline.session.open_session", open_session)
    return asked


def test_pairs_become_interests_that_are_planned_and_verified(write, opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = write("likes.tsv", "user\tartist\nu1\ta\nu1\tb\nu2\ta\nu3\tb\nu3\tc\nu4\tc\n")
    assert run(["pipeline", "pairs", table, "--columns", "user,artist", "-o", "interests", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["job"] == "pairs"
    assert report["rows"] == {"table": 6}
    assert run("pipeline plan interests --partitions 2 -o overlay".split()) == 0
    assert "overlay: plan" in capsys.readouterr().out
    assert run("pipeline verify interests overlay -o verified".split()) == 0
    (tmp_path / "none.tsv").write_text("u\tv\nu1\tu2\n")
    assert run("pipeline verify interests none.tsv -o other".split()) == 1  # topics b and c are split


def test_small_inputs_get_few_shuffle_partitions_and_a_setting_of_the_user_wins(write, opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = write("likes.tsv", "u1\ta\nu2\ta\n")
    words = ["pipeline", "pairs", table, "--columns", "1,2", "--no-header"]
    assert run([*words, "-o", "one"]) == 0
    assert run([*words, "-o", "two", "--conf", "spark.sql.shuffle.partitions=3", "--master", "local[1]"]) == 0
    monkeypatch.setattr(cli_spark, "SMALL_BYTES", 4)
    assert run([*words, "-o", "three"]) == 0
    found = [asked["conf"].get("spark.sql.shuffle.partitions") for asked in opened]
    assert found == ["8", "3", None]
    assert [asked["master"] for asked in opened] == [None, "local[1]", None]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("pairs missing.tsv -o out", "missing.tsv"),
        ("pairs {table} --columns a -o out", "is not two columns"),
        ("pairs {table} --conf nonsense -o out", "write key=value"),
        ("pairs {table} --master nonsense -o out", "is unknown"),
        ("edits {table} --format odd -o out", "odd"),
    ],
)
def test_bad_input_is_told_in_one_line(write, spark, tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    if "--master" not in words:

        @contextmanager
        def open_session(*_, **__):
            yield spark

        monkeypatch.setattr("trellis.pipeline.session.open_session", open_session)
    table = write("likes.tsv", "u1\ta\n")
    assert run(["pipeline", *words.format(table=table).split()]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_progress_never_falls_back(write, opened, tmp_path, monkeypatch):
    """Spark plans further stages while it works: a share of those known so far would reach 100% and fall again."""
    shown: list[tuple[int, int | None]] = []

    @contextmanager
    def record(title):
        yield lambda done, total, doing="": shown.append((done, total))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_spark, "progress", record)
    table = write("likes.tsv", "".join(f"u{u}\tt{u * t % 17}\n" for u in range(60) for t in range(1, 4)))
    assert run(["pipeline", "pairs", table, "--columns", "1,2", "--no-header", "-o", "i"]) == 0
    assert run("pipeline plan i --partitions 3 -o o".split()) == 0
    assert shown
    shares = [done / total for done, total in shown if total]
    assert all(one < 1 for one in shares[:-1])
