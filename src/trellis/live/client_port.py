"""The client port of a node: native clients, their subscriptions and their publications.  [docs/live.md]

The node is subscribed to each topic that its configuration names or that at least one client has subscribed to. The
port passes the first subscription of a topic to the node (`Broker`), and the end of the last one. The node passes
messages (`deliver`) and outcomes of publications (`tell`) back.

A connection goes through these states: it is accepted (`_accept`), its client greets (`_greet`), is authenticated
(`access.py`) and admitted (`_admit`). From then on it may publish and subscribe. A client that does not read fast
enough is cut off. It may connect again and subscribe again. Nothing is kept for a client that is not connected.

With an access list, publications, subscriptions and deliveries are checked, and quotas limit what a client may send.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from trellis.live.access import Gate, Proven
from trellis.live.clock import monotonic_s
from trellis.live.config import AccessConfig, LimitsConfig
from trellis.live.frames import HELLO_BYTES_MAX
from trellis.live.listen import Listener
from trellis.live.log import Sparing
from trellis.live.machine import machine
from trellis.live.proof import CLIENT_SILENT_S
from trellis.live.rights import is_beyond_quota, judged_topic, may_connect, may_subscribe, named, readers
from trellis.live.stream import Stream
from trellis.live.talk import (
    CLIENT_PROTOCOL,
    CLIENT_VERSION,
    CLIENT_VERSION_OLDEST,
    SESSION_MAX,
    TALK_BYTES_MAX,
    TO_NODE,
    Got,
    Greet,
    Message,
    Missed,
    NotTaken,
    Publish,
    Subscribe,
    Subscribed,
    SubscribeKept,
    Taken,
    TurnedAway,
    Unsubscribe,
    Welcome,
    pack_to_client,
)
from trellis.live.tls import SPEAKS_TLS, Credentials
from trellis.protocols.access.decide import Who
from trellis.protocols.access.quotas import Quotas
from trellis.protocols.delivery.messages import NAMES_MAX
from trellis.protocols.delivery.outcome import Acknowledged, ClientId, Confirmed, Lost, NotAcknowledged, Outcome
from trellis.protocols.effects import Deliver, Topic
from trellis.protocols.mqtt.envelope import MAGIC, NO_INCARNATION, Envelope, wrap
from trellis.protocols.wire import WireError
from trellis.reached import reached

if TYPE_CHECKING:
    from trellis.live.kept import KeptClients

log = logging.getLogger("trellis.live")


_NO_STORE = "this node has no store, so it keeps nothing for clients that are away; give it [durable] path"
_NEEDS_TLS = f"{SPEAKS_TLS}: give --ca, --cert and --key (in Python, tls=); trellis certs client NAME makes them"


class Broker(Protocol):
    """What the client port needs of its node."""

    def refusal(self, topic: Topic) -> str | None:
        """Return why the node cannot take up a further topic, or None if it can."""
        ...

    def subscribe(self, topic: Topic) -> None: ...

    def unsubscribe(self, topic: Topic) -> None: ...

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId) -> None: ...

    def is_confirmed(self, topic: Topic) -> bool:
        """Return whether the node is promised all messages that are published on a topic from now on."""
        ...


@dataclass(eq=False)
class Asked:
    """A client's subscription to one topic."""

    number: int  # Number of the client's request. 0 if it gave none.
    is_told: bool = False  # The client was told that its subscription is confirmed.
    is_kept: bool = False  # A durable subscription: its messages come from `kept.py`.


@dataclass(eq=False)
class ClientState:
    """The state of one client's connection (`Stream.tag`)."""

    name: str = ""  # Empty until it is admitted.
    session: int = 0  # Drawn by the client. Name and session identify it after a reconnection.
    is_drawn: bool = False  # The session was drawn here, because a client of version 1 sends none.
    topics: dict[Topic, Asked] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None  # Cuts a connection that is not admitted in time. Later: the token's end.
    who: Who = field(default_factory=lambda: Who(None, ""))  # for the access rules
    rest: asyncio.TimerHandle | None = None  # Ends a pause in reading, which began when the quota was used up.
    is_checked: bool = False  # It has sent its greeting, so authentication has begun.


