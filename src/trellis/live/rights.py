"""Apply the access list to clients of the client port: what they may read, and how much.  [docs/access.md]

The client port (`client_port.py`) calls these functions. In all of them `stream.tag` is the client behind a stream,
with its user (`who`) and the topics that it subscribes to (`topics`).
"""

from __future__ import annotations

from collections.abc import Collection

from trellis.live.log import one_line
from trellis.live.stream import Stream
from trellis.protocols.access.decide import STEPS_MAX, Access, Who
from trellis.protocols.access.rules import LIMIT_MAX
from trellis.protocols.effects import Deliver, Topic
from trellis.protocols.mqtt.envelope import MAGIC, Envelope, unwrap
from trellis.protocols.wire import WireError


def named(who: Who) -> str:
    """Return a description of a client, for a refusal that is sent to it."""
    return "a client that has proven no user" if who.user is None else f"user {one_line(who.user[:64])}"


def judged_topic(effect: Deliver) -> str | None:
    """Return the topic that decides which clients may read a message. None: no client may.

    For a message of an MQTT client it is the whole MQTT topic. None is returned for messages between MQTT listeners.
    They contain retained messages of many topics, and no client needs them.
    """
    if not effect.payload.startswith(MAGIC):
        return effect.topic
    try:
        said = unwrap(effect.payload)
    except WireError:
        return None
    return said.topic if isinstance(said, Envelope) else None


def readers(access: Access, streams: Collection[Stream], topic: str) -> list[Stream]:
    """Return those of the clients that may read a topic."""
    return [stream for stream in streams if access.may_read(stream.tag.who, topic)]


def may_subscribe(access: Access, who: Who, topic: Topic) -> bool:
    """Return whether a client may read a topic, or at least one MQTT topic that is carried on it."""
    if access.may_read(who, topic):
        return True
    access.steps = STEPS_MAX
    return access.may_subscribe(who, f"{topic}/#")


def may_connect(access: Access, user: str | None, clients: Collection[Stream]) -> bool:
    """Return whether the quota of a user allows it one more connection. `clients` are all that are connected."""
    limit = access.quotas.limits(user).get("user connections", LIMIT_MAX)
    return sum(client.tag.who.user == user for client in clients) < limit


def is_beyond_quota(access: Access, who: Who, stream: Stream, clients: Collection[Stream]) -> bool:
    """Return whether the quota of a client, or that of its user, forbids it to subscribe to one more topic."""
    limits = access.quotas.limits(who.user)
    if len(stream.tag.topics) >= limits.get("client subscriptions", LIMIT_MAX):
        return True
    most = limits.get("user subscriptions")
    return (
        most is not None
        and sum(len(client.tag.topics) for client in clients if client.tag.who.user == who.user) >= most
    )
