"""Send messages to peers by name, over TCP. There is at most one stream to each peer, dialed when it is needed.

dialing.py    peers that are not connected: what waits for them, and when they are dialed (again)
handshake.py  hellos and refusals, and which of two streams under one name is kept
this file     streams whose hello was accepted: messages, addresses, idle and silent streams

A stream begins in `_greeting`. When its hello is accepted (`adopt`), it moves to `peers`. `Stream.tag` is its `Ends`.

`send` never waits and promises nothing: protocols repeat messages that are lost. If a stream ends without a `Bye`, the
node is told that the peer is down (`on_peer_down`). Streams that no link needs are closed when they are idle, or when
another peer needs the space.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from trellis.live.addresses import BOOK_MAX, AddressBook
from trellis.live.allowance import Allowance
from trellis.live.clock import life_now
from trellis.live.config import LimitsConfig
from trellis.live.dialing import Dialing
from trellis.live.ends import Ends
from trellis.live.frames import (
    ADDRESSES_MAX,
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    MESSAGE,
    PIECES,
    PIECES_SINCE,
    PINGS_SINCE,
    VERSION,
    VERSION_OLDEST,
    Address,
    Addresses,
    Bye,
    Hello,
    Ping,
    Pong,
    Refused,
    message_bytes,
    pack_control,
    pack_message,
    read_control,
)
from trellis.live.handshake import Handshake
from trellis.live.listen import Listener
from trellis.live.proof import ROUND_S, Proof
from trellis.live.reasons import why_no_hello
from trellis.live.stream import Stream
from trellis.live.tls import SPEAKS_TLS, Credentials
from trellis.protocols.effects import Contact, NodeId, Seed
from trellis.protocols.wire import WireError
from trellis.reached import reached

log = logging.getLogger("trellis.live")

_PING, _PONG = pack_control(Ping()), pack_control(Pong())
_AHEAD = 25_920_000  # 30 days in tenths of a second. Addresses of incarnations further in the future are not believed.
_ADDRESSES_PER_S = 64.0  # changes of our address book that a peer may cause in the long run; at first `BOOK_MAX`
_PINGS_ANSWERED = 16  # most pings of one peer that are answered in one round
_PINGS_MAX = 1_000  # A peer that sends more pings in one round is cut off.


class Transport:
    """The streams of one node to its peers."""

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
        """`me` may have port 0 until `bind`. The callbacks are given the name of a peer.

        `on_message` and `on_pieces` get the messages; if they raise WireError, the stream is cut. `on_peer_down`: the
        stream broke, or the peer has restarted. `on_peer_ended`: the peer's process has certainly ended. `is_linked`
        returns whether it is a neighbor.
        """
        self.me, self.cluster, self.overlay, self.limits, self.tls = me, cluster, overlay, limits, tls
        self.on_message, self.on_peer_down, self.is_linked = on_message, on_peer_down, is_linked
        self.on_peer_ended = on_peer_ended  # Its second argument: all nodes that we have heard of have ended.
        self.on_pieces = on_pieces or on_message
        self.book = AddressBook(me.node)
        self.peers: dict[NodeId, Stream] = {}  # streams whose hello was accepted
        self.dialing = Dialing(self)
        self.dials, self.names, self.failures = self.dialing.dials, self.dialing.names, self.dialing.failures
        self.name_refusals = self.dialing.name_refusals
        self.handshake = Handshake(self)
        self.why_down = ""  # why the peer of the present call of `on_peer_down` is down, for the log
        self.counters: Counter[str] = Counter()
        self.speaks = (VERSION_OLDEST, VERSION)  # oldest and newest version of the protocol
        self.port = 0
        self._loop = asyncio.get_running_loop()
        self.addresses_left = Allowance(BOOK_MAX, _ADDRESSES_PER_S, self._loop.time)
        self._now = self._loop.time()  # updated once in a while, which is precise enough for idle streams
        self._greeting: dict[Stream, None] = {}  # streams whose hello was not accepted yet
        self._listener: Listener | None = None
        self._sweeper: asyncio.TimerHandle | None = None  # the next `_sweep`
        self._prover: asyncio.TimerHandle | None = None  # the next `_prove`
        self.is_closed = False

    def bind(self, address: str) -> None:
        """Bind the mesh port. Nothing is accepted before `serve`."""
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
        """Accept streams."""
        assert self._listener is not None
        self._listener.serve()

    def takes_pieces(self, to: Contact) -> bool:
        """Return whether a peer understands frames of kind PIECES. Assume so if it is not connected."""
        stream = self._stream_to(to)
        return stream is None or stream.tag.version >= PIECES_SINCE

    def send(self, to: Contact, encoded: bytes, may_drop: bool = True, kind: bytes = MESSAGE) -> None:
        """Send an encoded message to a peer or a seed, or keep it until the peer is dialed. Never wait.

        `may_drop`: it may be dropped if the queue of the peer is full. `kind`: MESSAGE or PIECES.
        """
        stream = self._stream_to(to)
        if stream is None:
            self.dialing.dial(to, pack_message(encoded, kind), may_drop)
        else:
            self.send_frame(stream, pack_message(encoded, kind), may_drop)

    def send_frame(self, stream: Stream, frame: bytes, may_drop: bool = False) -> None:
        """Send the frame of a message to a peer. The addresses of nodes that the message may name go first."""
        ends: Ends = stream.tag
        if ends.told != self.book.version:
            self._tell_addresses(stream)
        ends.used = self._now
        self.counters["sent"] += 1
        self.counters["sent_bytes"] += message_bytes(frame)
        stream.send(frame, may_drop)

    def unanswered(self) -> dict[NodeId, float]:
        """Return the peers whose answer to a ping is late, and for how many seconds it is due.

        Neighbors that cannot be dialed are included, with the time since the first failed dial began.
        """
        now = self._loop.time()
        late = {peer: stream.tag.proof.waits_s(now) for peer, stream in self.peers.items()}
        for to, dial in self.dials.items():
            if dial.since and not isinstance(to, Seed) and self.is_linked(to):
                late[to] = now - dial.since
        return {peer: seconds for peer, seconds in late.items() if seconds > 0}

    def close(self, *, in_order: bool = True) -> None:
        """Close all streams. `in_order`: send pending frames and a `Bye` first. Else cut them, as a crash would."""
        self.is_closed = True
        for timer in (self._sweeper, self._prover):
            if timer is not None:
                timer.cancel()
        self.dialing.close()
        for stream in [*self.peers.values(), *self._greeting]:
            if in_order and stream.tag.peer:
                self._say_bye(stream)
            else:
                stream.cut("closed")

    async def closed(self) -> None:
        """Wait until every stream has ended."""
        if self._listener is not None:
            await self._listener.close()
        await self.dialing.closed()
        while self.peers or self._greeting:
            await asyncio.sleep(0.01)

    # Streams

    def _stream_to(self, to: Contact) -> Stream | None:
        """Return the stream to a peer, or to the peer that answered at a seed; None if it is not connected."""
        if isinstance(to, Seed):
            name = self.names.get(to)
            return self.peers.get(name) if name is not None else None
        return self.peers.get(to)

    def has_room(self) -> bool:
        """Return whether there may be one more stream to a peer. If necessary, close one that no link needs.

        Streams without an accepted hello do not count. Otherwise strangers could keep peers out.
        """
        return len(self.peers) < self.limits.connections_max or self._make_room()

    def _accept(self) -> Stream | None:
        """Return the object for a connection that comes in, or None to refuse the connection."""
        if self.is_closed or not self.has_room():
            return None
        stream = Stream(self, self.limits, HELLO_BYTES_MAX)
        stream.tag = Ends()
        return stream

    def opened(self, stream: Stream) -> None:
        """Begin the handshake: say hello if we have dialed, else wait for a hello."""
        ends: Ends = stream.tag
        if self.is_closed:
            stream.cut("closed")
            return
        self._greeting[stream] = None
        stream.notice_death(self.limits.silent_s)
        ends.timer = self._loop.call_later(self.limits.handshake_s, stream.cut, "handshake")
        if ends.dialled:
            self.dialing.note_heard(ends.dialled)
            stream.send(pack_control(self.handshake.hello()))

    def received(self, stream: Stream, body: bytes) -> None:
        """Handle one frame. Raise WireError, which cuts the stream, if it is not allowed now."""
        ends: Ends = stream.tag
        ends.proof.heard()
        if not ends.peer:
            if not stream.is_closing:  # Otherwise we have refused its hello, and ignore what it sent before it noticed.
                self.handshake.greet(stream, body)
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
                self._learn(ends.peer, message.known)
            elif isinstance(message, Ping):
                self._answer(stream)
            elif isinstance(message, Pong):
                ends.proof.answered(self._loop.time())
                self.handshake.proved(ends.peer)
            elif isinstance(message, Bye):
                ends.said_bye = True
                stream.close()
            elif isinstance(message, Refused) and not ends.dialled:  # By our hello our version is too old for it.
                ends.said_bye = True
                self.handshake.was_refused(stream, message)
            else:
                raise WireError("a second hello")

    def ended(self, stream: Stream) -> None:
        """Count and log the end of a stream. Without a `Bye`, tell the node, and dial the peer to see if it runs."""
        ends: Ends = stream.tag
        if ends.timer is not None:
            ends.timer.cancel()
        self.counters["dropped queued"] += stream.outbox.dropped
        if stream.why not in ("", "closed"):
            self.counters[f"cut {stream.why}"] += 1
            log.info("%s: cut off %s: %s", self.me.node, ends.peer or ends.dialled or "a stranger", stream.why)
            if stream.why == "tls":
                self.handshake.speaks_tls()
        if stream in self._greeting:
            del self._greeting[stream]
            if ends.dialled:
                if not ends.why:
                    why = why_no_hello(stream.why, stream.error, has_tls=self.tls is not None)
                    self.dialing.note_failure(ends.dialled, why)
                self.dialing.failed(ends.dialled)
        elif self.peers.get(ends.peer) is stream:
            del self.peers[ends.peer]
            if not ends.said_bye and not self.is_closed:
                self.counters["broken"] += 1
                why = f"its stream was cut off: {stream.why}" if stream.why else "its stream broke"
                self._report_down(ends.peer, why)
                self.dialing.look_again(ends.peer)
        self.handshake.ended(stream)

    def _report_down(self, peer: NodeId, why: str) -> None:
        """Tell the node that a peer is down. `why` is for the log, and holds only during the call."""
        self.why_down = why
        self.on_peer_down(peer)
        self.why_down = ""

    def _answer(self, stream: Stream) -> None:
        """Answer a `Ping`. An honest peer sends one a second. Many more are not answered, and a flood is cut off."""
        ends: Ends = stream.tag
        ends.pings += 1
        if ends.pings <= _PINGS_ANSWERED:
            stream.send(_PONG)
        elif ends.pings > _PINGS_MAX:
            stream.cut("flood")
            reached("a peer that floods is cut off")

    # Peers and their addresses

    def adopt(self, stream: Stream, hello: Hello) -> None:
        """Make a stream whose hello was accepted the stream of its peer. It replaces an earlier one."""
        ends: Ends = stream.tag
        peer, incarnation = hello.address.node, hello.address.incarnation
        old = self.peers.get(peer)
        if old is None and not self.has_room():  # Other peers were connected during its handshake.
            stream.cut("full")
            return
        if old is not None:
            # The other end may not have accepted the new stream yet. Without a `Bye` it would take this for a crash.
            self._say_bye(old)
            if incarnation > old.tag.incarnation:
                self._report_down(peer, "it restarted")
        del self._greeting[stream]
        if ends.timer is not None:
            ends.timer.cancel()
        ends.peer, ends.incarnation, ends.used = peer, incarnation, self._now
        ends.version, ends.proof = min(hello.version, self.speaks[1]), Proof(self._loop.time())
        self.peers[peer] = stream
        stream.splitter.body_bytes_max = BODY_BYTES_MAX
        self.book.meet(hello.address, self.peers)
        if not ends.dialled:
            stream.send(pack_control(self.handshake.hello()))
        elif isinstance(ends.dialled, Seed):
            self.names[ends.dialled] = peer
            self.failures.pop(ends.dialled, None)
        self._tell_addresses(stream)
        self.dialing.reached(stream)

    def _learn(self, peer: NodeId, addresses: Sequence[Address]) -> None:
        """Add addresses that a peer has sent to the address book.

        If the book takes a later incarnation of a node, the pause after failed dials to the earlier one ends. Each
        change is passed on to all other peers. So a peer may cause only as many changes as `addresses_left` allows.
        """
        latest = life_now() + _AHEAD
        left = self.addresses_left.left(peer)
        believed = [address for address in addresses if address.incarnation <= latest]
        before = {address.node: self.book.find(address.node) for address in believed if address.node in self.dials}
        changes, left_out = self.book.learn(believed, self.peers, left)
        self.addresses_left.use(peer, changes)
        if left_out:
            self.counters["addresses left out"] += left_out
        for node, old in before.items():
            new = self.book.find(node)
            is_later = old is not None and new is not None and new.incarnation > old.incarnation
            if is_later and self.dials[node].task is None:
                del self.dials[node]

    def _tell_addresses(self, stream: Stream) -> None:
        """Send a peer the changes of the address book since it was last told."""
        ends: Ends = stream.tag
        news = [address for address in self.book.since(ends.told) if address.node != ends.peer]
        ends.told = self.book.version
        for first in range(0, len(news), ADDRESSES_MAX):
            stream.send(pack_control(Addresses(tuple(news[first : first + ADDRESSES_MAX]))))

    # Idle and silent streams

    def _prove(self) -> None:
        """End a round of `Proof`: send the pings that are due, and give up peers that have been silent for too long."""
        now = self._loop.time()
        for peer, stream in list(self.peers.items()):
            proof: Proof = stream.tag.proof
            stream.tag.pings = 0
            if stream.tag.version < PINGS_SINCE:
                continue  # Its version of the protocol has no pings.
            if proof.must_ask(now):
                stream.send(_PING)
            elif proof.is_silent(self.limits.silent_s):
                log.info("%s: gives up the stream to %s, which has answered nothing lately", self.me.node, peer)
                self.counters["cut silent"] += 1
                reached("a silent peer is cut off")
                self._say_bye(stream)  # If it only hangs, it reads this later, and sees that we have not crashed.
                self._report_down(peer, f"it was silent for {(proof.silent_rounds - 1) * ROUND_S:.1f} s")
        self._prover = self._loop.call_later(ROUND_S, self._prove)

    def _sweep(self) -> None:
        """Close streams that are idle and that no link needs. Runs about once a second."""
        self._now = self._loop.time()
        for stream in list(self.peers.values()):
            ends: Ends = stream.tag
            if self._now - ends.used > self.limits.idle_s and not self.is_linked(ends.peer):
                self._say_bye(stream)
        self.dialing.sweep(self._now)
        self._sweeper = self._loop.call_later(min(1.0, self.limits.idle_s / 4), self._sweep)

    def _make_room(self) -> bool:
        """Close the least recently used of the streams that no link needs. Return whether there was one."""
        idle = [stream for stream in self.peers.values() if not self.is_linked(stream.tag.peer)]
        if not idle:
            return False
        self._say_bye(min(idle, key=lambda stream: stream.tag.used))
        return True

    def _say_bye(self, stream: Stream) -> None:
        """Close a stream in order, so that the other end does not take this for a crash."""
        ends: Ends = stream.tag
        ends.said_bye = True
        stream.send(pack_control(Bye()))
        if self.peers.get(ends.peer) is stream and not self.is_closed:
            del self.peers[ends.peer]
        stream.close()
