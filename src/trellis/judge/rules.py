"""One function for each promise. Each yields what broke it.

The comments quote `docs/delivery.md` and `docs/mqtt.md`, which are all that this module knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from trellis.judge.calm import Calm, joined
from trellis.judge.story import NEVER, Publication, Session, Story, Subscription


@dataclass(frozen=True)
class Promise:
    """What is promised, in numbers. The defaults are those of a node's configuration."""

    copies: int = 2  # nodes that hold an acknowledged message
    window_s: float = 60.0  # a cut that lasts longer may lose messages
    registered_s: float = 15.0  # a subscriber is known at its topic's home location after so long
    outcome_s: float = 45.0  # a publication is acknowledged or refused within this time
    confirm_s: float = 60.0  # a subscription is confirmed within this time of calm
    settle_s: float = 25.0  # after the last fault, until everything flows again
    spread_s: float = 15.0  # an acknowledged message has reached every subscriber by then, unless the network is cut
    grace_s: float = 5.0  # from the acknowledgement to the last subscriber, in calm
    heal_s: float = NEVER  # a message comes within this time of its acknowledgement and of the last fault
    alone_s: float = 5.0  # a node answers within this time when all others have ended for all to see
    accept_s: float = NEVER  # a node that has been up and undisturbed for so long takes clients
    acknowledge_s: float = 14.0  # no acknowledgement takes longer, while nothing but crashes disturbs the mesh
    start_s: float = 20.0  # a node that has started is sure of itself by then
    restart_s: float = NEVER  # a node that is back in a calm mesh answers publications on known topics within this time
    may_refuse: tuple[str, ...] | None = None  # words of refusals that are right also in calm; None: all are


@dataclass(frozen=True)
class Violation:
    """A broken promise."""

    kind: str
    t: float
    text: str
    session: str = ""
    message: str = ""


@dataclass
class Counts:
    """How much was judged: a verdict over nothing is worth nothing."""

    owed: int = 0
    excused: Counter[str] = field(default_factory=Counter)  # lost or twice, and allowed: why, and how often
    copies_judged: int = 0


def not_what_was_published(story: Story, promise: Promise) -> Iterator[Violation]:
    """A client gets what somebody published, on the topic on which it was published."""
    for session in story.sessions.values():
        for got in session.received:
            if story.may_be_false(got.t - promise.spread_s, got.t, promise.window_s):
                continue
            made = story.publications.get(got.message)
            if made is None:
                text = f"{session.name} got {got.message} on {got.topic}, which nobody published"
                yield Violation("unknown", got.t, text, session.name, got.message)
            elif made.topic != got.topic:
                text = f"{session.name} got {got.message} on {got.topic}; it was published on {made.topic}"
                yield Violation("unknown", got.t, text, session.name, got.message)
            elif got.t < made.began:
                text = f"{session.name} got {got.message} {made.began - got.t:.3f} s before it was published"
                yield Violation("unknown", got.t, text, session.name, got.message)


def not_subscribed(story: Story, calm: Calm) -> Iterator[Violation]:
    """A client gets nothing that it did not ask for.

    What was under way when it unsubscribed may still come, also after UNSUBACK.  [MQTT 5, 3.10.4; 3.1.1, 3.10.4]
    """
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if not any(
                one.asked <= got.t <= (one.over if made is None or made.began > one.over else _over_by(one, calm))
                for one in session.subscriptions
                if one.wants(got.topic)
            ):
                text = f"{session.name} got {got.message} on {got.topic} without a subscription to it"
                yield Violation("not subscribed", got.t, text, session.name, got.message)


def _over_by(subscription: Subscription, calm: Calm) -> float:
    """Return until when a client may get what was published before its subscription was over."""
    over = subscription.ended if subscription.over == NEVER else subscription.over
    return calm.due(over, over)


