"""The SpiderCast node: the neighbor maintenance task twice, heartbeats, and changes of the interest.  [SC §2]

    spidercast   two `CoverTopics` tasks, greedy and random selection
    similarity   two `HaveLinks` tasks, the most similar and any node  [SC §3.9.1]

A heartbeat is one message per neighbor and period, whichever tasks share the link. It shows that the node is running.
It has degree and target, and the interest if that has changed. A neighbor that missed the change notices it by the
stamp and asks. Other nodes learn the interest from the membership service: the driver's, or the node's own gossip.

N1  A link is up exactly if a task holds it. Exactly the nodes with links are watched.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Contact, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.gossip_view import GossipView, GossipViewConfig
from trellis.protocols.membership import InterestView
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.spidercast.config import NeighborConfig, SimilarityConfig, SpiderCastConfig
from trellis.protocols.spidercast.goals import CoverTopics, Goal, HaveLinks, Me
from trellis.protocols.spidercast.links import Links
from trellis.protocols.spidercast.messages import (
    Connect,
    ConnectOk,
    Disconnect,
    DisconnectOk,
    Heartbeat,
    Inquire,
    Leave,
    Redirect,
    State,
    Task,
)
from trellis.protocols.spidercast.select import (
    Selection,
    next_greedy_coverage_node,
    next_greedy_node_literal,
    next_random_coverage_node,
    next_random_node,
    next_similarity_node,
)
from trellis.protocols.spidercast.task import NeighborTask
from trellis.protocols.suspicion import Sign, Suspicion
from trellis.protocols.topics import TopicTable


class SpiderCastNode:
    """A node of SpiderCast, or of one of its baselines, by the type of `config`."""

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: NeighborConfig,
        *,
        view: InterestView | None = None,
        contacts: Iterable[Contact] = (),
        gossip: GossipViewConfig | None = None,
        table: TopicTable | None = None,
        incarnation: int = 1,
        neighbours: Iterable[NodeId] = (),
    ) -> None:
        """Create a node that chooses its neighbors from `view`.

        Without a view it builds its own by gossip, beginning with `contacts`. `neighbours` are links of a planned
        overlay, with which the node begins.
        """
        self.id, self.random, self.config = node, random, config
        self.me = Me(node, topics, table if table is not None else TopicTable(), incarnation)
        self.membership: GossipView | None = None
        if view is None:
            own_random = Random(random.getrandbits(128))
            self.membership = GossipView(self._describe, contacts, self.me.table, own_random, gossip)
            view = self.membership.view
        self.view: InterestView = view
        self.suspicion = Suspicion(config.silence_max)
        self.links = Links(self.suspicion)
        self.first_neighbours = [peer for peer in neighbours if peer != node]
        self.unknown = 0  # messages of other protocols
        self._announce = False  # The next heartbeats must have our interest.
        goals, choices = _goals(config, self.me, view), _choices(config)
        self.greedy = self._task("greedy", goals[0], choices[0])
        self.random_task = self._task("random", goals[1], choices[1])
        self.tasks: dict[Task, NeighborTask] = {"greedy": self.greedy, "random": self.random_task}

    def _task(self, task: Task, goal: Goal, choose: Selection) -> NeighborTask:
        """Return a task of this node."""
        return NeighborTask(
            task,
            goal,
            choose,
            me=self.me,
            view=self.view,
            links=self.links,
            random=self.random,
            config=self.config,
        )

    @property
    def degree(self) -> int:
        """Return the number of different neighbors of both tasks together (A-SPC-1)."""
        return len(self.links)

    def start(self) -> Effects:
        first_heartbeat = SetTimer("heartbeat/tick", 1 + self.random.randrange(self.config.heartbeat_ms))
        gossip = self.membership.start() if self.membership else []
        if self.first_neighbours:
            gossip += [*self.greedy.begin_with(self.first_neighbours), *self.random_task.begin_with(())]
        return [*self.greedy.start(), *self.random_task.start(), first_heartbeat, *gossip]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Pass a message to the task or the part that handles it."""
        if sender == self.id:
            self.unknown += 1
            return []
        match message:
            case Heartbeat():
                return self._on_heartbeat(sender, message)
            case Connect():
                self.suspicion.heard(sender, message.stamp.incarnation)
                return self.tasks[message.task].on_connect(sender, message)
            case ConnectOk():
                self.suspicion.heard(sender, message.stamp.incarnation)
                return self.tasks[message.task].on_connect_ok(sender, message)
            case Redirect():
                return self.tasks[message.task].on_redirect(sender, message)
            case Disconnect():
                return self.tasks[message.task].on_disconnect(sender)
            case DisconnectOk():
                return self.tasks[message.task].on_disconnect_ok(sender)
            case Leave():
                return [*self._rouse(sender), *self.tasks[message.task].on_leave(sender)]
            case Inquire():
                return self._tell(sender)
            case NewscastRequest() | NewscastReply() if self.membership:
                return self.membership.on_message(sender, message)
        self.unknown += 1
        return []

    def on_timer(self, tag: str) -> Effects:
        if tag == "heartbeat/tick":
            return self._tick()
        if self.membership and tag.startswith("newscast/"):
            return self.membership.on_timer(tag)
        task = self.greedy if tag.startswith("greedy/") else self.random_task
        effects = task.on_timer(tag)
        if task is self.greedy and isinstance(self.config, SpiderCastConfig) and self.config.adaptive:
            effects += self._adapt(self.config)
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Remove a peer that has crashed, in both tasks."""
        gossip = self.membership.on_peer_down(peer) if self.membership else []
        gossip += self._rouse(peer)
        return [*self.greedy.on_suspect(peer), *self.random_task.on_suspect(peer), *gossip]

    def subscribe(self, topic: Topic) -> Effects:
        return self.subscribe_all((topic,))

    def subscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Add topics to the interest, as one change."""
        return self._change(self.me.interest | self.me.table.own_bits(topics))

    def unsubscribe(self, topic: Topic) -> Effects:
        return self.unsubscribe_all((topic,))

    def unsubscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Remove topics from the interest, as one change."""
        return self._change(self.me.interest & ~self.me.table.bits(tuple(topics)))

    def leave(self) -> Effects:
        return [*self.greedy.leave(), *self.random_task.leave()]

    def check(self) -> None:
        """Assert the invariant N1, and those of the tasks and of gossip."""
        held = {node for task in self.tasks.values() for node in task.neighbors}
        assert held == set(self.links.tasks), f"N1: {self.id} holds {held}, its links are {set(self.links.tasks)}"
        assert held == set(self.suspicion.watched), f"N1: {self.id} holds {held}, it watches {self.suspicion.watched}"
        assert self.id not in held, f"N1: {self.id} is its own neighbor"
        for task in self.tasks.values():
            task.check()
        if self.membership:
            self.membership.check()

    def _rouse(self, peer: NodeId) -> Effects:
        """End the rest of both tasks (`repair_only`), if a neighbor is lost."""
        return [*self.greedy.rouse(), *self.random_task.rouse()] if peer in self.links.tasks else []

    # Heartbeats

    def _tick(self) -> Effects:
        """Send heartbeats to all neighbors, and remove the neighbors that were silent for too long."""
        effects: Effects = []
        beats: dict[tuple[Task, ...], Heartbeat] = {}
        for node, tasks in self.links.tasks.items():
            beat = beats.get(tasks)
            if beat is None:
                beat = beats[tasks] = self._heartbeat(tasks, self._announce)
            effects.append(Send(node, beat))
        self._announce = False
        for node in self.suspicion.tick():
            effects += self.on_peer_down(node)
        effects.append(SetTimer("heartbeat/tick", self.config.heartbeat_ms))
        return effects

    def _heartbeat(self, tasks: tuple[Task, ...], announce: bool) -> Heartbeat:
        """Return a heartbeat for neighbors that share these tasks."""
        states = {name: State(len(self.tasks[name].neighbors), self.tasks[name].target) for name in tasks}
        interest = self.me.topics if announce else None
        return Heartbeat(self.me.stamp, states.get("greedy"), states.get("random"), interest)

    def _on_heartbeat(self, sender: NodeId, beat: Heartbeat) -> Effects:
        """Take in degree, target and interest of a neighbor."""
        if self.suspicion.heard(sender, beat.stamp.incarnation) is Sign.STALE:
            return []
        effects: Effects = []
        behind = False  # whether we know an older interest of the sender
        for task, state in ((self.greedy, beat.greedy), (self.random_task, beat.random)):
            if state is not None:
                effects += task.on_state(sender, state)
            record = task.neighbors.get(sender)
            if record is not None and record.stamp is not beat.stamp and record.stamp < beat.stamp:
                behind = True
        if not behind:
            return effects
        if beat.interest is None:
            return [*effects, Send(sender, Inquire())]
        interest = self.me.table.bits(beat.interest)
        for task in self.tasks.values():
            task.on_interest(sender, interest, beat.stamp)
        return effects

    def _tell(self, sender: NodeId) -> Effects:
        """Answer a question for our interest."""
        self.suspicion.heard(sender)
        return [Send(sender, self._heartbeat(self.links.tasks.get(sender, ()), announce=True))]

    # Interest changes and the adaptive scheme

    def _describe(self) -> Descriptor:
        return Descriptor(self.id, 0, self.me.stamp.incarnation, self.me.topics)

    def _change(self, interest: int) -> Effects:
        """Set the interest of this node."""
        if interest == self.me.interest:
            return []
        self.me.change(interest)
        self._announce = True
        if isinstance(self.config, SpiderCastConfig) and self.config.adaptive and self.config.adaptive_restart:
            self._random_coverage.k = 0  # A-SPC-4
        return [*self.greedy.on_own_interest(), *self.random_task.on_own_interest()]

    @property
    def _random_coverage(self) -> CoverTopics:
        goal = self.random_task.goal
        assert isinstance(goal, CoverTopics)
        return goal

    def _adapt(self, config: SpiderCastConfig) -> Effects:
        """Raise K_r if greedy links alone are too few to be random enough.  [SC §3.3.1; A-SPC-2, -3]"""
        goal = self._random_coverage
        if not self.greedy.idle or self.greedy.asked_to_part is not None or self.greedy.under_covered():
            return []
        if goal.k == 0:
            if self.degree != config.coverage_greedy:
                return []
        else:
            busy = not self.random_task.idle or self.random_task.asked_to_part is not None
            if busy or self.random_task.under_covered():
                return []
            if goal.k >= config.adaptive_random_max or self.degree >= self.me.interest.bit_count():
                return []
        goal.k += 1
        return self.random_task.on_own_interest()


def _goals(config: NeighborConfig, me: Me, view: InterestView) -> tuple[Goal, Goal]:
    if isinstance(config, SimilarityConfig):
        return HaveLinks(config.links_similar), HaveLinks(config.links_random)
    assert isinstance(config, SpiderCastConfig), "a config of SpiderCast or of its baselines"
    literal = config.demand == "literal"
    return (
        CoverTopics(config.coverage_greedy, me, view, literal=literal),
        CoverTopics(config.coverage_random, me, view, literal=literal),
    )


def _choices(config: NeighborConfig) -> tuple[Selection, Selection]:
    if isinstance(config, SimilarityConfig):
        return next_similarity_node, next_random_node
    assert isinstance(config, SpiderCastConfig), "a config of SpiderCast or of its baselines"
    if config.demand == "literal":
        return next_greedy_node_literal, next_random_coverage_node
    return next_greedy_coverage_node, next_random_coverage_node
