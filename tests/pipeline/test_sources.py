"""Every format: what it says, what it refuses, what it looks like."""

from __future__ import annotations

import pytest

from lazy import functions as F
from pipeline.examples import CSV_PAIRS, JODIE_EDITS, SAMPLES, TSV_EDITS
from trellis.errors import InputError
from trellis.pipeline.schemas import LINES
from trellis.pipeline.sources import SOURCES, sniff_format, source_named
from trellis.pipeline.sources.graphs import says_directed
from trellis.pipeline.sources.parsing import bad_rows, good_rows


def read(spark, path, name, **options):
    """Rows and rejected (line, reason) of a file, as a job reads it."""
    text = spark.read.text(path).select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line"))
    assert text.columns == LINES.names
    first = [row[0] for row in text.select(F.make_valid_utf8("line")).head(200)]
    source = SOURCES[name]
    parsed = source.parse(text, first, **options).cache()
    good = good_rows(parsed, source.schema)
    assert [(field.name, field.dataType) for field in good.schema] == [
        (field.name, field.dataType) for field in source.schema
    ]
    rows = [tuple(row) for row in good.collect()]
    rejected = sorted((row.line, row.reason) for row in bad_rows(parsed).collect())
    parsed.unpersist()
    return rows, rejected


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("twitter", [("13", "12"), ("14", "12"), ("12", "15")]),
        ("facebook", [("0", "1"), ("0", "2"), ("1", "2")]),
        ("edges", [("1", "2"), ("2", "3"), ("3", "1")]),
        ("pairs", [("2", "51"), ("2", "52"), ("3", "51")]),
        ("google2011", [(0.0, "5", "add"), (0.0, "6", "add"), (600.000001, "5", "remove"), (700.0, "6", "update")]),
        ("google2019", [(0.0, "40", "add"), (600.0, "40", "remove"), (0.0, "41", "add")]),
        (
            "avt",
            [
                ("e0f4e63e53bcac726a65072887180f56", 0.0, 64504.0, True),
                ("e0f4e63e53bcac726a65072887180f56", 65650.0, 67499.0, True),
                ("b77683751fe903fd3fdd3f5c5ca62f80", 701.0, 7245.0, True),
            ],
        ),
        ("fta", [("7", 100.5, 200.0, True), ("7", 200.0, 300.0, False), ("8", 150.0, 400.0, True)]),
        ("sessions", [("7", 100.5, 200.0, True), ("8", 150.0, 400.0, True)]),
        ("telemetry", [(1.5, "n1", "join", None), (2.0, "n1", "subscribe", "t")]),
        (
            "mosquitto",
            [
                (1700000001.0, "c1", "join", None, None, None),
                (1700000002.0, "c1", "subscribe", "building/7", None, None),
                (1700000004.0, "c 2", "publish", "building/7", 1, 0.0),
                (1700000005.0, "c1", "unsubscribe", "building/7", None, None),
                (1700000006.0, "c1", "leave", None, None, None),
            ],
        ),
        ("events", [(2.0, "n1", "subscribe", "t", None, None)]),
        ("publications", [(10.0, "n1", "t", 7, 5.0), (15.0, "n1", "t", 1, 5.0)]),
    ],
)
def test_a_file_in_the_true_format_says_its_rows(spark, write, name, rows, ending):
    assert read(spark, write(f"file{ending}", SAMPLES[name]), name) == (rows, [])


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "pairs"])
def test_windows_line_ends_and_blank_lines_change_nothing(spark, write, name):
    plain = read(spark, write("plain.txt", SAMPLES[name]), name)
    windows = SAMPLES[name].replace("\n", "\r\n") + "\r\n  \r\n"
    assert read(spark, write("windows.txt", windows), name) == plain


def test_a_byte_order_mark_is_not_part_of_the_first_name(spark, write):
    assert read(spark, write("bom.txt", b"\xef\xbb\xbf" + b"a b\n"), "edges") == ([("a", "b")], [])


