"""How holders of wildcards learn of new overlay topics, and miss nothing meanwhile.  [docs/mqtt.md, Wildcards]

Three kinds of overlay topics of our own carry it: questions (all nodes with a listener or sidecar), and directories
(holders of wildcards only; one for each first level, and one for wildcards in the first level).

- A node that takes up a pattern joins its directory, then tells all nodes (`Ask`). They answer (`Heard`), and introduce
  the overlay topics in use that fit. The pattern is *ready*, and SUBACK is sent, when all of them have answered.
- A node that publishes on an overlay topic copies each message to the directories of the holders that it covers
  (`Copy`), until each of these has said that the mesh brings it the overlay topic itself (`Joined`).
- A pattern has a number, drawn when it was taken up. So a pattern that was dropped and taken up again counts as new.

| file          | what                                                                     |
| ------------- | ------------------------------------------------------------------------ |
| `members.py`  | which nodes must answer                                                  |
| `wildcards.py` | our patterns: who has answered, and which messages are owed since        |
| `holders.py`   | the patterns of all nodes                                                |
| `introductions.py` | overlay topics that we publish on, and who gets copies               |
| `arrivals.py` | a message that comes both ways counts once, and waits for its predecessor |
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

KNOWN_MAX = 65_536

_SOON_MS = 500  # several newcomers are answered at once
_GATHER_MS = 200  # changes within this time are told together


class Directory:
    def __init__(self, node: NodeId, incarnation: Incarnation, config: MqttConfig, interests: Interests) -> None:
        self.node, self.incarnation, self.config, self.interests = node, incarnation, config, interests
        self.now_ms = 0
        self.wildcards: dict[str, Wildcard] = {}  # only those whose directory the mesh has confirmed
        self.counters: Counter[str] = Counter()
        self.emits: list[tuple[Topic, bytes, str]] = []  # topic, payload, which: taken by the owner
        self._confirmed: dict[Topic, int] = {}  # -> since when
        self.holders = PatternHolders(config.depth)
        self.members = Members(node)
        self.introductions = Introductions(config, self.holders, self.emits)
        self.owed = Owed(self.wildcards, interests, self._confirmed)
        self.arrivals = Arrivals(config.hold_ms, interests, self._confirmed, self.owed.is_owed)
        self.arrivals.counters = self.counters
        self._ask_ms = int(config.ask_s * 1_000)
        self._who = 0  # the number of our question
        self._who_ms = NEVER  # when it is asked again, because not everybody has answered, or the mesh has not taken it
        self._who_pause_ms = AGAIN_MS
        self._new: dict[str, None] = {}  # patterns to be told
        self._gone: dict[str, None] = {}
        self._unready: dict[int, Wildcard] = {}  # by number
        self._told_ms = self._told_all_ms = self._answered_ms = -NEVER
        self._newcomers: dict[NodeId, Incarnation] = {}  # -> their incarnations
        self._newcomers_ms = 0  # when they are answered
        self._owed: dict[tuple[NodeId, Incarnation], dict[int, None]] = {}  # answers: node and incarnation -> numbers
        self._joined: dict[Topic, None] = {}  # to be said
        self._joined_ms: dict[Topic, int] = {}  # when it was said last

    def at(self, now_ms: int) -> None:
        self.now_ms = self.arrivals.now_ms = self.introductions.now_ms = now_ms

    def start(self) -> None:
        self.interests.want(QUESTIONS)

    def leave(self) -> None:
        """Tell the others that this node leaves: nobody waits for its answers any more."""
        if QUESTIONS in self._confirmed:
            self._say(Bye(self.incarnation), "bye")

    # As a holder of wildcards

    @property
    def is_informed(self) -> bool:
        return self.members.is_informed

    def is_ready(self, pattern: str) -> bool:
        """Return whether every node knows of the pattern: what is published from now on comes."""
        found = self.wildcards.get(pattern)
        if found is None or found.told_ms is None:
            return False
        if not found.is_ready and self.is_informed and all(one in found.answered for one in self.members.nodes):
            found.ready_ms = self.now_ms
            self._unready.pop(found.number, None)
        return found.is_ready

    def is_confirmed(self, topic: Topic) -> bool:
        return topic in self._confirmed

    def changed(self) -> None:
        """Patterns may have been taken up or dropped."""
        numbers = self.interests.numbers
        self.introductions.on_own(self.node, self.incarnation, numbers, self.interests.number)
        for pattern, found in list(self.wildcards.items()):
            if numbers.get(pattern) != found.number:
                del self.wildcards[pattern]
                self._unready.pop(found.number, None)
                self._new.pop(pattern, None)
                self._gone[pattern] = None
        new = [one for one in numbers if one not in self.wildcards and bucket_of(one) in self._confirmed]
        for pattern in new:
            found = self._unready[numbers[pattern]] = self.wildcards[pattern] = Wildcard(numbers[pattern])
            found.answered[self.node] = Taken(self.incarnation, self.introductions.number, self.now_ms)
            self._new[pattern] = None
            self._gone.pop(pattern, None)
        self.introductions.on_new(self.node, new)
        if (self._new or self._gone) and self.now_ms - self._told_ms >= _GATHER_MS:
            self._tell()

    def confirmed(self, topic: Topic) -> None:
        if topic in self._confirmed:
            return
        self._confirmed[topic] = self.now_ms
        if topic == QUESTIONS:
            self.members.joined(self.now_ms + self._ask_ms * 3 // 2)  # or sooner: the others answer
            self._who_pause_ms = AGAIN_MS
            self._ask_who()
            self._new.update(dict.fromkeys(self.wildcards))
            self._tell()
        elif topic.startswith("$"):
            self.changed()
        elif topic in self.interests.known:
            self._joined[topic] = None

    def unwanted(self, topic: Topic) -> None:
        self._confirmed.pop(topic, None)
        self._joined.pop(topic, None)
        self._joined_ms.pop(topic, None)

    def asked(self, number: int) -> None:
        """The owner has published our `Who` under this number."""
        self._who = number

    def acknowledged(self, number: int, others: int | None) -> None:
        """The mesh has acknowledged our `Who`: so many others hold it, or it cannot tell."""
        if number == self._who:
            self.members.acknowledged(others, self.now_ms + _SOON_MS + 2 * self.config.spread_ms)

    def not_acknowledged(self, number: int) -> None:
        """Repeat our question at the next tick: what is refused at once would be refused at once again."""
        if number == self._who and not self.is_informed:
            self._who_ms = self.now_ms

    def _ask_who(self) -> None:
        """Say `Who`, and again later: the answer of a node that was too busy to publish it never comes."""
        self._who_ms = self.now_ms + self._who_pause_ms
        self._who_pause_ms = min(2 * self._who_pause_ms, self._ask_ms)
        self._say(Who(self.incarnation, True), "who")

    def on_said(self, topic: Topic, origin: NodeId, said: Said) -> list[Envelope]:
        """Take in what came over one of our own topics; return the messages to hand over."""
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
        """Take in a message that came over its overlay topic; return those to hand over now."""
        known = self.interests.known
        if prefix in known:
            known[prefix] = self.now_ms
        return self.arrivals.take(prefix, origin, message, prefix)

    def _learn(self, prefix: Topic) -> None:
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
        """Tell our patterns to all nodes: what has changed, or all of them where that is one message anyway."""
        if QUESTIONS not in self._confirmed:
            self._gone.clear()  # nobody has heard of them
            return
        parts = list(parts_of(self.wildcards))
        is_whole = len(parts) < 2
        if not everything and not is_whole:
            parts = list(parts_of([one for one in self._new if one in self.wildcards]))
        gone = [list(one) for one in parts_of([one for one in self._gone if one not in self.wildcards])]
        if everything or is_whole:
            self._told_all_ms = self.now_ms
        while parts or gone:
            self._told_ms = self.now_ms
            patterns = parts.pop(0) if parts else []
            found = [self.wildcards[one] for one in patterns]
            numbers = tuple(one.number for one in found)
            waits = bool(self.members.nodes) and not all(one.is_ready for one in found)
            ended = tuple(gone.pop(0)) if gone else ()
            head = (self.incarnation, self.config.depth, tuple(patterns), numbers, self.interests.number)
            self._say(Ask(*head, ended, is_whole, waits), "ask")
            for one in found:
                one.told_ms = self.now_ms
        self._gone.clear()
        self._new.clear()

    def _on_who(self, origin: NodeId, said: Who) -> None:
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
        if self.members.heard(origin, said.incarnation):
            self._is_new(origin)
        taken = Taken(said.incarnation, said.number, self.now_ms)
        for answer in said.answers:
            if answer.node != self.node or answer.incarnation != self.incarnation:
                continue
            if answer.is_to_who:
                self.members.answered(origin, said.is_informed, said.members)
            if origin not in self.members.nodes:
                continue  # there is no room for more members
            for number in answer.numbers:
                if number in self._unready:
                    self._unready[number].answered.setdefault(origin, taken)

    def _answer(self) -> None:
        """Say `Heard` to everybody to whom we owe it."""
        answers = [
            Answer(node, incarnation, tuple(list(numbers)[start : start + PREFIXES_MAX]))
            for (node, incarnation), numbers in self._owed.items()
            for start in range(0, len(numbers), PREFIXES_MAX)
        ]
        self._owed.clear()
        for start in range(0, len(answers), 20):  # some numbers each: far below what one message holds
            part = tuple(answers[start : start + 20])
            self._say(Heard(self.incarnation, part, self.is_informed, number=self.introductions.number), "heard")
        self._answered_ms = self.now_ms

    def _answer_newcomers(self) -> None:
        """Tell them our patterns, then the nodes that we know."""
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
        """This node publishes a message: the directories that get a copy; its predecessor, copied or not."""
        return self.introductions.publishes(prefix, number, self.is_informed, is_plain)

    def copied(self, number: int, prefix: Topic, bucket: Topic) -> None:
        """Note that the copy with this number was published to the directory `bucket`."""
        self.introductions.copied(number, prefix, bucket)

    def needless(self) -> list[int]:
        """Return the numbers of copies that, as we know now, no holder of a wildcard wants. Each is returned once."""
        return self.introductions.needless(self.is_informed)

    def _on_ask(self, origin: NodeId, said: Ask) -> None:
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
        """Drop the patterns of earlier incarnations than `incarnation`."""
        known = self.holders.nodes.get(origin)
        if known is not None and known.incarnation < incarnation:
            self.holders.drop(origin)

    # Time

    def tick(self) -> list[tuple[NodeId, Envelope]]:
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
        """See who owes an answer; tell patterns again that somebody has not answered."""
        if self.is_informed:
            told = [one for one in self._unready.values() if one.told_ms is not None]
            for node, member in self.members.nodes.items():
                owes = any(node not in one.answered for one in told)
                member.asked_ms = (member.asked_ms or self.now_ms) if owes else None
        self.counters["members silent"] += self.members.tick(self.now_ms)
        for pattern, found in self.wildcards.items() if self._unready else ():
            is_late = found.told_ms is not None and self.now_ms - found.told_ms >= found.pause_ms
            if is_late and self.is_informed and not self.is_ready(pattern):
                found.pause_ms = min(2 * found.pause_ms, self._ask_ms)
                self._new[pattern] = None
        if self._newcomers and self._newcomers_ms <= self.now_ms:
            self._answer_newcomers()

    def _forget_known(self, oldest_ms: int) -> None:
        """Leave overlay topics that have been silent for long. A publisher that still uses one copies again."""
        old = [one for one, heard in self.interests.known.items() if heard < oldest_ms]
        for prefix in old:
            self.interests.forget(prefix)
        for part in parts_of(old):
            self._say(Hold(tuple(part), self.interests.number), "hold")

    def _say(self, said: Said, which: str) -> None:
        self.emits.append((QUESTIONS, wrap(said), which))

    def check(self) -> None:
        self.introductions.check()
        self.holders.check()
        self.arrivals.check()
        for pattern, found in self.wildcards.items():
            assert found.is_ready or self._unready.get(found.number) is found, f"{pattern} is neither ready nor not"
