"""The heartbeat failure detector as a part: asks every watched peer once per period, and suspects the silent ones.

Eventually every crashed peer is suspected; a living one is suspected wrongly now and then, see `suspicion.py` for how
often at which loss. What it found out is taken by `news`: a `Down` once per watched peer, which is then no longer
watched, and an `Again` when a watched peer answers from a newer life: it has forgotten everything about us.

Only the one who watches asks, so that nodes may watch those who do not know them. Where both ends send by themselves
anyway (SpiderCast's heartbeats, Vitis' profiles) a node uses `Suspicion` alone and saves the questions.
"""

from __future__ import annotations

from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.effects import Effects, NodeId, Send, SetTimer
from trellis.protocols.suspicion import RESTARTED, Suspicion
from trellis.protocols.wire import Codec, Count


class DetectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    period_ms: int = 1_000
    """Raising it saves traffic; crashes are noticed later."""

    silence_max: int = 5
    """Rounds without an answer until a peer is suspected. Raising it makes wrong suspicions rarer, right ones later."""

    def __post_init__(self) -> None:
        for field in ("period_ms", "silence_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    incarnation: Count


class Pong(msgspec.Struct, frozen=True, gc=False, tag="pong"):
    incarnation: Count


CODEC: Codec[msgspec.Struct] = Codec(Ping | Pong)


class Down(msgspec.Struct, frozen=True, gc=False):
    peer: NodeId


class Again(msgspec.Struct, frozen=True, gc=False):
    peer: NodeId


News = Down | Again


class HeartbeatDetector:
    def __init__(self, incarnation: int, random: Random, config: DetectorConfig | None = None) -> None:
        self.random, self.config = random, config or DetectorConfig()
        self.suspicion = Suspicion(self.config.silence_max)
        self._ping, self._pong = Ping(incarnation), Pong(incarnation)
        self.found_out: list[News] = []  # and not taken yet

    def watch(self, peer: NodeId) -> None:
        self.suspicion.watch(peer)

    def unwatch(self, peer: NodeId) -> None:
        self.suspicion.unwatch(peer)

    def heard(self, peer: NodeId, incarnation: int | None = None) -> None:
        """Any other message of a peer is as good as an answer."""
        if self.suspicion.heard(peer, incarnation) is RESTARTED:
            self.found_out.append(Again(peer))

    def news(self) -> list[News]:
        """What was found out since this was last asked."""
        news, self.found_out = self.found_out, []
        return news

    def start(self) -> Effects:
        return [SetTimer("detector/tick", 1 + self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        for peer in self.suspicion.tick():
            self._down(peer)
        effects: Effects = [Send(peer, self._ping) for peer in self.suspicion.watched]
        return [*effects, SetTimer("detector/tick", self.config.period_ms)]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        if isinstance(message, Ping):
            self.heard(sender, message.incarnation)
            return [Send(sender, self._pong)]
        if isinstance(message, Pong):
            self.heard(sender, message.incarnation)
        return []

    def on_peer_down(self, peer: NodeId) -> Effects:
        """The driver knows: no need to wait."""
        if peer in self.suspicion:
            self._down(peer)
        return []

    def _down(self, peer: NodeId) -> None:
        self.suspicion.unwatch(peer)
        self.found_out.append(Down(peer))
