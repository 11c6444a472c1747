"""Shared subscriptions: of the members of a group in the whole mesh, exactly one gets each message."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.lives import run, until
from mqtt.desk import Desk, Talker
from mqtt.sharing import Sharing
from mqtt.talk import connect, doors
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons, shares
from trellis.protocols.mqtt.envelope import Envelope, Grouped, Shared, wrap


def settled(random: Random, *places: str, names: str = "abc", filter_: str = "$share/g/x/#") -> Sharing:
    mesh = Sharing(names, random)
    members = [mesh.join(name, filter_) for name in places]
    mesh.pass_time(10_000)
    assert {*members} <= mesh.subacks
    return mesh


@pytest.mark.parametrize("filter_", ["$share/g/x/1", "$share/g/x/#", "$share/g/#"])
def test_each_message_goes_to_one_member_and_members_take_turns(filter_):
    mesh = settled(Random(1), *"aabbc", filter_=filter_)
    for number in range(100):
        mesh.publish("abc"[number % 3])
        mesh.pass_time(40)
    mesh.pass_time(5_000)
    assert len(mesh.acknowledged) == 100
    assert Counter(one.payload for one in mesh.receipts) == Counter(list(mesh.acknowledged))
    turns = Counter((one.node, one.connection) for one in mesh.receipts)
    assert len(turns) == 5
    assert min(turns.values()) > 10
    for host in mesh.hosts.values():
        assert not host.shares.guarded
        assert not host.shares.assigned
        assert not host.counters["shared taken over"]


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32))
def test_members_that_come_and_go_neither_lose_nor_repeat_a_message(seed):
    """One member stays. What another one had not acknowledged when its connection broke may come to a second one."""
    come_and_go(seed)


def come_and_go(seed: int) -> None:
    random = Random(seed)
    mesh = settled(random, "a")
    stays = next(iter(mesh.members))
    mesh.slow, mesh.loss = random.choice([0.0, 0.2]), random.choice([0.0, 0.3])
    for _ in range(120):
        others = [one for one in mesh.members if one != stays]
        match random.randrange(12):
            case 0:
                mesh.join(random.choice(mesh.names))
            case 1 if others:
                mesh.unsubscribe(random.choice(others))
            case 2 if others:
                mesh.vanish(random.choice(others))
            case _:
                mesh.publish(random.choice(mesh.names), random.choice(["x/1", "x/2/y"]))
        mesh.pass_time(random.choice([20, 20, 200, 1_000]))
    mesh.pass_time(60_000)
    assert not mesh.lost()
    assert not mesh.twice()
    for host in mesh.hosts.values():
        assert not host.shares.guarded


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_was_acknowledged_is_lost_when_nodes_of_members_crash(seed):
    """Two of four nodes crash or shut down. Only what their members had not acknowledged for sure may come again."""
    crash_two(seed)


def crash_two(seed: int) -> None:
    random = Random(seed)
    mesh = settled(random, *"aabbcd", names="abcd")
    mesh.slow = random.choice([0.0, 0.2])
    crashes = dict(zip(random.sample(range(10, 100), 2), random.sample("abc", 2), strict=True))
    for step in range(120):
        if step in crashes:
            random.choice([mesh.crash, mesh.leave])(crashes[step])
        mesh.publish(random.choice(sorted(mesh.hosts)))
        mesh.pass_time(random.choice([20, 20, 200, 500]))
    mesh.pass_time(90_000)
    assert not mesh.lost()
    assert not mesh.twice()
    for host in mesh.hosts.values():
        assert not host.shares.guarded
        assert not host.shares.assigned


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 100])
def test_so_it_is_over_many_seeds(first):
    for seed in range(first, first + 60):
        come_and_go(seed)
        crash_two(seed)


def test_five_members_on_three_nodes_of_which_two_are_killed():
    mesh = settled(Random(7), *"aabbc")
    for number in range(300):
        if number == 100:
            mesh.crash("a")
        if number == 200:
            mesh.crash("b")
        mesh.publish("c")
        mesh.pass_time(20)
    mesh.pass_time(90_000)
    assert len(mesh.acknowledged) == 300
    assert not mesh.lost()
    assert not mesh.twice()
    repeated = [one for one, count in Counter(one.payload for one in mesh.receipts).items() if count > 1]
    assert len(repeated) < 60, "only what was under way at the two crashes"


# One node


def members(desk: Desk, *names: str, qos: int = 1, **fields: int) -> list[Talker]:
    """Clients of one node that share a subscription."""
    out = [desk.welcome(name, **fields) for name in names]
    for one in out:
        assert one.subscribe(p.Asked("$share/g/a/#", qos)) == (qos,)
        one.got.clear()
    return out


def payloads(talker: Talker) -> list[bytes]:
    return [one.payload for one in talker.got if isinstance(one, p.Publish)]


def acknowledge(talker: Talker) -> None:
    found = [each for each in talker.got if isinstance(each, p.Publish) and each.qos == 1]
    talker.got.clear()
    for one in found:
        talker.send(p.Ack(p.PUBACK, one.id))


def test_clients_of_a_node_take_turns_and_the_group_is_apart_from_other_subscriptions():
    desk = Desk()
    one, two = members(desk, "one", "two")
    other, plain = desk.welcome("other"), desk.welcome("plain")
    other.subscribe("$share/h/a/b")
    plain.subscribe("a/b", "$share/g/a/#")  # also a member: it gets a message once, or twice when it is its turn
    other.got.clear()
    plain.got.clear()
    writer = desk.welcome("writer")
    for number in range(6):
        writer.publish("a/b", b"%d" % number, qos=1, id=number + 1)
    assert len(payloads(one)) == len(payloads(two)) == 2
    assert len(payloads(other)) == 6
    assert len(payloads(plain)) == 8
    desk.pass_time(1_000)
    assert desk.host.shares.assigned, "nobody has acknowledged yet"
    for each in (one, two, other, plain):
        acknowledge(each)
    assert not desk.host.shares.assigned


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_quality_of_service_is_finished_by_its_acknowledgement(qos):
    desk = Desk()
    (one,) = members(desk, "one", qos=qos)
    desk.welcome("writer").publish("a/b", qos=2, id=1)
    (packet,) = [each for each in one.got if isinstance(each, p.Publish)]
    assert packet.qos == qos
    assert bool(desk.host.shares.assigned) == (qos > 0)
    if qos:
        one.send(p.Ack(p.PUBACK if qos == 1 else p.PUBREC, packet.id))
    assert not desk.host.shares.assigned


def test_what_a_member_had_not_acknowledged_goes_to_another_one_when_it_leaves():
    desk = Desk()
    one, two = members(desk, "one", "two", expiry_s=600, receive_max=1)
    writer = desk.welcome("writer")
    for number in range(6):
        writer.publish("a/b", b"%d" % number, qos=1, id=number + 1)
    mine = payloads(one)
    assert len(mine) == 1, "more wait"
    one.drop()
    found: list[bytes] = []
    while payloads(two):
        found += payloads(two)
        acknowledge(two)
    assert sorted(found) == [b"%d" % number for number in range(6)]
    again = desk.welcome("one", clean_start=False, expiry_s=600)
    assert not payloads(again)


def test_a_message_with_qos_2_that_was_sent_stays_with_its_member_and_ends_with_it():
    """[MQTT-4.8.2-4, -5]"""
    desk = Desk()
    one, two = members(desk, "one", "two", qos=2, expiry_s=600)
    writer = desk.welcome("writer")
    for number in (1, 2):
        writer.publish("a/b", b"%d" % number, qos=2, id=number)
    (mine,), (other,) = payloads(one), payloads(two)
    one.drop()
    assert payloads(two) == [other]
    again = desk.welcome("one", clean_start=False, expiry_s=600)
    assert payloads(again) == [mine]
    again.drop()
    desk.connect("one", clean_start=True)
    assert payloads(two) == [other]
    assert [ticket[3] for ticket in desk.host.shares.assigned] == [
        one.ticket[3] for one in desk.host.sessions["two"].flying.values()
    ]


def test_what_comes_while_no_member_is_connected_waits_for_one():
    desk = Desk()
    (one,) = members(desk, "one", expiry_s=600)
    one.drop()
    desk.welcome("writer").publish("a/b", b"later", qos=1, id=1)
    desk.pass_time(5_000)
    again = desk.welcome("one", clean_start=False, expiry_s=600)
    assert payloads(again) == [b"later"]


def test_what_is_under_way_to_the_only_member_stays_with_it_over_a_reconnection():
    desk = Desk()
    (one,) = members(desk, "one", expiry_s=600)
    desk.welcome("writer").publish("a/b", qos=1, id=1)
    one.drop()
    again = desk.welcome("one", clean_start=False, expiry_s=600)
    (packet,) = [each for each in again.got if isinstance(each, p.Publish)]
    assert packet.dup
    acknowledge(again)
    assert not desk.host.shares.assigned


def test_retained_messages_are_not_given_to_new_members():
    """[MQTT 5, 3.3.1.3 and 4.8.2]"""
    desk = Desk()
    desk.welcome("writer").publish("a/b", b"kept", qos=1, id=1, retain=True)
    (one,) = members(desk, "one")
    desk.pass_time(2_000)
    assert not payloads(one)


def test_a_member_that_unsubscribes_still_gets_what_is_under_way_and_nothing_new():
    desk = Desk()
    (one,) = members(desk, "one")
    writer = desk.welcome("writer")
    writer.publish("a/b", b"first", qos=1, id=1)
    one.send(p.Unsubscribe(5, ("$share/g/a/#",)))
    writer.publish("a/b", b"second", qos=1, id=2)
    assert payloads(one) == [b"first"]
    acknowledge(one)
    assert not desk.host.shares.assigned
    assert "$mqtt/share" not in desk.wanted
    assert not desk.host.interests.patterns


@pytest.mark.parametrize(
    "filter_", ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#", "$share/g/$SYS/#"]
)
def test_a_malformed_share_is_refused(filter_):
    """[MQTT-4.8.2-1, -2]"""
    desk = Desk()
    assert desk.welcome().subscribe(filter_) == (reasons.FILTER_INVALID,)
    assert not desk.host.state.shared


def test_no_local_on_a_share_is_a_protocol_error():
    """[MQTT-3.8.3-4]"""
    client = Desk().welcome()
    client.send(p.Subscribe(1, (p.Asked("$share/g/a", 1, no_local=True),)))
    assert client.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


def test_a_node_has_a_bounded_number_of_groups():
    desk = Desk(subscriptions_max=2_000)
    client = desk.welcome()
    codes = client.subscribe(*[f"$share/g{number}/a" for number in range(1_001)])
    assert 500 < codes.count(1) <= 1_000
    assert codes[codes.count(1) :] == (reasons.QUOTA,) * (1_001 - codes.count(1))


def test_what_others_say_about_shares_is_bounded_and_believed_by_nobody_without_members():
    desk = Desk()
    for what in range(16):
        desk.host.delivered("$mqtt/share", "m", wrap(Shared(what, "g/a/#", "m", 1, (1, 2), 1)))
    desk.host.delivered("$mqtt/ask", "m", wrap(Grouped(1, 1, ("g/a/#", "g", "g/$SYS/x", "g/#/x"), (1, 1, 1, 1))))
    assert desk.host.shares.groups.nodes == {"g/a/#": {"m": 1}}
    members(desk, "one")
    for what in range(16):
        desk.host.delivered("$mqtt/share", "m", wrap(Shared(what, "g/a/#", "n", 1, (1, 2), 1)))
        desk.host.delivered("$mqtt/share", "m", wrap(Shared(what, "other", "m", 1, (1, 2), 1)))
    desk.pass_time(60_000)
    desk.host.check()


def test_beyond_what_can_be_guarded_messages_are_counted(monkeypatch):
    monkeypatch.setattr(shares, "GUARDED_MAX", 1)
    desk = Desk()
    desk.welcome("one").subscribe("$share/g/a/b")
    for number in (1, 2):
        message = Envelope("a/b", b"x", 1, False, "c", 1, number, 0, chosen=(("g/a/b", "m", 1),))
        desk.host.delivered("a/b", "m", wrap(message))
    desk.carry_out()
    assert len(desk.host.shares.guarded) == 1
    assert desk.host.counters["shared not guarded"] == 1


# Real nodes


def test_real_nodes_share_and_go_on_when_one_of_them_vanishes():
    """Its member acknowledges nothing: another one gets what it got."""

    async def work() -> None:
        async with doors("a", "b", "c", mqtt={"share_takeover_s": 6.0}) as nodes:
            here, there = await connect(nodes[0], "here"), await connect(nodes[1], "there")
            writer = await connect(nodes[2], "writer")
            for one in (here, there):
                assert await one.subscribe("$share/g/x/+") == (1,)
            await until(lambda: len(nodes[2].mqtt.host.shares.groups.nodes.get("g/x/+", {})) == 2)
            sent = {b"%d" % number for number in range(20)}
            for payload in sorted(sent):
                assert await writer.publish("x/1", payload) == 0
            await here.read()
            await nodes[0].stop(in_order=False)
            found = {(await there.message()).payload}
            while found != sent:
                found.add((await there.message()).payload)
            await until(lambda: "a" not in nodes[2].mqtt.host.shares.groups.told)
            assert await writer.publish("x/1", b"later") == 0
            while (await there.message()).payload != b"later":
                pass
            await until(lambda: not nodes[1].mqtt.host.shares.assigned)
            assert not nodes[1].mqtt.host.shares.guarded

    run(work(), 120.0)


def test_members_of_each_group_take_turns_also_if_there_are_several_groups():
    desk = Desk()
    names = [("one", "a"), ("one", "b"), ("two", "c"), ("two", "d")]
    members = {name: desk.welcome(name) for _, name in names}
    for group, name in names:
        members[name].subscribe(f"$share/{group}/t")
        members[name].got.clear()
    writer = desk.welcome("writer")
    desk.pass_time(2_000)
    for number in range(4):
        writer.publish("t", b"%d" % number)
    desk.pass_time(2_000)
    found = {name: talker.payloads() for name, talker in members.items()}
    assert found == {"a": [b"0", b"2"], "b": [b"1", b"3"], "c": [b"0", b"2"], "d": [b"1", b"3"]}
