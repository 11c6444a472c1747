"""Reads lines of Mosquitto's log.  [docs/mqtt.md, Names that look like the log]

Clients choose their names, user names and filters. These may contain blanks, digits and the very words of the log, and
Mosquitto does not quote them. So a line can have several readings, and each function here returns all of them. The true
one is always among them. `learn.py` decides between them.
"""

from __future__ import annotations

import re

from trellis.protocols.mqtt.topics import SHARED

BYTES_MAX = 999  # Mosquitto cuts a line of its log after this many bytes
LETTERS_MAX = 4_096  # A longer line is not from Mosquitto, and listing its readings would take long.

_STAMP = re.compile(r"\d+: ")
_QOS = re.compile(r"(?= [012] )")
_CONNECTED = re.compile(r"(?:\d+: )?New client connected from \S+ as ")
_SESSION = re.compile(r"(?= \(p(\d), c([01]), k)")
_ENDED = re.compile(r"(?:\d+: )?Client (?=.)")
_HOW_IT_ENDED = re.compile(
    r"(?= (?:disconnected(?:\.?|(?:[:,]| due to) [^.]*\.?)|been disconnected by administrative action\.?"
    r"|closed its connection\.?|has exceeded timeout, disconnecting\.?)\Z)"
)
_BROKEN = re.compile(r"(?:\d+: )?(?:Socket error|Bad socket read/write) on client (?=.)")
_HOW_IT_BROKE = re.compile(r"(?=, disconnecting\.?\Z|: )")
_EXPIRED = re.compile(r"(?:\d+: )?Expiring (?:persistent )?client (.+) due to timeout\.?", re.DOTALL)
_ADDRESS = re.compile(r"(.+) \[[^\]]*\]", re.DOTALL)


def is_cut(line: str) -> bool:
    """Return whether the end of this line may be missing."""
    return len(line.encode()) >= BYTES_MAX


def bodies(line: str) -> list[str]:
    """Return the line without its time, and also the whole line if the time may belong to a client's name."""
    match = _STAMP.match(line)
    return [line] if match is None else [line[match.end() :], line]


def subscriptions(body: str) -> list[tuple[str, str]]:
    """Read `CLIENT QOS FILTER`. Return each client and filter that this can be."""
    readings = [(body[: at.start()], body[at.start() + 3 :]) for at in _QOS.finditer(body)]
    return [(client, filter_) for client, filter_ in readings if client and filter_]


def unsubscriptions(body: str) -> list[tuple[str, str]]:
    """Read `CLIENT FILTER`. Return each client and filter that this can be."""
    readings = [(body[:at], body[at + 1 :]) for at, letter in enumerate(body) if letter == " "]
    return [(client, filter_) for client, filter_ in readings if client and filter_]


def connections(line: str) -> list[tuple[str, str, bool]]:
    """Read `New client connected ...`. Return each client, version of MQTT, and whether its session is clean.

    A name or a user name may look like the rest of the line: ` (p2, c1, k60)`.
    """
    match = _CONNECTED.match(line)
    if match is None:
        return []
    rest = line[match.end() :]
    return [(rest[: at.start()], at[1], at[2] == "1") for at in _SESSION.finditer(rest) if at.start()]


def ends(line: str) -> list[str]:
    """Read `Client NAME disconnected.` and its like. Return each client whose connection may have ended."""
    for begin, how in ((_ENDED, _HOW_IT_ENDED), (_BROKEN, _HOW_IT_BROKE)):
        match = begin.match(line)
        if match is not None:
            rest = line[match.end() :]
            return [rest[: at.start()] for at in how.finditer(rest) if at.start()]
    return []


def without_address(client: str) -> str | None:
    """Return the name in `NAME [ADDRESS]`, or None. Later releases of Mosquitto write this when a connection ends."""
    match = _ADDRESS.fullmatch(client)
    return None if match is None else match[1]


def expiry(line: str) -> str | None:
    """Read `Expiring client NAME due to timeout.` Return the name, or None if the line does not have this form."""
    match = _EXPIRED.fullmatch(line)
    return None if match is None else match[1]


def widened(filter_: str) -> str:
    """Return a filter that matches everything that any continuation of a cut filter matches."""
    if filter_.startswith(SHARED) and filter_.count("/") == 1:
        return f"{filter_}/#"  # the end of the group's name and the whole filter behind it are missing
    levels, slash, _ = filter_.rpartition("/")
    return f"{levels}/#" if slash else "#"
