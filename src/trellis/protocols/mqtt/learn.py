"""What a broker's clients want, read from its log on `$SYS/broker/log/#`.  [docs/mqtt.md, Sidecar]

Mosquitto writes it there with `log_dest topic`, `log_type subscribe`, `log_type unsubscribe` and `log_type notice`:

    $SYS/broker/log/M/subscribe     1794814033: other 0 a/b
    $SYS/broker/log/M/unsubscribe   1794814033: other a/b
    $SYS/broker/log/N               1794814035: New client connected from 127.0.0.1:52194 as other (p2, c1, k60).
    $SYS/broker/log/N               1794814035: Client other disconnected.

Wanting too much costs messages; wanting too little loses them. So a filter is given up only when it is sure that it is
gone: by an unsubscription, by a new clean session, at the end of a clean session of 3.1.1, or when a session expires.

The broker tells a subscription once, and keeps its log for `LOG_KEPT_S` where nobody reads it. So what was learned must
outlive the sidecar (`remember`, `restore`), and the broker's own counts (`COUNTS`) show whether anything is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from trellis.protocols.mqtt.topics import SHARED, is_filter

LOG = "$SYS/broker/log/"
TOPICS = (LOG + "M/#", LOG + "N")
LOG_KEPT_S = 20  # Mosquitto gives each line of its log so long to reach a session that is away
COUNTS = ("$SYS/broker/subscriptions/count", "$SYS/broker/shared_subscriptions/count")
SUBSCRIPTIONS_MAX = 50_000  # that are remembered
LETTERS_MAX = 8 << 20  # of their clients' names and filters, together

_SUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) ([012]) (.+)", re.DOTALL)
_UNSUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) (.+)", re.DOTALL)
_CONNECTED = re.compile(r"(?:\d+: )?New client connected from \S+ as (.*) \(p(\d), c([01]), ", re.DOTALL)
_ENDED = re.compile(
    r"(?:\d+: )?Client (.*?)(?: \[[^\]]*\])? (?:disconnected|closed its connection|has exceeded)", re.DOTALL
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

    L1  a filter is in `_holders` with the number of subscriptions that want it of the mesh, which is at least one
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
        self._letters = 0
        self._of_client: dict[str, dict[str, None]] = {}  # filters as the client subscribed to them
        self._holders: dict[str, int] = {}  # filters that are wanted of the mesh -> by how many subscriptions
        self._is_clean: dict[str, bool] = {}  # ends with its connection
        self._away: dict[str, None] = {}  # has filters, and no connection; the oldest first

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
            return [], self._noticed(line)
        return [], []

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
        self._away = dict.fromkeys(client for client in learned.away if client in self._of_client)

    def _subscribed(self, client: str, filter_: str) -> tuple[list[str], list[str]]:
        plain = _plain(filter_)
        if client == self.own_client or not is_filter(plain) or filter_ in self._of_client.get(client, ()):
            return [], []
        gone = self._make_room(client, len(client) + len(filter_))
        if gone is None:
            self.unlearned += 1
            return [], []
        self._of_client.setdefault(client, {})[filter_] = None
        self._away.pop(client, None)
        self._count(client, filter_, 1)
        if plain.startswith("$"):
            return [], gone
        self._holders[plain] = self._holders.get(plain, 0) + 1
        if plain in gone:
            gone.remove(plain)
            return [], gone
        return [plain] if self._holders[plain] == 1 else [], gone

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

    def _noticed(self, line: str) -> list[str]:
        found = _CONNECTED.match(line)
        if found is not None:
            client, version, is_clean = found[1], found[2], found[3] == "1"
            if len(self._is_clean) >= SUBSCRIPTIONS_MAX:
                self._is_clean.clear()  # then they count as sessions that stay
            self._is_clean[client] = is_clean and version != "5"  # a clean start of 5 may last after its connection
            if self._away.pop(client, self) is None:
                self.changes += 1
            return self._leave(client, self._of_client.get(client, ())) if is_clean else []
        found = _EXPIRED.match(line)
        if found is not None:
            return self._leave(found[1], self._of_client.get(found[1], ()))
        found = _ENDED.match(line)
        if found is None:
            return []
        client = found[1]
        if self._is_clean.pop(client, False):
            return self._leave(client, self._of_client.get(client, ()))
        if client in self._of_client and client not in self._away:
            self._away[client] = None
            self.changes += 1
        return []

    def _leave(self, client: str, filters: Iterable[str]) -> list[str]:
        gone: list[str] = []
        of_client = self._of_client.get(client, {})
        for filter_ in list(filters):
            if of_client.pop(filter_, 0) is not None:
                continue
            self._count(client, filter_, -1)
            plain = _plain(filter_)
            if plain in self._holders:
                self._holders[plain] -= 1
                if not self._holders[plain]:
                    del self._holders[plain]
                    gone.append(plain)
        if not of_client:
            self._of_client.pop(client, None)
            self._away.pop(client, None)
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
        wanted = [_plain(one) for _, one in known if not _plain(one).startswith("$")]
        assert self._holders == {one: wanted.count(one) for one in wanted}, "L1"
        assert self.plain + self.shared == len(known) <= SUBSCRIPTIONS_MAX, "L2"
        assert self._letters == sum(len(client) + len(one) for client, one in known) <= LETTERS_MAX, "L2"
        assert self._away.keys() <= self._of_client.keys()


def _plain(filter_: str) -> str:
    """The filter that a shared subscription shares."""
    if filter_.startswith(SHARED):
        _, _, rest = filter_[len(SHARED) :].partition("/")
        return rest
    return filter_
