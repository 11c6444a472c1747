"""Parts of `trellis up`: snapshots that are judged, scenario files, interests, and what a score says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.fleet.fleet import FleetConfig, check_config, node_config
from trellis.fleet.interests import draw_interests, subscribers_of
from trellis.fleet.ledger import NODE_ENDED, OTHER, Ledger
from trellis.fleet.planned import low_links, neighbors_of, read_links
from trellis.fleet.scenario import Step, make_scenario, read_scenario
from trellis.fleet.score import Score
from trellis.fleet.settings import shared_settings
from trellis.fleet.simulated import FORMING_MS, schedule_of, simulate_scenario
from trellis.fleet.traffic import number_in, pack
from trellis.fleet.up import UpConfig, refused_max, settle_s_max
from trellis.fleet.watch import Link, Snapshot, links_of, one_sided, percentile, split_topics
from trellis.model import Interests
from trellis.plan import construct
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.delivery.compare import Comparison

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.toml"))


def mesh(*links: str, **topics: str) -> dict[str, Snapshot]:
    """Links as "a-b", or "a>b" where only a has it; topics by node, a letter each."""
    near: dict[str, list[Link]] = {name: [] for name in topics}
    for one in links:
        near[one[0]].append(Link(one[2]))
        if one[1] == "-":
            near[one[2]].append(Link(one[0]))
    return {name: Snapshot(name, 1, tuple(some), tuple(near[name])) for name, some in topics.items()}


def test_a_topic_is_split_where_its_nodes_reach_each_other_over_uninterested_ones_only():
    found = mesh("a-b", "b-c", a="t", b="u", c="t")
    assert split_topics(found, {"t": "ac", "u": "b"}) == {"t"}
    assert split_topics(mesh("a-b", "b-c", a="t", b="t", c="t"), {"t": "ac"}) == set()


def test_a_link_that_one_end_does_not_have_connects_nobody():
    found = mesh("a>b", "b-c", a="t", b="t", c="t")
    assert links_of(found) == {("b", "c")}
    assert one_sided(found) == {("a", "b")}
    assert split_topics(found, {"t": "abc"}) == {"t"}


def test_a_subscriber_that_gives_no_snapshot_is_connected_to_nobody():
    assert split_topics(mesh("a-b", a="t", b="t"), {"t": "abc"}) == {"t"}
    assert split_topics(mesh(a="t"), {"t": "ab"}) == {"t"}


def test_the_99th_percentile_of_few_values_is_the_largest():
    assert percentile([3, 1, 2], 0.99) == 3
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile(range(1, 101), 0.5) == 50
    assert percentile([], 0.5) is None


def test_every_topic_that_is_drawn_has_two_subscribers_and_every_node_its_number_of_topics():
    for nodes, topics, subscriptions in ((24, 24, 5), (2, 1, 1), (6, 4, 2), (10, 15, 3)):
        found = draw_interests(nodes, topics, subscriptions, seed=3)
        assert [len(some) for some in found.values()] == [subscriptions] * nodes
        wanted = [topic for some in found.values() for topic in some]
        assert all(wanted.count(topic) >= 2 for topic in wanted)
        assert len(set(wanted)) == topics
    with pytest.raises(InputError, match="too many"):
        draw_interests(6, 10, 2, seed=3)


def test_the_links_that_a_mesh_starts_with_are_lowodas():
    wanted = draw_interests(30, 40, 6, seed=3)
    links = low_links(wanted, seed=3)
    peers = neighbors_of(links)
    found = {name: Snapshot(name, 1, wanted[name], tuple(Link(one) for one in peers[name])) for name in wanted}
    assert not split_topics(found, subscribers_of(wanted))
    assert len(links) == len(construct(Interests.from_pairs(wanted), "lowoda", seed=3).overlay)


def test_nobody_waits_for_a_node_that_comes_later():
    assert neighbors_of([("a", "b"), ("b", "c"), ("a", "c")], absent=["c"]) == {"a": ("b",), "b": ("a",)}


def test_a_plan_of_another_mesh_is_refused(tmp_path):
    path = tmp_path / "o.tsv"
    path.write_text("u\tv\na\tb\n")
    assert read_links(path, {"a": ("t",), "b": ("t",)}) == [("a", "b")]
    with pytest.raises(InputError, match='there is no node "b"'):
        read_links(path, {"a": ("t",)})


def test_nothing_is_called_missing_while_a_gap_before_it_may_still_be_skipped():
    """Order, (a) in docs/delivery.md: a window after the last change of the topic's links."""
    assert settle_s_max({}) > DeliveryConfig().window_ms / 1_000 + 30
    assert settle_s_max({"delivery.window_ms": "180000"}) > 180 + 30


def test_a_message_of_somebody_else_has_no_number():
    assert number_in(pack("ab12", 7), "ab12") == 7
    assert number_in(pack("ab12", 7), "ab13") is None
    assert number_in(b"hello", "ab12") is None


