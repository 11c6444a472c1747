"""How nodes whose clients use wildcards learn of new overlay topics, and miss no message. [docs/mqtt.md, Wildcards]

The mesh routes by overlay topics, and a wildcard in the first levels of a filter (a *pattern*) does not name one. So
nodes tell each other their patterns and the overlay topics that they publish on. Two kinds of internal topics carry
this: `QUESTIONS`, on which all nodes with a listener or sidecar are; and *directories*, on which only the holders of
patterns are (one for each first level, and one for wildcards in the first level).

- A node that takes up a pattern joins its directory, then tells all nodes (`Ask`). They answer (`Heard`), and introduce
  the overlay topics in use that fit. When all have answered, the pattern is *ready*, and SUBACK is sent.
- A node that publishes on an overlay topic copies each message to the directories of holders whose patterns cover it
  (`Copy`). It stops when each of these has said that the mesh brings it the overlay topic itself (`Joined`).
- A pattern has a number, drawn when it was taken up. So a pattern that was dropped and taken up again counts as new.

| file                 | what                                                                         |
| -------------------- | ---------------------------------------------------------------------------- |
| `members.py`         | which nodes must answer                                                      |
| `wildcards.py`       | our patterns: which nodes have answered, and which messages are owed since   |
| `pattern_holders.py` | the patterns of all nodes                                                    |
| `introductions.py`   | overlay topics that we publish on, and which holders get copies              |
| `arrivals.py`        | a message that arrives twice counts once, and waits for its predecessor      |
"""

from __future__ import annotations

from collections import Counter

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.arrivals import Arrivals
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import (
    MEMBERS_MAX,
    NEVER,
    PREFIXES_MAX,
    Answer,
    Ask,
    Bye,
    Copy,
    Envelope,
    Heard,
    Hold,
    Introduce,
    Joined,
    Said,
    Who,
    parts_of,
    wrap,
)
from trellis.protocols.mqtt.interests import QUESTIONS, Interests, bucket_of
from trellis.protocols.mqtt.introductions import Introductions
from trellis.protocols.mqtt.members import Members
from trellis.protocols.mqtt.pattern_holders import PatternHolders
from trellis.protocols.mqtt.topics import is_prefix
from trellis.protocols.mqtt.wildcards import AGAIN_MS, Owed, Taken, Wildcard

KNOWN_MAX = 65_536  # most overlay topics that patterns make this node take part in

_SOON_MS = 500  # how long newcomers wait, so that several are answered at once
_GATHER_MS = 200  # changes within this time are told together


