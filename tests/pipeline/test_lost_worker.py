"""Each job gives the same rows when one of two workers is killed in the middle of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import standalone


def plain(value: object) -> object:
    """The value with floats cut to nine digits: a sum depends on the order of its terms in the last ones."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def rows(spark, folder: Path) -> dict[str, list[str]]:
    """The rows of every table below a folder, by the place of the table."""
    tables = {path.parent for path in folder.rglob("*.parquet") if path.is_file()}
    assert tables
    return {
        str(table.relative_to(folder)): sorted(
            str(plain(row)) for row in spark.read.option("pathGlobFilter", "*.parquet").parquet(str(table)).collect()
        )
        for table in tables
        if not table.name.startswith("_") and "state" not in table.relative_to(folder).parts
    }


@pytest.mark.slow
def test_every_job_survives_the_loss_of_one_of_two_workers(spark, tmp_path):
    standalone.write_inputs(tmp_path / "in")
    expected = standalone.jobs_on(spark, tmp_path / "in", tmp_path / "local")
    for job in expected.values():
        job()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, standalone.__file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {one["job"]: one["killed"] for one in map(json.loads, done.stdout.splitlines())}
    assert set(told) == set(expected)
    places = [tmp_path / "cluster", tmp_path / "local"]
    there, here = ({name: rows(spark, place / name) for name in expected} for place in places)
    assert [name for name in expected if there[name] != here[name]] == []
    assert [name for name in expected if not told[name]] == [], "these ended before a worker was killed"
