"""Subscriptions of clients: SUBSCRIBE, and SUBACK when the mesh has confirmed. [MQTT 5, 3.8 to 3.11; docs/mqtt.md]

A filter becomes an interest of the node (`interests.py`). SUBACK waits until the mesh has confirmed the overlay topic,
or until every node knows the pattern, but no longer than `suback_s`. After SUBACK, the client gets every message that
is published, and the retained messages that match.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.protocols.access.decide import STEPS_MAX, Access
from trellis.protocols.access.rules import LIMIT_MAX
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.deliveries import Deliveries
from trellis.protocols.mqtt.envelope import PART_BYTES, PREFIXES_MAX
from trellis.protocols.mqtt.interests import SHARES, bucket_of
from trellis.protocols.mqtt.session import Link, Session, Subscription, filter_size
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import (
    LEVELS_MAX,
    PREFIX_LETTERS_MAX,
    SHARED,
    SYS_LOG,
    has_wildcard,
    is_filter,
    is_group,
    is_sys,
    levels_of,
    pattern_of,
    unshared,
)

FILTER_BYTES = 4_096  # average memory of a filter, if a client has `subscriptions_max` of them

REFUSED_MAX = 1_000  # most refused filters of a sidecar's broker that are remembered


@dataclass
class SubAckDue:
    """A SUBACK that waits for the mesh."""

    session: Session
    link: Link
    packet: p.SubAck
    patterns: dict[str, None]  # patterns and overlay topics that must be ready
    until_ms: int  # when it is sent in any case
    retained: list[tuple[str, Subscription]]  # subscriptions that get retained messages
    # shared subscriptions, whose groups the client joins
    shared: list[tuple[str, Subscription]] = field(default_factory=list)


class Subscriptions:
    """Takes in subscriptions, and sends SUBACKs."""

    def __init__(self, state: BrokerState, deliveries: Deliveries) -> None:
        self.state, self.deliveries, self.shares = state, deliveries, deliveries.shares
        self._subacks: list[SubAckDue] = []
        self._room = 0  # filters that quotas still allow the client whose SUBSCRIBE is being processed
        self.refused: dict[str, str] = {}  # refused filters of the sidecar's broker -> why

    def subscribe(self, session: Session, link: Link, packet: p.Subscribe) -> None:
        """Take in a SUBSCRIBE. A filter that occurs in it several times counts once, with its last options.

        That is the result of a sequence of packets [MQTT-3.8.4-5]. SUBACK answers each entry.
        """
        if self.state.access is not None:
            self.state.access.steps = STEPS_MAX
            self._count_filters(self.state.access, session)
        entries: dict[str, list[p.Asked]] = {}
        for asked in packet.asked:
            entries.setdefault(asked.filter, []).append(asked)
        refusals: dict[str, int] = {}
        due = SubAckDue(
            session, link, p.SubAck(packet.id, ()), {}, self.state.now_ms + int(self.state.config.suback_s * 1_000), []
        )
        text: str | None = None
        for filter_, several in entries.items():
            code, why = self._refusal(session, filter_)
            if code is not None:
                self.state.counters["filters refused"] += len(several)
                refusals[filter_] = code if link.version == p.V5 else reasons.UNSPECIFIED
                text = text or why
                if session.is_bridge and len(self.refused) < REFUSED_MAX:
                    self.refused[filter_] = why
                continue
            if session.is_bridge:
                self.refused.pop(filter_, None)
            last, old = several[-1], session.subscriptions.get(filter_)
            subscription = Subscription(
                self._granted(session, last),
                last.no_local,
                last.retain_as_published,
                packet.subscription,
                self.state.last_number if old is None else old.since,
            )
            is_new = self.state.enter_filter(session, filter_, subscription)
            self._room -= is_new
            if not is_sys(filter_):
                due.patterns[pattern_of(unshared(filter_), self.state.config.depth)] = None
            if filter_.startswith(SHARED):  # it gets no retained messages  [MQTT 5, 4.8.2]
                due.patterns[SHARES] = None
                due.shared.append((filter_, subscription))
            elif any(each.retain_handling == 0 for each in several) or (is_new and several[0].retain_handling == 1):
                due.retained.append((filter_, subscription))
        codes = [refusals.get(asked.filter, self._granted(session, asked)) for asked in packet.asked]
        due.packet = p.SubAck(packet.id, tuple(codes), text if link.wants_reasons else None)
        self.state.directory.changed()
        self._subacks.append(due)

    def _refusal(self, session: Session, filter_: str) -> tuple[int | None, str]:
        """Return reason code and text if a filter is refused, or None and an empty text."""
        if filter_.startswith(SHARED):
            if session.is_bridge:
                return reasons.SHARED_UNSUPPORTED, "a sidecar shares no subscriptions"
            key = filter_[len(SHARED) :]
            if not is_group(key):
                return reasons.FILTER_INVALID, "not a shared subscription as in $share/GROUP/FILTER"
            shared = self.state.shared
            is_full = len(shared) >= PREFIXES_MAX or sum(map(len, shared)) + len(filter_) > PART_BYTES // 4
            if filter_ not in shared and is_full:
                return reasons.QUOTA, "this node has too many groups of shared subscriptions"
        elif not is_filter(filter_):
            return reasons.FILTER_INVALID, "not a topic filter"
        elif filter_.startswith("$") and (session.is_bridge or not is_sys(filter_)):
            return reasons.FILTER_INVALID, "topics that begin with $ are not carried; only $SYS/... can be read here"
        if filter_.startswith(SYS_LOG):  # A sidecar that learns from the log must be told that there is none.
            return reasons.FILTER_INVALID, "this node does not tell its log to clients"
        if len(pattern_of(unshared(filter_), self.state.config.depth)) > PREFIX_LETTERS_MAX:
            return reasons.FILTER_INVALID, f"its first levels have more than {PREFIX_LETTERS_MAX} letters"
        if levels_of(filter_) > LEVELS_MAX:
            return reasons.FILTER_INVALID, f"it has more than {LEVELS_MAX} levels"
        if not self.state.may_subscribe(session, filter_):
            self.state.counters["subscriptions denied"] += 1
            return reasons.NOT_AUTHORIZED, "the client may read nothing that this filter matches"
        is_new = filter_ not in session.subscriptions and not session.is_bridge
        if is_new and session.filter_bytes + filter_size(filter_) > FILTER_BYTES * self.state.config.subscriptions_max:
            return reasons.QUOTA, "the filters of this client take too much memory"
        is_full = len(session.subscriptions) >= self.state.config.subscriptions_max and not session.is_bridge
        if is_full and filter_ not in session.subscriptions:
            return reasons.QUOTA, f"a client has at most {self.state.config.subscriptions_max} filters"
        if is_new and self._room <= 0 and self.state.access is not None:
            self.state.counters["filters beyond quotas"] += 1
            return reasons.QUOTA, "this client or its user has too many filters"
        if filter_ not in session.subscriptions:
            if self.state.filter_bytes + filter_size(filter_) > self.state.config.filters_bytes:
                self.state.counters["filters beyond memory"] += 1
                return reasons.QUOTA, "the filters of all clients of this node take too much memory"
            pattern = pattern_of(unshared(filter_), self.state.config.depth)
            why = self.state.refusal(bucket_of(pattern) if has_wildcard(pattern) else pattern)
            if why is not None and not is_sys(filter_):
                return reasons.QUOTA, why
        return None, ""

    def _count_filters(self, access: Access, session: Session) -> None:
        """Compute how many more filters the quotas of a client and its user allow."""
        limits, user = access.quotas.limits(session.who.user), session.who.user
        self._room = limits.get("client subscriptions", LIMIT_MAX) - len(session.subscriptions)
        if (most := limits.get("user subscriptions")) is not None:
            mine = sum(len(other.subscriptions) for other in self.state.sessions.values() if other.who.user == user)
            self._room = min(self._room, most - mine)

    def unsubscribe(self, session: Session, link: Link, packet: p.Unsubscribe) -> None:
        """Take in an UNSUBSCRIBE."""
        codes = [
            reasons.SUCCESS if had else reasons.NO_SUBSCRIPTION
            for had in self.state.leave_filters(session, packet.filters)
        ]
        for filter_ in packet.filters:
            self.deliveries.recollections.unsubscribed(session, filter_)
            if session.is_bridge:
                self.refused.pop(filter_, None)
        self.state.directory.changed()
        self.state.send(link, p.UnsubAck(packet.id, tuple(codes)))

    def tell(self) -> None:
        """Send the SUBACKs that are due."""
        if self._subacks:
            self._subacks = [due for due in self._subacks if not self._is_told(due)]

    def _is_told(self, due: SubAckDue) -> bool:
        """Send a SUBACK if it is due. Return whether it is done with."""
        if due.session.link is not due.link:
            self._share(due)  # its session may last
            return True
        is_ready = all(self.is_ready(pattern) for pattern in due.patterns)
        if not is_ready and self.state.now_ms < due.until_ms:
            return False
        packet = due.packet
        if not is_ready:
            self.state.counters["subacks early"] += 1
            self.deliveries.early.update(
                {bucket_of(pattern) if has_wildcard(pattern) else pattern: None for pattern in due.patterns}
            )
            if due.link.wants_reasons and packet.text is None:
                packet = p.SubAck(packet.id, packet.reasons, "granted; the mesh has not confirmed it yet")
        self.state.send(due.link, packet)
        self._share(due)
        for filter_, subscription in due.retained:
            if due.session.subscriptions.get(filter_) == subscription:
                self.deliveries.recollections.subscribed(due.session, filter_, subscription)
        self.deliveries.recollections.go_on()
        return True

    def _share(self, due: SubAckDue) -> None:
        """Make the session a member of the groups that it has asked for."""
        for filter_, subscription in due.shared:
            if due.session.subscriptions.get(filter_) == subscription:
                self.shares.join(due.session, filter_, subscription)

    def is_ready(self, pattern: str) -> bool:
        """Return whether everything that fits the pattern and is published from now on arrives here."""
        return (
            self.state.directory.is_ready(pattern)
            if has_wildcard(pattern)
            else self.state.directory.is_confirmed(pattern)
        )

    def _granted(self, session: Session, asked: p.Asked) -> int:
        """Return the QoS that is granted.  [MQTT-3.8.4-7, 3.2.2-10]

        A sidecar publishes at its broker with QoS 1 at most, under identifiers that link the broker's acknowledgements.
        """
        return min(asked.qos, 1 if session.is_bridge else self.state.config.qos_max)
