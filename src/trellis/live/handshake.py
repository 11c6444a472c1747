"""The handshake of a stream between nodes: hellos, refusals, and which of two streams of the same name is kept.

The dialing node sends its hello first. The other one answers with its own hello, or with `Refused`. Both ends check the
hello that they get. It is accepted if protocol version, cluster and overlay agree, and if the certificate (with TLS)
names the node.

There is at most one stream for each name. Let a stream stand when a hello with the same name comes on another one, the
newcomer:

- A newcomer of an earlier incarnation is refused ("old").
- Two nodes of the same incarnations may dial each other at the same time. Both then keep the stream that the node with
  the smaller name dialed, and refuse the other one ("second").
- In all other cases the newcomer replaces the stream that stands: it is of a later incarnation, or it was dialed by the
  same node as the first stream. With TLS this happens at once, because the certificate proves the name.

Without TLS any process can claim any name. So if the stream that stands seems to work, a *contest* begins. That stream
is asked for a proof that it works (`Ping`), and the newcomer waits. If the proof comes, the newcomer is refused
("taken", or "second" if it is of the same incarnation). If the stream ends, or does not answer within `CONTEST_S`, the
newcomer replaces it. This does not delay a node that has restarted, since its old stream has ended.

The transport calls `greet` for each frame before the hello is accepted, and `ended` and `proved` for all streams.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trellis.live.ends import Ends
from trellis.live.frames import (
    BODY_BYTES_MAX,
    PINGS_SINCE,
    PROTOCOL,
    Hello,
    Ping,
    Refused,
    pack_control,
    read_control,
)
from trellis.live.log import Sparing
from trellis.live.stream import Stream
from trellis.live.tls import why_not_node
from trellis.protocols.effects import NodeId, Seed
from trellis.protocols.wire import WireError
from trellis.reached import reached

if TYPE_CHECKING:
    from trellis.live.transport import Transport

log = logging.getLogger("trellis.live")

REFUSALS = frozenset(("version", "cluster", "overlay", "self", "certificate", "name", "old", "second", "taken", "tls"))
CONTEST_S = 1.0  # how long a newcomer waits for the proof; a proof also counts for so long
_REASON_LETTERS = 512  # most letters of a refusal's text, since it quotes names that a peer chose
_PING = pack_control(Ping())


class Handshake:
    """Decide which streams of the transport are accepted."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._sparing = Sparing()
        self._loop = asyncio.get_running_loop()
        # By name: newcomers that wait for the end of a contest, with the timers by which they win it.
        self._contests: dict[NodeId, dict[Stream, asyncio.TimerHandle]] = {}
        self._proved: dict[NodeId, float] = {}  # when the stream of a name last won a contest

    def hello(self) -> Hello:
        """Return the hello of this node."""
        transport = self.transport
        return Hello(PROTOCOL, transport.speaks[1], transport.cluster, transport.overlay, transport.me)

    def greet(self, stream: Stream, body: bytes) -> None:
        """Take in a frame of a stream whose hello is not accepted yet. Raise WireError if it is no hello.

        The result is that the transport adopts the stream, that the stream is refused, or that a contest begins.
        """
        ends: Ends = stream.tag
        if ends.claim is not None:
            ends.early.append(body)  # it sends more while the contest runs
            return
        message = read_control(body)
        if isinstance(message, Refused) and ends.dialled:
            self.was_refused(stream, message)
            return
        if not isinstance(message, Hello):
            raise WireError("no hello")
        refusal = self._refusal(message) or self._misnamed(stream, message) or self._of_streams(stream, message)
        if refusal is not None:
            self.refuse(stream, refusal, is_question=message.address.incarnation == 0)
            if refusal.kind == "second":
                self.transport.dialing.found(ends.dialled, message.address.node)
        elif ends.claim is None:
            self.transport.adopt(stream, message)

    # Refusals

    def _refusal(self, hello: Hello) -> Refused | None:
        """Return the refusal of a hello that does not fit this node: version, cluster, overlay, or our own name."""
        transport, me = self.transport, self.transport.me
        oldest, newest = transport.speaks
        if hello.protocol != PROTOCOL or hello.version < oldest:
            mine = f"{PROTOCOL} {newest}" + (f" and {oldest}" if oldest < newest else "")
            who = f"{hello.address.node} speaks {hello.protocol} {hello.version}"
            return Refused("version", f"{who}, too old for {me.node}, which speaks {mine}; upgrade it")
        if hello.cluster != transport.cluster:
            return Refused("cluster", f'this node is of cluster "{transport.cluster}"')
        if hello.overlay != transport.overlay:
            return Refused("overlay", f"this mesh runs {transport.overlay}")
        if hello.address.node == me.node:
            if hello.address != me:
                return Refused("taken", f"another node is named {me.node}: names must be unique in a cluster")
            return Refused("self", "this is you")
        return None

    def _misnamed(self, stream: Stream, hello: Hello) -> Refused | None:
        """Return the refusal of a node whose certificate is not one of a node with its name. Without TLS: None."""
        has_tls = self.transport.tls is not None
        why = why_not_node(stream.certificate(), hello.address.node) if has_tls else ""
        return Refused("certificate", why[:_REASON_LETTERS]) if why else None

    def _of_streams(self, stream: Stream, hello: Hello) -> Refused | None:
        """Return the refusal of a hello because of the name that we dialed, or because of a stream that stands.

        None: the stream is accepted, or it waits for the end of a contest (`Ends.claim` is set then).
        """
        transport, ends = self.transport, stream.tag
        peer, incarnation = hello.address.node, hello.address.incarnation
        if ends.dialled and not isinstance(ends.dialled, Seed) and ends.dialled != peer:
            transport.book.forget(ends.dialled)
            return Refused("name", f"{ends.dialled} is not there, {peer} is")
        old = transport.peers.get(peer)
        if old is None:
            return None
        before: Ends = old.tag
        if incarnation < before.incarnation:
            return Refused("old", f"a later life of {peer} is connected")
        is_same_dialler = bool(ends.dialled) == bool(before.dialled)
        is_by_smaller = bool(ends.dialled) == (transport.me.node < peer)
        is_alive = not before.proof.waits_s(self._loop.time())  # else it may be dead, and the peer has noticed it first
        if incarnation == before.incarnation and not is_same_dialler and not is_by_smaller and is_alive:
            return self._second()
        # If two nodes dial each other at once, both must decide by the names alone. So a stream that we dialed needs no
        # contest.
        is_race = ends.dialled and incarnation == before.incarnation
        if is_alive and not is_race and transport.tls is None and before.version >= PINGS_SINCE:
            if self._loop.time() < self._proved.get(peer, 0.0) + CONTEST_S:
                return self._stands(peer, incarnation)  # it has just given a proof
            self._contest(stream, hello, old)
        return None

    def refuse(self, stream: Stream, refusal: Refused, *, is_question: bool = False) -> None:
        """Refuse a stream and close it. Log and count the refusal unless it is a normal event.

        The peer is told if it dialed us, and always if its version or certificate is the reason. `is_question`: the
        hello came from `trellis doctor`, which uses the name of a node that may run. That is a normal event.
        """
        transport, ends = self.transport, stream.tag
        if not ends.dialled or refusal.kind in ("version", "certificate"):
            stream.send(pack_control(refusal))
        elif refusal.kind == "self" and isinstance(ends.dialled, Seed):
            transport.names[ends.dialled] = transport.me.node  # our own address is among the seeds
        if ends.dialled:
            ends.why = refusal.text
            if refusal.kind not in ("second", "self"):
                transport.dialing.note_failure(ends.dialled, f"this node refused it: {refusal.text}")
        is_normal = refusal.kind in ("second", "self") or (is_question and refusal.kind in ("old", "taken", "version"))
        if not is_normal:
            if self._sparing.may_say("refused", refusal.text):
                log.warning("%s: refused a peer: %s", transport.me.node, refusal.text)
            transport.counters[f"cut {refusal.kind}"] += 1
        stream.close()

    def was_refused(self, stream: Stream, refusal: Refused) -> None:
        """Note that a peer refused us: count it, log it, remember the reason, and close the stream."""
        transport = self.transport
        dialled = stream.tag.dialled or stream.tag.peer
        # Unknown kinds are of a newer version, or invented. They must not become an unlimited number of metrics.
        kind = refusal.kind if refusal.kind in REFUSALS else "other"
        transport.counters[f"refused {kind}"] += 1
        text = refusal.text
        stream.tag.why = text or kind
        if kind in ("old", "taken"):
            transport.dialing.note_name_refused(dialled)
        if refusal.kind not in ("second", "self"):
            transport.dialing.note_failure(dialled, f"it refused this node ({kind}): {text}")
        if refusal.kind == "second" and refusal.node is not None:
            transport.dialing.found(dialled, refusal.node)
        if refusal.kind == "self" and isinstance(dialled, Seed):
            transport.names[dialled] = transport.me.node
        elif (
            refusal.kind not in ("second", "self")
            and not isinstance(dialled, Seed)
            and self._sparing.may_say(dialled, text)
        ):
            log.warning("%s: %s refuses us: %s", transport.me.node, dialled, text)
        stream.close()

    def speaks_tls(self) -> None:
        """Log that a peer began a TLS handshake and this node has no TLS."""
        if self._sparing.may_say("tls"):
            why = "it speaks TLS, and this node does not: see [tls]"
            log.warning("%s: refused a peer: %s", self.transport.me.node, why)

    # Contests

    def _contest(self, stream: Stream, hello: Hello, old: Stream) -> None:
        """Let a newcomer wait, and ask the stream that stands for a proof unless another newcomer has caused that."""
        stream.tag.claim = hello
        stream.splitter.body_bytes_max = BODY_BYTES_MAX  # bytes that were read already may contain a message
        stream.pause_reading()
        peer = hello.address.node
        is_first = peer not in self._contests
        timer = self._loop.call_later(CONTEST_S, self._take_over, peer, stream)
        self._contests.setdefault(peer, {})[stream] = timer
        if is_first:
            old.send(_PING)

    def proved(self, peer: NodeId) -> None:
        """Refuse all newcomers with the name of `peer`, because its stream has answered a ping."""
        for stream, timer in self._contests.pop(peer, {}).items():
            timer.cancel()
            self._proved[peer] = self._loop.time()
            self.refuse(stream, self._stands(peer, stream.tag.claim.address.incarnation))

    def _stands(self, peer: NodeId, incarnation: int) -> Refused:
        """Return the refusal of a newcomer that has lost a contest: its peer's stream stands and works."""
        standing = self.transport.peers.get(peer)
        if standing is not None and incarnation == standing.tag.incarnation:
            return self._second()
        return Refused("taken", f"a node named {peer} is connected and answers: names must be unique in a cluster")

    def _second(self) -> Refused:
        """Return the refusal of a second stream. It names this node, whose name a dialer of a seed does not know."""
        return Refused("second", "another stream is there", self.transport.me.node)

    def ended(self, stream: Stream) -> None:
        """Note the end of a stream. A newcomer leaves its contest. If the stream stood, a newcomer replaces it."""
        ends: Ends = stream.tag
        if ends.claim is not None:
            peer = ends.claim.address.node
            others = self._contests.get(peer, {})
            timer = others.pop(stream, None)
            if timer is not None:
                timer.cancel()
            if not others:
                self._contests.pop(peer, None)
        elif ends.peer not in self.transport.peers:
            self._proved.pop(ends.peer, None)
        if ends.claim is None and ends.peer in self._contests and ends.peer not in self.transport.peers:
            self._take_over(ends.peer, next(iter(self._contests[ends.peer])))

    def _take_over(self, peer: NodeId, stream: Stream) -> None:
        """Let a newcomer win its contest: the transport adopts it. Other newcomers with the same name are refused."""
        reached("a newcomer takes over a name")
        others = self._contests.pop(peer, {})
        for rival, timer in others.items():
            timer.cancel()
            if rival is not stream:
                self.refuse(rival, self._second())
        ends: Ends = stream.tag
        claim, ends.claim = ends.claim, None
        assert claim is not None
        self.transport.adopt(stream, claim)
        early, ends.early = ends.early, []
        stream.resume_reading()
        try:
            for body in early:
                if not stream.is_ended:
                    self.transport.received(stream, body)
        except WireError:
            stream.cut("garbage")
