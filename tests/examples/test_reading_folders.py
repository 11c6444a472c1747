"""A folder of Parquet parts is read by its manifest, so that what a failed job left there is no part of it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trellis.errors import InputError
from trellis.model import read_interests


def part(path, *nodes):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"node": list(nodes), "topic": ["t"] * len(nodes)}), path)


def manifest(folder, *paths):
    listed = {"job": "pairs", "outputs": [{"path": path, "bytes": 1} for path in paths]}
    (folder / "manifest.json").write_text(json.dumps(listed))


def nodes(path):
    return list(read_interests(path).nodes)


def test_only_the_files_that_the_manifest_lists_are_read(tmp_path):
    part(tmp_path / "part-0.parquet", "n1")
    part(tmp_path / "part-1.parquet", "n2")  # left by a job that failed
    part(tmp_path / "data-1" / "part-0.parquet", "n3")
    part(tmp_path / "data-2" / "part-0.parquet", "n4")  # left by another one
    part(tmp_path / "_rejected" / "part-0.parquet", "n5")
    manifest(tmp_path, "part-0.parquet", "data-1/part-0.parquet", "_rejected/part-0.parquet", "_SUCCESS")
    assert nodes(tmp_path) == ["n1", "n3"]


def test_a_part_that_is_listed_and_not_there_is_told(tmp_path):
    part(tmp_path / "part-0.parquet", "n1")
    manifest(tmp_path, "part-0.parquet", "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1\.parquet: is listed in the manifest of its folder, and is not there"):
        nodes(tmp_path)


def test_a_folder_that_a_job_left_without_a_manifest_is_refused(tmp_path):
    part(tmp_path / "data-1" / "part-0.parquet", "n1")
    with pytest.raises(InputError, match="has written no manifest; run it again"):
        nodes(tmp_path)


def test_a_folder_of_several_tables_asks_for_one_of_them(tmp_path):
    part(tmp_path / "a.parquet" / "part-0.parquet", "n1")
    part(tmp_path / "b.parquet" / "part-0.parquet", "n2")
    part(tmp_path / "b.parquet" / "part-1.parquet", "n3")
    manifest(tmp_path, "a.parquet/part-0.parquet", "b.parquet/part-0.parquet")
    with pytest.raises(InputError, match=r"holds several tables: a\.parquet, b\.parquet; name one: .*a\.parquet"):
        nodes(tmp_path)
    assert nodes(tmp_path / "b.parquet") == ["n2"]


def test_a_folder_of_another_program_is_read_without_a_manifest(tmp_path):
    part(tmp_path / "other" / "part-0.parquet", "n1")
    part(tmp_path / "other" / "part-1.parquet", "n2")
    assert nodes(tmp_path / "other") == ["n1", "n2"]
    manifest(tmp_path, "elsewhere/part-0.parquet")  # of a result that the folder is no part of
    assert nodes(tmp_path / "other") == ["n1", "n2"]
    (tmp_path / "other" / "manifest.json").write_text("not JSON")
    assert nodes(tmp_path / "other") == ["n1", "n2"]