def test_edits_know_their_edition_robots_and_addresses(spark, write):
    rows, rejected = read(spark, write("log.json", SAMPLES["wikipedia"]), "wikipedia", secret="s")
    assert rejected == []
    assert [row[1] for row in rows] == [
        'en.wikipedia/Talk:Oswald "T"',
        "ca.wikipedia/Rallicula",
        "en.wikipedia/Rallicula",
        "en.wikipedia/Norm",
    ]
    assert [row[3:] for row in rows] == [
        (False, False, False),
        (False, True, False),
        (True, False, True),
        (False, False, True),  # an address that the log does not flag
    ]
    assert rows[0][2] == pytest.approx(1442018818.771)
    assert rows[0][0] == "GELongstreet"
    assert rows[2][0].startswith("masked-")
    assert rows[3][0].startswith("masked-")
    assert rows[2][0] != rows[3][0]


def test_a_mask_is_stable_under_one_secret_and_different_under_another(spark, write):
    path = write("log.tsv", "1.2.3.4\tp\t0\n1.2.3.4\tq\t1\n::1\tq\t1\n2001:db8::ff\tq\t1\nnot.1.2.3.4\tq\t5\n")

    def users(secret):
        return [row[0] for row in read(spark, path, "wikipedia", secret=secret)[0]]

    once, again, other = users("a"), users("a"), users("b")
    assert once == again
    assert once[0] == once[1]
    assert once[0] != other[0]
    assert all(user.startswith("masked-") for user in once[:4])
    assert once[4] == "not.1.2.3.4"


def test_tab_separated_edits_may_have_a_header_in_any_order(spark, write):
    rows, _ = read(spark, write("a.tsv", TSV_EDITS), "wikipedia")
    assert rows[0] == ("Ann", "Main page", 1442018818.0, False, False, False)
    assert rows[1][1:] == ("Other", 1442018820.5, True, False, True)
    swapped = "page\ttime\tuser\nMain page\t5\tAnn\n"
    assert read(spark, write("b.tsv", swapped), "wikipedia")[0] == [("Ann", "Main page", 5.0, False, False, False)]


def test_edits_in_jodies_form_are_read(spark, write):
    rows, rejected = read(spark, write("j.txt", JODIE_EDITS), "wikipedia")
    assert rejected == []
    assert rows == [
        ("1", "8228", 0.0, False, False, False),
        ("2", "8229", 36.0, False, False, False),
        ("2", "8229", 77.0, False, False, False),
    ]


def test_pairs_in_csv_keep_quoted_separators(spark, write):
    rows, rejected = read(spark, write("p.csv", CSV_PAIRS), "pairs")
    assert (rows, rejected) == ([("ann", "rock, pop"), ('bob "b"', "jazz")], [])


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("x|ann|rock\n", {"columns": (2, 3), "separator": "|"}, [("ann", "rock")]),
        ("who;what\nann;rock\n", {"columns": ("who", "what")}, [("ann", "rock")]),
        ("what who\nrock ann\n", {"columns": ("who", "what")}, [("ann", "rock")]),
        ("head ing\nann rock\n", {"columns": (1, 2), "header": True}, [("ann", "rock")]),
        ("// note\nann\t#rock\n", {"comment": "//"}, [("ann", "#rock")]),
        ("ann\trock\n#x\tpop\n", {}, [("ann", "rock"), ("#x", "pop")]),
    ],
)
def test_pairs_are_told_by_name_or_number(spark, write, text, options, rows):
    assert read(spark, write("p.txt", text), "pairs", **options) == (rows, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ("user", "band")}, 'has no column "band"'),
        ({"columns": ("user", "topic"), "header": False}, "add a header line"),
        ({"columns": (1, 3)}, "there is no column 3"),
        ({"columns": (1, 1)}, "two different numbers"),
    ],
)
def test_columns_that_are_not_there_are_named(spark, write, options, message):
    with pytest.raises(InputError, match=message):
        read(spark, write("p.txt", "user\ttopic\nann\trock\n"), "pairs", **options)


