"""Shared subscriptions: one member of a group in the whole mesh gets each message.  [docs/mqtt.md; MQTT 5, 4.8.2]

Every node with members of a group gets every message. The envelope names the node that gives it to a member. The other
nodes *guard* the message: they keep it until a node says that a member has it (`TAKEN`). A guard takes the message over
if its node gives it up (`LEFT`), ends, or answers no question (`ASKED`) for `share_takeover_s`. Guards rank themselves
by a hash. Each waits longer than the one before it, and says so when it takes a message over (`MINE`).

G1  This node gives a message of a group to one of its members at a time.
G2  A message that was acknowledged to its publisher is guarded at every node with members until a member has it.
G3  Guarded messages are bounded. Messages beyond that are counted, and have no guard here.
"""

from __future__ import annotations

from collections import Counter
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

# What a node says (`Shared.what`). About messages: a member has them; a member here will get them; this node gives them
# up; which node has them? About nodes: that node has ended; this node is here.
TAKEN, MINE, LEFT, ASKED, GONE, HERE = range(6)
GUARDED_MAX = 20_000  # most guarded messages
GUARDED_BYTES = 64 << 20  # most bytes of their payloads
DONE_MS = 150_000  # A message that was taken is remembered for one to two times this long.
DONE_MAX = 100_000
_FLUSH_MS = 50  # statements are collected for this long
_ANNOUNCE_MS = 200  # least time between two announcements of our members
_SCAN_MS = 500  # interval at which guarded messages are checked
# A message whose publisher's node knew of no member waits this long, because nodes may be just learning of each other.
_UNCHOSEN_MS = 1_000

Give = Callable[[Session, Envelope, Subscription, Ticket | None], None]


@dataclass
class Guarded:
    """A message that another node gives to a member, or that no node has yet."""

    message: Envelope
    owner: NodeId | None  # the node that gives it to a member; None: not known
    incarnation: Incarnation  # incarnation of the owner
    heard_ms: int  # when the owner last said that it has the message; at first, when the message arrived
    asked_ms: int
    free_ms: int | None = None  # since when the owner has given it up; None: it has not
    rank: int = -1  # number of guards that take it over before us, since `ranked_ms`; -1: it is not free
    ranked_ms: int = 0
    without: set[NodeId] = field(default_factory=set)  # nodes that have given it up


