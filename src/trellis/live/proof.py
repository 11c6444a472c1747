"""Detect within seconds that the peer at the other end of a stream no longer answers.

When the network is cut, a TCP stream looks healthy to both ends until the kernel gives up, which takes minutes. The
kernel of a process that hangs even acknowledges all data. So each end sends a `Ping` when it has received nothing for a
whole round, and otherwise about every `_PROVE_S`. Only a `Pong` proves that the peer reads and answers.

Rounds last `ROUND_S` and are counted by the end that asks. It counts silence in its own rounds, not in seconds. So a
process that was stopped itself does not blame its peers: while it was stopped, it counted no rounds.

There is one `Proof` for each stream between nodes (`ends.py`). `Transport._prove` ends a round for all of them.
"""

from __future__ import annotations

import socket
from typing import Any

ROUND_S = 1.0  # duration of a round
_PROVE_S = 3.0  # When the last Pong is older than this, the peer is asked, even if it sends messages.
_LATE_S = 1.0  # An answer counts as late after this time.
_KEEPALIVE_PROBES = 3
# On a stream between a client and its node: if no data is acknowledged for this long, the connection is given up.
CLIENT_SILENT_S = 15.0


class Proof:
    """Whether the peer of one stream answers. All times are seconds of the loop's clock."""

    __slots__ = ("_asked", "_proved", "silent_rounds")

    def __init__(self, now: float) -> None:
        self.silent_rounds = 0  # rounds that have ended since anything came from the peer
        self._asked: float | None = None  # when the Ping was sent that has no Pong yet; None: there is none
        self._proved = now  # when the last Pong came, or when the stream was opened

    def heard(self) -> None:
        """Note that something came from the peer. It runs, but it may not read what we send."""
        self.silent_rounds = 0

    def answered(self, now: float) -> None:
        """Note that a Pong came."""
        self._asked, self._proved = None, now

    def must_ask(self, now: float) -> bool:
        """End a round. Return whether to send a Ping now. At most one Ping is unanswered at a time."""
        self.silent_rounds += 1  # It is 1 now if the peer was heard in the round that ends, and more if it was not.
        is_due = self.silent_rounds > 1 or now - self._proved > _PROVE_S
        if self._asked is not None or not is_due:
            return False
        self._asked = now
        return True

    def waits_s(self, now: float) -> float:
        """Return for how many seconds the peer has owed a Pong, or 0 if it is not late."""
        waited = now - self._asked if self._asked is not None else 0.0
        return waited if waited > _LATE_S else 0.0

    def is_silent(self, silent_s: float) -> bool:
        """Return whether the peer owes a Pong and has sent nothing for more rounds than `silent_s` holds."""
        return self._asked is not None and self.silent_rounds > max(1.0, silent_s / ROUND_S)


def notice_death(connected: Any, silent_s: float) -> None:
    """Tell the kernel to give up a socket when the other end acknowledges nothing for `silent_s`, idle or not.

    This detects a dead machine or a cut network. It does not detect a process that hangs: pings do. Options that the
    platform lacks are skipped. `connected` may be None, and then nothing is done.
    """
    if connected is None:
        return
    idle_s = max(1, round(silent_s / 2))
    options: list[tuple[int, str, int]] = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", idle_s),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", idle_s),  # the name of TCP_KEEPIDLE on macOS
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
            continue  # Python has the option, and the kernel does not.
