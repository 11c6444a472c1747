"""What a repair and a join have in common: they ask nodes, let Alg. 1 choose links, and have these links opened.

`Repair` (repair.py) and `Join` (join.py) say which nodes are asked and which links are needed. Each of them has a table
of its states. If a node that is needed is suspected, or a link does not come up, the procedure starts again. After
`STARTS_MAX` starts it gives up, and the root rendezvous has to find what is still split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import CancelTimer, NodeId, Send, SetTimer, Topic
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.messages import Answer, FindRecord, LinkOpened, NodeRun, Opened, OpenLink, Record
from trellis.protocols.omen.moments import Announce, ChoiceEnded, ChoiceStarted, unobserved
from trellis.protocols.omen.repair.questions import Questions
from trellis.protocols.omen.shadow import LowEdges, Pair
from trellis.protocols.omen.signals import Outcomes, RepairDone
from trellis.protocols.wire import PEERS_MAX

STARTS_MAX = 6  # Most starts before a repair or join gives up.
REPAIR_TIMER = "mend"  # First part of the timers' tags. Digests of recorded runs depend on it.
# Simulator only: (topic, nodes, gone) -> one label per node. Labels are equal if the nodes are connected in the whole
# overlay without the nodes in `gone`, which have departed or are leaving.
Oracle = Callable[[Topic, list[NodeId], Collection[NodeId]], dict[NodeId, int]]


class State(StrEnum):
    """The states of a repair or join. A join uses fewer of them."""

    NEW = "new"  # Created and not started.
    RECORDS = "records"  # Waits for the records of departed nodes.
    ANSWERS = "answers"  # Waits for the answers of nodes that are required.
    PROOF = "proof"  # Waits for the answers of nodes that may connect parts of a topic.
    BACKUPS = "backups"  # Waits for the answers of nodes that may be ends of new links.
    LINKS = "links"  # Waits for new links to be up.
    DONE = "done"  # All links are up, or none was needed, or it has given up (`gave_up`).


NEW, RECORDS, ANSWERS, PROOF, BACKUPS, LINKS, DONE = State
ASKING = (ANSWERS, PROOF, BACKUPS)  # The states that wait for answers.
Transitions = Mapping[State, Collection[State]]


@dataclass(frozen=True)
class Context:
    """What a repair or join uses of its node."""

    me: NodeId
    config: OMenConfig
    low_edges: LowEdges  # Alg. 1
    key: Callable[[NodeId], int]  # Breaks ties.
    # Sends a question for a record: (the question, nodes to avoid, earlier tries).
    find: Callable[[FindRecord, Collection[NodeId], int], Outcomes] = lambda question, avoided, tries: []
    held: Callable[[NodeId, int], Record | None] = lambda node, run: None  # Returns the record that we hold of a run.
    is_quiet: Callable[[NodeId], bool] = lambda node: False  # Whether a node has missed periods and may hang.
    described: Callable[[NodeId], Descriptor | None] = lambda node: None  # Returns what gossip says about a node.
    oracle: Oracle | None = None
    announce: Announce = unobserved


class NewLinks:
    """The links that Alg. 1 has chosen, from the request until they are up.

    At first one end of each link is asked to open it: the end that has more of the new links, so that one message tells
    it all its links. If the link does not come up in time, both ends are asked.
    """

    def __init__(self, number: int) -> None:
        """Create it without links. `number` is that of the repair, which ends of links tell when a link is up."""
        self.number = number
        self.opening: dict[Pair, int] = {}  # Links that are not up yet -> requests so far.
        self.opened: list[Pair] = []  # Links that are up, also those of earlier starts.

    def choose(self, pairs: Iterable[Pair]) -> None:
        """Replace the links that are not up yet by these."""
        self.opening = dict.fromkeys(pairs, 0)

    def request(self, answers: Answers) -> Outcomes:
        """Return the requests to open all links that are not up. `answers` has the incarnations of their ends."""
        for pair in self.opening:
            self.opening[pair] += 1
        effects: Outcomes = []
        first: dict[NodeId, list[NodeRun]] = {}
        ends = Counter(node for pair in self.opening for node in pair)
        for (one, other), count in self.opening.items():
            runs = {node: NodeRun(node, answers.told[node].incarnation) for node in (one, other)}
            if count == 1:
                opener, peer = (one, other) if ends[one] >= ends[other] else (other, one)
                first.setdefault(opener, []).append(runs[peer])
                continue
            for opener, peer in (one, other), (other, one):
                effects.append(Send(opener, OpenLink(self.number, peer, runs[peer].incarnation)))
        for opener, peers in first.items():
            for start in range(0, len(peers), PEERS_MAX):
                next_peer, *more = peers[start : start + PEERS_MAX]
                effects.append(Send(opener, OpenLink(self.number, next_peer.node, next_peer.incarnation, tuple(more))))
        return effects

    def is_overdue(self, tries: int) -> bool:
        """Return whether a link was requested so many times and is still not up."""
        return any(requests >= tries for requests in self.opening.values())

    def on_opened(self, node: NodeId, peers: Iterable[NodeId]) -> None:
        """Note that links between `node` and these peers are up."""
        for peer in peers:
            for pair in (node, peer), (peer, node):
                if pair in self.opening:
                    del self.opening[pair]
                    self.opened.append(pair)

    def give_up(self, node: NodeId) -> bool:
        """Forget the links of a node that are not up yet. Return whether there were any."""
        lost = [pair for pair in self.opening if node in pair]
        for pair in lost:
            del self.opening[pair]
        return bool(lost)


class Procedure:
    """A repair or a join. See the subclasses for the order of states."""

    transitions: Transitions  # From each state to the states that may follow.
    kind: str

    def __init__(
        self, number: int, node: NodeId, incarnation: int, context: Context, topics: tuple[Topic, ...] = ()
    ) -> None:
        """Create it in the state `new`.

        `number`   unique in this run of our node; questions and answers carry it
        `node`     the node that has departed or joins, in this incarnation; for a lost link, its peer
        `topics`   the topics to connect
        """
        self.number, self.node, self.incarnation = number, node, incarnation
        self.context, self.config = context, context.config
        self.state = NEW
        self.questions = Questions(number, context.me, context.config, topics, context.is_quiet)
        self.links = NewLinks(number)
        self.backups: list[NodeId] = []  # Nodes that may be offered as ends of new links.
        self.starts = 0
        self.gave_up = False

    @property
    def topics(self) -> tuple[Topic, ...]:
        return self.questions.topics

    def _move(self, state: State) -> None:
        """Enter a state. `transitions` must allow it."""
        assert state in self.transitions[self.state], f"{self.kind} {self.number}: from {self.state} to {state}"
        self.state = state

    # Inputs

    def start(self) -> Outcomes:
        """Begin, or begin again: forget all answers."""
        raise NotImplementedError

    def on_dead(self, node: NodeId) -> Outcomes:
        """Handle that a node is suspected."""
        raise NotImplementedError

    def _decide(self) -> Outcomes:
        """Decide on the next step, now that all nodes have answered or were given up."""
        raise NotImplementedError

    def _examine(self) -> Outcomes:
        """Decide on the next step, and announce when that begins and ends."""
        self.context.announce(ChoiceStarted(self.number))
        effects = self._decide()
        self.context.announce(ChoiceEnded(self.number))
        return effects

    def again(self) -> Outcomes:
        """Start again because something has changed. Give up if that has happened too often."""
        if self.starts >= STARTS_MAX:
            self.gave_up = True
            return self._finish()
        return self.start()

    def on_answer(self, sender: NodeId, answer: Answer) -> Outcomes:
        """Take in an answer, and go on if it was the last one."""
        if self.state in ASKING and self.questions.take(sender, answer):
            return self._examine()
        return []

    def on_opened(self, sender: NodeId, message: LinkOpened) -> Outcomes:
        """Note new links that are up."""
        opened = [Opened(message.peer, message.peer_version), *message.more]
        self.links.on_opened(sender, [one.peer for one in opened])
        return self._linked() if self.state == LINKS else []

    def on_timer(self) -> Outcomes:
        """Repeat what has not been answered in time."""
        if self.state in ASKING:
            return self._ask_again()
        if self.state == LINKS:
            if self.links.is_overdue(3 * self.config.ask_tries):
                return self.again()
            return [*self.links.request(self.questions.answers), self._timer(2)]
        return []

    # Steps

    def _ask_again(self) -> Outcomes:
        """Repeat questions. Go on without the nodes that were asked often enough."""
        effects, _ = self.questions.repeat()
        if self.questions.is_complete:
            return [*effects, *self._examine()]
        return [*effects, self._timer(1)]

    def _ask_for_more(self, nodes: Collection[NodeId]) -> Outcomes:
        """Ask nodes whose answers only save links."""
        return [*self.questions.ask(nodes, required=False), self._timer(self.questions.patience)]

    def _choose(self, parts: Mapping[int, list[list[NodeId]]], centre: NodeId | None) -> list[Pair]:
        """Return the links that Alg. 1 adds to connect these parts. `centre`: all of them must end there."""
        told = self.questions.answers.told
        nodes = {node for groups in parts.values() for group in groups for node in group}
        return self.context.low_edges(
            parts,
            {node: told[node].degree for node in nodes},
            {node: self.context.key(node) for node in nodes},
            linked=self._linked_pairs(nodes),
            rho=self.config.rho,
            centre=centre,
        )

    def _linked_pairs(self, nodes: Iterable[NodeId]) -> set[Pair]:
        """Return the pairs among these nodes that are proven to be linked, as (lower key, higher key)."""
        answers, told = self.questions.answers, self.questions.answers.told
        ranked = sorted(nodes, key=lambda node: (self.context.key(node), node))
        return {
            (one, other)
            for number, one in enumerate(ranked)
            for other in ranked[number + 1 :]
            if other in told[one].neighbours and answers.linked(one, other)
        }

    def _open(self, chosen: list[Pair]) -> Outcomes:
        """Have the chosen links opened. Finish if there are none."""
        if not chosen:
            return self._finish()
        self._move(LINKS)
        self.links.choose(chosen)
        return [*self.links.request(self.questions.answers), self._timer(2)]

    def _linked(self) -> Outcomes:
        """Finish when no new link is awaited any more."""
        return self._finish() if not self.links.opening else []

    def _finish(self) -> Outcomes:
        self._move(DONE)
        return [CancelTimer(f"{REPAIR_TIMER}/{self.number}"), RepairDone(self.number)]

    def _timer(self, times: int) -> SetTimer:
        """Set the timer of this procedure to `times` times `ask_ms`."""
        return SetTimer(f"{REPAIR_TIMER}/{self.number}", times * self.config.ask_ms)
