"""Telemetry of live nodes becomes interests and rates, so that a running mesh can be planned anew."""

from __future__ import annotations

import pytest

from trellis.errors import InputError
from trellis.live.telemetry import Telemetry, TelemetryConfig
from trellis.model import read_interests
from trellis.pipeline import jobs


def write_log(path, node, wanted, published, intervals=2):
    """As a live node writes it."""
    now = [0.0]
    telemetry = Telemetry(TelemetryConfig(file=str(path)), node, lambda: wanted, lambda: now[0])
    telemetry.look()
    for _ in range(intervals):
        for topic, count in published.items():
            for _ in range(count):
                telemetry.published(topic, 128)
        now[0] += 10
        telemetry.look()


def test_the_telemetry_of_nodes_becomes_interests_and_rates(spark, tmp_path):
    write_log(tmp_path / "a.jsonl", "a", {"x", "y"}, {"x": 4})
    write_log(tmp_path / "b.jsonl", "b", {"y"}, {"x": 1, "y": 20})
    logs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    jobs.pairs(spark, logs, tmp_path / "interests", format="telemetry")
    jobs.rates(spark, logs, str(tmp_path / "rates"))
    found = read_interests(tmp_path / "interests", tmp_path / "rates")
    assert found.to_table().to_pylist() == [
        {"node": "a", "topic": "x"},
        {"node": "a", "topic": "y"},
        {"node": "b", "topic": "y"},
    ]
    assert found.rates is not None
    assert found.rates.tolist() == [0.5, 2.0]  # 10 and 40 within 20 s


def test_a_log_without_publications_has_no_rates(spark, tmp_path):
    write_log(tmp_path / "a.jsonl", "a", {"x"}, {}, intervals=1)
    with pytest.raises(InputError, match="no row"):
        jobs.rates(spark, str(tmp_path / "a.jsonl"), str(tmp_path / "rates"))


def test_a_publication_without_a_count_is_refused_with_its_line(spark, tmp_path):
    log = tmp_path / "a.jsonl"
    log.write_text('{"time": 1, "node": "a", "event": "publish", "topic": "x", "seconds": 5}\n')
    with pytest.raises(InputError, match="no count"):
        jobs.rates(spark, str(log), str(tmp_path / "rates"))
