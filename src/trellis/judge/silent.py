"""Messages that a wildcard may miss, of nodes that were silent when it was confirmed.  [docs/mqtt.md, Wildcards]

"If a node does not answer within `suback_s` [...], SUBACK is sent all the same [...]. What is published through such a
node before it has taken the pattern in may be missed. After ten seconds without an answer nobody waits for that node
until it says anything." So a SUBACK in a cut that has lasted for ten seconds counts on the nodes of its own side alone.
A node that stands still is silent as well.
"""

from __future__ import annotations

from collections import defaultdict

from trellis.judge.copies import APART_S
from trellis.judge.excuses import WHOLE_S
from trellis.judge.faults import is_silent, joined
from trellis.judge.filters import has_wildcard, stands_on, unshared
from trellis.judge.story import Publication, Story, Subscription

_SILENT_S = 10.0  # A node that has not answered for so long is not waited for.


def why_missed(story: Story, made: Publication, reader: Subscription) -> str | None:
    """Return why a wildcard that was confirmed while the publisher's node was silent may miss a message, or None."""
    node = reader.session.node_at(reader.confirmed)
    if reader.session.speaks == "native" or not has_wildcard(_pattern(story, reader)) or made.node == node:
        return None
    faults = (fault for fault in story.disturbances if is_silent(fault, made.node, node))
    for begin, end in joined(((fault.t, fault.until) for fault in faults), APART_S):
        was_silent = begin + _SILENT_S <= reader.confirmed <= end + WHOLE_S
        if was_silent and made.began <= end + WHOLE_S and not _was_known(story, made, node, begin):
            return "its publisher's node was silent, and did not know the wildcard"
    return None


def _was_known(story: Story, made: Publication, node: str, t: float) -> bool:
    """Tell whether all nodes knew before `t` that `node` wants the message, and `node` has wanted it ever since.

    Another client of `node` may have subscribed. Each pattern counts by itself: one that is new is not known.
    """
    held: dict[str, list[Subscription]] = defaultdict(list)
    for subscription in story.on_topic(made.said, stands_on):
        if subscription.session.speaks != "native" and subscription.session.node_at(subscription.asked) == node:
            held[_pattern(story, subscription)].append(subscription)
    for holders in held.values():
        spans = joined((subscription.asked, subscription.ended) for subscription in holders)
        known = [
            subscription.confirmed
            for subscription in holders
            if subscription.is_promised and subscription.confirmed < t
        ]
        if any(first <= since <= last and made.began <= last for first, last in spans for since in known):
            return True
    return False


def _pattern(story: Story, subscription: Subscription) -> str:
    """Return the levels of a filter that nodes tell each other."""
    return "/".join(unshared(subscription.filter).split("/")[: story.depth])