def older_than_subscribed(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """What was acknowledged long before the client asked is handed over only as a retained message."""
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if made is None or got.retained or made.retain or story.may_be_false(made.began, got.t, promise.window_s):
                continue
            asked = min((one.asked for one in session.subscriptions if one.wants(got.topic)), default=None)
            if asked is None or made.acknowledged + promise.grace_s >= asked:
                continue
            if calm.is_calm(made.began, got.t):
                text = (
                    f"{session.name} got {got.message}, which was acknowledged "
                    f"{asked - made.acknowledged:.1f} s before it subscribed"
                )
                yield Violation("older", got.t, text, session.name, got.message)


def twice(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """No application gets a message twice.

    Three cases are allowed. A node that has restarted does not know what it had taken in and not acknowledged, so the
    publisher's repetition counts as new. A session that comes back gets again what it had not acknowledged. What is
    under way between a broker and its sidecar when their connection breaks, or when one of them ends, may come again.
    """
    for session in story.sessions.values():
        times: dict[str, list[float]] = defaultdict(list)
        for got in session.received:
            if not got.retained:
                times[got.message].append(got.t)
        for message, when in times.items():
            if len(when) < 2 or story.may_be_false(when[0] - promise.spread_s, when[-1], promise.window_s):
                continue
            made = story.publications.get(message)
            repeated = made is not None and _was_repeated(made)
            since = when[0] if made is None else made.began
            backs = sum(since <= t <= when[-1] for t in session.backs)
            if _was_under_way(session, made, calm, when[-1]):
                counts.excused["twice: it was under way between a broker and its sidecar"] += 1
                continue
            if len(when) <= 1 + repeated + backs:
                why = "the publisher repeated it after a lost connection" if repeated else "the session came back"
                counts.excused[f"twice: {why}"] += 1
                continue
            text = f"{session.name} got {message} {len(when)} times"
            yield Violation("twice", when[1], text, session.name, message)


def out_of_order(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """The messages of one client on one topic arrive in the order in which it published them.

    Nothing is promised between two connections of the publisher, since its node may have restarted in between. Nor is
    anything promised about what was published before the subscription was confirmed.
    """
    for session in story.sessions.values():
        last: dict[tuple[str, str, int], Publication] = {}
        had: set[str] = set()
        for got in session.received:
            made = story.publications.get(got.message)
            is_again = got.message in had  # judged by `twice`: a session that came back gets again what it had
            had.add(got.message)
            if made is None or got.retained or is_again or _was_repeated(made) or not _was_promised(session, made):
                continue
            if story.may_be_false(made.began, got.t, promise.window_s):
                continue
            connection = sum(1 for t in made.session.aways if t <= made.began)
            key = made.session.name, made.topic, connection
            before = last.get(key)
            if before is not None and before.place > made.place:
                if _was_under_way(session, made, calm, got.t):
                    continue  # it comes again, behind others
                text = f"{session.name} got {made.message} after {before.message}, which was published later"
                yield Violation("order", got.t, text, session.name, made.message)
            else:
                last[key] = made


def lost(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """An acknowledged message reaches every subscription that was confirmed before it was published.

    A session that is away gets what is kept for it when it is back. Of a shared subscription one session gets it.
    """
    shared = _received_by_groups(story)
    for subscription in story.subscriptions():
        session = subscription.session
        if subscription.confirmed == NEVER or not subscription.is_promised:
            continue
        ended = min(subscription.ended, story.end)
        got = shared[subscription.filter] if subscription.is_shared else {one.message for one in session.received}
        for made in _published(story, subscription):
            if made.acknowledged == NEVER or _due(session, made, calm) > ended:
                continue
            if story.may_be_false(made.began, made.acknowledged + promise.spread_s, promise.window_s):
                continue
            counts.owed += 1
            if made.message in got:
                continue
            excuse = _excuse(story, promise, made)
            if excuse is not None:
                counts.excused[f"lost: {excuse}"] += 1
                continue
            told = " (the node said that messages are missing)" if session.missed else ""
            text = (
                f"{session.name} at {session.node_at(made.began)} did not get {made.message} on {made.topic}: "
                f"confirmed at {subscription.confirmed:.3f} s, published at {made.began:.3f} s, acknowledged at "
                f"{made.acknowledged:.3f} s by {', '.join(made.holders) or 'its node'}{told}"
            )
            yield Violation("lost", made.began, text, session.name, made.message)


def _due(session: Session, made: Publication, calm: Calm) -> float:
    """Return by when an acknowledged message must have reached the session, which may be away for a time."""
    due = calm.due(made.began, made.acknowledged)
    while (back := session.connected_from(due)) > due:
        due = calm.due(back, back)
    return due


def _received_by_groups(story: Story) -> dict[str, set[str]]:
    """Return by shared filter what the sessions that share it have got, together."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in story.subscriptions():
        if one.is_shared:
            found[one.filter].update(got.message for got in one.session.received)
    return found


def too_few_copies(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """An acknowledgement names `copies` nodes, unless fewer nodes have subscribers (the publisher's node counts).

    "The node through which [a retained message] was published stays on its overlay topic as long as it is retained."
    """
    retained = [one for one in story.publications.values() if one.retain]
    for made in story.publications.values():
        if made.acknowledged == NEVER or not made.holders:
            continue
        if story.may_be_false(made.began, made.acknowledged, promise.window_s):
            continue
        if len(set(made.holders)) != len(made.holders):
            text = f"{made.message} is acknowledged by {', '.join(made.holders)}: a node counts twice"
            yield Violation("copies", made.acknowledged, text, made.session.name, made.message)
        if not calm.is_calm(made.began - promise.registered_s, made.acknowledged):
            continue
        there = {made.session.node_at(made.began)}
        allowed = set(there)
        for one in story.subscriptions():
            if not one.wants(made.topic):
                continue
            is_sure = one.is_promised and one.confirmed + promise.grace_s <= made.began
            if is_sure and one.ended > made.acknowledged:
                there.add(one.session.node_at(made.began))
            if one.asked <= made.acknowledged and one.ended + promise.window_s >= made.began:
                allowed.add(one.session.node_at(made.began))
        for kept in retained:
            if kept.began <= made.acknowledged and f"{kept.topic}/".startswith(f"{made.topic}/"):
                allowed.add(kept.session.node_at(kept.began))
        counts.copies_judged += 1
        if len(made.holders) < min(promise.copies, len(there)):
            text = (
                f"{made.message} on {made.topic} is acknowledged by {', '.join(made.holders)} alone, while "
                f"{', '.join(sorted(there))} subscribe or published it"
            )
            yield Violation("copies", made.acknowledged, text, made.session.name, made.message)
        elif strangers := set(made.holders) - allowed:
            text = f"{made.message} counts a copy at {', '.join(sorted(strangers))}, where nobody subscribes"
            yield Violation("copies", made.acknowledged, text, made.session.name, made.message)


def unanswered(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """Every publication gets one outcome, and every subscription is confirmed, while the client stays connected."""
    for made in story.publications.values():
        if made.outcomes > 1:
            text = f"{made.message} got {made.outcomes} outcomes"
            yield Violation("outcome", made.answered, text, made.session.name, made.message)
        due = calm.due(made.began, made.began + promise.outcome_s)
        is_late = due <= min(made.session.ended, story.end)
        if made.qos and not made.outcomes and is_late and not made.session.was_away(made.began, due):
            text = f"{made.message} on {made.topic} was neither acknowledged nor refused"
            yield Violation("outcome", made.began, text, made.session.name, made.message)
    for one in story.subscriptions():
        if one.confirmed < NEVER or story.may_be_false(one.asked, one.asked + promise.confirm_s, promise.window_s):
            continue
        due = calm.due(one.asked, one.asked + promise.confirm_s)
        if due <= min(one.ended, story.end) and not one.session.was_away(one.asked, due):
            text = f"{one.session.name} asked for {one.filter} at {one.asked:.3f} s and was never confirmed"
            yield Violation("outcome", one.asked, text, one.session.name)


def refused_in_calm(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """In a calm mesh publications are taken, and nodes take clients. Limits are the only reasons to refuse."""
    for made in story.publications.values():
        if promise.may_refuse is None or made.refused == NEVER or not calm.is_calm(made.began, made.refused):
            continue
        is_down = _is_down(story, made.session.node_at(made.began), made.refused)
        if made.session.was_away(made.began, made.refused) or is_down:
            continue  # it did not come to a node
        if not any(words in made.reason for words in promise.may_refuse):
            text = f"{made.message} on {made.topic} was refused in calm: {made.reason or 'without a reason'}"
            yield Violation("refused", made.refused, text, made.session.name, made.message)
    for one in story.unreachable:
        if calm.is_calm(one.since, one.t) and not _is_down(story, one.node, one.t):
            text = (
                f"{one.client} could not connect to {one.node} within {one.t - one.since:.1f} s of calm: {one.reason}"
            )
            yield Violation("refused", one.t, text)


def late(story: Story, promise: Promise) -> Iterator[Violation]:
    """A crash holds up no acknowledgement for long, if nothing else disturbs the mesh.

    "A mesh that has just started takes up to 20 seconds until it is sure of itself", and so does a node.
    """
    starts = [one.t for one in story.ups]
    for made in story.publications.values():
        waited = made.acknowledged - made.began
        if not promise.acknowledge_s < waited < NEVER or made.session.was_away(made.began, made.acknowledged):
            continue
        if any(one.t <= made.acknowledged and one.until + promise.settle_s >= made.began for one in story.disturbances):
            continue
        if any(made.began - promise.start_s <= t <= made.acknowledged for t in starts):
            continue
        text = (
            f"{made.message} on {made.topic} waited {waited:.1f} s for its acknowledgement, with no fault but crashes"
        )
        yield Violation("late", made.acknowledged, text, made.session.name, made.message)


def _published(story: Story, subscription: Subscription) -> Iterator[Publication]:
    """Publications that the filter matches and that began after the confirmation and before the end."""
    for topic, made in story.by_topic.items():
        if not subscription.wants(topic):
            continue
        first = bisect_right(made, subscription.confirmed, key=lambda one: one.began)
        for one in made[first:]:
            if one.began >= subscription.ended:
                break
            yield one


def _excuse(story: Story, promise: Promise, made: Publication) -> str | None:
    """Return why an acknowledged message may be missing, or None if it may not.

    "If fewer of the nodes that hold it crash before it has spread than it was acknowledged with, every node ...
    hands it to its application", "as long as the topic's overlay is whole again within the replay window".
    """
    spread = _spread(story, promise, made)
    gone = [one for one in story.downs if made.began <= one.t <= spread]
    if any(not one.leave for one in gone):
        names = {one.node for one in gone}
        if made.holders and names.issuperset(made.holders):
            return "every node that held it has gone"
        if not made.holders and made.session.node_at(made.began) in names and len(names) >= promise.copies:
            return "its publisher's node and as many others have gone as there are copies"
    spans = joined(sorted((one.t, one.until) for one in story.disturbances), promise.grace_s)
    if any(
        begin <= spread and end >= made.began and end - max(begin, made.began) > promise.window_s
        for begin, end in spans
    ):
        return "a fault lasted longer than the replay window"
    return None


def _spread(story: Story, promise: Promise, made: Publication) -> float:
    """Return by when the message has reached every subscriber: `spread_s` after all cuts and pauses that held it up."""
    until = made.acknowledged
    for one in story.disturbances:
        if one.t <= until + promise.spread_s and one.until >= made.began:
            until = max(until, one.until)
    return until + promise.spread_s


def _was_promised(session: Session, made: Publication) -> bool:
    return any(
        one.is_promised and one.confirmed <= made.began and one.wants(made.topic) for one in session.subscriptions
    )


def _was_repeated(made: Publication) -> bool:
    """Tell whether the publisher lost its connection while the message had no outcome yet."""
    return made.session.was_away(made.began, made.answered)


def _is_down(story: Story, node: str, t: float) -> bool:
    """Tell whether `node` has ended and not started again at `t`. A mesh may be calm without it."""
    ended = max((one.t for one in story.downs if one.node == node and one.t <= t), default=None)
    return ended is not None and not any(one.node == node and ended < one.t <= t for one in story.ups)


def _was_under_way(session: Session, made: Publication | None, calm: Calm, t: float) -> bool:
    """Tell whether a message crossed between a broker and its sidecar, and something disturbed them before `t`."""
    if made is None or not (session.broker or made.session.broker):
        return False
    return not calm.is_calm(made.began, t)
