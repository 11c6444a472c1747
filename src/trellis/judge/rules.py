"""One function for each promise. Each yields the violations of its promise.

The comments quote `docs/delivery.md` and `docs/mqtt.md`, which are all that this module knows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from trellis.judge.behind import Behind
from trellis.judge.calm import Calm
from trellis.judge.copies import APART_S, LONG
from trellis.judge.excuses import is_between_brokers, lost_its_connection, repetitions, spread_by, unexcused, why_lost
from trellis.judge.faults import is_among, joined
from trellis.judge.filters import Said, overlay_topic
from trellis.judge.history import Received
from trellis.judge.interest import why_forgotten
from trellis.judge.limits import Drops, may_be_full, was_pushed_out
from trellis.judge.promise import Counts, Promise, Violation
from trellis.judge.silent import why_missed
from trellis.judge.story import NEVER, Publication, Session, Story, Subscription


def not_what_was_published(story: Story, promise: Promise) -> Iterator[Violation]:
    """A client gets only messages that were published, on the topic on which they were published.

    Native clients get messages of MQTT clients on the overlay topic, which is the first levels of the whole one.
    """
    for session in story.sessions.values():
        for got in session.received:
            if story.may_be_false(got.t - promise.spread_s, got.t, promise.window_s):
                continue
            made = story.publications.get(got.message)
            if made is None:
                text = f"{session.name} got {got.message} on {got.topic}, which nobody published"
                yield Violation("unknown", got.t, text, session.name, got.message)
            elif got.topic != made.topic and not (
                session.speaks == "native" and got.topic == overlay_topic(made.said, story.depth)
            ):
                text = f"{session.name} got {got.message} on {got.topic}; it was published on {made.topic}"
                yield Violation("unknown", got.t, text, session.name, got.message)
            elif got.t < made.began:
                text = f"{session.name} got {got.message} {made.began - got.t:.3f} s before it was published"
                yield Violation("unknown", got.t, text, session.name, got.message)


def not_subscribed(story: Story, calm: Calm) -> Iterator[Violation]:
    """A client gets nothing that it did not ask for.

    A message that was on its way when the client unsubscribed may still come, also after UNSUBACK.
    [MQTT 5, 3.10.4; 3.1.1, 3.10.4]
    """
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if not any(
                subscription.asked
                <= got.t
                <= (
                    subscription.over
                    if made is None or made.began > subscription.over
                    else _over_by(subscription, calm)
                )
                for subscription in _matching(session, got, made)
            ):
                text = f"{session.name} got {got.message} on {got.topic} without a subscription to it"
                yield Violation("not subscribed", got.t, text, session.name, got.message)


def _over_by(subscription: Subscription, calm: Calm) -> float:
    """Return until when a client may get what was published before its subscription was over.

    A slow application may read messages after the end of its session, if the connection had brought them before.
    """
    if subscription.last >= subscription.session.ended:
        return NEVER
    return calm.due(subscription.last, subscription.last)


def _matching(session: Session, got: Received, made: Publication | None) -> list[Subscription]:
    """Return the subscriptions of a session that a message is for."""
    is_known = made is not None and (got.topic == made.topic or session.speaks == "native")
    said = made.said if made is not None and is_known else Said("", got.topic)
    return [subscription for subscription in session.subscriptions if subscription.wants(said)]


def older_than_subscribed(story: Story, promise: Promise) -> Iterator[Violation]:
    """A message that was acknowledged long before the client subscribed comes only as a retained message.

    Messages that were published during an earlier subscription may still be on their way. A broker keeps messages by
    itself. A fault may hold a message up, and its age does not count the time on the network.
    """
    calm = Calm(story, promise.registered_s, promise.grace_s)
    for session in story.sessions.values():
        for got in session.received:
            made = story.publications.get(got.message)
            if made is None or got.retained or story.may_be_false(made.began, got.t, promise.window_s):
                continue
            if made.retain and (session.broker or not session.speaks):
                continue  # a broker keeps retained messages of its own; native clients get none
            if made.session.broker:
                continue  # its broker has acknowledged it, and the sidecar may give it to the mesh later
            wanted = [subscription for subscription in _matching(session, got, made) if subscription.asked <= got.t]
            if not session.broker:
                wanted = [subscription for subscription in wanted if made.began <= subscription.last + promise.grace_s]
            asked = min((subscription.asked for subscription in wanted), default=None)
            if asked is None or made.acknowledged + promise.grace_s >= asked:
                continue
            # Nodes drop messages that are older than two windows.
            if calm.is_calm(max(made.began, asked - 2 * promise.window_s), got.t):
                text = (
                    f"{session.name} got {got.message}, which was acknowledged "
                    f"{asked - made.acknowledged:.1f} s before it subscribed"
                )
                yield Violation("older", got.t, text, session.name, got.message)


def twice(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """No application gets a message twice.

    Three cases are allowed. A node that has restarted has forgotten the messages that it had not acknowledged, so the
    publisher's repetition counts as new. A session that comes back gets the messages again that it had not
    acknowledged. Messages on their way between a broker and its sidecar may come again, if their connection breaks or
    one of them ends.
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
            if is_between_brokers(story, session, made, calm, when[-1]):
                counts.excused["twice: it was under way between a broker and its sidecar"] += 1
                continue
            repeated = 0
            if made is not None and when[-1] <= _due(session, made, calm) + promise.window_s:
                repeated = len(repetitions(story, promise, made))
            copies = unexcused(story, promise, session, calm, when)
            if copies <= repeated:
                why = "the publisher repeated it after a lost connection" if repeated else "the session came back"
                counts.excused[f"twice: {why}"] += 1
            if copies <= repeated + _more_than_one(session, made):
                continue
            text = f"{session.name} got {message} {len(when)} times"
            yield Violation("twice", when[1], text, session.name, message)


