"""Dial peers and seeds when there is a frame to send to them.

A `Dial` holds the frames that wait for a connection. It has three states: an attempt is under way (`task` is set), the
last attempt has failed and a pause runs (`not_before`), or the pause is over and the next frame starts an attempt. The
pause doubles with each failure. Frames sent during a pause are dropped: protocols must expect loss, and repeat them.
When a peer that could not be reached connects again, a partition may have ended. Then all pauses end.

The transport calls `dial` to send, `reached` when a stream stands, and `failed` when a stream ended without a hello.

A seed is addressed as a `Seed` (host and port) until its hello has told its name. A name is never interpreted as an
address. So peers, which may invent names, cannot choose where and how a dial goes.

A refused TCP connection proves that no process listens at an address. The last part of this file uses that to find
out that a node has ended: after its stream broke, and for seeds while this node has met nobody.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trellis.live.ends import Ends
from trellis.live.frames import HELLO_BYTES_MAX, PIECES, PIECES_SINCE, kind_of
from trellis.live.machine import machine
from trellis.live.reasons import why_not
from trellis.live.stream import Outbox, Stream
from trellis.protocols.effects import Contact, NodeId, Seed
from trellis.reached import reached

if TYPE_CHECKING:
    from trellis.live.transport import Transport

log = logging.getLogger("trellis.live")

DIALLED_BYTES_MAX = 2 << 20  # most bytes of frames that wait for one connection
_LOOKS_MAX = 16  # most nodes that are dialed at a time only to see whether they still run
_NAME_REFUSALS_MAX = 256  # most peers of which it is remembered that they refused our name
_LOST_S = 0.3  # An attempt that has lasted so long has lost its first packet, or the peer is very far away.
_JUST_NOW_S = 5.0  # For so long, and one pause, a refused connection proves that nothing listens at a seed.
_FORGET_S = 60.0  # A failed dial without new frames is forgotten so long after its pause.


@dataclass(eq=False)
class Dial:
    """A peer or seed that is dialed. Times are those of the event loop, in seconds."""

    outbox: Outbox = field(default_factory=lambda: Outbox(DIALLED_BYTES_MAX))  # frames that wait for the connection
    task: asyncio.Task[None] | None = None  # The attempt that is under way. It stays set until the hello has come.
    begun: float = 0.0  # When the present attempt began.
    since: float = 0.0  # When the first of a row of failed attempts began. 0.0: none has failed.
    pause_s: float = 0.0  # length of the last pause
    not_before: float = 0.0  # Until then nothing is dialed.


class Dialing:
    """Keep all dials of one node, and what is known about peers and seeds without a stream."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.dials: dict[Contact, Dial] = {}
        self.names: dict[Seed, NodeId] = {}  # the node that answered at each seed
        self.failures: dict[Seed, str] = {}  # why the last dial to a seed failed, for people
        self._unheard: dict[Seed, float] = {}  # seeds that refused the last connection, and when
        # Peers and seeds that refused our name when they last answered us, and when. The longest ago comes first.
        self.name_refusals: dict[Contact, float] = {}
        self._ended: dict[NodeId, int] = {}  # nodes at whose address nothing listens any more, with their incarnations
        self._connecting = 0  # attempts that have no connection yet
        self._machine = machine()
        self._random = self._machine.random()
        self._loop = asyncio.get_running_loop()
        self._cancelled: list[asyncio.Task[None]] = []  # attempts that were under way at `close`

    def close(self) -> None:
        """Cancel all attempts, and drop the frames that wait for them."""
        for dial in self.dials.values():
            if dial.task is not None:
                dial.task.cancel()
                self._cancelled.append(dial.task)
        self.dials.clear()

    async def closed(self) -> None:
        """Wait until all cancelled attempts have ended."""
        await asyncio.gather(*self._cancelled, return_exceptions=True)

    def name_of(self, to: Contact) -> NodeId | None:
        """Return the node behind a contact, or None for a seed that has not answered yet."""
        return self.names.get(to) if isinstance(to, Seed) else to

    def dial(self, to: Contact, frame: bytes, may_drop: bool) -> None:
        """Keep a frame for a peer or seed that is not connected, and dial it.

        The frame is dropped and counted during a pause, without a known address, or where there is no room.
        """
        transport = self.transport
        if transport.is_closed or self.name_of(to) == transport.me.node:
            return
        dial = self.dials.get(to)
        if dial is None:
            dial = self.dials[to] = Dial()
        if dial.task is None:
            if self._loop.time() < dial.not_before:
                transport.counters["dropped unreachable"] += 1
                return
            address = self._place(to)
            if address is None:
                transport.counters["dropped unaddressed"] += 1
                del self.dials[to]
                return
            # Messages of peers can make us dial any node at any address. Seeds and neighbors do not wait for those.
            is_busy = self._is_busy and not (isinstance(to, Seed) or transport.is_linked(to))
            if is_busy or not transport.has_room():
                transport.counters["dropped full"] += 1
                del self.dials[to]
                return
            self._begin(to, dial, *address)
        if not dial.outbox.put(frame, may_drop):
            dial.outbox.take()
            transport.counters["dropped dialling"] += 1

    @property
    def _is_busy(self) -> bool:
        """Return whether as many attempts are under way as may be."""
        return self._connecting >= self.transport.limits.handshakes_max

    def _place(self, to: Contact) -> tuple[str, int] | None:
        """Return host and port of a contact, or None if the address is not known."""
        if isinstance(to, Seed):
            return to.host, to.port
        known = self.transport.book.find(to)
        return (known.host, known.port) if known is not None else None

    def _begin(self, to: Contact, dial: Dial, host: str, port: int) -> None:
        """Start an attempt."""
        dial.begun = self._loop.time()
        self._connecting += 1
        dial.task = self._loop.create_task(self._connect(to, host, port))
        dial.task.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._connecting -= 1

    async def _connect(self, to: Contact, host: str, port: int) -> None:
        """Connect to an address, with TLS if it is configured. The stream then sends our hello (`Transport.opened`).

        The TCP connection has a short limit of its own. So an attempt that began during a network partition does not
        outlast it for long.
        """
        transport, limits = self.transport, self.transport.limits
        tls = transport.tls.now.dialling if transport.tls is not None else None
        stream = Stream(transport, limits, HELLO_BYTES_MAX)
        stream.tag = Ends(dialled=to)
        try:
            async with asyncio.timeout(limits.handshake_s):
                connected = await self._machine.connect(host, port, limits.connect_s)
                name = host if tls is not None else None
                await self._loop.create_connection(lambda: stream, sock=connected, ssl=tls, server_hostname=name)
        except Exception as error:  # the resolver also raises ValueError; after any error the dial is tried again
            why = why_not(error, has_tls=tls is not None)
            log.debug("%s: cannot reach %s: %s", transport.me.node, to, why)
            self.name_refusals.pop(to, None)
            self.note_failure(to, why)
            self.failed(to)
            if isinstance(to, Seed):
                if isinstance(error, ConnectionRefusedError):
                    self._unheard[to] = self._loop.time()
            else:
                # Only if the node itself told us this address, a refusal there proves that it has ended.
                if isinstance(error, ConnectionRefusedError) and transport.book.is_first_hand(to):
                    self._note_ended(to)
                transport.book.failed(to)

    def failed(self, to: Contact) -> None:
        """Begin a pause after an attempt without success, and drop the frames that waited."""
        dial, counters, limits = self.dials.get(to), self.transport.counters, self.transport.limits
        if dial is None or self.transport.is_closed:
            return
        counters["dials failed"] += 1
        counters["dropped unreachable"] += len(dial.outbox)
        pause_s = min(max(2 * dial.pause_s, limits.backoff_s), limits.backoff_s_max)
        not_before = self._loop.time() + pause_s * self._random.uniform(0.5, 1.0)
        self.dials[to] = Dial(since=dial.since or dial.begun, pause_s=pause_s, not_before=not_before)

    def reached(self, stream: Stream) -> None:
        """Send the frames that waited for this stream. End all pauses if dials to the same peer had failed before."""
        ends: Ends = stream.tag
        for contact in [
            contact for contact in self.name_refusals if self.name_of(contact) == ends.peer or contact == ends.dialled
        ]:
            del self.name_refusals[contact]
        waiting: tuple[Contact, ...] = (ends.dialled, ends.peer)
        was_lost = False
        for contact in waiting:
            dial = self.dials.pop(contact, None)
            if dial is None:
                continue
            was_lost = was_lost or dial.since > 0
            self._send_waiting(dial, stream)
        if was_lost:
            reached("a peer that could not be reached is back")
            self._healed()

    def found(self, to: Contact, name: NodeId) -> None:
        """Note that the seed `to` is the node `name`, because a second stream to it was refused. Use the first stream.

        If the seed dialed this node first, or was dialed by its name, this is the only way to learn which node it is.
        Without it, all frames to the seed would be lost for as long as the first stream stands.
        """
        stream = self.transport.peers.get(name)
        if not isinstance(to, Seed) or stream is None:
            return
        self.names[to] = name
        self.failures.pop(to, None)
        dial = self.dials.pop(to, None)
        if dial is not None:
            self._send_waiting(dial, stream)

    def _send_waiting(self, dial: Dial, stream: Stream) -> None:
        """Send the frames of a dial on a stream."""
        while dial.outbox:
            frame = dial.outbox.take()
            if kind_of(frame) == PIECES and stream.tag.version < PIECES_SINCE:  # the protocol repeats it, then in full
                self.transport.counters["dropped version"] += 1
                continue
            self.transport.send_frame(stream, frame)

    def _healed(self) -> None:
        """End all pauses and restart attempts that probably lost their first packet: a partition may have ended."""
        now = self._loop.time()
        for to, dial in self.dials.items():
            dial.not_before = 0.0
            address = self._place(to)
            if dial.task is not None and not dial.task.done() and now - dial.begun > _LOST_S and address is not None:
                dial.task.cancel()  # the kernel would wait before it repeats the lost packet
                self._begin(to, dial, *address)

    def sweep(self, now: float) -> None:
        """Forget failed dials that nothing was sent to for long, and dial peers again that refused our name."""
        for to, dial in list(self.dials.items()):
            if dial.task is None and now > dial.not_before + _FORGET_S:
                del self.dials[to]
        self._ask_refusers(now)

    def _ask_refusers(self, now: float) -> None:
        """Dial nodes again that refused our name, to find out whether another node still uses it."""
        for to in list(self.name_refusals)[:_LOOKS_MAX]:
            dial, address = self.dials.get(to, Dial()), self._place(to)
            if address is None or self.name_of(to) in self.transport.peers:
                del self.name_refusals[to]
            elif dial.task is None and now >= dial.not_before and not self._is_busy and self.transport.has_room():
                self.dials[to] = dial
                self._begin(to, dial, *address)

    # Proofs that a process has ended

    def look_again(self, peer: NodeId) -> None:
        """Dial a peer without a frame for it. A refused connection proves that its process has ended."""
        address = self._place(peer)
        if address is None or peer in self.dials or self.transport.is_closed or self._is_busy:
            return
        dial = self.dials[peer] = Dial()
        self._begin(peer, dial, *address)

    def look_at(self, seed: Seed) -> None:
        """Dial a seed without a frame for it, to find out whether anything listens there. Do nothing during a pause."""
        dial, transport = self.dials.get(seed, Dial()), self.transport
        is_due = dial.task is None and self._loop.time() >= dial.not_before
        if is_due and not transport.is_closed and self.name_of(seed) not in transport.peers and transport.has_room():
            self.dials[seed] = dial
            self._begin(seed, dial, seed.host, seed.port)

    def _note_ended(self, peer: NodeId) -> None:
        """Tell the node that `peer` has ended: nothing listens at its address.

        If no peer is connected, also dial other known nodes. Once all of them have ended, this node is certainly alone.
        """
        transport = self.transport
        known = transport.book.find(peer)
        if known is None or peer in transport.peers or transport.is_closed:
            return
        self._ended[peer] = known.incarnation
        self._ended = {node: life for node, life in self._ended.items() if self._has_ended(node)}
        others = [] if transport.peers else [node for node in transport.book.nodes() if node not in self._ended]
        for node in others[:_LOOKS_MAX]:
            self.look_again(node)
        transport.on_peer_ended(peer, not transport.peers and not others)

    def _has_ended(self, node: NodeId) -> bool:
        """Return whether an earlier proof still holds: no later incarnation of the node is known."""
        known = self.transport.book.find(node)
        is_connected = node in self.transport.peers
        return known is not None and not is_connected and known.incarnation <= self._ended.get(node, -1)

    def is_switched_off(self, seed: Seed) -> bool:
        """Return whether a recent refused connection proves that no node runs at the address of a seed."""
        unheard_at = self._unheard.get(seed)
        return (
            unheard_at is not None
            and self._loop.time() - unheard_at < _JUST_NOW_S + self.transport.limits.backoff_s_max
        )

    def note_heard(self, to: Contact) -> None:
        """Note that something listens at `to`, because a connection to it stands."""
        if isinstance(to, Seed):
            self._unheard.pop(to, None)

    def note_name_refused(self, to: Contact) -> None:
        """Remember that `to` knows another node of our name, until a dial to it has another result."""
        self.name_refusals.pop(to, None)  # it is added again at the end
        if len(self.name_refusals) < _NAME_REFUSALS_MAX:
            self.name_refusals[to] = self._loop.time()

    def note_failure(self, to: Contact, why: str) -> None:
        """Remember why a dial to a seed failed, and log it if the reason is a new one."""
        if not isinstance(to, Seed):
            return
        self._unheard.pop(to, None)
        if self.failures.get(to) != why:
            self.failures[to] = why
            log.warning("%s: seed %s did not accept us: %s", self.transport.me.node, to, why)
