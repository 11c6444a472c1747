"""Dial peers and seeds when there is something to say to them.

After a failed dial a peer is left alone for a while (doubled each time); what is sent to it meanwhile is dropped, as a
network may: whoever sent it says it again. When a peer that could not be reached is back, all others are dialled anew.

A seed is spoken to by its address (a `Seed`) until its hello has told its name. A name is never taken for an address:
what the network says about names cannot choose which code a dial goes through.
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

DIALLED_BYTES_MAX = 2 << 20  # that wait for one stream to come up
_LOOKS_MAX = 16  # nodes that are dialled at a time to see whether anybody is left
_NAME_REFUSALS_MAX = 256
_LOST_S = 0.3  # an attempt to connect that has lasted so long has lost its first packet, or goes very far
_JUST_NOW_S = 5.0  # for so long, and one pause more, it counts that nothing listened at a seed
_FORGET_S = 60.0  # after the pause of a dial that failed and that nobody has asked for since


@dataclass(eq=False)
class Dial:
    """Somebody who is not connected and to whom there is something to say."""

    outbox: Outbox = field(default_factory=lambda: Outbox(DIALLED_BYTES_MAX))
    task: asyncio.Task[None] | None = None
    begun: float = 0.0  # when the present attempt began
    since: float = 0.0  # when the first of the attempts that failed began; 0.0: none has failed
    pause_s: float = 0.0
    not_before: float = 0.0


class Dialing:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.dials: dict[Contact, Dial] = {}
        self.names: dict[Seed, NodeId] = {}  # the name that answered at each seed
        self.failures: dict[Seed, str] = {}  # why the last dial to a seed did not lead to a peer
        self._unheard: dict[Seed, float] = {}  # seeds at whose address nothing listened at the last dial -> when
        self.name_refusals: dict[Contact, float] = {}  # who refused our name in its last word to us -> when
        self._ended: dict[NodeId, int] = {}  # nodes at whose address nothing listens any more -> their incarnations
        self._connecting = 0  # dials whose connection is not there yet
        self._machine = machine()
        self._random = self._machine.random()
        self._loop = asyncio.get_running_loop()
        self._cancelled: list[asyncio.Task[None]] = []  # dials that were under way when we closed

    def close(self) -> None:
        for dial in self.dials.values():
            if dial.task is not None:
                dial.task.cancel()
                self._cancelled.append(dial.task)
        self.dials.clear()

    async def closed(self) -> None:
        await asyncio.gather(*self._cancelled, return_exceptions=True)

    def name_of(self, to: Contact) -> NodeId | None:
        """None for a seed that has not answered yet."""
        return self.names.get(to) if isinstance(to, Seed) else to

    def dial(self, to: Contact, frame: bytes, may_drop: bool) -> None:
        """Keep a frame for somebody who is not connected, and dial it unless that has failed just now."""
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
            place = self._place(to)
            if place is None:
                transport.counters["dropped unaddressed"] += 1
                del self.dials[to]
                return
            # Messages of others can make us dial anybody, anywhere. Seeds and neighbors do not wait for such dials.
            is_busy = self._is_busy and not (isinstance(to, Seed) or transport.is_linked(to))
            if is_busy or not transport.has_room():
                transport.counters["dropped full"] += 1
                del self.dials[to]
                return
            self._begin(to, dial, *place)
        if not dial.outbox.put(frame, may_drop):
            dial.outbox.take()
            transport.counters["dropped dialling"] += 1

    @property
    def _is_busy(self) -> bool:
        return self._connecting >= self.transport.limits.handshakes_max

    def _place(self, to: Contact) -> tuple[str, int] | None:
        if isinstance(to, Seed):
            return to.host, to.port
        known = self.transport.book.find(to)
        return (known.host, known.port) if known is not None else None

    def _begin(self, to: Contact, dial: Dial, host: str, port: int) -> None:
        dial.begun = self._loop.time()
        self._connecting += 1
        dial.task = self._loop.create_task(self._connect(to, host, port))
        dial.task.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._connecting -= 1

    async def _connect(self, to: Contact, host: str, port: int) -> None:
        """The TCP connection has a short limit of its own, so that an attempt during a cut does not outlast it."""
        transport, limits = self.transport, self.transport.limits
        tls = transport.tls.now.dialling if transport.tls is not None else None
        stream = Stream(transport, limits, HELLO_BYTES_MAX)
        stream.tag = Ends(dialled=to)
        try:
            async with asyncio.timeout(limits.handshake_s):
                connected = await self._machine.connect(host, port, limits.connect_s)
                name = host if tls is not None else None
                await self._loop.create_connection(lambda: stream, sock=connected, ssl=tls, server_hostname=name)
        except Exception as error:  # the resolver raises ValueError, too; whatever it is, the dial is tried again
            why = why_not(error, has_tls=tls is not None)
            log.debug("%s: cannot reach %s: %s", transport.me.node, to, why)
            self.name_refusals.pop(to, None)
            self.note_failure(to, why)
            self.failed(to)
            if isinstance(to, Seed):
                if isinstance(error, ConnectionRefusedError):
                    self._unheard[to] = self._loop.time()
            else:
                # Only its own word about its address makes a refusal there a proof that it has ended.
                if isinstance(error, ConnectionRefusedError) and transport.book.is_first_hand(to):
                    self._note_ended(to)
                transport.book.failed(to)

    def failed(self, to: Contact) -> None:
        """A dial did not lead to a peer. Leave it alone for a while."""
        dial, counters, limits = self.dials.get(to), self.transport.counters, self.transport.limits
        if dial is None or self.transport.is_closed:
            return
        counters["dials failed"] += 1
        counters["dropped unreachable"] += len(dial.outbox)
        pause_s = min(max(2 * dial.pause_s, limits.backoff_s), limits.backoff_s_max)
        not_before = self._loop.time() + pause_s * self._random.uniform(0.5, 1.0)
        self.dials[to] = Dial(since=dial.since or dial.begun, pause_s=pause_s, not_before=not_before)

    def reached(self, stream: Stream) -> None:
        """A stream stands: send what has waited for it."""
        ends: Ends = stream.tag
        for one in [one for one in self.name_refusals if self.name_of(one) == ends.peer or one == ends.dialled]:
            del self.name_refusals[one]
        waiting: tuple[Contact, ...] = (ends.dialled, ends.peer)
        was_lost = False
        for one in waiting:
            dial = self.dials.pop(one, None)
            if dial is None:
                continue
            was_lost = was_lost or dial.since > 0
            self._send_waiting(dial, stream)
        if was_lost:
            reached("a peer that could not be reached is back")
            self._healed()

    def found(self, to: Contact, name: NodeId) -> None:
        """A second stream was refused: the seed `to` is the node `name`, to which a stream stands. Use that one.

        A seed that has dialed this node first, or that was dialed by its name, is known only in this way. Otherwise
        all that is sent to the seed would be lost for as long as the other stream stands.
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
        while dial.outbox:
            frame = dial.outbox.take()
            if kind_of(frame) == PIECES and stream.tag.version < PIECES_SINCE:  # said again, and written out then
                self.transport.counters["dropped version"] += 1
                continue
            self.transport.counters["sent"] += 1
            stream.send(frame)

    def _healed(self) -> None:
        """A peer that could not be reached is here again: a network has healed. Try all others anew, at once."""
        now = self._loop.time()
        for to, dial in self.dials.items():
            dial.not_before = 0.0
            place = self._place(to)
            if dial.task is not None and not dial.task.done() and now - dial.begun > _LOST_S and place is not None:
                dial.task.cancel()  # what it has sent was lost, and it would wait before it sends it again
                self._begin(to, dial, *place)

    def sweep(self, now: float) -> None:
        """Forget dials that have failed and that nobody has asked for since."""
        for to, dial in list(self.dials.items()):
            if dial.task is None and now > dial.not_before + _FORGET_S:
                del self.dials[to]
        self._ask_refusers(now)

    def _ask_refusers(self, now: float) -> None:
        """Dial nodes again that refused our name: whether another node has it is known only from their last word."""
        for to in list(self.name_refusals)[:_LOOKS_MAX]:
            dial, place = self.dials.get(to, Dial()), self._place(to)
            if place is None or self.name_of(to) in self.transport.peers:
                del self.name_refusals[to]
            elif dial.task is None and now >= dial.not_before and not self._is_busy and self.transport.has_room():
                self.dials[to] = dial
                self._begin(to, dial, *place)

    # Has a process ended?

    def look_again(self, peer: NodeId) -> None:
        """Dial a peer whose stream broke or who is not connected: a refusal proves that its process has ended."""
        place = self._place(peer)
        if place is None or peer in self.dials or self.transport.is_closed or self._is_busy:
            return
        dial = self.dials[peer] = Dial()
        self._begin(peer, dial, *place)

    def look_at(self, seed: Seed) -> None:
        """Dial a seed although there is nothing to say, unless that has failed just now: does anything listen there?"""
        dial, transport = self.dials.get(seed, Dial()), self.transport
        is_due = dial.task is None and self._loop.time() >= dial.not_before
        if is_due and not transport.is_closed and self.name_of(seed) not in transport.peers and transport.has_room():
            self.dials[seed] = dial
            self._begin(seed, dial, seed.host, seed.port)

    def _note_ended(self, peer: NodeId) -> None:
        """Nothing listens at the address of `peer`. Who is connected to nobody looks whether anybody is left."""
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
        known = self.transport.book.find(node)
        is_connected = node in self.transport.peers
        return known is not None and not is_connected and known.incarnation <= self._ended.get(node, -1)

    def is_switched_off(self, seed: Seed) -> bool:
        """Return whether nothing listens at the address of a seed just now, so no node runs there."""
        found = self._unheard.get(seed)
        return found is not None and self._loop.time() - found < _JUST_NOW_S + self.transport.limits.backoff_s_max

    def note_heard(self, to: Contact) -> None:
        """Something listens at `to`: a connection stands."""
        if isinstance(to, Seed):
            self._unheard.pop(to, None)

    def note_name_refused(self, to: Contact) -> None:
        """Remember that another node of our name is known at `to`, until a dial to it ends otherwise."""
        self.name_refusals.pop(to, None)  # Those asked longest ago come first.
        if len(self.name_refusals) < _NAME_REFUSALS_MAX:
            self.name_refusals[to] = self._loop.time()

    def note_failure(self, to: Contact, why: str) -> None:
        """Remember why a seed is no peer, and log it when the reason is new."""
        if not isinstance(to, Seed):
            return
        self._unheard.pop(to, None)
        if self.failures.get(to) != why:
            self.failures[to] = why
            log.warning("%s: seed %s did not accept us: %s", self.transport.me.node, to, why)
