"""Promises about time: owed messages come soon after the last fault, and no node waits for nodes that have ended."""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.calm import Calm
from trellis.judge.filters import reaches
from trellis.judge.interest import why_forgotten
from trellis.judge.limits import follows_a_drop, may_be_full
from trellis.judge.promise import Promise, Violation
from trellis.judge.story import NEVER, Publication, Story, Subscription

_OVERTAKES_S = 1.0


def late(story: Story, promise: Promise) -> Iterator[Violation]:
    """An acknowledged message arrives within `heal_s` of its acknowledgement and of the last fault.

    An application that reads slowly gets everything late. So a message counts only if the application has got another
    one before it that was published after its acknowledgement: then it was the mesh that kept it.
    """
    if promise.heal_s == NEVER:
        return
    calm = Calm(story, promise.heal_s, promise.heal_s)
    for session in story.sessions.values():
        newest = 0.0  # publication time of the newest message that the session has got so far
        had: set[str] = set()  # a message that comes again is not late
        for got in session.received:
            made = story.publications.get(got.message)
            if made is None or got.retained or session.broker or made.session.broker:
                continue  # Brokers acknowledge messages, and keep those that their sidecars cannot carry yet.
            if got.message in had:
                continue
            had.add(got.message)
            is_overtaken, newest = newest > made.acknowledged + _OVERTAKES_S, max(newest, made.began)
            if made.acknowledged == NEVER or not is_overtaken or session.was_away(made.began, got.t):
                continue
            due = calm.due(made.began, made.acknowledged)
            if due < got.t and any(_owes(subscription, made, due) for subscription in session.subscriptions):
                if why_forgotten(story, promise, made, session):
                    continue  # it comes when its publisher's node uses the topic again
                if follows_a_drop(story, promise, made, session, got.t):
                    continue
                text = (
                    f"{session.name} at {session.node_at(got.t)} got {made.message} on {made.topic} at {got.t:.3f} s: "
                    f"published at {made.began:.3f} s, acknowledged at {made.acknowledged:.3f} s, due at {due:.3f} s"
                )
                yield Violation("late", got.t, text, session.name, made.message)


def _owes(subscription: Subscription, made: Publication, due: float) -> bool:
    return subscription.confirmed <= made.began and due <= subscription.ended and subscription.is_owed(made.said)


def alone(story: Story, promise: Promise) -> Iterator[Violation]:
    """A node that is alone, because all others have ended and it could notice, answers publications at once."""
    nodes = story.nodes()
    for made in story.publications.values():
        others = nodes - {made.session.node_at(made.began)}
        if not made.qos or not others or made.session.was_away(made.began, made.answered):
            continue
        since = max(made.began, *(_down_since(story, node, made.began) for node in others))
        until = min((up.t for up in story.ups if up.t > made.began and up.node in others), default=story.end)
        until = min(until, made.answered, made.session.ended, story.end)
        if until - since > promise.alone_s and not _is_disturbed(story, since - promise.settle_s, until):
            node = made.session.node_at(made.began)
            text = f"{made.message} on {made.topic} waits at {node}, for {until - since:.1f} s with all others ended"
            yield Violation("late", made.began, text, made.session.name, made.message)


def restarted(story: Story, promise: Promise) -> Iterator[Violation]:
    """A node that has restarted in a calm mesh soon acknowledges messages on topics with enough other subscribers.

    If fewer nodes subscribe to a topic than copies are demanded, the acknowledgement waits until that is certain. Later
    publications of the client wait as well, because a client gets its answers in order.
    """
    if promise.restart_s == NEVER:
        return
    ups = {(up.node, up.t) for up in story.ups if up.t > promise.start_s}
    for session in story.sessions.values() if ups else ():
        if session.broker:
            continue
        blocked = 0.0  # until when an earlier publication of the session may hold up its answers
        for made in session.published:
            up = max((t for node, t in ups if node == session.node_at(made.began) and t <= made.began), default=None)
            waited = min(made.answered, session.ended, story.end) - made.began
            is_judged = up is not None and made.qos > 0 and _has_readers(story, promise, made)
            if up is not None and is_judged and blocked <= made.began and waited > promise.restart_s:
                until = made.began + promise.restart_s
                is_calm = _is_calm_but_for(story, session.node_at(made.began), up, until)
                if is_calm and not session.was_away(made.began, until):
                    text = f"{made.message} on {made.topic} waited {waited:.1f} s at a node that was back at {up:.3f} s"
                    yield Violation("late", made.began, text, session.name, made.message)
            if made.qos and not is_judged:
                blocked = max(blocked, made.answered)


def _has_readers(story: Story, promise: Promise, made: Publication) -> bool:
    """Tell whether clients at enough other nodes have long subscribed to the very topic, and stay."""
    until, mine = made.began + promise.restart_s, made.session.node_at(made.began)
    others = {
        subscription.session.node_at(made.began)
        for subscription in story.on_topic(made.said, reaches)
        if subscription.filter == made.topic
        and subscription.is_owed(made.said)
        and not subscription.session.broker
        and subscription.confirmed + promise.grace_s <= made.began
        and subscription.ended > until
        and not subscription.session.was_away(made.began - promise.start_s, until)
    } - {mine}
    return len(others) >= max(1, promise.copies - 1)


def _is_calm_but_for(story: Story, node: str, up: float, end: float) -> bool:
    """Tell whether nothing happened before `up` and until `end` but that `node` crashed once and was back soon."""
    begin = up - 10.0
    if any(fault.t <= end and fault.until >= begin for fault in story.disturbances):
        return False
    downs = [down for down in story.downs if begin <= down.t <= end]
    ups = [up for up in story.ups if begin <= up.t <= end]
    return len(downs) == len(ups) == 1 and downs[0].node == ups[0].node == node and not downs[0].silent


def kept_out(story: Story, promise: Promise) -> Iterator[Violation]:
    """A node that is up takes clients, unless something has disturbed it or the network within `accept_s` before."""
    for unreachable in story.unreachable:
        if may_be_full(story, promise, unreachable):
            continue
        begin = unreachable.since - promise.accept_s
        ups = [each.t for each in story.ups if each.node == unreachable.node]
        downs = [each.t for each in story.downs if each.node == unreachable.node and each.t <= unreachable.t]
        is_down = any(all(not t < up <= begin for up in ups) for t in downs)
        if (
            not is_down
            and not any(begin <= up <= unreachable.t for up in ups)
            and not _is_disturbed(story, begin, unreachable.t)
        ):
            text = (
                f"{unreachable.client} could not connect to {unreachable.node} from {unreachable.since:.3f} s to "
                f"{unreachable.t:.3f} s: {unreachable.reason}"
            )
            yield Violation("refused", unreachable.t, text)


def _down_since(story: Story, node: str, t: float) -> float:
    """Return since when `node` is down at `t` so that others can notice it, or NEVER."""
    downs = [down for down in story.downs if down.node == node and down.t <= t]
    if not downs or any(up.node == node and downs[-1].t <= up.t <= t for up in story.ups):
        return NEVER
    last = downs[-1]
    return NEVER if last.silent or last.leave else last.t


def _is_disturbed(story: Story, begin: float, end: float) -> bool:
    return any(fault.t <= end and fault.until >= begin for fault in story.disturbances)