class Shares:
    """This node's part in shared subscriptions: its members, and the messages that it guards."""

    def __init__(self, state: BrokerState, give: Give) -> None:
        self.state, self.give = state, give
        self.groups = Groups()
        self.local: dict[str, dict[Session, Subscription]] = {}  # group -> members here, connected or not
        self.guarded: dict[Ticket, Guarded] = {}
        self.assigned: dict[Ticket, tuple[Session, Envelope]] = {}  # messages on their way to a member here
        self.finished: list[Ticket] = []  # messages that members have acknowledged; sessions fill this list
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._bytes = 0  # payload bytes of guarded messages
        self._done: dict[Ticket, bool] = {}  # message that a member somewhere has -> whether the member is here
        self._done_before: dict[Ticket, bool] = {}
        self._gone: dict[NodeId, Incarnation] = {}  # nodes that did not answer -> their incarnation
        self._heard_ms: dict[NodeId, int] = {}  # when a node last said anything on `SHARES`
        # messages that another node took over before they arrived here
        self._claimed: dict[Ticket, tuple[NodeId, Incarnation]] = {}
        # statements to publish -> numbers of their messages
        self._words: dict[tuple[int, str, NodeId, Incarnation, str], dict[int, None]] = {}
        self._turned_ms = self._flushed_ms = self._scanned_ms = self._announced_ms = 0
        self._turns: Counter[str] = Counter()  # group -> messages that members here have got
        self._number = 0
        self._is_asked = False  # We take part in `SHARES` because of messages in `assigned`.
        self._is_stale = False  # `groups` does not know our present members yet.
        self._is_changed = False  # our members are to be announced

    # Members of this node

    def join(self, session: Session, filter_: str, subscription: Subscription) -> None:
        """A session has become a member: its SUBACK was sent."""
        session.finished = self.finished
        self.local.setdefault(filter_[len(SHARED) :], {})[session] = subscription
        self._is_stale = True

    def leave(self, session: Session, filter_: str) -> None:
        """A session is no longer a member. Messages on their way to it stay so."""
        key = filter_[len(SHARED) :]
        members = self.local.get(key, {})
        if members.pop(session, None) is None:
            return
        if not members:
            del self.local[key]  # `_scan` drops what is guarded for this group
            self._turns.pop(key, None)
        self._is_stale = True

    def came(self, session: Session) -> None:
        """A session has a connection again."""
        if session.finished is self.finished:
            self._is_stale = True

    def parted(self, session: Session) -> None:
        """A member has disconnected. What it has not acknowledged goes to another member, if there is one.

        A message with QoS 2 that was sent stays with it.  [MQTT-4.8.2-4]
        """
        if session.finished is self.finished:
            self._is_stale = True
            for ticket in session.surrender(lambda mine: self._has_another(mine[0], session)):
                self._pass_on(ticket)

    def ended(self, session: Session) -> None:
        """A session has ended. A message with QoS 2 that was sent to it goes to nobody else.  [MQTT-4.8.2-5]"""
        if session.finished is self.finished:
            for ticket in session.surrender(lambda mine: True):
                self._pass_on(ticket)
            self.finished += [message.ticket for message in session.flying.values() if message.ticket is not None]

    def _has_another(self, key: str, session: Session) -> bool:
        """Return whether the group has a connected member anywhere, besides this session."""
        here = any(member.link is not None for member in self.local.get(key, ()) if member is not session)
        return here or any(self.groups.others(key, self.state.node).values())

    def _follow(self) -> None:
        """Members here have changed: our own publications take that into account from now on."""
        self._is_stale, self._is_changed = False, True
        self._number += 1
        me, room = (
            (self.state.node, self.state.incarnation),
            2 * LETTERS_MAX,
        )  # There is always space for our own groups.
        self.groups.hear(*me, self._number, self._members(), self.state.now_ms, room)

    def _members(self) -> dict[str, int]:
        """Return how many connected members of each group are here."""
        return {key: sum(member.link is not None for member in each) for key, each in self.local.items()}

    # Messages

    def arrived(self, origin: NodeId, message: Envelope) -> None:
        """Take in a message that has arrived over the mesh."""
        if not self.local:
            return
        for key in [key for key, _ in self.groups.tree.matching(message.topic) if key in self.local]:
            ticket = (key, origin, message.incarnation, message.number)
            if not message.incarnation:  # published by a native client: it has no identity, so nobody can guard it
                identity = (origin, blake2b(message.payload, digest_size=8).digest())
                if self.groups.ranked(key, identity, ())[:1] == [self.state.node]:
                    self._assign(ticket, message, may_wait=True, is_native=True)
            elif not self._is_done(ticket) and ticket not in self.assigned and ticket not in self.guarded:
                self._assign_or_guard(ticket, message)

    def _assign_or_guard(self, ticket: Ticket, message: Envelope) -> None:
        """Give a message to a member here if this node was chosen, or guard it."""
        chosen = next(((node, incarnation) for key, node, incarnation in message.chosen if key == ticket[0]), None)
        chosen = self._claimed.pop(ticket, chosen)
        if chosen == (self.state.node, self.state.incarnation):
            self._hand_over(ticket, message)
        else:
            self._guard(ticket, message, *(chosen or (None, NO_INCARNATION)))

    def _hand_over(self, ticket: Ticket, message: Envelope) -> None:
        """This node was chosen: give the message to a member here, or give it up for others."""
        key = ticket[0]
        if self._assign(ticket, message):
            return
        if any(self.groups.others(key, self.state.node).values()) or key not in self.local:
            self._say(LEFT, ticket)
            if key in self.local:
                self._guard(ticket, message, None, NO_INCARNATION, is_free=True)
        # nobody is connected anywhere: it waits for one of our members
        elif not self._assign(ticket, message, may_wait=True):
            self.state.counters["reads denied"] += 1

    def _assign(self, ticket: Ticket, message: Envelope, may_wait: bool = False, is_native: bool = False) -> bool:
        """Give a message to a connected member here, or to any member if it may wait. Return whether one has it.

        Members take turns. A member that has space for it, or for which the fewest messages wait, is preferred. Members
        that may not read the topic are skipped.
        """
        may_read = self.state.may_read
        members = {
            member: each for member, each in self.local.get(ticket[0], {}).items() if may_read(member, message.topic)
        }
        several = [member for member in members if member.link is not None] or (list(members) if may_wait else [])
        if not several:
            return False
        start = self._turns[ticket[0]] % len(several)
        self._turns[ticket[0]] += 1
        session = min(several[start:] + several[:start], key=lambda member: (not member.has_room, len(member.queue)))
        if not is_native:
            self.assigned[ticket] = (session, message)
        self.give(session, message, members[session], None if is_native else ticket)
        return True

    def _pass_on(self, ticket: Ticket) -> None:
        """The member that was to get the message has gone: find another one."""
        _, message = self.assigned.pop(ticket)
        self._hand_over(ticket, message)

    def _guard(
        self, ticket: Ticket, message: Envelope, owner: NodeId | None, incarnation: Incarnation, is_free: bool = False
    ) -> None:
        """Keep a message that `owner` gives to a member. `is_free`: it was given up already."""
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
        """Stop guarding a message. Return it, or None if it was not guarded."""
        guarded = self.guarded.pop(ticket, None)
        if guarded is not None:
            self._bytes -= len(guarded.message.payload)
        return guarded

    def _incarnation_of(self, node: NodeId) -> int:
        """Return the last known incarnation of a node."""
        told = self.groups.told.get(node)
        return told.incarnation if told is not None else 0

    # What nodes tell each other

    def on_shared(self, origin: NodeId, said: Shared) -> None:
        """Take in a statement of another node."""
        if origin == self.state.node:
            return
        if len(self._heard_ms) < MEMBERS_MAX or origin in self._heard_ms:
            self._heard_ms[origin] = self.state.now_ms
        if said.what == GONE:
            self._on_gone(said.node, said.incarnation)
            return
        # We answer that we are here, even if we do not have the messages.
        if said.what == ASKED and said.owner == self.state.node:
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
        """A member elsewhere has a message."""
        self._done.setdefault(ticket, False)
        self._unguard(ticket)
        assigned = self.assigned.get(ticket)
        if assigned is not None and assigned[0].withdraw(ticket):
            del self.assigned[ticket]

    def _on_left(self, ticket: Ticket, origin: NodeId) -> None:
        """A node gives a message up."""
        guarded = self.guarded.get(ticket)
        if guarded is not None:
            guarded.without.add(origin)
            if guarded.owner in (origin, None):
                guarded.free_ms = self.state.now_ms

    def _on_asked(self, ticket: Ticket) -> None:
        """A node asks who has a message."""
        if self._is_ours(ticket):
            self._say(TAKEN, ticket)
        elif ticket in self.assigned:
            self._say(MINE, ticket)

    def _on_mine(self, ticket: Ticket, origin: NodeId, incarnation: Incarnation) -> None:
        """A node has a message, and a member there will get it."""
        assigned = self.assigned.get(ticket)
        if assigned is not None and origin < self.state.node and assigned[0].withdraw(ticket):
            del self.assigned[ticket]  # Both took it over, and ours was not sent yet.
            self._guard(ticket, assigned[1], origin, incarnation)
        guarded = self.guarded.get(ticket)
        if guarded is not None:
            guarded.owner, guarded.incarnation, guarded.free_ms = origin, incarnation, None
            guarded.heard_ms = guarded.asked_ms = self.state.now_ms
            guarded.rank = -1
        elif assigned is None and ticket[0] in self.local:
            self._claimed[ticket] = (origin, incarnation)

    def _on_gone(self, node: NodeId, incarnation: Incarnation) -> None:
        """A node has ended: what it had is free."""
        if node == self.state.node:
            if incarnation == self.state.incarnation:
                self._is_changed = True  # We are still here.
            return
        self.groups.forget(node, incarnation)
        if len(self._gone) >= MEMBERS_MAX:
            self._gone.clear()  # messages of these nodes wait longer
        self._gone[node] = max(incarnation, self._gone.get(node, NO_INCARNATION))
        for guarded in self.guarded.values():
            if guarded.owner == node and guarded.incarnation <= incarnation and guarded.free_ms is None:
                guarded.free_ms = self.state.now_ms

    def on_grouped(self, origin: NodeId, said: Grouped) -> None:
        """A node announces its members."""
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
        """A node has joined or restarted: it must learn of our members."""
        if origin != self.state.node:
            self._is_changed = self._is_changed or bool(self.local)
            self.groups.forget(origin, Incarnation(incarnation - 1))
            self._on_incarnation(origin, incarnation)

    def on_bye(self, origin: NodeId, incarnation: Incarnation) -> None:
        """A node leaves. It has said itself which messages it gives up (`GONE`)."""
        if origin != self.state.node:
            self.groups.forget(origin, incarnation)

    def _on_incarnation(self, node: NodeId, incarnation: Incarnation) -> None:
        """Earlier incarnations of a node have ended: what they had is free."""
        for guarded in self.guarded.values():
            if guarded.owner == node and guarded.incarnation < incarnation and guarded.free_ms is None:
                guarded.free_ms = self.state.now_ms

    def _ask_again(self, node: NodeId, keys: tuple[str, ...]) -> None:
        """A node has members of these groups only. Ask whether it still has messages of other groups."""
        step_ms = self._patience_ms // 3
        for ticket, guarded in self.guarded.items():
            if guarded.owner == node and guarded.free_ms is None and ticket[0] not in keys:
                guarded.free_ms, guarded.asked_ms = self.state.now_ms + step_ms, self.state.now_ms
                self._say(ASKED, ticket, guarded.owner)

    @property
    def _patience_ms(self) -> int:
        """How long an owner may be silent before a guard takes a message over."""
        return int(self.state.config.share_takeover_s * 1_000)

    def shut_down(self) -> None:
        """This node leaves: others take over what it has not given to a member."""
        self._note_finished()
        if self.local or self.assigned:
            self._flush()
            self._emit(Shared(GONE, "", self.state.node, self.state.incarnation, (), self.state.incarnation))
        self.local.clear()  # clients disconnect one after the other: no message moves from one to the next

    # Time

    def settle(self) -> None:
        """After each input: note what members have acknowledged, and publish what is due."""
        if self._is_stale:
            self._follow()
        if self.finished:
            self._note_finished()
        if self._is_asked != bool(self.assigned):  # guards may ask us, even when the last member here has left
            self._is_asked = not self._is_asked
            (self.state.interests.want if self._is_asked else self.state.interests.unwant)(SHARES)
        if self._words and self.state.now_ms - self._flushed_ms >= _FLUSH_MS:
            self._flush()
        if self._is_changed and self.state.now_ms - self._announced_ms >= _ANNOUNCE_MS:
            self._announce()

    def tick(self) -> None:
        """Do the periodic work."""
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
        """Ask about messages that were guarded for long, and take over those that no node has."""
        now_ms, patience_ms = self.state.now_ms, self._patience_ms
        step_ms = patience_ms // 3
        gone: dict[tuple[NodeId, Incarnation], None] = {}
        for ticket, guarded in self.guarded.items():
            if guarded.free_ms is not None or guarded.owner is None or ticket[0] not in self.local:
                continue
            if now_ms - guarded.heard_ms >= patience_ms:
                if now_ms - self._heard_ms.get(guarded.owner, -patience_ms) < patience_ms:
                    guarded.free_ms = now_ms  # Its owner is there, answers for others, and does not have this one.
                else:
                    gone[guarded.owner, guarded.incarnation] = None
            elif now_ms - guarded.asked_ms >= step_ms:
                guarded.asked_ms = now_ms
                self._say(ASKED, ticket, guarded.owner)
        for node, incarnation in gone:
            self._emit(Shared(GONE, "", node, incarnation, (), self.state.incarnation))
            self._on_gone(node, incarnation)
        for ticket, guarded in list(self.guarded.items()):
            until_ms = self.state.until_ms(guarded.message)
            if ticket[0] not in self.local or (until_ms is not None and until_ms <= now_ms):
                self._unguard(ticket)
            elif guarded.free_ms is not None and now_ms >= guarded.free_ms:
                ranked = self.groups.ranked(ticket[0], ticket, guarded.without)
                rank = ranked.index(self.state.node) if self.state.node in ranked else len(ranked)
                # A node before us has gone. The next one in rank is not us, unless we are the first.
                if rank != guarded.rank:
                    guarded.rank, guarded.ranked_ms = rank, now_ms
                if now_ms >= guarded.ranked_ms + rank * step_ms:
                    self._take_over(ticket)

    def _take_over(self, ticket: Ticket) -> None:
        """Give a guarded message to a member here, and tell the others."""
        guarded = self._unguard(ticket)
        assert guarded is not None
        if self._assign(ticket, guarded.message, may_wait=True):
            self.state.counters["shared taken over"] += 1
            if ticket in self.assigned:
                self._say(MINE, ticket)

    def _note_finished(self) -> None:
        """Note the messages that members have acknowledged, and tell the others."""
        for ticket in self.finished:
            self.assigned.pop(ticket, None)
            self._done[ticket] = True
            if self.groups.others(ticket[0], self.state.node):
                self._say(TAKEN, ticket)
        self.finished.clear()

    def _is_done(self, ticket: Ticket) -> bool:
        """Return whether a member somewhere has the message."""
        return ticket in self._done or ticket in self._done_before

    def _is_ours(self, ticket: Ticket) -> bool:
        """Return whether a member here has had the message."""
        return self._done.get(ticket, False) or self._done_before.get(ticket, False)

    def _say(self, what: int, ticket: Ticket, owner: NodeId = "") -> None:
        """Note a statement about a message, to be published soon."""
        key, node, incarnation, number = ticket
        self._words.setdefault((what, key, node, incarnation, owner), {})[number] = None

    def _flush(self) -> None:
        """Publish the statements."""
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
        """Tell all nodes how many members of which groups are here."""
        if not self.state.directory.is_confirmed(QUESTIONS):
            return
        self._is_changed, self._announced_ms = False, self.state.now_ms
        self._number += 1
        members = self._members()
        said = Grouped(self.state.incarnation, self._number, tuple(members), tuple(members.values()))
        self.emits.append((QUESTIONS, wrap(said), "grouped"))

    def check(self) -> None:
        self.groups.check()
        assert self._bytes == sum(len(guarded.message.payload) for guarded in self.guarded.values()), "G3"
        assert not self.guarded.keys() & self.assigned.keys(), "G1"
        held = [ticket for session in self.state.sessions.values() for ticket in session.tickets()]
        assert len(held) == len(set(held)), "G1"
        assert {*held} <= self.assigned.keys() <= {*held, *self.finished}, "G1"
