"""The overlay topics that this node publishes on, and the holders of patterns that get copies of its messages.

When this node begins to publish on an overlay topic, holders whose patterns cover it do not take part in it yet. They
get copies over their directories. A copy also introduces the overlay topic, so the holder joins it.

J1  A holder whose pattern covers an overlay topic gets copies until it has said that it joined that overlay topic,
    after it was told of it (`Joined`), or until it holds no such pattern any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import NEVER, Hold, Introduce, Joined, parts_of, wrap
from trellis.protocols.mqtt.interests import bucket_of, buckets_of
from trellis.protocols.mqtt.pattern_holders import PATTERNS_ALL_MAX, PatternHolders
from trellis.protocols.mqtt.prefixes import Prefixes

ACTIVE_MAX = 65_536  # most overlay topics that are remembered
GUESSES_MAX = 100_000  # most copies that are remembered because they may be for nobody
TURN_STEPS = 4_000  # Most overlay topics that are looked at between two ticks, to introduce them to new holders.


@dataclass
class Active:
    """An overlay topic that this node publishes on."""

    last_ms: int
    is_open: bool  # There may be patterns that we have not heard of, so every message is copied to both directories.
    pending: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """Holder that gets copies -> the least `upto` of a `Joined` that ends this, and the time when it ends anyway."""
    number: int = 0  # number of the last message
    was_copied: bool = False  # The last message was copied.
    turn: int = 0  # Patterns that were taken in after this turn may be missing in `pending`.


class Introductions:
    """Decides which directories get copies, and introduces overlay topics to new holders."""

    def __init__(self, config: MqttConfig, holders: PatternHolders, emits: list[tuple[Topic, bytes, str]]) -> None:
        """`emits` gets what is to be published: topic, payload, kind."""
        self.holders, self.emits = holders, emits
        self.now_ms = 0
        self.active: OrderedDict[Topic, Active] = OrderedDict()
        # Yields overlay topics with retained messages of ours that fit a pattern, and None for others that were looked
        # at.
        self.kept: Callable[[str], Iterator[Topic | None]] = lambda pattern: iter(())
        self.active_ms = int(config.active_s * 1_000)
        self._introduce_ms = int(config.introduce_s * 1_000)
        self.number = 0  # number of the last message of this node, on any overlay topic
        # That message's overlay topic, its numbers, and the predecessor's number and whether it was copied.
        self._newest: tuple[Active, range, int, bool] | None = None
        self._guesses: dict[int, tuple[Topic, Topic]] = {}  # copies that may be for nobody: overlay topic and directory
        self._prefixes = Prefixes(holders.depth)  # the same overlay topics as in `active`
        self._turn = 0  # grows whenever patterns are taken in
        self._due: dict[str, None] = {}  # patterns whose holders are still to be told of overlay topics, oldest first
        self._walk: tuple[str, Iterator[Topic | None]] | None = None  # the pattern that is being worked on
        self._steps = TURN_STEPS  # work that is left until the next tick

    def publishes(
        self, prefix: Topic, number: int, is_informed: bool, is_plain: bool
    ) -> tuple[tuple[Topic, ...], int, int]:
        """This node publishes a message. Return the directories that get a copy, and the predecessor's number.

        The number is the second value if the predecessor was copied, and the third if it was not. `is_plain`: a native
        client publishes, and its messages are not copied.
        """
        active = self.active.get(prefix)
        if active is None:
            active = self.active[prefix] = Active(self.now_ms, not is_informed)
            self._prefixes.add(prefix)
            self._begin_all(prefix, active)
            if is_plain:
                for bucket in self._buckets(prefix, active):
                    self._introduce(bucket, [prefix])
            if len(self.active) > ACTIVE_MAX:
                self._forget_active(next(iter(self.active)))
        elif active.is_open and is_informed:
            active.is_open = False
            self._begin_all(prefix, active)
        else:
            self._catch_up(prefix, active)
        active.last_ms = self.now_ms
        self.active.move_to_end(prefix)
        if is_plain:
            return (), 0, 0
        buckets = self._buckets(prefix, active)
        last, was_copied = active.number, active.was_copied
        self._newest = (active, range(number, number + 1 + len(buckets)), last, was_copied)
        self.number = active.number = number
        active.was_copied = bool(buckets)
        return (buckets, last, 0) if was_copied else (buckets, 0, last)

    def refused(self, number: int) -> None:
        """The mesh refused a message at once: the next one on its overlay topic must not wait for it.

        `number` is that of the message itself, or of one of its copies, which have the numbers after it.
        """
        if self._newest is not None and number in self._newest[1]:
            active, _, last, was_copied = self._newest
            active.number, active.was_copied, self._newest = last, was_copied, None

    def _buckets(self, prefix: Topic, active: Active) -> tuple[Topic, ...]:
        """Return the directories to which messages on an overlay topic are copied."""
        out: dict[Topic, None] = dict.fromkeys(buckets_of(prefix)) if active.is_open else {}
        if active.pending:
            of_holders = self.holders.buckets(prefix)
            for holder, (_, until_ms) in list(active.pending.items()):
                buckets = of_holders.get(holder)
                if buckets is None or until_ms <= self.now_ms:
                    del active.pending[holder]
                else:
                    out.update(buckets)
        return tuple(out)

    def copied(self, number: int, prefix: Topic, bucket: Topic) -> None:
        """Note that the copy with this number was published in the directory `bucket`."""
        active = self.active.get(prefix)
        if active is not None and active.is_open and len(self._guesses) < GUESSES_MAX:
            self._guesses[number] = (prefix, bucket)

    def needless(self, is_informed: bool) -> list[int]:
        """Return the numbers of copies that, as we know now, no holder needs. Each is returned once.

        A publication need not wait for them. Nobody subscribes to such a directory, and it would take a mesh that has
        not changed for `registered_ms` to prove that.
        """
        if not self._guesses or not is_informed:
            return []
        guesses, self._guesses = self._guesses, {}
        return [number for number, (prefix, bucket) in guesses.items() if not self._is_wanted(prefix, bucket)]

    def _is_wanted(self, prefix: Topic, bucket: Topic) -> bool:
        return any(bucket in buckets for buckets in self.holders.buckets(prefix).values())

    def _begin_all(self, prefix: Topic, active: Active) -> None:
        """Copy to all holders whose patterns cover the overlay topic."""
        for holder, number in self.holders.covering(prefix).items():
            self._begin(active, holder, number)
        active.turn = self._turn

    def _catch_up(self, prefix: Topic, active: Active) -> None:
        """Take in the holders of patterns that were taken up since the overlay topic was last looked at.

        A new pattern does not look at all overlay topics that it covers, which may be many thousands. Instead, each
        overlay topic looks at the new patterns when it is used next.
        """
        if active.turn < self._turn:
            for holder, number in self.holders.new_since(prefix, active.turn):
                self._begin(active, holder, number)
            active.turn = self._turn

    def _begin(self, active: Active, holder: NodeId, number: int) -> None:
        """Copy to a holder until it says `Joined`. A holder of an earlier release (`number` 0) never says so."""
        before, _ = active.pending.get(holder, (0, 0))
        active.pending[holder] = (max(before, number), NEVER if number else self.now_ms + self._introduce_ms)

    def on_own(self, me: NodeId, incarnation: Incarnation, numbers: dict[str, int], upto: int) -> None:
        """Take in the patterns of this node itself. Its messages that fit are copied to it from now on.

        This cannot wait until the directory is confirmed and the others are told. A client may have had its SUBACK
        already, after `suback_s`, and have got copies while the node copied everything (`is_open`).
        """
        self.on_new(me, self.holders.keep(me, incarnation, numbers, upto, self.now_ms), introduces=False)

    def on_new(self, origin: NodeId, patterns: list[str], introduces: bool = True) -> None:
        """A node has taken up patterns: introduce the overlay topics in use that fit, and copy to it from now on.

        Copies begin at once (`_catch_up`). If many overlay topics fit, they are introduced over several ticks.
        """
        known = self.holders.nodes[origin].patterns if origin in self.holders.nodes else {}
        patterns = [pattern for pattern in patterns if pattern in known]  # there may have been no space
        if not patterns:
            return
        self._turn += 1
        for pattern in patterns:
            known[pattern].turn = self._turn
            if introduces and len(self._due) < PATTERNS_ALL_MAX:
                self._due[pattern] = None
        self._introduce_more()

    def _introduce_more(self) -> None:
        """Introduce overlay topics in use to the holders of new patterns, within this turn's share of work."""
        fitting: dict[Topic, dict[Topic, None]] = {}
        while self._steps > 0 and (self._walk is not None or self._due):
            if self._walk is None:
                pattern = next(iter(self._due))
                del self._due[pattern]
                self._walk = (pattern, chain(self._prefixes.walk(pattern), self.kept(pattern)))
            pattern, walk = self._walk
            for prefix in walk:
                self._steps -= 1
                if prefix is not None:
                    fitting.setdefault(bucket_of(pattern), {})[prefix] = None
                if self._steps <= 0:
                    break
            else:
                self._walk = None
                self._steps -= 1
        for bucket, prefixes in fitting.items():
            self._introduce(bucket, list(prefixes))

    def on_joined(self, origin: NodeId, said: Joined) -> None:
        """A holder takes part in these overlay topics: the mesh brings it what is published from now on."""
        for prefix in said.prefixes:
            active = self.active.get(prefix)
            if active is None:
                continue
            self._catch_up(prefix, active)
            if origin in active.pending and active.pending[origin][0] <= said.upto:
                del active.pending[origin]

    def on_hold(self, origin: NodeId, said: Hold) -> None:
        """A holder has left these overlay topics: copy to it again."""
        for prefix in said.prefixes:
            number = self.holders.covering(prefix).get(origin) if prefix in self.active else None
            if number is not None:
                self._begin(self.active[prefix], origin, max(number, said.upto))

    def _introduce(self, bucket: Topic, prefixes: list[Topic]) -> None:
        """Announce overlay topics in a directory."""
        for part in parts_of(prefixes):
            self.emits.append((bucket, wrap(Introduce(tuple(part))), "introduce"))

    def _forget_active(self, prefix: Topic) -> None:
        del self.active[prefix]
        self._prefixes.discard(prefix)

    def tick(self) -> None:
        """Forget overlay topics that this node has not used for long: they count as new again."""
        while self.active:
            prefix = next(iter(self.active))  # in the order of their last use
            if self.active[prefix].last_ms > self.now_ms - self.active_ms:
                break
            self._forget_active(prefix)
        self._steps = TURN_STEPS
        self._introduce_more()

    def check(self) -> None:
        assert len(self.active) <= ACTIVE_MAX
        assert len(self._prefixes) == len(self.active)
        assert all(prefix in self._prefixes for prefix in self.active)
