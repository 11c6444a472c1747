"""Files that people have: headers, JSON, nested folders, tables, cut-off lists. Each was once taken wrongly."""

from __future__ import annotations

import json

import pytest

from pipeline.examples import SAMPLES
from trellis.errors import InputError
from trellis.pipeline import jobs
from trellis.pipeline.jobs.churn import FORMATS as CHURN
from trellis.pipeline.jobs.pairs import told
from trellis.pipeline.jobs.run import Run
from trellis.pipeline.jobs.social import FORMATS as GRAPHS
from trellis.pipeline.jobs.social import is_directed, refuse_cut_off
from trellis.pipeline.sources.graphs import header_in, promised_edges, says_directed
from trellis.pipeline.sources.pairs import parse_pairs


def read(spark, paths, format, allowed, **options):
    """Rows and facts of an input, read as a job reads it, without the job around it."""
    run = Run(spark, None, "fail")  # type: ignore[arg-type]  # nothing is written
    _, rows = run.read(paths, format, allowed, **options)
    return sorted(map(tuple, rows.collect())), run


@pytest.mark.parametrize(
    ("first", "header"),
    [
        (["node_1,node_2", "0,747", "1,4257"], "node_1,node_2"),
        (["source target weight", "ann bob 1"], "source target weight"),
        (["# by hand", '"id_1","id_2"', "5,6"], '"id_1","id_2"'),
        (["someone somebody", "5 6"], "someone somebody"),
        (["ann bob", "bob cem"], None),
        (["1 2", "2 3"], None),
        (["88234", "1 2"], None),
        (["ann bob", "5 6", "x 7"], None),
        ([], None),
    ],
)
def test_a_line_that_names_the_ends_is_told_from_an_edge(first, header):
    assert header_in(first) == header


def test_a_header_line_of_an_edge_list_is_not_two_users(spark, write, tmp_path):
    for name, text in (("a", "node_1,node_2\n0,1\n1,2\n"), ("b", "node_1,node_2\n2,3\n")):
        write(f"graph/{name}.csv", text)
    assert read(spark, tmp_path / "graph", "edges", GRAPHS)[0] == [("0", "1"), ("1", "2"), ("2", "3")]


def test_a_json_document_given_to_pairs_is_refused_at_once(spark, write, tmp_path):
    """Once a column was built for each comma: minutes, and nothing to show for it."""
    document = json.dumps({"users": [{"name": f"u{number}", "likes": [number]} for number in range(50_000)]}, indent=1)
    with pytest.raises(InputError, match=r"doc\.json: is one JSON document, not one object a line; write one object"):
        jobs.pairs(spark, write("doc.json", document), tmp_path / "out")
    with pytest.raises(InputError, match=r"no column is known as user and as topic \(a, b, c\); name two"):
        parse_pairs(None, ['{"a": 1, "b": [1, 2], "c": 3}'])
    wide = ",".join(map(str, range(5_000)))
    with pytest.raises(InputError, match="its first line has 5,000 columns"):
        parse_pairs(None, [wide, wide])


FTA = (
    "node_id\tevent_type\tevent_start_time\tevent_stop_time\n"
    "7\t1\t100\t200\n7\t0\t200\t200\n7\t2\tNULL\tNULL\n8\t1\t150\t400\n9\t0\t50\t500\n"
)


def test_rows_of_types_that_are_not_used_neither_refuse_a_file_nor_leave_the_trace(spark, write, tmp_path):
    interests = write("interests.tsv", "node\ttopic\na\tt\nb\tt\n")
    report = jobs.churn(spark, write("f.tsv", FTA), tmp_path / "out", format="fta", map_to=interests)
    found = {name: report.facts[name] for name in ("began", "ended", "machines", "sessions", "sessions_open_at_end")}
    assert found == {"began": 50.0, "ended": 500.0, "machines": 3, "sessions": 2, "sessions_open_at_end": 0}
    assert report.facts["events"] == {"join": 2, "leave": 2}
    with pytest.raises(InputError, match=r'f2\.tsv:7: 1 of 5 rows .* line 7 "7\\t1\\t9\\t8"'):
        read(spark, write("f2.tsv", FTA + "7\t1\t9\t8\n"), "fta", ("fta",))