GIVEN = {"nodes": 6, "topics": 4, "subscriptions": 2, "duration": 30}


def test_a_scenario_is_the_same_for_processes_and_for_the_simulator():
    steps = [
        {"at": 9, "do": "heal"},
        {"at": 2, "do": "partition", "who": ["n0", "n1"]},
        {"at": 4, "do": "crash", "who": "neighbours", "count": 2, "lasts": 3},
    ]
    scenario = make_scenario({**GIVEN, "step": steps})
    assert scenario.steps == (
        Step(at=2, do="partition", who=("n0", "n1"), lasts=7),
        Step(at=4, do="crash", who="neighbours", count=2, lasts=3),
    )
    found = [
        (fault.time_ms - FORMING_MS, fault.kind, fault.nodes, fault.duration_ms)
        for fault in schedule_of(scenario).faults
    ]
    assert found == [
        (2_000, "partition", ("n0", "n1"), 7_000),
        (4_000, "crash-adjacent", (), 0),
        (7_000, "join", (), 0),
        (7_000, "join", (), 0),
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"nodes": 0}, "the interests are given"),
        ({"topics": 30}, "too many"),
        ({"step": [{"at": 40, "do": "crash"}]}, "within 30 s"),
        ({"step": [{"at": 4, "do": "crash", "who": ["n9"]}]}, 'no node "n9"'),
        ({"step": [{"at": 4, "do": "crash", "count": 6}]}, "count is 6"),
        ({"step": [{"at": 4, "do": "hang", "who": "hub"}]}, "cannot choose hub"),
        ({"step": [{"at": 4, "do": "subscribe", "who": ["n1"]}]}, "needs who and topic"),
        ({"step": [{"at": 4, "do": "explode"}]}, "explode"),
        ({"sped": 4}, "sped"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused_by_name(change, what):
    with pytest.raises(InputError, match=what):
        make_scenario({**GIVEN, **change})


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nodes", "1"),
        ("--nodes", "6", "--topics", "90"),
        ("--churn", "nowhere.tsv"),
        ("--simulated",),
        ("--scenario", "nowhere.toml"),
        ("--duration", "0"),
        ("--set", "omen.period_ms"),
        ("--nodes", "2", "--set", "omen.hurry=1"),
        ("--nodes", "2", "--overlay", "star"),
        ("--nodes", "2", "--plan", "nowhere.tsv"),
        ("--nodes", "2", "--topics", "1", "--overlay", "vitis", "--plan", "lowoda"),
        ("--nodes", "2", "--topics", "1", "--mqtt", "--plan", "lowoda"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(arguments, capsys):
    assert run(["up", *arguments]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("name", "give --interests, which names the nodes"),
        ("listen", "leave it out: trellis up chooses one for each node"),
        ("seeds", "leave it out: "),
        ("mqtt.listen", "give --mqtt"),
        ("telemetry.file", "leave it out, or write a node.toml for each node"),
        ("tls.cert", "leave it out: a mesh of trellis up has no TLS"),
    ],
)
def test_a_setting_that_must_differ_from_node_to_node_is_refused_with_a_sentence(key, remedy, capsys):
    assert run(["up", "--nodes", "2", "--duration", "1", "--set", f"{key}=127.0.0.1:9"]) == 2
    what = f"--set {key}: it must differ from node to node, and --set is for all nodes; {remedy}"
    assert what in capsys.readouterr().err


def test_a_setting_that_up_judges_by_is_given_by_its_option(capsys):
    assert run(["up", "--nodes", "2", "--set", "delivery.copies=3"]) == 2
    assert "--set delivery.copies: this run has an option for it; give --copies 3" in capsys.readouterr().err


def test_topics_for_all_nodes_are_read_as_toml_and_added_to_those_of_each_node():
    config = FleetConfig(settings=shared_settings({"topics": '["n", "m,x"]', "omen.period_ms": "50"}))
    assert node_config(config, "up", ["t", "n"], {})["topics"] == ["t", "n", "m,x"]
    check_config(config, {"a": ("t",), "b": ("t",)})


@pytest.mark.parametrize("path", [path for path in SCENARIOS if path.stem == "one_by_one"], ids=lambda path: path.stem)
def test_a_shipped_scenario_holds_in_the_simulator(path):
    _holds(path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_holds_in_the_simulator(path, seed):
    _holds(path, seed)


def _holds(path: Path, seed: int) -> None:
    found = simulate_scenario(read_scenario(path), seed)
    assert found.result.failure is None
    assert not found.result.skipped
    assert found.acknowledged > 100
    assert found.holds


def test_a_scenario_in_which_messages_are_lost_does_not_hold(monkeypatch):
    """The mutant: comparisons at link-up give nothing, in a mesh that was cut."""
    monkeypatch.setattr(Comparison, "_send_what_is_lacking", lambda self, *arguments: None)
    path = next(path for path in SCENARIOS if path.stem == "partition")
    assert not simulate_scenario(read_scenario(path), 1).holds


def score(**fields: object) -> Score:
    given: dict[str, object] = dict.fromkeys(Score.__struct_fields__, 0)
    given |= {
        "refusals": {},
        "overlay": "omen",
        "copies": 2,
        "published": 9,
        "acknowledged": 9,
        "kills_at_once": 1,
        "repairs": [],
    }
    return Score(**{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"missing": 1}, "missing"),
        ({"duplicates": 1}, "twice"),
        ({"split_topics": 1}, "split"),
        ({"published": 0, "acknowledged": 0}, "nothing was published"),
        ({"acknowledged": 0}, "nothing was acknowledged"),
        ({"disordered": 1}, "out of order"),
        ({"one_sided_links": 1}, "one end"),
        ({"unrepaired": 1}, "never repaired"),
        ({"node_failures": 1}, "by themselves"),
        ({"skipped": 1, "faults_asked": True, "faults_done": 3}, "1 steps could not be done"),
        ({"skipped": 3, "faults_asked": True}, "no fault that was asked for happened: 3 could not be done"),
        ({"forgone": 1}, "lost"),
        ({"refused": 1, "refused_max": 0.1}, "11.1% of the publications were not acknowledged, and 10.0% may be"),
    ],
)
def test_a_score_names_what_is_wrong(fields, fault):
    (found,) = score(**fields).faults()
    assert fault in found


