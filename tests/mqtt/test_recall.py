"""Retained messages across nodes: a later subscriber anywhere gets the last one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.lives import run
from mqtt.delayed import Mesh
from mqtt.talk import connect, doors
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import Envelope, Kept, Recall, unwrap, wrap
from trellis.protocols.mqtt.retained import RetainedMessages


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["x/1/#", "x/#", "#", "x/+/a"]))
def test_a_late_subscriber_gets_the_last_retained_message_of_every_topic(seed, filter_):
    """Whoever published it, wherever it was overwritten or removed; each once."""
    random = Random(seed)
    mesh = Mesh("abcd", random)
    mesh.subscribe("a", "x/1/a")  # some nodes hold what others published
    mesh.pass_time(12_000)
    last: dict[str, bytes] = {}
    for turn in range(12):
        topic, name = f"x/{random.randrange(2)}/{random.choice('ab')}", random.choice("abc")
        payload = random.choice([b"", b"%d" % turn, b"%d" % turn])
        mesh.send(name, topic, payload, retain=True)
        last[topic] = payload
        mesh.pass_time(6_000)  # who keeps a message has joined its topic, and hears when it changes
    mesh.pass_time(40_000)  # even topics that nobody uses any more
    mesh.subscribe("d", filter_)
    mesh.pass_time(30_000)
    tail = "" if filter_[-1] == "#" else "/a"
    begin = filter_.split("#")[0].split("+")[0]
    wanted = {(topic, one) for topic, one in last.items() if one and topic.startswith(begin) and topic.endswith(tail)}
    assert sorted(mesh.got["d"]) == sorted(wanted)


def test_a_retained_message_outlives_its_node_where_somebody_wants_it():
    mesh = Mesh("abc", Random(3))
    mesh.subscribe("b", "x/1/#")
    mesh.pass_time(12_000)
    mesh.send("a", "x/1/a", b"kept", retain=True)
    mesh.pass_time(5_000)
    mesh.stop("a")
    mesh.subscribe("c", "x/1/a")
    mesh.pass_time(10_000)
    assert mesh.got["c"] == [("x/1/a", b"kept")]


def without_keepers(mesh: Mesh) -> Mesh:
    """With one copy, no other node is asked to keep what is retained."""
    for host in mesh.hosts.values():
        host.state.copies = 1
    return mesh


def test_a_node_stays_on_a_topic_while_it_keeps_a_message_of_it():
    mesh = without_keepers(Mesh("ab", Random(3)))
    mesh.pass_time(12_000)
    host = mesh.hosts["a"]
    mesh.send("a", "x/1/a", b"kept", retain=True)
    assert "x/1" in host.interests.wanted
    mesh.pass_time(8_000)
    mesh.send("b", "x/1/a", b"newer", retain=True)  # now b keeps it
    mesh.pass_time(8_000)
    assert "x/1" not in host.interests.wanted
    assert not len(host.retained)
    mesh.send("b", "x/1/a", b"", retain=True)
    assert "x/1" not in mesh.hosts["b"].interests.wanted


def test_a_filter_that_is_given_up_and_asked_for_again_brings_a_retained_message_once():
    """An answer that comes between SUBSCRIBE and SUBACK is not for the subscription that has ended."""
    mesh = Mesh("ab", Random(3))
    mesh.subscribe("b", "x/#")
    mesh.pass_time(12_000)
    mesh.receive("b", 1, p.Unsubscribe(2, ("x/#",)))
    mesh.subscribe("b", "x/#")
    told = wrap(Kept(("a",), (message("x/1/a", b"kept", 1),)))
    mesh.hosts["b"].delivered("x/1", "a", told)
    mesh.carry_out("b")
    assert mesh.subacks["b"] == 1  # the second one waits for the mesh
    mesh.pass_time(12_000)
    assert mesh.subacks["b"] == 2
    assert mesh.got["b"] == [("x/1/a", b"kept")]


def test_a_late_answer_does_not_bring_a_retained_message_that_was_removed():
    """Another node answered before it heard of the removal."""
    mesh = Mesh("ab", Random(3))
    mesh.subscribe("b", "x/1/a")
    mesh.pass_time(12_000)
    mesh.hosts["b"].delivered("x/1", "a", wrap(message("x/1/a", b"", 2)))
    for stamp_ms in (1, 3):
        mesh.hosts["b"].delivered("x/1", "a", wrap(Kept(("a",), (message("x/1/a", b"%d" % stamp_ms, stamp_ms),))))
    mesh.carry_out("b")
    assert mesh.got["b"] == [("x/1/a", b""), ("x/1/a", b"3")]  # the last one was published after the removal


@pytest.mark.parametrize("kind", [Recall, Kept])
def test_a_question_or_an_answer_that_the_mesh_refuses_is_given_to_it_again(kind, monkeypatch):
    """Too many publications of the node wait for their copies."""
    mesh = without_keepers(Mesh("ab", Random(3)))
    mesh.send("a", "x/1/a", b"kept", retain=True)
    mesh.pass_time(12_000)
    spread, refused = mesh.spread, []

    def spread_later(name: str, topic: str, payload: bytes, number: int) -> None:
        if len(refused) < 2 and isinstance(unwrap(payload), kind):
            refused.append(number)
            mesh.hosts[name].not_acknowledged(number, "no room", is_taken=False)
        else:
            spread(name, topic, payload, number)

    monkeypatch.setattr(mesh, "spread", spread_later)
    mesh.subscribe("b", "x/1/a")
    mesh.pass_time(12_000)
    assert len(refused) == 2
    assert mesh.got["b"] == [("x/1/a", b"kept")]


def message(topic: str, payload: bytes, stamp_ms: int) -> Envelope:
    return Envelope(topic, payload, 1, True, "", 1, 1, stamp_ms)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([b"", b"1", b"2"]), st.integers(0, 5)), max_size=8),
       st.randoms(use_true_random=False))  # fmt: skip
def test_the_order_in_which_messages_come_does_not_matter(drawn, random):
    """R1, with one publisher per stamp."""
    several = list({(topic, stamp): message(topic, payload, stamp) for topic, payload, stamp in drawn}.values())
    shuffled = random.sample(several, len(several))
    stores = []
    for order in (several, shuffled):
        store = RetainedMessages(100, 10_000)
        for one in order:
            store.put("n", one)
        store.check()
        stores.append({topic: store[topic].message for topic in "ab" if topic in store})
    assert stores[0] == stores[1]


@pytest.mark.parametrize("filter_", ["home/hall/#", "home/#"])
def test_a_retained_message_reaches_a_later_subscriber_of_another_node(filter_):
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            publisher = await connect(nodes[0], "p")
            await publisher.publish("home/hall/light", b"off", retain=True)
            await publisher.publish("home/hall/light", b"on", retain=True)
            late = await connect(nodes[2], "late")
            await late.subscribe(filter_)
            found = await late.message()
            assert (found.topic, found.payload, found.retain) == ("home/hall/light", b"on", True)

    run(work())
