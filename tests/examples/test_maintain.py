"""Maintenance, example by example: bad input, the history that is left, special traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from reference import shadows as slow
from trellis.errors import InputError
from trellis.model.churn import ChurnTrace
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.maintain_history import Round

SQUARE = Interests.from_pairs({"a": ["x", "y"], "b": ["x"], "c": ["x", "y"], "d": ["y"]})
#   b - a - d, and c hangs on a: all of x and y go through a
STAR = Overlay.from_pairs(SQUARE.nodes, [("a", "b"), ("a", "c"), ("a", "d")])


def trace(*rows: tuple[float, str, str, str | None]) -> ChurnTrace:
    return ChurnTrace.from_rows(rows)


def run(*rows: tuple[float, str, str, str | None], interests=SQUARE, overlay=STAR, **config: object) -> Maintenance:
    return Maintenance(interests, trace(*rows), overlay, MaintainConfig(**config))


def links(maintenance: Maintenance) -> set[frozenset[str]]:
    return {frozenset(link) for link in maintenance.overlay().to_networkx().edges}


def expect_error(*words: str) -> pytest.RaisesExc:
    return pytest.raises(InputError, match=".*".join(words))


@pytest.mark.parametrize("rho", [0.99, -1.0, float("nan")])
def test_a_rho_below_one_is_refused(rho):
    with expect_error("--rho", "1 or more"):
        MaintainConfig(rho=rho)


def test_a_negative_lambda_is_refused():
    with expect_error("--lambda -1", "negative", "0 or more"):
        MaintainConfig(coverage_factor=-1)


@pytest.mark.parametrize("option", ["algorithm", "backups", "components"])
def test_an_unknown_choice_is_refused_with_the_known_ones(option):
    with expect_error(f"--{option} magic", "choose from"):
        MaintainConfig(**{option: "magic"})


def test_an_overlay_over_other_nodes_is_refused():
    names = Names(["a", "z"])
    with expect_error("other nodes", '"z"'):
        run((0, "a", "leave", None), overlay=Overlay.from_pairs(names, [("a", "z")]))


def test_an_overlay_that_links_somebody_who_joins_later_is_refused():
    with expect_error('"d"', "joins only later"):
        run((0, "d", "join", None))


def test_an_overlay_that_is_no_tco_is_refused_and_says_where():
    with expect_error("no TCO", "x", "trellis plan --existing"):
        run((0, "a", "leave", None), overlay=Overlay.from_pairs(SQUARE.nodes, [("a", "c"), ("a", "d")]))


def test_a_trace_that_does_not_fit_is_refused_before_anything_happens():
    with expect_error("row 1", '"a"', "not there"):
        run((0, "a", "leave", None), (1, "a", "crash", None))


@pytest.mark.parametrize("algorithm", ["naive", "shadows"])
def test_a_leave_is_mended_and_told_in_full(algorithm):
    """Without a, x is {b} {c} and y is {c} {d}: two links are missing, and only two can fill in."""
    maintenance = run((5, "a", "crash", None), algorithm=algorithm, check_every=1)
    (round_,) = maintenance.rounds()
    assert links(maintenance) == {frozenset("bc"), frozenset("cd")}
    assert round_ == Round(
        round=1,
        time=5.0,
        event="crash",
        node="a",
        subscriptions=2,
        shadow_set=3,
        links_added=2,
        links_removed=3,
        repair_ratio=5 / 3,
        degree_max=2,
        degree_mean=4 / 3,
        nodes=3,
        links=2,
        seconds_step2=round_.seconds_step2,
        seconds=round_.seconds,
        split_topics=0,
    )
    assert 0 <= round_.seconds_step2 <= round_.seconds


def test_a_node_of_the_interests_may_come_later_and_come_back_with_other_topics():
    maintenance = run(
        (1, "d", "join", None),  # with its rows of the interests table
        (2, "d", "leave", None),
        (3, "d", "join", None),
        (3, "d", "subscribe", "z"),
        (3, "d", "subscribe", "x"),
        overlay=Overlay.from_pairs(SQUARE.nodes, [("a", "b"), ("a", "c")]),
        check_every=1,
    )
    assert "d" not in maintenance.overlay().nodes
    rounds = [(round_.subscriptions, round_.links_added, round_.split_topics) for round_ in maintenance.rounds()]
    assert rounds == [(1, 1, 0), (1, 0, 0), (2, 1, 0)]
    assert slow.named_topics(maintenance.interests())["d"] == {"x", "z"}


def test_whoever_drops_a_topic_loses_the_links_that_served_nothing_else():
    """b - a and a - d served x and y alone; a - c serves the other topic still."""
    maintenance = run((1, "a", "unsubscribe", "x"), (2, "a", "unsubscribe", "y"))
    rounds = maintenance.rounds()
    assert (next(rounds).links_removed, links(maintenance)) == (1, {frozenset("ac"), frozenset("ad"), frozenset("bc")})
    assert (next(rounds).links_removed, links(maintenance)) == (2, {frozenset("bc"), frozenset("cd")})
    assert "a" in maintenance.overlay().nodes  # it stays, without interests


def test_a_link_that_never_shared_a_topic_is_not_ours_to_drop():
    overlay = Overlay.from_pairs(SQUARE.nodes, [("a", "b"), ("a", "c"), ("a", "d"), ("b", "d")])
    maintenance = run((1, "b", "unsubscribe", "x"), overlay=overlay)
    next(maintenance.rounds())
    assert frozenset("bd") in links(maintenance)


def test_a_new_topic_needs_no_link_where_a_neighbour_has_it_and_one_where_none_has():
    maintenance = run((1, "b", "subscribe", "y"), (2, "d", "subscribe", "z"), (3, "b", "subscribe", "z"))
    rounds = list(maintenance.rounds())
    assert [round_.links_added for round_ in rounds] == [0, 0, 1]  # y: a has it. z: nobody else. z again: only d
    assert frozenset("bd") in links(maintenance)


def test_with_lambda_zero_joiners_are_connected_although_nobody_keeps_backups():
    joins = [(time, f"j{time}", "join", None) for time in range(1, 6)]
    rows = [row for join in joins for row in (join, *((join[0], join[1], "subscribe", topic) for topic in "xy"))]
    maintenance = run(*rows, coverage_factor=0, check_every=1)
    for round_ in maintenance.rounds():
        assert (round_.split_topics, round_.links_added > 0) == (0, True)
    assert not maintenance.algorithm.shadows.backups.backups_of.length.any()


def test_a_lambda_beyond_the_nodes_makes_everybody_a_backup():
    sets = run((1, "a", "leave", None), coverage_factor=10**9).algorithm.shadows.backups
    current = sets.current
    of_a = set(current.names.take(sets.backups_of[current.rank_of["a"]]).to_pylist())
    assert of_a == {"b", "c", "d"}


def test_a_history_cut_short_is_valid_and_says_that_it_is_partial():
    maintenance = run((1, "a", "leave", None), (2, "b", "leave", None), (3, "c", "leave", None))
    rounds = maintenance.rounds()
    next(rounds)
    next(rounds)
    table = maintenance.history.to_table()
    assert table["node"].to_pylist() == ["a", "b"]
    about = json.loads(table.schema.metadata[b"trellis.history"])
    assert about == {"complete": False, "rounds": 2, "rounds_expected": 3}
    list(maintenance.rounds())  # taken up where it was left
    assert maintenance.history.complete
    assert maintenance.history.to_table()["node"].to_pylist() == ["a", "b", "c"]
    assert maintenance.history.to_table(times=False).column_names[-2:] == ["links", "split_topics"]


def test_an_empty_trace_leaves_an_empty_history():
    maintenance = run()
    assert list(maintenance.rounds()) == []
    assert maintenance.history.complete
    assert maintenance.history.to_table().num_rows == 0


@pytest.mark.parametrize("algorithm", ["naive", "shadows", "rebuild"])
def test_the_last_node_may_leave(algorithm):
    rows = ((time, node, "leave", None) for time, node in enumerate("abcd"))
    maintenance = run(*rows, algorithm=algorithm, check_every=1)
    last = list(maintenance.rounds())[-1]
    assert (last.nodes, last.links, last.degree_max, last.degree_mean) == (0, 0, 0, 0.0)
    assert last.repair_ratio is None


@pytest.mark.slow
def test_a_cold_maintain_says_that_it_compiles(tmp_path):
    (tmp_path / "i.tsv").write_text("node\ttopic\na\tx\nb\tx\nc\tx\n")
    (tmp_path / "c.tsv").write_text("time\tnode\tevent\ttopic\n1\ta\tleave\t\n")
    words = "maintain i.tsv --churn c.tsv --algorithm shadows -o h.tsv".split()
    cold = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "trellis", *words], cwd=tmp_path, env=cold, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "compiling the kernels" in done.stderr
