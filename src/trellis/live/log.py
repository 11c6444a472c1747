"""The log of a node: lines for people, or one JSON object per line for programs.

    {"time": "2026-11-16T09:31:02.114Z", "level": "warning", "event": "peer-refused", "node": "a", "why": ..., ...}

Code logs a sentence with parameters. `EVENTS` maps each sentence to the name of its event and the names of its
parameters. So a sentence can be reworded without breaking an operator's alerts. docs/runbook.md says what to do about
each event. Tests check that the code, `EVENTS` and that page agree.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any

from trellis.errors import InputError
from trellis.live.clock import monotonic_s

NAMED = 5  # most names that a line lists; it counts further ones
LEVELS = ("debug", "info", "warning", "error")

# By sentence: the name of its event, and the names of its parameters.
EVENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "%s: is up: peers %s, clients %s": ("node-up", ("node", "listen", "client_listen")),
    "%s: leaves": ("node-leaving", ("node",)),
    "%s: has left": ("node-left", ("node",)),
    "%s: has left, and nobody has taken over messages that it held: %d on %d topics": (
        "node-left-messages",
        ("node", "messages", "topics"),
    ),
    "%s: cannot reach %s: %s": ("peer-unreachable", ("node", "peer", "why")),
    "%s: joined the mesh after %.1f s: %s; %s": ("joined", ("node", "after_s", "neighbors", "streams")),
    "%s: seed %s did not accept us: %s": ("seed-failed", ("node", "seed", "why")),
    "%s: linked with %s": ("linked", ("node", "peer")),
    "%s: closed the link with %s": ("unlinked", ("node", "peer")),
    "%s: was asked to %s the link with %s": ("link-asked", ("node", "change", "peer")),
    "%s: lost neighbor %s: %s; %s": ("neighbor-lost", ("node", "peer", "why", "topics")),
    "%s: repair %d started: %s of %s": ("repair-started", ("node", "number", "cause", "peer")),
    "%s: repair %d finished after %d ms: %s of %s; %s": (
        "repair-finished",
        ("node", "number", "ms", "cause", "peer", "topics"),
    ),
    "%s: whole again %.1f s after the loss of %s: neighbors %s%s": (
        "whole-again",
        ("node", "after_s", "lost", "neighbors", "alone"),
    ),
    "%s: is not healthy: %s": ("unhealthy", ("node", "why")),
    "%s: is healthy again": ("healthy", ("node",)),
    "%s: cut off %s: %s": ("peer-cut-off", ("node", "peer", "why")),
    "%s: refused a peer: %s": ("peer-refused", ("node", "why")),
    "%s: %s refuses us: %s": ("refused-by-peer", ("node", "peer", "why")),
    "%s: TLS with %s failed: %s": ("tls-failed", ("listen", "peer", "why")),
    "%s: refused %s: %s": ("proxy-header-refused", ("listen", "peer", "why")),
    "%s: loaded new certificates of %s, valid until %s": ("certificates-loaded", ("node", "section", "until")),
    "%s: was told to load its certificates, and has none": ("nothing-to-reload", ("node",)),
    "%s: a certificate needs to be renewed: %s": ("certificate-ends", ("node", "what")),
    "%s: new certificates cannot be used, the old ones stay: %s": ("certificates-refused", ("node", "why")),
    "%s: loaded its access files: %d rules": ("access-loaded", ("node", "rules")),
    "%s: new access files cannot be used, the old ones stay: %s": ("access-refused", ("node", "why")),
    "%s: refused a client: %s": ("client-refused", ("node", "why")),
    "%s: cut off client %s: %s": ("client-cut-off", ("node", "client", "why")),
    "%s: %s": ("messages-lost", ("node", "what")),
    "%s: cannot send to %s: %s": ("message-too-large", ("node", "peer", "why")),
    "%s: %s: %s (refused so far: %d)": ("topic-refused", ("node", "what", "why", "count")),
    "%s: %s broke a handler": ("bug", ("node", "what")),
    "%s: timer %s failed; tried again in %.1f s": ("timer-failed", ("node", "timer", "pause_s")),
    "%s: timer %s failed %d times in a row; the node ends": ("timer-fails", ("node", "timer", "times")),
    "%s: gives up the stream to %s, which has answered nothing lately": ("stream-given-up", ("node", "peer")),
    "%s: the handler broke": ("admin-bug", ("path",)),
    "cannot accept: %s": ("accept-failed", ("why",)),
    "%s: no telemetry: %s: %s": ("telemetry-failed", ("node", "file", "why")),
    "%s: a publication on %s was refused: %s": ("mqtt-publication-refused", ("node", "topic", "why")),
    "%s: set a message for %s aside: topic %s, %d bytes: %s": (
        "mqtt-message-set-aside",
        ("node", "receiver", "topic", "bytes", "why"),
    ),
    "%s: cut off an MQTT client: %s": ("mqtt-client-cut-off", ("node", "why")),
    "%s: closed an MQTT client's connection: %s: %s": ("mqtt-client-closed", ("node", "reason", "why")),
    "%s: attached to %s:%d": ("broker-attached", ("node", "host", "port")),
    "%s: broker %s:%d: subscriptions of its clients may be unknown here: %s": (
        "broker-subscriptions-unknown",
        ("node", "host", "port", "why"),
    ),
    "%s: remembers %d filters of the broker's clients from %s": ("learned-read", ("node", "filters", "file")),
    "%s: cannot remember what the broker's clients want: %s: %s": ("learned-not-saved", ("node", "file", "why")),
    "%s: %s is damaged and was set aside as %s: %s": ("learned-set-aside", ("node", "file", "aside", "why")),
    "%s: the store has messages: %d": ("store-opened", ("node", "messages")),
    "%s: the last write to the store was not complete: %d bytes": ("store-torn", ("node", "bytes")),
    "%s: a file of the store is damaged and was set aside: %s": ("store-damaged", ("node", "file")),
    "%s: the store cannot be written, so this node ends: %s": ("store-failed", ("node", "why")),
    "%s: the disk of the store is full: %s; publications are refused": ("store-disk-full", ("node", "why")),
    "%s: the store is full: %s; publications are refused": ("store-full", ("node", "why")),
    "%s: the store has room again": ("store-has-room", ("node",)),
    "%s: the store was full and dropped its oldest messages: %d": ("store-dropped", ("node", "messages")),
    "%s: broker %s:%d: %s": ("broker-lost", ("node", "host", "port", "why")),
}


def listed(names: Iterable[str], count: int | None = None) -> str:
    """Return the first few names as text, and how many more there are. `count`: number of all names, if known."""
    known = list(names)
    more = (len(known) if count is None else count) - NAMED
    return ", ".join(known[:NAMED]) + (f" and {more} more" if more > 0 else "")


def one_line(text: str) -> str:
    """Escape characters that are not printable. Other nodes choose names and reasons, and must not forge log lines."""
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    )


class Damper(logging.Filter):
    """Limit the rate of log lines, so that one flapping peer or thousands of peers do not flood the log.

    In `WINDOW_S` seconds at most `SAME_MAX` lines pass that have the same sentence and the same first two parameters
    (usually node and peer). At most `KIND_MAX` lines with the same sentence pass. The next line of a sentence that
    passes tells how many were left out (`record.left_out`).
    """

    WINDOW_S = 10.0
    SAME_MAX, KIND_MAX = 5, 50
    KEYS_MAX = 1_024  # Most windows that are kept. The one that was used longest ago is dropped.

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[object, list[float]] = OrderedDict()  # by key: start, lines passed, lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line may pass, and count it."""
        kind, values = str(record.msg), record.args if isinstance(record.args, tuple) else ()
        same = self._window((kind, *(str(value)[:64] for value in values[:2])), record.created)
        every = self._window(kind, record.created)
        if same[1] >= self.SAME_MAX or every[1] >= self.KIND_MAX:
            every[2] += 1
            return False
        same[1] += 1
        every[1] += 1
        record.left_out, every[2] = int(every[2]), 0
        return True

    def _window(self, key: object, now: float) -> list[float]:
        """Return the counts of the present window of a key. A new window keeps the count of lines left out."""
        counts = self._seen.get(key)
        if counts is None:
            counts = self._seen[key] = [now, 0, 0]
        elif now - counts[0] >= self.WINDOW_S:
            counts[0], counts[1] = now, 0
        self._seen.move_to_end(key)
        if len(self._seen) > self.KEYS_MAX:
            self._seen.popitem(last=False)
        return counts


