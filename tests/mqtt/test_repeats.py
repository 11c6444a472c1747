"""The sidecar's publications that the mesh refuses for want of room are repeated in the order of the broker."""

from __future__ import annotations

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import Envelope, unwrap


def sidecar_at(desk: Desk) -> Talker:
    talker = desk.talkers[99] = Talker(desk, 99, p.V5)
    talker.said_version = p.V5
    desk.host.attach(99, "$sidecar/n", 10)
    desk.emitted.clear()
    return talker


def taken_in_order(desk: Desk, topic: str, refused: list[int]) -> list[bytes]:
    """The payloads on `topic` that the mesh took. `refused`: the places in `desk.emitted` of those that it did not."""
    taken = [one for place, one in enumerate(desk.emitted) if place not in refused and one.topic == topic]
    found = [unwrap(one.payload) for one in taken]
    return [one.payload for one in found if isinstance(one, Envelope)]


def test_a_refused_publication_of_a_broker_is_not_overtaken_by_later_ones_on_its_topic():
    desk = Desk()
    sidecar = sidecar_at(desk)
    refused: list[int] = []

    def refuses(topic: str, is_full: bool) -> bool:
        if is_full and topic == "a/b":
            refused.append(len(desk.emitted) - 1)
        return is_full and topic == "a/b"

    desk.refuses = lambda topic: refuses(topic, True)
    sidecar.publish("a/b", b"1", qos=1, id=1)
    desk.refuses = lambda topic: refuses(topic, False)  # there is room again
    sidecar.publish("a/b", b"2", qos=1, id=2)
    sidecar.publish("c/d", b"3", qos=1, id=3)
    assert taken_in_order(desk, "a/b", refused) == []
    assert taken_in_order(desk, "c/d", refused) == [b"3"]  # others are not held up
    desk.pass_time(500)
    sidecar.publish("a/b", b"4", qos=1, id=4)
    desk.pass_time(1_000)
    assert taken_in_order(desk, "a/b", refused) == [b"1", b"2", b"4"]
    assert [one.id for one in sidecar.got if isinstance(one, p.Ack)] == [1, 2, 3, 4]


def test_publications_that_are_given_again_wait_anew_behind_one_that_is_refused_again():
    """The mesh has room for a small message, and not for the large one before it."""
    desk = Desk()
    sidecar = sidecar_at(desk)
    refused: list[int] = []
    room = [0]

    def refuses(topic: str) -> bool:
        found = unwrap(desk.emitted[-1].payload)
        is_refused = topic == "a/b" and isinstance(found, Envelope) and len(found.payload) > room[0]
        if is_refused:
            refused.append(len(desk.emitted) - 1)
        return is_refused

    desk.refuses = refuses
    for number, size in enumerate((9, 2, 5), 1):
        sidecar.publish("a/b", b"x" * size, qos=1, id=number)
    for room[0] in (2, 5, 9):
        desk.pass_time(1_200)
    assert [len(payload) for payload in taken_in_order(desk, "a/b", refused)] == [9, 2, 5]
    assert [one.id for one in sidecar.got if isinstance(one, p.Ack)] == [1, 2, 3]
