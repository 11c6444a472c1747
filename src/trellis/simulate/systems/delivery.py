"""Prepare delivery over an overlay for the simulator: clients that publish, and what they are promised.

Each node has a client that publishes while faults happen, mostly on topics of its node and sometimes on others. A
`Ledger` records what was published, acknowledged and delivered, and judges the run from this record alone.

always   nothing is delivered twice, out of the order of its publisher's incarnation, or to a node that does not
         subscribe; stores, queues and tables stay within their limits
settled  the promises of the overlay; and
         omen, spidercast  every acknowledged message inside the promise is at every node that qualifies
                           (docs/delivery.md, "What the checker asserts", says what that means)
         vitis, magnet     every message published at least `repair_ms` after all was healed is at every subscriber;
                           earlier acknowledged messages that are missing are only counted

Overlays run as they do live. For example, nodes of SpiderCast build their views by gossip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Annotated, Any, cast, get_args

import msgspec

from trellis import ids
from trellis.errors import InputError
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.delivery.outcome import Acknowledged, ClientId, NotAcknowledged, Outcome, Published
from trellis.protocols.effects import Effect, Effects, NodeId, SetTimer, Topic
from trellis.protocols.mesh import CODECS, DrivenOverlay, MeshNode
from trellis.protocols.node import ProtocolNode
from trellis.protocols.overlays import load, overlay_of
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.system import System, Watcher, World
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.delivery_ledger import Ledger, Publication

_LATE_MS = 5_000  # If only the last publications are judged, they happen within this time.
_OUTCOMES = frozenset(get_args(Outcome))


class Delivery(System):
    """Delivery over one of four overlays."""

    name = "delivery"
    nodes_linger = True

    def __init__(
        self,
        overlay: Annotated[str, "what keeps the links: omen, spidercast, vitis or magnet", "--over"] = "omen",
        copies: Annotated[int, "nodes that hold a publication before it is acknowledged"] = 2,
        window: Annotated[float, "seconds for which messages are kept", "--window"] = 180.0,
        every_ms: Annotated[int, "mean time between two publications of a node; 0: none"] = 4_000,
        first_ms: Annotated[int, "time before a node's first publication: the overlay forms"] = 10_000,
        foreign: Annotated[float, "share of publications on any topic, so mostly on topics of others"] = 0.15,
        repair_ms: Annotated[int, "vitis, magnet: time to repair before everything must arrive"] = 60_000,
        below: Mapping[str, Any] | None = None,
        plan: FaultPlan | None = None,
        **fields: Any,
    ) -> None:
        """`below` has options of the overlay's own system. `plan` replaces its faults.

        Every field of `DeliveryConfig` can be given by name as well.
        """
        entry = overlay_of(overlay)
        window_ms = round(window * 1000)
        chosen = {
            "copies": copies,
            "window_ms": window_ms,
            "tombstone_ms": max(600_000, 4 * window_ms),
            "interest_ms": 30_000,  # Shorter than in live nodes, because a run settles only after interests have ended.
            **fields,
        }
        try:
            self.config = msgspec.convert(chosen, DeliveryConfig)
        except msgspec.ValidationError as error:
            known = ", ".join(DeliveryConfig.__struct_fields__)
            raise InputError("", f"not a parameter of delivery: {error}", f"choose from {known}") from None
        self.drive: Callable[[Any], DrivenOverlay] = load(entry.adapter)
        self.below: System = maker_of(overlay)(**{**entry.below, **(below or {})})
        self.overlay, self.every_ms, self.codec = overlay, every_ms, CODECS[overlay]
        self.first_ms, self.foreign = first_ms, foreign
        self.period_ms = self.below.period_ms
        self.overlay_is_tco_promised = self.below.overlay_is_tco_promised
        self.connectivity_promised = self.below.connectivity_promised
        below_plan = self.below.fault_plan
        self.fault_plan = plan or msgspec.structs.replace(below_plan, kinds=(*below_plan.kinds, "return"))
        # The slowest events that still change something: interest that ends, leaving nodes that wait, pulls, resends.
        slowest = max(self.config.interest_ms + self.config.leave_ms_max, self.config.publish_timeout_ms)
        self.settle_ms = max(self.below.settle_ms, slowest + 5_000)
        self.settle_ms_max = max(self.below.settle_ms_max, 2 * self.settle_ms)
        # Publications from this time on must reach all. None: all publications inside the promise must.
        self.late_ms: int | None = None
        if not entry.connects_topics:
            self.must_settle = False  # Gossip never stops changing links. Promises are checked when the time is over.
            self.settle_ms = self.settle_ms_max = repair_ms + _LATE_MS + slowest + 5_000
            self.late_ms = self.fault_plan.start_ms + self.fault_plan.span_ms + repair_ms
        self.ledger: Ledger | None = None

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        assert self.ledger is not None
        overlay = self.drive(self.below.make_node(node, topics, random, world))
        made = Client(self.make_mesh(overlay, topics), self, world)
        self.ledger.clients[node] = made
        return made

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[Topic, ...]) -> MeshNode:
        return MeshNode(overlay, topics, self.config)

    def watcher(self, world: World) -> Watcher:
        proves_copies = overlay_of(self.overlay).proves_copies
        self.ledger = Ledger(world, self.config, proves_copies=proves_copies, late_ms=self.late_ms)
        return self.ledger

    def parameters(self) -> dict[str, Any]:
        return {
            "overlay": self.overlay,
            **msgspec.structs.asdict(self.config),
            "every_ms": self.every_ms,
            "first_ms": self.first_ms,
            "foreign": self.foreign,
            "late_ms": self.late_ms,
            "below": self.below.parameters(),
        }

    def control_types(self) -> tuple[str, ...]:
        return tuple(self.below.control_types())

    def ring_key(self, node: NodeId) -> int:
        return self.below.ring_key(node)

    def metrics(self, world: World) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for name in world.living:
            total.update(mesh_of(world, name).delivery.metrics())
        return {name: float(value) for name, value in sorted(total.items())}

    def counts(self) -> Mapping[str, int]:
        return {} if self.ledger is None or self.late_ms is None else self.ledger.counts()

    def check_always(self, world: World) -> None:
        self.below.check_always(cast(World, _Below(world)))
        assert self.ledger is not None
        self.ledger.look()

    def check_settled(self, world: World) -> None:
        self.below.check_settled(cast(World, _Below(world)))
        assert self.ledger is not None
        self.ledger.judge()


class Client:
    """A mesh node with a client that publishes on it. Effects for clients end here."""

    def __init__(self, mesh: MeshNode, system: Delivery, world: World) -> None:
        self.id, self.mesh, self.system, self.world = mesh.id, mesh, system, world
        self.incarnation = world.incarnation(mesh.id)
        self.random = Random(ids.stream(world.seed, "client", mesh.id, self.incarnation))
        plan = system.fault_plan
        self.until_ms = plan.start_ms + plan.span_ms
        self.numbers = self.published = 0
        # our number -> payload of a publication that the node has not taken in yet
        self.payloads: dict[int, bytes] = {}
        self.ticked_ms = world.now_ms  # when delivery last ticked

    def start(self) -> Effects:
        effects = self._told(self.mesh.start())
        if self.system.every_ms:
            effects.append(SetTimer("client/publish", self.system.first_ms + self._pause_ms()))
        if self.system.late_ms is not None:
            due_ms = max(0, self.system.late_ms - self.world.now_ms)
            effects.append(SetTimer("client/late", due_ms + self.random.randrange(_LATE_MS)))
        return effects

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        self._look_at_clock()
        return self._told(self.mesh.on_message(sender, message))

    def on_timer(self, tag: str) -> Effects:
        everything = self.world.topics.names
        mine = self.world.topics_of(self.id) or everything  # A node that has left all its topics publishes on any.
        if tag == "client/late":
            foreign = [self.random.choice(everything)] if self.random.random() < self.system.foreign else []
            return [effect for topic in dict.fromkeys((*mine, *foreign)) for effect in self._publish(topic)]
        if tag != "client/publish":
            self._look_at_clock()
            if tag == "delivery/tick":
                self.ticked_ms = self.world.now_ms
            return self._told(self.mesh.on_timer(tag))
        if self.world.now_ms > self.until_ms:
            return []
        is_foreign = self.random.random() < self.system.foreign
        return [
            *self._publish(self.random.choice(everything if is_foreign else mine)),
            SetTimer(tag, self._pause_ms()),
        ]

    def on_peer_down(self, peer: NodeId) -> Effects:
        effects = self.mesh.on_peer_down(peer)
        if not self.world.is_living(peer):  # as a driver that redials at once and is refused
            is_alone = self.world.living == [self.id]
            effects = [*effects, *self.mesh.on_peer_ended(peer, is_alone=is_alone)]
        return self._told(effects)

    def subscribe(self, topic: Topic) -> Effects:
        return self._told(self.mesh.subscribe(topic))

    def unsubscribe(self, topic: Topic) -> Effects:
        return self._told(self.mesh.unsubscribe(topic))

    def _publish(self, topic: Topic) -> Effects:
        self.numbers += 1
        return self.publish(topic, f"{self.id}/{self.incarnation}/{self.numbers}".encode())

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> Effects:
        """Publish under a number of our own. The node may take it in later, and reports that number then."""
        self.published += 1
        self.payloads[self.published] = payload
        self._look_at_clock()
        return self._told(self.mesh.publish(topic, payload, (self.id, 0, self.published)))

    def leave(self) -> Effects:
        return self._told(self.mesh.leave())

    def check(self) -> None:
        self.mesh.check()

    def holds(self, publication: Publication) -> bool:
        found = self.mesh.delivery.state.topics.get(publication.topic)
        stream = found.streams.get((publication.origin, publication.incarnation)) if found is not None else None
        return stream is not None and publication.sequence in stream.entries

    def gap_before(self, publication: Publication) -> list[int]:
        """Return the missing sequences that hold this message back. Empty if it is not held back."""
        found = self.mesh.delivery.state.topics.get(publication.topic)
        stream = found.streams.get((publication.origin, publication.incarnation)) if found is not None else None
        if stream is None or publication.sequence not in stream.waiting:
            return []
        first = (stream.handed or 0) + 1
        return [sequence for sequence in range(first, publication.sequence) if sequence not in stream.waiting]

    def relayed(self) -> list[Topic]:
        """Return topics in which this node takes part only for others."""
        return [
            name for name, topic in self.mesh.delivery.state.topics.items() if topic.takes_part and not topic.is_wanted
        ]

    def is_confirmed(self, topic: Topic) -> bool:
        found = self.mesh.delivery.state.topics.get(topic)
        return found is not None and found.was_confirmed and found.is_confirmed and not self.mesh.is_leaving

    def _look_at_clock(self) -> None:
        self.mesh.delivery.look_at_clock(self.world.now_ms - self.ticked_ms)

    def _pause_ms(self) -> int:
        return 1 + int(self.random.expovariate(1 / self.system.every_ms))

    def _told(self, effects: list[Effect | Outcome]) -> Effects:
        """Give outcomes to the ledger. Return the other effects, which the engine carries out."""
        for effect in effects:
            if type(effect) in _OUTCOMES:
                break
        else:  # nearly always
            return cast(Effects, effects)
        ledger = self.system.ledger
        assert ledger is not None
        passed: Effects = []
        for effect in effects:
            if isinstance(effect, Published):
                assert effect.client_id is not None
                ledger.on_published(self.id, effect, self.payloads.pop(effect.client_id[-1]))
            elif isinstance(effect, Acknowledged):
                ledger.on_acknowledged(self.id, effect)
            elif isinstance(effect, NotAcknowledged):
                ledger.refused += 1
            elif not isinstance(effect, Outcome):
                passed.append(effect)
        return passed


class _Below:
    """The world as the overlay's checks see it, with the overlay's own nodes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def node(self, name: NodeId) -> ProtocolNode:
        return mesh_of(self._world, name).overlay.node


def mesh_of(world: World, name: NodeId) -> MeshNode:
    """Return the mesh node of a client."""
    return cast(Client, world.node(name)).mesh
