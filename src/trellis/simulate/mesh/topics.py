"""Define the topics and filters that clients choose from.

Wildcards may miss messages of native clients (docs/mqtt.md, Clients of `trellis.connect`). So wildcards match only
topics of MQTT clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from trellis.judge.filters import matches

NATIVE = ("n/oven", "n/press", "n/hall")
MQTT = ("m/oven", "m/press", "m/hall/lamp", "m/hall/door")
SHARED = ("b/oven", "b/press")
WILDCARDS = ("m/#", "m/+", "m/hall/#", "m/hall/+", "m/+/lamp")
_WANTED_SHARE = 0.6  # share of publications on topics with a confirmed subscription, if there is such a topic


def native_topics(random: Random, most: int) -> list[str]:
    """Draw different topics for a native subscriber."""
    known = (*NATIVE, *SHARED)
    return random.sample(known, random.randint(1, min(most, len(known))))


def mqtt_filter(random: Random) -> str:
    """Draw a filter for an MQTT subscriber."""
    plain = (*MQTT, *SHARED)
    return random.choice(WILDCARDS) if random.random() < 0.5 else random.choice(plain)


def retained_filters(random: Random) -> list[str]:
    """Draw filters that match every topic of MQTT clients, each once: with a wildcard, or all topics by name."""
    return random.choice((["m/#", *SHARED], [*MQTT, *SHARED]))


def topic_to_publish(random: Random, *, is_native: bool, wanted: Sequence[str] = ()) -> str:
    """Draw a topic for a publication.

    Most are drawn among topics that match `wanted`, filters of confirmed subscriptions.
    """
    own = NATIVE if is_native else MQTT
    known: list[str] = [*own, *SHARED]
    if random.random() < _WANTED_SHARE:
        known = [topic for topic in known if any(matches(one, topic) for one in wanted)] or known
    return random.choice(known)
