"""Manifests tell where a result comes from, and a table of events grows without being read again."""

from __future__ import annotations

import json
import shutil

import pytest

from pipeline.examples import SAMPLES
from trellis.cli.main import run
from trellis.errors import InputError
from trellis.model.read import read_interests
from trellis.pipeline import jobs
from trellis.pipeline.lineage import lineage, settings_of


def told(tmp_path, name):
    return json.loads((tmp_path / name / "manifest.json").read_text())


def test_lineage_leads_back_to_raw_files_and_sees_what_has_changed(spark, write, tmp_path, capsys):
    raw = write("in.tsv", "user\ttopic\nann\trock\nbob\trock\n")
    jobs.pairs(spark, raw, tmp_path / "interests")
    jobs.pairs(spark, tmp_path / "interests", tmp_path / "again", columns=("node", "topic"))
    manifest = told(tmp_path, "again")
    assert manifest["application"] == spark.sparkContext.applicationId
    assert manifest["started"] <= manifest["ended"]
    assert manifest["settings"]["spark.master"] == "local[2]"
    assert [entry["path"] for entry in manifest["parents"]] == [str(tmp_path / "interests")]
    assert all(entry["sha256"] for entry in manifest["outputs"])
    assert run(["pipeline", "lineage", str(tmp_path / "again")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        str(tmp_path / "again"),
        f"  {tmp_path / 'interests'}",
        f"    {raw}",
    ]
    assert all(line.endswith(", unchanged") for line in lines)
    write("in.tsv", "user\ttopic\n")
    (part,) = [one for one in (tmp_path / "interests").glob("*.parquet") if one.stat().st_size]
    part.unlink()
    assert run(["pipeline", "lineage", str(tmp_path / "again")]) == 1
    assert [line.rpartition(", ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "unchanged",
        "missing",
        "changed",
    ]
    shutil.rmtree(tmp_path / "interests")
    assert [one.state for one in lineage(tmp_path / "again").all()] == ["unchanged", "missing"]


def test_what_is_no_result_has_no_lineage(tmp_path, capsys):
    assert run(["pipeline", "lineage", str(tmp_path)]) == 2
    assert "has no manifest of trellis pipeline; name a folder that a job has written" in capsys.readouterr().err


def test_a_manifest_tells_settings_but_no_secret():
    given = [("spark.app.id", "x"), ("spark.master", "yarn"), ("spark.hadoop.fs.s3a.secret.key", "hush")]
    assert settings_of(given) == {"spark.hadoop.fs.s3a.secret.key": "(not told)", "spark.master": "yarn"}


def test_a_table_of_events_grows_by_complete_logs_and_is_read_like_them(spark, write, tmp_path):
    first = write("a.log", SAMPLES["mosquitto"])
    later = write("b.log", "1700086402: c2 1 building/8\n1700086403: c2 0 building/7\n")
    table = tmp_path / "events"
    assert jobs.events(spark, first, table, append=True).rows == {"table": 5}
    report = jobs.events(spark, [first, later], table, append=True)
    assert (report.rows, report.facts["files_skipped"]) == ({"table": 2}, 1)
    manifest = told(tmp_path, "events")
    assert (manifest["rows"], len(manifest["runs"]), len(manifest["inputs"])) == ({"table": 7}, 2, 2)
    days = {part for entry in manifest["outputs"] for part in entry["path"].split("/") if part.startswith("day=")}
    assert days == {"day=2023-11-14", "day=2023-11-15"}
    report = jobs.pairs(spark, table, tmp_path / "interests")
    assert report.facts["format"] == "telemetry"
    assert read_interests(tmp_path / "interests").to_table().to_pylist() == [
        {"node": "c2", "topic": "building/7"},
        {"node": "c2", "topic": "building/8"},
    ]
    write("a.log", SAMPLES["mosquitto"] + "1700000007: c1 1 building/9\n")
    with pytest.raises(InputError, match=r"a\.log: has changed since it was appended; append logs when they are"):
        jobs.events(spark, first, table, append=True)
    with pytest.raises(InputError, match="was not written by trellis pipeline events; append to a result of the same"):
        jobs.events(spark, later, tmp_path / "interests", append=True)
    assert sorted(path.name[:5] for path in table.iterdir() if path.suffix != ".crc") == [
        "_SUCC",
        "data-",
        "day=2",
        "manif",
    ]