def test_too_large_a_share_of_bad_rows_fails_even_in_quarantine(spark, write):
    source = write("g.txt", "".join(f"{number} {number + 1}\n" for number in range(98)) + "x\ny z z\n")
    run = Run(spark, None, "quarantine", 0.01)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        run.read(source, "edges", GRAPHS)
    assert str(caught.value) == (
        f'{source}:99: 2 of 100 rows do not parse (2 not 2 columns): line 99 "x", line 100 "y z z",'
        " more than --max-bad-share 0.01; correct them, check the format, or allow more"
    )
    run = Run(spark, None, "quarantine", 0.02)  # type: ignore[arg-type]
    run.read(source, "edges", GRAPHS)
    assert run.facts["rejected_by_reason"] == {"not 2 columns": 2}
    with pytest.raises(InputError, match=r"max-bad-share 1\.5; give a share from 0 to 1"):
        jobs.social(spark, source, "o", on_bad_rows="quarantine", max_bad_share=1.5)


def test_a_list_of_konect_that_lost_its_header_is_not_silently_undirected(spark, write):
    for name, text in (("out.wiki", "1 2\n2 3\n"), ("w.txt", "1 2 1 1200000\n2 3 1 1200001\n")):
        _, run = read(spark, write(name, text), "edges", GRAPHS)
        with pytest.raises(InputError, match=rf"{name}: nothing says whether this graph is directed; pass --directed"):
            is_directed(run, "edges", None)
    assert is_directed(run, "edges", True)
    assert run.facts["direction_told"] == "by you"


def test_headers_of_konect_and_snap_tell_direction_and_number_of_edges():
    snap = ["# Directed graph (each unordered pair of nodes is saved once): Wiki-Vote.txt", "# Nodes: 3 Edges: 2"]
    assert (says_directed(snap), promised_edges(snap)) == (True, 2)
    assert says_directed(["# Undirected graph: dblp.txt"]) is False
    assert promised_edges(["% asym unweighted", "% 88234 4039 4039"]) == 88234
    assert promised_edges(["1 2", "5 6"]) is None


def test_a_list_that_was_cut_off_is_refused_or_told(spark, write):
    _, run = read(spark, write("g.txt", "% asym unweighted\n% 4 3 3\n1 2\n2 3\n3 1\n"), "edges", GRAPHS)
    with pytest.raises(InputError, match=r"g\.txt: its header promises 4 edges, and there are 3; fetch it again"):
        refuse_cut_off(run)
    assert "files_without_last_line_end" not in run.facts
    assert read(spark, write("g.txt", "1 2\n2 33"), "edges", GRAPHS)[1].facts["files_without_last_line_end"] == 1


def test_files_in_folders_in_folders_are_read(spark, write, tmp_path):
    write("log/date=2026-11-17/part-0", "user\ttopic\nann\trock\n")
    write("log/date=2026-11-18/part-0", "user\ttopic\nbob\trock\n")
    write("log/_temporary/0/part-0", "not a row")
    assert read(spark, tmp_path / "log", "pairs", ("pairs",))[0] == [("ann", "rock"), ("bob", "rock")]


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_tables_are_read_as_json_lines_are(spark, tmp_path, kind):
    rows = [("ann", 7, 1.5), ("bob", 8, None)]
    columns = "`user id` string, weight int, `item-id` double"
    spark.createDataFrame(rows, columns).coalesce(1).write.format(kind).save(str(tmp_path / "p"))
    named = {"columns": ("user id", "weight")}
    assert read(spark, tmp_path / "p", "pairs", ("pairs",), **named)[0] == [("ann", "7"), ("bob", "8")]
    if kind == "parquet":
        with pytest.raises(InputError, match=r"\.parquet:2: 1 of 2 rows do not parse \(1 no topic\): line 2"):
            read(spark, tmp_path / "p", "pairs", ("pairs",))


def test_json_lines_enter_social_and_churn_by_their_names(spark, write):
    edges = '{"weight": 1, "From": 1, "To": 2}\n{"weight": 1, "From": 2, "To": 3}\n'
    assert read(spark, write("e.json", edges), None, GRAPHS)[0] == [("1", "2"), ("2", "3")]
    rows, run = read(spark, write("s.json", SAMPLES["sessions"]), None, CHURN)
    assert (run.facts["format"], len(rows)) == ("sessions", 2)


def test_json_lines_that_are_telemetry_are_taken_for_it():
    assert told(SAMPLES["telemetry"].splitlines()) == "telemetry"
    assert told(SAMPLES["sessions"].splitlines()) == "pairs"
    assert told(["ann\trock", "bob\tjazz"]) == "pairs"
