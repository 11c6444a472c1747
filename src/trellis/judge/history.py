"""The records of a history, and the file that holds them: one JSON object per line, in the order of observation.

All times are seconds of one clock, the observer's. A *session* is one client from its connection to its end. A client
that connects again with a new session gets a new session name here, also under the same client name. A session that
survives its connection (MQTT with a session expiry, or a native client that dials again) is `Away` and then `Back`.

A *message* is a string that is unique in the whole history. Clients put it into the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.files import written_whole


class Record(msgspec.Struct, frozen=True, tag_field="event", tag=lambda name: name.lower()):
    t: float  # seconds


class Connected(Record, frozen=True):
    """A client is connected to `node`, and its session begins.

    `broker` names the broker that it is connected to, where `node` is the sidecar of one.
    `speaks` tells which topics it shares with others: `native` (`trellis.connect`), or `mqtt`. Without it, every topic
    is taken for one of MQTT, and the promises that differ between the two are not judged.
    `host` is the client's machine, by the name that `Disturbed` has for it. Without it, every cut may be on its path.
    """

    session: str
    client: str
    node: str
    broker: str = ""
    speaks: Literal["native", "mqtt", ""] = ""
    host: str = ""


class Subscribing(Record, frozen=True):
    """The client has asked for `filter`: a topic, or an MQTT filter with wildcards."""

    session: str
    filter: str


class Confirmed(Record, frozen=True):
    """The node has confirmed the subscription (SUBACK, or the end of `client.subscribe`).

    `promised` is False where the node says that it could not make sure, as an early SUBACK does: nothing is owed then.
    """

    session: str
    filter: str
    promised: bool = True


class Unsubscribing(Record, frozen=True):
    """The client begins to give up `filter`."""

    session: str
    filter: str


class Unsubscribed(Record, frozen=True):
    """The node has confirmed that (UNSUBACK). Where it confirms nothing, there is no such event."""

    session: str
    filter: str


class Away(Record, frozen=True):
    """The connection is lost, or closed, and the session goes on.

    `keeps` tells whether the node keeps messages for the session meanwhile, as MQTT's persistent sessions do.
    """

    session: str
    keeps: bool = False


class Back(Record, frozen=True):
    """The session is connected again, to `node`."""

    session: str
    node: str


class Ended(Record, frozen=True):
    """The client begins to end, or the session is lost with its connection.

    `keeps` tells whether the node may keep the session for a client that does not come back.
    """

    session: str
    keeps: bool = False


class Publishing(Record, frozen=True):
    """The client begins to publish `message`. With `qos` 0 no acknowledgement follows.

    `removes`: its payload is empty and it has `retain`, so the topic has no retained message any more. An empty payload
    carries no name, so nobody can tell which one came: no `Received` names this message, and it is owed to nobody.
    """

    session: str
    message: str
    topic: str
    qos: int = 1
    retain: bool = False
    removes: bool = False


class Acknowledged(Record, frozen=True):
    """The client has heard that the message is taken. `holders` are the nodes that hold it, if the client is told."""

    session: str
    message: str
    holders: tuple[str, ...] = ()


class Refused(Record, frozen=True):
    """The client has heard that the message was not taken, or gave up waiting."""

    session: str
    message: str
    reason: str = ""


class Received(Record, frozen=True):
    """The application got `message` on `topic`. `retained`: the node kept it from before the subscription."""

    session: str
    message: str
    topic: str
    retained: bool = False


class Missed(Record, frozen=True):
    """The node has told the application that messages on `topic` will never come."""

    session: str
    topic: str


class Overflowed(Record, frozen=True):
    """The node says that it has dropped a number of `messages` because a limit was reached, shortly before `t`.

    `where`: from its replay window, or from the messages that wait for MQTT clients or for its broker.
    """

    node: str
    messages: int
    where: Literal["window", "clients"]


class Unreachable(Record, frozen=True):
    """A client has tried to connect to `node` since `since`, and has given up or was turned away."""

    client: str
    node: str
    since: float
    reason: str = ""


class Down(Record, frozen=True):
    """A node has crashed, or begins to leave in order (`leave`): `Left` tells when it has left.

    `silent`: other nodes cannot notice that, because the whole machine is gone or cut off, and not the process alone.
    """

    node: str
    leave: bool = False
    silent: bool = False


class Left(Record, frozen=True):
    """The process of a node that was told to leave has ended."""

    node: str


class Up(Record, frozen=True):
    """A node has started."""

    node: str


class Disturbed(Record, frozen=True):
    """A fault that is neither `Down` nor `Up`: a cut, a pause, loss. It lasts until `until`.

    A fault of the network is on the paths between `nodes` and `peers`. A cut without `peers` separates `nodes` from all
    others. Every other fault is one of the hosts `nodes`. A fault without `nodes` may be anywhere.
    The kinds `stranger` and `replay` are peers that send false messages.
    """

    until: float
    kind: str
    nodes: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()


class Settled(Record, frozen=True):
    """The driver has ended every fault and waited long enough: every message that is owed has arrived by now."""


Event = (
    Connected
    | Subscribing
    | Confirmed
    | Unsubscribing
    | Unsubscribed
    | Away
    | Back
    | Ended
    | Publishing
    | Acknowledged
    | Refused
    | Received
    | Missed
    | Overflowed
    | Unreachable
    | Down
    | Left
    | Up
    | Disturbed
    | Settled
)

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


class History:
    """A list of events that drivers append to while a run goes on."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def lines(self) -> Iterator[bytes]:
        for event in self.events:
            yield _ENCODER.encode(event)

    def to_bytes(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines())


def write_history(history: History, path: str | Path) -> None:
    """Write one JSON object per line. The file is written whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_bytes(history.to_bytes())


def read_history(path: str | Path) -> History:
    """Read what `write_history` wrote. A line that is no event raises an `InputError` with its number."""
    history = History()
    last = float("-inf")
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    event = _DECODER.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise InputError(f"{path}:{number}", f"this is no event ({error})", "see docs/judge.md") from error
                if not event.t >= last:
                    raise InputError(f"{path}:{number}", f"time goes back to {event.t:g} s", "sort the events by time")
                last = event.t
                history.add(event)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a history file") from error
    return history
