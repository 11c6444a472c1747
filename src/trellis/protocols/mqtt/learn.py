"""What a broker's clients want, read from its log on `$SYS/broker/log/#`.  [docs/mqtt.md, Sidecar]

Mosquitto writes it there with `log_dest topic`, `log_type subscribe`, `log_type unsubscribe` and `log_type notice`:

    $SYS/broker/log/M/subscribe     1794814033: other 0 a/b
    $SYS/broker/log/M/unsubscribe   1794814033: other a/b
    $SYS/broker/log/N               1794814035: New client connected from 127.0.0.1:52194 as other (p2, c1, k60).
    $SYS/broker/log/N               1794814035: Client other disconnected.

Wanting too much costs messages; wanting too little loses them. So a filter is given up only when it is sure that it is
gone: by an unsubscription, by a new clean session, or at the end of a clean session of 3.1.1.
"""

from __future__ import annotations

import re

from trellis.protocols.mqtt.topics import SHARED, is_filter

LOG = "$SYS/broker/log/"
TOPICS = (LOG + "M/#", LOG + "N")
FILTERS_MAX = 50_000

_SUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) ([012]) (.+)", re.DOTALL)
_UNSUBSCRIBED = re.compile(r"(?:\d+: )?(.*?) (.+)", re.DOTALL)
_CONNECTED = re.compile(r"(?:\d+: )?New client connected from \S+ as (.*) \(p(\d), c([01]), ", re.DOTALL)
_ENDED = re.compile(
    r"(?:\d+: )?Client (.*?)(?: \[[^\]]*\])? (?:disconnected|closed its connection|has exceeded)", re.DOTALL
)


class SubscriptionLog:
    def __init__(self, own_client: str) -> None:
        self.own_client = own_client
        self.unread = 0  # lines that we do not understand
        self._of_client: dict[str, dict[str, None]] = {}
        self._holders: dict[str, dict[str, None]] = {}  # filter -> clients
        self._is_clean: dict[str, bool] = {}  # ends with its connection

    def heard(self, topic: str, line: str) -> tuple[list[str], list[str]]:
        """Filters that are wanted from now on, and no longer."""
        kind = topic[len(LOG) :]
        if kind == "M/subscribe":
            return self._subscribed(line), []
        if kind == "M/unsubscribe":
            found = _UNSUBSCRIBED.fullmatch(line)
            return [], self._leave(found[1], [_plain(found[2])]) if found is not None else self._strange()
        if kind == "N":
            return [], self._noticed(line)
        return [], []

    def _subscribed(self, line: str) -> list[str]:
        found = _SUBSCRIBED.fullmatch(line)
        if found is None:
            return self._strange()
        client, filter_ = found[1], _plain(found[3])
        if client == self.own_client or filter_.startswith("$") or not is_filter(filter_):
            return []
        if len(self._holders) >= FILTERS_MAX and filter_ not in self._holders:
            return self._strange()
        holders = self._holders.setdefault(filter_, {})
        is_new = not holders
        holders[client] = None
        self._of_client.setdefault(client, {})[filter_] = None
        return [filter_] if is_new else []

    def _noticed(self, line: str) -> list[str]:
        found = _CONNECTED.match(line)
        if found is not None:
            client, version, is_clean = found[1], found[2], found[3] == "1"
            if len(self._is_clean) >= FILTERS_MAX:
                self._is_clean.clear()  # then they count as sessions that stay
            self._is_clean[client] = is_clean and version != "5"  # a clean start of 5 may last after its connection
            return self._leave(client, list(self._of_client.get(client, ()))) if is_clean else []
        found = _ENDED.match(line)
        if found is not None and self._is_clean.pop(found[1], False):
            return self._leave(found[1], list(self._of_client.get(found[1], ())))
        return []

    def _leave(self, client: str, filters: list[str]) -> list[str]:
        gone: list[str] = []
        of_client = self._of_client.get(client, {})
        for filter_ in filters:
            if of_client.pop(filter_, 0) is None:
                holders = self._holders[filter_]
                del holders[client]
                if not holders:
                    del self._holders[filter_]
                    gone.append(filter_)
        if not of_client:
            self._of_client.pop(client, None)
        return gone

    def _strange(self) -> list[str]:
        self.unread += 1
        return []


def _plain(filter_: str) -> str:
    """The filter that a shared subscription shares."""
    if filter_.startswith(SHARED):
        _, _, rest = filter_[len(SHARED) :].partition("/")
        return rest
    return filter_
