"""How far a broker's sidecar is behind: a broker acknowledges a message before the mesh has it.

"Messages wait at the broker: the sidecar takes no more than `inflight_max` at a time, and acknowledges in their
order."  [docs/mqtt.md]

So if a message of a broker reaches another site late, later messages of this broker came into the mesh even later.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from trellis.judge.story import NEVER, Publication, Story


class Behind:
    """For each broker, how far its sidecar was behind at each time."""

    def __init__(self, story: Story) -> None:
        came = _first_receipts(story)
        times: dict[str, list[tuple[float, float]]] = {}  # by broker: when a message began, and when it first came
        for made in sorted(story.publications.values(), key=lambda publication: publication.began):
            if made.session.broker and made.qos and made.message in came:
                times.setdefault(made.session.broker, []).append((made.began, came[made.message]))
        self._began = {broker: [began for began, _ in each] for broker, each in times.items()}
        self._latest = {broker: list(accumulate((t for _, t in each), max)) for broker, each in times.items()}

    def taken(self, made: Publication) -> float:
        """Return when a message was in the mesh, at the earliest, as far as the receipts of earlier ones show it."""
        broker = made.session.broker
        if made.acknowledged == NEVER or not made.qos or broker not in self._began:
            return made.acknowledged
        index = bisect_left(self._began[broker], made.began)
        return max(made.acknowledged, self._latest[broker][index - 1]) if index else made.acknowledged


def _first_receipts(story: Story) -> dict[str, float]:
    """Return when each message of a broker's client first came to a client elsewhere that was always connected."""
    receipts: dict[str, float] = {}
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if made is None or got.retained or not made.session.broker or made.session.broker == session.broker:
                continue
            if not session.was_away(made.began, got.t):
                receipts[got.message] = min(got.t, receipts.get(got.message, NEVER))
    return receipts
