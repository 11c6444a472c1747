"""Learns what a broker's clients subscribe to, from the broker's log on `$SYS/broker/log/#`.  [docs/mqtt.md, Sidecar]

Mosquitto writes it there with `log_dest topic`, `log_type subscribe`, `log_type unsubscribe` and `log_type notice`:

    $SYS/broker/log/M/subscribe     1794814033: other 0 a/b
    $SYS/broker/log/M/unsubscribe   1794814033: other a/b
    $SYS/broker/log/N               1794814035: New client connected from 127.0.0.1:52194 as other (p2, c1, k60).
    $SYS/broker/log/N               1794814035: Client other disconnected.

A filter too many costs traffic; a filter too few loses messages. So a client's filters are dropped only when it is
certain that they have ended: by an unsubscription, by a new clean session, at the end of a clean session of 3.1.1, or
when a session expires. The log does not say whether a session of MQTT 5 survives its connection. After its connection
has ended, such a client is *away*, and the broker's counts decide whether its session has ended (`counts.py`). A client
that stays away for long has *lapsed*: its filters do not count until it is back.

Clients choose their names and filters, so a line can have several readings (`loglines.py`). The names of connected
clients decide. If several readings remain, every reading of a subscription is learned, and no filter is dropped. Such
subscriptions are *unsure*. One of them is counted for each line, and the counts end no client because of them.

The broker tells a subscription once, and keeps its log for `LOG_KEPT_S` while nobody reads it. So what was learned must
survive the sidecar's process (`remember`, `restore`). The broker's counts show whether anything is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from trellis.protocols.mqtt import loglines
from trellis.protocols.mqtt.topics import SHARED, is_filter

LOG = "$SYS/broker/log/"
TOPICS = (LOG + "M/#", LOG + "N")
LOG_KEPT_S = 20  # how long Mosquitto keeps a line of its log for a session without a connection
# Names of clients of `trellis doctor` begin so. They are connected for a moment only.
PROBE_CLIENTS = "trellis-doctor-"
SUBSCRIPTIONS_MAX = 50_000  # most subscriptions that are remembered
LETTERS_MAX = 8 << 20  # most letters in their clients' names and filters, together


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is remembered across restarts, as it is written to a file. Field names are the file's format."""

    version: int
    clients: dict[str, list[str]]  # filters of each client, as it subscribed to them
    clean: list[str]  # clients whose session ends with their connection
    away: list[str]  # clients whose connection has ended and whose session may still exist, oldest first
    named: list[str] = []  # other connected clients with a blank in their names
    unsure: list[tuple[str, str, int]] = []  # unsure subscriptions: client, filter, and 1 if it is counted, else 0
    doubtful: list[str] = []  # clients that may have disconnected unnoticed


