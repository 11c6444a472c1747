"""Quotas: how much a client or a user may do.  [docs/access.md, Quotas]

Q1  over any time, a client or a user publishes no more than its rate and one second's worth beyond, and one message
Q2  what is remembered of rates is bounded: a rate that was not used up lately needs no memory
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from trellis.protocols.access.rules import Rules

BURST_MS = 1_000  # what a client has not used up in this time, it may publish at once
RATES_MAX = 10_000  # that are remembered before those are dropped that are at rest
USERS_MAX = 10_000  # whose limits are remembered


class Quotas:
    def __init__(self, rules: Rules) -> None:
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Hold clients to these rules from now on. What they have published lately still counts."""
        self._rules = rules
        self._limits: dict[str | None, Mapping[str, int]] = {}
        self._used_ms: dict[tuple[str | None, str | None, str], float] = getattr(self, "_used_ms", {})

    def limits(self, user: str | None) -> Mapping[str, int]:
        """Return the limits that hold for a user, by their names in the file."""
        found = self._limits.get(user)
        if found is None:
            if len(self._limits) >= USERS_MAX:
                self._limits.clear()
            found = self._limits[user] = self._rules.limits_of(user)
        return found

    def charge(self, user: str | None, client: str, size: int, now_ms: int) -> int:
        """Count a publication of `size` bytes. Return for how many ms its client is not to be read."""
        if not self._rules.limits:
            return 0
        limits, wait_ms = self.limits(user), 0.0
        for name, amount in (("messages", 1), ("bytes", size)):
            for key, limit in (
                ((user, client, name), limits.get(f"client {name}")),
                ((user, None, name), limits.get(f"user {name}")),
            ):
                if limit is not None:
                    wait_ms = max(wait_ms, self._use_up(key, 1_000 * amount / limit, now_ms))
        return ceil(wait_ms)

    def _use_up(self, key: tuple[str | None, str | None, str], takes_ms: float, now_ms: int) -> float:
        """Note that so much time of a rate is used up. Return how long it takes until the next message may come."""
        if key not in self._used_ms and len(self._used_ms) >= RATES_MAX:
            self._used_ms = {one: until_ms for one, until_ms in self._used_ms.items() if until_ms > now_ms}  # Q2
        until_ms = self._used_ms[key] = max(self._used_ms.get(key, 0.0), now_ms) + takes_ms
        return until_ms - now_ms - BURST_MS
