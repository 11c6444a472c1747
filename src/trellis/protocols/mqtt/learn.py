"""What a broker's clients want, read from its log on `$SYS/broker/log/#`.  [docs/mqtt.md, Sidecar]

Mosquitto writes it there with `log_dest topic`, `log_type subscribe`, `log_type unsubscribe` and `log_type notice`:

    $SYS/broker/log/M/subscribe     1794814033: other 0 a/b
    $SYS/broker/log/M/unsubscribe   1794814033: other a/b
    $SYS/broker/log/N               1794814035: New client connected from 127.0.0.1:52194 as other (p2, c1, k60).
    $SYS/broker/log/N               1794814035: Client other disconnected.

Wanting too much costs messages; wanting too little loses them. So a client's filters are given up only when it is sure
that they are gone: by an unsubscription, by a new clean session, at the end of a clean session of 3.1.1, or when a
session expires. The log does not say whether a session of MQTT 5 outlives its connection. Such a client is *away* after
its connection has ended; the broker's counts decide whether its session is gone (`counts.py`). A client that stays away
for long has *lapsed*: nothing is wanted for it until it is back.

The broker tells a subscription once, and keeps its log for `LOG_KEPT_S` where nobody reads it. So what was learned must
outlive the sidecar (`remember`, `restore`), and the broker's own counts show whether anything is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from trellis.protocols.mqtt.topics import SHARED, is_filter

LOG = "$SYS/broker/log/"
TOPICS = (LOG + "M/#", LOG + "N")
LOG_KEPT_S = 20  # Mosquitto gives each line of its log so long to reach a session that is away
PROBE_CLIENTS = "trellis-doctor-"  # Clients of `trellis doctor` begin so. They are there for a moment only.
SUBSCRIPTIONS_MAX = 50_000  # that are remembered
LETTERS_MAX = 8 << 20  # of their clients' names and filters, together

_SUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) ([012]) (.+)", re.DOTALL)
_UNSUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) (.+)", re.DOTALL)
_CONNECTED = re.compile(r"(?:\d+: )?New client connected from \S+ as (.*) \(p(\d), c([01]), ", re.DOTALL)
_ENDED = re.compile(
    r"(?:\d+: )?(?:Client (.*?)(?: \[[^\]]*\])? (?:(?:been )?disconnected|closed its connection|has exceeded)"
    r"|(?:Socket error|Bad socket read/write) on client (.*?)[:,] )",
    re.DOTALL,
)
_EXPIRED = re.compile(r"(?:\d+: )?Expiring (?:persistent )?client (.*) due to timeout", re.DOTALL)


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is worth remembering, as it is written to a file."""

    version: int
    clients: dict[str, list[str]]  # by client, its filters as it subscribed to them
    clean: list[str]  # clients whose session ends with their connection
    away: list[str]  # clients whose connection has ended and whose session may last, the oldest first


