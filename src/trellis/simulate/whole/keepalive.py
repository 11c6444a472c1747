"""Implement TCP keep-alive at one end of a connection: probes while nothing comes from the other kernel."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trellis.simulate.whole.tcp import End


class KeepAlive:
    """The keep-alive timer of one end."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._idle_us = self._interval_us = self._probes = 0
        self._number = 0  # number of the present timer; earlier ones are ignored

    def set(self, idle_us: int, interval_us: int, probes: int) -> None:
        """Probe the other kernel whenever it was silent for `idle_us`. With 0 probes, stop that."""
        self._idle_us, self._interval_us, self._probes = idle_us, interval_us, probes
        self._number += 1
        if probes:
            self._later(self._end.heard_us + idle_us, 0)

    def _later(self, when_us: int, unanswered: int) -> None:
        self._end.host.world.at(when_us, self._look, self._number, unanswered)

    def _look(self, number: int, unanswered: int) -> None:
        """Probe the other kernel if it was silent for too long. End the connection if it does not answer."""
        end = self._end
        now_us, network, peer = end.host.world.now_us, end.host.world.network, end.peer
        if end.is_gone or number != self._number:
            return
        silent_us = now_us - end.heard_us
        if silent_us < self._idle_us:
            self._later(end.heard_us + self._idle_us, 0)
            return
        if end.is_retransmitting or not end.host.answers:  # The retransmissions decide instead.
            self._later(now_us + self._interval_us, 0)
            return
        if unanswered and (unanswered >= self._probes or (end.user_us and silent_us >= end.user_us)):
            end.fail(errno.ETIMEDOUT)
            return
        is_answered = not end.is_lost() and peer.host.answers and not peer.is_lost()
        if is_answered and not peer.is_gone:
            end.heard_us = now_us
            self._later(now_us + self._idle_us, 0)
            return
        if is_answered:
            end.bounce()
        network.counters["keep-alive unanswered"] += 1
        self._later(now_us + self._interval_us, unanswered + 1)
