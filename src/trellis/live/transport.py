"""Peers by name over TCP: at most one stream to each, dialled when there is something to say.

Two nodes may dial each other at once. Both ends keep the stream that the smaller name has dialled; a second one of the
same dialler, or of a later life, replaces the first. After a failed dial a peer is left alone for a while (doubled each
time); what is sent to it meanwhile is dropped, as a network may: whoever sent it says it again.

A seed is spoken to by its address (a `Seed`) until its hello has told its name. A name is never taken for an address:
what the network says about names cannot choose which code a dial goes through.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from trellis.live.addresses import AddressBook
from trellis.live.config import LimitsConfig
from trellis.live.frames import (
    ADDRESSES_MAX,
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    MESSAGE,
    PIECES,
    PIECES_SINCE,
    PINGS_SINCE,
    PROTOCOL,
    VERSION,
    VERSION_OLDEST,
    Address,
    Addresses,
    Bye,
    Hello,
    Ping,
    Pong,
    Refused,
    kind_of,
    pack_control,
    pack_message,
    read_control,
)
from trellis.live.listen import Listener
from trellis.live.log import Sparing
from trellis.live.proof import ROUND_S, Proof
from trellis.live.reach import reach
from trellis.live.reasons import why_no_hello, why_not
from trellis.live.stream import Outbox, Stream
from trellis.live.tls import SPEAKS_TLS, Credentials, why_not_node
from trellis.protocols.effects import Contact, NodeId, Seed
from trellis.protocols.wire import WireError

log = logging.getLogger("trellis.live")

_REASON_LETTERS = 512  # of a refusal's text; names in it are the peer's
DIALLED_BYTES_MAX = 2 << 20  # that wait for one stream to come up
REFUSALS = frozenset(("version", "cluster", "overlay", "self", "certificate", "name", "old", "second", "taken", "tls"))
_PING, _PONG = pack_control(Ping()), pack_control(Pong())
_LOOKS_MAX = 16  # nodes that are dialled at a time to see whether anybody is left
_NAME_REFUSALS_MAX = 256
_LOST_S = 0.3  # an attempt to connect that has lasted so long has lost its first packet, or goes very far


@dataclass(eq=False)
class Ends:
    """What we know of one stream (`Stream.tag`)."""

    dialled: Contact = ""  # the name or seed that we dialled; empty: accepted
    peer: NodeId = ""  # empty until its hello was taken
    incarnation: int = 0
    version: int = 0  # of the protocol: the newest that both ends speak
    told: int = 0  # the version of our address book that the peer has
    used: float = 0.0
    said_bye: bool = False
    proof: Proof = field(default_factory=lambda: Proof(0.0))
    why: str = ""  # why one end refused the other; empty: none did
    timer: asyncio.TimerHandle | None = None  # the handshake must be over by then


@dataclass(eq=False)
class Dial:
    """Somebody who is not connected and to whom there is something to say."""

    outbox: Outbox = field(default_factory=lambda: Outbox(DIALLED_BYTES_MAX))
    task: asyncio.Task[None] | None = None
    begun: float = 0.0  # when the present attempt began
    since: float = 0.0  # when the first of the attempts that failed began; 0.0: none has failed
    pause_s: float = 0.0
    not_before: float = 0.0


class Transport:
    def __init__(
        self,
        me: Address,
        cluster: str,
        overlay: str,
        limits: LimitsConfig,
        tls: Credentials | None,
        *,
        on_message: Callable[[NodeId, bytes], None],
        on_peer_down: Callable[[NodeId], None],
        on_peer_ended: Callable[[NodeId, bool], None],
        is_linked: Callable[[NodeId], bool],
        on_pieces: Callable[[NodeId, bytes], None] | None = None,
    ) -> None:
        """`me` may have port 0 until `bind`. `on_message` and `on_pieces` may raise WireError: the stream is cut."""
        self.me, self.cluster, self.overlay, self.limits, self.tls = me, cluster, overlay, limits, tls
        self.on_message, self.on_peer_down, self.is_linked = on_message, on_peer_down, is_linked
        self.on_peer_ended = on_peer_ended  # with whether all nodes that we have heard of have ended
        self.on_pieces = on_pieces or on_message
        self.book = AddressBook(me.node)
        self.peers: dict[NodeId, Stream] = {}
        self.dials: dict[Contact, Dial] = {}
        self.names: dict[Seed, NodeId] = {}  # the name that answered at each seed
        self.failures: dict[Seed, str] = {}  # why the last dial to a seed did not lead to a peer
        self.name_refusals: dict[Contact, float] = {}  # who refused our name in its last word to us -> when
        self.why_down = ""  # of the peer that `on_peer_down` is called with
        self.counters: Counter[str] = Counter()
        self._sparing = Sparing()
        self.speaks = (VERSION_OLDEST, VERSION)
        self.port = 0
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()  # looked at once in a while: good enough for idle streams
        self._greeting: dict[Stream, None] = {}  # streams without a hello
        self._ended: dict[NodeId, int] = {}  # nodes at whose address nothing listens any more -> their incarnations
        self._dialling = 0  # dials whose connection is not there yet
        self._random = Random()
        self._cancelled: list[asyncio.Task[None]] = []  # dials that were under way when we closed
        self._listener: Listener | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._prover: asyncio.TimerHandle | None = None
        self._is_closed = False

    def bind(self, address: str) -> None:
        """Nothing is accepted before `serve`."""
        limits, refusal = self.limits, pack_control(Refused("tls", f"{SPEAKS_TLS}: give [tls] cert, key and ca"))
        self._listener = Listener(
            address,
            self._accept,
            self.tls,
            self.counters,
            limits.handshake_s,
            limits.handshakes_max,
            refusal,
            is_known=lambda stream: bool(stream.tag.peer),
        )
        self.port = self._listener.port
        if self.me.port == 0:
            self.me = Address(self.me.node, self.me.incarnation, self.me.host, self.port)
        self._sweep()
        self._prove()

    def serve(self) -> None:
        assert self._listener is not None
        self._listener.serve()

    def takes_pieces(self, to: Contact) -> bool:
        """Whether a peer understands frames of kind PIECES. Who is not connected is expected to."""
        stream = self._stream_to(to)
        return stream is None or stream.tag.version >= PIECES_SINCE

    def send(self, to: Contact, encoded: bytes, may_drop: bool = True, kind: bytes = MESSAGE) -> None:
        """To a name, or to a seed. Never waits."""
        stream = self._stream_to(to)
        if stream is None:
            self._dial(to, pack_message(encoded, kind), may_drop)
            return
        ends: Ends = stream.tag
        if ends.told != self.book.version:
            self._tell_addresses(stream)
        ends.used = self._now
        self.counters["sent"] += 1
        self.counters["sent_bytes"] += len(encoded)
        stream.send(pack_message(encoded, kind), may_drop)

    def unanswered(self) -> dict[NodeId, float]:
        """Return, for each peer that owes an answer, for how many seconds. Late answers only.

        Neighbors that cannot even be reached are among them.
        """
        now = self._loop.time()
        late = {peer: stream.tag.proof.waits_s(now) for peer, stream in self.peers.items()}
        for to, dial in self.dials.items():
            if dial.since and not isinstance(to, Seed) and self.is_linked(to):
                late[to] = now - dial.since
        return {peer: seconds for peer, seconds in late.items() if seconds > 0}

    def close(self, *, in_order: bool = True) -> None:
        """In order: peers are told, and what was sent goes out first. Else as if the process had died."""
        self._is_closed = True
        for timer in (self._sweeper, self._prover):
            if timer is not None:
                timer.cancel()
        for dial in self.dials.values():
            if dial.task is not None:
                dial.task.cancel()
                self._cancelled.append(dial.task)
        self.dials.clear()
        for stream in [*self.peers.values(), *self._greeting]:
            if in_order and stream.tag.peer:
                self._say_bye(stream)
            else:
                stream.cut("closed")

    async def closed(self) -> None:
        """Returns when every stream has ended."""
        if self._listener is not None:
            await self._listener.close()
        await asyncio.gather(*self._cancelled, return_exceptions=True)
        while self.peers or self._greeting:
            await asyncio.sleep(0.01)

    # Dialling

    def _name_of(self, to: Contact) -> NodeId | None:
        """None for a seed that has not answered yet."""
        return self.names.get(to) if isinstance(to, Seed) else to

    def _stream_to(self, to: Contact) -> Stream | None:
        name = self._name_of(to)
        return self.peers.get(name) if name is not None else None

    def _dial(self, to: Contact, frame: bytes, may_drop: bool) -> None:
        if self._is_closed or self._name_of(to) == self.me.node:
            return
        dial = self.dials.get(to)
        if dial is None:
            dial = self.dials[to] = Dial()
        if dial.task is None:
            if self._loop.time() < dial.not_before:
                self.counters["dropped unreachable"] += 1
                return
            place = self._place(to)
            if place is None:
                self.counters["dropped unaddressed"] += 1
                del self.dials[to]
                return
            # Messages of others can make us dial anybody, anywhere. Seeds and neighbors do not wait for such dials.
            is_busy = self._dialling >= self.limits.handshakes_max and not (isinstance(to, Seed) or self.is_linked(to))
            is_full = len(self.peers) + len(self._greeting) >= self.limits.connections_max
            if is_busy or (is_full and not self._make_room()):
                self.counters["dropped full"] += 1
                del self.dials[to]
                return
            self._begin(to, dial, *place)
        if not dial.outbox.put(frame, may_drop):
            dial.outbox.take()
            self.counters["dropped dialling"] += 1

    def _place(self, to: Contact) -> tuple[str, int] | None:
        if isinstance(to, Seed):
            return to.host, to.port
        known = self.book.find(to)
        return (known.host, known.port) if known is not None else None

    def _begin(self, to: Contact, dial: Dial, host: str, port: int) -> None:
        dial.begun = self._loop.time()
        self._dialling += 1
        dial.task = self._loop.create_task(self._connect(to, host, port))
        dial.task.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dialling -= 1

    async def _connect(self, to: Contact, host: str, port: int) -> None:
        """The TCP connection has a short limit of its own, so that an attempt during a cut does not outlast it."""
        dialling = self.tls.now.dialling if self.tls is not None else None
        stream = Stream(self, self.limits, HELLO_BYTES_MAX)
        stream.tag = Ends(dialled=to)
        try:
            async with asyncio.timeout(self.limits.handshake_s):
                connected = await reach(host, port, self.limits.connect_s)
                name = host if dialling is not None else None
                await self._loop.create_connection(lambda: stream, sock=connected, ssl=dialling, server_hostname=name)
        except Exception as error:  # the resolver raises ValueError, too; whatever it is, the dial is tried again
            why = why_not(error, has_tls=dialling is not None)
            log.debug("%s: cannot reach %s: %s", self.me.node, to, why)
            self.name_refusals.pop(to, None)
            self._note_failure(to, why)
            self._failed(to)
            if isinstance(error, ConnectionRefusedError) and not isinstance(to, Seed):
                self._note_ended(to)

    def _healed(self) -> None:
        """A peer that could not be reached is here again: a network has healed. Try all others anew, at once."""
        now = self._loop.time()
        for to, dial in self.dials.items():
            dial.not_before = 0.0
            place = self._place(to)
            if dial.task is not None and not dial.task.done() and now - dial.begun > _LOST_S and place is not None:
                dial.task.cancel()  # what it has sent was lost, and it would wait before it sends it again
                self._begin(to, dial, *place)

    def _failed(self, to: Contact) -> None:
        dial = self.dials.get(to)
        if dial is None or self._is_closed:
            return
        self.counters["dials failed"] += 1
        self.counters["dropped unreachable"] += len(dial.outbox)
        limits = self.limits
        pause_s = min(max(2 * dial.pause_s, limits.backoff_s), limits.backoff_s_max)
        not_before = self._loop.time() + pause_s * self._random.uniform(0.5, 1.0)
        self.dials[to] = Dial(since=dial.since or dial.begun, pause_s=pause_s, not_before=not_before)

    # Streams

    def _accept(self) -> Stream | None:
        is_full = len(self.peers) + len(self._greeting) >= self.limits.connections_max
        if self._is_closed or (is_full and not self._make_room()):
            return None
        stream = Stream(self, self.limits, HELLO_BYTES_MAX)
        stream.tag = Ends()
        return stream

    def opened(self, stream: Stream) -> None:
        ends: Ends = stream.tag
        if self._is_closed:
            stream.cut("closed")
            return
        self._greeting[stream] = None
        stream.notice_death(self.limits.silent_s)
        ends.timer = self._loop.call_later(self.limits.handshake_s, stream.cut, "handshake")
        if ends.dialled:
            stream.send(pack_control(self._hello()))

    def received(self, stream: Stream, body: bytes) -> None:
        ends: Ends = stream.tag
        ends.proof.heard()
        if not ends.peer:
            if not stream.is_closing:  # else its hello was refused, and it has gone on talking meanwhile
                self._greet(stream, body)
        elif body[:1] == MESSAGE:
            ends.used = self._now
            self.counters["received"] += 1
            self.on_message(ends.peer, body[1:])
        elif body[:1] == PIECES and ends.version >= PIECES_SINCE:
            ends.used = self._now
            self.counters["received"] += 1
            self.on_pieces(ends.peer, body[1:])
        else:
            message = read_control(body)
            if isinstance(message, Addresses):
                self._learn(message.known)
            elif isinstance(message, Ping):
                stream.send(_PONG)
            elif isinstance(message, Pong):
                ends.proof.answered(self._loop.time())
            elif isinstance(message, Bye):
                ends.said_bye = True
                stream.close()
            elif isinstance(message, Refused) and not ends.dialled:  # it has seen from our hello that we are too old
                ends.said_bye = True
                self._was_refused(stream, message)
            else:
                raise WireError("a second hello")

    def ended(self, stream: Stream) -> None:
        ends: Ends = stream.tag
        if ends.timer is not None:
            ends.timer.cancel()
        self.counters["dropped queued"] += stream.outbox.dropped
        if stream.why not in ("", "closed"):
            self.counters[f"cut {stream.why}"] += 1
            log.info("%s: cut off %s: %s", self.me.node, ends.peer or ends.dialled or "a stranger", stream.why)
            if stream.why == "tls" and self._sparing.may_say("tls"):
                log.warning("%s: refused a peer: %s", self.me.node, "it speaks TLS, and this node does not: see [tls]")
        if stream in self._greeting:
            del self._greeting[stream]
            if ends.dialled:
                if not ends.why:
                    why = why_no_hello(stream.why, stream.error, has_tls=self.tls is not None)
                    self._note_failure(ends.dialled, why)
                self._failed(ends.dialled)
        elif self.peers.get(ends.peer) is stream:
            del self.peers[ends.peer]
            if not ends.said_bye and not self._is_closed:
                self.counters["broken"] += 1
                self.why_down = f"its stream was cut off: {stream.why}" if stream.why else "its stream broke"
                self.on_peer_down(ends.peer)
                self._look_again(ends.peer)

    def _look_again(self, peer: NodeId) -> None:
        """Dial a peer whose stream broke or who is not connected: a refusal proves that its process has ended."""
        place = self._place(peer)
        if place is None or peer in self.dials or self._is_closed or self._dialling >= self.limits.handshakes_max:
            return
        dial = self.dials[peer] = Dial()
        self._begin(peer, dial, *place)

    def _note_ended(self, peer: NodeId) -> None:
        """Nothing listens at the address of `peer`. Who is connected to nobody looks whether anybody is left."""
        known = self.book.find(peer)
        if known is None or peer in self.peers or self._is_closed:
            return
        self._ended[peer] = known.incarnation
        self._ended = {node: life for node, life in self._ended.items() if self._has_ended(node)}
        others = [] if self.peers else [node for node in self.book.nodes() if node not in self._ended]
        for node in others[:_LOOKS_MAX]:
            self._look_again(node)
        self.on_peer_ended(peer, not self.peers and not others)

    def _has_ended(self, node: NodeId) -> bool:
        known = self.book.find(node)
        return known is not None and node not in self.peers and known.incarnation <= self._ended.get(node, -1)

    def _note_failure(self, to: Contact, why: str) -> None:
        """Remember why a seed is no peer, and log it when the reason is new."""
        if isinstance(to, Seed) and self.failures.get(to) != why:
            self.failures[to] = why
            log.warning("%s: seed %s did not accept us: %s", self.me.node, to, why)

    # The handshake

    def _hello(self) -> Hello:
        return Hello(PROTOCOL, self.speaks[1], self.cluster, self.overlay, self.me)

    def _greet(self, stream: Stream, body: bytes) -> None:
        message, ends = read_control(body), stream.tag
        if isinstance(message, Refused) and ends.dialled:
            self._was_refused(stream, message)
            return
        if not isinstance(message, Hello):
            raise WireError("no hello")
        refusal = self._refusal(message) or self._misnamed(stream, message) or self._adopt(stream, message)
        if refusal is not None:
            self._refuse(stream, refusal, is_question=message.address.incarnation == 0)

    def _refusal(self, hello: Hello) -> Refused | None:
        oldest, newest = self.speaks
        if hello.protocol != PROTOCOL or hello.version < oldest:
            mine = f"{PROTOCOL} {newest}" + (f" and {oldest}" if oldest < newest else "")
            who = f"{hello.address.node} speaks {hello.protocol} {hello.version}"
            return Refused("version", f"{who}, too old for {self.me.node}, which speaks {mine}; upgrade it")
        if hello.cluster != self.cluster:
            return Refused("cluster", f'this node is of cluster "{self.cluster}"')
        if hello.overlay != self.overlay:
            return Refused("overlay", f"this mesh runs {self.overlay}")
        if hello.address.node == self.me.node:
            if hello.address != self.me:
                return Refused("taken", f"another node is named {self.me.node}: names must be unique in a cluster")
            return Refused("self", "this is you")
        return None

    def _misnamed(self, stream: Stream, hello: Hello) -> Refused | None:
        """With TLS a node must show a node's certificate of its name: its messages would be believed."""
        why = why_not_node(stream.certificate(), hello.address.node) if self.tls is not None else ""
        return Refused("certificate", why[:_REASON_LETTERS]) if why else None

    def _refuse(self, stream: Stream, refusal: Refused, is_question: bool) -> None:
        """`is_question`: of `trellis doctor`, under the name of a node that may run. That alarms nobody."""
        ends: Ends = stream.tag
        if not ends.dialled or refusal.kind in ("version", "certificate"):
            stream.send(pack_control(refusal))
        elif refusal.kind == "self" and isinstance(ends.dialled, Seed):
            self.names[ends.dialled] = self.me.node  # our own address is among the seeds
        if ends.dialled:
            ends.why = refusal.text
            if refusal.kind not in ("second", "self"):
                self._note_failure(ends.dialled, f"this node refused it: {refusal.text}")
        is_normal = refusal.kind in ("second", "self") or (is_question and refusal.kind in ("old", "taken"))
        if not is_normal:
            if self._sparing.may_say("refused", refusal.text):
                log.warning("%s: refused a peer: %s", self.me.node, refusal.text)
            self.counters[f"cut {refusal.kind}"] += 1
        stream.close()

    def _was_refused(self, stream: Stream, refusal: Refused) -> None:
        dialled = stream.tag.dialled or stream.tag.peer
        # Other kinds are of a newer version, or made up: they must not become labels of metrics without end.
        kind = refusal.kind if refusal.kind in REFUSALS else "other"
        self.counters[f"refused {kind}"] += 1
        text = refusal.text
        stream.tag.why = text or kind
        if kind in ("old", "taken") and len(self.name_refusals) < _NAME_REFUSALS_MAX:
            self.name_refusals[dialled] = self._loop.time()
        if refusal.kind not in ("second", "self"):
            self._note_failure(dialled, f"it refused this node ({kind}): {text}")
        if refusal.kind == "self" and isinstance(dialled, Seed):
            self.names[dialled] = self.me.node
        elif (
            refusal.kind not in ("second", "self")
            and not isinstance(dialled, Seed)
            and self._sparing.may_say(dialled, text)
        ):
            log.warning("%s: %s refuses us: %s", self.me.node, dialled, text)
        stream.close()

    def _adopt(self, stream: Stream, hello: Hello) -> Refused | None:
        ends: Ends = stream.tag
        peer, incarnation = hello.address.node, hello.address.incarnation
        if ends.dialled and not isinstance(ends.dialled, Seed) and ends.dialled != peer:
            self.book.forget(ends.dialled)
            return Refused("name", f"{ends.dialled} is not there, {peer} is")
        old = self.peers.get(peer)
        if old is not None:
            before: Ends = old.tag
            if incarnation < before.incarnation:
                return Refused("old", f"a later life of {peer} is connected")
            is_same_dialler = bool(ends.dialled) == bool(before.dialled)
            is_by_smaller = bool(ends.dialled) == (self.me.node < peer)
            is_alive = not before.proof.waits_s(self._loop.time())  # else it may be dead, and only the peer knows
            if incarnation == before.incarnation and not is_same_dialler and not is_by_smaller and is_alive:
                return Refused("second", "another stream is there")
            # The other end may not have taken the new stream yet: without a word it would take this for our death.
            self._say_bye(old)
            if incarnation > before.incarnation:
                self.why_down = "it restarted"
                self.on_peer_down(peer)
        del self._greeting[stream]
        if ends.timer is not None:
            ends.timer.cancel()
        ends.peer, ends.incarnation, ends.used = peer, incarnation, self._now
        ends.version, ends.proof = min(hello.version, self.speaks[1]), Proof(self._loop.time())
        self.peers[peer] = stream
        for one in [one for one in self.name_refusals if self._name_of(one) == peer or one == ends.dialled]:
            del self.name_refusals[one]
        stream.splitter.body_bytes_max = BODY_BYTES_MAX
        self._learn([hello.address])
        if not ends.dialled:
            stream.send(pack_control(self._hello()))
        elif isinstance(ends.dialled, Seed):
            self.names[ends.dialled] = peer
            self.failures.pop(ends.dialled, None)
        self._tell_addresses(stream)
        waiting: tuple[Contact, ...] = (ends.dialled, peer)
        was_lost = False
        for one in waiting:
            dial = self.dials.pop(one, None)
            if dial is None:
                continue
            was_lost = was_lost or dial.since > 0
            while dial.outbox:
                frame = dial.outbox.take()
                if kind_of(frame) == PIECES and ends.version < PIECES_SINCE:  # said again, and written out then
                    self.counters["dropped version"] += 1
                    continue
                self.counters["sent"] += 1
                stream.send(frame)
        if was_lost:
            self._healed()
        return None

    def _learn(self, addresses: Sequence[Address]) -> None:
        """Of a later life, too: then it need not wait for what we gave up on an earlier one."""
        for one in addresses:
            dial, known = self.dials.get(one.node), self.book.find(one.node)
            if dial is not None and dial.task is None and known is not None and known.incarnation < one.incarnation:
                del self.dials[one.node]
        self.book.learn(addresses, self.peers)

    def _tell_addresses(self, stream: Stream) -> None:
        ends: Ends = stream.tag
        news = [one for one in self.book.since(ends.told) if one.node != ends.peer]
        ends.told = self.book.version
        for first in range(0, len(news), ADDRESSES_MAX):
            stream.send(pack_control(Addresses(tuple(news[first : first + ADDRESSES_MAX]))))

    # Idle and silent streams

    def _prove(self) -> None:
        """Ask every peer for a proof of life that is due, and give up those that have been silent for too long."""
        now = self._loop.time()
        for peer, stream in list(self.peers.items()):
            proof: Proof = stream.tag.proof
            if stream.tag.version < PINGS_SINCE:
                continue  # it would take a ping for garbage
            if proof.must_ask(now):
                stream.send(_PING)
            elif proof.is_silent(self.limits.silent_s):
                log.info("%s: gives up the stream to %s, which has answered nothing lately", self.me.node, peer)
                self.counters["cut silent"] += 1
                self._say_bye(stream)  # if it only hangs, it reads this later and does not take us for dead
                self.on_peer_down(peer)
        self._prover = self._loop.call_later(ROUND_S, self._prove)

    def _sweep(self) -> None:
        self._now = self._loop.time()
        for stream in list(self.peers.values()):
            ends: Ends = stream.tag
            if self._now - ends.used > self.limits.idle_s and not self.is_linked(ends.peer):
                self._say_bye(stream)
        for to in [one for one, dial in self.dials.items() if dial.task is None and self._now > dial.not_before + 60]:
            del self.dials[to]
        self._sweeper = self._loop.call_later(min(1.0, self.limits.idle_s / 4), self._sweep)

    def _make_room(self) -> bool:
        """Close the stream that was used longest ago, if there is one that no link needs."""
        idle = [one for one in self.peers.values() if not self.is_linked(one.tag.peer)]
        if not idle:
            return False
        self._say_bye(min(idle, key=lambda one: one.tag.used))
        return True

    def _say_bye(self, stream: Stream) -> None:
        ends: Ends = stream.tag
        ends.said_bye = True
        stream.send(pack_control(Bye()))
        if self.peers.get(ends.peer) is stream and not self._is_closed:
            del self.peers[ends.peer]
        stream.close()
