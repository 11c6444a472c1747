"""Record what clients see, as a history for `trellis.judge`.

Clients often notice late that something has ended. They record it with the time at which it may have ended. So events
are sorted by time when the history is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from zlib import crc32

from trellis.judge.history import (
    Away,
    Confirmed,
    Disturbed,
    Down,
    Ended,
    Event,
    History,
    Publishing,
    Received,
    Unsubscribing,
    Up,
)

_SHORT_S = 2.0  # No node gives up another one because of a shorter fault.


class Witness:
    """Collects the events of all clients, and what others need to know about them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._clock = now
        self._events: list[tuple[float, int, Event]] = []
        self._sessions: Counter[str] = Counter()
        self._messages = 0
        self.troubles: Counter[str] = Counter()  # refusals that clients got, by text
        self.nodes: dict[str, str] = {}  # address -> node whose client port it is
        self.host_of: Callable[[str], str] = lambda client: ""  # machine of a client, empty if unknown
        self.received_s = 0.0  # when a client last got a message
        self.disturbed_until = 0.0  # when the last fault known so far ends
        self.changed_until = 0.0  # the same for faults because of which nodes may have given each other up
        self._wanted: dict[tuple[str, str], None] = {}  # confirmed subscriptions: (session, filter)
        self._removed: set[str] = set()  # topics whose retained message was removed by a client

    def now(self) -> float:
        """Return the time of the history in seconds, rounded to microseconds."""
        return round(self._clock(), 6)

    def add(self, event: Event) -> None:
        """Add an event, and update what others ask about: disturbances, subscriptions, removals."""
        if isinstance(event, Disturbed | Down | Up):
            until = event.until if isinstance(event, Disturbed) else event.t
            self.disturbed_until = max(self.disturbed_until, until)
            if not isinstance(event, Disturbed) or until - event.t > _SHORT_S:
                self.changed_until = max(self.changed_until, until)
        match event:
            case Received():
                self.received_s = event.t
            case Publishing(topic=topic, removes=True):
                self._removed.add(topic)
            case Confirmed():
                self._wanted[event.session, event.filter] = None
            case Unsubscribing():
                self._wanted.pop((event.session, event.filter), None)
            case Ended() | Away(keeps=False):
                for one in [one for one in self._wanted if one[0] == event.session]:
                    del self._wanted[one]
        self._events.append((event.t, len(self._events), event))

    def wanted(self) -> list[str]:
        """Return the filters that have a confirmed subscription now."""
        return list(dict.fromkeys(wanted for _, wanted in self._wanted))

    def is_removal(self, topic: str, payload: bytes) -> bool:
        """Return whether a message removes the retained message of `topic`. Such a message carries no name."""
        return not payload and topic in self._removed

    def session(self, client: str) -> str:
        """Return a name for a new session of `client`."""
        self._sessions[client] += 1
        return f"{client}#{self._sessions[client]}"

    def message(self, client: str) -> str:
        """Return a name for a new message."""
        self._messages += 1
        return f"{client}-{self._messages}"

    def history(self) -> History:
        """Return the events in time order. Events of the same time stay in the order in which they were added."""
        return History(event for _, _, event in sorted(self._events, key=lambda one: one[:2]))


def payload(message: str, size: int, *, mark: str = "") -> bytes:
    """Return a payload with the message's name, its own size and a checksum. It has at least `size` bytes.

    `mark` is a word for the reader, which `mark_in` returns.
    """
    length = max(size, len(message) + len(mark) + _AROUND)
    text = f"{message}|{mark}|{length:07d}|".encode().ljust(length - _CHECK, b".")
    return text + b"|%08x" % crc32(text)


def message_in(payload: bytes) -> str:
    """Return the name of the message in a payload. A changed payload gets a name that nobody has published."""
    name, _, rest = payload.partition(b"|")
    text, _, check = payload.rpartition(b"|")
    length = rest.partition(b"|")[2].partition(b"|")[0]
    is_whole = check == b"%08x" % crc32(text) and length == b"%07d" % len(payload)
    return ("" if is_whole else "a broken payload of ") + name[:_NAME_MAX].decode("utf-8", "replace")


def mark_in(payload: bytes) -> str:
    """Return the mark in an unchanged payload."""
    return payload.split(b"|", 2)[1].decode()


_CHECK = 9  # bytes of the checksum with its separator
_AROUND = 1 + 1 + 7 + 1 + _CHECK  # bytes beside the name and the mark
_NAME_MAX = 80