class SubscriptionLog:
    """Which filters the broker's clients hold.

    L1  a filter is in `_holders` with the number of subscriptions that want it of the mesh, which is at least one.
        Those of clients that have lapsed do not count
    L2  at most SUBSCRIPTIONS_MAX subscriptions of at most LETTERS_MAX letters are kept. Beyond that, clients that are
        away are forgotten, the oldest first. What still does not fit is not learned, and counted
    """

    def __init__(self, own_client: str) -> None:
        self.own_client = own_client
        self.unread = 0  # lines that we do not understand
        self.forgotten = 0  # subscriptions of clients that were away, given up for want of room
        self.unlearned = 0  # subscriptions for which there was no room
        self.changes = 0  # grows with every change that `remember` shows
        self.plain = self.shared = 0  # subscriptions that are known, as the broker counts them
        self.lapses = 0  # times that a client was away for so long that nothing was wanted for it any more
        self.grown = 0  # subscriptions that were added, or whose clients came back, so far
        self.returned = 0  # of these, those whose clients came back or told that they begin anew
        self.sweep = 0  # Counts the broker's rounds of telling its counts. The owner of this log sets it.
        self.now_ms = 0  # set by the owner too
        self._letters = 0
        self._of_client: dict[str, dict[str, None]] = {}  # filters as the client subscribed to them
        self._holders: dict[str, int] = {}  # filters that are wanted of the mesh -> by how many subscriptions
        self._is_clean: dict[str, bool] = {}  # ends with its connection
        self._away: dict[str, tuple[int, int]] = {}  # Has filters and no connection, since (sweep, ms). Oldest first.
        self._doubtful: dict[str, int] = {}  # It may have left unheard, in or before this sweep. It is not in `_away`.
        self._lapsed: dict[str, None] = {}  # away for long: its filters are known and not wanted

    def heard(self, topic: str, line: str) -> tuple[list[str], list[str]]:
        """Take in a line of the log. Return the filters that are wanted from now on, and those no longer wanted."""
        kind = topic[len(LOG) :]
        if kind == "M/subscribe":
            found = _SUBSCRIBED.fullmatch(line)
            return self._subscribed(found[1], found[3]) if found is not None else self._strange()
        if kind == "M/unsubscribe":
            found = _UNSUBSCRIBED.fullmatch(line)
            return ([], self._leave(found[1], [found[2]])) if found is not None else self._strange()
        if kind == "N":
            return self._noticed(line)
        return [], []

    # Clients that may have gone

    def doubt(self) -> None:
        """Lines of the log are lost: any client may have left unheard."""
        self._doubtful = {client: self.sweep for client in self._of_client if client not in self._away}

    def counts_of(self, client: str) -> tuple[int, int]:
        """Return how many plain and how many shared subscriptions of a client are known."""
        filters = self._of_client.get(client, {})
        shared = sum(one.startswith(SHARED) for one in filters)
        return len(filters) - shared, shared

    @property
    def away(self) -> Iterable[str]:
        return self._away

    def absent(self, sweep: int) -> list[tuple[str, int]]:
        """Return the clients that may have no session any more, and the sweep in which each left: this or earlier."""
        away = [(client, since) for client, (since, _) in self._away.items() if since <= sweep]
        return away + [(client, since) for client, since in self._doubtful.items() if since <= sweep]

    def present(self) -> tuple[int, int]:
        """Return how many plain and shared subscriptions are of clients that are there for sure."""
        plain, shared = self.plain, self.shared
        for client in (*self._away, *self._doubtful):
            mine, ours = self.counts_of(client)
            plain, shared = plain - mine, shared - ours
        return plain, shared

    def end(self, client: str) -> list[str]:
        """The broker has no session of this client. Return the filters that are no longer wanted."""
        return self._leave(client, self._of_client.get(client, ()))

    def lapse(self, away_ms: int) -> list[str]:
        """Let clients lapse that have been away for so long. Return the filters that are no longer wanted."""
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
        """A client is there. Return the filters that are wanted from now on."""
        if client in self._away or client in self._doubtful:
            self.grown += len(self._of_client[client])
            self.returned += len(self._of_client[client])
        self._doubtful.pop(client, None)
        if self._away.pop(client, None) is not None:
            self.changes += 1
        if client not in self._lapsed:
            return []
        del self._lapsed[client]
        return self._want(self._of_client[client])

    # What is known

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters that are wanted of the mesh."""
        return tuple(self._holders)

    def remember(self) -> Learned:
        clients = {client: list(filters) for client, filters in self._of_client.items()}
        return Learned(1, clients, [one for one, is_clean in self._is_clean.items() if is_clean], list(self._away))

    def restore(self, learned: Learned) -> None:
        """Take in what an earlier run has remembered. Nothing in it is believed that the log could not have said."""
        for client, filters in learned.clients.items():
            for filter_ in filters:
                self._subscribed(client, filter_)
        self._is_clean.update(dict.fromkeys(learned.clean[:SUBSCRIPTIONS_MAX], True))
        away = [client for client in learned.away if client in self._of_client]
        self._away = dict.fromkeys(away, (self.sweep, self.now_ms))

    def _subscribed(self, client: str, filter_: str) -> tuple[list[str], list[str]]:
        plain = _plain(filter_)
        if client == self.own_client or client.startswith(PROBE_CLIENTS) or not is_filter(plain):
            return [], []
        wanted = self._is_back(client)
        if filter_ in self._of_client.get(client, ()):
            return wanted, []
        gone = self._make_room(client, len(client) + len(filter_))
        if gone is None:
            self.unlearned += 1
            return wanted, []
        self._of_client.setdefault(client, {})[filter_] = None
        self._count(client, filter_, 1)
        self.grown += 1
        wanted += self._want((filter_,))
        both = set(wanted).intersection(gone)
        return [one for one in wanted if one not in both], [one for one in gone if one not in both]

    def _make_room(self, client: str, letters: int) -> list[str] | None:
        """Return the filters that are no longer wanted because there was no room; None if there is none to be had."""
        gone: list[str] = []
        while self.plain + self.shared >= SUBSCRIPTIONS_MAX or self._letters + letters > LETTERS_MAX:
            oldest = next((one for one in self._away if one != client), None)
            if oldest is None:
                return None
            self.forgotten += len(self._of_client[oldest])
            gone += self._leave(oldest, self._of_client[oldest])
        return gone

    def _noticed(self, line: str) -> tuple[list[str], list[str]]:
        found = _CONNECTED.match(line)
        if found is not None:
            client, version, is_clean = found[1], found[2], found[3] == "1"
            if len(self._is_clean) >= SUBSCRIPTIONS_MAX:
                self._is_clean.clear()  # then they count as sessions that stay
            self._is_clean[client] = is_clean and version != "5"  # a clean start of 5 may last after its connection
            wanted = self._is_back(client)
            return ([], self.end(client)) if is_clean else (wanted, [])
        found = _EXPIRED.match(line)
        if found is not None:
            self._is_back(found[1])
            return [], self.end(found[1])
        found = _ENDED.match(line)
        if found is None:
            return [], []
        client = found[1] or found[2]
        if self._is_clean.pop(client, False):
            return [], self.end(client)
        if client in self._of_client and client not in self._away:
            self._doubtful.pop(client, None)
            self._away[client] = (self.sweep, self.now_ms)
            self.changes += 1
        return [], []

    def _leave(self, client: str, filters: Iterable[str]) -> list[str]:
        of_client = self._of_client.get(client, {})
        left = [one for one in filters if one in of_client]
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
        """Count subscriptions that are gone. Return the filters that nobody wants any more."""
        gone: list[str] = []
        for plain in map(_plain, filters):
            if plain in self._holders:
                self._holders[plain] -= 1
                if not self._holders[plain]:
                    del self._holders[plain]
                    gone.append(plain)
        return gone

    def _count(self, client: str, filter_: str, change: int) -> None:
        self.changes += 1
        self._letters += change * (len(client) + len(filter_))
        if filter_.startswith(SHARED):
            self.shared += change
        else:
            self.plain += change

    def _strange(self) -> tuple[list[str], list[str]]:
        self.unread += 1
        return [], []

    def check(self) -> None:
        known = [(client, one) for client, filters in self._of_client.items() for one in filters]
        wanted = [_plain(one) for client, one in known if client not in self._lapsed]
        wanted = [one for one in wanted if not one.startswith("$")]
        assert self._holders == {one: wanted.count(one) for one in wanted}, "L1"
        assert self.plain + self.shared == len(known) <= SUBSCRIPTIONS_MAX, "L2"
        assert self._letters == sum(len(client) + len(one) for client, one in known) <= LETTERS_MAX, "L2"
        assert self._away.keys() | self._doubtful.keys() <= self._of_client.keys()
        assert self._lapsed.keys() <= self._away.keys()
        assert not self._doubtful.keys() & self._away.keys()


def _plain(filter_: str) -> str:
    """The filter that a shared subscription shares."""
    if filter_.startswith(SHARED):
        _, _, rest = filter_[len(SHARED) :].partition("/")
        return rest
    return filter_
