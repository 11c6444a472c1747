"""What a node logs: lines for people, or one JSON object a line with names that do not change.

    {"time": "2026-11-16T09:31:02.114Z", "level": "warning", "event": "peer-refused", "node": "a", "why": ..., ...}

Whoever logs writes a sentence. `EVENTS` gives each sentence its name and names its parts, so that a sentence may be
worded anew without breaking anybody's alerts. docs/runbook.md says what to do about each; tests hold all three equal.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Hashable

from trellis.errors import InputError

LEVELS = ("debug", "info", "warning", "error")

# the sentence -> its name, and the names of its parts
EVENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "%s: is up: peers %s, clients %s": ("node-up", ("node", "listen", "client_listen")),
    "%s: leaves": ("node-leaving", ("node",)),
    "%s: has left": ("node-left", ("node",)),
    "%s: cannot reach %s: %s": ("peer-unreachable", ("node", "peer", "why")),
    "%s: seed %s did not accept us: %s": ("seed-failed", ("node", "seed", "why")),
    "%s: cut off %s: %s": ("peer-cut-off", ("node", "peer", "why")),
    "%s: refused a peer: %s": ("peer-refused", ("node", "why")),
    "%s: %s refuses us: %s": ("refused-by-peer", ("node", "peer", "why")),
    "%s: TLS with %s failed: %s": ("tls-failed", ("listen", "peer", "why")),
    "%s: loaded new certificates of %s, valid until %s": ("certificates-loaded", ("node", "section", "until")),
    "%s: a certificate needs to be renewed: %s": ("certificate-ends", ("node", "what")),
    "%s: new certificates cannot be used, the old ones stay: %s": ("certificates-refused", ("node", "why")),
    "%s: refused a client: %s": ("client-refused", ("node", "why")),
    "%s: cut off client %s: %s": ("client-cut-off", ("node", "client", "why")),
    "%s: %s": ("messages-lost", ("node", "what")),
    "%s: a %s is too large to be sent": ("message-too-large", ("node", "kind")),
    "%s: a %s of %s broke a handler": ("bug", ("node", "kind", "peer")),
    "%s: the handler broke": ("admin-bug", ("path",)),
    "cannot accept: %s": ("accept-failed", ("why",)),
    "%s: no telemetry: %s: %s": ("telemetry-failed", ("node", "file", "why")),
    "%s: a publication on %s was refused: %s": ("mqtt-publication-refused", ("node", "topic", "why")),
    "%s: cut off an MQTT client: %s": ("mqtt-client-cut-off", ("node", "why")),
    "%s: attached to %s:%d": ("broker-attached", ("node", "host", "port")),
    "%s: broker %s:%d: %s": ("broker-lost", ("node", "host", "port", "why")),
}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event, parts = EVENTS.get(str(record.msg), ("other", ()))
        values = record.args if isinstance(record.args, tuple) else ()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told: dict[str, object] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": event,
            **{
                part: value if isinstance(value, int) else str(value)
                for part, value in zip(parts, values, strict=False)
            },
            "text": record.getMessage(),
        }
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


class Sparing:
    """Lets a line through once a minute: strangers must not be able to fill the log."""

    def __init__(self, pause_s: float = 60.0, keys_max: int = 256) -> None:
        self.pause_s, self.keys_max = pause_s, keys_max
        self._said: OrderedDict[Hashable, float] = OrderedDict()  # when each was said last, oldest first

    def may_say(self, *key: Hashable) -> bool:
        now = time.monotonic()
        if now - self._said.get(key, -self.pause_s) < self.pause_s:
            return False
        self._said[key] = now
        self._said.move_to_end(key)
        if len(self._said) > self.keys_max:
            self._said.popitem(last=False)
        return True


def start_logging(level: str, as_json: bool) -> None:
    """To standard error, from `level` up."""
    if level not in LEVELS:
        raise InputError(f"--log-level {level}", "there is no such level", f"choose from {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