def _more_than_one(session: Session, made: Publication | None) -> int:
    """Return how often a session gets a message more than once: once for all plain filters, and for each shared one."""
    if made is None:
        return 0
    wanted = {
        subscription.filter if subscription.is_shared else ""
        for subscription in session.subscriptions
        if subscription.wants(made.said)
    }
    return max(0, len(wanted) - 1)


def both_of_a_group(story: Story, promise: Promise) -> Iterator[Violation]:
    """One of the sessions that share a subscription gets each message.

    A message may go to another session if the first one has not acknowledged it when its connection is lost or when it
    ends. So may a message of a node that is silent for `share_takeover_s` and goes on running.
    """
    takers: dict[tuple[str, str], list[tuple[float, Session]]] = defaultdict(list)
    for shared in story.by_filter.values():
        for session in {
            id(subscription.session): subscription.session for subscription in shared if subscription.is_shared
        }.values():
            for got in session.received:
                made = story.publications.get(got.message)
                if made is None or got.retained or lost_its_connection(made):
                    continue
                own = [subscription for subscription in session.subscriptions if subscription.wants(made.said)]
                if own and all(subscription.filter == shared[0].filter for subscription in own):
                    takers[shared[0].filter, got.message].append((got.t, session))
    for (wanted, message), takes in takers.items():
        first, taker = takes[0]
        for t, second_taker in sorted(takes[1:], key=lambda take: take[0]):
            begin, end = min(first, t), max(first, t)
            is_lost = any(each.was_away(begin, end) or begin <= each.ended <= end for each in (taker, second_taker))
            is_lost = is_lost or _was_silent(
                story, promise, {taker.node_at(begin), second_taker.node_at(begin)}, message, end
            )
            if second_taker is not taker and not is_lost and not story.may_be_false(begin, end, promise.window_s):
                text = f"{taker.name} and {second_taker.name} share {wanted}, and both got {message}"
                yield Violation("twice", t, text, second_taker.name, message)