class PlainLines(logging.Formatter):
    """Format lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatException(self, info: Any) -> str:
        """Return a traceback with a mark before each line. Texts in it may come from peers, and must not look like log
        lines."""
        return "\n".join(f"  | {one_line(line)}" for line in super().formatException(info).splitlines())

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, and how many lines were left out before it."""
        left_out = getattr(record, "left_out", 0)
        text = one_line(super().formatMessage(record))
        return f"{text} ({left_out} lines like this were left out before)" if left_out else text


class JsonLines(logging.Formatter):
    """Format each line as a JSON object with the event and its parameters."""

    def format(self, record: logging.LogRecord) -> str:
        event, parts = EVENTS.get(str(record.msg), ("other", ()))
        values = record.args if isinstance(record.args, tuple) else ()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": event,
            **{
                part: value if isinstance(value, int | float) else str(value)
                for part, value in zip(parts, values, strict=False)
            },
            "text": record.getMessage(),
        }
        left_out = getattr(record, "left_out", 0)
        if left_out:
            fields["left_out"] = left_out
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        text = json.dumps(fields, ensure_ascii=False)
        return (
            text
            if text.isprintable()
            else "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
        )


class Sparing:
    """Let a line pass once a minute for each key, so that strangers cannot fill the log.

    Beyond `keys_max` keys, the one that passed longest ago is forgotten.
    """

    def __init__(self, pause_s: float = 60.0, keys_max: int = 256) -> None:
        self.pause_s, self.keys_max = pause_s, keys_max
        self._said: OrderedDict[Hashable, float] = OrderedDict()  # when each key last passed, oldest first

    def may_say(self, *key: Hashable) -> bool:
        """Return whether a line of this key may be logged now. If so, it counts as logged."""
        now = monotonic_s()
        if now - self._said.get(key, -self.pause_s) < self.pause_s:
            return False
        self._said[key] = now
        self._said.move_to_end(key)
        if len(self._said) > self.keys_max:
            self._said.popitem(last=False)
        return True


def start_logging(level: str, as_json: bool) -> None:
    """Log to standard error, from `level` up. Raise InputError if there is no such level."""
    if level not in LEVELS:
        raise InputError(f"--log-level {level}", "there is no such level", f"choose from {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Damper())
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
