"""Start a cluster of two workers in separate processes, with no Java installed, and wait for what it says.

Three Javas start, and each worker compiles its kernels: so one cluster does all the work once. It starts with the first
test of the pipeline and works beside the others. test_cluster.py looks at what it left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq

from trellis.model.interests import Interests

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

CONF = {
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.extraJavaOptions": "-Dtrellis.test=driver",  # options of a user come behind ours
    "spark.executor.extraJavaOptions": "-Dtrellis.test=executor",
}
tests, edges, interests, output = sys.argv[1:]
sys.path.insert(0, tests)
from pipeline.test_lab import SMALL
with open_session("local-cluster[2,1,1024]", conf=CONF, driver_memory="1g") as spark:
    jobs.social(spark, edges, output + "/social", format="edges", sample_nodes=30, seed=5)
    plan(spark, interests, output + "/plan", partitions=4, fan_in=2, seed=5)
    verify(spark, interests, output + "/plan", output + "/verify", topic_links_max=12)
    summary = run_rows(spark, SMALL, Store(output + "/lab"))
    places = spark.range(1).mapInArrow(where, "package string, kernel string, cache string").first().asDict()
    java = spark._jvm.System.getProperty("java.home")
print(json.dumps({"java": java, **places, "done": summary.done, "failed": summary.failed}))
"""


def workload() -> Interests:
    chance = random.Random(11)
    return Interests.from_pairs({f"n{n}": {f"t{chance.randrange(25)}" for _ in range(4)} for n in range(90)})


class Cluster:
    """The program with the cluster, and the files that it reads and writes."""

    def __init__(self, folder: Path) -> None:
        self.edges, self.interests = str(folder / "graph.txt"), str(folder / "interests.parquet")
        self.output = folder / "output"
        self.home = folder / "home"  # its working folder, and the home folder of its user
        Path(self.edges).write_text(EDGES)
        pq.write_table(workload().to_table(), self.interests)
        self.home.mkdir()
        words = [str(Path(__file__).parents[1]), self.edges, self.interests, str(self.output)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=without_java(folder / "bin") | {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache")},
            start_new_session=True,
        )

    @cached_property
    def done(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end of the program. Return its exit status and what it printed."""
        out, err = self.process.communicate(timeout=1800)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)

    @property
    def said(self) -> dict:
        assert self.done.returncode == 0, self.done.stderr
        return json.loads(self.done.stdout)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    with cluster.process:
        try:
            yield cluster
        finally:
            if cluster.process.poll() is None:  # no test has waited for it
                os.killpg(cluster.process.pid, signal.SIGKILL)


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
