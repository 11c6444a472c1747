"""Interests from edit logs and tables."""

from __future__ import annotations

import random

import pytest

from lazy import testing
from pipeline.examples import EDITS_JSON
from trellis.errors import InputError
from trellis.model.read import read_interests
from trellis.pipeline import jobs
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages import interests as stages


def rows_of(folder):
    return [(row["node"], row["topic"]) for row in read_interests(folder).to_table().to_pylist()]


def test_a_user_wants_the_pages_it_edited_each_once(spark, write, tmp_path):
    report = jobs.edits(spark, write("log.txt", "1 10 0\n1 10 5\n2 10 6\n2 11 7\n"), tmp_path / "out")
    assert rows_of(tmp_path / "out") == [("1", "10"), ("2", "10"), ("2", "11")]
    facts = report.facts
    assert (facts["rows_read"], facts["users"], facts["pages"], facts["user_page_pairs"]) == (4, 2, 2, 3)


def test_random_topics_come_with_all_their_editors(spark, write, tmp_path):
    chance = random.Random(2)
    pairs = {(chance.randrange(30), 100 + chance.randrange(20)) for _ in range(150)}
    source = write("log.txt", "".join(f"{user} {page} {time}\n" for time, (user, page) in enumerate(sorted(pairs))))
    jobs.edits(spark, source, tmp_path / "out", topics=5, seed=1)
    rows = rows_of(tmp_path / "out")
    chosen = {topic for _, topic in rows}
    assert len(chosen) == 5
    assert set(rows) == {(str(user), str(page)) for user, page in pairs if str(page) in chosen}
    jobs.edits(spark, source, tmp_path / "other", topics=5, seed=2)
    assert {topic for _, topic in rows_of(tmp_path / "other")} != chosen


def test_robots_and_anonymous_editors_can_be_left_out(spark, write, tmp_path):
    source = write("log.json", EDITS_JSON)
    report = jobs.edits(spark, source, tmp_path / "all")
    assert len(rows_of(tmp_path / "all")) == 4
    assert [report.facts[f"rows_{kind}"] for kind in ("by_robots", "by_anonymous", "masked")] == [1, 1, 2]
    jobs.edits(spark, source, tmp_path / "people", drop_robots=True, drop_anonymous=True)
    assert rows_of(tmp_path / "people") == [("GELongstreet", 'en.wikipedia/Talk:Oswald "T"')]


def test_nothing_written_holds_an_address_or_the_secret(spark, write, tmp_path):
    text = EDITS_JSON + '{"time":"bad","page":"p","user":"60.225.66.142"}\n'
    source = write("log.json", text)
    jobs.edits(spark, source, tmp_path / "out", mask_secret="hush-hush", on_bad_rows="quarantine", max_bad_share=1)
    spark.read.parquet(f"{tmp_path}/out/*.parquet").write.csv(str(tmp_path / "plain"))
    spark.read.parquet(f"{tmp_path}/out/_rejected").write.csv(str(tmp_path / "rejected"))
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "log.json"]
    content = b"".join(path.read_bytes() for path in written)
    assert b"masked-" in content
    for private in (b"60.225.66.142", b"2601:800", b"hush-hush"):
        assert private not in content


def test_dropping_everybody_is_refused(spark, write, tmp_path):
    only_robots = EDITS_JSON.splitlines()[1] + "\n"
    with pytest.raises(InputError, match="no edit is left"):
        jobs.edits(spark, write("log.json", only_robots), tmp_path / "out", drop_robots=True)
    assert not (tmp_path / "out").exists()


def reference_core(pairs, subscribers_min, topics_min):
    """Drop the unpopular and the idle until nobody is left to drop."""
    while True:
        kept = {
            (node, topic)
            for node, topic in pairs
            if sum(other == topic for _, other in pairs) >= subscribers_min
            and sum(other == node for other, _ in pairs) >= topics_min
        }
        if kept == pairs:
            return kept
        pairs = kept


