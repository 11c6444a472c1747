"""The first words on a stream between nodes: hellos, refusals, and which of two streams of a name is kept.

Two nodes may dial each other at once. Both ends keep the stream that the smaller name has dialled, unless the other
stream stands at both ends before. A second stream of the same dialler, or of a later incarnation, replaces the first.
With TLS a name is proven by a certificate, so that happens at once.

Without TLS anybody can say any name. So while a stream stands, a newcomer under its name waits until the stream was
asked for a proof of life (`Ping`). If it answers, the newcomer is refused. If it ends, or does not answer within
`CONTEST_S`, the newcomer takes its place. A node that has restarted is not held up by this: its old stream has ended.
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
CONTEST_S = 1.0
_REASON_LETTERS = 512  # of a refusal's text; names in it are the peer's
_PING = pack_control(Ping())


class Handshake:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._sparing = Sparing()
        self._loop = asyncio.get_running_loop()
        self._contests: dict[NodeId, dict[Stream, asyncio.TimerHandle]] = {}  # newcomers under names that stand
        self._proved: dict[NodeId, float] = {}  # when a peer whose name was contested has answered

    def hello(self) -> Hello:
        transport = self.transport
        return Hello(PROTOCOL, transport.speaks[1], transport.cluster, transport.overlay, transport.me)

    def greet(self, stream: Stream, body: bytes) -> None:
        ends: Ends = stream.tag
        if ends.claim is not None:
            ends.early.append(body)  # its hello is being looked into, and it goes on talking
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
        """With TLS a node must show a node's certificate of its name: its messages would be believed."""
        has_tls = self.transport.tls is not None
        why = why_not_node(stream.certificate(), hello.address.node) if has_tls else ""
        return Refused("certificate", why[:_REASON_LETTERS]) if why else None

    def _of_streams(self, stream: Stream, hello: Hello) -> Refused | None:
        """Refuse a hello because of whom we dialled, or because of the stream that stands under its name."""
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
        is_alive = not before.proof.waits_s(self._loop.time())  # else it may be dead, and only the peer knows
        if incarnation == before.incarnation and not is_same_dialler and not is_by_smaller and is_alive:
            return self._second()
        # Of two nodes that dial each other at once, each takes what it has dialled by the rule: both must do the same.
        is_race = ends.dialled and incarnation == before.incarnation
        if is_alive and not is_race and transport.tls is None and before.version >= PINGS_SINCE:
            if self._loop.time() < self._proved.get(peer, 0.0) + CONTEST_S:
                return self._stands(peer, incarnation)  # it has just answered: nobody need ask it again
            self._contest(stream, hello, old)
        return None

    def refuse(self, stream: Stream, refusal: Refused, *, is_question: bool = False) -> None:
        """`is_question`: of `trellis doctor`, under the name of a node that may run. That alarms nobody."""
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
        transport = self.transport
        dialled = stream.tag.dialled or stream.tag.peer
        # Other kinds are of a newer version, or made up: they must not become labels of metrics without end.
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
        """A peer began a TLS handshake where we speak none."""
        if self._sparing.may_say("tls"):
            why = "it speaks TLS, and this node does not: see [tls]"
            log.warning("%s: refused a peer: %s", self.transport.me.node, why)

    # Contests: without TLS, a newcomer under a name whose stream stands

    def _contest(self, stream: Stream, hello: Hello, old: Stream) -> None:
        stream.tag.claim = hello
        stream.splitter.body_bytes_max = BODY_BYTES_MAX  # what is here already may go on with a message
        stream.pause_reading()
        peer = hello.address.node
        is_first = peer not in self._contests
        timer = self._loop.call_later(CONTEST_S, self._take_over, peer, stream)
        self._contests.setdefault(peer, {})[stream] = timer
        if is_first:
            old.send(_PING)

    def proved(self, peer: NodeId) -> None:
        """The stream that stands has answered: whoever else has come under its name is refused."""
        for stream, timer in self._contests.pop(peer, {}).items():
            timer.cancel()
            self._proved[peer] = self._loop.time()
            self.refuse(stream, self._stands(peer, stream.tag.claim.address.incarnation))

    def _stands(self, peer: NodeId, incarnation: int) -> Refused:
        """Return the refusal of a newcomer under a name whose stream stands and answers."""
        standing = self.transport.peers.get(peer)
        if standing is not None and incarnation == standing.tag.incarnation:
            return self._second()
        return Refused("taken", f"a node named {peer} is connected and answers: names must be unique in a cluster")

    def _second(self) -> Refused:
        return Refused("second", "another stream is there", self.transport.me.node)

    def ended(self, stream: Stream) -> None:
        """A stream has ended: if it was a newcomer, it wants nothing more; if it stood, a newcomer takes its place."""
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
        """Take the newcomer. Others that have come under the same name meanwhile are refused."""
        reached("a newcomer takes over a name")
        others = self._contests.pop(peer, {})
        for one, timer in others.items():
            timer.cancel()
            if one is not stream:
                self.refuse(one, self._second())
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