class Directory:
    """One node's part in the directories: as a holder of patterns, and as a publisher."""

    def __init__(self, node: NodeId, incarnation: Incarnation, config: MqttConfig, interests: Interests) -> None:
        self.node, self.incarnation, self.config, self.interests = node, incarnation, config, interests
        self.now_ms = 0
        self.wildcards: dict[str, Wildcard] = {}  # our patterns whose directory the mesh has confirmed
        self.counters: Counter[str] = Counter()
        # messages to publish: topic, payload, kind; the owner takes them
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._confirmed: dict[Topic, int] = {}  # topics that the mesh has confirmed -> since when
        self.holders = PatternHolders(config.depth)
        self.members = Members(node)
        self.introductions = Introductions(config, self.holders, self.emits)
        self.owed = Owed(self.wildcards, interests, self._confirmed)
        self.arrivals = Arrivals(config.hold_ms, interests, self._confirmed, self.owed.is_owed)
        self.arrivals.counters = self.counters
        self._ask_ms = int(config.ask_s * 1_000)
        self._who = 0  # number of the publication with our `Who`
        self._who_ms = NEVER  # when to repeat `Who`, because not everybody has answered or the mesh has refused it
        self._who_pause_ms = AGAIN_MS
        self._new: dict[str, None] = {}  # our patterns to tell
        self._gone: dict[str, None] = {}  # our dropped patterns to tell
        self._unready: dict[int, Wildcard] = {}  # our patterns that are not ready, by number
        self._told_ms = self._told_all_ms = self._answered_ms = -NEVER
        self._newcomers: dict[NodeId, Incarnation] = {}  # nodes whose `Who` is not answered yet -> their incarnations
        self._newcomers_ms = 0  # when to answer them
        # answers that we owe: node and incarnation -> numbers of patterns
        self._owed: dict[tuple[NodeId, Incarnation], dict[int, None]] = {}
        self._joined: dict[Topic, None] = {}  # overlay topics for which `Joined` is to be said
        self._joined_ms: dict[Topic, int] = {}  # when `Joined` was last said

    def at(self, now_ms: int) -> None:
        """Set the time."""
        self.now_ms = self.arrivals.now_ms = self.introductions.now_ms = now_ms

    def start(self) -> None:
        """Take part in `QUESTIONS`."""
        self.interests.want(QUESTIONS)

    def leave(self) -> None:
        """Tell the others that this node leaves, so that nobody waits for its answers."""
        if QUESTIONS in self._confirmed:
            self._say(Bye(self.incarnation), "bye")

    # As a holder of patterns

    @property
    def is_informed(self) -> bool:
        """Whether we know every node that must learn our patterns. See `members.py`."""
        return self.members.is_informed

    def is_ready(self, pattern: str) -> bool:
        """Return whether every node knows the pattern: whatever is published from now on arrives."""
        wildcard = self.wildcards.get(pattern)
        if wildcard is None or wildcard.told_ms is None:
            return False
        if not wildcard.is_ready and self.is_informed and all(node in wildcard.answered for node in self.members.nodes):
            wildcard.ready_ms = self.now_ms
            self._unready.pop(wildcard.number, None)
        return wildcard.is_ready

    def is_confirmed(self, topic: Topic) -> bool:
        """Return whether the mesh has confirmed that this node takes part in a topic."""
        return topic in self._confirmed

    def changed(self) -> None:
        """Follow `interests`: patterns may have been taken up or dropped."""
        numbers = self.interests.numbers
        self.introductions.on_own(self.node, self.incarnation, numbers, self.interests.number)
        for pattern, wildcard in list(self.wildcards.items()):
            if numbers.get(pattern) != wildcard.number:
                del self.wildcards[pattern]
                self._unready.pop(wildcard.number, None)
                self._new.pop(pattern, None)
                self._gone[pattern] = None
        new = [pattern for pattern in numbers if pattern not in self.wildcards and self._has_directory(pattern)]
        for pattern in new:
            wildcard = self._unready[numbers[pattern]] = self.wildcards[pattern] = Wildcard(numbers[pattern])
            wildcard.answered[self.node] = Taken(self.incarnation, self.introductions.number, self.now_ms)
            self._new[pattern] = None
            self._gone.pop(pattern, None)
        self.introductions.on_new(self.node, new)
        if (self._new or self._gone) and self.now_ms - self._told_ms >= _GATHER_MS:
            self._tell()

    def _has_directory(self, pattern: str) -> bool:
        return bucket_of(pattern) in self._confirmed

    def confirmed(self, topic: Topic) -> None:
        """The mesh has confirmed that this node takes part in a topic."""
        if topic in self._confirmed:
            return
        self._confirmed[topic] = self.now_ms
        if topic == QUESTIONS:
            self.members.joined(self.now_ms + self._ask_ms * 3 // 2)  # or earlier, when the others have answered
            self._who_pause_ms = AGAIN_MS
            self._ask_who()
            self._new.update(dict.fromkeys(self.wildcards))
            self._tell()
        elif topic.startswith("$"):
            self.changed()
        elif topic in self.interests.known:
            self._joined[topic] = None

    def unwanted(self, topic: Topic) -> None:
        """This node no longer takes part in a topic."""
        self._confirmed.pop(topic, None)
        self._joined.pop(topic, None)
        self._joined_ms.pop(topic, None)

    def asked(self, number: int) -> None:
        """The owner has published our `Who` under this number."""
        self._who = number

    def acknowledged(self, number: int, others: int | None) -> None:
        """The mesh has acknowledged our `Who`: `others` other nodes hold it. None: it cannot tell."""
        if number == self._who:
            self.members.acknowledged(others, self.now_ms + _SOON_MS + 2 * self.config.spread_ms)

    def not_acknowledged(self, number: int) -> None:
        """Repeat our `Who` at the next tick. If it was refused at once, it would be refused again now."""
        if number == self._who and not self.is_informed:
            self._who_ms = self.now_ms

    def _ask_who(self) -> None:
        """Say `Who`, and schedule the next one: a node that was too busy to publish its answer never sends it."""
        self._who_ms = self.now_ms + self._who_pause_ms
        self._who_pause_ms = min(2 * self._who_pause_ms, self._ask_ms)
        self._say(Who(self.incarnation, True), "who")

    def on_said(self, topic: Topic, origin: NodeId, said: Said) -> list[Envelope]:
        """Take in what arrived over one of our internal topics. Return the messages to deliver."""
        match said:
            case Copy(prefix, message):
                if not message.is_of(prefix, self.config.depth):
                    self.counters["strange"] += 1
                    return []
                self._learn(prefix)
                return self.arrivals.take(prefix, origin, message, topic) if self.interests.is_covered(prefix) else []
            case Introduce(prefixes):
                for prefix in prefixes:
                    self._learn(prefix)
            case Joined():
                self.introductions.on_joined(origin, said)
            case Hold():
                self.introductions.on_hold(origin, said)
            case Ask() | Who() | Heard() | Bye() if origin == self.node:
                pass
            case Ask():
                self._on_ask(origin, said)
            case Who():
                self._on_who(origin, said)
            case Heard():
                self._on_heard(origin, said)
            case Bye(incarnation):
                self.members.left(origin, incarnation)
                self._forget_holder(origin, Incarnation(incarnation + 1))
            case _:
                self.counters["strange"] += 1
        return []

    def on_message(self, prefix: Topic, origin: NodeId, message: Envelope) -> list[Envelope]:
        """Take in a message that arrived over its overlay topic. Return the messages to deliver now."""
        known = self.interests.known
        if prefix in known:
            known[prefix] = self.now_ms
        return self.arrivals.take(prefix, origin, message, prefix)

    def _learn(self, prefix: Topic) -> None:
        """Note that an overlay topic is in use. If one of our patterns covers it, this node takes part in it."""
        if not is_prefix(prefix, self.config.depth):
            self.counters["strange"] += 1
            return
        if len(self.interests.known) >= KNOWN_MAX and prefix not in self.interests.known:
            self.counters["unknown"] += 1  # its publishers go on copying
            return
        self.interests.learn(prefix, self.now_ms)
        is_due = self.now_ms - self._joined_ms.get(prefix, -NEVER) >= AGAIN_MS // 2
        if prefix in self.interests.known and prefix in self._confirmed and is_due:
            self._joined[prefix] = None

    def _tell(self, everything: bool = False) -> None:
        """Tell all nodes our patterns: those that changed, or all of them if they fit into one message."""
        if QUESTIONS not in self._confirmed:
            self._gone.clear()  # nobody has heard of them
            return
        parts = list(parts_of(self.wildcards))
        is_whole = len(parts) < 2
        if not everything and not is_whole:
            parts = list(parts_of([pattern for pattern in self._new if pattern in self.wildcards]))
        gone = [list(part) for part in parts_of([name for name in self._gone if name not in self.wildcards])]
        if everything or is_whole:
            self._told_all_ms = self.now_ms
        while parts or gone:
            self._told_ms = self.now_ms
            patterns = parts.pop(0) if parts else []
            told = [self.wildcards[pattern] for pattern in patterns]
            numbers = tuple(wildcard.number for wildcard in told)
            waits = bool(self.members.nodes) and not all(wildcard.is_ready for wildcard in told)
            ended = tuple(gone.pop(0)) if gone else ()
            head = (self.incarnation, self.config.depth, tuple(patterns), numbers, self.interests.number)
            self._say(Ask(*head, ended, is_whole, waits), "ask")
            for wildcard in told:
                wildcard.told_ms = self.now_ms
        self._gone.clear()
        self._new.clear()

    def _on_who(self, origin: NodeId, said: Who) -> None:
        """A node has joined: note it, and answer soon."""
        self._forget_holder(origin, said.incarnation)
        if said.answers and self.members.joins(origin, said.incarnation):
            self._is_new(origin)
        self.owed.on_who(origin, said.incarnation, self.now_ms)
        if not self._newcomers:
            self._newcomers_ms = self.now_ms + _SOON_MS
        if len(self._newcomers) < MEMBERS_MAX:
            self._newcomers[origin] = said.incarnation

    def _is_new(self, member: NodeId) -> None:
        """This incarnation of a node has not answered anything yet."""
        for wildcard in self._unready.values():
            wildcard.answered.pop(member, None)

    def _on_heard(self, origin: NodeId, said: Heard) -> None:
        """Take in answers to our `Who` and to our patterns."""
        if self.members.heard(origin, said.incarnation):
            self._is_new(origin)
        taken = Taken(said.incarnation, said.number, self.now_ms)
        for answer in said.answers:
            if answer.node != self.node or answer.incarnation != self.incarnation:
                continue
            if answer.is_to_who:
                self.members.answered(origin, said.is_informed, said.members)
            if origin not in self.members.nodes:
                continue  # there is no space for more members
            for number in answer.numbers:
                if number in self._unready:
                    self._unready[number].answered.setdefault(origin, taken)

    def _answer(self) -> None:
        """Say `Heard` to every node to which we owe it."""
        answers = [
            Answer(node, incarnation, tuple(list(numbers)[start : start + PREFIXES_MAX]))
            for (node, incarnation), numbers in self._owed.items()
            for start in range(0, len(numbers), PREFIXES_MAX)
        ]
        self._owed.clear()
        # 20 answers with some numbers each are far below what one message holds
        for start in range(0, len(answers), 20):
            part = tuple(answers[start : start + 20])
            self._say(Heard(self.incarnation, part, self.is_informed, number=self.introductions.number), "heard")
        self._answered_ms = self.now_ms

    def _answer_newcomers(self) -> None:
        """Tell newcomers our patterns, then the nodes that we know."""
        if self.wildcards:
            self._tell(everything=True)
        names = next(iter(parts_of(self.members.nodes)), [])
        is_informed = self.is_informed and len(names) == len(self.members.nodes)
        answers = [Answer(node, incarnation, (), True) for node, incarnation in self._newcomers.items()]
        self._newcomers.clear()
        for start in range(0, len(answers), PREFIXES_MAX):
            part = tuple(answers[start : start + PREFIXES_MAX])
            self._say(Heard(self.incarnation, part, is_informed, tuple(names)), "heard")

    def publishes(self, prefix: Topic, number: int, is_plain: bool = False) -> tuple[tuple[Topic, ...], int, int]:
        """This node publishes a message. Return the directories that get a copy, and the predecessor's number.

        The number is the second value if the predecessor was copied, and the third if it was not.
        """
        return self.introductions.publishes(prefix, number, self.is_informed, is_plain)

    def copied(self, number: int, prefix: Topic, bucket: Topic) -> None:
        """Note that the copy with this number was published to the directory `bucket`."""
        self.introductions.copied(number, prefix, bucket)

    def needless(self) -> list[int]:
        """Return the numbers of copies that, as we know now, no holder needs. Each is returned once."""
        return self.introductions.needless(self.is_informed)

    def _on_ask(self, origin: NodeId, said: Ask) -> None:
        """Take in the patterns of a node, and answer if it waits for that."""
        if said.depth != self.config.depth:
            self.counters["other depth"] += 1
            return
        heard = self.holders.hear(origin, said, self.now_ms)
        if heard is None:
            self.counters["asks ignored"] += 1
            return
        new, numbers = heard
        if origin != self.node and said.numbers:
            if self.members.heard(origin, said.incarnation):
                self._is_new(origin)
            if said.wants_answer and numbers and len(self._owed) < MEMBERS_MAX:
                self._owed.setdefault((origin, said.incarnation), {}).update(dict.fromkeys(numbers))
                if self.now_ms - self._answered_ms >= _GATHER_MS:
                    self._answer()
        self.introductions.on_new(origin, new)

    def _forget_holder(self, origin: NodeId, incarnation: Incarnation) -> None:
        """Drop the patterns of incarnations earlier than `incarnation`."""
        known = self.holders.nodes.get(origin)
        if known is not None and known.incarnation < incarnation:
            self.holders.drop(origin)

    # Time

    def tick(self) -> list[tuple[NodeId, Envelope]]:
        """Do the periodic work. Return the messages that have waited long enough, with their origins."""
        now_ms = self.now_ms
        self._tick_members()
        if self._who_ms <= now_ms:
            if self.is_informed:
                self._who_ms = NEVER
            else:
                self._ask_who()
        if self.wildcards and now_ms - self._told_all_ms > self._ask_ms:
            self._tell(everything=True)
        elif self._new or self._gone:
            self._tell()
        if self._owed:
            self._answer()
        self.introductions.tick()
        self.interests.tick()
        self.holders.expire(now_ms - 3 * self._ask_ms, self.node)
        self._forget_known(now_ms - 2 * self.introductions.active_ms)
        if self._joined:
            for part in parts_of(self._joined):
                self._say(Joined(self.incarnation, self.interests.number, tuple(part)), "joined")
            self._joined_ms.update(dict.fromkeys(self._joined, now_ms))
            self._joined.clear()
        return self.arrivals.tick()

    def _tick_members(self) -> None:
        """Find out which nodes owe an answer. Tell patterns again that some node has not answered."""
        if self.is_informed:
            told = [wildcard for wildcard in self._unready.values() if wildcard.told_ms is not None]
            for node, member in self.members.nodes.items():
                owes = any(node not in wildcard.answered for wildcard in told)
                member.asked_ms = (member.asked_ms or self.now_ms) if owes else None
        self.counters["members silent"] += self.members.tick(self.now_ms)
        for pattern, wildcard in self.wildcards.items() if self._unready else ():
            is_late = wildcard.told_ms is not None and self.now_ms - wildcard.told_ms >= wildcard.pause_ms
            if is_late and self.is_informed and not self.is_ready(pattern):
                wildcard.pause_ms = min(2 * wildcard.pause_ms, self._ask_ms)
                self._new[pattern] = None
        if self._newcomers and self._newcomers_ms <= self.now_ms:
            self._answer_newcomers()

    def _forget_known(self, oldest_ms: int) -> None:
        """Leave overlay topics that were silent for long. A publisher that still uses one copies again."""
        old = [prefix for prefix, heard in self.interests.known.items() if heard < oldest_ms]
        for prefix in old:
            self.interests.forget(prefix)
        for part in parts_of(old):
            self._say(Hold(tuple(part), self.interests.number), "hold")

    def _say(self, said: Said, which: str) -> None:
        """Publish a message to all nodes with a listener or sidecar."""
        self.emits.append((QUESTIONS, wrap(said), which))

    def check(self) -> None:
        self.introductions.check()
        self.holders.check()
        self.arrivals.check()
        for pattern, wildcard in self.wildcards.items():
            assert wildcard.is_ready or self._unready.get(wildcard.number) is wildcard, (
                f"{pattern} is neither ready nor not"
            )
