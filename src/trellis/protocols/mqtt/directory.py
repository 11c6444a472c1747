"""How holders of wildcards learn of new overlay topics, and miss nothing meanwhile.  [docs/mqtt.md, Wildcards]

Three kinds of overlay topics of our own carry it: questions (all doors), and directories (holders of wildcards only;
one for each first level, and one for wildcards in the first level).

- A node with a new wildcard joins the directory, then tells all doors (`Ask`). They introduce what fits.
- Who publishes on an overlay topic that it has not used lately *introduces* it: for a while each message also travels
  over the directories where somebody wants it (`Copy`). A holder joins the overlay topic, and says `Hold` until it is
  confirmed there; from then on the overlay topic itself brings everything.
- A message that comes both ways counts once, and waits for its predecessor if that comes the other way.

D1  a message is handed over here at most once
D2  messages of one node on one overlay topic are handed over in the order of their numbers, but for those whose
    predecessor did not come within `hold_ms`
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import PREFIXES_MAX, Ask, Copy, Envelope, Hold, Introduce, Said, Who, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, WITHIN, Interests, bucket_of, buckets_of
from trellis.protocols.mqtt.topics import covers

ACTIVE_MAX = 65_536
KNOWN_MAX = 65_536
ASKERS_MAX = 4_096
HELD_MAX = 10_000
SEEN_MAX = 200_000
GUESSES_MAX = 100_000
SIDECAR = "$sidecar/"  # its publications are repeated under their identity until the mesh has acknowledged them
SEEN_MS = 150_000  # a copy comes no later after its twin: beyond two windows of delivery nobody accepts it

_SOON_MS = 500  # holders of wildcards answer several newcomers at once
_AGAIN_MS = 1_000  # a question that was not acknowledged is asked again after so long

Identity = tuple[NodeId, int, int]  # node, life, number
Stream = tuple[Topic, NodeId, int]  # overlay topic, node, life


@dataclass
class Active:
    """An overlay topic that this node publishes on."""

    last_ms: int
    until_ms: int  # copied until then
    buckets: dict[Topic, None]
    number: int = 0  # of the last message
    was_copied: bool = False
    is_guess: bool = False  # `buckets` was chosen before we had heard of every wildcard


@dataclass
class Wildcard:
    """A pattern of ours on its way to the others."""

    number: int = 0  # of the first question that carried it; later ones do as well
    ready_ms: int | None = None  # when it has reached them


@dataclass
class Held:
    """A message that waits for one before it."""

    message: Envelope
    until_ms: int
    is_copy: bool  # it came over the directory
    is_free: bool = False  # it waits no longer


def _number(held: Held) -> int:
    return held.message.number


class Directory:
    def __init__(self, node: NodeId, life: int, config: MqttConfig, interests: Interests) -> None:
        self.node, self.life, self.config, self.interests = node, life, config, interests
        self.now_ms = 0
        self.active: OrderedDict[Topic, Active] = OrderedDict()
        self.askers: dict[NodeId, tuple[int, int, tuple[str, ...]]] = {}  # heard when, life, patterns
        self.wildcards: dict[str, Wildcard] = {}
        self.unconfirmed: dict[Topic, int] = {}  # known, and when to say `Hold`
        self.counters: Counter[str] = Counter()
        self.emits: list[tuple[Topic, bytes, str]] = []  # topic, payload, which: taken by the owner
        self.kept: Callable[[], list[Topic]] = list  # overlay topics with retained messages of ours
        self._introduce_ms = int(config.introduce_s * 1_000)
        self._ask_ms = int(config.ask_s * 1_000)
        self._asked_ms = 0
        self._informed_ms: int | None = None  # from then on we have heard of every wildcard
        self._who = 0  # the number of our question
        self._guesses: dict[int, tuple[Topic, Topic]] = {}  # copies that may be for nobody: overlay topic, directory
        self._asks: dict[int, None] = {}  # numbers of questions that are not answered yet
        self._confirmed: dict[Topic, None] = {}
        self._seen: dict[Identity, None] = {}
        self._seen_before: dict[Identity, None] = {}
        self._turned_ms = 0
        self._held: dict[Stream, list[Held]] = {}  # by number
        self._last: dict[Stream, int] = {}  # number that came last over the overlay topic itself

    def start(self) -> None:
        self.interests.want(QUESTIONS)

    # As a holder of wildcards

    def is_ready(self, pattern: str) -> bool:
        """Every door knows of it: what is published from now on comes."""
        found = self.wildcards.get(pattern)
        return found is not None and found.ready_ms is not None and found.ready_ms <= self.now_ms

    def is_confirmed(self, topic: Topic) -> bool:
        return topic in self._confirmed

    def changed(self) -> None:
        """Patterns may have come or gone."""
        for pattern in [one for one in self.wildcards if one not in self.interests.patterns]:
            del self.wildcards[pattern]
        is_new = False
        for pattern in self.interests.patterns:
            if pattern not in self.wildcards and bucket_of(pattern) in self._confirmed:
                self.wildcards[pattern] = Wildcard()
                is_new = True
        if is_new:
            self._ask()

    def confirmed(self, topic: Topic) -> None:
        self._confirmed[topic] = None
        self.unconfirmed.pop(topic, None)
        if topic == QUESTIONS:
            self._informed_ms = self.now_ms + self._ask_ms * 3 // 2  # or sooner: holders answer
            self.emits.append((QUESTIONS, wrap(Who(self.life)), "who"))
        elif topic.startswith("$"):
            self.changed()

    def unwanted(self, topic: Topic) -> None:
        self._confirmed.pop(topic, None)
        self.unconfirmed.pop(topic, None)

    def asked(self, number: int, which: str) -> None:
        """The owner has published our question under this number."""
        if which == "who":
            self._who = number
            return
        self._asks[number] = None
        for wildcard in self.wildcards.values():
            wildcard.number = wildcard.number or number

    def acknowledged(self, number: int) -> None:
        if number == self._who and self._informed_ms is not None:
            self._informed_ms = min(self._informed_ms, self.now_ms + _SOON_MS + 2 * self.config.spread_ms)
        if self._asks.pop(number, self) is self:
            return
        for wildcard in self.wildcards.values():  # a mesh may take longer to answer than we take to ask again
            if 0 < wildcard.number <= number and wildcard.ready_ms is None:
                wildcard.ready_ms = self.now_ms + self.config.spread_ms

    def not_acknowledged(self, number: int) -> None:
        is_ours = self._asks.pop(number, self) is None
        if is_ours and any(one.ready_ms is None for one in self.wildcards.values()):
            self._asked_ms = self.now_ms - self._ask_ms + _AGAIN_MS

    def on_said(self, topic: Topic, origin: NodeId, said: Said) -> list[Envelope]:
        """Something came over one of our own topics; messages to hand over."""
        match said:
            case Copy(prefix, message):
                self._learn(prefix)
                return self._take(prefix, origin, message, True) if self.interests.is_covered(prefix) else []
            case Introduce(prefixes):
                for prefix in prefixes:
                    self._learn(prefix)
            case Ask():
                self._on_ask(origin, said)
            case Who():
                if self.wildcards:
                    self._asked_ms = min(self._asked_ms, self.now_ms - self._ask_ms + _SOON_MS)
            case Hold(prefixes):
                self._on_hold(origin, prefixes)
            case Envelope():
                self.counters["strange"] += 1
        return []

    def on_message(self, prefix: Topic, origin: NodeId, message: Envelope) -> list[Envelope]:
        """A message came over its overlay topic; those to hand over now."""
        known = self.interests.known
        if prefix in known:
            known[prefix] = self.now_ms
            self._last[prefix, origin, message.life] = message.number
        return self._take(prefix, origin, message, False)

    def _learn(self, prefix: Topic) -> None:
        if len(self.interests.known) >= KNOWN_MAX and prefix not in self.interests.known:
            self.counters["unknown"] += 1
            return
        if self.interests.learn(prefix, self.now_ms) and prefix not in self._confirmed:
            self.unconfirmed[prefix] = self.now_ms + self._introduce_ms // 2

    def _take(self, prefix: Topic, origin: NodeId, message: Envelope, is_copy: bool) -> list[Envelope]:
        key = (prefix, origin, message.life)
        queue = self._held.get(key)
        if message.is_copied or message.client.startswith(SIDECAR):  # what may come twice
            identity = (origin, message.life, message.number)
            if self._has_come(identity):
                for one in queue or ():
                    if one.message.number == message.number:
                        one.is_free = True  # both ways have brought it, so neither brings what it waits for
                return self._hand_over(key, queue) if queue is not None else []
            self._seen[identity] = None
        if queue is None:
            if not self._waits(key, message, (), is_copy):
                return [message]
            queue = self._held[key] = []
        insort(queue, Held(message, self.now_ms + self.config.hold_ms, is_copy), key=_number)
        queue[0].is_free = queue[0].is_free or len(queue) > HELD_MAX
        return self._hand_over(key, queue)

    def _waits(self, key: Stream, message: Envelope, held: Iterable[Held], is_copy: bool) -> bool:
        """For its predecessor, which a holder of a wildcard may still get the other way."""
        previous, prefix = message.previous, key[0]
        if is_copy and message.before and prefix in self._confirmed:
            return self._last.get(key, 0) < message.before
        if not previous or not self.interests.is_covered(prefix):
            return False
        return not self._has_come((*key[1:], previous)) or any(one.message.number == previous for one in held)

    def _hand_over(self, key: Stream, queue: list[Held]) -> list[Envelope]:
        """What waits for nothing, from the front."""
        out: list[Envelope] = []
        while queue:
            first = queue[0]
            waits = not first.is_free and self._waits(key, first.message, queue, first.is_copy)
            if waits and first.until_ms > self.now_ms:
                break
            self.counters["out of order"] += waits
            out.append(queue.pop(0).message)
        if not queue:
            del self._held[key]
        return out

    def _has_come(self, identity: Identity) -> bool:
        return identity in self._seen or identity in self._seen_before

    def _ask(self) -> None:
        patterns = tuple(self.interests.patterns)
        if len(patterns) > PREFIXES_MAX:  # everything is more than was asked for, and never less
            patterns = ("#",)
        self._asked_ms = self.now_ms
        self.emits.append((QUESTIONS, wrap(Ask(self.life, self.config.depth, patterns)), "ask"))

    # As a publisher

    def publishes(self, prefix: Topic, number: int, is_plain: bool = False) -> tuple[tuple[Topic, ...], int, int]:
        """This node publishes a message: the directories that get a copy; its predecessor, copied or not."""
        found = self.active.get(prefix)
        if found is None:
            found = Active(self.now_ms, self.now_ms + self._introduce_ms, dict.fromkeys(self._wanting(prefix)))
            found.is_guess = not self.is_informed
            self.active[prefix] = found
            if is_plain:
                for bucket in found.buckets:
                    self._introduce(bucket, [prefix])
            if len(self.active) > ACTIVE_MAX:
                self.active.popitem(last=False)
        found.last_ms = self.now_ms
        self.active.move_to_end(prefix)
        if is_plain:
            return (), 0, 0
        if found.is_guess and self.is_informed:
            wanting = self._wanting(prefix)
            found.buckets, found.is_guess = {one: None for one in found.buckets if one in wanting}, False
        is_copied = bool(found.buckets) and self.now_ms < found.until_ms
        last, was_copied = found.number, found.was_copied
        found.number, found.was_copied = number, is_copied
        buckets = tuple(found.buckets) if is_copied else ()
        return (buckets, last, 0) if was_copied else (buckets, 0, last)

    @property
    def is_informed(self) -> bool:
        """Return whether every wildcard that was subscribed before we started has been told to us."""
        return self._informed_ms is not None and self.now_ms >= self._informed_ms

    def copied(self, number: int, prefix: Topic, bucket: Topic) -> None:
        """Note that the copy with this number was published to the directory `bucket`."""
        if not self.is_informed and len(self._guesses) < GUESSES_MAX:
            self._guesses[number] = (prefix, bucket)

    def needless(self) -> list[int]:
        """Return the numbers of copies that, as we know now, no holder of a wildcard wants. Each is returned once.

        A publication need not wait for them. Nobody subscribes to such a directory, and the proof of that needs a mesh
        that has not changed for `registered_ms`.
        """
        if not self._guesses or not self.is_informed:
            return []
        guesses, self._guesses = self._guesses, {}
        return [number for number, (prefix, bucket) in guesses.items() if bucket not in self._wanting(prefix)]

    def _wanting(self, prefix: Topic) -> tuple[Topic, ...]:
        if not self.is_informed:
            return buckets_of(prefix)  # there may be wildcards that we have not heard of
        found: dict[Topic, None] = {}
        for _, _, patterns in self.askers.values():
            found.update({bucket_of(one): None for one in patterns if covers(one, prefix, self.config.depth)})
        return tuple(found)

    def _on_ask(self, origin: NodeId, said: Ask) -> None:
        if said.depth != self.config.depth:
            self.counters["other depth"] += 1
            return
        before = self.askers.get(origin)
        known = before[2] if before is not None and before[1] == said.life else ()
        if before is None and len(self.askers) >= ASKERS_MAX:
            self.counters["too many askers"] += 1
            return
        self.askers[origin] = (self.now_ms, said.life, said.patterns)
        new: dict[Topic, list[str]] = {}
        for pattern in dict.fromkeys(said.patterns):
            if pattern not in known:
                new.setdefault(bucket_of(pattern), []).append(pattern)
        for bucket, patterns in new.items():
            used = {**dict.fromkeys(self.active), **dict.fromkeys(self.kept())}
            fitting = [one for one in used if any(covers(each, one, self.config.depth) for each in patterns)]
            for prefix in fitting:
                if prefix in self.active:
                    self._begin(prefix, (bucket,))
            self._introduce(bucket, fitting)

    def _on_hold(self, origin: NodeId, prefixes: tuple[Topic, ...]) -> None:
        for prefix in prefixes:
            if prefix in self.active:
                self._begin(prefix, self._wanting(prefix))

    def _begin(self, prefix: Topic, buckets: tuple[Topic, ...]) -> None:
        found = self.active[prefix]
        if found.until_ms <= self.now_ms:
            found.buckets.clear()
        found.until_ms = self.now_ms + self._introduce_ms
        found.buckets.update(dict.fromkeys(buckets))

    def _introduce(self, bucket: Topic, prefixes: list[Topic]) -> None:
        for start in range(0, len(prefixes), PREFIXES_MAX // 2):
            said = Introduce(tuple(prefixes[start : start + PREFIXES_MAX // 2]))
            self.emits.append((bucket, wrap(said), "introduce"))

    # Time

    def tick(self, now_ms: int) -> list[tuple[NodeId, Envelope]]:
        self.now_ms = now_ms
        if now_ms - self._turned_ms > SEEN_MS or len(self._seen) > SEEN_MAX:
            self._seen_before, self._seen, self._turned_ms = self._seen, {}, now_ms
        if len(self._last) > SEEN_MAX:
            self._last.clear()  # some copies wait in vain, for `hold_ms`
        if self.interests.patterns and self.wildcards and now_ms - self._asked_ms > self._ask_ms:
            self._ask()
        active_ms = int(self.config.active_s * 1_000)
        for prefix, found in list(self.active.items()):
            if found.last_ms > now_ms - active_ms:
                break  # in the order of their last use
            del self.active[prefix]
        for node in [one for one, asked in self.askers.items() if asked[0] < now_ms - 3 * self._ask_ms]:
            del self.askers[node]
        # Whoever used it has forgotten it by now, and introduces it again.
        for prefix in [one for one, heard in self.interests.known.items() if heard < now_ms - 2 * active_ms]:
            self.interests.forget(prefix)
        late = [one for one, due in self.unconfirmed.items() if due <= now_ms][:PREFIXES_MAX]
        if late:
            self.unconfirmed.update(dict.fromkeys(late, now_ms + self._introduce_ms // 2))
            self.emits.append((QUESTIONS, wrap(Hold(tuple(late))), "hold"))
        out: list[tuple[NodeId, Envelope]] = []
        for key, queue in list(self._held.items()):
            out += [(key[1], message) for message in self._hand_over(key, queue)]
        return out

    def check(self) -> None:
        assert len(self.active) <= ACTIVE_MAX
        assert len(self.askers) <= ASKERS_MAX
        assert all(self._held.values())
        assert all(prefix.startswith(WITHIN) or prefix in self.interests.wanted for prefix in self.unconfirmed)
