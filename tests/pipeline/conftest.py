"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spark():
    from trellis.pipeline.session import open_session

    conf = {
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.maxResultSize": "64m",
        # Tests are many small queries: time goes into compiling, hardly into running.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with open_session("local[2]", conf=conf, driver_memory="1g") as session:
        yield session


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
