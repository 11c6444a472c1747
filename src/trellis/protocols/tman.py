"""T-Man: gossip towards whatever topology a selection function prefers.  [OM Alg. 3, VI Alg. 2-3]

Once per period a node swaps buffers (its own descriptor, its view, random samples) with a partner out of its view; both
sides let the application select from the union of view and buffer. OMen plugs in buildBackups, Vitis selectNeighbors,
the identifier ring (`ring.py`) the nearest on both sides.

A node may run several: each has a name, its `layer`, which opens its timers' tags and is in its messages.
Descriptors have ages, so that the dead fade (A-SUB-2); what else is heard of a node goes in by `learn`.
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

Select = Callable[[list[Descriptor]], list[NodeId]]  # whom to keep, of these
Samples = Callable[[], list[Descriptor]]  # random peers as they are told to others, for instance `Newscast.told`


class TManConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    period_ms: int = 1_000
    """Raising it saves traffic; the topology takes shape more slowly."""

    age_max: int = 30
    """Rounds after which a descriptor is dropped. Raising it keeps living nodes under loss; dead ones stay longer."""

    def __post_init__(self) -> None:
        for field in ("period_ms", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class TManRequest(msgspec.Struct, frozen=True, gc=False, tag="tman-request"):
    layer: Name
    descriptors: Descriptors


class TManReply(msgspec.Struct, frozen=True, gc=False, tag="tman-reply"):
    layer: Name
    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(TManRequest | TManReply)


class TMan:
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
        """`partners`: whom an exchange may be with; the view, where it is not given.

        `select_names` takes the place of `select` where names or few descriptors are enough: describing all of a table
        at every message is most of what T-Man costs. `shared`: of whom partners are told; the whole table, where it is
        not given.
        """
        self.partners, self.select_names, self.shared = partners, select_names, shared
        self.layer, self.describe, self.select, self.samples = layer, describe, select, samples
        self.random, self.config = random, config or TManConfig()
        # Whom the selection may take at all. It is not asked then where nobody new is among them.
        self.useful: Callable[[Sequence[Descriptor]], Sequence[Descriptor]] | None = None
        self.table = DescriptorTable(describe().node, self.config.age_max)
        self._exchange = SetTimer(f"{layer}/exchange", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        return self.table.describe()

    def start(self) -> Effects:
        """One exchange at a random moment in each period.  [OM Alg. 3, l. 1]"""
        return [SetTimer(self._exchange.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
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
        """Not when it is due, but at once."""
        return [Send(partner, TManRequest(self.layer, self._buffer(self.samples())))]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        effects: Effects = []
        if not isinstance(message, (TManRequest, TManReply)) or message.layer != self.layer:
            return effects
        if isinstance(message, TManRequest):
            effects = [Send(sender, TManReply(self.layer, self._buffer(self.samples())))]
        self.learn(message.descriptors)
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        self.table.bury(peer)
        return []

    def learn(self, descriptors: tuple[Descriptor, ...] | list[Descriptor]) -> None:
        """View = select(view and descriptors)."""
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
        self.table.check()

    def _buffer(self, samples: list[Descriptor]) -> tuple[Descriptor, ...]:
        told = {descriptor.node: descriptor for descriptor in samples}
        told |= self.table.told(None if self.shared is None else self.shared())
        told.pop(self.table.owner, None)
        return (self.describe(), *list(told.values())[: PEERS_MAX - 1])
