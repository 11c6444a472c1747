"""Health of a node: whether messages flow. /healthz, /readyz and the log report it.  [docs/runbook.md, Health]

A node is healthy if it has no complaints. These kinds of complaints exist (`KINDS`):

    leaving      the node leaves in order
    joining      the node has seeds and has not joined
    subscribing  the filters of a sidecar are not confirmed yet
    seeds        the node has seeds, and no other node sends anything: one complaint for each seed, with the reason
    name         another node runs under the name of this one
    certificate  a certificate of this node has expired, or is not valid yet
    links        a link is up, and its neighbor sends nothing
    canary       homes of topics do not answer, so publications are not acknowledged
    homes        this node is home of too many topics, and has turned away registrations of subscribers
    window       publications wait or are refused, because the window of this node is full
    broker       the sidecar's broker is away or does not work as it should, or messages of MQTT clients were set aside

/readyz tells whether the node should be given clients. It also knows the state `learning`: messages flow, but a SUBACK
is no promise yet (`Learning`).

Each part of the node that can complain is listed in `Health.parts`. A timer calls `Health._look` every `LOOK_S`: it
lets the parts look at their state, and logs when health changes. A node without seeds is healthy without peers. A node
with seeds is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import msgspec

from trellis.live.registrations import Registrations
from trellis.live.seeds import Names, Seeds, bounded
from trellis.live.window import Window
from trellis.protocols.delivery.outcome import CANARY
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.overlays import overlay_of

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
LOOK_S = 0.5  # seconds between two looks
COMPLAINTS_MAX = 32  # most complaints that are reported: all of many links may be silent


class Complaint(msgspec.Struct, frozen=True):
    """One reason why a node is not healthy, as a sentence."""

    kind: str
    text: str


class Complains(Protocol):
    """A part of a node that knows whether it works."""

    def complaints(self) -> list[str]:
        """Return what is wrong now, one sentence each. Empty if all is well."""
        ...


class Canary:
    """Test whether publications would be acknowledged: ask homes of topics, as a publication without subscribers does.

    A canary is one such question. It travels along the ring to the home of a topic, and the answer comes back. So it
    tests streams, routes, homes and this node's own timers. One canary is under way at a time. The topics belong to
    this node, and they are used in turn so that different homes are asked. Nobody publishes or subscribes on them, so
    clients never see them.
    """

    EVERY_S = 2.0  # seconds between an answer and the next canary
    AGAIN_S = 1.0  # An unanswered question is repeated after so many seconds.
    LATE_S = 7.0  # A canary without an answer for so many seconds is a complaint.
    TOPICS = 64  # number of topics

    def __init__(
        self,
        node: NodeId,
        ask: Callable[[Topic], None],
        is_home: Callable[[Topic], bool],
        now: Callable[[], float],
        unsure_s_max: float,
    ) -> None:
        """`ask` sends a question to the home of a topic. `is_home`: whether this node is the home itself.

        `unsure_s_max`: seconds for which homes may answer that they are not sure, before it is a complaint. They do so
        for a while after churn.
        """
        mark = blake2b(node.encode("utf-8", "replace"), digest_size=8).hexdigest()
        self.topics = [f"{CANARY}{mark}/{number}" for number in range(self.TOPICS)]
        self.sent = self.answered = 0
        self.sure = 0  # answers in a row from homes that were sure
        self.is_hurried = False  # The next canary follows an answer without a pause.
        self._ask, self._is_home, self._now, self._unsure_s_max = ask, is_home, now, unsure_s_max
        self._next = 0
        self._topic: Topic = ""  # Topic of the canary that is under way. Empty: there is none.
        # When the present canary was first sent, when it was last sent, and when the next one is due.
        self._since = self._asked = self._due = 0.0
        self._unsure_since: float | None = None  # Since when all answers came from homes that were not sure.

    def look(self) -> None:
        """Send a canary if one is due. Repeat a question that has no answer."""
        now = self._now()
        if not self._topic and now >= self._due:
            self._topic, self._since = self._choose(), now
            self.sent += 1
        elif not self._topic or now - self._asked < self.AGAIN_S:
            return
        self._asked = now
        self._ask(self._topic)

    def rest(self) -> None:
        """Forget the canary that is under way, because no answer is expected now."""
        self._topic, self._unsure_since = "", None

    def heard(self, topic: Topic, is_sure: bool) -> None:
        """Take in the answer of a home. `is_sure`: the home knows all subscribers of the topic."""
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
        """Return a complaint if an answer is late, or if homes have not been sure for too long."""
        now = self._now()
        if self._topic and now - self._since >= self.LATE_S:
            seconds = int(now - self._since)
            return [f"A canary publication has had no answer for {seconds} s: publications here are not acknowledged."]
        if self._unsure_since is not None and now - self._unsure_since > self._unsure_s_max:
            seconds = int(now - self._unsure_since)
            return [f"Homes of topics have not been sure for {seconds} s: publications wait for their acknowledgement."]
        return []

    def _choose(self) -> Topic:
        """Return the next topic, if possible one whose home is another node, so that the question uses the network."""
        for _ in self.topics:
            topic = self.topics[self._next]
            self._next = (self._next + 1) % len(self.topics)
            if not self._is_home(topic):
                break
        return topic


class Links:
    """Find neighbors that send nothing on a link that is up. Overlays send heartbeats on every link."""

    SILENT_S = 4.0  # A neighbor is silent after so many seconds,
    PERIODS = 4  # or after so many periods of the overlay, if that is longer.

    def __init__(
        self, period_s: float, now: Callable[[], float], unanswered: Callable[[], dict[NodeId, float]] = dict
    ) -> None:
        """`unanswered` returns the peers that owe an answer to a ping, and for how many seconds each."""
        self._unanswered = unanswered
        self.heard: dict[NodeId, float] = {}  # When each neighbor was last heard, or its link came up.
        self.heard_any = now()  # When any node was last heard. Some node sends gossip in every period.
        self.period_s = period_s
        self._silent_s, self._now = max(self.SILENT_S, self.PERIODS * period_s), now

    def up(self, peer: NodeId) -> None:
        """Note that a link has come up."""
        self.heard[peer] = self._now()

    def down(self, peer: NodeId) -> None:
        """Note that a link is no longer up."""
        self.heard.pop(peer, None)

    def hears(self, peer: NodeId) -> None:
        """Note that a message of a node has come, neighbor or not."""
        self.heard_any = self._now()
        if peer in self.heard:
            self.heard[peer] = self.heard_any

    def silence_s(self) -> float:
        """Return for how many seconds no node at all has sent anything. 0 if that is not unusually long."""
        seconds = self._now() - self.heard_any
        return seconds if seconds >= self._silent_s else 0.0

    def begin_anew(self) -> None:
        """Count all silences from now on."""
        self.heard_any = self._now()
        self.heard = dict.fromkeys(self.heard, self.heard_any)

    def silent_s(self, peer: NodeId) -> float:
        """Return for how many seconds a neighbor has sent nothing. 0 if the peer is no neighbor."""
        return self._now() - self.heard.get(peer, self._now())

    def complaints(self) -> list[str]:
        """Return a complaint for each neighbor that is silent, or that does not answer pings."""
        late = self._unanswered()
        silent = [(peer, max(self.silent_s(peer), late.get(peer, 0.0))) for peer in self.heard]
        return [
            f"Neighbor {peer} has answered nothing for {int(seconds)} s on a link that is up."
            for peer, seconds in silent
            if seconds >= self._silent_s
        ]


class Learning:
    """Tell whether a node with MQTT is still learning after its start: its SUBACKs are no promise yet.

    A subscription is confirmed when the home of its topic is sure. A wildcard is confirmed when all other nodes with a
    listener or a sidecar know it. Learning ends once and for all. Homes that become unsure later do not count, since
    otherwise one node that joins or leaves would make many nodes refuse clients.
    """

    SURE = 4  # canaries in a row that homes must have answered with certainty
    S_MAX = 60.0  # Learning ends at the latest so many seconds after the node has joined.

    def __init__(self, node: LiveNode, canary: Canary | None, now: Callable[[], float]) -> None:
        """`canary`: None if the node sends no canaries, or if the overlay has no homes."""
        self._node, self._canary, self._now = node, canary, now
        self._joined: float | None = None  # when `look` was first called
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        """Return whether the node has MQTT and is still learning."""
        return self._node.mqtt is not None and not self._is_over

    def look(self) -> None:
        """Find out whether learning is over. Called regularly once the node is part of the mesh."""
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
    """All complaints of one node."""

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
        self._told: list[str] = []  # complaints at the last look, without those that are not logged

    _timer: asyncio.TimerHandle | None

    def start(self) -> None:
        """Begin to look, after all listeners of the node have started."""
        if self.node.mqtt is not None:
            self.parts.append(("broker", self.node.mqtt))
        self.parts += [("certificate", credentials) for credentials in self.node.credentials()]
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def complaints(self) -> list[Complaint]:
        """Return why the node is not healthy. Empty if it is."""
        trouble = not_ready(self.node)
        if trouble == "leaving":
            return [Complaint("leaving", "The node is leaving the mesh.")]
        complaints = [Complaint("joining", "The node has not joined the mesh yet.")] if trouble else []
        if self.node.mqtt is not None:
            complaints += [Complaint("subscribing", text) for text in self.node.mqtt.unready()]
        for kind, part in self.parts:
            complaints += [Complaint(kind, bounded(text)) for text in part.complaints()]
        return complaints[:COMPLAINTS_MAX]

    def stood_still(self) -> None:
        """Count silences from now on, because this process did not run for a while and could not hear anything."""
        self.links.begin_anew()
        self.canary.rest()

    def _look(self) -> None:
        """Let all parts look at their state, and log changes. Canaries rest while the seeds part complains."""
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
        """Log when health changes.

        Joining and leaving have log lines of their own, and subscribing ends soon. So these kinds are left out.
        """
        if self.node.mesh.is_leaving:
            return  # earlier complaints are not over: do not log "healthy again"
        silent = ("joining", "subscribing", "leaving", *(() if self.node.story.has_joined else ("seeds",)))
        texts = [complaint.text for complaint in self.complaints() if complaint.kind not in silent]
        if texts and not self._told:
            log.warning("%s: is not healthy: %s", self.node.name, " ".join(texts))
        elif self._told and not texts:
            log.info("%s: is healthy again", self.node.name)
        self._told = texts


def unready(node: LiveNode) -> str:
    """Return why the node should not be given clients now: one word, or an empty text if it should.

    The word is "leaving", "joining", "subscribing" (a sidecar), or "learning" (a SUBACK may be no promise yet).
    """
    trouble = not_ready(node)
    if trouble or node.mqtt is None:
        return trouble
    return "subscribing" if node.mqtt.unready() else "learning" if node.health.learning.is_under_way else ""


def not_ready(node: LiveNode) -> str:
    """Return why the node is not part of the mesh now: "leaving", "joining", or an empty text if it is."""
    if node.mesh.is_leaving:
        return "leaving"
    parts = getattr(node.mesh.overlay.node, "parts", None)
    is_joining = getattr(parts, "is_joining", not node.transport.peers)  # not OMen: no peer is connected
    return "joining" if is_joining and node.health.seeds.others() else ""


def period_s(node: LiveNode) -> float:
    """Return the seconds between two heartbeats of the overlay."""
    period_ms: float = attrgetter(overlay_of(node.config.overlay).heartbeat)(node.config)
    return period_ms / 1_000
