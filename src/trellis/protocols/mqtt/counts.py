"""Compares a broker's counts on `$SYS` with the subscriptions that its log has told.  [docs/mqtt.md]

Mosquitto publishes its counts in rounds, every 10 s by default (`sys_interval`). A round begins with `SWEEP`. A count
that has not changed is not published again. So when a round begins, all counts of the previous round are here.

*Remaining* subscriptions are those that the broker counts, without ours and without those of connected clients. They
belong to sessions of disconnected clients, or we do not know them. The counts answer two questions:

- Which disconnected clients have no session any more? If the session of a client survives its connection, its
  subscriptions begin to remain when it disconnects. If fewer subscriptions begin to remain in that round, it has no
  session. The same holds for a client with more subscriptions than remain in total. For a client that was in doubt
  when it disconnected only this is asked, since its subscriptions remained before.
- Are there subscriptions that the log did not tell? The broker also counts sessions without a connection. At most that
  many disconnected clients have a session. Subscriptions that remain beyond theirs are unknown to us, and their clients
  get nothing from other sites.

Both need to know which clients are connected. If the log went unread for too long, the broker sends what it still has,
and lines behind these may expire before we read them. A client that such a line names may have disconnected unnoticed.
So all clients are in doubt again when we have caught up: two rounds have come at the pace of the broker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trellis.protocols.mqtt.learn import LOG_KEPT_S, SubscriptionLog
from trellis.reached import reached

COUNTS = ("$SYS/broker/subscriptions/count", "$SYS/broker/shared_subscriptions/count")
AWAY = "$SYS/broker/clients/disconnected"
SWEEP = "$SYS/broker/uptime"
TOLD = (*COUNTS, AWAY, SWEEP)

_MANY = 2**53  # stands for the number of shared subscriptions if the broker does not count them
_DIGITS_MAX = 9
_SETTLE_MS = 2_000  # After we connect, the broker sends rounds that waited for us. They are older than what we know.
_UNKNOWN_MS = 15_000  # Mosquitto updates its counts every 10 s. A difference that lasts longer is real.
# The broker subtracts connections that have not sent CONNECT yet, and drops these after 90 s. So a smaller number is
# believed only after a longer time.
_FEWER_MS = 120_000
_LATE_MS = 500 * LOG_KEPT_S  # where a round waited for so long, lines of the log may have expired


@dataclass
class _Round:
    """What was known when a round of counts began."""

    number: int
    present: tuple[int, int]  # plain and shared subscriptions of connected clients
    grown: int  # `SubscriptionLog.grown` at that time
    returned: int  # `SubscriptionLog.returned` at that time
    remaining: tuple[int, int] = (0, 0)  # plain and shared subscriptions that remain; set when the round is over


def _minus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] - b[0], a[1] - b[1]


class BrokerCounts:
    """The counts of one broker."""

    def __init__(self, log: SubscriptionLog) -> None:
        self.log = log
        self.unknown = 0  # subscriptions at the broker that the log did not tell, once that is certain
        self.ended = 0  # clients of which the counts showed that they have no session any more
        self.begin()

    def begin(self) -> None:
        """Begin a connection to the broker: it publishes all counts again."""
        self.unknown = 0
        self._counts: dict[str, int] = {}
        self._unknown_ms: int | None = None  # since when some subscriptions are unknown
        self._away: int | None = None  # most sessions that have no connection
        self._fewer_ms: int | None = None  # since when the broker counts fewer of them
        self._state: tuple[int | None, ...] = ()  # the values from which `_difference` was computed
        self._difference = 0
        self._settled_ms = self.log.now_ms + _SETTLE_MS
        self._rounds: deque[_Round] = deque(maxlen=3)
        self._told: tuple[int, int] | None = None  # the last round: how long the broker had run, and when it came
        self._offset_ms: int | None = None  # the greatest time between these two

    def heard(self, topic: str, payload: bytes, is_retained: bool, ours: int) -> list[str]:
        """Take in a count. Return the filters that nobody needs any more. `ours`: the sidecar's own subscriptions."""
        if topic == SWEEP:
            return [] if is_retained else self._begin_round(payload, ours)
        if payload.isdigit() and len(payload) <= _DIGITS_MAX:
            self._counts[topic] = int(payload)
        return []

    def _begin_round(self, uptime: bytes, ours: int) -> list[str]:
        """End the last round: all its counts are here. Return the filters of clients that have no session any more."""
        log, rounds = self.log, self._rounds
        if self._waited(uptime):
            rounds.clear()
        elif log.is_behind:
            log.doubt()  # in the round that is over: they may have left at any time before this one
            log.is_behind, self._offset_ms = False, None
            rounds.clear()
        log.sweep += 1
        if log.now_ms < self._settled_ms or COUNTS[0] not in self._counts:
            return []
        rounds.append(_Round(log.sweep, log.present(), log.grown, log.returned))
        if len(rounds) < 2:
            return []
        last = rounds[-2]
        counted = (self._counts[COUNTS[0]] - ours, self._counts.get(COUNTS[1], _MANY))
        last.remaining = _minus(counted, last.present)
        gone: list[str] = []
        if len(rounds) == 3:
            gone = self._end_absent(rounds[0], last)
        return gone

    def _waited(self, uptime: bytes) -> bool:
        """Return whether the round before this one waited for us. If it waited for long, the log is behind."""
        number, now_ms = uptime.partition(b" ")[0], self.log.now_ms
        if not number.isdigit() or len(number) > _DIGITS_MAX:
            return False
        up_ms = 1_000 * int(number)
        before, self._told = self._told, (up_ms, now_ms)
        offset_ms = now_ms - up_ms  # of two rounds, the one with the greater offset waited longer
        self._offset_ms = offset_ms if self._offset_ms is None else max(self._offset_ms, offset_ms)
        if self._offset_ms - offset_ms >= _LATE_MS:
            self.log.is_behind = True
        return before is None or 2 * (now_ms - before[1]) < up_ms - before[0]

    def _end_absent(self, first: _Round, last: _Round) -> list[str]:
        """End clients whose sessions are gone. They disconnected between these two rounds, or before them."""
        log = self.log
        back = last.returned - first.returned  # subscriptions of clients that came back: they remain no longer
        begun = [now - before + back for now, before in zip(last.remaining, first.remaining, strict=True)]
        new = log.grown - first.grown  # perhaps the broker has not counted these yet
        remaining = [max(0, count) + new for count in last.remaining]
        gone: list[str] = []
        for client, since in log.absent(first.number):
            counts = log.counts_of(client)
            limits = [remaining, begun] if since == first.number else [remaining]
            if any(mine > max(0, left) for limit in limits for mine, left in zip(counts, limit, strict=True)):
                self.ended += 1
                reached("a broker's counts end a client")
                gone += log.end(client)
        return gone

    def tick(self, now_ms: int, ours: int) -> None:
        """Find out whether subscriptions are unknown."""
        if COUNTS[0] not in self._counts:
            return
        self._believe(now_ms)
        plain, shared = (self._counts.get(topic, 0) for topic in COUNTS)
        state = (self.log.changes, ours, self._away, plain, shared)
        if state != self._state:  # else nothing has changed since we computed it
            self._state, self._difference = state, self._compare(plain, shared, ours)
        unknown = self._difference
        if not unknown:
            self._unknown_ms, self.unknown = None, 0
            return
        self._unknown_ms = now_ms if self._unknown_ms is None else self._unknown_ms
        self.unknown = unknown if now_ms - self._unknown_ms >= _UNKNOWN_MS else 0

    def _believe(self, now_ms: int) -> None:
        """Take in how many sessions have no connection: a greater number at once, a smaller one when it lasts."""
        told = self._counts.get(AWAY)
        if told is None or self._away is None or told >= self._away:
            self._away, self._fewer_ms = told, None
            return
        self._fewer_ms = now_ms if self._fewer_ms is None else self._fewer_ms
        if now_ms - self._fewer_ms >= _FEWER_MS:
            self._away, self._fewer_ms = told, None

    def _compare(self, plain: int, shared: int, ours: int) -> int:
        """Return how many of the broker's subscriptions, at least, are neither ours nor of a client that we know."""
        away = [self.log.counts_of(client) for client in self.log.away]
        beyond = max(0, len(away) - self._away) if self._away is not None else 0
        # This many of the disconnected clients have no session: in the worst case, those with the fewest subscriptions.
        known_plain = self.log.plain - sum(sorted(plain_count for plain_count, _ in away)[:beyond])
        known_shared = self.log.shared - sum(sorted(shared_count for _, shared_count in away)[:beyond])
        return max(0, plain - known_plain - ours) + max(0, shared - known_shared)
