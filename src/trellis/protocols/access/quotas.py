"""Quotas: limit how much a client or a user may do.  [docs/access.md, Quotas]

Q1  Over any time, a client or a user publishes no more than its rate allows, one second's worth beyond it, and one
    message.
Q2  A rate needs memory only while it is in use: a rate that is at rest may be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from trellis.protocols.access.rules import Rules

BURST_MS = 1_000  # A client may publish at once what it has not used up in this time.
RATES_MAX = 10_000  # Number of remembered rates from which on those at rest are dropped.
USERS_MAX = 10_000  # Most users whose limits are remembered.


class Quotas:
    """The limits of clients and users, and what they have used up."""

    def __init__(self, rules: Rules) -> None:
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Hold clients to these rules from now on. What they have published lately still counts."""
        self._rules = rules
        self._limits: dict[str | None, Mapping[str, int]] = {}
        self._used_ms: dict[tuple[str | None, str | None, str], float] = getattr(self, "_used_ms", {})

    def limits(self, user: str | None) -> Mapping[str, int]:
        """Return the limits of a user, by their names in the file."""
        found = self._limits.get(user)
        if found is None:
            if len(self._limits) >= USERS_MAX:
                self._limits.clear()
            found = self._limits[user] = self._rules.limits_of(user)
        return found

    def charge(self, user: str | None, client: str, size: int, now_ms: int) -> int:
        """Count a publication of `size` bytes. Return the time in ms for which its client must not be read."""
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
        """Use up `takes_ms` of a rate. Return the time in ms until the next message may come; it may be negative."""
        if key not in self._used_ms and len(self._used_ms) >= RATES_MAX:
            self._used_ms = {one: until_ms for one, until_ms in self._used_ms.items() if until_ms > now_ms}  # Q2
        until_ms = self._used_ms[key] = max(self._used_ms.get(key, 0.0), now_ms) + takes_ms
        return until_ms - now_ms - BURST_MS
