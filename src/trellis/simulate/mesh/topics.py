"""The topics and filters that clients choose from.

Wildcards may miss messages of native clients (docs/mqtt.md, Clients of `trellis.connect`). So wildcards match
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
    plain = (*MQTT, *SHARED)
    return random.choice(WILDCARDS) if random.random() < 0.5 else random.choice(plain)


def topic_to_publish(random: Random, *, is_native: bool) -> str:
    own = NATIVE if is_native else MQTT
    known: list[str] = [*own, *SHARED]
    return random.choice(known)
