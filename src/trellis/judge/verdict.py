"""All rules together, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trellis.judge import prompt, rules
from trellis.judge.calm import Calm
from trellis.judge.copies import copies
from trellis.judge.history import History
from trellis.judge.limits import untold
from trellis.judge.promise import Counts, Promise, Violation
from trellis.judge.retained import retained
from trellis.judge.sense import nonsense
from trellis.judge.story import NEVER, tell

__all__ = ["KINDS", "Promise", "Verdict", "Violation", "judge"]

KINDS = (
    "history",
    "unknown",
    "not subscribed",
    "older",
    "twice",
    "order",
    "retained",
    "lost",
    "gap",
    "copies",
    "outcome",
    "refused",
    "late",
)
_SHOWN = 10


@dataclass
class Verdict:
    """The result of judging a history. `violations` are in the order of time."""

    sessions: int
    subscriptions: int
    confirmed: int
    published: int
    acknowledged: int
    refusals: Counter[str]
    received: int
    counts: Counts
    violations: list[Violation] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.violations

    @property
    def refused(self) -> int:
        return self.refusals.total()

    def by_kind(self) -> Counter[str]:
        return Counter(violation.kind for violation in self.violations)

    def to_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "sessions": self.sessions,
            "subscriptions": self.subscriptions,
            "confirmed": self.confirmed,
            "published": self.published,
            "acknowledged": self.acknowledged,
            "refused": dict(self.refusals.most_common()),
            "received": self.received,
            "owed": self.counts.owed,
            "excused": dict(sorted(self.counts.excused.items())),
            "copies_judged": self.counts.copies_judged,
            "retained_judged": self.counts.retained_judged,
            "violations": [
                {
                    "kind": violation.kind,
                    "t": violation.t,
                    "text": violation.text,
                    "session": violation.session,
                    "message": violation.message,
                }
                for violation in self.violations
            ],
        }

    def rows(self) -> Iterator[tuple[str, object]]:
        """Yield the rows of the table for the terminal."""
        yield "sessions", self.sessions
        yield "subscriptions, of them confirmed", f"{self.subscriptions:,}, {self.confirmed:,}"
        yield "published", self.published
        yield "acknowledged", self.acknowledged
        yield "refused", self.refused
        for reason, count in self.refusals.most_common(5):
            yield "  of them", f"{count:,}: {reason or 'without a reason'}"
        yield "received", self.received
        yield "deliveries owed", self.counts.owed
        for reason, count in sorted(self.counts.excused.items()):
            yield "  excused", f"{count:,}: {reason}"
        yield "violations", len(self.violations)

    def lines(self) -> Iterator[str]:
        """Yield the first violations, one sentence each, and then the verdict."""
        for violation in self.violations[:_SHOWN]:
            yield f"{violation.t:.3f} s, {violation.kind}: {violation.text}"
        if len(self.violations) > _SHOWN:
            yield f"and {len(self.violations) - _SHOWN:,} more: see --json"
        if self.holds and not self.counts.owed:
            yield "no promise was broken, but no delivery was owed either: this history shows nothing"
        elif self.holds:
            excused = self.counts.excused.total()
            but = f" but {excused:,}, which no promise covers" if excused else ""
            yield f"every promise was kept: {self.counts.owed:,} deliveries were owed; all arrived, once, in order{but}"
        else:
            counts = ", ".join(f"{count:,} {kind}" for kind, count in self.by_kind().most_common())
            yield f"promises were broken: {counts}"


def judge(history: History, promise: Promise | None = None) -> Verdict:
    """Judge a history. The verdict depends on the history and on the promise, and on nothing else."""
    promise = promise or Promise()
    story = tell(history, promise.depth)
    calm = Calm(story, promise.settle_s, promise.grace_s)
    counts = Counts()
    violations = list(nonsense(story, promise, history))
    violations += rules.not_what_was_published(story, promise)
    violations += rules.not_subscribed(story, calm)
    violations += rules.older_than_subscribed(story, promise)
    violations += rules.twice(story, promise, calm, counts)
    violations += rules.both_of_a_group(story, promise)
    violations += retained(story, promise, calm, counts)
    violations += rules.out_of_order(story, promise, calm)
    violations += rules.lost(story, promise, calm, counts)
    violations += untold(story, promise)
    violations += copies(story, promise, calm, counts)
    violations += rules.unanswered(story, promise, calm)
    violations += rules.refused_in_calm(story, promise, calm)
    violations += rules.late(story, promise)
    violations += prompt.late(story, promise)
    violations += prompt.alone(story, promise)
    violations += prompt.restarted(story, promise)
    violations += prompt.kept_out(story, promise)
    made = story.publications.values()
    subscriptions = list(story.subscriptions())
    return Verdict(
        sessions=len(story.sessions),
        subscriptions=len(subscriptions),
        confirmed=sum(subscription.confirmed < NEVER for subscription in subscriptions),
        published=len(made),
        acknowledged=sum(publication.acknowledged < NEVER for publication in made),
        refusals=Counter(publication.reason for publication in made if publication.refused < NEVER),
        received=sum(len(session.received) for session in story.sessions.values()),
        counts=counts,
        violations=sorted(violations, key=lambda violation: (violation.t, KINDS.index(violation.kind), violation.text)),
    )
