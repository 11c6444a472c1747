"""The client of the harness, against a broker that says what each test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from benchmarks.fire.client import Client

from trellis.judge.history import Acknowledged, Away, Back, Confirmed, Connected, Ended, Event, Received
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

Answer = Callable[[int, p.Packet], list[p.Packet] | None]  # connection, packet -> answers; None: hang up
Over = Callable[[list[Event], list[list[p.Packet]]], bool]


async def play(answer: Answer, filters: tuple[str, ...], is_over: Over, *messages: str):
    """Run a client against a broker until `is_over`. Return what it noted, and what it sent on each connection."""
    events: list[Event] = []
    sent: list[list[p.Packet]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing, number = Framing(1 << 20), len(sent)
        sent.append([])
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                framing.feed(data)
                for first, body in framing.packets():
                    packet = decode(p.V311, first, body)
                    sent[number].append(packet)
                    answers = answer(number, packet)
                    if answers is None:
                        writer.close()
                        return
                    writer.write(b"".join(encode(p.V311, one) for one in answers))  # in one piece
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client("c", "s0", server.sockets[0].getsockname()[:2], events.append, filters)
    client.start()
    for message in messages:
        client.publish(message, "s0/t", f"{message} ".encode())
    try:
        async with asyncio.timeout(20):
            while not is_over(events, sent):
                await asyncio.sleep(0.01)
    finally:
        await client.close()
        await asyncio.sleep(0.05)  # the broker sees the end of the connection
        server.close()
        await server.wait_closed()
    return events, sent


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_messages_right_behind_the_connack_are_taken_and_acknowledged():
    waiting = p.Publish(topic="s0/t", payload=b"m7 x", qos=1, id=9, dup=True)

    def answer(connection: int, packet: p.Packet) -> list[p.Packet]:
        return [p.ConnAck(reason=0, session_present=True), waiting] if isinstance(packet, p.Connect) else []

    def is_over(events: list[Event], sent: list[list[p.Packet]]) -> bool:
        return bool(sent) and p.Ack(p.PUBACK, 9) in sent[0]

    events, _ = asyncio.run(play(answer, ("s0/t",), is_over))
    assert [event.message for event in events if isinstance(event, Received)] == ["m7"]


def test_what_was_not_acknowledged_is_repeated_in_order_and_marked():
    def answer(connection: int, packet: p.Packet) -> list[p.Packet] | None:
        match packet:
            case p.Connect():
                return [p.ConnAck(reason=0, session_present=connection > 0)]
            case p.Publish() if connection == 0 and packet.payload != b"m1 ":
                return None if packet.payload == b"m3 " else []
            case p.Publish():
                return [p.Ack(p.PUBACK, packet.id or 0)]
            case _:
                return []

    def is_over(events: list[Event], sent: list[list[p.Packet]]) -> bool:
        return kinds(events).count("Acknowledged") == 3

    events, sent = asyncio.run(play(answer, (), is_over, "m1", "m2", "m3"))
    again = [one for one in sent[1] if isinstance(one, p.Publish)]
    assert [(one.payload, one.dup) for one in again] == [(b"m2 ", True), (b"m3 ", True)]
    assert [event.message for event in events if isinstance(event, Acknowledged)] == ["m1", "m2", "m3"]
    assert [kind for kind in kinds(events) if kind in ("Connected", "Away", "Back")] == ["Connected", "Away", "Back"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_client_subscribes_again_only_if_its_session_was_forgotten(is_kept):
    def answer(connection: int, packet: p.Packet) -> list[p.Packet] | None:
        match packet:
            case p.Connect():
                return [p.ConnAck(reason=0, session_present=is_kept and connection > 0)]
            case p.Subscribe():
                return [p.SubAck(packet.id, (1,)), p.Publish(topic="s0/t", payload=b"m1 ", qos=1, id=1)]
            case p.Ack() if connection == 0:
                return None
            case _:
                return []

    def is_over(events: list[Event], sent: list[list[p.Packet]]) -> bool:
        return "Back" in kinds(events) if is_kept else kinds(events).count("Confirmed") == 2

    events, sent = asyncio.run(play(answer, ("s0/t",), is_over))
    assert sum(isinstance(one, p.Subscribe) for one in sent[1]) == (0 if is_kept else 1)
    sessions = [event.session for event in events if isinstance(event, Connected | Ended | Back | Away)]
    assert sessions == (["c", "c", "c"] if is_kept else ["c", "c", "c", "c#2"])
    assert all(event.promised for event in events if isinstance(event, Confirmed))
