"""Proof of life on one stream: a peer that answers nothing is noticed within seconds, whatever the kernel believes.

A TCP stream whose network is cut looks healthy to both ends until the kernel gives up, which takes minutes. A process
that hangs even acknowledges what it is sent. So each end asks (`Ping`) whenever a stream was silent for a round, and at
least every `_PROVE_S`, and only an answer (`Pong`) counts as proof. Silence is counted in rounds of the one who asks,
not in seconds: a process that was stopped itself has not asked, and must not blame its peers.
"""

from __future__ import annotations

import socket
from typing import Any

ROUND_S = 1.0  # between two looks at all streams
_PROVE_S = 3.0
_LATE_S = 1.0  # an answer that takes no longer is nothing to tell of
_KEEPALIVE_PROBES = 3
CLIENT_SILENT_S = 15.0  # between a client and its node: the network is gone if nothing is acknowledged for so long


class Proof:
    __slots__ = ("_asked", "_proved", "silent_rounds")

    def __init__(self, now: float) -> None:
        self.silent_rounds = 0  # since anything came from the peer
        self._asked: float | None = None  # when the question was sent that has no answer yet
        self._proved = now  # when the last answer came

    def heard(self) -> None:
        """Something came from the peer: it lives, but it need not be reading what we send."""
        self.silent_rounds = 0

    def answered(self, now: float) -> None:
        self._asked, self._proved = None, now

    def must_ask(self, now: float) -> bool:
        """A round is over. Return whether the peer is to be asked now."""
        self.silent_rounds += 1  # the round that ends now counts for a peer that was heard in it
        is_due = self.silent_rounds > 1 or now - self._proved > _PROVE_S
        if self._asked is not None or not is_due:
            return False
        self._asked = now
        return True

    def waits_s(self, now: float) -> float:
        """Return for how long the peer has owed an answer: 0 unless it is late."""
        waited = now - self._asked if self._asked is not None else 0.0
        return waited if waited > _LATE_S else 0.0

    def is_silent(self, silent_s: float) -> bool:
        return self._asked is not None and self.silent_rounds > max(1.0, silent_s / ROUND_S)


def notice_death(connected: Any, silent_s: float) -> None:
    """Tell the kernel to give a socket up when the other end acknowledges nothing for `silent_s`, idle or not.

    This covers what is below the process: our own questions cover the rest. Platforms without an option go without.
    """
    if connected is None:
        return
    idle_s = max(1, round(silent_s / 2))
    options: list[tuple[int, str, int]] = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", idle_s),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", idle_s),  # what macOS calls it
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", max(1, round(silent_s / 2 / _KEEPALIVE_PROBES))),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", _KEEPALIVE_PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", round(1_000 * silent_s)),
    ]
    for level, name, value in options:
        option = getattr(socket, name, None)
        if option is None:
            continue
        try:
            connected.setsockopt(level, option, value)
        except OSError:
            continue  # the kernel knows it by name only
