"""The topics and filters that clients choose from.

Messages of native clients on a new topic may be missed by wildcards (docs/mqtt.md, The moment), so wildcards match
topics of MQTT clients alone.
"""

from __future__ import annotations

from random import Random

NATIVE = ("n/oven", "n/press", "n/hall")
MQTT = ("m/oven", "m/press", "m/hall/lamp", "m/hall/door")
SHARED = ("b/oven", "b/press")
WILDCARDS = ("m/#", "m/+", "m/hall/#", "m/hall/+", "m/+/lamp")


def native_topics(random: Random, most: int) -> list[str]:
    """Draw different topics for a native subscriber."""
    known = (*NATIVE, *SHARED)
    return random.sample(known, random.randint(1, min(most, len(known))))


def mqtt_filter(random: Random) -> str:
    """Draw a filter for an MQTT subscriber."""
    return random.choice(WILDCARDS if random.random() < 0.5 else (*MQTT, *SHARED))


def topic_to_publish(random: Random, *, is_native: bool) -> str:
    return random.choice((*(NATIVE if is_native else MQTT), *SHARED))
