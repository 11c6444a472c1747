"""Run each job on a standalone cluster of two workers, and kill one of them with SIGKILL in the middle of the job.

    python standalone.py FOLDER        reads FOLDER/in, writes FOLDER/cluster, prints a line of JSON for each job
    python standalone.py FOLDER JOB... only these jobs; verify reads what parts has written

A worker is a process group of its own: its Java, the executor that it starts, and the Python of the executor. After
each job a new worker takes the place of the lost one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPEC = "uniform:nodes=300,topics=40,subs=5"


def write_inputs(folder: Path) -> None:
    """Small inputs of every kind, in several files each, so that a job has several tasks."""
    chance = random.Random(3)
    folder.mkdir(parents=True)
    for part in range(4):
        rows = {
            "edges": [f"{chance.randrange(300)} {chance.randrange(300)}" for _ in range(200)],
            "edits": [f"u{chance.randrange(90)}\tp{chance.randrange(60)}\t{n + 1000}" for n in range(200)],
            "interests": ["node\ttopic", *(f"n{part}-{n}\tt{chance.randrange(25)}" for n in range(90) for _ in "abc")],
            "machines": [f"{part * 1000 + n},{chance.randrange(40)},{chance.randrange(2)},p,1,1" for n in range(200)],
            "events": [json.dumps(event(chance, part * 200 + n)) for n in range(200)],
        }
        for name, lines in rows.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"part-{part}").write_text("".join(f"{line}\n" for line in lines))


def event(chance: random.Random, number: int) -> dict[str, object]:
    row: dict[str, object] = {"time": 1.7e9 + 60 * number, "node": f"n{chance.randrange(20)}"}
    if chance.random() < 0.4:
        return row | {"event": "publish", "topic": f"t{chance.randrange(9)}", "count": 3, "seconds": 5}
    return row | {"event": chance.choice(["subscribe", "unsubscribe"]), "topic": f"t{chance.randrange(9)}"}


def jobs_on(spark: Any, given: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Each job of the pipeline, ready to run."""
    from trellis.pipeline import jobs

    def place(name: str) -> tuple[str, str]:
        return str(given / name), str(out / name)

    interests = str(given / "interests")
    return {
        "social": lambda: jobs.social(
            spark, place("edges")[0], place("social")[1], format="edges", directed=False, sample_nodes=90, seed=5
        ),
        "edits": lambda: jobs.edits(spark, *place("edits"), format="wikipedia", topics=20, seed=5),
        "pairs": lambda: jobs.pairs(spark, str(given / "events"), place("pairs")[1], format="telemetry"),
        "rates": lambda: jobs.rates(spark, str(given / "events"), place("rates")[1]),
        "tables": lambda: jobs.events(spark, str(given / "events"), place("tables")[1]),
        "churn": lambda: jobs.churn(
            spark,
            str(given / "machines"),
            place("churn")[1],
            format="google2011",
            map_to=interests,
            machines=20,
            sample_from="all",
            seed=5,
        ),
        "profile": lambda: jobs.profile(spark, interests, place("profile")[1], tdi_closest=5, tdi_sample=20, seed=5),
        "generate": lambda: jobs.generate(spark, SPEC, place("generate")[1], partitions=6, seed=5),
        "plan": lambda: jobs.plan(spark, interests, place("plan")[1], candidates="sampled", sample=4, keep=4, seed=5),
        "parts": lambda: jobs.plan(spark, interests, place("parts")[1], partitions=5, fan_in=2, seed=5),
        "verify": lambda: jobs.verify(spark, interests, place("parts")[1], place("verify")[1], topic_links_max=12),
        "watch": lambda: jobs.watch(spark, str(given / "events"), place("watch")[1], format="events", every_s=None),
    }


class Workers:
    """A master and two workers on loopback."""

    def __init__(self, folder: Path) -> None:
        from trellis.pipeline.java import java_home

        self.folder, self.count = folder, 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.environment = os.environ | {
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder / "blocks"),
        }
        self.master = self.start("master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self.running = [self.worker(), self.worker()]

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        import pyspark

        spark = Path(pyspark.__file__).parent
        self.count += 1
        with (self.folder / f"{self.count}.log").open("wb") as log:
            return subprocess.Popen(
                [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words],
                env=self.environment | {"SPARK_HOME": str(spark)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def worker(self) -> subprocess.Popen[bytes]:
        folder = str(self.folder / f"work{self.count}")
        words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--webui-port", "0", "--work-dir", folder)
        return self.start("worker.Worker", *words, self.url)

    def kill_one(self) -> None:
        """The one that has worked the longest."""
        lost = self.running.pop(0)
        os.killpg(lost.pid, signal.SIGKILL)
        lost.wait()

    def close(self) -> None:
        for process in (*self.running, self.master):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_executors(spark: Any, count: int) -> None:
    for _ in range(3000):
        if spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > count:  # the driver is one of them
            return
        time.sleep(0.1)
    raise SystemExit(f"{count} executors did not come")


def main(folder: Path, only: list[str]) -> None:
    from trellis.pipeline.progress import following
    from trellis.pipeline.session import open_session

    (folder / "logs").mkdir()
    workers = Workers(folder / "logs")
    conf = {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    try:
        with open_session(workers.url, conf=conf, driver_memory="512m") as spark:
            jobs = jobs_on(spark, folder / "in", folder / "cluster")
            for name, job in ((name, jobs[name]) for name in only or jobs):
                wait_for_executors(spark, 2)
                killed: list[str] = []

                def kill(done: int, total: int, step: str, killed: list[str] = killed) -> None:
                    if done and not killed:
                        killed.append(f"{done} of {total} tasks, {step}")
                        workers.kill_one()

                with following(spark, kill, every_s=0.02):
                    job()
                    at = list(killed)  # killed while the job was running
                sys.stdout.write(json.dumps({"job": name, "killed": at}) + "\n")
                sys.stdout.flush()
                if killed:
                    workers.running.append(workers.worker())
    finally:
        workers.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
