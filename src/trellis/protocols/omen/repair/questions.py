"""The questions of one repair or join, and the answers to them.

`Procedure` (procedure.py) says which nodes are asked. This class sends the questions, repeats them, and says which
nodes were given up because they did not answer.

A node is asked directly, or on a route (`routes.py`): it then answers through the last node of the route. A node on a
route that does not answer may never have got the question. So it is asked directly before it is given up.

Q1  Each set of questions has a number, the attempt. Answers to earlier attempts are ignored.
Q2  Topics in answers are bitsets over `topics`. Other topics therefore need another attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trellis.protocols.effects import NodeId, Send, Topic
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.knowledge import Answers, Told, masks
from trellis.protocols.omen.messages import Answer, Ask, NodeRun, Relayed, Route
from trellis.protocols.omen.repair.routes import split_into_routes
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.wire import PEERS_MAX


class Questions:
    """The questions of one repair or join."""

    def __init__(
        self,
        number: int,
        me: NodeId,
        config: OMenConfig,
        topics: tuple[Topic, ...],
        is_quiet: Callable[[NodeId], bool],
        departed_near: Callable[[NodeId], list[NodeRun]] = lambda node: [],
    ) -> None:
        """Create it without questions.

        `number`          the number of the repair, which answers carry
        `is_quiet`        returns whether a node has missed periods and may hang
        `departed_near`   returns the departed nodes of the repair that had a node as their neighbor
        """
        self.number, self.me, self.config, self.topics = number, me, config, topics
        self.is_quiet, self.departed_near = is_quiet, departed_near
        self.index_of: dict[Topic, int] = masks(topics)  # Index of each topic in `topics`.
        self.attempt = 0
        self.answers = Answers()
        self.asked: dict[NodeId, int] = {}  # Each node that was asked -> 1 + questions sent to it.
        self.required: set[NodeId] = set()  # Nodes that the repair cannot do without.
        self.silent: set[NodeId] = set()  # Nodes that were given up.
        self._routes: dict[NodeId, frozenset[NodeId]] = {}  # Node asked on a route -> all nodes of the route.
        self._on_routes: set[NodeId] = set()  # Nodes asked on a route that were not asked directly since.

    def restart(self) -> None:
        """Forget all questions and answers, and begin another attempt."""
        self.required, self.silent = set(), set()
        self._begin_attempt()

    def change_topics(self, topics: tuple[Topic, ...]) -> None:
        """Ask about these topics from now on. If they are others than before, all nodes must be asked again (Q2)."""
        if topics != self.topics:
            self.topics, self.index_of = topics, masks(topics)
            self._begin_attempt()

    def _begin_attempt(self) -> None:
        self.attempt += 1
        self.answers, self.asked = Answers(), {}
        self._routes, self._on_routes = {}, set()

    @property
    def is_complete(self) -> bool:
        """Whether each node that was asked has answered or was given up."""
        return all(node in self.answers for node in self.asked)

    @property
    def patience(self) -> int:
        """How many times `ask_ms` to wait for answers. It is more while a question travels on a route."""
        return 2 if self._on_routes else 1

    def end_routes(self) -> None:
        """Wait for no question on a route any more."""
        self._on_routes.clear()

    def mask(self, topics: Iterable[Topic]) -> int:
        """Return the bitset of those of these topics that the questions are about."""
        return sum(1 << self.index_of[topic] for topic in topics if topic in self.index_of)

    def ask(self, nodes: Iterable[NodeId], *, required: bool) -> Outcomes:
        """Ask nodes that were not asked yet.

        Required nodes, quiet nodes and we ourselves are asked directly. The others share questions on routes.
        """
        for node in nodes:
            if required:
                self.required.add(node)
            if node not in self.asked:
                self.asked[node] = 1
        fresh = [node for node, questions in self.asked.items() if questions == 1 and node not in self.answers]
        self.asked.update(dict.fromkeys(fresh, 2))
        alone = [node for node in fresh if node in self.required or node == self.me or self.is_quiet(node)]
        others = [node for node in fresh if node not in alone]
        effects: Outcomes = []
        for route in [*[[node] for node in alone], *split_into_routes(others, self.config.way_max)]:
            if len(route) == 1:
                effects.append(self._question(route[0]))
                continue
            self._routes.update(dict.fromkeys(route, frozenset(route)))
            self._on_routes.update(route)
            onward = Route(self.me, self.number, tuple(route[1:]))
            effects.append(Send(route[0], Ask(self.number, self.attempt, self.topics, (), onward)))
        return effects

    def _question(self, node: NodeId) -> Send:
        """Return the question to one node. It names the departed nodes that had this node as a neighbor."""
        departed = tuple(self.departed_near(node)[:PEERS_MAX])
        return Send(node, Ask(self.number, self.attempt, self.topics, departed))

    def repeat(self) -> tuple[Outcomes, list[NodeId]]:
        """Repeat questions that were not answered. Return them, and the nodes that are given up instead."""
        silent = [node for node in self.asked if node not in self.answers]
        alone = [node for node in silent if node not in self._on_routes]
        # Required nodes are asked `helper_tries` times, or `ask_tries` times if that is 0. Others are asked
        # `optional_tries` times. A node that was quiet before is asked once.
        tries = self.config.helper_tries or self.config.ask_tries
        given_up = [node for node in alone if self.asked[node] > (1 if self.is_quiet(node) else tries)]
        effects: Outcomes = []
        for node in silent:
            if node in given_up:
                continue
            if node in alone and node not in self.required and self.asked[node] > self.config.optional_tries:
                given_up.append(node)
                continue
            self.asked[node] += 1
            effects.append(self._question(node))
        self._on_routes.clear()
        self.silent.update(given_up)
        for node in given_up:
            del self.asked[node]
        return effects, given_up

    def give_up(self, node: NodeId) -> None:
        """Forget a node and its answer, because it is suspected."""
        self.silent.add(node)
        self.asked.pop(node, None)
        self.answers.drop(node)

    def take(self, sender: NodeId, answer: Answer) -> bool:
        """Take in an answer, with the answers of other nodes on the same route that it carries.

        Return whether this completes the answers. A passed-on answer is believed only from a node on the same route,
        and never in place of one that we have.
        """
        if answer.attempt != self.attempt:
            return False
        route = self._routes.get(sender, ())
        passed_on = [one for one in answer.more if one.node in route and one.node not in self.answers]
        given: dict[NodeId, Answer | Relayed] = {**{one.node: one for one in passed_on}, sender: answer}
        taken = {node: Told(one, self.index_of) for node, one in given.items() if node in self.asked}
        for node, told in taken.items():
            self.answers.add(node, told)
        return bool(taken) and self.is_complete
