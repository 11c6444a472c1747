"""One join: links a node on topics that none of its neighbors has.  [OM Alg. 5; A-OMN-4, A-OMN-21]

The node is a joiner, or we ourselves: after we have subscribed, and when the root rendezvous has told us of other
subscribers. Nothing is split here and nothing has to be proven. The subscribers of a topic are connected with each
other, so one link to any of them is enough. All new links end at the joiner. With `connectivity` 2 each topic takes two
links, to two nodes, so that the loss of one of them does not separate the joiner. These are the states:

    new         created and not started
    answers     ask the joiner, and the backups that gossip does not describe
    backups     ask the nodes that Alg. 1 would choose by what gossip says about them, several times
    links       have the links opened that Alg. 1 chooses by their answers
    done        all these links are up, or none was needed, or the join gave up (`gave_up`)

| from             | to      | when                                                                                   |
| ---------------- | ------- | -------------------------------------------------------------------------------------- |
| new              | answers | `start`                                                                                |
| answers, backups | backups | topics of the joiner are not covered by answers; `CHOICES_MAX` times at most           |
| answers, backups | links   | Alg. 1 has chosen links                                                                |
| answers, backups | done    | no link is needed, or the joiner has not answered                                      |
| links            | done    | all links are up                                                                       |
| any but done     | answers | it starts again: the joiner is suspected, a link does not come up, or an end of a link |
|                  |         | was suspected and all other links are up                                               |
| any but done     | done    | it has started too often                                                               |
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.repair.joins import chosen_partners, parts_to_join, uncovered
from trellis.protocols.omen.repair.procedure import (
    ANSWERS,
    ASKING,
    BACKUPS,
    DONE,
    LINKS,
    NEW,
    Procedure,
    Transitions,
)
from trellis.protocols.omen.shadow import Pair
from trellis.protocols.omen.signals import Outcomes

TRANSITIONS: Transitions = {
    NEW: (ANSWERS,),
    ANSWERS: (ANSWERS, BACKUPS, LINKS, DONE),
    BACKUPS: (ANSWERS, BACKUPS, LINKS, DONE),
    LINKS: (ANSWERS, DONE),
    DONE: (),
}
CHOICES_MAX = 4  # Times that link ends are chosen for a joiner. The last time, all that may help are asked.


class Join(Procedure):
    """One join. See the module's docstring for its states."""

    transitions = TRANSITIONS
    kind = "join"
    choices = 0  # Times that link ends were chosen since the last start.
    is_short = False  # An end of a new link was suspected, so the joiner may lack topics.

    # Inputs

    def start(self) -> Outcomes:
        """Begin the join, or begin it again: forget all answers, and ask the joiner."""
        self._move(ANSWERS)
        self.starts += 1
        self.choices = 0
        self.questions.restart()
        self.links.choose(())
        undescribed = [node for node in self.backups if self.context.described(node) is None]
        return [
            *self.questions.ask([self.node], required=True),
            *self.questions.ask(undescribed, required=False),  # They cannot be chosen later.
            self._timer(self.questions.patience),
        ]

    def on_dead(self, node: NodeId) -> Outcomes:
        """Start again if the joiner is suspected. Go on without any other node, since nothing was proven by it.

        A new start while links are being opened would give the joiner twice the links that it needs.
        """
        if node == self.node:
            is_counted_on = node in self.questions.answers or node in self.questions.asked
            return self.again() if self.state in (*ASKING, LINKS) and is_counted_on else []
        if self.state == LINKS:
            is_lost = self.links.give_up(node)
            self.is_short = self.is_short or is_lost
            return self._linked() if is_lost else []
        self.questions.give_up(node)
        if self.state in ASKING and self.questions.asked and self.questions.is_complete:
            return self._examine()
        return []

    # Steps

    def _decide(self) -> Outcomes:
        """Ask further nodes that may become neighbors of the joiner. If there are none, have the links opened."""
        self.questions.end_routes()
        more = self._partners()
        if more:
            self._move(BACKUPS)
            return self._ask_for_more(more)
        told = self.questions.answers.told
        if self.node not in told:
            self.gave_up = True
            return self._finish()
        return self._open(self._links_for_joiner())

    def _links_for_joiner(self) -> list[Pair]:
        """Return the links that Alg. 1 chooses for the joiner: one on each topic, then as many more as are wanted."""
        told, pairs = self.questions.answers.told, list[Pair]()
        for wanted in range(1, self.config.connectivity + 1):
            chosen = [end for pair in pairs for end in pair if end != self.node]
            pairs += self._choose(parts_to_join(told, self.node, chosen, wanted), self.node)
        return pairs

    def _partners(self) -> list[NodeId]:
        """Return the nodes to ask next.

        Deviation: [OM 3.2] collects information from the whole shadow set. Here Alg. 1 runs on what gossip has told
        about it, and only the link ends that it chooses are asked.
        """
        questions, context, told = self.questions, self.context, self.questions.answers.told
        if self.node not in told or self.choices >= CHOICES_MAX:
            return []
        self.choices += 1
        seen = {*questions.asked, *questions.silent, self.node}
        known = {one: context.described(one) for one in self.backups if one not in seen}
        offers = {
            one: (questions.mask(said.interest), said.numbers[-1:]) for one, said in known.items() if said is not None
        }
        wanted = self.config.connectivity
        if self.choices == CHOICES_MAX:
            return [one for one, (topics, _) in offers.items() if topics & uncovered(told, self.node, wanted)]
        return chosen_partners(told, self.node, offers, context.low_edges, context.key, self.config.rho, wanted)

    def _linked(self) -> Outcomes:
        """Finish when no new link is awaited any more. Start again if an end of one was suspected."""
        if not self.links.opening and self.is_short:
            self.is_short = False
            return self.again()
        return super()._linked()