def _was_silent(story: Story, promise: Promise, nodes: set[str], message: str, end: float) -> bool:
    """Tell whether a fault kept the node of a member silent for long, between the publication and `end`."""
    made = story.publications[message]
    faults = (fault for fault in story.disturbances if is_among(fault, {*nodes, made.node}))
    spans = joined(((fault.t, fault.until) for fault in faults), APART_S)
    return any(
        first <= end and last >= made.began and last - first >= LONG * promise.takeover_s for first, last in spans
    )


def out_of_order(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """The messages of one client on one topic arrive in the order in which it published them.

    So do the messages of all clients of a node, if each was acknowledged before the next one began. Nothing is promised
    between two nodes, nor between two incarnations of one, nor about what was published before the subscription was
    confirmed. A broker keeps the order of messages with QoS 0 and that of all others, each by itself.
    """
    for session in story.sessions.values():
        last: dict[tuple[str, str, str, int, bool], Publication] = {}
        newest: dict[tuple[str, str, int, bool], Publication] = {}  # through one incarnation of a node, of all clients
        had: set[str] = set()
        for got in session.received:
            made = story.publications.get(got.message)
            is_again = got.message in had  # judged by `twice`: a session that came back gets again what it had
            had.add(got.message)
            if (
                made is None
                or got.retained
                or is_again
                or (lost_its_connection(made) and got.t <= _due(session, made, calm) + promise.window_s)
                or not _was_promised(session, made)
            ):
                continue
            if story.may_be_false(made.began, got.t, promise.window_s):
                continue
            starts = sum(1 for up in story.ups if up.node == made.node and up.t <= made.began)
            may_overtake = made.qos == 0 and bool(session.broker or made.session.broker)
            key = made.session.name, made.topic, made.node, starts, may_overtake
            before = last.get(key)
            if before is None or before.number < made.number:
                before = newest.get(key[1:])
                if before is not None and (before.began <= made.acknowledged or made.session.broker):
                    before = None  # they were under way to the node at the same time
            if key[1:] not in newest or newest[key[1:]].began < made.began:
                newest[key[1:]] = made
            if before is not None:
                if is_between_brokers(story, session, made, calm, got.t) or was_pushed_out(story, made, got.t):
                    continue  # it comes again, behind others
                text = f"{session.name} got {made.message} after {before.message}, which was published later"
                yield Violation("order", got.t, text, session.name, made.message)
            else:
                last[key] = made


def lost(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """An acknowledged message reaches every subscription that was confirmed before it was published.

    A session that is away gets the messages that are kept for it when it is back. If several sessions share a
    subscription, one of them gets the message.
    """
    shared, all_got = _received_by_groups(story), dict[str, set[str]]()
    drops, behind = Drops(story, promise), Behind(story)
    for subscription in story.subscriptions():
        session = subscription.session
        if subscription.confirmed == NEVER or not subscription.is_promised:
            continue
        ended = min(subscription.ended, story.end)
        if subscription.is_shared:
            got = shared[subscription.filter]
        elif session.name in all_got:
            got = all_got[session.name]
        else:
            got = all_got[session.name] = session.got()
        for made in _published(story, subscription):
            taken = behind.taken(made)
            if taken == NEVER or _due(session, made, calm) > ended:
                continue
            if taken > made.acknowledged and calm.due(taken, taken) > ended:
                continue  # it may have waited at its broker until the subscription was over
            if story.may_be_false(made.began, made.acknowledged + promise.spread_s, promise.window_s):
                continue
            counts.owed += 1
            if made.message in got:
                continue
            excuse = (
                why_lost(story, promise, made, session)
                or why_missed(story, made, subscription)
                or why_forgotten(story, promise, made, session)
            )
            if excuse is None and story.overflows:
                spread = spread_by(story, promise, made, session)
                excuse = drops.why_lost(made, session, _due(session, made, calm), spread)
            if excuse is not None:
                counts.excused[f"lost: {excuse}"] += 1
                continue
            note = " (the node said that messages are missing)" if session.missed else ""
            text = (
                f"{session.name} at {session.node_at(made.began)} did not get {made.message} on {made.topic}: "
                f"confirmed at {subscription.confirmed:.3f} s, published at {made.began:.3f} s, acknowledged at "
                f"{made.acknowledged:.3f} s by {', '.join(made.holders) or 'its node'}{note}"
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
    received: dict[str, set[str]] = defaultdict(set)
    for subscription in story.subscriptions():
        if subscription.is_shared:
            received[subscription.filter] |= subscription.session.got()
    return received


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
    for subscription in story.subscriptions():
        if subscription.confirmed < NEVER or story.may_be_false(
            subscription.asked, subscription.asked + promise.confirm_s, promise.window_s
        ):
            continue
        due = calm.due(subscription.asked, subscription.asked + promise.confirm_s)
        if due <= min(subscription.ended, story.end) and not subscription.session.was_away(subscription.asked, due):
            text = (
                f"{subscription.session.name} asked for {subscription.filter} at {subscription.asked:.3f} s "
                "and was never confirmed"
            )
            yield Violation("outcome", subscription.asked, text, subscription.session.name)


def refused_in_calm(story: Story, promise: Promise, calm: Calm) -> Iterator[Violation]:
    """In a calm mesh publications are taken, and nodes take clients. Limits are the only reasons to refuse."""
    for made in story.publications.values():
        if promise.may_refuse is None or made.refused == NEVER or not calm.is_calm(made.began, made.refused):
            continue
        is_down = story.down_since(made.node, made.refused) is not None
        if made.session.was_away(made.began, made.refused) or is_down:
            continue  # it did not come to a node
        if not any(words in made.reason for words in promise.may_refuse):
            text = f"{made.message} on {made.topic} was refused in calm: {made.reason or 'without a reason'}"
            yield Violation("refused", made.refused, text, made.session.name, made.message)
    for unreachable in story.unreachable:
        if may_be_full(story, promise, unreachable):
            continue
        if calm.is_calm(unreachable.since, unreachable.t) and story.down_since(unreachable.node, unreachable.t) is None:
            text = (
                f"{unreachable.client} could not connect to {unreachable.node} within "
                f"{unreachable.t - unreachable.since:.1f} s of calm: {unreachable.reason}"
            )
            yield Violation("refused", unreachable.t, text)


def late(story: Story, promise: Promise) -> Iterator[Violation]:
    """A crash holds up no acknowledgement for long, if nothing else disturbs the mesh.

    "A mesh that has just started takes up to 20 seconds until it is sure of itself", and so does a node.
    """
    starts = [up.t for up in story.ups]
    for made in story.publications.values():
        waited, due = made.acknowledged - made.began, made.began + promise.acknowledge_s
        if not promise.acknowledge_s < waited < NEVER or made.session.was_away(made.began, due):
            continue
        if any(fault.t <= due and fault.until + promise.settle_s >= made.began for fault in story.disturbances):
            continue
        if any(made.began - promise.start_s <= t <= due for t in starts):
            continue
        text = (
            f"{made.message} on {made.topic} waited {waited:.1f} s for its acknowledgement, with no fault but crashes"
        )
        yield Violation("late", made.acknowledged, text, made.session.name, made.message)


def _published(story: Story, subscription: Subscription) -> Iterator[Publication]:
    """Publications that the filter matches and that began after the confirmation and before the end.

    Those that remove a retained message come without a name.
    """
    for said in story.topics_of(subscription.wish):
        if not subscription.is_owed(said):
            continue
        made = story.by_topic[said]
        first = bisect_left(made, subscription.first, key=lambda publication: publication.number)
        for publication in made[first:]:
            if publication.began >= subscription.ended:
                break
            if not publication.removes:
                yield publication


def _was_promised(session: Session, made: Publication) -> bool:
    return any(
        subscription.confirmed <= made.began and subscription.is_owed(made.said)
        for subscription in session.subscriptions
    )
