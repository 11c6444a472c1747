"""Whether messages that should flow do flow: what /healthz, /readyz and the log say.  [docs/runbook.md, Health]

    leaving   the node leaves in order
    joining   the node has seeds and has not joined
    subscribing  filters that a sidecar remembers are not confirmed yet
    seeds     the node has seeds, and nobody talks to it: one complaint for each seed, with the true reason
    name      another node runs under the name of this one
    certificate  a certificate of this node has ended
    links     a link is up, and its neighbor says nothing on it
    canary    homes of topics do not answer, so publications are not acknowledged
    homes     this node is home of too many topics, and has turned away registrations of subscribers
    window    publications wait or are refused, since the window of this node is full
    broker    the broker of the sidecar is away

Beside these /readyz says `learning`: messages flow, and a SUBACK is no promise yet (`Learning`).

A part of the node that can complain has `complaints`, and is listed in `Health.parts`. A node without seeds is healthy
alone. A node that was given seeds is not: it expects others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import msgspec

from trellis.live.registrations import Registrations
from trellis.live.seeds import Names, Seeds, bounded
from trellis.live.window import Window
from trellis.protocols.delivery.outcome import CANARY
from trellis.protocols.effects import NodeId, Topic

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")

KINDS = (
    "leaving",
    "joining",
    "subscribing",
    "seeds",
    "name",
    "certificate",
    "links",
    "canary",
    "homes",
    "window",
    "broker",
)
LOOK_S = 0.5
COMPLAINTS_MAX = 32  # that are told; a node has many links, and all may be silent


class Complaint(msgspec.Struct, frozen=True):
    """One reason why a node is not healthy, as a sentence."""

    kind: str
    text: str


class Complains(Protocol):
    """A part of a node that knows whether it works."""

    def complaints(self) -> list[str]:
        """Return what is wrong now, one sentence each; nothing if all is well."""
        ...


class Canary:
    """Asks homes of topics of this node's own, as a publication without subscribers does before it is acknowledged.

    A question goes over the ring to the topic's home and its answer comes back, so it needs streams, routes, homes and
    this node's own timers. One question is under way at a time. Topics change, so that other homes are asked. Nobody
    publishes or subscribes on them, so clients never see one.
    """

    EVERY_S = 2.0  # between an answer and the next canary
    AGAIN_S = 1.0  # an unanswered question is repeated so often
    LATE_S = 7.0  # a canary without an answer for so long is a complaint
    TOPICS = 64

    def __init__(
        self,
        node: NodeId,
        ask: Callable[[Topic], None],
        is_home: Callable[[Topic], bool],
        now: Callable[[], float],
        unsure_s_max: float,
    ) -> None:
        """`unsure_s_max`: homes may say for so long that they are not sure. They do so after churn."""
        mark = blake2b(node.encode("utf-8", "replace"), digest_size=8).hexdigest()
        self.topics = [f"{CANARY}{mark}/{number}" for number in range(self.TOPICS)]
        self.sent = self.answered = 0
        self.sure = 0  # answers of sure homes since the last of one that was not
        self.is_hurried = False  # the next canary follows an answer at once
        self._ask, self._is_home, self._now, self._unsure_s_max = ask, is_home, now, unsure_s_max
        self._next = 0
        self._topic: Topic = ""  # of the canary that is under way
        self._since = self._asked = self._due = 0.0
        self._unsure_since: float | None = None

    def look(self) -> None:
        """Send a canary when one is due; repeat a question that has no answer."""
        now = self._now()
        if not self._topic and now >= self._due:
            self._topic, self._since = self._choose(), now
            self.sent += 1
        elif not self._topic or now - self._asked < self.AGAIN_S:
            return
        self._asked = now
        self._ask(self._topic)

    def rest(self) -> None:
        """Nobody is expected to answer now: forget the canary that is under way."""
        self._topic, self._unsure_since = "", None

    def heard(self, topic: Topic, is_sure: bool) -> None:
        if topic != self._topic:
            return
        self._topic, self._due = "", self._now() + (0.0 if self.is_hurried else self.EVERY_S)
        self.answered += 1
        self.sure = self.sure + 1 if is_sure else 0
        if is_sure:
            self._unsure_since = None
        elif self._unsure_since is None:
            self._unsure_since = self._now()

    def complaints(self) -> list[str]:
        now = self._now()
        if self._topic and now - self._since >= self.LATE_S:
            seconds = int(now - self._since)
            return [f"A canary publication has had no answer for {seconds} s: publications here are not acknowledged."]
        if self._unsure_since is not None and now - self._unsure_since > self._unsure_s_max:
            seconds = int(now - self._unsure_since)
            return [f"Homes of topics have not been sure for {seconds} s: publications wait for their acknowledgement."]
        return []

    def _choose(self) -> Topic:
        """A topic whose home is another node, if there is one: the question then crosses the network."""
        for _ in self.topics:
            topic = self.topics[self._next]
            self._next = (self._next + 1) % len(self.topics)
            if not self._is_home(topic):
                break
        return topic


class Links:
    """Which neighbors say nothing on a link that is up. Overlays send heartbeats on every link."""

    SILENT_S = 4.0
    PERIODS = 4  # or so many periods of the overlay, if that is longer

    def __init__(
        self, period_s: float, now: Callable[[], float], unanswered: Callable[[], dict[NodeId, float]] = dict
    ) -> None:
        """`unanswered` tells which peers owe an answer to a ping of the transport, and for how many seconds."""
        self._unanswered = unanswered
        self.heard: dict[NodeId, float] = {}
        self.heard_any = now()  # of any node, neighbor or not: gossip comes from somebody in every period
        self.period_s = period_s
        self._silent_s, self._now = max(self.SILENT_S, self.PERIODS * period_s), now

    def up(self, peer: NodeId) -> None:
        self.heard[peer] = self._now()

    def down(self, peer: NodeId) -> None:
        self.heard.pop(peer, None)

    def hears(self, peer: NodeId) -> None:
        self.heard_any = self._now()
        if peer in self.heard:
            self.heard[peer] = self.heard_any

    def silence_s(self) -> float:
        """Return for how long nobody at all has said anything; 0 if that is no longer than usual."""
        seconds = self._now() - self.heard_any
        return seconds if seconds >= self._silent_s else 0.0

    def begin_anew(self) -> None:
        self.heard_any = self._now()
        self.heard = dict.fromkeys(self.heard, self.heard_any)

    def silent_s(self, peer: NodeId) -> float:
        return self._now() - self.heard.get(peer, self._now())

    def complaints(self) -> list[str]:
        late = self._unanswered()
        silent = [(peer, max(self.silent_s(peer), late.get(peer, 0.0))) for peer in self.heard]
        return [
            f"Neighbor {peer} has answered nothing for {int(seconds)} s on a link that is up."
            for peer, seconds in silent
            if seconds >= self._silent_s
        ]


class Learning:
    """Whether a node with MQTT clients cannot promise yet, since its start, what SUBACK says.

    A subscription is confirmed when the home of its topic is sure, and a wildcard when all other nodes with a listener
    or a sidecar have taken it in. What makes homes unsure later is not looked at: one node that comes or goes would
    make many nodes refuse clients.
    """

    SURE = 4  # canaries, one after another, that were answered by homes that are sure
    S_MAX = 60.0  # after it has joined, a node is given clients all the same

    def __init__(self, node: LiveNode, canary: Canary | None, now: Callable[[], float]) -> None:
        """`canary`: None where homes are not asked, or where there are none."""
        self._node, self._canary, self._now = node, canary, now
        self._joined: float | None = None
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        return self._node.mqtt is not None and not self._is_over

    def look(self) -> None:
        """Call it now and then, while the node is part of the mesh."""
        mqtt, mesh, canary = self._node.mqtt, self._node.mesh, self._canary
        if mqtt is None or self._is_over:
            return
        self._joined = self._now() if self._joined is None else self._joined
        are_sure = mesh.delivery.homes.is_sure or not mesh.overlay.has_homes
        are_sure = are_sure and (canary is None or canary.sure >= self.SURE)
        is_late = self._now() - self._joined >= self.S_MAX
        self._is_over = is_late or (are_sure and mqtt.host.directory.is_informed)
        if canary is not None:
            canary.is_hurried = not self._is_over


class Health:
    def __init__(self, node: LiveNode) -> None:
        self.node = node
        loop = asyncio.get_running_loop()
        mesh, config = node.mesh, node.config
        overlay = mesh.overlay
        unsure_s_max = max(30.0, 3 * config.delivery.registered_ms / 1_000)
        self.canary = Canary(node.name, node.ask_home, overlay.is_home, loop.time, unsure_s_max)
        self.links = Links(period_s(node), loop.time, node.transport.unanswered)
        self.seeds = Seeds(node)
        self.names = Names(node.transport.name_refusals, node.name, loop.time)
        self.window = Window(mesh.delivery, loop.time)
        self.parts: list[tuple[str, Complains]] = [("seeds", self.seeds), ("name", self.names), ("links", self.links)]
        self.parts.append(("window", self.window))
        self.registrations = Registrations(mesh.delivery.homes, loop.time)
        self.parts.append(("homes", self.registrations))
        if overlay.has_homes:
            self.parts.append(("canary", self.canary))
        self._has_canary = overlay.has_homes and bool(config.admin_listen)
        self.learning = Learning(node, self.canary if self._has_canary else None, loop.time)
        self._loop, self._timer = loop, None
        self._told: list[str] = []

    _timer: asyncio.TimerHandle | None

    def start(self) -> None:
        if self.node.mqtt is not None:
            self.parts.append(("broker", self.node.mqtt))
        self.parts += [("certificate", credentials) for credentials in self.node.credentials()]
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def complaints(self) -> list[Complaint]:
        """Return why the node is not healthy; nothing if it is."""
        trouble = not_ready(self.node)
        if trouble == "leaving":
            return [Complaint("leaving", "The node is leaving the mesh.")]
        found = [Complaint("joining", "The node has not joined the mesh yet.")] if trouble else []
        if self.node.mqtt is not None:
            found += [Complaint("subscribing", text) for text in self.node.mqtt.unready()]
        for kind, part in self.parts:
            found += [Complaint(kind, bounded(text)) for text in part.complaints()]
        return found[:COMPLAINTS_MAX]

    def stood_still(self) -> None:
        """The process did not run for a while: what it did not hear meanwhile is nobody's fault."""
        self.links.begin_anew()
        self.canary.rest()

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self.seeds.look()
        if self._has_canary:
            if not_ready(self.node) or self.seeds.complaints():
                self.canary.rest()
            else:
                self.canary.look()
        if not not_ready(self.node):
            self.learning.look()
        self.window.look()
        self.registrations.look()
        self.node.story.look()
        self._tell()

    def _tell(self) -> None:
        """Log when health changes. Joining and leaving have lines of their own; subscribing is over soon."""
        if self.node.mesh.is_leaving:
            return  # what it complained about before is not over
        silent = ("joining", "subscribing", "leaving", *(() if self.node.story.has_joined else ("seeds",)))
        found = [one.text for one in self.complaints() if one.kind not in silent]
        if found and not self._told:
            log.warning("%s: is not healthy: %s", self.node.name, " ".join(found))
        elif self._told and not found:
            log.info("%s: is healthy again", self.node.name)
        self._told = found


def unready(node: LiveNode) -> str:
    """Return why the node should not be given clients now, or nothing.

    "leaving", "joining", "subscribing" (a sidecar), or "learning": a SUBACK for an MQTT client may be no promise yet.
    """
    trouble = not_ready(node)
    if trouble or node.mqtt is None:
        return trouble
    return "subscribing" if node.mqtt.unready() else "learning" if node.health.learning.is_under_way else ""


def not_ready(node: LiveNode) -> str:
    """Return why the node is no part of the mesh now: "leaving", "joining", or nothing."""
    if node.mesh.is_leaving:
        return "leaving"
    parts = getattr(node.mesh.overlay.node, "parts", None)
    is_joining = getattr(parts, "is_joining", not node.transport.peers)  # other overlays: a peer was met
    return "joining" if is_joining and node.health.seeds.others() else ""


def period_s(node: LiveNode) -> float:
    """Return the time between two heartbeats of the overlay."""
    config = node.config
    period_ms = {
        "omen": config.omen.period_ms,
        "spidercast": config.spidercast.heartbeat_ms,
        "vitis": config.vitis.period_ms,
        "magnet": config.magnet.skewed.beat_ms,
    }
    return period_ms[config.overlay] / 1_000
