"""`trellis import`: bridges of Mosquitto brokers, read from files of our own."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.plan.bridges import Bridges, find_bridges, probe_of
from trellis.plan.mosquitto import Rule, read_broker, read_brokers
from trellis.protocols.mqtt.topics import matches


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def conf(name: str, *lines: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def bridge(to: str, *topics: str) -> list[str]:
    return [f"connection to-{to}", f"address {to}:1883", *(f"topic {topic}" for topic in topics)]


def bridges(**brokers: list[str]) -> Bridges:
    return find_bridges(read_brokers([conf(f"{name}.conf", *lines) for name, lines in brokers.items()]))


def answer(capsys, *arguments: str) -> dict:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_file_is_read_as_mosquitto_reads_it():
    path = conf(
        "north.conf", "# a comment", "", "allow_anonymous true", "listener 1884 127.0.0.1", "connection  to-hub",
        "address hub.example.com:8883 spare", "bridge_cafile /etc/ca.crt", "topic a/#", "\ttopic b/+/c in 1",
        'topic d both 2 "" site/', 'topic "" out 0 x/y z', "connection six", "address [::1]:1900",
    )  # fmt: skip
    found = read_broker(path)
    assert (found.name, found.ports) == ("north", [1884])
    hub, six = found.connections
    assert (hub.name, hub.addresses) == ("to-hub", [("hub.example.com", 8883), ("spare", 1883)])
    assert hub.rules == [
        Rule("a/#", "out", 0, "", "", "north.conf:8"),
        Rule("b/+/c", "in", 1, "", "", "north.conf:9"),
        Rule("d", "both", 2, "", "site/", "north.conf:10"),
        Rule("", "out", 0, "x/y", "z", "north.conf:11"),
    ]
    assert (six.addresses, six.rules) == ([("::1", 1900)], [])


def test_a_chain_has_nothing_wrong_with_it_and_as_many_links_as_a_plan(capsys):
    for name, other in (("a", "b"), ("b", "c")):
        conf(f"{name}.conf", *bridge(other, "t/# both"))
    conf("c.conf")
    found = answer(capsys, "import", "a.conf", "b.conf", "c.conf")
    assert found["links"] == [["a", "b"], ["b", "c"]]
    assert [found[wrong] for wrong in ("loops", "duplicates", "islands", "split_topics")] == [[], [], [], {}]
    assert (found["publications"], found["copies"], found["reached"], found["wanted"]) == (3, 6, 6, 6)
    assert (len(found["plan"]["links"]), found["plan"]["copies"]) == (2, 6)
    assert run(["import", "a.conf", "b.conf", "c.conf"]) == 0
    assert "no loops, no duplicates, no islands" in capsys.readouterr().out


def test_a_triangle_is_a_loop_told_once():
    both = "t/# both"
    found = bridges(a=bridge("b", both), b=bridge("c", both), c=bridge("a", both))
    assert [str(one) for one in found.loops] == ["t/#: a > b > c > a"]
    assert len(found.duplicates) == 1
    assert found.copies > found.wanted


def test_a_message_does_not_go_back_over_its_bridge_but_over_a_second_one():
    assert not bridges(a=bridge("b", "t both"), b=[]).loops
    found = bridges(a=bridge("b", "t both"), b=bridge("a", "t both"))
    assert [one.ways for one in found.loops] == [(("a", "b", "a"),)]
    assert found.parallel == (("a", "b"),)


def test_a_diamond_delivers_twice_without_a_loop():
    found = bridges(
        a=[*bridge("b", "t out"), *bridge("c", "t out")], b=bridge("d", "t out"), c=bridge("d", "t out"), d=[]
    )
    assert found.loops == ()
    assert [one.ways for one in found.duplicates] == [(("a", "b", "d"), ("a", "c", "d"))]


def test_rules_for_other_topics_make_no_loop():
    found = bridges(a=bridge("b", "x/# both"), b=bridge("c", "y/# both"), c=bridge("a", "z/# both"))
    assert (found.loops, found.duplicates, found.split) == ((), (), {})
    wide = bridges(a=bridge("b", "x/# both"), b=bridge("c", "# both"), c=bridge("a", "x/1 both"))
    assert [one.ways[0] for one in wide.loops] == [("a", "b", "c", "a")], "x/1 fits all three"


def test_islands_and_split_topics_are_named():
    found = bridges(a=bridge("b", "t both"), b=[], c=bridge("d", "t both"), d=[], e=[])
    assert found.islands == (("a", "b"), ("c", "d"), ("e",))
    assert found.split == {"t": (("a", "b"), ("c", "d"))}


def test_prefixes_rename_topics_and_one_topic_keeps_one_name():
    found = bridges(north=bridge("hub", 'state/# out 0 "" north/'), south=bridge("hub", "north/state/# in"), hub=[])
    assert found.interests == {"state/#": ("hub", "north", "south")}
    assert (found.renamed, found.loops, found.duplicates, found.split) == (1, (), (), {})
    assert (found.reached, found.publications) == (3, 3), "north reaches both, hub reaches south, south nobody"


def test_a_loop_whose_names_grow_ends():
    found = bridges(a=bridge("b", '# both 0 "" x/'), b=bridge("a", '# both 0 "" y/'))
    assert found.loops


def test_many_ways_are_cut_short_instead_of_followed_for_ever():
    names = [f"n{number}" for number in range(9)]
    lines = {name: [] for name in names}
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            lines[name] += bridge(other, "t both")
    found = bridges(**lines)
    assert found.cut_short
    assert len(found.links) == 36


def test_addresses_are_known_by_host_port_connection_and_option(capsys):
    conf("a/mosquitto.conf", "listener 1801", *bridge("b.example.com", "t both"))
    conf("b.conf", "listener 1802", "connection c", "address 10.0.0.3:1883", "topic t both")
    conf("c.conf", "connection here", "address 127.0.0.1:1801", "topic u both")
    conf("d.conf", "connection far", "address 10.0.0.9:1999", "topic u both")
    files = ["a/mosquitto.conf", "b.conf", "c.conf", "d.conf"]
    found = answer(capsys, "import", *files)
    assert found["links"] == [["10.0.0.9:1999", "d"], ["a", "b"], ["a", "c"], ["b", "c"]]
    assert found["outside"] == ["10.0.0.9:1999"]
    found = answer(capsys, "import", *files, "--broker", "a=10.0.0.9:1999")
    assert found["links"] == [["a", "b"], ["a", "c"], ["a", "d"], ["b", "c"]]


def test_tables_and_the_picture_are_written(capsys):
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "e")):
        conf(f"{name}.conf", *bridge(other, "t/# both", f"{name}/# out"))
    conf("e.conf")
    files = [f"{name}.conf" for name in "abcde"]
    out = ["--interests-out", "i.csv", "--overlay-out", "o.csv", "--plot", "b.png"]
    found = answer(capsys, "import", *files, *out)
    assert found["loops"] == [{"topic": "t/#", "way": ["a", "b", "c", "a"]}]
    assert Path("b.png").read_bytes().startswith(b"\x89PNG")
    assert Path("o.csv").read_text().splitlines() == ["u,v", "a,b", "a,c", "b,c", "d,e"]
    capsys.readouterr()
    assert run("check i.csv o.csv --json".split()) == 1
    checked = json.loads(capsys.readouterr().out)
    assert [split["topic"] for split in checked["split"]] == list(found["split_topics"]) == ["t/#"]
    assert run(["import", *files, "--plot", "b.svg"]) == 0
    text = capsys.readouterr().out
    assert "loops, in which messages go round: 1\n  t/#: a > b > c > a\n" in text
    assert "islands of brokers, without a bridge between them: 2" in text


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["topic t"], "x.conf:1: topic belongs to no connection"),
        (["connection c", "listener 1883", "topic t"], "x.conf:3: topic belongs to no connection"),
        (["address b"], "x.conf:1: address belongs to no connection"),
        (["connection"], "x.conf:1: a connection has one name"),
        (["connection a b"], "x.conf:1: a connection has one name"),
        (["connection c", "topic t"], 'x.conf:1: connection "c" has no address'),
        (["connection c", "address"], "x.conf:2: address names no broker"),
        (["connection c", "address b:99999"], 'x.conf:2: "99999" is no port'),
        (["connection c", "address b:x"], 'x.conf:2: "x" is no port'),
        (["connection c", "address :1883"], 'x.conf:2: address ":1883" names no host'),
        (["listener"], "x.conf:1: listener names no port"),
        (["connection c", "address b", "topic"], "x.conf:3: topic names no pattern"),
        (["connection c", "address b", "topic t up"], 'x.conf:3: direction "up" is not known'),
        (["connection c", "address b", "topic t out 3"], 'x.conf:3: QoS "3" is not known'),
        (["connection c", "address b", "topic t out 0 a b c"], "x.conf:3: topic has 6 values"),
        (["connection c", "address b", "topic a#b out"], 'x.conf:3: "a#b" is no topic filter'),
        (["connection c", "address b", "topic t out 0 +/ y/"], 'x.conf:3: prefix "+/" has a wildcard'),
        (["connection c", "address b", 'topic ""'], "x.conf:3: pattern and prefix are both empty"),
        (["connection c", "address b", "connection c"], 'x.conf:3: connection "c" is there twice'),
        (["connection c", "address x", "topic t"], 'which seems to be "x" itself'),
        (["connection c\x1b[2J", "address b"], "x.conf:1: the line has characters that cannot be printed"),
        (["allow_anonymous true"], "no connection of these files has a topic line"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(capsys, lines, message):
    conf("x.conf", *lines)
    assert run(["import", "x.conf"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_other_bad_input_is_refused_in_one_line(capsys):
    conf("x.conf", *bridge("y", "t"))
    conf("other/x.conf", *bridge("y", "t"))
    Path("bytes.conf").write_bytes(b"connection c\naddress \xff\n")
    for arguments, message in (
        (["no.conf"], "no.conf: cannot be read"),
        (["x.conf", "other/x.conf"], 'other/x.conf: it is called "x", as x.conf is'),
        (["bytes.conf"], "bytes.conf:2: the text is not UTF-8"),
        (["x.conf", "--broker", "hub"], "--broker hub: does not say which address is which broker"),
        (["x.conf", "--plot", "b.gif"], "b.gif"),
        (["x.conf", "--interests-out", "i.txt"], "i.txt"),
    ):
        assert run(["import", *arguments]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert message in err


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.lists(st.text(max_size=20), max_size=8).map(lambda some: "\n".join(some).encode()))
def test_any_bytes_are_read_or_refused(data):
    Path("x.conf").write_bytes(b"connection c\naddress b\n" + data)
    with suppress(InputError):
        find_bridges([read_broker(Path("x.conf"))])


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=4), st.booleans())
def test_a_probe_fits_its_filter(levels, is_open):
    filter_ = "/".join([*levels, "#"] if is_open else levels)
    assert matches(filter_, probe_of(filter_))