def test_what_dies_with_all_its_copies_at_once_is_no_fault():
    assert not list(score(forgone=3, kills_at_once=2).faults())
    assert not list(score().faults())


def test_the_verdict_says_what_the_rows_say():
    """Nobody reads "nothing twice" below a row that counts some."""
    assert score().verdict() == "good: nothing missing, nothing twice, every topic whole"
    repeated = score(duplicates=7, excused=7, client_kind="mosquitto", kills=3, repeats_max=256)
    assert ("delivered twice", 7) in list(repeated.rows())
    assert repeated.verdict() == (
        "good: nothing missing, 7 twice, as 3 killed sidecars (each: at most 256 messages) allow, every topic whole"
    )
    assert score(duplicates=8, excused=7).verdict() == "not good: 1 were delivered twice"
    calm = score(faults_asked=True).verdict()
    assert calm.endswith("every topic whole, but no fault happened: the run was over before the first one was due")
    assert "no fault" not in score(faults_asked=True, faults_done=1).verdict()
    lost = score(forgone=3, kills_at_once=2).verdict()
    assert lost.startswith("good: nothing missing, 3 lost with all their copies at once")


def test_up_never_prints_nothing_twice_below_a_row_that_counts_some(monkeypatch, capsys):
    """Brokers of killed sidecars may send messages again: that is good, and it is told."""

    class Over:
        """A run that is over."""

        missing: tuple[str, ...] = ()

        def __init__(self, *_: object) -> None:
            self.fleet = SimpleNamespace(failures=())

        async def run(self) -> Score:
            return score(duplicates=102, excused=102, client_kind="mosquitto", kills=3)

    monkeypatch.setattr("trellis.fleet.up.Up", Over)
    assert run("up --nodes 2 --topics 1 --subscriptions 1 --duration 1".split()) == 0
    told = capsys.readouterr().out
    assert re.search("^delivered twice +102$", told, re.MULTILINE)
    assert "nothing twice" not in told


def test_the_score_says_which_share_was_refused_and_why():
    told = score(published=200, refused=10, refusals={"too late": 3, "killed": 7}, refused_max=0.1)
    rows = list(told.rows())
    start = rows.index(("not acknowledged", "10 (5.0%; 10.0% may be)"))
    assert rows[start + 1 : start + 3] == [("  of them", "7: killed"), ("  of them", "3: too late")]
    assert told.to_json()["refused_share"] == 0.05
    assert not list(told.faults())
    assert list(score(published=200, refused=21, refused_max=0.1).faults())


def test_fewer_refusals_are_allowed_where_nothing_was_done_to_the_mesh():
    assert refused_max(UpConfig(), False) == 0.02
    assert refused_max(UpConfig(), True) == 0.1
    assert refused_max(UpConfig(steps=(Step(at=1, do="partition", lasts=1),)), False) == 0.1
    assert refused_max(UpConfig(refused_max=0.5), True) == 0.5


def test_the_ledger_keeps_the_reasons_of_refusals_apart_and_few():
    ledger = Ledger()
    for node in ("a", "b"):
        ledger.born(node)
    for number in range(1, 51):
        ledger.publish("a" if number == 1 else "b", "t", number)
    ledger.died("a", 60)
    ledger.refuse(1, "the connection is closed")
    for number in range(2, 51):
        ledger.refuse(number, f"reason {number}")
    assert ledger.refused == sum(ledger.refusals.values()) == 50
    assert ledger.refusals[NODE_ENDED] == 1
    assert len(ledger.refusals) == 21
    assert ledger.refusals[OTHER] == 30
