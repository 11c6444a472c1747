"""Where a node goes on the skewed ring: next to the most similar node that it knows.  [MG §3.2, Alg. 1]

    control ring -> a sample of each of its topics, from their homes -> a label from the most similar node -> placed

Whoever gives a label knows of the newcomer at once, so that concurrent joins get different ones (A-MAG-8). A node that
does not answer is excluded and the next one is asked; where nobody is left the name's hash is the place. The same is
done again after a number of interest changes and, where asked for, as the view changes; a node that moves keeps its
old place until it has the new one.
"""

from __future__ import annotations

from random import Random

from trellis.protocols.effects import CancelTimer, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.membership import Membership
from trellis.protocols.magnet.messages import NoPlace, Place, Placed
from trellis.protocols.magnet.similarity import Similarity
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.oscar import Oscar

_INQUIRIES = 3  # rounds of questions before it goes on with what it has
_LOOKUPS = 20  # of its own place, before it believes that nobody is there
_LATER_MAX = 8  # times that it comes again to a node whose neighbourhood makes room


class Placement:
    """Says what to ask and where to go; the node carries it out.

    stage  "away", "control" (entering that ring), "asking" (for samples), "placing", "entering" (by name), "placed"
    """

    def __init__(
        self,
        node: NodeId,
        skewed: Oscar,
        membership: Membership,
        likeness: Similarity,
        random: Random,
        config: MagnetConfig,
    ) -> None:
        self.id, self.skewed, self.membership, self.likeness = node, skewed, membership, likeness
        self.random, self.config = random, config
        self.stage = "away"
        self.is_founder = False  # it was told of nobody
        self.unanswered: dict[Topic, None] = {}
        self.changes = 0  # of the interest, since the last placement
        self.moves = 0
        self._rounds = self._later = 0
        self._excluded: set[NodeId] = set()
        self._asked: NodeId | None = None
        # How similar the node was that we were placed next to: only a more similar one is an improvement, so that nodes
        # do not change places for ever.
        self._likeness_here = self._likeness_asked = -1.0

    def ask(self, topics: tuple[Topic, ...]) -> None:
        """The samples of these topics are wanted before a place is chosen."""
        self.stage, self.unanswered, self._rounds = "asking", dict.fromkeys(topics), 0

    def on_view(self, topic: Topic) -> Effects:
        self.unanswered.pop(topic, None)
        if self.stage == "asking" and not self.unanswered:
            return [CancelTimer("join/inquire"), *self.choose()]
        return []

    def is_patience_over(self) -> bool:
        self._rounds += 1
        return self._rounds >= _INQUIRIES or not self.unanswered

    def choose(self) -> Effects:
        """getLocation: find q, and ask it for a label.  [Alg. 1, l. 1-3]"""
        self.stage, self._excluded = "placing", set()
        return self._ask_best()

    def reconsider(self) -> Effects:
        """Alg. 1 once more, for a node that has a place."""
        if self.stage != "placed" or self.config.placement == "name":
            return []
        _, most = self._most_similar()
        return self.choose() if most > self._likeness_here else []

    def is_asked(self, sender: NodeId) -> bool:
        return self.stage == "placing" and sender == self._asked

    def on_placed(self, message: Placed) -> Effects:
        return [CancelTimer("join/place"), *self._go(message)]

    def on_no_place(self, sender: NodeId, message: NoPlace) -> Effects:
        if not self.is_asked(sender):
            return []
        if message.later and self._later < _LATER_MAX:
            self._later += 1
            return [SetTimer("join/again", 100)]
        return self.on_silence()

    def on_again(self) -> Effects:
        return self._request() if self.stage == "placing" and self._asked is not None else []

    def on_silence(self) -> Effects:
        """q cannot be reached: without it, start over.  [MG §3.2]"""
        if self.stage != "placing":
            return []
        if self._asked is not None:
            self._excluded.add(self._asked)
        return self._ask_best()

    def _ask_best(self) -> Effects:
        best, self._likeness_asked = self._most_similar()
        if best is None:
            if self.skewed.me is not None:
                self.stage = "placed"  # nobody better is known: it stays where it is
                return [CancelTimer("join/place")]
            return [CancelTimer("join/place"), *self._enter_by_name()]
        table = self.skewed.table
        if self.skewed.me is not None and (
            (table.predecessor is not None and table.predecessor.node == best)
            or (table.successor is not None and table.successor.node == best)
        ):
            self.stage, self._likeness_here = "placed", self._likeness_asked  # it is there already
            return [CancelTimer("join/place")]
        self._asked, self._later = best, 0
        return self._request()

    def _request(self) -> Effects:
        assert self._asked is not None
        table = self.skewed.table
        wanted = Place(table.incarnation, table.version + 1)
        return [Send(self._asked, wanted), SetTimer("join/place", self.config.place_ms)]

    def _most_similar(self) -> tuple[NodeId | None, float]:
        """argmax sim(p, q) over view(p), ties at random, and how similar it is.  [Alg. 1, l. 2]"""
        if self.config.placement == "name":
            return None, -1.0
        best: list[NodeId] = []
        most = -1.0
        seen: set[NodeId] = {self.id, *self._excluded}
        for topic in sorted(self.membership.views):
            for entry in self.membership.views[topic].sample:
                if entry.node in seen:
                    continue
                seen.add(entry.node)
                value = self.likeness.of(entry.interest)
                if value > most:
                    best, most = [entry.node], value
                elif value == most:
                    best.append(entry.node)
        return (best[self.random.randrange(len(best))] if best else None), most

    def _go(self, message: Placed) -> Effects:
        effects = self.skewed.exit() if self.skewed.me is not None else []
        self.moves += bool(effects)
        self.stage, self._asked, self._likeness_here = "placed", None, self._likeness_asked
        return [*effects, *self.skewed.enter(message.label, message.peers)]

    def _enter_by_name(self) -> Effects:
        """id(p)_s := hash(p.name).  [Alg. 1, l. 5]"""
        self.stage, self._asked, self._rounds = "entering", None, 0
        return [*self.skewed.enter(hashed(self.id)), SetTimer("join/enter", 1)]

    def on_enter(self) -> Effects:
        """Look for the ring until it is found. Who is alone after all has founded it."""
        self._rounds += 1
        if self.stage != "entering":
            return []
        if self.skewed.table.successor is not None or self.is_founder or self._rounds > _LOOKUPS:
            self.stage = "placed"
            return []
        return [*(self.skewed.ring.locate() if self._rounds > 1 else []), SetTimer("join/enter", 150)]
