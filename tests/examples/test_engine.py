"""The engine carries out effects in virtual time: order, timers, incarnations, pauses."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from trellis.protocols.effects import CancelTimer, Deliver, LinkDown, LinkUp, Send, SetTimer
from trellis.protocols.wire import Codec, Count
from trellis.simulate.engine import Engine
from trellis.simulate.network import Latency, NetworkConfig
from trellis.simulate.system import System, Violation, Watcher
from trellis.simulate.systems.toys import Flooder, Mesh, PingPong, Quiet


class Note(msgspec.Struct, frozen=True, tag="note"):
    number: Count = 0


class Diary(Quiet):
    """Writes down what it is told, and answers as its script says: {what it is told: effects}."""

    def __init__(self, node, world, script, pages):
        super().__init__(node)
        self.world, self.script, self.pages = world, script, pages

    def _told(self, what):
        self.pages.append((self.world.now_ms, self.id, what))
        return list(self.script.get((self.id, what), self.script.get(what, ())))

    def start(self):
        return self._told("start")

    def on_message(self, sender, message):
        return self._told(f"{message.number} from {sender}")

    def on_timer(self, tag):
        return self._told(tag)

    def on_peer_down(self, peer):
        return self._told(f"{peer} is down")

    def subscribe(self, topic):
        return self._told(f"+{topic}")

    def unsubscribe(self, topic):
        return self._told(f"-{topic}")

    def leave(self):
        return self._told("leave")


class Diaries(System):
    name = "diaries"

    def __init__(self, script):
        self.script, self.pages, self.codec = script, [], Codec(Note)

    def make_node(self, node, topics, random, world):
        return Diary(node, world, self.script, self.pages)


def engine_of(script, names="ab", **options):
    options.setdefault("network", NetworkConfig(Latency("constant", 10)))
    return Engine(Diaries(script), {name: ["t"] for name in names}, seed=1, **options)


def told(engine, name):
    return [(time, what) for time, node, what in engine.system.pages if node == name]


def test_effects_are_carried_out_in_the_order_they_are_given():
    engine = engine_of({("a", "start"): [Send("b", Note(1)), Send("b", Note(2)), Send("b", Note(3))]})
    engine.run(100)
    assert told(engine, "b") == [(0, "start"), (10, "1 from a"), (10, "2 from a"), (10, "3 from a")]


def test_events_of_one_instant_happen_in_the_order_they_were_scheduled():
    # The timer of b is set after that of a for the same instant; the message arrives at that instant, sent last.
    script = {
        ("a", "start"): [SetTimer("x", 10)],
        ("b", "start"): [SetTimer("y", 10), Send("a", Note(7))],
    }
    engine = engine_of(script)
    engine.run(10)
    assert engine.system.pages[2:] == [(10, "a", "x"), (10, "b", "y"), (10, "a", "7 from b")]


def test_what_is_due_now_happens_now_and_last():
    script = {("a", "start"): [SetTimer("x", 5)], ("b", "start"): [SetTimer("y", 5)], "x": [SetTimer("z", 0)]}
    engine = engine_of(script)
    engine.run(5)
    assert [what for _, _, what in engine.system.pages[2:]] == ["x", "y", "z"]


def test_a_run_ends_after_the_events_of_its_last_instant_and_goes_on_from_there():
    engine = engine_of({"start": [SetTimer("x", 10)]}, names="a")
    engine.run(9)
    assert told(engine, "a") == [(0, "start")]
    assert engine.world.now_ms == 9
    engine.run(10)
    assert told(engine, "a")[1:] == [(10, "x")]


def test_setting_a_pending_timer_replaces_it():
    engine = engine_of({"start": [SetTimer("x", 10), SetTimer("x", 30)]}, names="a")
    engine.run(100)
    assert told(engine, "a")[1:] == [(30, "x")]


def test_a_timer_can_be_brought_forward():
    engine = engine_of({"start": [SetTimer("x", 30), SetTimer("x", 10)]}, names="a")
    engine.run(100)
    assert told(engine, "a")[1:] == [(10, "x")]


def test_a_timer_set_again_for_the_same_instant_fires_once_in_its_new_place():
    script = {"start": [SetTimer("x", 10), SetTimer("y", 10), SetTimer("x", 10)]}
    engine = engine_of(script, names="a")
    engine.run(100)
    assert told(engine, "a")[1:] == [(10, "y"), (10, "x")]


def test_a_cancelled_timer_stays_silent_and_cancelling_none_is_nothing():
    engine = engine_of({"start": [SetTimer("x", 10), CancelTimer("x"), CancelTimer("never set")]}, names="a")
    engine.run(100)
    assert told(engine, "a") == [(0, "start")]


def test_a_timer_can_be_set_again_when_it_fires():
    engine = engine_of({"start": [SetTimer("x", 10)], "x": [SetTimer("x", 10)]}, names="a")
    engine.run(35)
    assert told(engine, "a")[1:] == [(10, "x"), (20, "x"), (30, "x")]


def test_sweeping_stale_timers_away_changes_nothing(monkeypatch):
    script = {"start": [SetTimer("x", 10), SetTimer("far", 10_000)]}
    script["x"] = [SetTimer("x", 7), *[SetTimer("far", 10_000 + n) for n in range(20)], Send("b", Note(1))]
    lazy = engine_of(script)
    lazy.run(3_000)
    monkeypatch.setattr("trellis.simulate.engine._STALE_MIN", 25)
    swept = engine_of(script)
    swept.run(3_000)
    assert swept.system.pages == lazy.system.pages
    assert swept.hexdigest() == lazy.hexdigest()
    assert sum(map(len, swept._instants.values())) < sum(map(len, lazy._instants.values())) / 10


def test_a_link_stands_when_both_ends_claim_it():
    script = {("a", "start"): [LinkUp("b"), SetTimer("x", 50)], ("b", "start"): [SetTimer("y", 20)]}
    engine = engine_of({**script, "y": [LinkUp("a"), LinkUp("a")], "x": [LinkDown("b")]})
    engine.run(10)
    assert (engine.world.claims("a"), engine.world.claims("b"), engine.world.links()) == (["b"], [], [])
    engine.run(20)
    assert engine.world.links() == [("a", "b")]
    assert engine.links_formed == 1
    engine.run(50)
    assert (engine.world.claims("b"), engine.world.links()) == (["a"], [])


def test_a_link_to_itself_is_a_violation_that_says_where():
    engine = engine_of({"start": [SetTimer("x", 30)], "x": [LinkUp("a")]}, names="a")
    with pytest.raises(Violation, match="itself") as caught:
        engine.run(100)
    assert caught.value.__notes__ == ["at 30 ms, a (incarnation 1)"]


def test_messages_to_nobody_are_counted_and_gone():
    engine = engine_of({("a", "start"): [Send("nobody", Note(1)), Send("b", Note(2))]})
    engine.at(5, engine.crash, "b")
    engine.run(100)
    assert engine.undeliverable == 2  # the second one was under way
    assert told(engine, "b") == [(0, "start")]


def test_a_restart_is_a_new_incarnation_that_gets_nothing_sent_to_the_old_one():
    script = {("a", "start"): [Send("b", Note(1)), SetTimer("x", 20)], "x": [Send("b", Note(2))]}
    script["b", "start"] = [SetTimer("old", 50)]
    engine = engine_of(script)
    first = engine.world
    engine.at(5, engine.crash, "b")
    engine.at(6, engine.join, "b")
    engine.run(9)
    new = engine.world.node("b")
    engine.run(100)
    assert told(engine, "b") == [(0, "start"), (6, "start"), (30, "2 from a"), (56, "old")]
    assert (first.incarnation("b"), first.born_ms("b"), engine.world.node("b") is new) == (2, 6, True)


def test_a_message_of_a_node_that_is_gone_still_arrives():
    engine = engine_of({("a", "start"): [Send("b", Note(1))]})
    engine.at(5, engine.crash, "a")
    engine.run(100)
    assert told(engine, "b")[1:] == [(10, "1 from a")]


def test_each_incarnation_has_a_stream_of_chance_of_its_own():
    drawn = []

    class Dice(Diaries):
        def make_node(self, node, topics, random, world):
            drawn.append((node, random.random()))
            return super().make_node(node, topics, random, world)

    for seed in (1, 2):
        engine = Engine(Dice({}), {"a": ["t"], "b": ["t"]}, seed=seed)
        engine.at(5, engine.crash, "b")
        engine.at(6, engine.join, "b")
        engine.run(10)
    assert len(drawn) == len({value for _, value in drawn}) == 6


def test_a_paused_node_keeps_its_messages_and_timers_and_gets_them_in_order_when_it_goes_on():
    script = {("b", "start"): [SetTimer("x", 12), SetTimer("late", 80)], ("a", "start"): [Send("b", Note(1))]}
    script["a", "start"] += [SetTimer("again", 5)]
    script["again"] = [Send("b", Note(2))]
    engine = engine_of(script)
    engine.at(1, engine.pause, "b")
    engine.at(50, engine.resume, "b")
    engine.run(100)
    assert told(engine, "b") == [(0, "start"), (50, "1 from a"), (50, "x"), (50, "2 from a"), (80, "late")]


def test_a_node_that_crashes_while_paused_gets_nothing_more():
    engine = engine_of({("a", "start"): [Send("b", Note(1))], ("b", "start"): [SetTimer("x", 5)]})
    engine.at(1, engine.pause, "b")
    engine.at(20, engine.crash, "b")
    engine.at(30, engine.resume, "b")
    engine.run(100)
    assert told(engine, "b") == [(0, "start")]


def test_a_node_that_leaves_says_what_it_has_to_say():
    engine = engine_of({"leave": [Send("b", Note(9))]})
    engine.at(5, engine.leave, "a")
    engine.run(100)
    assert told(engine, "b")[1:] == [(15, "9 from a")]
    assert engine.world.living == ["b"]


def test_a_crash_is_silent_unless_streams_break():
    claims = {("a", "start"): [LinkUp("b")], ("c", "start"): []}
    silent, loud = engine_of(claims, names="abc"), engine_of(claims, names="abc", broken_stream_ms=7)
    for engine in (silent, loud):
        engine.at(20, engine.crash, "b")
        engine.run(100)
    assert told(silent, "a") == [(0, "start")]
    assert told(loud, "a") == [(0, "start"), (27, "b is down")]
    assert told(loud, "c") == [(0, "start")]  # claimed no link


def test_interest_changes_reach_the_node_the_world_and_the_views():
    engine = engine_of({})
    engine.at(5, engine.subscribe, "a", "new")
    engine.at(6, engine.unsubscribe, "a", "t")
    engine.at(7, engine.unsubscribe, "a", "t")  # not wanted any more: nothing happens
    engine.run(10)
    assert told(engine, "a")[1:] == [(5, "+new"), (6, "-t")]
    assert engine.world.topics_of("a") == ("new",)
    assert engine.world.membership.interests["a"] == engine.world.topics.bit("new")


def test_inputs_that_cannot_happen_say_so():
    engine = engine_of({})
    engine.run(0)
    assert not engine.join("a")
    assert engine.crash("a")
    assert [engine.crash("a"), engine.leave("a"), engine.pause("a"), engine.resume("b")] == [False] * 4
    assert not engine.subscribe("a", "u")


def test_a_publication_is_flooded_and_delivered_to_those_who_want_it():
    seen = []

    class Ear(Watcher):
        def on_deliver(self, node, delivery):
            seen.append((node, delivery))

    wanted = {"a": ["t"], "b": ["other"], "c": ["t"], "d": ["t"]}
    links = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")]
    engine = Engine(Flooder(), wanted, seed=1, overlay=links, watchers=[Ear()])
    engine.at(5, engine.publish, "a", "t", b"x")
    engine.run(1000)
    assert seen == [(name, Deliver("t", "a", 1)) for name in "acd"]
    assert engine.world.links() == sorted(links)


def test_names_that_are_absent_at_the_start_join_later_with_their_interests():
    engine = engine_of({}, absent=["b"])
    engine.at(5, engine.join, "b")
    engine.run(4)
    assert engine.world.living == ["a"]
    engine.run(6)
    assert engine.world.living == ["a", "b"]
    assert engine.world.topics_of("b") == ("t",)


def test_everybody_knows_everybody_before_the_first_node_is_made():
    views = {}

    class Looks(Diaries):
        def make_node(self, node, topics, random, world):
            views[node] = sorted(world.contacts(node, random, 99))
            return super().make_node(node, topics, random, world)

    engine = Engine(Looks({}), {name: ["t"] for name in "abc"}, seed=1, absent=["c"])
    engine.run(0)
    assert views == {"a": ["b"], "b": ["a"]}


@pytest.mark.parametrize(("nodes", "count"), [(3, 5), (30, 5), (30, 29), (30, 40), (1, 3)])
def test_contacts_are_different_living_others(nodes, count):
    names = [f"n{i}" for i in range(2 * nodes)]
    engine = Engine(Diaries({}), {name: ["t"] for name in names}, seed=1, absent=names[nodes:])
    engine.run(0)
    drawn = [engine.world.contacts("n0", Random(seed), count) for seed in range(20)]
    for contacts in drawn:
        assert len(set(contacts)) == len(contacts) == min(count, nodes - 1)
        assert set(contacts) <= set(names[1:nodes])
    assert {name for contacts in drawn for name in contacts} == set(names[1:nodes])


def digests(system, seed, **options):
    engine = Engine(system, {f"n{i}": ["t"] for i in range(8)}, seed=seed, **options)
    engine.run(5_000)
    return engine.hexdigest(), engine.overlay_digest()


@pytest.mark.parametrize("make", [PingPong, Mesh])
def test_the_same_seed_gives_the_same_digest_and_another_seed_another(make):
    assert digests(make(), 1) == digests(make(), 1)
    assert digests(make(), 1)[0] != digests(make(), 2)[0]


def test_sending_every_message_through_its_wire_form_changes_no_digest():
    weather = NetworkConfig(Latency("uniform", 5, 50), loss=0.1, duplicate=0.1, reorder=0.1)
    assert digests(Mesh(), 3, network=weather, encode=True) == digests(Mesh(), 3, network=weather)


def test_encoding_counts_bytes():
    engine = Engine(PingPong(), {"a": ["t"], "b": ["t"]}, seed=1, encode=True)
    engine.run(100)
    assert engine.encoded_by_type().keys() == engine.sent_by_type().keys()
    assert sum(engine.encoded.values()) >= 4 * engine.delivered > 0


def test_a_digest_sees_a_single_message_more():
    script = {("a", "start"): [Send("b", Note(1))]}
    one, two = engine_of(script), engine_of({("a", "start"): [Send("b", Note(1)), Send("b", Note(1))]})
    one.run(100)
    two.run(100)
    assert one.hexdigest() != two.hexdigest()
    assert one.overlay_digest() == two.overlay_digest()


def test_a_digest_does_not_depend_on_how_a_run_is_sliced():
    whole, sliced = (Engine(Mesh(), {f"n{i}": ["t"] for i in range(8)}, seed=5) for _ in range(2))
    whole.run(3000)
    for time in range(0, 3001, 17):
        sliced.run(time)
    sliced.run(3000)
    assert whole.hexdigest() == sliced.hexdigest()
