"""`trellis plan` writes a manifest beside its output, and `trellis pipeline lineage` follows it."""

from __future__ import annotations

import hashlib
import json

import pytest

from trellis.cli.main import run


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interests.csv").write_text("node,topic\nn1,a\nn2,a\nn3,a\n")
    (tmp_path / "caps.csv").write_text("node,links_max\nn1,2\n")
    return tmp_path


def test_the_manifest_of_a_plan_tells_how_it_was_made(files, capsys):
    words = "plan interests.csv --caps caps.csv --rho 2 --seed 5 -o overlay.csv --export overlay.graphml"
    assert run(words.split()) == 0
    told = json.loads((files / "overlay.csv.manifest.json").read_text())
    assert (told["job"], told["seed"], told["rows"]) == ("plan", 5, {"links": 2})
    assert told["parameters"]["rho"] == 2
    assert told["started"] <= told["ended"]
    assert {entry["path"] for entry in told["inputs"]} == {str(files / "interests.csv"), str(files / "caps.csv")}
    written = {entry["path"]: entry["sha256"] for entry in told["outputs"]}
    assert written == {
        name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in ("overlay.csv", "overlay.graphml")
    }


def test_lineage_follows_plans_back_to_raw_files_and_sees_changes(files, capsys):
    assert run("plan interests.csv -o first.csv".split()) == 0
    assert run("plan interests.csv --existing first.csv -o second.csv".split()) == 0
    capsys.readouterr()
    assert run("pipeline lineage second.csv".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "second.csv",
        f"  {files / 'first.csv'}",
        f"    {files / 'interests.csv'}",
        f"  {files / 'interests.csv'}",
    ]
    assert all(line.endswith(", unchanged") for line in lines)
    (files / "first.csv").write_text("u,v\n")
    assert run("pipeline lineage second.csv".split()) == 1
    assert f"{files / 'first.csv'}: plan, " in capsys.readouterr().out


def test_a_file_without_a_manifest_has_no_lineage(files, capsys):
    assert run("pipeline lineage interests.csv".split()) == 2
    assert (
        "interests.csv: has no manifest of trellis pipeline or trellis plan; name a folder" in capsys.readouterr().err
    )
