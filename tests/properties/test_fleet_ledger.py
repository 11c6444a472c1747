"""The score of a live mesh finds what is missing and what came twice, and blames nobody for the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference.live_ledger import Happening, judge
from trellis.fleet.ledger import SPREAD_S, Ledger

NODES, TOPICS = ["a", "b", "c"], ["t", "u"]


def write_down(history: list[Happening]) -> Ledger:
    ledger = Ledger()
    for node in NODES:
        ledger.born(node)
    for at, one in enumerate(history):
        match one.what:
            case "confirmed":
                ledger.confirmed(ledger.incarnation(one.node), one.topic)
            case "unsubscribed":
                ledger.unsubscribed(one.node, one.topic)
            case "died":
                ledger.died(one.node, at)
                ledger.born(one.node)
            case "published":
                assert ledger.publish(one.node, one.topic, at) == one.number
            case "acknowledged":
                ledger.acknowledge(one.number, ("z",), at)
            case "delivered":
                ledger.deliver(ledger.incarnation(one.node), one.topic, one.number, one.number, at)
    return ledger


@st.composite
def histories(draw: st.DrawFn) -> list[Happening]:
    history: list[Happening] = []
    published: list[str] = []
    acknowledged: set[int] = set()
    for _ in range(draw(st.integers(0, 40))):
        what = draw(st.sampled_from(["confirmed", "published", "acknowledged", "delivered", "died", "unsubscribed"]))
        node, topic, number = draw(st.sampled_from(NODES)), draw(st.sampled_from(TOPICS)), 0
        if what == "published":
            published.append(topic)
            number = len(published)
        elif what in ("acknowledged", "delivered"):
            if not published:
                continue
            number = draw(st.integers(1, len(published)))
            topic = published[number - 1]
            if what == "acknowledged" and number in acknowledged:
                continue
            acknowledged.add(number) if what == "acknowledged" else None
        history.append(Happening(what, node, topic, number))
    return history


@given(histories())
def test_the_ledger_says_what_the_definition_says(history):
    ledger = write_down(history)
    owed, missing, repeated = judge(history)
    assert ledger.expected == len(owed)
    assert {(one.number, one.subscriber) for one in ledger.missing()} == {(number, node) for number, node, _ in missing}
    assert ledger.duplicates == repeated


def a_good_run() -> list[Happening]:
    history = [Happening("confirmed", node, topic) for node in NODES for topic in TOPICS]
    for number in range(1, 7):
        topic = TOPICS[number % 2]
        history.append(Happening("published", NODES[number % 3], topic, number))
        history.append(Happening("acknowledged", NODES[number % 3], topic, number))
        history += [Happening("delivered", node, topic, number) for node in NODES]
    return history


def test_a_run_in_which_everything_arrives_once_is_good():
    ledger = write_down(a_good_run())
    assert (ledger.expected, ledger.delivered, ledger.duplicates, ledger.disordered, ledger.strays) == (18, 18, 0, 0, 0)
    assert not ledger.missing()
    assert not ledger.waiting


def test_every_single_delivery_that_is_left_out_is_found_missing():
    good = a_good_run()
    for place, one in enumerate(good):
        if one.what == "delivered":
            (found,) = write_down([*good[:place], *good[place + 1 :]]).missing()
            assert (found.number, found.subscriber) == (one.number, one.node)


def test_every_single_delivery_that_is_repeated_is_found():
    good = a_good_run()
    for place, one in enumerate(good):
        if one.what == "delivered":
            assert write_down([*good[:place], one, *good[place:]]).duplicates == 1
            assert write_down([*good, one]).duplicates == 1


def test_a_message_that_overtakes_an_earlier_one_of_its_publisher_is_found():
    ledger = write_down([Happening("confirmed", "b", "t")])
    for now in (1, 2):
        ledger.publish("a", "t", now)
    ledger.deliver(ledger.incarnation("b"), "t", 2, 2, 3)
    ledger.deliver(ledger.incarnation("b"), "t", 1, 1, 4)
    assert ledger.disordered == 1


def test_a_message_on_another_topic_or_with_a_number_of_nobody_is_a_stray():
    ledger = write_down([Happening("confirmed", "b", "t"), Happening("published", "a", "t", 1)])
    ledger.deliver(ledger.incarnation("b"), "u", 1, 1, 3)
    ledger.deliver(ledger.incarnation("b"), "t", 9, 1, 3)
    assert ledger.strays == 2


def test_only_deliveries_that_are_owed_count_as_slow():
    ledger = write_down([Happening("confirmed", "b", "t"), Happening("published", "a", "t", 1)])
    ledger.deliver(ledger.incarnation("b"), "t", 1, 1, 3)
    ledger.confirmed(ledger.incarnation("c"), "t")
    ledger.deliver(ledger.incarnation("c"), "t", 1, 1, 30)  # had been published before it was confirmed
    assert list(ledger.delays) == [2]


def test_delays_are_a_sample_of_the_whole_run_not_of_its_end(monkeypatch):
    monkeypatch.setattr("trellis.fleet.ledger._DELAYS_MAX", 100)
    ledger = write_down([Happening("confirmed", "b", "t")])
    for number in range(1, 1_001):
        ledger.publish("a", "t", 0)
        ledger.deliver(ledger.incarnation("b"), "t", number, number, number)
    assert len(ledger.delays) == 100
    assert 20 < sum(delay <= 500 for delay in ledger.delays) < 80


def acknowledged_at(now: float, holders: tuple[str, ...]) -> Ledger:
    ledger = write_down([Happening("confirmed", "c", "t")])
    ledger.publish("a", "t", now)
    ledger.acknowledge(1, holders, now)
    return ledger


def test_a_message_is_forgone_when_all_that_held_it_die_before_it_could_spread():
    ledger = acknowledged_at(10, ("a", "b"))
    ledger.died("a", 11)
    assert len(ledger.missing()) == 1  # one copy is left
    ledger.died("b", 12)
    assert not ledger.missing()
    assert len(ledger.forgone()) == 1


def test_holders_that_die_when_the_message_had_the_time_to_spread_are_no_excuse():
    ledger = acknowledged_at(10, ("a", "b"))
    ledger.died("a", 11)
    ledger.died("b", 10 + SPREAD_S + 0.1)
    assert len(ledger.missing()) == 1


def test_a_holder_that_died_before_its_answer_was_heard_counts_as_that_life():
    ledger = write_down([Happening("confirmed", "c", "t")])
    ledger.publish("a", "t", 10)
    ledger.died("b", 10.1)  # and is not up again
    ledger.acknowledge(1, ("a", "b"), 10.2)
    ledger.died("a", 10.3)
    assert len(ledger.forgone()) == 1


def test_what_everybody_has_is_forgotten_and_a_late_repetition_is_still_found():
    ledger = write_down(a_good_run())
    before = ledger.expected
    ledger.forget(10_000)
    assert not ledger.publications
    assert ledger.expected == before
    ledger.deliver(ledger.incarnation("b"), "t", 1, 1, 10_001)
    assert ledger.duplicates == 1


def test_what_is_missing_is_not_forgotten():
    ledger = acknowledged_at(10, ("a", "b"))
    ledger.forget(10_000)
    assert len(ledger.missing()) == 1
