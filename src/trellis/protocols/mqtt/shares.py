"""Shared subscriptions: one member of a group in the whole mesh gets each message.  [docs/mqtt.md; MQTT 5, 4.8.2]

Every node with members of a group gets every message. The envelope names the node that hands it to a member. The others
*guard* the message: they keep it until somebody says that a member has it (`TAKEN`). If its node gives it up (`LEFT`),
ends, or answers no question (`ASKED`) for `share_takeover_s`, a guard takes it over. Guards rank themselves by a hash;
each waits longer than the one before it, and says so when it takes a message over (`MINE`).

G1  this node hands a message of a group to one of its members at a time
G2  a message that was acknowledged to its publisher is guarded at every node with members until a member has it
G3  what is guarded is bounded; what is beyond that is counted, and has no guard here
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import MEMBERS_MAX, NO_INCARNATION, PREFIXES_MAX, Envelope, Grouped, Shared, wrap
from trellis.protocols.mqtt.groups import LETTERS_MAX, Groups
from trellis.protocols.mqtt.interests import QUESTIONS, SHARES
from trellis.protocols.mqtt.session import Session, Subscription, Ticket
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import SHARED

TAKEN, MINE, LEFT, ASKED, GONE, HERE = range(6)
GUARDED_MAX = 20_000  # messages
GUARDED_BYTES = 64 << 20
DONE_MS = 150_000  # what was taken is remembered for so long, and once more
DONE_MAX = 100_000
_FLUSH_MS = 50  # what is to be said is gathered for so long
_ANNOUNCE_MS = 200  # members here are announced at most so often
_SCAN_MS = 500  # guarded messages are looked at so often
# A message whose publisher's node knew of no member waits so long: nodes may just hear of each other.
_UNCHOSEN_MS = 1_000

Give = Callable[[Session, Envelope, Subscription, Ticket | None], None]


@dataclass
class Guarded:
    """A message that another node hands over, or nobody yet."""

    message: Envelope
    owner: NodeId | None
    incarnation: Incarnation  # of the owner
    heard_ms: int  # when the owner last said that it has it; at first, when it came
    asked_ms: int
    free_ms: int | None = None  # since when its owner has given it up; None: it has not
    rank: int = -1  # guards that take it over before us, since `ranked_ms`; -1: not free yet
    ranked_ms: int = 0
    without: set[NodeId] = field(default_factory=set)  # nodes that have given it up


class Shares:
    def __init__(self, state: BrokerState, give: Give) -> None:
        self.state, self.give = state, give
        self.groups = Groups()
        self.local: dict[str, dict[Session, Subscription]] = {}  # group -> members here, connected or not
        self.guarded: dict[Ticket, Guarded] = {}
        self.assigned: dict[Ticket, tuple[Session, Envelope]] = {}  # under way to a member here
        self.finished: list[Ticket] = []  # members have had these; filled by sessions
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._bytes = 0  # of guarded messages
        self._done: dict[Ticket, bool] = {}  # a member somewhere has it -> by us
        self._done_before: dict[Ticket, bool] = {}
        self._gone: dict[NodeId, Incarnation] = {}  # nodes that answered nothing -> their incarnation
        self._heard_ms: dict[NodeId, int] = {}  # when a node last said anything on `SHARES`
        self._claimed: dict[Ticket, tuple[NodeId, Incarnation]] = {}  # taken over elsewhere, before it came here
        self._words: dict[tuple[int, str, NodeId, Incarnation, str], dict[int, None]] = {}  # to be said
        self._turned_ms = self._flushed_ms = self._scanned_ms = self._announced_ms = 0
        self._turns = self._number = 0
        self._is_asked = False  # we are on `SHARES` because of messages in `assigned`
        self._is_stale = False  # `groups` does not know yet which members are here
        self._is_changed = False  # members here are to be announced

    # Members of this node

    def join(self, session: Session, filter_: str, one: Subscription) -> None:
        """A session was told that it is a member."""
        session.finished = self.finished
        self.local.setdefault(filter_[len(SHARED) :], {})[session] = one
        self._is_stale = True

    def leave(self, session: Session, filter_: str) -> None:
        """A session is no longer a member. What is on its way to it stays so."""
        key = filter_[len(SHARED) :]
        members = self.local.get(key, {})
        if members.pop(session, None) is None:
            return
        if not members:
            del self.local[key]  # `_scan` drops what is guarded for it
        self._is_stale = True

    def came(self, session: Session) -> None:
        if session.finished is self.finished:
            self._is_stale = True

    def parted(self, session: Session) -> None:
        """A member's connection is gone. What it has not acknowledged goes to another one, if there is any.

        A message with QoS 2 that was sent stays with it.  [MQTT-4.8.2-4]
        """
        if session.finished is self.finished:
            self._is_stale = True
            for ticket in session.surrender(lambda one: self._has_another(one[0], session)):
                self._pass_on(ticket)

    def ended(self, session: Session) -> None:
        """A session is over. A message with QoS 2 that was sent to it goes to nobody else.  [MQTT-4.8.2-5]"""
        if session.finished is self.finished:
            for ticket in session.surrender(lambda one: True):
                self._pass_on(ticket)
            self.finished += [one.ticket for one in session.flying.values() if one.ticket is not None]

    def _has_another(self, key: str, session: Session) -> bool:
        """Return whether a connected member is anywhere, this one aside."""
        here = any(one.link is not None for one in self.local.get(key, ()) if one is not session)
        return here or any(self.groups.others(key, self.state.node).values())

    def _follow(self) -> None:
        """Members here came, left, or have another connection: from now on our own publications know it."""
        self._is_stale, self._is_changed = False, True
        self._number += 1
        me, room = (self.state.node, self.state.incarnation), 2 * LETTERS_MAX  # There is always room for our own.
        self.groups.hear(*me, self._number, self._members(), self.state.now_ms, room)

    def _members(self) -> dict[str, int]:
        return {key: sum(one.link is not None for one in each) for key, each in self.local.items()}

    # Messages

    def arrived(self, origin: NodeId, message: Envelope) -> None:
        """A message has come over the mesh."""
        if not self.local:
            return
        for key in [one for one, _ in self.groups.tree.matching(message.topic) if one in self.local]:
            ticket = (key, origin, message.incarnation, message.number)
            if not message.incarnation:  # of a native client: it has no identity, so nobody can guard it
                identity = (origin, blake2b(message.payload, digest_size=8).digest())
                if self.groups.ranked(key, identity, ())[:1] == [self.state.node]:
                    self._assign(ticket, message, may_wait=True, is_native=True)
            elif not self._is_done(ticket) and ticket not in self.assigned and ticket not in self.guarded:
                self._place(ticket, message)

    def _place(self, ticket: Ticket, message: Envelope) -> None:
        chosen = next(((node, incarnation) for key, node, incarnation in message.chosen if key == ticket[0]), None)
        chosen = self._claimed.pop(ticket, chosen)
        if chosen == (self.state.node, self.state.incarnation):
            self._hand_over(ticket, message)
        else:
            self._guard(ticket, message, *(chosen or (None, NO_INCARNATION)))

    def _hand_over(self, ticket: Ticket, message: Envelope) -> None:
        """This node was chosen: give the message to a member here, or let others have it."""
        key = ticket[0]
        if self._assign(ticket, message):
            return
        if any(self.groups.others(key, self.state.node).values()) or key not in self.local:
            self._say(LEFT, ticket)
            if key in self.local:
                self._guard(ticket, message, None, NO_INCARNATION, is_free=True)
        elif not self._assign(ticket, message, may_wait=True):  # Nobody is connected: it waits for one of ours.
            self.state.counters["reads denied"] += 1

    def _assign(self, ticket: Ticket, message: Envelope, may_wait: bool = False, is_native: bool = False) -> bool:
        """Give a message to a member here: one that is connected, or, if it may wait, any. Return whether one has it.

        Members take turns. One that has room for it, or for which least waits, goes first. Members that may not read
        the topic are passed over.
        """
        may_read = self.state.may_read
        members = {one: each for one, each in self.local.get(ticket[0], {}).items() if may_read(one, message.topic)}
        several = [one for one in members if one.link is not None] or (list(members) if may_wait else [])
        if not several:
            return False
        self._turns += 1
        start = self._turns % len(several)
        session = min(several[start:] + several[:start], key=lambda one: (not one.has_room, len(one.queue)))
        if not is_native:
            self.assigned[ticket] = (session, message)
        self.give(session, message, members[session], None if is_native else ticket)
        return True

    def _pass_on(self, ticket: Ticket) -> None:
        """A member that was to get the message is gone."""
        _, message = self.assigned.pop(ticket)
        self._hand_over(ticket, message)

    def _guard(
        self, ticket: Ticket, message: Envelope, owner: NodeId | None, incarnation: Incarnation, is_free: bool = False
    ) -> None:
        """Keep a message that `owner` hands over. `is_free`: it was given up already."""
        now_ms, size = self.state.now_ms, len(message.payload)
        if len(self.guarded) >= GUARDED_MAX or self._bytes + size > GUARDED_BYTES:
            self.state.counters["shared not guarded"] += 1
            return
        free_ms = now_ms if is_free else None
        if owner is None:
            free_ms = free_ms or now_ms + _UNCHOSEN_MS
        elif self._gone.get(owner, -1) >= incarnation or self._incarnation_of(owner) > incarnation:
            free_ms = now_ms
        self.guarded[ticket] = Guarded(message, owner, incarnation, now_ms, now_ms, free_ms)
        if owner is not None and owner != self.state.node:
            self.guarded[ticket].without.add(owner)
        self._bytes += size

    def _unguard(self, ticket: Ticket) -> Guarded | None:
        found = self.guarded.pop(ticket, None)
        if found is not None:
            self._bytes -= len(found.message.payload)
        return found

    def _incarnation_of(self, node: NodeId) -> int:
        told = self.groups.told.get(node)
        return told.incarnation if told is not None else 0

    # What nodes tell each other

    def on_shared(self, origin: NodeId, said: Shared) -> None:
        if origin == self.state.node:
            return
        if len(self._heard_ms) < MEMBERS_MAX or origin in self._heard_ms:
            self._heard_ms[origin] = self.state.now_ms
        if said.what == GONE:
            self._on_gone(said.node, said.incarnation)
            return
        if said.what == ASKED and said.owner == self.state.node:  # We are there, even if we do not have the messages.
            self._words[HERE, "", self.state.node, self.state.incarnation, ""] = {}
        for number in said.numbers:
            ticket = (said.key, said.node, said.incarnation, number)
            if said.what == TAKEN:
                self._on_taken(ticket)
            elif said.what == ASKED:
                self._on_asked(ticket)
            elif said.what == MINE:
                self._on_mine(ticket, origin, said.by)
            elif said.what == LEFT:
                self._on_left(ticket, origin)

    def _on_taken(self, ticket: Ticket) -> None:
        self._done.setdefault(ticket, False)
        self._unguard(ticket)
        found = self.assigned.get(ticket)
        if found is not None and found[0].withdraw(ticket):
            del self.assigned[ticket]

    def _on_left(self, ticket: Ticket, origin: NodeId) -> None:
        found = self.guarded.get(ticket)
        if found is not None:
            found.without.add(origin)
            if found.owner in (origin, None):
                found.free_ms = self.state.now_ms

    def _on_asked(self, ticket: Ticket) -> None:
        if self._is_ours(ticket):
            self._say(TAKEN, ticket)
        elif ticket in self.assigned:
            self._say(MINE, ticket)

    def _on_mine(self, ticket: Ticket, origin: NodeId, incarnation: Incarnation) -> None:
        found = self.assigned.get(ticket)
        if found is not None and origin < self.state.node and found[0].withdraw(ticket):
            del self.assigned[ticket]  # Both took it over, and ours was not sent yet.
            self._guard(ticket, found[1], origin, incarnation)
        guarded = self.guarded.get(ticket)
        if guarded is not None:
            guarded.owner, guarded.incarnation, guarded.free_ms = origin, incarnation, None
            guarded.heard_ms = guarded.asked_ms = self.state.now_ms
            guarded.rank = -1
        elif found is None and ticket[0] in self.local:
            self._claimed[ticket] = (origin, incarnation)

    def _on_gone(self, node: NodeId, incarnation: Incarnation) -> None:
        if node == self.state.node:
            if incarnation == self.state.incarnation:
                self._is_changed = True  # We are still here.
            return
        self.groups.forget(node, incarnation)
        if len(self._gone) >= MEMBERS_MAX:
            self._gone.clear()  # what comes for these waits longer
        self._gone[node] = max(incarnation, self._gone.get(node, NO_INCARNATION))
        for found in self.guarded.values():
            if found.owner == node and found.incarnation <= incarnation and found.free_ms is None:
                found.free_ms = self.state.now_ms

    def on_grouped(self, origin: NodeId, said: Grouped) -> None:
        """A node tells the members that it has."""
        if origin == self.state.node:
            return
        if self.groups.hear(
            origin, said.incarnation, said.number, dict(zip(said.keys, said.counts, strict=False)), self.state.now_ms
        ):
            if self._gone.get(origin, -1) <= said.incarnation:
                self._gone.pop(origin, None)
            self._on_incarnation(origin, said.incarnation)
            self._ask_again(origin, said.keys)

    def on_who(self, origin: NodeId, incarnation: Incarnation) -> None:
        """A node has joined, or restarted: it must learn of our members."""
        if origin != self.state.node:
            self._is_changed = self._is_changed or bool(self.local)
            self.groups.forget(origin, Incarnation(incarnation - 1))
            self._on_incarnation(origin, incarnation)

    def on_bye(self, origin: NodeId, incarnation: Incarnation) -> None:
        """A node leaves. What it had and could not hand over, it gives up itself (`GONE`)."""
        if origin != self.state.node:
            self.groups.forget(origin, incarnation)

    def _on_incarnation(self, node: NodeId, incarnation: Incarnation) -> None:
        """Earlier incarnations of a node have ended."""
        for found in self.guarded.values():
            if found.owner == node and found.incarnation < incarnation and found.free_ms is None:
                found.free_ms = self.state.now_ms

    def _ask_again(self, node: NodeId, keys: tuple[str, ...]) -> None:
        """A node has only members of these groups. It says so if messages of others are still on their way there."""
        step_ms = self._patience_ms // 3
        for ticket, one in self.guarded.items():
            if one.owner == node and one.free_ms is None and ticket[0] not in keys:
                one.free_ms, one.asked_ms = self.state.now_ms + step_ms, self.state.now_ms
                self._say(ASKED, ticket, one.owner)

    @property
    def _patience_ms(self) -> int:
        return int(self.state.config.share_takeover_s * 1_000)

    def shut_down(self) -> None:
        """This node leaves: others take over what it has not handed over."""
        self._note_finished()
        if self.local or self.assigned:
            self._flush()
            self._emit(Shared(GONE, "", self.state.node, self.state.incarnation, (), self.state.incarnation))
        self.local.clear()  # The clients leave one after the other: no message goes from one to the next.

    # Time

    def settle(self) -> None:
        """After each input: note what members have had, and say what is due."""
        if self._is_stale:
            self._follow()
        if self.finished:
            self._note_finished()
        if self._is_asked != bool(self.assigned):  # Guards may ask us, also when the last member here has left.
            self._is_asked = not self._is_asked
            (self.state.interests.want if self._is_asked else self.state.interests.unwant)(SHARES)
        if self._words and self.state.now_ms - self._flushed_ms >= _FLUSH_MS:
            self._flush()
        if self._is_changed and self.state.now_ms - self._announced_ms >= _ANNOUNCE_MS:
            self._announce()

    def tick(self) -> None:
        now_ms = self.state.now_ms
        ask_ms = int(self.state.config.ask_s * 1_000)
        self.groups.expire(now_ms - 3 * ask_ms, self.state.node)
        self._is_changed = self._is_changed or (bool(self.local) and now_ms - self._announced_ms >= ask_ms)
        if now_ms - self._turned_ms > DONE_MS or len(self._done) + len(self._claimed) > DONE_MAX:
            self._done_before, self._done, self._turned_ms = self._done, {}, now_ms
            self._claimed.clear()
            self._heard_ms.clear()
        if now_ms - self._scanned_ms >= _SCAN_MS:
            self._scanned_ms = now_ms
            self._scan()
        self.settle()

    def _scan(self) -> None:
        """Ask for messages that are guarded for long, and take over what nobody has."""
        now_ms, patience_ms = self.state.now_ms, self._patience_ms
        step_ms = patience_ms // 3
        gone: dict[tuple[NodeId, Incarnation], None] = {}
        for ticket, one in self.guarded.items():
            if one.free_ms is not None or one.owner is None or ticket[0] not in self.local:
                continue
            if now_ms - one.heard_ms >= patience_ms:
                if now_ms - self._heard_ms.get(one.owner, -patience_ms) < patience_ms:
                    one.free_ms = now_ms  # Its owner is there, answers for others, and does not have this one.
                else:
                    gone[one.owner, one.incarnation] = None
            elif now_ms - one.asked_ms >= step_ms:
                one.asked_ms = now_ms
                self._say(ASKED, ticket, one.owner)
        for node, incarnation in gone:
            self._emit(Shared(GONE, "", node, incarnation, (), self.state.incarnation))
            self._on_gone(node, incarnation)
        for ticket, one in list(self.guarded.items()):
            until_ms = self.state.until_ms(one.message)
            if ticket[0] not in self.local or (until_ms is not None and until_ms <= now_ms):
                self._unguard(ticket)
            elif one.free_ms is not None and now_ms >= one.free_ms:
                ranked = self.groups.ranked(ticket[0], ticket, one.without)
                rank = ranked.index(self.state.node) if self.state.node in ranked else len(ranked)
                if rank != one.rank:  # A node before us has gone: the next one is not us yet, unless we are the first.
                    one.rank, one.ranked_ms = rank, now_ms
                if now_ms >= one.ranked_ms + rank * step_ms:
                    self._take_over(ticket)

    def _take_over(self, ticket: Ticket) -> None:
        found = self._unguard(ticket)
        assert found is not None
        if self._assign(ticket, found.message, may_wait=True):
            self.state.counters["shared taken over"] += 1
            if ticket in self.assigned:
                self._say(MINE, ticket)

    def _note_finished(self) -> None:
        for ticket in self.finished:
            self.assigned.pop(ticket, None)
            self._done[ticket] = True
            if self.groups.others(ticket[0], self.state.node):
                self._say(TAKEN, ticket)
        self.finished.clear()

    def _is_done(self, ticket: Ticket) -> bool:
        return ticket in self._done or ticket in self._done_before

    def _is_ours(self, ticket: Ticket) -> bool:
        return self._done.get(ticket, False) or self._done_before.get(ticket, False)

    def _say(self, what: int, ticket: Ticket, owner: NodeId = "") -> None:
        key, node, incarnation, number = ticket
        self._words.setdefault((what, key, node, incarnation, owner), {})[number] = None

    def _flush(self) -> None:
        self._flushed_ms = self.state.now_ms
        for (what, key, node, incarnation, owner), numbers in self._words.items():
            listed = tuple(numbers)
            for start in range(0, max(1, len(listed)), PREFIXES_MAX):
                part = listed[start : start + PREFIXES_MAX]
                self._emit(Shared(what, key, node, incarnation, part, self.state.incarnation, owner))
        self._words.clear()

    def _emit(self, said: Shared) -> None:
        self.emits.append((SHARES, wrap(said), "share"))

    def _announce(self) -> None:
        """Tell all nodes with a listener how many members of which groups are here."""
        if not self.state.directory.is_confirmed(QUESTIONS):
            return
        self._is_changed, self._announced_ms = False, self.state.now_ms
        self._number += 1
        members = self._members()
        said = Grouped(self.state.incarnation, self._number, tuple(members), tuple(members.values()))
        self.emits.append((QUESTIONS, wrap(said), "grouped"))

    def check(self) -> None:
        self.groups.check()
        assert self._bytes == sum(len(one.message.payload) for one in self.guarded.values()), "G3"
        assert not self.guarded.keys() & self.assigned.keys(), "G1"
        held = [one for session in self.state.sessions.values() for one in session.tickets()]
        assert len(held) == len(set(held)), "G1"
        assert {*held} <= self.assigned.keys() <= {*held, *self.finished}, "G1"
