"""What a system tells the engine, and what the engine tells a system.

A *system* is a protocol made ready for the simulator: how a node of it is made, how its messages look on the wire, what
must hold at every instant, and what must hold once everything is healed and quiet. The engine knows nothing else of it.

    class SpiderCast(System):          # systems subclass `System` and override what differs from its defaults
        name = "spidercast"
        def make_node(self, node, topics, random, world): ...

`World` is the view from above that makers and checks have. Protocol nodes never see it: whatever a node may know is
handed to it when it is made (its view, its contacts, its first neighbours).

Views that rank many candidates are asked through `trellis.protocols.membership.InterestView`:

    best_cover(uncovered, exclude)    the node with most topics of the bitset `uncovered`; none that has no such topic
    random_cover(uncovered, exclude)  any node with at least one topic of `uncovered`
    similar(interest, exclude)        the node that shares most topics with `interest`, even where the most is none
    random_node(exclude)              any node
    interest_of(node)                 the bitset of a known node, 0 where it is unknown
    subscribers(topic)                how many known nodes, the owner not among them, want the topic with this one bit
    version                           a number that changes whenever an answer could have changed

`exclude` is a collection of names; the owner of a view is never a candidate. The answer is None where nobody is left.
**The tie rule**, the same for every view: take the tied candidates (for the random choices: all candidates) in the
order of `sorted(names)`, k of them; draw `r = random.randrange(k)` from the Random that the view was made with, once
per answer and even where k = 1; the answer is the r-th. So the plain view of a live node and the array-backed one
of the simulator (`simulate/views.py`) give the same answers for the same Random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from trellis import ids
from trellis.protocols.effects import Deliver, NodeId, Topic
from trellis.protocols.node import ProtocolNode
from trellis.protocols.topics import TopicTable
from trellis.protocols.wire import Codec
from trellis.simulate.schedule import FaultPlan

if TYPE_CHECKING:
    from trellis.protocols.membership import InterestView
    from trellis.simulate.run import Run


class Carried(NamedTuple):
    """The publication that a message brings, or tells of."""

    topic: Topic
    origin: NodeId
    sequence: int
    hops: int  # links that it will have crossed when this message arrives


class Violation(AssertionError):
    """A promise of a system is broken. The text says which and where, in one line."""


class Watcher:
    """Sees a run go by; overrides what it wants to see. It must change nothing: neither nodes nor their Randoms."""

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None: ...

    def on_node_down(self, node: NodeId, how: str) -> None:
        """`how`: crash or leave."""

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None: ...

    def on_claim(self, node: NodeId, peer: NodeId, up: bool) -> None:
        """`node` claims its link to `peer` from now on, or no longer."""

    def on_message(self, sender: NodeId, receiver: NodeId, message: msgspec.Struct) -> None:
        """Right before the receiver is told. Watching every message slows a run down: only those asked see it."""

    def on_publish(self, node: NodeId, topic: Topic, payload: bytes) -> None: ...

    def on_deliver(self, node: NodeId, delivery: Deliver) -> None: ...

    def on_fault(self, kind: str, nodes: tuple[NodeId, ...], text: str) -> None: ...


class World(Protocol):
    """What a system may ask about the run. Everything that is listed is sorted by name."""

    seed: int
    topics: TopicTable  # one table for all nodes of the run

    @property
    def now_ms(self) -> int: ...

    @property
    def living(self) -> list[NodeId]:
        """The nodes that are up, paused ones too."""
        ...

    def is_living(self, node: NodeId) -> bool: ...

    def node(self, node: NodeId) -> ProtocolNode:
        """The protocol object of a living node: for checks and probes, to read only."""
        ...

    def incarnation(self, node: NodeId) -> int:
        """1 for the first life of a name, then 2, ..."""
        ...

    def born_ms(self, node: NodeId) -> int:
        """When the present incarnation started."""
        ...

    def topics_of(self, node: NodeId) -> tuple[Topic, ...]: ...

    def claims(self, node: NodeId) -> list[NodeId]:
        """The peers that this node counts among its neighbours."""
        ...

    def links(self) -> list[tuple[NodeId, NodeId]]:
        """The overlay: the links that both ends claim, each once as (smaller name, larger name)."""
        ...

    def view(self, owner: NodeId, random: Random) -> InterestView:
        """The membership that the run gives its nodes: all of it, or the share that `--view` says."""
        ...

    def contacts(self, node: NodeId, random: Random, count: int) -> list[NodeId]:
        """Up to `count` other living nodes, drawn at random: whom a joining node knows."""
        ...

    def first_neighbors(self, node: NodeId) -> list[NodeId]:
        """The links that the overlay given at the start (`--overlay`) has at `node`; none for later incarnations."""
        ...


class System(Protocol):
    """A protocol made ready. Its defaults are those of a protocol that promises nothing but to go on."""

    name: str
    codec: Codec[Any]

    period_ms: int = 1_000  # a gossip round

    # How long nothing must change (links claimed, topics, deliveries, who is there) to call a run quiet, and how long
    # healing may take at most before a check fails. Raise settle_ms above the slowest timer that mends something.
    settle_ms: int = 10_000
    settle_ms_max: int = 300_000
    must_settle: bool = True  # False: links change for ever (gossip); `check_settled` is then asked after settle_ms_max

    nodes_linger: bool = False  # True: a node that leaves goes on until it gives `Left`
    overlay_is_tco_promised: bool = False  # True: once settled, an overlay that is no TCO is a violation
    needs_overlay: bool = False  # True: a check starts from LowODA's overlay where none is given
    fault_plan: FaultPlan = FaultPlan()  # what the system promises to survive

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        """A new node or a new incarnation of an old one. `topics` is sorted; `random` is this incarnation's own."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Everything that shapes a run beside its seed, as plain values: printed and kept with the results."""
        return {}

    def check_always(self, world: World) -> None:
        """Raise Violation where something is wrong that may never be. Called at chosen instants, faults or none.

        The engine calls `check()` of every living node at the same instants by itself.
        """

    def check_settled(self, world: World) -> None:
        """Raise Violation where something is wrong although all faults are healed and nothing changes any more."""

    def watcher(self, world: World) -> Watcher | None:
        """Somebody who sees the run go by, for checks that need history (what was published, who got it)."""
        return None

    def control_types(self) -> Iterable[str]:
        """Names of the message types that count as control messages per event; none: all of them."""
        return ()

    def carried(self, message: msgspec.Struct) -> Carried | None:
        """The publication in a message; None for every other message. What dissemination is measured by."""
        return None

    def metrics(self, world: World) -> Mapping[str, float]:
        """What this system wants in every sample of the series, beside what all systems have."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """What this system wants in the summary of a check, counted over the whole run."""
        return {}

    def draw(self, run: Run, folder: Path) -> None:
        """The system's own pictures of a run that has ended, as files in `folder`."""

    def ring_key(self, node: NodeId) -> int:
        """The place of a node on the system's ring, if it has one: where `crash-ring` looks for consecutive nodes."""
        return ids.key("ring", node)
