"""Make properties that MQTT 5 clients send with some messages. Nodes carry them unchanged, and readers check that."""

from __future__ import annotations

from trellis.protocols.mqtt.packets import Content
from trellis.simulate.mesh.witness import mark_in, message_in

MARK = "properties"  # mark in the payload of a message with properties
_EXPIRY_S = 10_000_000  # longer than any jump of a node's clock


def content_of(message: str) -> Content:
    """Return the properties of a message. They follow from its name."""
    return Content(
        format=1,
        expiry_s=_EXPIRY_S,
        content_type=f"text/{message}",
        response_topic=f"answers/{message}",
        correlation=message.encode(),
        user=(("message", message), ("message", "again")),
    )


def name_in(payload: bytes, content: Content | None) -> str:
    """Return the name of a message. If its payload or properties were changed, return a name that nobody has published.

    `content` has its properties, or is None if the reader cannot see them.
    """
    name = message_in(payload)
    if content is None or payload.count(b"|") < 2 or mark_in(payload) != MARK:
        return name
    sent = content_of(name)
    is_same = (
        (content.format, content.content_type) == (sent.format, sent.content_type)
        and (content.response_topic, content.correlation) == (sent.response_topic, sent.correlation)
        and content.user[: len(sent.user)] == sent.user  # A sidecar adds one of its own.
        and content.expiry_s is not None
    )
    return name if is_same else f"changed properties of {name}"
