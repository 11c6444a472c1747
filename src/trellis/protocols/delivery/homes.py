"""Homes: the node at a topic's place on the ring knows the topic's subscribers. [docs/delivery.md, Copies; SC §2.1]

Subscribers register with the home of each topic once per `register_ms`, batched by home. A node that has been home for
`registered_ms` has heard of all subscribers. Before that, it names those that it knows and says that it is not sure. A
sure answer proves that there are fewer subscribers than copies. A publisher that does not subscribe also finds
subscribers through the home.

A home keeps a bounded number of registrations (`registry.py`). It is not sure about a topic of which it has turned away
a registration within `registered_ms`.

Messages to a home travel step by step along the ring. A first step that brought no answer is avoided for a while.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from trellis.protocols.delivery.heirs import LEASE_TICKS, Heirs
from trellis.protocols.delivery.messages import (
    HOPS_MAX,
    REGISTERED_MAX,
    AskHome,
    HomeTells,
    Register,
    Registered,
    Unregister,
)
from trellis.protocols.delivery.registry import Registry
from trellis.protocols.delivery.state import State
from trellis.protocols.effects import Effect, Effects, NodeId, Seed, Send, Topic
from trellis.reached import reached

Kind = Literal["register", "ask"]

HOMES_MAX = 65_536  # Most topics that one node is home of.
SUBSCRIBERS_MAX = 4_096  # Most subscribers of one topic that its home remembers.
REGISTRATIONS_MAX = 262_144  # Most registrations at one home, over all topics.


class Homes:
    """Both sides: as a subscriber that registers and asks, and as the home that answers."""

    def __init__(self, state: State) -> None:
        self.state = state
        # As home: the subscribers of our topics.
        self.table = Registry(HOMES_MAX, SUBSCRIBERS_MAX, REGISTRATIONS_MAX, state.config.registered_ms)
        self.questions = 0  # Questions asked so far. A question is numbered by this count.
        self._home_of: dict[Topic, NodeId] = {}  # the home that last confirmed our registration, by topic
        # By kind and topic: the node to which an unanswered registration or question was sent first.
        self._unanswered: dict[tuple[Kind, Topic], NodeId] = {}
        self._number = 1  # the number of our next registrations: it grows with each subscription that ends
        # By topic: the least number of registrations that we have not withdrawn, and until when we remember it.
        self._withdrawn: dict[Topic, tuple[int, int]] = {}
        # Nodes through which no answer came: until when they are avoided, and how long that is.
        self._silent: dict[NodeId, tuple[int, int]] = {}
        self._range = ""  # our present range, as `Overlay.home_range` names it
        self._range_ms = 0  # since when we have had this range
        self._range_before = ("", 0)  # our previous range, and since when we had had it
        # A home that has ended and whose registrations we have, the start of its range, and until when this counts.
        self._inherited: tuple[NodeId, NodeId, int] | None = None
        self.heirs = Heirs(state)
        self.is_sure = False  # As of the last tick: we know every subscriber of the topics that we are home of.
        self._is_alone = False  # Every other node that we have heard of has certainly ended.

    @property
    def registry(self) -> dict[Topic, dict[NodeId, int]]:
        return self.table.topics

    # Subscribers

    def register(self, topics: list[Topic]) -> None:
        """Register with the homes that answered last time, several topics at once; find the others step by step."""
        state = self.state
        effects: Effects = []
        for topic in topics:
            home = self._home_of.pop(topic, None)  # if it does not answer, it is looked up again
            if home is not None and not state.overlay.is_gone(home):
                effects.append(Send(home, Register(state.id, (topic,), number=self._number)))
                self._unanswered["register", topic] = home
            else:
                effects += self._step("register", topic, Register(state.id, (topic,), number=self._number))
        state.out += _joined(effects)

    def unregister(self, topic: Topic) -> None:
        """Tell the home of a topic that we no longer subscribe.

        Registrations that are under way are withdrawn. If we subscribe again, their answers say nothing about the new
        subscription: the home forgets us when it hears this message.
        """
        self._home_of.pop(topic, None)
        self._number += 1
        self._withdrawn[topic] = self._number, self.state.now_ms + self.state.config.registered_ms
        self.state.out += self.state.overlay.toward_home(topic, Unregister(self.state.id, (topic,)), self._shunned())

    def on_registered(self, sender: NodeId, message: Registered) -> list[Topic]:
        """Take in a home's answer. Return the topics whose registrations count.

        Our own answer does not count while we know nobody else on the ring. A node that has just joined believes that
        it is home of everything, and the true home has not heard of it.
        """
        state = self.state
        if message.copy_of is not None:
            self.heirs.on_copied(sender, message.copy_of, message.topics)
            return []
        if sender == state.id and state.overlay.home_range() == state.id and not self._is_sure():
            return []
        topics = [topic for topic in message.topics if not self._is_withdrawn(topic, message.number)]
        for topic in topics:
            self.answered("register", topic)
            topic_state = self.state.topics.get(topic)
            if topic_state is not None and topic_state.is_wanted:
                if not topic_state.is_registered:
                    topic_state.is_registered, topic_state.first_question = True, self.questions + 1
                    self.state.changed[topic] = None
                self._home_of[topic] = sender
        return topics

    def _is_withdrawn(self, topic: Topic, number: int) -> bool:
        """Return whether an answer belongs to a registration that we have withdrawn."""
        return 0 < number < self._withdrawn.get(topic, (0, 0))[0]

    def has_moved(self, topic: Topic) -> bool:
        """Return whether we registered with ourselves and are no longer the home of this topic."""
        return self._home_of.get(topic) == self.state.id and not self.state.overlay.is_home(topic)

    def ask(self, topic: Topic) -> None:
        """Ask the home of a topic who subscribes."""
        self.questions += 1
        self.state.out += self._step("ask", topic, AskHome(self.state.id, topic, self.questions))

    def has_asked(self, number: int) -> bool:
        """Return whether we have asked a question with this number."""
        return 0 < number <= self.questions

    def answered(self, kind: Kind, topic: Topic) -> None:
        """Note that a home has answered: the node through which we reached it is no longer avoided."""
        self._silent.pop(self._unanswered.pop((kind, topic), ""), None)

    # Homes

    def tick(self) -> None:
        """Drop registrations that have expired, and look after the heir."""
        state = self.state
        self.is_sure = self._is_sure()
        oldest = state.now_ms - state.config.registered_ms
        self._silent = {node: shunned for node, shunned in self._silent.items() if shunned[0] >= oldest}
        self.table.forget_old(oldest)
        self._withdrawn = {topic: each for topic, each in self._withdrawn.items() if each[1] > state.now_ms}
        has_all = self.is_sure and not self.table.doubts.is_any(state.now_ms)
        self.heirs.tick(self.registry, is_sure=has_all)

    def ended(self, node: NodeId, *, is_alone: bool) -> None:
        """Forget the subscriptions of a node whose process has certainly ended. See `MeshNode.on_peer_ended`.

        If we have a complete copy of its registrations, we may inherit its range.
        """
        self.table.remove_node(node)
        self._is_alone = is_alone
        start = self.heirs.inherits(node)
        until_ms = self.state.now_ms + 2 * LEASE_TICKS * self.state.config.tick_ms
        self._inherited = None if start is None else (node, start, until_ms)
        self._is_sure()
        if self._inherited is not None and self._range_before[0] == node and self._range == start:
            self._inherit(node, self._range_before[1])  # Our range had grown before we knew why.

    def _hand_on(self) -> None:
        """Send the registrations of topics that we are no longer home of to their new home."""
        state, effects = self.state, list[Effect]()
        for topic in [topic for topic in self.registry if not state.overlay.is_home(topic)]:
            for node in self.table.remove_topic(topic):
                effects += state.overlay.toward_home(topic, Register(node, (topic,)), self._shunned())
        state.out += _joined(effects)

    def _inherit(self, home: NodeId, since_ms: int) -> None:
        """Take over our predecessor's registrations with its range: we stay as sure as before."""
        self._range_ms, self._inherited = since_ms, None
        inherited = self.heirs.kept[home].registry
        for topic, nodes in inherited.items():
            for node, heard_ms in nodes.items():
                self.table.add(topic, node, node, heard_ms, self.state.now_ms)
        self.heirs.took_over(inherited)

    def stood_still(self, duration_ms: int) -> None:
        """Discount the time for which our process was stopped: nobody could register with us in it."""
        self._range_ms += duration_ms
        self._range_before = (self._range_before[0], self._range_before[1] + duration_ms)
        for nodes in self.registry.values():
            for node in nodes:
                nodes[node] += duration_ms

    def heard(self, node: NodeId) -> None:
        """Note that another node has spoken: we are not alone."""
        if node != self.state.id:
            self._is_alone = False
            if self._inherited is not None and self._inherited[0] == node:
                self._inherited = None  # the home has restarted

    def on_register(self, sender: NodeId, message: Register) -> None:
        """Take in registrations of topics that we are home of, and forward the others."""
        state, mine = self.state, []
        if message.heir_of is not None:
            self.heirs.on_copy(sender, message)
            return
        new = []
        onward: Effects = []
        self.heirs.look(self.registry)
        for topic in dict.fromkeys(message.topics):
            if state.overlay.is_home(topic):
                is_new = self.table.add(topic, message.node, sender, state.now_ms, state.now_ms)
                if is_new is not None:
                    mine.append(topic)
                if is_new:
                    new.append(topic)
            elif message.hops < HOPS_MAX:
                onward += state.overlay.toward_home(
                    topic, Register(message.node, (topic,), message.hops + 1, number=message.number), self._shunned()
                )
        state.out += _joined(onward)
        # A later topic of the same message may have displaced an earlier one.
        mine = [topic for topic in mine if message.node in self.registry.get(topic, ())]
        confirmed = self.heirs.registered(message.node, mine, new, message.number) if mine else []
        if confirmed:
            state.out.append(Send(message.node, Registered(tuple(confirmed), number=message.number)))

    def on_unregister(self, sender: NodeId, message: Unregister) -> None:
        """Drop registrations of topics that we are home of, and forward the others."""
        state, mine = self.state, []
        if message.hops >= HOPS_MAX:
            self.heirs.on_uncopy(sender, message)
        for topic in dict.fromkeys(message.topics):
            if state.overlay.is_home(topic):
                self.table.remove(topic, message.node)
                mine.append(topic)
            elif message.hops < HOPS_MAX:
                state.out += state.overlay.toward_home(
                    topic, Unregister(message.node, (topic,), message.hops + 1), self._shunned()
                )
        if message.hops < HOPS_MAX:
            self.heirs.unregistered(message.node, mine)

    def on_ask(self, message: AskHome) -> None:
        """Answer who subscribes to a topic that we are home of, or forward the question."""
        state = self.state
        if not state.overlay.is_home(message.topic):
            if message.hops < HOPS_MAX:
                state.out += state.overlay.toward_home(
                    message.topic, replace(message, hops=message.hops + 1), self._shunned()
                )
            return
        is_sure = self._is_sure()  # this may make us the heir of another registry
        is_sure = is_sure and not self.table.doubts.has(message.topic, state.now_ms)
        if not is_sure:
            reached("a home is not sure")
        # A subscriber believed to have crashed counts until its registration expires: the belief may be wrong, and the
        # answer serves as a proof.
        names = sorted(self.registry.get(message.topic, ()), key=state.overlay.is_gone)
        sample = tuple(names[: state.config.sample_max])
        tells = HomeTells(message.topic, message.number, sample, len(names), is_sure)
        state.out.append(Send(message.node, tells))

    def _step(self, kind: Kind, topic: Topic, message: Register | AskHome) -> Effects:
        """Send a registration or question on its first step toward the home, avoiding a first step that stayed silent.

        If the last attempt had no answer, some node on its path has crashed. That may have been a later one, and the
        first step may be the home itself by now. So it is tried again soon, and then at growing intervals: a subscriber
        must not stay unknown for `registered_ms` while its home runs.
        """
        state = self.state
        silent = self._unanswered.pop((kind, topic), None)
        if silent is not None and silent != state.id:
            longest = state.config.registered_ms
            pause_ms = min(2 * self._silent.get(silent, (0, longest // 8))[1], longest)
            self._silent[silent] = (state.now_ms + pause_ms, pause_ms)
        effects = state.overlay.toward_home(topic, message, self._shunned())
        for effect in effects:
            if isinstance(effect, Send) and not isinstance(effect.to, Seed):
                self._unanswered[kind, topic] = effect.to
        return effects

    def _shunned(self) -> list[NodeId]:
        """Return the nodes that are avoided at present."""
        return [node for node, (until_ms, _) in self._silent.items() if until_ms > self.state.now_ms]

    def _is_sure(self) -> bool:
        """Return whether we know every subscriber. Checked at every question, because our range may have just grown."""
        return self._has_heard_all() and not self.state.why_unjoined()

    def _has_heard_all(self) -> bool:
        """Return whether we have had our range for long enough. Note a change of the range."""
        state, start = self.state, self.state.overlay.home_range()
        if self._is_alone and start == state.id:
            return True  # there is no other node that could have subscribed
        if start != self._range:
            self._range_before = (self._range, self._range_ms)
            self._range, self._range_ms = start, state.now_ms
            self._hand_on()
            inherited, self._inherited = self._inherited, None
            is_heir = inherited is not None and inherited[:2] == (self._range_before[0], start)
            if is_heir and inherited is not None and state.now_ms <= inherited[2]:
                self._inherit(inherited[0], self._range_before[1])
        return state.now_ms - self._range_ms >= state.config.registered_ms


def _joined(effects: Effects) -> Effects:
    """Return the same effects, with registrations of one node to one destination joined into few messages."""
    out: Effects = []
    together: dict[tuple[NodeId | Seed, NodeId, int, int], list[Topic]] = {}
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Register):
            message = effect.message
            key = effect.to, message.node, message.hops, message.number
            together.setdefault(key, []).extend(message.topics)
        else:
            out.append(effect)
    for (to, node, hops, number), topics in together.items():
        for start in range(0, len(topics), REGISTERED_MAX):
            out.append(Send(to, Register(node, tuple(topics[start : start + REGISTERED_MAX]), hops, number=number)))
    return out