class SubscriptionLog:
    """The filters that the broker's clients hold.

    L1  `_holders` has each filter that is wanted from the mesh, with the number of subscriptions to it, at least one.
        Subscriptions of lapsed clients do not count.
    L2  At most SUBSCRIPTIONS_MAX subscriptions of LETTERS_MAX letters are kept. Beyond that, clients that are away are
        forgotten, oldest first. Subscriptions that still do not fit are not learned, and counted.
    """

    def __init__(self, own_client: str) -> None:
        self.own_client = own_client
        self.unread = 0  # lines that we do not understand
        self.forgotten = 0  # subscriptions of clients that were away, dropped for lack of space
        self.unlearned = 0  # subscriptions that were not learned for lack of space
        self.changes = 0  # grows with every change that `remember` shows
        self.plain = self.shared = 0  # known subscriptions, as the broker counts them
        self.lapses = 0  # how often a client lapsed
        self.grown = 0  # subscriptions that were added, or whose clients came back, so far
        self.returned = 0  # those of `grown` whose clients came back, and unsure ones that ended
        self.sweep = 0  # Number of the broker's round of counts. The owner of this log sets it.
        self.now_ms = 0  # the time; the owner sets it too
        # Lines are lost, and those that come now may be old. `counts.py` ends this.
        self.is_behind = False
        self._letters = self._size = 0  # letters and number of all subscriptions, unsure ones too
        self._of_client: dict[str, dict[str, None]] = {}  # client -> its filters, as it subscribed to them
        self._holders: dict[str, int] = {}  # filter that is wanted from the mesh -> number of subscriptions to it
        self._unsure: dict[tuple[str, str], int] = {}  # client and filter -> 1 if `plain` or `shared` counts it, else 0
        self._is_clean: dict[str, bool] = {}  # connected client -> whether its session ends with its connection
        # Clients with filters and without a connection, since (sweep, ms). Oldest first.
        self._away: dict[str, tuple[int, int]] = {}
        # Clients that may have disconnected without a line of the log, in this sweep or before. Not in `_away`.
        self._doubtful: dict[str, int] = {}
        self._lapsed: dict[str, None] = {}  # lapsed clients: their filters are known and not wanted

    def heard(self, topic: str, line: str) -> tuple[list[str], list[str]]:
        """Take in a line of the log. Return the filters that are wanted from now on, and those no longer wanted."""
        kind = topic[len(LOG) :]
        if len(line) > loglines.LETTERS_MAX:
            return self._strange()
        if kind == "M/subscribe":
            return self._told_subscription(line)
        if kind == "M/unsubscribe":
            readings = self._readings(line, loglines.unsubscriptions)
            if not readings:
                return self._strange()
            if len(readings) > 1 or loglines.is_cut(line):
                return [], []  # another client's filter may be meant
            ((client, filter_),) = readings
            return [], self._leave(client, [filter_])
        if kind == "N" and not loglines.is_cut(line):
            return self._noticed(line)
        return [], []

    # Lines that can be read in several ways

    def _is_connected(self, client: str) -> bool:
        """Return whether this client is connected, as far as we know."""
        is_known = client in self._of_client and client not in self._away
        return is_known or client in self._is_clean or client == self.own_client

    def _readings(self, line: str, read: Callable[[str], list[tuple[str, str]]]) -> list[tuple[str, str]]:
        """Return the readings of a line whose clients are connected, or all readings if there is none."""
        body, *whole = loglines.bodies(line)
        usual = read(body)
        unusual = [reading for each in whole for reading in read(each) if self._is_connected(reading[0])]
        if len(usual) == 1 and not unusual:
            return usual
        return [reading for reading in usual if self._is_connected(reading[0])] + unusual or usual

    def _told_subscription(self, line: str) -> tuple[list[str], list[str]]:
        """Take in a line about a subscription. Return filters as `heard` does."""
        readings = self._readings(line, loglines.subscriptions)
        if not readings:
            return self._strange()
        if loglines.is_cut(line):
            readings = [(client, loglines.widened(filter_)) for client, filter_ in readings]
        if len(readings) > 1:
            readings = [reading for reading in readings if is_filter(_plain(reading[1]))]
        if len(readings) == 1:
            return self._subscribed(*readings[0])
        counted = int(not any(filter_ in self._of_client.get(client, ()) for client, filter_ in readings))
        wanted: list[str] = []
        gone: list[str] = []
        for client, filter_ in sorted(readings, key=lambda reading: -len(reading[0])):
            before = self._size
            new, old = self._subscribed(client, filter_, counted)
            wanted, gone = wanted + new, gone + old
            counted = counted if self._size <= before else 0  # only one of these subscriptions exists
        return _without_both(wanted, gone)

    def _told_end(self, line: str) -> list[str]:
        """Take in a line about the end of a connection. Return the filters that are no longer wanted."""
        readings = loglines.ends(line)
        shorter = [name for name in map(loglines.without_address, readings) if name is not None]
        known = [name for name in (*readings, *shorter) if self._is_connected(name)]
        if len(readings) == len(known) == 1:
            return self._ended(known[0])
        for client in known:
            if client in self._of_client:
                self._doubtful.setdefault(client, self.sweep)  # the counts decide
                self.changes += 1
        return []

    def _may_begin(self, client: str) -> list[str]:
        """Perhaps this client has connected, with a new or its old session. Return the filters that are wanted."""
        self._is_clean[client] = False
        wanted = self._is_back(client)
        for filter_ in self._of_client.get(client, ()):
            self._unsure.setdefault((client, filter_), 1)
            self.changes += 1
        return wanted

    # Clients that may have disconnected

    def doubt(self) -> None:
        """Note that lines of the log are lost: any client may have disconnected unnoticed."""
        self.is_behind = True
        self._doubtful = dict.fromkeys(self._not_away(), self.sweep)
        self.changes += 1

    def _not_away(self) -> list[str]:
        return [client for client in self._of_client if client not in self._away]

    def counts_of(self, client: str) -> tuple[int, int]:
        """Return how many plain and how many shared subscriptions of a client are certain."""
        filters = [filter_ for filter_ in self._of_client.get(client, ()) if (client, filter_) not in self._unsure]
        shared = sum(filter_.startswith(SHARED) for filter_ in filters)
        return len(filters) - shared, shared

    @property
    def away(self) -> Iterable[str]:
        """The clients that are away, oldest first."""
        return self._away

    def absent(self, sweep: int) -> list[tuple[str, int]]:
        """Return clients that may have no session, with the sweep in which each disconnected: `sweep` or earlier."""
        away = [(client, since) for client, (since, _) in self._away.items() if since <= sweep]
        return away + [(client, since) for client, since in self._doubtful.items() if since <= sweep]

    def present(self) -> tuple[int, int]:
        """Return how many plain and shared subscriptions certainly belong to connected clients."""
        plain, shared = self.plain, self.shared
        for (_, filter_), counted in self._unsure.items():
            is_shared = filter_.startswith(SHARED)
            plain, shared = plain - counted * (not is_shared), shared - counted * is_shared
        for client in (*self._away, *self._doubtful):
            mine, ours = self.counts_of(client)
            plain, shared = plain - mine, shared - ours
        return plain, shared

    def end(self, client: str) -> list[str]:
        """Forget a client without a session. Return the filters that are no longer wanted."""
        return self._leave(client, self._of_client.get(client, ()))

    def lapse(self, away_ms: int) -> list[str]:
        """Let clients lapse that have been away for this long. Return the filters that are no longer wanted."""
        gone: list[str] = []
        for client, (_, since_ms) in self._away.items():
            if self.now_ms - since_ms < away_ms:
                break  # the others left later
            if client not in self._lapsed:
                self.lapses += 1
                gone += self._unwant(self._of_client[client])
                self._lapsed[client] = None
        return gone

    def _is_back(self, client: str) -> list[str]:
        """A client is connected. Return the filters that are wanted from now on."""
        if client in self._away or client in self._doubtful:
            self.grown += len(self._of_client[client])
            self.returned += len(self._of_client[client])
        was_doubtful = self._doubtful.pop(client, None) is not None
        if self._away.pop(client, None) is not None or was_doubtful:
            self.changes += 1
        if client not in self._lapsed:
            return []
        del self._lapsed[client]
        return self._want(self._of_client[client])

    # What is known

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters that are wanted from the mesh."""
        return tuple(self._holders)

    def remember(self) -> Learned:
        """Return what must survive this process."""
        clients = {client: list(filters) for client, filters in self._of_client.items()}
        clean = [name for name, is_clean in self._is_clean.items() if is_clean]
        named = [name for name, is_clean in self._is_clean.items() if not is_clean and " " in name]
        unsure = [(client, filter_, counted) for (client, filter_), counted in self._unsure.items()]
        doubtful = self._not_away() if self.is_behind else list(self._doubtful)
        return Learned(1, clients, clean, list(self._away), named, unsure, doubtful)

    def restore(self, learned: Learned) -> None:
        """Take in what an earlier process has remembered. Nothing is believed that the log could not have said."""
        unsure = {(client, filter_): int(counted > 0) for client, filter_, counted in learned.unsure}
        for client, filters in learned.clients.items():
            for filter_ in filters:
                self._subscribed(client, filter_, unsure.get((client, filter_)))
        self._is_clean.update(dict.fromkeys(learned.named[:SUBSCRIPTIONS_MAX], False))
        self._is_clean.update(dict.fromkeys(learned.clean[:SUBSCRIPTIONS_MAX], True))
        away = [client for client in learned.away if client in self._of_client]
        self._away = dict.fromkeys(away, (self.sweep, self.now_ms))
        known = set(self._not_away())
        self._doubtful = {client: self.sweep for client in learned.doubtful if client in known}

    def _subscribed(self, client: str, filter_: str, unsure: int | None = None) -> tuple[list[str], list[str]]:
        """Learn a subscription. Return filters as `heard` does.

        `unsure`: None if it is certain, 1 if it is unsure and counted, 0 if it is unsure and not counted.
        """
        plain = _plain(filter_)
        if client == self.own_client or client.startswith(PROBE_CLIENTS) or not is_filter(plain):
            return [], []
        wanted = self._is_back(client) if unsure is None else self._may_begin(client) if client in self._away else []
        if filter_ in self._of_client.get(client, ()):
            if unsure is None and (client, filter_) in self._unsure:
                self._count(client, filter_, -1)
                self._count(client, filter_, 1)
            return wanted, []
        gone = self._make_room(client, len(client) + len(filter_))
        if gone is None:
            self.unlearned += 1
            return wanted, []
        self._of_client.setdefault(client, {})[filter_] = None
        if unsure is not None:
            self._unsure[client, filter_] = unsure
        self._count(client, filter_, 1)
        self.grown += 1
        return _without_both(wanted + self._want((filter_,)), gone)

    def _make_room(self, client: str, letters: int) -> list[str] | None:
        """Forget clients that are away until there is space. Return the filters that are no longer wanted.

        Return None if there is no space even then.
        """
        gone: list[str] = []
        while self._size >= SUBSCRIPTIONS_MAX or self._letters + letters > LETTERS_MAX:
            oldest = next((name for name in self._away if name != client), None)
            if oldest is None:
                return None
            self.forgotten += len(self._of_client[oldest])
            gone += self._leave(oldest, self._of_client[oldest])
        return gone

    def _noticed(self, line: str) -> tuple[list[str], list[str]]:
        """Take in a notice: a connection began or ended, or a session expired. Return filters as `heard` does."""
        begun = loglines.connections(line)
        if begun and len(self._is_clean) >= SUBSCRIPTIONS_MAX:
            del self._is_clean[next(iter(self._is_clean))]  # then its session counts as one that stays
        if len(begun) > 1:
            return [filter_ for client, _, _ in begun for filter_ in self._may_begin(client)], []
        if begun:
            ((client, version, is_clean),) = begun
            # a session of version 5 with a clean start may survive its connection
            self._is_clean[client] = is_clean and version != "5"
            wanted = self._is_back(client)
            return ([], self.end(client)) if is_clean else (wanted, [])
        expired = loglines.expiry(line)
        if expired is not None:
            self._is_back(expired)
            return [], self.end(expired)
        return [], self._told_end(line)

    def _ended(self, client: str) -> list[str]:
        """The connection of a client has ended. Return the filters that are no longer wanted."""
        if self._is_clean.pop(client, False):
            return self.end(client)
        if client in self._of_client and client not in self._away:
            # The subscriptions of a client in doubt remain already, so they do not begin to remain now.
            self._away[client] = (self._doubtful.pop(client, self.sweep), self.now_ms)
            self.changes += 1
        return []

    def _leave(self, client: str, filters: Iterable[str]) -> list[str]:
        """Drop filters of a client. Return those that are no longer wanted."""
        of_client = self._of_client.get(client, {})
        left = [filter_ for filter_ in filters if filter_ in of_client]
        for filter_ in left:
            del of_client[filter_]
            self._count(client, filter_, -1)
        gone = self._unwant(left) if client not in self._lapsed else []
        if not of_client:
            for each in (self._of_client, self._away, self._doubtful, self._lapsed):
                each.pop(client, None)
        return gone

    def _want(self, filters: Iterable[str]) -> list[str]:
        """Count subscriptions. Return the filters that nobody wanted before."""
        new: list[str] = []
        for plain in map(_plain, filters):
            if not plain.startswith("$"):
                self._holders[plain] = self._holders.get(plain, 0) + 1
                if self._holders[plain] == 1:
                    new.append(plain)
        return new

    def _unwant(self, filters: Iterable[str]) -> list[str]:
        """Count subscriptions that have ended. Return the filters that nobody wants any more."""
        gone: list[str] = []
        for plain in map(_plain, filters):
            if plain in self._holders:
                self._holders[plain] -= 1
                if not self._holders[plain]:
                    del self._holders[plain]
                    gone.append(plain)
        return gone

    def _count(self, client: str, filter_: str, change: int) -> None:
        """Count a subscription that was learned (1) or dropped (-1)."""
        self.changes += 1
        self._size += change
        self._letters += change * (len(client) + len(filter_))
        counted = self._unsure.get((client, filter_), 1)
        if filter_.startswith(SHARED):
            self.shared += change * counted
        else:
            self.plain += change * counted
        if change < 0 and self._unsure.pop((client, filter_), None) is not None:
            self.returned += 1  # It may have been among those that remain, and remains no longer.

    def _strange(self) -> tuple[list[str], list[str]]:
        """Count a line that we do not understand."""
        self.unread += 1
        return [], []

    def check(self) -> None:
        known = [(client, filter_) for client, filters in self._of_client.items() for filter_ in filters]
        wanted = [_plain(filter_) for client, filter_ in known if client not in self._lapsed]
        wanted = [filter_ for filter_ in wanted if not filter_.startswith("$")]
        assert self._holders == {filter_: wanted.count(filter_) for filter_ in wanted}, "L1"
        assert self._size == len(known) <= SUBSCRIPTIONS_MAX, "L2"
        assert self.plain + self.shared == sum(self._unsure.get(key, 1) for key in known)
        assert self._unsure.keys() <= set(known)
        assert self._letters == sum(len(client) + len(filter_) for client, filter_ in known) <= LETTERS_MAX, "L2"
        assert self._away.keys() | self._doubtful.keys() <= self._of_client.keys()
        assert self._lapsed.keys() <= self._away.keys()
        assert not self._doubtful.keys() & self._away.keys()


def _plain(filter_: str) -> str:
    """Return the filter of a shared subscription, or the filter itself."""
    if filter_.startswith(SHARED):
        _, _, rest = filter_[len(SHARED) :].partition("/")
        return rest
    return filter_


def _without_both(wanted: list[str], gone: list[str]) -> tuple[list[str], list[str]]:
    """Leave out filters that are wanted and no longer wanted at the same time."""
    both = set(wanted).intersection(gone)
    return [filter_ for filter_ in wanted if filter_ not in both], [filter_ for filter_ in gone if filter_ not in both]
