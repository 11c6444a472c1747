"""`trellis replan` on files: the changes it prints and writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from trellis.cli.main import run

INTERESTS = "node,topic\n" + "".join(f"n{node},t{topic}\n" for node in range(6) for topic in range(3))
ALL = "u,v\n" + "".join(f"n{u},n{v}\n" for u in range(6) for v in range(u + 1, 6))


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interests.csv").write_text(INTERESTS)
    (tmp_path / "overlay.csv").write_text(ALL)
    return tmp_path


def test_the_changes_are_printed_and_written_and_lead_to_a_good_overlay(files, capsys):
    assert run("replan interests.csv overlay.csv -o changes.csv --overlay-out near.csv --json".split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["links"], told["links_after"], told["links_plan"]) == (15, 5, 5)
    assert [one["do"] for one in told["changes"]] == ["remove"] * 10
    lines = (files / "changes.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "do,u,v"
    assert len(lines) == 11
    assert run("check interests.csv near.csv".split()) == 0
    capsys.readouterr()
    assert run("replan interests.csv near.csv".split()) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_the_text_names_the_changes(files, capsys):
    assert run("replan interests.csv overlay.csv".split()) == 0
    out = capsys.readouterr().out
    assert "10 changes: 0 links to add, then 10 to remove" in out
    assert "15, then 5 (1.00 times LowODA's 5)" in out
    assert "remove n0 - n" in out


def test_a_target_is_reached_and_one_that_splits_a_topic_is_refused(files, capsys):
    (files / "line.csv").write_text("u,v\n" + "".join(f"n{u},n{u + 1}\n" for u in range(5)))
    (files / "bad.csv").write_text("u,v\nn0,n1\n")
    assert run("replan interests.csv overlay.csv --target line.csv --json".split()) == 0
    told = json.loads(capsys.readouterr().out)
    kept = {("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n5")}
    assert not kept & {(one["u"], one["v"]) for one in told["changes"]}
    assert run("replan interests.csv overlay.csv --target bad.csv".split()) == 2
    assert "the target splits 3 topics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("interests.csv", "1 files are named"),
        ("interests.csv overlay.csv overlay.csv", "3 files are named"),
        ("interests.csv overlay.csv --apply --token x", "files cannot be changed"),
        ("--live 127.0.0.1:1 --apply", "no secret is given"),
        ("--live 127.0.0.1:1 --apply --token none", "no such file"),
        ("--live interests.csv", "is no address"),
        ("--live 127.0.0.1:1", "no node answers: connection refused"),
        ("interests.csv overlay.csv --within 0.5", "give 1 or more"),
        ("interests.csv overlay.csv -o changes.txt", "changes.txt"),
        ("interests.csv overlay.csv --connectivity 3", "connectivity is 3"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_line(files, capsys, given, told):
    assert run(["replan", *given.split()]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.splitlines()) == 1
