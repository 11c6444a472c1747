"""Local views: for each of the L predecessors a set of backups, prepared by gossip.  [OM Alg. 2-4]

A repair offers backups as ends of new links, so that links do not all end at the survivors. `OMenNode` says which views
are kept (`want`): those of the L predecessors, and of the nodes of open events (A-OMN-8).

Gossip is T-Man with OMen's selectView: all nodes that are known are candidates, and the backups of each view are chosen
from them (`cover.py`). Each chosen backup is told so (`registrations`), because its weight grows by that.

A view is *ready* when it covers every topic that a known node has, and some gossip rounds have passed (A-OMN-6). It is
improved for `view_rounds`; then it is *settled*. A settled view is rebuilt only when it is no longer ready: a backup
has crashed, or the topics have changed. Views are built once per round, from everything that was heard in it. If they
were built after each message, the backups would change with each one, and all of them would have to be told.

V1  There are at most 2L views.  [OM §5; A-OMN-20]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import msgspec

from trellis import ids
from trellis.protocols.descriptors import Descriptor, DescriptorTable
from trellis.protocols.effects import Effects, NodeId
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.cover import Candidate, choose_backups
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.moments import Announce, ViewsBuilt, ViewsStarted, unobserved
from trellis.protocols.tman import TMan, TManConfig

# Deviation: [OM Alg. 3, l. 1] has one exchange in each interval. Here a node whose views are all settled begins an
# exchange with a probability of one in `RESTING` per period.
RESTING = 8
AGE_MAX = 400  # Rounds after which a descriptor is dropped. It is long, because few exchanges bring news when at rest.
# Periods after which backups are told again that we count on them. They forget nodes that have not done so for twice
# this time.
REGISTER_PERIODS = 64
KNOWN_MAX = 1_000  # Most candidates that are kept while views are improved.
# Deviation: [OM Alg. 3, l. 2] selects one peer per interval. For the view of a joiner so many more are asked in each
# round: the more nodes are known, the fewer links the joiner needs.
JOIN_PARTNERS = 3
NEW_PERIODS = 4  # Backups of views that are not settled are told once in so many periods.


@dataclass(eq=False)
class View:
    """The backups for one node."""

    node: NodeId
    interest: int  # Its topics, as a bitset.
    backups: list[NodeId] = field(default_factory=list)  # B
    neighbours: list[NodeId] = field(default_factory=list)  # N
    rounds: int = 0  # Gossip rounds since the view was new, or its topics changed.
    ready: bool = False
    is_of_a_joiner: bool = False


class Wanted(NamedTuple):
    """A view that must be kept."""

    node: NodeId
    interest: int
    neighbours: list[NodeId]
    is_of_a_joiner: bool  # The node joins, or has no neighbors yet.


class Views:
    """All views of this node, and the gossip that improves them."""

    def __init__(
        self,
        me: Me,
        config: OMenConfig,
        samples: Callable[[], list[Descriptor]],
        partners: Callable[[], list[NodeId]],
        random: Random,
        seed: int | str,
        everybody: Callable[[], list[Descriptor]] | None = None,
        announce: Announce = unobserved,
    ) -> None:
        """Create it without views. `everybody` returns all nodes of the mesh, for OMen-G (simulator only)."""
        self.me, self.config, self.seed, self.everybody = me, config, seed, everybody
        self.announce = announce
        self.views: dict[NodeId, View] = {}
        self.random = random
        gossip = TManConfig(period_ms=config.period_ms, age_max=AGE_MAX)
        self.tman = TMan(
            "backups", me.describe, self._unused, samples, random, gossip, partners, self._select, lambda: self.peers
        )
        self.peers: list[NodeId] = []  # B and N of all views. Gossip tells others about these nodes.
        self._registered: dict[NodeId, None] = {}  # Backups that were told that we count on them.
        self._built = -1  # The gossip round in which views were last built.

    def __contains__(self, node: NodeId) -> bool:
        return node in self.views

    def want(self, nodes: list[Wanted]) -> None:
        """Keep the first 2L of these views, and no others. A view whose topics have changed is improved again."""
        views: dict[NodeId, View] = {}
        for one in nodes[: 2 * self.config.resilience]:
            view = self.views.get(one.node)
            if view is None:
                view = View(one.node, one.interest)
            elif view.interest != one.interest or (one.is_of_a_joiner and not view.is_of_a_joiner):
                view.interest, view.ready, view.rounds = one.interest, False, 0
            view.neighbours, view.is_of_a_joiner = one.neighbours, one.is_of_a_joiner
            views[one.node] = view
        self.views = views

    def registrations(self, tick: int) -> tuple[list[NodeId], list[NodeId]]:
        """Return the nodes to tell that we count on them as backups, and those that we no longer do (A-OMN-11)."""
        if tick % NEW_PERIODS and self._is_restless():
            return [], []
        chosen = {node: None for view in self.views.values() for node in view.backups}
        again = tick % REGISTER_PERIODS == 0
        if not again and list(chosen) == list(self._registered):
            return [], []
        new = [node for node in chosen if again or node not in self._registered]
        over = [node for node in self._registered if node not in chosen]
        self._registered = chosen
        return new, over

    def size(self) -> int:
        """Return the number of distinct nodes in B and N of all views (A-OMN-13)."""
        return len({node for view in self.views.values() for node in (*view.backups, *view.neighbours)})

    def start(self) -> Effects:
        return self.tman.start()

    def on_timer(self, tag: str) -> Effects:
        """Begin a gossip exchange, but seldom if all views are settled.

        Begin further ones while the view of a joiner is not ready.
        """
        for view in self.views.values():
            view.rounds += 1
        if self.everybody is not None or (not self._is_restless() and self.random.randrange(RESTING)):
            self.tman.table.advance()
            if self.everybody is not None and self._is_restless():
                self._build(self.everybody())
            return [self.tman._exchange]
        effects = self.tman.on_timer(tag)
        if any(view.is_of_a_joiner and not view.ready for view in self.views.values()):
            partners = self.tman.partners() if self.tman.partners else []
            chosen = self.random.sample(partners, min(JOIN_PARTNERS, len(partners)))
            effects += [effect for partner in chosen for effect in self.tman.exchange_with(partner)]
        return effects

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        return self.tman.on_message(sender, message)

    def on_peer_down(self, peer: NodeId) -> Effects:
        for view in self.views.values():
            if peer in view.backups:
                view.backups.remove(peer)
                view.ready = False
        return self.tman.on_peer_down(peer)

    def known(self) -> dict[NodeId, Descriptor]:
        """Return all candidates that we know."""
        if self.everybody is not None:
            return {one.node: one for one in self.everybody()}
        return {node: entry[1] for node, entry in self.tman.table.entries.items()}

    def check(self) -> None:
        assert len(self.views) <= 2 * self.config.resilience, f"V1: {self.me.id} keeps {len(self.views)} views"
        for view in self.views.values():
            assert view.node not in view.backups, f"{view.node} backs itself"
            assert len(set(view.backups)) == len(view.backups), f"{view.node} has a backup twice"

    def _select(self, table: DescriptorTable) -> Iterable[NodeId]:
        """Build views once per round, and return the nodes that T-Man keeps (selectView).  [OM Alg. 4]"""
        if self._built == table.round and self._is_restless():
            return table.entries  # Keep all until the next round.
        self._built = table.round
        self._build([entry[1] for entry in table.entries.values()])
        kept = {node: None for view in self.views.values() for node in (*view.backups, *view.neighbours)}
        self.peers = [node for node in kept if node in table.entries]
        return list(dict.fromkeys([*self.peers, *self._rivals(table)]))

    def _rivals(self, table: DescriptorTable) -> list[NodeId]:
        """Return all nodes that could be backups in a view that is not settled.

        Deviation: [OM Alg. 4] keeps B and N of the views, and nobody else. Then backups are chosen from the old ones
        and the few nodes that one message names. Those are often hubs, because hubs are named everywhere. Each repair
        would link to hubs.
        """
        wanted = 0
        for view in self.views.values():
            if not self._is_settled(view):
                wanted |= view.interest
        if not wanted:
            return []
        bits = self.me.table.bits
        return [node for node, entry in table.entries.items() if bits(entry[1].interest) & wanted][-KNOWN_MAX:]

    def _unused(self, candidates: list[Descriptor]) -> list[NodeId]:
        """Never called: T-Man needs this argument, and uses `_select` in its place."""
        raise AssertionError("names are selected")

    def _build(self, candidates: list[Descriptor]) -> None:
        """Choose the backups of all views that are not settled."""
        unsettled = [view for view in self.views.values() if not self._is_settled(view)]
        if not unsettled:
            return
        nodes = tuple(view.node for view in unsettled)
        self.announce(ViewsStarted(nodes))
        topics = 0
        for view in unsettled:
            topics |= view.interest
        described = self._candidates(topics, candidates, ())
        for view in unsettled:
            self._rebuild(view, [one for one in described if one.interest & view.interest and one.node != view.node])
        self.announce(ViewsBuilt(nodes))

    def _candidates(self, topics: int, known: Iterable[Descriptor], but: Collection[NodeId]) -> list[Candidate]:
        """Return the candidates that have one of these topics, ourselves included, in the order of names."""
        bits, me = self.me.table.bits, self.me.id  # With OMen-G, `known` has ourselves already.
        candidates = [
            Candidate(one.node, interest, one.numbers[0] if one.numbers else 0)
            for one in [*[one for one in known if one.node != me and one.node not in but], self.me.describe()]
            if (interest := bits(one.interest)) & topics
        ]
        return sorted(candidates, key=lambda one: one.node)

    def _is_restless(self) -> bool:
        """Return whether any view is not settled."""
        return not all(self._is_settled(view) for view in self.views.values())

    def _is_settled(self, view: View) -> bool:
        """Return whether a view is ready and was improved for long enough."""
        # Deviation: [OM Alg. 4, l. 3] rebuilds B at every exchange. Here a view is rebuilt once per round, and after
        # `view_rounds` only if it is not ready.
        return view.ready and view.rounds > self.config.view_rounds

    def _rebuild(self, view: View, candidates: list[Candidate]) -> None:
        """Choose the backups of a view, and decide whether it is ready (buildBackups).

        The random draws depend on the view alone, so the same candidates give the same backups (A-OMN-10).
        """
        random = Random(ids.stream(self.seed, "backups", self.me.id, view.node))
        lam = max(self.config.coverage, 1) if view.is_of_a_joiner else self.config.coverage  # A-OMN-7
        view.backups = choose_backups(self.config.backups, view.interest, candidates, lam, random)
        chosen, covered, coverable = set(view.backups), 0, 0
        for candidate in candidates:
            coverable |= candidate.interest
            if candidate.node in chosen:
                covered |= candidate.interest
        enough = not coverable & ~covered & view.interest or not self.config.coverage
        view.ready = enough and view.rounds >= self.config.ready_rounds
        # Deviation: the paper does not say when a joiner's view is ready. The more topics a joiner has, the longer we
        # wait.
        if view.is_of_a_joiner:
            rounds = self.config.ready_rounds + view.interest.bit_count() // 16
            view.ready = view.ready and view.rounds >= min(rounds, self.config.join_rounds)
