"""What a subscriber is owed, word for word as docs/live.md says it: everything is looked up in the whole history."""

from __future__ import annotations

from typing import NamedTuple


class Happening(NamedTuple):
    what: str  # born, died, confirmed, unsubscribed, published, acknowledged, delivered
    node: str = ""
    topic: str = ""
    number: int = 0


def lives(history: list[Happening], node: str, before: int) -> int:
    return sum(one.what == "died" and one.node == node for one in history[:before])


def judge(history: list[Happening]) -> tuple[set[tuple[int, str, int]], set[tuple[int, str, int]], int]:
    """(number, node, life) that are owed; those of them that were not delivered; deliveries that were repeated."""
    deliveries = [
        (one.number, one.node, lives(history, one.node, place))
        for place, one in enumerate(history)
        if one.what == "delivered"
    ]
    owed = set()
    for place, publication in enumerate(history):
        if publication.what != "published" or not any(
            one.what == "acknowledged" and one.number == publication.number for one in history
        ):
            continue
        for node in {one.node for one in history[:place] if one.what == "confirmed" and one.topic == publication.topic}:
            life = lives(history, node, place)
            since = [
                one.what
                for at, one in enumerate(history[:place])
                if one.node == node and lives(history, node, at) == life
                and one.what in ("confirmed", "unsubscribed") and one.topic == publication.topic
            ]  # fmt: skip
            if not since or since[-1] == "unsubscribed":
                continue
            end = next(  # its death or unsubscription releases what it has not got by then
                (
                    at
                    for at, one in enumerate(history)
                    if at > place and one.node == node
                    and (one.what == "died" or (one.what, one.topic) == ("unsubscribed", publication.topic))
                ),
                None,
            )  # fmt: skip
            has_it = any(
                one.what == "delivered" and one.node == node and one.number == publication.number
                for one in history[place:end]
            )
            if end is None or has_it:
                owed.add((publication.number, node, life))
    return owed, owed.difference(deliveries), len(deliveries) - len(set(deliveries))
