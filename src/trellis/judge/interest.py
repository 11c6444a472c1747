"""Messages that the node of a publisher that does not subscribe may forget in a long cut.  [docs/delivery.md, Limits]

"`interest_ms` does [bound how long an outage may last] for messages of publishers that do not subscribe: where a
partition leaves only such nodes on a side, they forget what nobody there wants when their interest ends."
"""

from __future__ import annotations

from trellis.judge.copies import APART_S, LONG
from trellis.judge.excuses import WHOLE_S
from trellis.judge.faults import is_cut_between, joined
from trellis.judge.filters import overlay_topic, stands_on
from trellis.judge.promise import Promise
from trellis.judge.story import Publication, Session, Story


def why_forgotten(story: Story, promise: Promise, made: Publication, reader: Session) -> str | None:
    """Return why the publisher's node may have forgotten a message for the other side of a cut, or None.

    The node must have been cut off for so long that its own copy was enough. Its interest lasts `interest_s` after the
    last publication on the topic.
    """
    cuts = [fault for fault in story.disturbances if is_cut_between(fault, made.node, reader.node_at(made.began))]
    for begin, end in joined(((fault.t, fault.until) for fault in cuts), APART_S):
        if not begin + LONG * promise.registered_s <= made.acknowledged <= end:
            continue
        last = max(publication.began for publication in _on_topic(story, made) if publication.began <= end)
        if last + promise.interest_s <= end + WHOLE_S and not _is_wanted(story, made, begin, end):
            return "nobody on its publisher's side of a cut wanted it, and the node's interest ended"
    return None


def _on_topic(story: Story, made: Publication) -> list[Publication]:
    """Return the publications through the same node on the same overlay topic."""
    topic = overlay_topic(made.said, story.depth)
    return [
        publication
        for publication in story.publications.values()
        if publication.node == made.node and overlay_topic(publication.said, story.depth) == topic
    ]


def _is_wanted(story: Story, made: Publication, begin: float, end: float) -> bool:
    """Tell whether a node on the publisher's side kept the message: it has a subscriber, or a client there got it.

    "The node through which [a retained message] was published stays on its overlay topic as long as it is retained."
    """
    if set(made.holders) - {made.node}:
        return True
    if any(publication.retain and publication.began <= end for publication in _on_topic(story, made)):
        return True
    wanted = [
        subscription
        for subscription in story.on_topic(made.said, stands_on)
        if subscription.asked <= end and subscription.last >= made.began
    ]
    if any(_is_beside(story, made, subscription.session.node_at(made.began), begin, end) for subscription in wanted):
        return True
    return any(
        got.message == made.message and got.t < end for session in story.sessions.values() for got in session.received
    )


def _is_beside(story: Story, made: Publication, node: str, begin: float, end: float) -> bool:
    """Tell whether a node was on the publisher's side of the network from `begin` to `end`, and did not end."""
    if node == made.node:
        return True
    is_apart = any(
        fault.t <= end and fault.until >= begin and is_cut_between(fault, made.node, node)
        for fault in story.disturbances
    )
    return not is_apart and not story.was_down(node, begin, end)
