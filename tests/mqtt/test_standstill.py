"""A node that stood still gets the messages of a minute at once. Its clients get all of them, in order."""

from __future__ import annotations

from mqtt.desk import WALL_MS, Desk, Talker
from mqtt.test_order import LIFE, TOPIC, WithOther, copy, message
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import Who, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, WITHIN
from trellis.protocols.mqtt.session import BURST, PROMPT_MS

COUNT = 2_000  # more than are under way to a client and wait for it, as a rule


def deliver(desk: Desk, first: int, last: int) -> None:
    """Give the node these messages of another node within one turn, so that no client can acknowledge any."""
    for number in range(first, last + 1):
        one = message(number, before=number - 1, is_copied=False)
        desk.host.delivered(TOPIC, "x", wrap(one))
    desk.carry_out()


def read(client: Talker) -> list[int]:
    """The client acknowledges whatever comes. Return the numbers of the messages."""
    found: list[int] = []
    while client.got:
        packet = client.got.popleft()
        if isinstance(packet, p.Publish):
            found.append(int(packet.payload))
            client.send(p.Ack(p.PUBACK, packet.id))
    return found


def is_whole(numbers: list[int]) -> bool:
    return numbers == list(range(1, COUNT + 1))


def test_clients_get_all_messages_that_come_to_their_node_at_once():
    desk = Desk()
    clients = [desk.welcome("plain"), desk.welcome("wildcard")]
    clients[0].subscribe(TOPIC)
    clients[1].subscribe("m/#")
    deliver(desk, 1, COUNT)
    assert not desk.host.counters["dropped"]
    for one in clients:
        assert is_whole(read(one))


def test_a_client_keeps_up_though_its_node_stood_still_before_it_read_an_acknowledgement():
    desk = Desk()
    client = desk.welcome()
    client.subscribe(TOPIC)
    deliver(desk, 1, 10)
    desk.now_ms += 70_000
    desk.host.at(desk.now_ms, WALL_MS + desk.now_ms)
    deliver(desk, 11, COUNT)
    assert not desk.host.counters["dropped"]
    assert is_whole(read(client))


def test_less_waits_for_a_client_that_acknowledges_nothing():
    desk = Desk(queue_max=3, inflight_max=2)
    client = desk.welcome()
    client.subscribe(TOPIC)
    deliver(desk, 1, 2)
    desk.pass_time(PROMPT_MS)
    deliver(desk, 3, 10)
    assert desk.host.counters["dropped"] == 5
    assert read(client) == [1, 2, 3, 4, 5]


def test_what_waits_for_a_client_that_keeps_up_is_bounded_too():
    desk = Desk(queue_max=3, inflight_max=2)
    client = desk.welcome()
    client.subscribe(TOPIC)
    deliver(desk, 1, 3 * BURST + 2 + 7)
    assert desk.host.counters["dropped"] == 7
    assert len(read(client)) == 3 * BURST + 2


def test_copies_of_a_publisher_that_learned_the_pattern_anew_wait_for_what_came_before():
    """The publisher had forgotten the pattern of a node that stood still. So its new messages are copies again."""
    desk = WithOther()
    desk.says(QUESTIONS, Who(LIFE, True))
    desk.subscribe("m/#", last=0)
    desk.says(TOPIC, message(1, is_copied=False))
    desk.now_ms += 100_000
    desk.host.at(desk.now_ms, WALL_MS + desk.now_ms)
    desk.says(f"{WITHIN}m", copy(message(5, before=4)), copy(message(6, previous=5)))
    desk.pass_time(5_000)
    for number in (2, 3, 4):
        desk.says(TOPIC, message(number, before=number - 1, is_copied=False))
    desk.says(TOPIC, message(5, before=4), message(6, previous=5))
    assert desk.got() == [1, 2, 3, 4, 5, 6]
    assert not desk.host.directory.counters["late"]
