"""The OPT node: links by greedy coverage, and events that travel among subscribers only.  [VI §IV; A-VIT-24]

A node chooses links greedily. Each time it takes the candidate that shares most of the topics that are not covered by K
neighbors yet. It ends when no topic is left to cover, or when it has as many links as it may. There are no relays. An
event does not reach subscribers that are not connected to its publisher by subscribers.

A link counts at both ends, whichever end asked for it. The bound is a bound on links:

- A profile that says `linked` asks for a link. A node that is full refuses it with an `Unlink`.
- Links that others have asked for count against our bound, and cover our topics as our own ones do.
- A link is confirmed once the other end has answered. A request that is not confirmed counts against the bound, but is
  given up for a node that asks us. Otherwise all nodes would refuse each other at the start. It carries no events.
- A node that refused is not asked again for `refusal_rounds`.
- Confirmed links stay while they are of use. A full node whose topics are not all covered replaces its least useful
  link if a candidate covers more topics, one link at a time.

O1  A bounded node never has more than `table_size` links, whichever end asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from trellis.errors import InputError
from trellis.protocols.coverage import Coverage
from trellis.protocols.descriptors import Entry
from trellis.protocols.effects import Contact, Effects, NodeId, Send, Topic
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.messages import Profile, Unlink
from trellis.protocols.vitis.neighbors import Neighbor
from trellis.protocols.vitis.overlay import OverlayNode


class OptConfig(TableConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of OPT."""

    bounded: bool = True
    """Whether `table_size` bounds the links. False: links are made until every topic is covered.  [VI Fig. 11]"""

    coverage: int = 3
    """Neighbors for each topic, K in the paper. Raising it connects more subscribers, but in a bounded table topics
    compete for links. Paper: OPT is "similar to SpiderCast", whose K is 3."""

    refusal_rounds: int = 10
    """Rounds for which a node that refused is not asked again. Raising it saves requests to full nodes, but a node that
    is no longer full is found later. Paper: silent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("coverage", "refusal_rounds"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class OptNode(OverlayNode):
    """A node of OPT."""

    config: OptConfig

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: OptConfig,
        *,
        contacts: Iterable[Contact] = (),
        table: TopicTable | None = None,
        incarnation: int = 1,
    ) -> None:
        super().__init__(node, topics, random, config, contacts=contacts, table=table, incarnation=incarnation)
        self._bits = self.topic_table.bits(topics)
        self._refused: dict[NodeId, int] = {}  # nodes that refused us -> the round in which they refused
        self._bound = config.table_size if config.bounded else config.table_size + config.incoming_max

    def check(self) -> None:
        """Assert the invariant O1, and those of the overlay."""
        super().check()
        links = sum(neighbor.firm for neighbor in self.neighbors.all.values())
        assert links <= self._bound, f"O1: {self.id} has {links} links, the bound is {self._bound}"

    def _table_size(self) -> int | None:
        return self.config.table_size if self.config.bounded else None

    # Selection

    def _choose(self, entries: Mapping[NodeId, Entry]) -> list[NodeId]:
        """Return the nodes to have in our table: confirmed links that are of use, then the best candidates."""
        bits, wanted, known = self.topic_table.bits, self._bits, self.neighbors.all
        covered, room = Coverage(), self._bound
        mutual: dict[NodeId, int] = {}  # Links that both ends hold. The end with the smaller name keeps its entry.
        for node, neighbor in known.items():
            if neighbor.firm and neighbor.links_us:
                shared = bits(neighbor.topics) & wanted
                covered.add(shared)
                room -= 1
                if neighbor.in_table and node in entries and self.id < node:
                    mutual[node] = shared
        needed = wanted & ~covered.at_least(self.config.coverage + 1)
        chosen = [node for node, shared in mutual.items() if shared & needed]
        kept, others = dict[NodeId, int](), dict[NodeId, int]()
        for node, (_, descriptor) in entries.items():
            shared, present = bits(descriptor.interest) & wanted, known.get(node)
            if not shared or node in self._refused or (present is not None and present.firm and present.links_us):
                continue
            confirmed = present is not None and present.in_table and present.spoke
            (kept if confirmed else others)[node] = shared
        mine = self._take(kept, covered, room)
        mine += self._take(others, covered, room - len(mine))
        if len(mine) == room and wanted & ~covered.at_least(self.config.coverage):
            self._replace_one({node: kept[node] for node in mine if node in kept}, others, covered, mine)
        return chosen + mine

    def _take(self, left: dict[NodeId, int], covered: Coverage, most: int) -> list[NodeId]:
        """Return at most `most` of `left`, each time the one that covers most topics that are not covered K times."""
        chosen: list[NodeId] = []
        while left and len(chosen) < most:
            missing = self._bits & ~covered.at_least(self.config.coverage)
            # Of equals, `max` takes the first. Entries that are in the table already come first.
            best = max(left, key=lambda node: (left[node] & missing).bit_count())
            if not left[best] & missing:
                break
            chosen.append(best)
            covered.add(left[best])
            left = {node: shared for node, shared in left.items() if node != best}
        return chosen

    def _replace_one(
        self, kept: dict[NodeId, int], others: dict[NodeId, int], covered: Coverage, chosen: list[NodeId]
    ) -> None:
        """Replace the least useful confirmed link by the best candidate, if that covers more topics."""
        candidates = [node for node in others if node not in chosen]
        # Only one link is replaced at a time, and none while a request is not confirmed.
        if not kept or not candidates or len(kept) < len(chosen):
            return
        enough = self._bits & ~covered.at_least(self.config.coverage + 1)
        least = min(kept, key=lambda node: (kept[node] & enough).bit_count())
        loss = (kept[least] & enough).bit_count()
        covered.remove(kept[least])
        missing = self._bits & ~covered.at_least(self.config.coverage)
        best = max(candidates, key=lambda node: (others[node] & missing).bit_count())
        if (others[best] & missing).bit_count() > loss:
            chosen[chosen.index(least)] = best

    def _topics_changed(self) -> None:
        self._bits = self.topic_table.bits(self.topics)

    # Links that both ends agree to

    def _on_stranger(self, sender: NodeId, profile: Profile) -> Effects:
        """Handle the profile of a node that is no neighbor. A full node refuses the link."""
        if profile.linked and self._is_full():
            return [Send(sender, Unlink())]
        return [*super()._on_stranger(sender, profile), *self._make_room()]

    def _on_linked(self, neighbor: Neighbor, linked: bool) -> Effects:
        """Handle what a neighbor says about having us in its table. A full node refuses a new link."""
        if linked and not neighbor.firm and self._is_full():
            effects: Effects = [Send(neighbor.node, Unlink())]
        else:
            effects = [*super()._on_linked(neighbor, linked), *self._make_room()]
        if not neighbor.firm:
            # It spoke of a link that we do not have. A later link must be confirmed. The same profile is refused again.
            neighbor.spoke, neighbor.profile = False, None
        return effects

    def _on_unlink(self, sender: NodeId) -> Effects:
        """Handle a refusal, or the end of a link."""
        effects = super()._on_unlink(sender)
        if sender not in self.table:
            return effects
        self._refused[sender] = self.round
        self.table.table.forget(sender)
        return [*effects, *self._follow_table()]

    def _is_full(self) -> bool:
        """Return whether confirmed links alone reach the bound."""
        return sum(1 for neighbor in self.neighbors.all.values() if neighbor.firm and neighbor.spoke) >= self._bound

    def _make_room(self) -> Effects:
        """Give up requests that are not confirmed if a node that asked us has made us exceed the bound."""
        if sum(neighbor.firm for neighbor in self.neighbors.all.values()) <= self._bound:
            return []
        self.table.select_again()
        return self._follow_table()

    def _part(self, neighbor: Neighbor) -> Effects:
        """Let a link part."""
        neighbor.spoke, neighbor.profile = False, None  # A later link with this node must be confirmed again.
        return super()._part(neighbor)

    def _update(self) -> Effects:
        """Forget refusals that are old enough."""
        oldest = self.round - self.config.refusal_rounds
        if self._refused:
            self._refused = {node: since for node, since in self._refused.items() if since > oldest}
        return []

    # Events

    def _targets(self, topic: Topic) -> list[NodeId]:
        """Return the subscribed nodes with which we have a confirmed link."""
        neighbors = self.neighbors
        return [node for node in neighbors.interested(topic) if neighbors.all[node].spoke]
