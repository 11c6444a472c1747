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
    assert (
        "has no manifest of trellis pipeline or trellis plan; name a folder that a job has written"
        in capsys.readouterr().err
    )


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
    with pytest.raises(InputError, match=r"a\.log: begins with what was appended before \(.*a\.log\); append logs"):
        jobs.events(spark, first, table, append=True)
    with pytest.raises(InputError, match="was not written by trellis pipeline events; append to a result of the same"):
        jobs.events(spark, later, tmp_path / "interests", append=True)
    assert sorted(path.name[:5] for path in table.iterdir() if path.suffix != ".crc") == [
        "_SUCC",
        "data-",
        "day=2",
        "manif",
    ]


def test_a_log_counts_once_whatever_its_name_is(spark, write, tmp_path):
    """Rotation renames logs: today's a.log.1 is another log than yesterday's, and a.log.2 or a.log.2.gz the same."""
    old, new = "1700086402: c2 1 building/8\n", "1700086403: c3 0 building/7\n1700086404: c3 0 building/8\n"
    table = tmp_path / "events"
    jobs.events(spark, write("a.log.1", old), table, append=True)
    logs = [write("a.log.1", new), write("a.log.2", old), write("copy", new), write("a.log.2.gz", old)]
    report = jobs.events(spark, logs, table, append=True)
    assert (report.rows, report.facts["files_skipped"]) == ({"table": 2}, 3)
    assert told(tmp_path, "events")["rows"] == {"table": 3}
    with pytest.raises(InputError, match=r"b\.log\.gz: begins with what was appended before \(.*a\.log\.1\)"):
        jobs.events(spark, write("b.log.gz", new + old), table, append=True)


def test_lineage_leads_back_to_all_runs_of_a_table_that_grew(spark, write, tmp_path, capsys):
    table, log = tmp_path / "events", "17000864{:02}: c2 1 building/{}\n"
    logs = [write(f"{name}.log", log.format(place, place)) for place, name in enumerate("abc")]
    jobs.events(spark, logs[0], table, append=True)
    jobs.events(spark, logs[1], table, append=True)
    jobs.pairs(spark, table, tmp_path / "interests")
    jobs.events(spark, logs[2], table, append=True)
    runs = told(tmp_path, "events")["runs"]
    assert [run["inputs"] for run in runs] == [[one] for one in logs]
    for key in ("started", "ended", "application", "settings", "parameters", "versions", "outputs"):
        assert all(run[key] for run in runs), key
    assert len({path for run in runs for path in run["outputs"]}) == len(told(tmp_path, "events")["outputs"])
    assert run(["pipeline", "lineage", str(tmp_path / "interests")]) == 0
    _, events, *raw = capsys.readouterr().out.splitlines()
    assert events.endswith(", 2 runs, unchanged, appended to since")
    assert raw == [f"    {path}: raw, 28 bytes, run {number}, unchanged" for number, path in enumerate(logs[:2], 1)]
    assert run(["pipeline", "lineage", str(table)]) == 0
    assert [line.strip().partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [str(table), *logs]
    write("a.log", "other\n")
    assert run(["pipeline", "lineage", str(tmp_path / "interests")]) == 1
    assert "a.log: raw, 28 bytes, run 1, changed" in capsys.readouterr().out


def test_lineage_passes_through_a_plan_that_was_made_without_spark(spark, write, tmp_path, capsys):
    raw = write("in.tsv", "user\ttopic\nann\trock\nbob\trock\n")
    jobs.pairs(spark, raw, tmp_path / "interests")
    assert run(["plan", str(tmp_path / "interests"), "-o", str(tmp_path / "overlay.csv")]) == 0
    jobs.verify(spark, tmp_path / "interests", tmp_path / "overlay.csv", tmp_path / "verified")
    capsys.readouterr()
    assert run(["pipeline", "lineage", str(tmp_path / "verified")]) == 0
    lines = [line.partition(": ") for line in capsys.readouterr().out.splitlines()]
    told = [name.replace(f"{tmp_path}/", "") for name, _, _ in lines]
    assert told == ["verified", "  overlay.csv", "    interests", "      in.tsv", "  interests"]
    assert lines[-1][2].endswith(", see above")
