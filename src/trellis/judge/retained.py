"""Retained messages: "a later subscriber on any node gets the last one, within seconds of its SUBACK".

They are in the memory of nodes. So a subscription is judged only if the node through which the message was published
has not ended since, and if nothing has disturbed the mesh for a while. Two nodes decide by their clocks which of two
messages on a topic is the later one. So the judge asks for the last message only among those that came through one
node. There, either of two may be the last if their publications overlap in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from trellis.judge.calm import Calm
from trellis.judge.excuses import lost_its_connection, repetitions, unexcused
from trellis.judge.filters import has_wildcard
from trellis.judge.limits import TOLD_S
from trellis.judge.promise import Counts, Promise, Violation
from trellis.judge.story import NEVER, Publication, Story, Subscription


def retained(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """Retained messages come only as such, not too often, and a new subscription gets the last one of each topic."""
    yield from _not_retained(story, promise)
    yield from _too_often(story, promise, calm)
    if len({made.topic for made in story.publications.values() if made.retain}) > promise.retained_max:
        return
    calm = Calm(story, promise.registered_s, promise.grace_s)  # By then every node knows all subscribers again.
    for subscription in story.subscriptions():
        # A broker keeps retained messages of its own, and native clients get none.
        is_judged = (
            subscription.is_promised
            and subscription.confirmed < NEVER
            and not subscription.is_shared
            and not subscription.session.broker
        )
        if is_judged and subscription.session.speaks != "native":
            for said in story.topics_of(subscription.wish):
                kept = [made for made in story.by_topic[said] if made.retain] if said.speaks != "native" else []
                if kept:
                    yield from _missing(story, promise, calm, counts, subscription, kept)


def _not_retained(story: Story, promise: Promise) -> Iterator[Violation]:
    """Only a message that was published as a retained one comes as such."""
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if made is None or made.retain or not got.retained:
                continue
            if not story.may_be_false(made.began, got.t, promise.window_s):
                text = f"{session.name} got {made.message} on {made.topic} as a retained message, which it was not"
                yield Violation("retained", got.t, text, session.name, made.message)


def _too_often(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """A retained message comes once for each request, and once when it is published to a subscription that stands.

    A publisher that did not hear the acknowledgement publishes it again.
    """
    for session in story.sessions.values():
        times: dict[str, list[float]] = defaultdict(list)
        for got in session.received:
            times[got.message].append(got.t)
        is_retained = {got.message for got in session.received if got.retained}
        for message in sorted(is_retained):
            made, when = story.publications.get(message), times[message]
            if made is None or len(when) < 2 or not calm.is_calm(made.began, when[-1]):
                continue
            wanted = [subscription for subscription in session.subscriptions if subscription.wants(made.said)]
            asked = sum(
                t <= when[-1] and t + calm.grace_s >= made.began for subscription in wanted for t in subscription.asks
            )
            sent = [made.began, *(t for t in repetitions(story, promise, made) if t <= when[-1])]
            live = sum(
                any(subscription.asked <= made.answered and t <= subscription.last for subscription in wanted)
                for t in sent
            )
            if unexcused(story, promise, session, calm, when) + 1 > asked + live:
                text = f"{session.name} got the retained message {message} {len(when)} times, and asked {asked} times"
                yield Violation("retained", when[-1], text, session.name, message)


def _missing(
    story: Story, promise: Promise, calm: Calm, counts: Counts, subscription: Subscription, kept: list[Publication]
) -> Iterator[Violation]:
    """The last retained message on a topic comes after the confirmation, and none that it has replaced.

    An empty payload removes it, and then none comes.
    """
    session = subscription.session
    within_s = promise.recalled_s if has_wildcard(subscription.filter) else promise.retained_s
    due = subscription.confirmed + within_s
    before = [made for made in kept if made.acknowledged + promise.grace_s <= subscription.asked]
    if any(made.session.broker and made.began <= due for made in kept):
        return  # "3.1.1 sets RETAIN only on what answers a SUBSCRIBE", so a sidecar may bring it as a plain message
    if not before or due > min(subscription.ended, story.end) or session.was_away(subscription.asked, due):
        return
    # Publications without an answer, or with a late one, may have replaced it or not.
    others = [made for made in kept if made not in before and made.began <= due and made.refused == NEVER]
    lasts = _lasts(before)
    last = lasts[-1]
    nodes = sorted({made.node for made in before})
    each_last = [made for node in nodes for made in _lasts([made for made in before if made.node == node])]
    right = {made.message for made in (*each_last, *others) if not made.removes}
    may_be_none = any(made.removes for made in (*each_last, *others))
    # One that has replaced it may be gone with its own node.
    may_be_gone = any(story.was_down(made.node, made.began, due) for made in (*lasts, *others))
    if may_be_gone or not calm.is_calm(subscription.asked, due) or _was_dropped(story, subscription.asked, due):
        return
    if story.may_be_false(lasts[0].began, due, promise.window_s):
        return
    counts.retained_judged += 1
    got = [each for each in session.received if subscription.asked <= each.t <= due and each.topic == last.topic]
    replaced = {made.message for made in before} - right
    got += [each for each in session.received if due < each.t <= subscription.ended and each.message in replaced]
    stale = next((each for each in got if each.retained and each.message not in right), None)
    if stale is not None and not calm.is_calm(subscription.asked, stale.t):
        stale = None
    if stale is not None:
        done = "removed" if last.removes else "replaced"
        text = f"{session.name} got the retained message {stale.message}; {last.message} had {done} it"
        yield Violation("retained", stale.t, text, session.name, stale.message)
    elif not may_be_none and not any(each.message in right for each in got):
        text = (
            f"{session.name} at {session.node_at(subscription.confirmed)} did not get the retained message "
            f"{last.message} on {last.topic}: confirmed at {subscription.confirmed:.3f} s, "
            f"retained at {last.acknowledged:.3f} s through {last.node}"
        )
        yield Violation("retained", subscription.confirmed, text, session.name, last.message)


def _was_dropped(story: Story, begin: float, end: float) -> bool:
    """Tell whether a window may have dropped the question of a node for retained messages, or an answer.

    Both are publications, which nobody repeats when a window has dropped them.  [docs/mqtt.md, Retained messages]
    """
    return any(overflow.where == "window" and begin <= overflow.t <= end + TOLD_S for overflow in story.overflows)


def _lasts(several: list[Publication]) -> list[Publication]:
    """Return those of some acknowledged publications, in the order in which they began, that may be the last.

    A publication comes to its node before it is acknowledged, perhaps again if the connection of its client was lost.
    Otherwise the publications of one session come in their order.
    """
    newest = several[-1]
    latest = {made.session.name: made for made in several}
    return [
        made
        for made in several
        if made is newest
        or (made.acknowledged > newest.began and (made is latest[made.session.name] or lost_its_connection(made)))
    ]