def test_filters_hold_both_bounds_at_once_in_what_is_left(spark, write, tmp_path):
    chance = random.Random(3)
    pairs = {(f"n{chance.randrange(25)}", f"t{chance.randrange(25)}") for _ in range(70)}
    source = write("p.tsv", "node\ttopic\n" + "".join(f"{node}\t{topic}\n" for node, topic in sorted(pairs)))
    report = jobs.pairs(spark, source, tmp_path / "out", subscribers_min=3, topics_min=2)
    expected = reference_core(pairs, 3, 2)
    assert 0 < len(expected) < len(pairs)
    assert set(rows_of(tmp_path / "out")) == expected
    assert report.facts["kept_subscriptions"] == len(expected)
    assert report.facts["filter_rounds"] > 2  # one round would not do


def test_upper_bounds_and_a_sample_come_before_the_lower_ones(spark, write, tmp_path):
    text = "node\ttopic\n" + "".join(f"n{n}\thot\n" for n in range(6)) + "".join(f"n{n}\tt{n % 3}\n" for n in range(6))
    report = jobs.pairs(spark, write("p.tsv", text), tmp_path / "out", subscribers_max=5, sample_nodes=4, seed=1)
    rows = rows_of(tmp_path / "out")
    assert "hot" not in {topic for _, topic in rows}
    assert len({node for node, _ in rows}) == 4 == report.facts["kept_nodes"]
    assert report.facts["nodes"] == 6


def test_filters_that_leave_nothing_are_refused(spark, write, tmp_path):
    source = write("p.tsv", "node\ttopic\na\tx\n")
    with pytest.raises(InputError, match="no subscription is left after the filters; loosen them"):
        jobs.pairs(spark, source, tmp_path / "out", subscribers_min=2)
    with pytest.raises(InputError, match="a bound below 1"):
        jobs.pairs(spark, source, tmp_path / "out", topics_min=0)


def test_a_repeated_pair_counts_once(spark, write, tmp_path):
    report = jobs.pairs(spark, write("p.csv", "user,item,weight\na,x,1\na,x,2\nb,x,1\n"), tmp_path / "out")
    assert rows_of(tmp_path / "out") == [("a", "x"), ("b", "x")]
    assert (report.facts["rows_read"], report.facts["subscriptions"]) == (3, 2)


@pytest.mark.parametrize("count", [1, 7])
def test_a_stage_gives_the_same_rows_on_any_number_of_partitions(spark, count, partitions):
    rows = [(f"n{n % 13}", f"t{n % 7}") for n in range(91)]
    table = spark.createDataFrame(rows, INTERESTS).distinct().repartition(count)
    with partitions(count):
        chosen = table.transform(stages.with_random_topics, topics=3, seed=5).transform(
            stages.with_random_nodes, nodes=4, seed=5
        )
        testing.assertSchemaEqual(chosen.schema, INTERESTS, ignoreNullable=True)
        found = sorted(tuple(row) for row in chosen.collect())
    once = spark.createDataFrame(sorted(set(rows)), INTERESTS)
    again = once.transform(stages.with_random_topics, topics=3, seed=5).transform(
        stages.with_random_nodes, nodes=4, seed=5
    )
    testing.assertDataFrameEqual(again, spark.createDataFrame(found, INTERESTS), ignoreNullable=True)
    assert (len({topic for _, topic in found}), len({node for node, _ in found})) == (3, 4)


def test_sizes_bound_rows_from_below_and_above(spark):
    table = spark.createDataFrame([("a", "x"), ("b", "x"), ("c", "y"), ("a", "z"), ("b", "z"), ("c", "z")], INTERESTS)
    kept = table.transform(stages.within_sizes, "topic", at_least=2, at_most=2)
    assert {tuple(row) for row in kept.collect()} == {("a", "x"), ("b", "x")}


def test_telemetry_is_no_table_of_interests(spark, write, tmp_path):
    log = write("a.jsonl", '{"time": 1, "node": "n1", "event": "subscribe", "topic": "t"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: is telemetry: .*; make a table of the subscriptions in force"):
        jobs.plan(spark, log, tmp_path / "out")
