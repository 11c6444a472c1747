"""Subscriptions of clients, and the SUBACKs that wait for the mesh.  [MQTT 5, 3.8 to 3.11; docs/mqtt.md, The moment]"""

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

FILTER_BYTES = 4_096  # of memory that a client's filters may take on average, if it has `subscriptions_max` of them

REFUSED_MAX = 1_000  # that are remembered


@dataclass
class SubAckDue:
    """A SUBACK that waits for the mesh."""

    session: Session
    link: Link
    packet: p.SubAck
    patterns: dict[str, None]
    until_ms: int
    retained: list[tuple[str, Subscription]]
    shared: list[tuple[str, Subscription]] = field(default_factory=list)


class Subscriptions:
    def __init__(self, state: BrokerState, deliveries: Deliveries) -> None:
        self.state, self.deliveries, self.shares = state, deliveries, deliveries.shares
        self._subacks: list[SubAckDue] = []
        self._room = 0  # filters that quotas leave the client whose SUBSCRIBE is being read
        self.refused: dict[str, str] = {}  # filters of the broker beside us that were refused -> why

    def subscribe(self, session: Session, link: Link, packet: p.Subscribe) -> None:
        """Take in a SUBSCRIBE. A filter that stands in it several times counts once, with its last options.

        That is what a sequence of packets would leave [MQTT-3.8.4-5]. SUBACK answers each entry.
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
            last = several[-1]
            one = Subscription(_granted(session, last), last.no_local, last.retain_as_published, packet.subscription)
            is_new = self.state.enter_filter(session, filter_, one)
            self._room -= is_new
            if not is_sys(filter_):
                due.patterns[pattern_of(unshared(filter_), self.state.config.depth)] = None
            if filter_.startswith(SHARED):  # it gets no retained messages  [MQTT 5, 4.8.2]
                due.patterns[SHARES] = None
                due.shared.append((filter_, one))
            elif any(each.retain_handling == 0 for each in several) or (is_new and several[0].retain_handling == 1):
                due.retained.append((filter_, one))
        codes = [refusals.get(asked.filter, _granted(session, asked)) for asked in packet.asked]
        due.packet = p.SubAck(packet.id, tuple(codes), text if link.wants_reasons else None)
        self.state.directory.changed()
        self._subacks.append(due)

    def _refusal(self, session: Session, filter_: str) -> tuple[int | None, str]:
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
        if filter_.startswith(SYS_LOG):  # A sidecar that learns from it must hear that it will learn nothing.
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
        """Note how many more filters the quotas of a client and its user leave it."""
        limits, user = access.quotas.limits(session.who.user), session.who.user
        self._room = limits.get("client subscriptions", LIMIT_MAX) - len(session.subscriptions)
        if (most := limits.get("user subscriptions")) is not None:
            mine = sum(len(one.subscriptions) for one in self.state.sessions.values() if one.who.user == user)
            self._room = min(self._room, most - mine)

    def unsubscribe(self, session: Session, link: Link, packet: p.Unsubscribe) -> None:
        codes = [
            reasons.SUCCESS if had else reasons.NO_SUBSCRIPTION
            for had in self.state.leave_filters(session, packet.filters)
        ]
        if session.is_bridge:
            for one in packet.filters:
                self.refused.pop(one, None)
        self.state.directory.changed()
        self.state.send(link, p.UnsubAck(packet.id, tuple(codes)))

    def tell(self) -> None:
        """SUBACKs whose time has come."""
        if self._subacks:
            self._subacks = [due for due in self._subacks if not self._is_told(due)]

    def _is_told(self, due: SubAckDue) -> bool:
        if due.session.link is not due.link:
            self._share(due)  # its session may last
            return True
        is_ready = all(self.is_ready(one) for one in due.patterns)
        if not is_ready and self.state.now_ms < due.until_ms:
            return False
        packet = due.packet
        if not is_ready:
            self.state.counters["subacks early"] += 1
            self.deliveries.early.update({bucket_of(one) if has_wildcard(one) else one: None for one in due.patterns})
            if due.link.wants_reasons and packet.text is None:
                packet = p.SubAck(packet.id, packet.reasons, "granted; the mesh has not confirmed it yet")
        self.state.send(due.link, packet)
        self._share(due)
        for filter_, one in due.retained:
            if due.session.subscriptions.get(filter_) == one:
                self.deliveries.recollections.subscribed(due.session, filter_, one)
        self.deliveries.recollections.go_on()
        return True

    def _share(self, due: SubAckDue) -> None:
        """From now on the session is a member of the groups that it has asked for."""
        for filter_, one in due.shared:
            if due.session.subscriptions.get(filter_) == one:
                self.shares.join(due.session, filter_, one)

    def is_ready(self, pattern: str) -> bool:
        """Return whether everything that is published from now on and fits the pattern comes here."""
        return (
            self.state.directory.is_ready(pattern)
            if has_wildcard(pattern)
            else self.state.directory.is_confirmed(pattern)
        )


def _granted(session: Session, asked: p.Asked) -> int:
    """Return the QoS that is granted.  [MQTT-3.8.4-7]

    A sidecar publishes at its broker with QoS 1 at most, under identities by which the broker's answers are known.
    """
    return min(asked.qos, 1) if session.is_bridge else asked.qos
