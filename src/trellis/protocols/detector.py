"""The heartbeat failure detector: ping every watched peer once per period, and suspect those that do not answer.

Every crashed peer is suspected in the end. Now and then a running one is suspected wrongly; `suspicion.py` says how
often. The owner takes the results with `news`. A `Down` is given once for a watched peer, which is no longer watched
then. An `Again` is given when a watched peer has restarted: it answers with a later incarnation and has forgotten
everything about us.

Only the watching node sends pings, so a node may watch peers that do not know it. If both ends of a link send regularly
in any case (SpiderCast's heartbeats, Vitis' profiles), a node uses `Suspicion` alone and needs no pings.
"""

from __future__ import annotations

from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.effects import Effects, NodeId, Send, SetTimer
from trellis.protocols.suspicion import RESTARTED, Suspicion
from trellis.protocols.wire import Codec, Count


class DetectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `HeartbeatDetector`."""

    period_ms: int = 1_000
    """Time between two pings. Raising it saves traffic, but crashes are noticed later."""

    silence_max: int = 5
    """Rounds without an answer until a peer is suspected. Raising it makes wrong suspicions rarer, and right ones
    later."""

    def __post_init__(self) -> None:
        for field in ("period_ms", "silence_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """Ask a watched peer whether it is running. Has the incarnation of the sender."""

    incarnation: Count


class Pong(msgspec.Struct, frozen=True, gc=False, tag="pong"):
    """Answer a ping. Has the incarnation of the sender."""

    incarnation: Count


CODEC: Codec[msgspec.Struct] = Codec(Ping | Pong)


class Down(msgspec.Struct, frozen=True, gc=False):
    """Report that a watched peer is suspected to have crashed. It is no longer watched."""

    peer: NodeId


class Again(msgspec.Struct, frozen=True, gc=False):
    """Report that a watched peer has restarted. It is still watched."""

    peer: NodeId


News = Down | Again


class HeartbeatDetector:
    """The failure detector part of a node. It has one timer, `detector/tick`."""

    def __init__(self, incarnation: int, random: Random, config: DetectorConfig | None = None) -> None:
        self.random, self.config = random, config or DetectorConfig()
        self.suspicion = Suspicion(self.config.silence_max)
        self._ping, self._pong = Ping(incarnation), Pong(incarnation)
        self.found_out: list[News] = []  # results that `news` has not returned yet

    def watch(self, peer: NodeId) -> None:
        """Watch a peer from now on. This changes nothing if it is watched already."""
        self.suspicion.watch(peer)

    def unwatch(self, peer: NodeId) -> None:
        """Stop watching a peer."""
        self.suspicion.unwatch(peer)

    def heard(self, peer: NodeId, incarnation: int | None = None) -> None:
        """Note a message of a peer, of any kind: it counts as an answer."""
        if self.suspicion.heard(peer, incarnation) is RESTARTED:
            self.found_out.append(Again(peer))

    def news(self) -> list[News]:
        """Return the results since the last call."""
        news, self.found_out = self.found_out, []
        return news

    def start(self) -> Effects:
        """Set the timer of the first round, at a random time within one period."""
        return [SetTimer("detector/tick", 1 + self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        """End a round: suspect the peers that were silent for too long, and ping the others."""
        for peer in self.suspicion.tick():
            self._down(peer)
        effects: Effects = [Send(peer, self._ping) for peer in self.suspicion.watched]
        return [*effects, SetTimer("detector/tick", self.config.period_ms)]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Answer a ping, and note the sender of a ping or an answer as running."""
        if isinstance(message, Ping):
            self.heard(sender, message.incarnation)
            return [Send(sender, self._pong)]
        if isinstance(message, Pong):
            self.heard(sender, message.incarnation)
        return []

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Report a watched peer as down at once, because the driver knows it."""
        if peer in self.suspicion:
            self._down(peer)
        return []

    def _down(self, peer: NodeId) -> None:
        self.suspicion.unwatch(peer)
        self.found_out.append(Down(peer))
