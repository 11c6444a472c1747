"""Whatever packets clients send, in whatever order: the host keeps its invariants, and nothing breaks."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.desk import Desk
from mqtt.packets_drawn import packets
from trellis.protocols.mqtt import packets as p

TOPICS = ["a", "a/b", "a/b/c", "x/1", "$SYS/x", "/", ""]
FILTERS = ["#", "a/#", "+/b", "a/b", "x/+/y", "$share/g/a", "a#", "/", "+"]


def draw(random: Random, version: int) -> p.Packet:
    qos, number = random.randrange(3), random.randrange(1, 6)
    match random.randrange(10):
        case 0 | 1 | 2 | 3:
            return p.Publish(
                topic=random.choice(TOPICS),
                payload=random.choice([b"", b"x"]),
                qos=qos,
                id=number if qos else None,
                dup=bool(qos) and random.random() < 0.3,
                retain=random.random() < 0.3,
                alias=random.choice([None, None, 1, 40]) if version == p.V5 else None,
            )
        case 4 | 5:
            return p.Subscribe(number, (p.Asked(random.choice(FILTERS), qos), p.Asked(random.choice(FILTERS), 1)))
        case 6:
            return p.Unsubscribe(number, (random.choice(FILTERS),))
        case 7:
            return p.Ack(random.choice([p.PUBACK, p.PUBACK, p.PUBREL, p.PUBREC, p.PUBCOMP]), number)
        case 8:
            return random.choice([p.PingReq(), p.PingReq(), p.Disconnect(random.choice([0, 4]))])
        case _:
            return p.Connect(version=version, client="c1", clean_start=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_clients_that_come_go_and_talk_nonsense_break_nothing(seed):
    random = Random(seed)
    limits = {"inflight_max": 3, "queue_max": 4, "subscriptions_max": 4, "sessions_max": 4, "retained_max": 2}
    desk = Desk(**limits, session_expiry_s_max=60, suback_s=3, ask_s=5)
    for _ in range(120):
        desk.acknowledges, desk.confirms = random.random() < 0.6, random.random() < 0.7
        present = [one for one in desk.talkers.values() if one.closed is None]
        if not present or random.random() < 0.15:
            version = random.choice([p.V311, p.V5])
            will = p.Will(topic="a/b", payload=b"w", qos=1, retain=True, delay_s=random.choice([0, 2]) * (version == 5))
            of_5 = {"expiry_s": random.choice([0, 3, 60]), "receive_max": random.choice([1, 9])}
            desk.connect(
                f"c{random.randrange(5)}",
                version,
                clean_start=random.random() < 0.5,
                will=random.choice([None, will]),
                **(of_5 if version == p.V5 else {}),
            )
            continue
        talker = random.choice(present)
        match random.randrange(8):
            case 0:
                talker.drop()
            case 1:
                desk.pass_time(random.choice([200, 2_000, 20_000]))
            case 2:
                desk.acknowledge()
            case 3:
                for number in desk.unanswered[:2]:
                    desk.host.not_acknowledged(number, "no")
                desk.unanswered = desk.unanswered[2:]
                desk.carry_out()
            case 4:
                for topic in sorted(desk.wanted):
                    desk.host.confirmed(topic)
                desk.carry_out()
            case _:
                talker.send(draw(random, talker.version))
    for talker in list(desk.talkers.values()):
        if talker.closed is None:
            talker.drop()
    desk.acknowledge()
    desk.pass_time(100_000)
    desk.acknowledge()
    host = desk.host
    assert not host.sessions
    assert not host.tree.count
    assert not host.by_connection
    assert not host.connections.wills
    assert not host.publications.waiting
    assert not host.interests.patterns
    kept = {"$mqtt/ask", *host.recaller.prefixes}
    assert set(host.interests.wanted) == kept, "a topic is wanted for nobody"


@settings(max_examples=60, deadline=None)
@given(st.lists(packets(p.V5), max_size=6), st.lists(packets(p.V311), max_size=6))
def test_any_packet_in_any_place_is_taken_or_refused(new, old):
    desk = Desk()
    for version, several in ((p.V5, new), (p.V311, old)):
        talker = desk.welcome(f"c{version}", version)
        for packet in several:
            if talker.closed is None:
                talker.send(packet)