BAD_LINES = [
    ("edges", "1 2\n3 4\n", "88234", "not 2 columns"),
    ("edges", "1 2\n3 4\n", "1 2 3", "not 2 columns"),
    ("edges", "1,2\n3,4\n", "5,", "an end is empty"),
    ("facebook", "1 2\n3 4\n", "a b", "an end is not a whole number"),
    ("twitter", "1\t2\n3\t4\n", "1\t-2", "an end is not a whole number"),
    (
        "wikipedia",
        SAMPLES["wikipedia"],
        '{"time": "now", "user": "u", "page": "p"}',
        "the time is neither seconds nor ISO 8601",
    ),
    ("wikipedia", SAMPLES["wikipedia"], '{"time": "5", "page": "p"}', "no user"),
    ("wikipedia", SAMPLES["wikipedia"], '{"time": "5", "user": "u", "channel": "#x"}', "no page"),
    ("wikipedia", SAMPLES["wikipedia"], "{broken", "not a JSON object of an edit"),
    ("wikipedia", JODIE_EDITS, "1 2 x", "the time is not a number of seconds"),
    ("wikipedia", TSV_EDITS, "Ann\tpage", "not 3 columns"),
    ("pairs", SAMPLES["pairs"].replace("\r", ""), "4\t5", "not 3 columns"),
    ("pairs", SAMPLES["pairs"].replace("\r", ""), "4\t\t1", "no topic"),
    ("pairs", CSV_PAIRS, "ann,rock,pop", "not 2 columns"),
    ("google2011", SAMPLES["google2011"], "0,5,0,x,0.5", "not 6 columns"),
    ("google2011", SAMPLES["google2011"], "0,5,7,x,0.5,1", "the event type is not 0, 1 or 2"),
    ("google2011", SAMPLES["google2011"], "0.5,5,0,x,0.5,1", "the time is not a whole number of microseconds"),
    (
        "google2011",
        SAMPLES["google2011"],
        "99999999999999999999,5,0,x,,",
        "the time is not a whole number of microseconds",
    ),
    ("google2011", SAMPLES["google2011"], "0,m,0,x,0.5,1", "the machine is not a whole number"),
    ("google2011", SAMPLES["google2011"], "0,5,0,x,much,1", "a capacity is not a number"),
    ("google2019", SAMPLES["google2019"], '{"time": "1", "type": 1}', "no machine_id"),
    (
        "google2019",
        SAMPLES["google2019"],
        '{"time": "1", "machine_id": "4", "type": 0}',
        "the type is not ADD, REMOVE or UPDATE",
    ),
    (
        "google2019",
        SAMPLES["google2019"],
        '{"time": "soon", "machine_id": "4", "type": 1}',
        "the time is not a whole number of microseconds",
    ),
    ("avt", SAMPLES["avt"], "n\t2\t 1 2 3", "the number of times is not twice the number of sessions"),
    ("avt", SAMPLES["avt"], "n\t1\t 5 5", "the sessions do not rise"),
    ("avt", SAMPLES["avt"], "n\t2\t 5 9 7 12", "the sessions do not rise"),
    ("avt", SAMPLES["avt"], "n\t1\t 5 x", "a time is not a number of seconds"),
    ("avt", SAMPLES["avt"], "n\t0\t", "the number of sessions is not a whole number above 0"),
    ("avt", SAMPLES["avt"], "n 1 5 9", "not 3 columns"),
    ("fta", SAMPLES["fta"], "2\t0\t8\t1\tnode8\t1\t150\t100\tNULL", "the event ends before it begins"),
    ("fta", SAMPLES["fta"], "2\t0\t8\t1\tnode8\t1\tNULL\t100\tNULL", "a time is not a number of seconds"),
    ("fta", SAMPLES["fta"], "2\t0\t8", "not 9 columns"),
    (
        "telemetry",
        SAMPLES["telemetry"],
        '{"time": 1, "node": "n", "event": "subscribe"}',
        "a subscription without topic, or a topic without subscription",
    ),
    (
        "telemetry",
        SAMPLES["telemetry"],
        '{"time": 1, "node": "n", "event": "leave", "topic": "t"}',
        "a subscription without topic, or a topic without subscription",
    ),
    (
        "telemetry",
        SAMPLES["telemetry"],
        '{"time": "x", "node": "n", "event": "leave"}',
        "not a JSON object with time, node, event, topic",
    ),
    ("telemetry", SAMPLES["telemetry"], '{"node": "n", "event": "leave"}', "no time in seconds"),
    ("events", SAMPLES["events"], '{"time": 1, "node": "n", "event": "publish", "topic": "t"}', "no count"),
    ("mosquitto", SAMPLES["mosquitto"], "c1 1 building/7", "the line does not begin with a time"),
    (
        "telemetry",
        SAMPLES["telemetry"],
        '{"time": 1, "node": "n", "event": "vanish"}',
        "the event is none of join, leave, crash, subscribe, unsubscribe",
    ),
]


