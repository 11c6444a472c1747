"""Clients notice what nodes change in a message, and publishers send again what has no outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from trellis.judge.history import Publishing, Received
from trellis.live.client_port import ClientPort
from trellis.protocols.mqtt import packets as p
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.mqttists import Session
from trellis.simulate.mesh.properties import MARK, content_of, name_in
from trellis.simulate.mesh.trial import run_trial
from trellis.simulate.mesh.witness import Witness, message_in, payload

PLAN = MeshPlan(nodes_max=3, clients=6, form_s=17.0, span_s=8.0, quiet_s=35.0, crash_gap_s=5.0, sites=0.0)


@pytest.mark.parametrize("size", [0, 16, 200, 3_000])
def test_a_payload_carries_its_message_and_shows_every_change(size: int) -> None:
    sent = payload("c2-0-23", size)
    assert len(sent) >= size
    assert message_in(sent) == "c2-0-23"
    changed = [sent[:-1], sent + b".", sent[:-5] + b"00000", b"", b"|", sent[:8], sent.replace(b"c2-0", b"c2-1")]
    changed += [sent[:place] + bytes([sent[place] ^ 1]) + sent[place + 1 :] for place in range(len(sent))]
    for one in changed:
        assert message_in(one) != "c2-0-23"
        assert message_in(one).startswith("a broken payload of ")


def test_properties_of_a_message_that_are_lost_or_changed_show() -> None:
    sent, content = payload("c3-1-4", 50, mark=MARK), content_of("c3-1-4")
    assert name_in(sent, content) == name_in(sent, None) == "c3-1-4"
    marked = replace(content, user=(*content.user, ("trellis-id", "n0/1/2")), expiry_s=9)
    assert name_in(sent, marked) == "c3-1-4"
    lost: list[dict[str, Any]] = [
        {"user": ()},
        {"content_type": None},
        {"expiry_s": None},
        {"format": 0},
        {"correlation": b"c3"},
        {"response_topic": "answers"},
        {"user": content.user[::-1]},
    ]
    for one in lost:
        assert name_in(sent, replace(content, **one)) == "changed properties of c3-1-4"
    assert name_in(payload("c3-1-4", 50), p.PLAIN) == "c3-1-4"


def test_an_empty_payload_is_a_removal_only_where_somebody_removed() -> None:
    witness = Witness(lambda: 1.0)
    session = Session("c1", p.V5, witness, is_kept=False)
    session.id = "c1#1"
    removal = p.Publish(topic="t", payload=b"", qos=0)
    session._publish(removal)
    witness.add(Publishing(1.0, "c2#1", "c2-1", "t", retain=True, removes=True))
    for packet in (removal, replace(removal, topic="u"), replace(removal, retain=True)):
        session._publish(packet)
    received = [one for one in witness.history().events if isinstance(one, Received)]
    assert [(one.topic, one.retained) for one in received] == [("t", False), ("u", False), ("t", True)]
    assert {one.message for one in received} == {"a broken payload of "}  # nobody published that


def test_a_node_that_cuts_payloads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is put in: the last byte of each message is missing on its way to native clients."""
    deliver: Callable[[ClientPort, Any], None] = ClientPort.deliver
    monkeypatch.setattr(ClientPort, "deliver", lambda self, one: deliver(self, replace(one, payload=one.payload[:-1])))
    assert any(text.startswith("unknown: ") for text in run_trial(3, PLAN).failures)


def test_publishers_that_come_back_send_again_what_has_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such messages are acknowledged then, and are owed as others are."""
    again: list[p.Publish] = []
    deliver = Session._deliver

    async def watched(self: Session, connection: Any, session: str, packet: p.Publish, number: int) -> None:
        await deliver(self, connection, session, packet, number)
        if packet.dup:
            again.append(packet)

    monkeypatch.setattr(Session, "_deliver", watched)
    for seed in (22, 27):  # few publishers lose a connection while something has no outcome
        assert run_trial(seed, PLAN).failures == [], seed
    assert again
