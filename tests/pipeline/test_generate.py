"""Workloads drawn by many tasks are those that one process draws."""

from __future__ import annotations

import json

import pytest

from trellis.errors import InputError
from trellis.model.read import read_interests
from trellis.pipeline.jobs.generate import generate as generate_job
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages.generate import generated
from trellis.workloads.generate import generate
from trellis.workloads.options import parse_spec

INDEPENDENT = [
    "uniform:nodes=60,topics=30,subs=3:9",
    "zipf:nodes=60,topics=30,subs=10:12,sizes=powerlaw,alpha=1",
    "exponential:nodes=60,topics=30,subs=4",
    "correlated:nodes=60,topics=40,subs=4,buckets=10,level=high",
    "multimodal:nodes=60,topics=40,subs=5,b-p=2,b-n=4",
]


def expected_rows(spec, seed):
    return [(row["node"], row["topic"]) for row in generate(parse_spec(spec), seed).to_table().to_pylist()]


@pytest.mark.parametrize("spec", INDEPENDENT)
def test_chunks_of_any_size_on_any_partitions_give_the_rows_of_one_process(spark, spec):
    expected = expected_rows(spec, "s")
    # 64 tasks take their time: one workload shall do.
    for partitions, chunk_nodes in ((1, 60), (7, 11), *([(2, 7), (64, 1)] if spec == INDEPENDENT[0] else [])):
        chunks = spark.range(0, -(-60 // chunk_nodes), 1, partitions)
        rows = generated(chunks, config=parse_spec(spec), seed="s", chunk_nodes=chunk_nodes)
        assert rows.schema.names == INTERESTS.names
        assert [tuple(row) for row in rows.collect()] == expected


@pytest.mark.parametrize("spec", ["uniform:nodes=20000,topics=50,subs=2", "hierarchical:nodes=40,topics=16,z=4"])
def test_the_job_writes_the_workload_and_says_what_it_was(spark, tmp_path, spec):
    report = generate_job(spark, spec, tmp_path / "out", seed=4, partitions=3)
    local = generate(parse_spec(spec), 4)
    assert read_interests(tmp_path / "out").to_table().equals(local.to_table())
    assert report.facts["subscriptions"] == local.subscriptions
    parameters = json.loads((tmp_path / "out" / "manifest.json").read_text())["parameters"]
    assert parameters["workload"] == spec.partition(":")[0]
    assert parameters["config"]["nodes"] == len(local.nodes)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("spatial:nodes=200001", {}, "drawn as a whole, by one task: 200,001 nodes are too many for it; give at most"),
        ("uniform:nodes=5,topics=3,subs=9", {}, "subs"),
        ("unheard-of", {}, "there is no such workload"),
        ("uniform", {"partitions": 0}, "0 partitions; give 1 or more"),
    ],
)
def test_what_cannot_be_generated_is_refused(spark, tmp_path, spec, options, message):
    with pytest.raises(InputError, match=message):
        generate_job(spark, spec, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
