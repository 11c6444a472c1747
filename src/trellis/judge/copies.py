"""An acknowledgement names nodes that hold the message, and enough of them."""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.calm import Calm
from trellis.judge.faults import is_among, is_cut_between, joined
from trellis.judge.filters import is_sure_of, stands_on
from trellis.judge.promise import Counts, Promise, Violation
from trellis.judge.story import NEVER, Publication, Story, Subscription

_LATELY_S = 1.0  # A subscription counts so long after its confirmation.
APART_S = 5.0  # Faults that are less apart count as one: links need a moment.
LONG = 2 / 3  # share of `registered_s`: a shorter cut or pause makes no node forget a subscriber


def copies(story: Story, promise: Promise, calm: Calm, counts: Counts) -> Iterator[Violation]:
    """An acknowledgement names `copies` nodes, unless fewer nodes have subscribers (the publisher's node counts)."""
    tells = {
        id(publication.session)
        for publication in story.publications.values()
        if publication.holders or publication.session.speaks == "native"
    }
    long_ones = _long_faults(story, promise)
    for made in story.publications.values():
        if made.acknowledged == NEVER or id(made.session) not in tells:
            continue
        if story.may_be_false(made.began, made.acknowledged, promise.window_s):
            continue
        for text in (
            _not_true(story, promise, made)
            or _too_few(story, promise, counts, made, long_ones)
            or _strange(story, promise, calm, made)
        ):
            yield Violation("copies", made.acknowledged, text, made.session.name, made.message)


def may_hold(story: Story, promise: Promise, made: Publication) -> set[str]:
    """Return the nodes that may count as holders: those with subscribers of the overlay topic, now or recently.

    A node also takes part in the topics of a session that it keeps for a client that is not connected.

    "The node through which [a retained message] was published stays on its overlay topic as long as it is retained."
    The first `copies` nodes by a hash join it as well (`keepers.py`). The history does not name them, so any node may.
    """
    if any(publication.began <= made.acknowledged for publication in story.retained_under(made.topic)):
        return set(story.nodes()) | {made.node}
    nodes = {made.node}
    for subscription in story.on_topic(made.said, stands_on):
        is_there = subscription.session.is_kept or subscription.ended + promise.window_s >= made.began
        if subscription.asked <= made.acknowledged and is_there:
            nodes.add(subscription.session.node_at(made.began))
    return nodes


def _not_true(story: Story, promise: Promise, made: Publication) -> list[str]:
    """Say which holders cannot hold the message."""
    if not made.holders:
        return [f"{made.message} on {made.topic} is acknowledged, and no node holds it"]
    if len(set(made.holders)) != len(made.holders):
        return [f"{made.message} is acknowledged by {', '.join(made.holders)}: a node counts twice"]
    known = story.nodes()
    for node in made.holders:
        if story.ups and node not in known:
            return [f"{made.message} counts a copy at {node}, which is no node of the history"]
        down = story.down_since(node, made.acknowledged)
        if down is not None and story.gone_by(down, promise.window_s) + promise.grace_s < made.began:
            return [f"{made.message} counts a copy at {node}, which has ended at {down.t:.3f} s"]
    return []


def _too_few(
    story: Story, promise: Promise, counts: Counts, made: Publication, long_ones: list[tuple[float, float]]
) -> list[str]:
    """Say which nodes should hold the message as well.

    "A publisher's node may acknowledge with fewer than `copies` holders only with proof: the topic's home location,
    asked after the publication, names fewer live subscribers than `copies`, and all of them hold it." "So a subscriber
    counts unless it was cut off from the home for `registered_ms`."
    """
    if any(begin <= made.acknowledged and end + promise.registered_s >= made.began for begin, end in long_ones):
        return []
    there = {made.node}
    for subscription in story.on_topic(made.said, is_sure_of):
        node = subscription.session.node_at(made.began)
        is_there = (
            subscription.is_promised
            and subscription.confirmed + _LATELY_S <= made.began
            and subscription.ended > made.acknowledged
        )
        if is_there and _stays(story, promise, node, made) and not _is_unknown(story, subscription, node, made):
            there.add(node)
    counts.copies_judged += len(there) > 1
    if len(made.holders) >= min(promise.copies, len(there)):
        return []
    return [
        f"{made.message} on {made.topic} is acknowledged by {', '.join(made.holders)} alone, while "
        f"{', '.join(sorted(there))} subscribe or published it"
    ]


def _stays(story: Story, promise: Promise, node: str, made: Publication) -> bool:
    """Tell whether nothing took `node` away around the publication."""
    return not story.was_down(node, made.began - promise.registered_s, made.acknowledged)


def _is_unknown(story: Story, subscription: Subscription, node: str, made: Publication) -> bool:
    """Tell whether a cut has hidden the subscription from the publisher's side ever since the client asked for it."""
    cuts = (fault for fault in story.disturbances if is_cut_between(fault, node, made.node))
    spans = joined(((fault.t, fault.until) for fault in cuts), APART_S)
    return any(
        begin <= subscription.confirmed and end >= subscription.asked and end + APART_S >= made.began
        for begin, end in spans
    )


def _long_faults(story: Story, promise: Promise) -> list[tuple[float, float]]:
    """Return from when to when faults lasted that may have hidden a subscriber from its topic's home location.

    Any node may be that location.
    """
    nodes = story.nodes()
    spans = joined(((fault.t, fault.until) for fault in story.disturbances if is_among(fault, nodes)), APART_S)
    return [(begin, end) for begin, end in spans if end - begin > LONG * promise.registered_s]


def _strange(story: Story, promise: Promise, calm: Calm, made: Publication) -> list[str]:
    """Say which holders have no reason to hold the message, in calm."""
    if not calm.is_calm(made.began - promise.registered_s, made.acknowledged):
        return []
    strangers = set(made.holders) - may_hold(story, promise, made) - _may_have_learned(story, promise, made)
    if not strangers:
        return []
    return [f"{made.message} counts a copy at {', '.join(sorted(strangers))}, where nobody subscribes"]


def _may_have_learned(story: Story, promise: Promise, made: Publication) -> set[str]:
    """Return the nodes that may count although the last client at their broker that subscribed has gone.

    A sidecar learns from its broker's counts that a session has ended, and these may leave it in doubt until
    `learn_away_s` has passed. It hears of each unsubscription.
    """
    nodes = set()
    for subscription in story.on_topic(made.said, stands_on):
        is_in_doubt = subscription.session.broker and subscription.ended >= subscription.session.ended
        if (
            is_in_doubt
            and subscription.asked <= made.acknowledged
            and subscription.ended + promise.learned_s >= made.began
        ):
            nodes.add(subscription.session.node_at(made.began))
    return nodes
