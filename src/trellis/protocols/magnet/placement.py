"""Find the position of a node on the skewed ring: next to the most similar node that it knows.  [MG §3.2, Alg. 1]

The steps of a join: enter the control ring, ask the homes of all topics for samples, and ask the most similar node in
these samples for a label. The stages of `Placement` are these steps.

The node that gives a label counts the newcomer as its successor at once, so that concurrent joins get different labels
(A-MAG-8). A node that does not answer is excluded, and the next most similar one is asked. If none is left, the
position is the hash of the name. The same is done again after a number of changes of the interest and, if configured,
as the view changes. A node that moves keeps its old position until it has the new one.
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

_INQUIRIES = 3  # How often the homes are asked before the node goes on with the answers that it has.
_LOOKUPS = 20  # Lookups of the node's own position before it believes that the ring is empty.
_LATER_MAX = 8  # How often it asks again at a node whose part of the ring is being spread out.


class Placement:
    """Decides what to ask for and where to go. The node sends the messages.

    The stages are "away", "control" (entering that ring), "asking" (for samples), "placing" (asking for a label),
    "entering" (by name), and "placed".
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
        self.is_founder = False  # It has no contacts, so it founds the rings.
        self.unanswered: dict[Topic, None] = {}  # topics whose homes have not answered yet
        self.changes = 0  # changes of the interest since the last placement
        self.moves = 0  # number of moves to another position
        self._rounds = self._later = 0
        self._excluded: set[NodeId] = set()
        self._asked: NodeId | None = None  # the node that was asked for a label
        # How similar the node is next to which we were placed. Only a more similar one is an improvement. Otherwise
        # nodes would change their positions for ever.
        self._likeness_here = self._likeness_asked = -1.0

    def ask(self, topics: tuple[Topic, ...]) -> None:
        """Begin to ask for the samples of these topics. A position is chosen when they have come."""
        self.stage, self.unanswered, self._rounds = "asking", dict.fromkeys(topics), 0

    def on_view(self, topic: Topic) -> Effects:
        """Note the answer for a topic. The last answer ends the stage "asking"."""
        self.unanswered.pop(topic, None)
        if self.stage == "asking" and not self.unanswered:
            return [CancelTimer("join/inquire"), *self.choose()]
        return []

    def is_patience_over(self) -> bool:
        """Count a round of questions. Return whether to go on with the answers that have come."""
        self._rounds += 1
        return self._rounds >= _INQUIRIES or not self.unanswered

    def choose(self) -> Effects:
        """Ask the most similar known node for a label (getLocation).  [Alg. 1, l. 1-3]"""
        self.stage, self._excluded = "placing", set()
        return self._ask_best()

    def reconsider(self) -> Effects:
        """Try to find a better position, if the node has one."""
        if self.stage != "placed" or self.config.placement == "name":
            return []
        _, most = self._most_similar()
        return self.choose() if most > self._likeness_here else []

    def is_asked(self, sender: NodeId) -> bool:
        """Return whether `sender` is the node that we have asked for a label."""
        return self.stage == "placing" and sender == self._asked

    def on_placed(self, message: Placed) -> Effects:
        """Move to the position that was given."""
        return [CancelTimer("join/place"), *self._go(message)]

    def on_no_place(self, sender: NodeId, message: NoPlace) -> Effects:
        """Handle a refusal: ask again soon, or ask another node."""
        if not self.is_asked(sender):
            return []
        if message.later and self._later < _LATER_MAX:
            self._later += 1
            return [SetTimer("join/again", 100)]
        return self.on_silence()

    def on_again(self) -> Effects:
        """Ask the same node again."""
        return self._request() if self.stage == "placing" and self._asked is not None else []

    def on_silence(self) -> Effects:
        """Exclude the asked node, because it does not answer, and ask the next one.  [MG §3.2]"""
        if self.stage != "placing":
            return []
        if self._asked is not None:
            self._excluded.add(self._asked)
        return self._ask_best()

    def _ask_best(self) -> Effects:
        """Ask the most similar node that is not excluded. If there is none, stay, or enter by name."""
        best, self._likeness_asked = self._most_similar()
        if best is None:
            if self.skewed.me is not None:
                self.stage = "placed"  # No better node is known, so it stays where it is.
                return [CancelTimer("join/place")]
            return [CancelTimer("join/place"), *self._enter_by_name()]
        table = self.skewed.table
        if self.skewed.me is not None and (
            (table.predecessor is not None and table.predecessor.node == best)
            or (table.successor is not None and table.successor.node == best)
        ):
            self.stage, self._likeness_here = "placed", self._likeness_asked  # It is next to that node already.
            return [CancelTimer("join/place")]
        self._asked, self._later = best, 0
        return self._request()

    def _request(self) -> Effects:
        """Send the request for a label."""
        assert self._asked is not None
        table = self.skewed.table
        wanted = Place(table.incarnation, table.version + 1)
        return [Send(self._asked, wanted), SetTimer("join/place", self.config.place_ms)]

    def _most_similar(self) -> tuple[NodeId | None, float]:
        """Return argmax sim(p, q) over view(p), ties broken at random, and the similarity.  [Alg. 1, l. 2]"""
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
        """Leave the old position, if there is one, and enter the new one."""
        effects = self.skewed.exit() if self.skewed.me is not None else []
        self.moves += bool(effects)
        self.stage, self._asked, self._likeness_here = "placed", None, self._likeness_asked
        return [*effects, *self.skewed.enter(message.label, message.peers)]

    def _enter_by_name(self) -> Effects:
        """Enter at the hash of the name: id(p)_s := hash(p.name).  [Alg. 1, l. 5]"""
        self.stage, self._asked, self._rounds = "entering", None, 0
        return [*self.skewed.enter(hashed(self.id)), SetTimer("join/enter", 1)]

    def on_enter(self) -> Effects:
        """Look up the ring until it answers. A node that gets no answer is alone and founds the ring."""
        self._rounds += 1
        if self.stage != "entering":
            return []
        if self.skewed.table.successor is not None or self.is_founder or self._rounds > _LOOKUPS:
            self.stage = "placed"
            return []
        return [*(self.skewed.ring.locate() if self._rounds > 1 else []), SetTimer("join/enter", 150)]
