"""T-Man: build the topology that a selection function prefers, by gossip.  [OM Alg. 3, VI Alg. 2-3]

Once per period a node exchanges buffers with a partner from its view. A buffer has the node's own descriptor, its view,
and random samples. Both sides then let the selection function choose from the union of view and buffer. OMen uses
buildBackups as the selection function, Vitis selectNeighbors, and the identifier ring (`ring.py`) the nearest nodes on
both sides.

A node may run several instances. Each has a name, its `layer`, which begins the tags of its timers and is part of its
messages. Descriptors have ages, so entries of crashed nodes disappear (A-SUB-2). An owner that learns of nodes in other
ways passes their descriptors to `learn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.descriptors import Descriptor, Descriptors, DescriptorTable
from trellis.protocols.effects import Effects, NodeId, Send, SetTimer
from trellis.protocols.sampling import Describe
from trellis.protocols.wire import PEERS_MAX, Codec, Name

Select = Callable[[list[Descriptor]], list[NodeId]]  # Returns which nodes to keep among the candidates.
# Returns random peers as they are sent to others, for example `Newscast.told`.
Samples = Callable[[], list[Descriptor]]


class TManConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `TMan`."""

    period_ms: int = 1_000
    """Time between two exchanges. Raising it saves traffic, but the topology forms more slowly."""

    age_max: int = 30
    """Rounds after which a descriptor is dropped. Raising it keeps running nodes if messages are lost, but crashed ones
    stay for longer."""

    def __post_init__(self) -> None:
        for field in ("period_ms", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class TManRequest(msgspec.Struct, frozen=True, gc=False, tag="tman-request"):
    """Start an exchange of the layer: the sender's own descriptor first."""

    layer: Name
    descriptors: Descriptors


class TManReply(msgspec.Struct, frozen=True, gc=False, tag="tman-reply"):
    """Answer an exchange of the layer: the sender's own descriptor first."""

    layer: Name
    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(TManRequest | TManReply)


class TMan:
    """One gossip layer of a node. Its owner passes on messages, and the timers that begin with `layer/`."""

    def __init__(
        self,
        layer: str,
        describe: Describe,
        select: Select,
        samples: Samples,
        random: Random,
        config: TManConfig | None = None,
        partners: Callable[[], list[NodeId]] | None = None,
        select_names: Callable[[DescriptorTable], Iterable[NodeId]] | None = None,
        shared: Callable[[], list[NodeId]] | None = None,
    ) -> None:
        """Create the layer.

        `partners` returns the nodes with which an exchange may be made. Without it these are the nodes of the view.

        `select_names` replaces `select` if names or a few descriptors are enough. It is faster: most of T-Man's time
        goes into making descriptors of a whole table for every message.

        `shared` returns the nodes whose descriptors are sent to partners. Without it the whole table is sent.
        """
        self.partners, self.select_names, self.shared = partners, select_names, shared
        self.layer, self.describe, self.select, self.samples = layer, describe, select, samples
        self.random, self.config = random, config or TManConfig()
        # If set, returns those of the descriptors that the selection may choose. If it leaves some out and the rest has
        # no new node, the selection is not run.
        self.useful: Callable[[Sequence[Descriptor]], Sequence[Descriptor]] | None = None
        self.table = DescriptorTable(describe().node, self.config.age_max)
        self._exchange = SetTimer(f"{layer}/exchange", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        """Return the nodes in the view."""
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        """Return the entries of the view as descriptors, with their present ages."""
        return self.table.describe()

    def start(self) -> Effects:
        """Set the timer of the first exchange, at a random time within one period.  [OM Alg. 3, l. 1]"""
        return [SetTimer(self._exchange.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        """Begin a round, and start an exchange with a random partner. If the view is empty, the partner is a sample."""
        self.table.advance()
        samples = self.samples()
        among = self.partners() if self.partners else self.peers
        if not among:
            among = [descriptor.node for descriptor in samples if descriptor.node != self.table.owner]
        if not among:
            return [self._exchange]
        partner = among[self.random.randrange(len(among))]
        return [Send(partner, TManRequest(self.layer, self._buffer(samples))), self._exchange]

    def exchange_with(self, partner: NodeId) -> Effects:
        """Start an exchange with this partner at once, beside the periodic ones."""
        return [Send(partner, TManRequest(self.layer, self._buffer(self.samples())))]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Answer a request of this layer, and take in the descriptors of a request or a reply."""
        effects: Effects = []
        if not isinstance(message, (TManRequest, TManReply)) or message.layer != self.layer:
            return effects
        if isinstance(message, TManRequest):
            effects = [Send(sender, TManReply(self.layer, self._buffer(self.samples())))]
        self.learn(message.descriptors)
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Drop `peer`, and ignore descriptors of it that are older than this."""
        self.table.bury(peer)
        return []

    def learn(self, descriptors: tuple[Descriptor, ...] | list[Descriptor]) -> None:
        """Take in descriptors, and let the selection function choose the new view."""
        if self.useful is not None:
            known, useful = len(self.table), self.useful(descriptors)
            self.table.merge(useful)
            if useful is not descriptors and len(self.table) == known:
                return
        else:
            self.table.merge(descriptors)
        table = self.table
        table.keep(self.select_names(table) if self.select_names else self.select(table.describe()))

    def check(self) -> None:
        """Assert the invariant D1."""
        self.table.check()

    def _buffer(self, samples: list[Descriptor]) -> tuple[Descriptor, ...]:
        """Return what an exchange sends: the own descriptor, the shared entries, and samples; each node once."""
        descriptors = {descriptor.node: descriptor for descriptor in samples}
        descriptors |= self.table.told(None if self.shared is None else self.shared())
        descriptors.pop(self.table.owner, None)
        return (self.describe(), *list(descriptors.values())[: PEERS_MAX - 1])