class ClientPort:
    """The client port of one node. `StreamOwner` of its clients' streams."""

    def __init__(
        self,
        broker: Broker,
        welcome: Welcome,
        limits: LimitsConfig,
        own: tuple[Topic, ...],
        gate: Gate | None = None,
    ) -> None:
        self.broker, self.welcome, self.limits = broker, welcome, limits
        self.gate = gate or Gate(welcome.node, AccessConfig())
        self._checks: set[asyncio.Task[None]] = set()  # password checks that are under way
        self.own = frozenset(own)  # topics of the configuration: always subscribed
        self.streams: dict[Stream, None] = {}  # all connections, also before their greeting
        self.clients: dict[tuple[str, int], Stream] = {}  # admitted clients, by name and session
        self.wanted: dict[Topic, dict[Stream, None]] = {}  # the subscribed clients of each topic
        self.counters: Counter[str] = Counter()
        self.kept: KeptClients | None = None  # durable subscribers, if the node has a store
        self.port = 0
        self._sparing = Sparing()
        self._listener: Listener | None = None
        self._is_closed = False

    def bind(self, address: str, tls: Credentials | None) -> None:
        """Bind the port. Nothing is accepted before `serve`."""
        limits, refusal = self.limits, pack_to_client(TurnedAway(_NEEDS_TLS))
        self._listener = Listener(
            address,
            self._accept,
            tls,
            self.counters,
            limits.handshake_s,
            limits.handshakes_max,
            refusal,
            is_known=lambda stream: bool(stream.tag.name),
            burst_max=max(limits.handshakes_max, limits.clients_max),  # all clients may reconnect at once
        )
        self.port = self._listener.port

    def serve(self) -> None:
        assert self._listener is not None
        self._listener.serve()

    def close(self, *, in_order: bool = True) -> None:
        """End all connections. `in_order`: frames that were sent go out first."""
        self._is_closed = True
        for stream in list(self.streams):
            if in_order:
                stream.close()
            else:
                stream.cut("closed")

    async def closed(self) -> None:
        """Stop listening, and wait until all connections have ended."""
        if self._listener is not None:
            await self._listener.close()
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        while self.streams:
            await asyncio.sleep(0.01)

    # Called by the node

    def deliver(self, effect: Deliver) -> None:
        """Send a message to all clients that are subscribed to its topic and may read it."""
        streams: Collection[Stream] | None = self.wanted.get(effect.topic)
        if streams and effect.position:
            streams = [stream for stream in streams if not stream.tag.topics[effect.topic].is_kept]
        if streams and self.gate.access is not None:
            topic = judged_topic(effect)
            if topic is None:
                return
            allowed = readers(self.gate.access, streams, topic)
            self.counters["reads denied"] += len(streams) - len(allowed)
            streams = allowed
        if streams:
            frame = pack_to_client(Message(effect.topic, effect.origin, effect.sequence, effect.payload))
            self.counters["delivered"] += len(streams)
            for stream in list(streams):
                stream.send(frame)

    def tell(self, outcome: Outcome) -> None:
        """Tell clients about an acknowledgement, a confirmed subscription or lost messages."""
        match outcome:
            case Acknowledged(client_id=(client, session, number)):
                holders = outcome.holders[:NAMES_MAX]
                self._tell((client, session), Taken(number, outcome.sequence, outcome.copies, holders))
            case NotAcknowledged(client_id=(client, session, number)):
                self._tell((client, session), NotTaken(number, outcome.reason))
            case Confirmed():
                for stream in self.wanted.get(outcome.topic, ()):
                    self._confirm(stream, outcome.topic)
            case Lost():
                missed = Missed(outcome.topic, outcome.origin, outcome.first, outcome.last, outcome.why)
                for stream in list(self.wanted.get(outcome.topic, ())):
                    stream.send(pack_to_client(missed))

    def _tell(self, client: tuple[str, int], message: Taken | NotTaken) -> None:
        """Send the result of a publication. A client that is not connected repeats the publication later."""
        stream = self.clients.get(client)
        if stream is not None:
            stream.send(pack_to_client(message))

    def _confirm(self, stream: Stream, topic: Topic) -> None:
        """Tell a client, once for each request, that its subscription is confirmed."""
        asked: Asked = stream.tag.topics[topic]
        if not asked.is_told:
            asked.is_told = True
            if asked.is_kept and self.kept is not None:
                self.kept.confirm(stream, Subscribed(topic, asked.number))
            else:
                stream.send(pack_to_client(Subscribed(topic, asked.number)))

    # Connections

    def _accept(self) -> Stream | None:
        """Return the stream for a new connection, or None if there are too many."""
        if self._is_closed:
            return None
        if len(self.streams) >= self.limits.clients_max:
            reached("there is no room for a native client")
            return None
        stream = Stream(self, self.limits, HELLO_BYTES_MAX)
        stream.tag = ClientState()
        return stream

    def opened(self, stream: Stream) -> None:
        """Give a new connection `handshake_s` to be admitted."""
        self.streams[stream] = None
        stream.notice_death(CLIENT_SILENT_S)
        loop = asyncio.get_running_loop()
        stream.tag.timer = loop.call_later(self.limits.handshake_s, stream.cut, "handshake")

    def received(self, stream: Stream, body: bytes) -> None:
        """Take in one message of a client. Raise WireError if it is not allowed at this time."""
        message, client = TO_NODE.decode(body), stream.tag
        if not client.name:
            self._greet(stream, message)
            return
        if isinstance(message, Publish) and self.gate.access is not None:
            self._charge(stream, self.gate.access.quotas, len(message.topic) + len(message.payload))
        match message:
            case Publish() if message.topic.startswith("$"):
                why = 'topics that begin with "$" belong to the mesh itself; choose another topic'
                stream.send(pack_to_client(NotTaken(message.number, why)))
            case Publish() if (access := self.gate.access) and not access.may_write(client.who, message.topic):
                self.counters["writes denied"] += 1
                stream.send(pack_to_client(NotTaken(message.number, f"{named(client.who)} may not publish there")))
            case Publish(number, topic, payload):
                if payload.startswith(MAGIC):  # else it would be read as an envelope, maybe a forged one
                    payload = wrap(Envelope(topic, payload, 1, False, "", NO_INCARNATION, 0, 0))
                self.broker.publish(topic, payload, (client.name, client.session, number))
            case Subscribe():
                self._subscribe(stream, message.topic, message.number)
            case SubscribeKept():
                self._subscribe_kept(stream, message)
            case Got():
                if self.kept is not None:
                    self.kept.got(stream, message.position)
            case Unsubscribe():
                if self.kept is not None and (asked := client.topics.get(message.topic)) is not None and asked.is_kept:
                    self.kept.unsubscribe(client.name, message.topic)
                self._leave_topic(stream, message.topic)
            case _:
                raise WireError("a second greeting")

    def _charge(self, stream: Stream, quotas: Quotas, size: int) -> None:
        """Charge a publication to its client's quota. If that is used up, stop reading the client for some time."""
        client: ClientState = stream.tag
        wait_ms = quotas.charge(client.who.user, client.name, size, int(monotonic_s() * 1_000))
        if wait_ms > 0:
            if client.rest is not None:
                client.rest.cancel()
            stream.pause_reading()
            client.rest = asyncio.get_running_loop().call_later(wait_ms / 1_000, stream.resume_reading)

    def ended(self, stream: Stream) -> None:
        """Forget a connection, end its subscriptions, and log why it was cut off."""
        client: ClientState = stream.tag
        if client.rest is not None:
            client.rest.cancel()
        self.streams.pop(stream, None)
        if client.timer is not None:
            client.timer.cancel()
        if stream.why not in ("", "closed"):
            self.counters[f"cut {stream.why}"] += 1
            log.info("%s: cut off client %s: %s", self.welcome.node, client.name or "without a name", stream.why)
            if stream.why == "tls" and self._sparing.may_say("tls"):
                what = "a client speaks TLS, and this node does not: see [tls]"
                log.warning("%s: refused a client: %s", self.welcome.node, what)
        if self.kept is not None:
            self.kept.ended(stream)
        if self.clients.get((client.name, client.session)) is stream:
            del self.clients[client.name, client.session]
        for topic in list(client.topics):
            self._leave_topic(stream, topic)

    def _greet(self, stream: Stream, message: object) -> None:
        """Check a client's greeting, and authenticate the client: at once, or in a thread if that takes long."""
        client: ClientState = stream.tag
        if not isinstance(message, Greet) or client.is_checked:
            raise WireError("no greeting, or more than that before the welcome")
        if message.protocol != CLIENT_PROTOCOL or message.version < CLIENT_VERSION_OLDEST:
            self.counters["cut version"] += 1
            said, mine = f"{message.protocol} {message.version}", f"{CLIENT_PROTOCOL} {CLIENT_VERSION}"
            stream.send(pack_to_client(TurnedAway(f"{said} is too old for this node, which speaks {mine}; upgrade it")))
            stream.close()
            return
        if message.client.startswith("$"):
            self.counters["cut name"] += 1
            why = 'begins with "$", which is reserved; choose another name'
            stream.send(pack_to_client(TurnedAway(f'the client name "{message.client}" {why}')))
            stream.close()
            return
        client.is_checked = True
        prove = partial(self.gate.prove, message.user, message.password, stream.certificate(), is_mqtt=False)
        if not self.gate.is_slow:
            self._admit(stream, message, prove())
            return
        task = asyncio.get_running_loop().create_task(self._check_later(stream, message, prove))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check_later(self, stream: Stream, message: Greet, prove: Callable[[], Proven | None]) -> None:
        """Authenticate a client in a thread, because a password hash takes tens of milliseconds."""
        proven = await asyncio.get_running_loop().run_in_executor(None, prove)
        if not stream.is_ended:
            self._admit(stream, message, proven)

    def _turn_away(self, stream: Stream, counted: str, why: str) -> None:
        """Tell a client why it is disconnected, and disconnect it. `counted`: the counter for this reason."""
        self.counters[f"cut {counted}"] += 1
        stream.send(pack_to_client(TurnedAway(why)))
        stream.close()

    def _admit(self, stream: Stream, message: Greet, proven: Proven | None) -> None:
        """Welcome a client that was authenticated. Earlier streams of the same client are cut."""
        client: ClientState = stream.tag
        if proven is None:
            self._turn_away(stream, "user", "the user, the password or the token is wrong; give the right ones")
            return
        access, is_again = self.gate.access, (message.client, message.session) in self.clients
        if access is not None and not is_again and not may_connect(access, proven.user, self.clients.values()):
            self._turn_away(stream, "quota", "this user has too many connections; close one, or ask for more")
            return
        client.name, client.session = message.client, message.session
        client.who = Who(proven.user, client.name)
        if not client.session:
            # A client of version 1 numbers its publications from 1 after a restart, and we cannot tell a restart from a
            # reconnection. So each stream is a new session. Repeated publications may come twice, and none is lost.
            client.session, client.is_drawn = 1 + machine().secret_below(SESSION_MAX), True
        for key, old in self._streams_of(client):
            del self.clients[key]
            old.cut("closed")
        self.clients[client.name, client.session] = stream
        if client.timer is not None:
            client.timer.cancel()
        if proven.left_s is not None:
            loop, why = asyncio.get_running_loop(), "the token has expired; connect with a new one"
            client.timer = loop.call_later(proven.left_s, self._turn_away, stream, "token", why)
        stream.splitter.body_bytes_max = TALK_BYTES_MAX
        stream.send(pack_to_client(self.welcome))

    def _streams_of(self, client: ClientState) -> list[tuple[tuple[str, int], Stream]]:
        """Return earlier streams of a client that has connected again before their end was noticed."""
        if client.is_drawn:
            return [entry for entry in self.clients.items() if entry[0][0] == client.name and entry[1].tag.is_drawn]
        old = self.clients.get((client.name, client.session))
        return [((client.name, client.session), old)] if old is not None else []

    def _subscribe_kept(self, stream: Stream, asked: SubscribeKept) -> None:
        """Begin or go on with a durable subscription."""
        if self.kept is None:
            self._turn_away(stream, "store", _NO_STORE)
        else:
            self._subscribe(stream, asked.topic, asked.number, after=asked.after)

    def _subscribe(self, stream: Stream, topic: Topic, number: int, after: int | None = None) -> None:
        """Subscribe a client to a topic. A client that may not subscribe is turned away.

        `after`: the last position that a durable subscriber has got. None: the subscription is not durable.
        """
        client: ClientState = stream.tag
        if topic in client.topics:
            if client.topics[topic].number != number:  # a new request for the same topic: answer it
                client.topics[topic] = Asked(number, is_kept=client.topics[topic].is_kept)
                if self.broker.is_confirmed(topic):
                    self._confirm(stream, topic)
            return
        if len(client.topics) >= self.limits.subscriptions_max:
            stream.send(pack_to_client(TurnedAway(f"a client has at most {self.limits.subscriptions_max} topics")))
            self.counters["cut subscriptions"] += 1
            stream.close()
            return
        access = self.gate.access
        if access is not None and is_beyond_quota(access, client.who, stream, self.clients.values()):
            self._turn_away(stream, "quota", "this client or its user has too many topics; unsubscribe from some")
            return
        if access is not None and not may_subscribe(access, client.who, topic):
            self.counters["subscriptions denied"] += 1
            self._turn_away(stream, "topics", f"{named(client.who)} may not read this topic: {topic}")
            return
        refusal = self.broker.refusal(topic) if topic not in self.wanted and topic not in self.own else None
        if topic.startswith("$"):
            refusal = f'the topic "{topic}" begins with "$", and such topics belong to the mesh itself'
        if refusal is not None:  # other nodes could not be told of the topic, so it must not be confirmed
            stream.send(pack_to_client(TurnedAway(f"{refusal}; subscribe at another node, or to fewer topics")))
            self.counters["cut topics"] += 1
            stream.close()
            return
        client.topics[topic] = Asked(number, is_kept=after is not None)
        if self.kept is not None and after is not None:
            self.kept.subscribe(stream, topic, after)
        streams = self.wanted.setdefault(topic, {})
        streams[stream] = None
        if len(streams) == 1 and topic not in self.own:
            self.broker.subscribe(topic)
        if self.broker.is_confirmed(topic):
            self._confirm(stream, topic)

    def _leave_topic(self, stream: Stream, topic: Topic) -> None:
        """End a client's subscription, and that of the node if it was the last one."""
        client: ClientState = stream.tag
        if client.topics.pop(topic, None) is None:
            return
        streams = self.wanted[topic]
        del streams[stream]
        if not streams:
            del self.wanted[topic]
            if topic not in self.own and not self._is_closed:
                self.broker.unsubscribe(topic)