@pytest.mark.parametrize("name", sorted({name for name, *_ in BAD_LINES}))
def test_a_row_that_does_not_parse_keeps_its_line_and_gets_its_reason(spark, write, name):
    """All bad lines of one kind of file at once, after the good ones: the good rows stay as they are."""
    for content in dict.fromkeys(content for each, content, *_ in BAD_LINES if each == name):
        cases = [(line, reason) for each, text, line, reason in BAD_LINES if (each, text) == (name, content)]
        good, _ = read(spark, write("good.txt", content), name)
        text = content.encode() + "".join(f"{line}\n" for line, _ in cases).encode() + b"not \xff utf-8\n"
        rows, rejected = read(spark, write("mixed.txt", text), name)
        assert rows == good
        assert rejected == sorted([*cases, ("not � utf-8", "not UTF-8")])


def test_a_count_line_at_the_top_is_one_bad_row_not_a_new_format(spark, write):
    rows, rejected = read(spark, write("g.txt", "3\n1 2\n2 3\n3 1\n"), "edges")
    assert len(rows) == 3
    assert rejected == [("3", "not 2 columns")]


def test_a_weighted_list_has_its_columns_read_over(spark, write):
    text = "% sym weighted\n1 2 0.5 1200000\n2\t3\t1\t1300000\n"
    assert read(spark, write("g.txt", text), "edges") == ([("1", "2"), ("2", "3")], [])


def test_rejected_lines_do_not_give_addresses_away(spark, write):
    text = SAMPLES["wikipedia"] + '{"time":"bad","page":"p","user":"60.225.66.142"}\n'
    text += '{"time":"bad","page":"p","user":"2601:800:8100:1C9B:D874:F2E6:E819:D375"}\n'
    _, rejected = read(spark, write("log.json", text), "wikipedia")
    assert [line for line, _ in rejected] == ['{"time":"bad","page":"p","user":"<address>"}'] * 2


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_file_is_recognised_by_its_first_lines(name):
    scores = {other: source.sniff(SAMPLES[name].splitlines()) for other, source in SOURCES.items()}
    assert scores[name] > 0
    # Direction cannot be seen: plain pairs of numbers are taken for `edges`.
    # What only subscribes may be telemetry or events: the job that is asked decides.
    expected = {"twitter": "edges", "facebook": "edges", "events": "telemetry"}.get(name, name)
    assert max(scores, key=lambda other: scores[other]) == expected, scores


@pytest.mark.parametrize(("text", "name"), [(TSV_EDITS, "wikipedia"), (JODIE_EDITS, "wikipedia"), (CSV_PAIRS, "pairs")])
def test_the_other_forms_of_a_format_are_recognised_too(text, name):
    assert sniff_format(text.splitlines()).name == name


def test_what_looks_like_nothing_is_refused_with_the_names_there_are():
    with pytest.raises(InputError, match="none of the formats that are read; name one: google2011, avt"):
        sniff_format(["Dear Sir or Madam,", "", "with kind regards"], ("google2011", "avt"))
    with pytest.raises(InputError, match='format "cassette" is not read here; choose one of edges'):
        source_named("cassette", ("edges",))


def test_a_konect_header_says_whether_the_graph_is_directed():
    assert says_directed(["% asym unweighted", "1 2"]) is True
    assert says_directed(["% sym positive", "1 2"]) is False
    assert says_directed(["# Nodes: 4", "1 2"]) is None
