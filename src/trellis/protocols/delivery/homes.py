"""Who subscribes to a topic: its home location on the ring knows.  [docs/delivery.md, Copies; SC §2.1]

Subscribers register with the home of each topic, once in `register_ms`, batched by home. A home that has been one for
`registered_ms` has heard of all; before, it names whom it knows and says that it is not sure. That is the proof that
there are fewer subscribers than copies, and how a publisher that does not subscribe finds the topic's overlay.

A home has room for a bounded number of registrations (`registry.py`). It is not sure about a topic of which it has
turned away a registration within `registered_ms`.
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

HOMES_MAX = 65_536  # topics that one node is home of
SUBSCRIBERS_MAX = 4_096  # of one topic that its home remembers
REGISTRATIONS_MAX = 262_144  # of all topics that one node is home of


class Homes:
    def __init__(self, state: State) -> None:
        self.state = state
        # As home: who subscribes.
        self.table = Registry(HOMES_MAX, SUBSCRIBERS_MAX, REGISTRATIONS_MAX, state.config.registered_ms)
        self.questions = 0
        self._home_of: dict[Topic, NodeId] = {}
        # Where the last registration ("register") or question ("ask") about a topic was sent first.
        self._unanswered: dict[tuple[Kind, Topic], NodeId] = {}
        self._silent: dict[NodeId, tuple[int, int]] = {}  # from where no answer came: until when shunned, for how long
        self._range = ""
        self._range_ms = 0  # since when we are home of what we are home of
        self._range_before = ("", 0)  # the same before our range last changed
        # A home that has ended and whose registry we have, the start of its range, and until when that counts.
        self._inherited: tuple[NodeId, NodeId, int] | None = None
        self.heirs = Heirs(state)
        self.is_sure = False  # as of the last tick: we have heard of all who subscribe to topics that we are home of
        self._is_alone = False  # every other node that we have heard of has ended for certain

    @property
    def registry(self) -> dict[Topic, dict[NodeId, int]]:
        return self.table.topics

    # Subscribers

    def register(self, topics: list[Topic]) -> None:
        """To the homes that answered last time, several topics at once; the others step by step."""
        state = self.state
        effects: Effects = []
        for topic in topics:
            home = self._home_of.pop(topic, None)  # looked for anew if it does not answer
            if home is not None and not state.overlay.is_gone(home):
                effects.append(Send(home, Register(state.id, (topic,))))
                self._unanswered["register", topic] = home
            else:
                effects += self._step("register", topic, Register(state.id, (topic,)))
        state.out += _joined(effects)

    def unregister(self, topic: Topic) -> None:
        self._home_of.pop(topic, None)
        self.state.out += self.state.overlay.toward_home(topic, Unregister(self.state.id, (topic,)), self._shunned())

    def on_registered(self, sender: NodeId, message: Registered) -> bool:
        """Return whether our registrations count. Our own answer does not while we know nobody else on the ring.

        A node that has just joined is home of everything to itself, and the true home has not heard of it.
        """
        state = self.state
        if message.copy_of is not None:
            self.heirs.on_copied(sender, message.copy_of, message.topics)
            return False
        if sender == state.id and state.overlay.home_range() == state.id and not self._is_sure():
            return False
        for topic in message.topics:
            self.answered("register", topic)
            found = self.state.topics.get(topic)
            if found is not None and found.is_wanted:
                if not found.is_registered:
                    found.is_registered, found.first_question = True, self.questions + 1
                    self.state.changed[topic] = None
                self._home_of[topic] = sender
        return True

    def has_moved(self, topic: Topic) -> bool:
        """Return whether we registered with ourselves, and are not the home of this topic any more."""
        return self._home_of.get(topic) == self.state.id and not self.state.overlay.is_home(topic)

    def ask(self, topic: Topic) -> None:
        self.questions += 1
        self.state.out += self._step("ask", topic, AskHome(self.state.id, topic, self.questions))

    def has_asked(self, number: int) -> bool:
        return 0 < number <= self.questions

    def answered(self, kind: Kind, topic: Topic) -> None:
        self._silent.pop(self._unanswered.pop((kind, topic), ""), None)

    # Homes

    def tick(self) -> None:
        state = self.state
        self.is_sure = self._is_sure()
        oldest = state.now_ms - state.config.registered_ms
        self._silent = {node: shunned for node, shunned in self._silent.items() if shunned[0] >= oldest}
        self.table.forget_old(oldest)
        has_all = self.is_sure and not self.table.doubts.is_any(state.now_ms)
        self.heirs.tick(self.registry, is_sure=has_all)

    def ended(self, node: NodeId, *, is_alone: bool) -> None:
        """Forget the subscriptions of a node whose process has ended for certain. See `MeshNode.on_peer_ended`."""
        self.table.remove_node(node)
        self._is_alone = is_alone
        start = self.heirs.inherits(node)
        until_ms = self.state.now_ms + 2 * LEASE_TICKS * self.state.config.tick_ms
        self._inherited = None if start is None else (node, start, until_ms)
        self._is_sure()
        if self._inherited is not None and self._range_before[0] == node and self._range == start:
            self._inherit(node, self._range_before[1])  # our range had grown before we knew why

    def _hand_on(self) -> None:
        """Our range has changed. Give the registrations of topics that we are not home of any more to their home."""
        state, effects = self.state, list[Effect]()
        for topic in [topic for topic in self.registry if not state.overlay.is_home(topic)]:
            for node in self.table.remove_topic(topic):
                effects += state.overlay.toward_home(topic, Register(node, (topic,)), self._shunned())
        state.out += _joined(effects)

    def _inherit(self, home: NodeId, since_ms: int) -> None:
        """We are home of our predecessor's range as well now, and have its registry: we are as sure as before."""
        self._range_ms, self._inherited = since_ms, None
        inherited = self.heirs.kept[home].registry
        for topic, nodes in inherited.items():
            for node, heard_ms in nodes.items():
                self.table.add(topic, node, node, heard_ms, self.state.now_ms)
        self.heirs.took_over(inherited)

    def stood_still(self, duration_ms: int) -> None:
        """Our process was stopped for so long. Nobody could register meanwhile, so this time proves nothing."""
        self._range_ms += duration_ms
        self._range_before = (self._range_before[0], self._range_before[1] + duration_ms)
        for nodes in self.registry.values():
            for node in nodes:
                nodes[node] += duration_ms

    def heard(self, node: NodeId) -> None:
        """Another node speaks: we are not alone."""
        if node != self.state.id:
            self._is_alone = False
            if self._inherited is not None and self._inherited[0] == node:
                self._inherited = None  # it has restarted

    def on_register(self, sender: NodeId, message: Register) -> None:
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
                    topic, Register(message.node, (topic,), message.hops + 1), self._shunned()
                )
        state.out += _joined(onward)
        # A later topic of the same message may have taken the place of an earlier one.
        mine = [topic for topic in mine if message.node in self.registry.get(topic, ())]
        told = self.heirs.registered(message.node, mine, new) if mine else []
        if told:
            state.out.append(Send(message.node, Registered(tuple(told))))

    def on_unregister(self, sender: NodeId, message: Unregister) -> None:
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
        # Who is believed dead still counts, until its registration has run out: it may be wrong, and this is a proof.
        names = sorted(self.registry.get(message.topic, ()), key=state.overlay.is_gone)
        sample = tuple(names[: state.config.sample_max])
        tells = HomeTells(message.topic, message.number, sample, len(names), is_sure)
        state.out.append(Send(message.node, tells))

    def _step(self, kind: Kind, topic: Topic, message: Register | AskHome) -> Effects:
        """The first step of a question. If the last one had no answer, somebody on its way is dead: go another way.

        That may have been somebody further on, and the first step may be home itself by now. So it is tried again
        soon, and then ever later: a subscriber must not be unheard of for `registered_ms` while its home lives.
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
        return [node for node, (until_ms, _) in self._silent.items() if until_ms > self.state.now_ms]

    def _is_sure(self) -> bool:
        """Looked at with every question: a range may have grown a moment ago."""
        return self._has_heard_all() and not self.state.why_unjoined()

    def _has_heard_all(self) -> bool:
        state, place = self.state, self.state.overlay.home_range()
        if self._is_alone and place == state.id:
            return True  # there is nobody left who could have subscribed
        if place != self._range:
            self._range_before = (self._range, self._range_ms)
            self._range, self._range_ms = place, state.now_ms
            self._hand_on()
            inherited, self._inherited = self._inherited, None
            is_heir = inherited is not None and inherited[:2] == (self._range_before[0], place)
            if is_heir and inherited is not None and state.now_ms <= inherited[2]:
                self._inherit(inherited[0], self._range_before[1])
        return state.now_ms - self._range_ms >= state.config.registered_ms


def _joined(effects: Effects) -> Effects:
    """Return the same effects, with registrations of one node that go to one place in as few messages as possible."""
    out: Effects = []
    together: dict[tuple[NodeId | Seed, NodeId, int], list[Topic]] = {}
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Register):
            message = effect.message
            together.setdefault((effect.to, message.node, message.hops), []).extend(message.topics)
        else:
            out.append(effect)
    for (to, node, hops), topics in together.items():
        for start in range(0, len(topics), REGISTERED_MAX):
            out.append(Send(to, Register(node, tuple(topics[start : start + REGISTERED_MAX]), hops)))
    return out
