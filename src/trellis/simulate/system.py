"""Define the interface between the engine and a system.

A *system* prepares a protocol for the simulator. It says how a node is made and how its messages are encoded. It also
says what must hold at every instant, and what must hold once everything is healed and quiet. The engine knows nothing
else about it.

    class SpiderCast(System):          # systems subclass `System` and override what differs from its defaults
        name = "spidercast"
        def make_node(self, node, topics, random, world): ...

`World` is the global view that makers and checks have. Protocol nodes never see it. A node gets all that it may know
when it is made: its view, its contacts, its first neighbors.

Nodes rank candidates through `trellis.protocols.membership.InterestView`:

    best_cover(uncovered, exclude)    the node with most topics of the bitset `uncovered`; it has at least one of them
    random_cover(uncovered, exclude)  any node with at least one topic of `uncovered`
    similar(interest, exclude)        the node that shares most topics with `interest`, even if it shares none
    random_node(exclude)              any node
    interest_of(node)                 the bitset of a known node, 0 for an unknown one
    subscribers(topic)                how many known nodes, without the owner, subscribe to the topic of this one bit
    version                           a number that changes whenever an answer could have changed

`exclude` is a collection of names. The owner of a view is never a candidate. The answer is None if there is no
candidate. **The tie rule** is the same for every view. Let k be the number of tied candidates (for the random choices:
of all candidates), in the order of `sorted(names)`. Draw `r = random.randrange(k)` from the Random with which the view
was made, once per answer and even if k = 1. The answer is the r-th. So the plain view of a live node and the
array-backed view of the simulator (`simulate/views.py`) give the same answers for the same Random.
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
    """The publication that a message carries or announces."""

    topic: Topic
    origin: NodeId
    sequence: int
    hops: int  # links that it has crossed when this message arrives


class Violation(AssertionError):
    """A system broke one of its promises. The text says which one and where, in one line."""


class Watcher:
    """Observes a run. Subclasses override the events they need.

    A watcher must change neither nodes nor their Randoms.
    """

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None: ...

    def on_node_down(self, node: NodeId, how: str) -> None:
        """Note that a node is down. `how` is crash or leave."""

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None: ...

    def on_claim(self, node: NodeId, peer: NodeId, up: bool) -> None:
        """Note that `node` claims its link to `peer` from now on (`up`), or no longer."""

    def on_message(self, sender: NodeId, receiver: NodeId, message: msgspec.Struct) -> None:
        """Note a message, right before its receiver gets it.

        Only watchers that override this are called, because it is slow.
        """

    def on_publish(self, node: NodeId, topic: Topic, payload: bytes) -> None: ...

    def on_deliver(self, node: NodeId, delivery: Deliver) -> None: ...

    def on_fault(self, kind: str, nodes: tuple[NodeId, ...], text: str) -> None: ...


class World(Protocol):
    """The questions that a system may ask about the run. All lists are sorted by name."""

    seed: int
    topics: TopicTable  # one table for all nodes of the run

    @property
    def now_ms(self) -> int: ...

    @property
    def living(self) -> list[NodeId]:
        """Return the nodes that are up, including paused ones."""
        ...

    def is_living(self, node: NodeId) -> bool: ...

    def node(self, node: NodeId) -> ProtocolNode:
        """Return the protocol object of a living node. Checks and probes must only read it."""
        ...

    def incarnation(self, node: NodeId) -> int:
        """Return the number of the present incarnation of a name. The first one is 1."""
        ...

    def born_ms(self, node: NodeId) -> int:
        """Return when the present incarnation started."""
        ...

    def topics_of(self, node: NodeId) -> tuple[Topic, ...]: ...

    def claims(self, node: NodeId) -> list[NodeId]:
        """Return the peers that this node counts as neighbors."""
        ...

    def links(self) -> list[tuple[NodeId, NodeId]]:
        """Return the overlay: the links that both ends claim, each once as (smaller name, larger name)."""
        ...

    def view(self, owner: NodeId, random: Random) -> InterestView:
        """Return the membership that the run gives to this node: all nodes, or the share that `--view` sets."""
        ...

    def contacts(self, node: NodeId, random: Random, count: int) -> list[NodeId]:
        """Return up to `count` random other living nodes, which a joining node knows."""
        ...

    def first_neighbors(self, node: NodeId) -> list[NodeId]:
        """Return the neighbors of `node` in the overlay given at the start (`--overlay`).

        Later incarnations have none.
        """
        ...


class System(Protocol):
    """A protocol prepared for the simulator. By default it promises nothing, except to become quiet."""

    name: str
    codec: Codec[Any]

    period_ms: int = 1_000  # length of a gossip round

    # A run is quiet when nothing has changed for `settle_ms`: claimed links, topics, deliveries, living nodes. A check
    # fails if healing takes longer than `settle_ms_max`. `settle_ms` must be longer than the slowest timer that repairs
    # something.
    settle_ms: int = 10_000
    settle_ms_max: int = 300_000
    # False: links never stop changing (gossip). A check then calls `check_settled` after `settle_ms_max`.
    must_settle: bool = True

    nodes_linger: bool = False  # True: a leaving node goes on until it returns the effect `Left`.
    overlay_is_tco_promised: bool = False  # True: an overlay that is no TCO after the run has settled is a violation.
    # 2: a topic that the loss of one node would split, after the run has settled, is a violation. Overlays that a check
    # plans are then two-connected.
    connectivity_promised: int = 1
    needs_overlay: bool = False  # True: a check without a given overlay starts from LowODA's overlay.
    fault_plan: FaultPlan = FaultPlan()  # the faults that the system promises to survive

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        """Return a new node, or a new incarnation of an old one.

        `topics` is sorted; `random` belongs to this incarnation.
        """
        ...

    def parameters(self) -> dict[str, Any]:
        """Return all settings of a run except its seed, as plain values. They are printed and kept with the results."""
        return {}

    def check_always(self, world: World) -> None:
        """Raise Violation if something is wrong that must never happen.

        It is called at chosen instants, also under faults.

        The engine itself calls `check()` of every living node at the same instants.
        """

    def check_settled(self, world: World) -> None:
        """Raise Violation if something is wrong although all faults are healed and nothing changes any more."""

    def watcher(self, world: World) -> Watcher | None:
        """Return a watcher of the run, for checks that need its history (what was published and delivered)."""
        return None

    def control_types(self) -> Iterable[str]:
        """Return the message types that count as control messages. If there are none, all messages count."""
        return ()

    def carried(self, message: msgspec.Struct) -> Carried | None:
        """Return the publication that a message carries, or None. Dissemination is measured by it."""
        return None

    def metrics(self, world: World) -> Mapping[str, float]:
        """Return the system's own metrics for every sample of the series."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """Return the system's own counts for the summary of a check, over the whole run."""
        return {}

    def draw(self, run: Run, folder: Path) -> None:
        """Write the system's own pictures of a finished run to `folder`."""

    def ring_key(self, node: NodeId) -> int:
        """Return the position of a node on the system's ring. `crash-ring` chooses consecutive nodes by it."""
        return ids.key("ring", node)
