"""Draw small limits and short time-outs for each seed, so that the code at the limits is reached.

A node with default limits meets them once in years of operation. A node whose queue holds 4 KiB meets them within a
second. FoundationDB calls this "buggify". Most seeds change some values and some seeds change none, because the
promises must hold with the defaults, too.

Values stay within what the documentation calls sensible. A mesh that is told to forget after one second may forget.

`MORE` has the limits at which nodes turn clients away or drop messages, and time-outs that seldom matter. They are
drawn after all others, so that the draws of the others stay the same. `trial.py` tells the judge what such nodes may
do.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from trellis.live.config import LimitsConfig, LiveOMenConfig, NodeConfig
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.mesh.mqtt import KEEP_ALIVE_S

Choices = dict[str, tuple[Any, ...]]

# The first value of each is the smallest at which the promises must still hold.
LIMITS: Choices = {
    "buffer_bytes": (512, 4 << 10, 64 << 10),
    "queue_bytes": (64 << 10, 256 << 10, 1 << 20),
    "stall_s": (3.0, 10.0),
    "connections_max": (12, 32),
    "handshakes_max": (4, 16),
    "handshake_s": (1.0, 3.0),
    "idle_s": (2.0, 10.0),
    "backoff_s": (0.01, 0.5),
    "backoff_s_max": (0.5, 2.0),
    "connect_s": (0.5, 1.0),
    "silent_s": (6.0, 8.0),
    "leave_s": (20.0, 30.0),
    "subscriptions_max": (2, 20),  # A client asks for at most three topics. Attackers ask for more.
    "topics_max": (4, 100),  # There are eleven topics. Attackers use up those of their node.
    "topics_bytes_max": (64, 4 << 10),
}
DELIVERY: Choices = {
    "window_ms": (30_000, 60_000),
    "tick_ms": (200, 500),
    "soon_ms": (5, 20, 100),
    "announce_rounds": (1, 2, 12),
    "pull_rounds": (1, 2, 8),
    "retry_rounds": (5, 40),
    "resend_rounds": (2, 12),
    "flight_bytes": (1 << 10, 8 << 10),
    "flight_frames": (1, 2, 8),
    "queue_max": (1, 4, 32),
    "control_max": (64, 256),
    "pull_max": (1, 4),
    "missing_max": (64, 512),
    "pending_max": (8, 64),
    "batch_ms": (1, 200),
    "ask_ms": (300, 2_000),
    "confirm_ms": (1_000, 3_000),
    "sample_max": (3, 4),
    "copies": (1, 3),
    "payload_bytes_max": (8 << 10, 64 << 10),
    "publish_timeout_ms": (15_000, 20_000),
    "registered_ms": (10_000, 12_000),
}
MQTT: Choices = {
    "inflight_max": (1, 2, 8),
    "queue_max": (200, 500),
    "alias_max": (1, 4),
    "retained_max": (2, 50),
    "spread_ms": (300, 2_000),
    "ask_s": (5.0, 10.0),
    "active_s": (60.0, 120.0),
    "hold_ms": (300, 2_000),
    "packet_bytes_max": (16 << 10, 64 << 10),
    "subscriptions_max": (2, 20),
    "retained_bytes": (4 << 10, 64 << 10),
    "suback_s": (1.0, 3.0),
    "depth": (2, 3),  # With 1, native and MQTT clients would use different topics for the same name of two levels.
}
OMEN: Choices = {
    "period_ms": (500, 1_500),
    "silence_max": (4, 6),
    "coverage": (1, 3),
    "resilience": (2, 4),
    "ask_ms": (100, 400),
    "ask_tries": (3, 6),
}

MORE: dict[str, Choices] = {
    "limits": {"clients_max": (2, 4)},
    "delivery": {
        "window_bytes": (32 << 10, 256 << 10),  # some seconds of the publications of a seed, or nearly all of them
        "clients_max": (1, 20),
        "resend_rounds_max": (12, 20),
        "alone_ms": (12_000, 20_000),
        "register_ms": (1_000, 3_000),
        "leave_ms_max": (8_000, 12_000),
        "tombstone_ms": (180_000,),  # three times the longest `window_ms`
    },
    "mqtt": {
        "clients_max": (2, 4),
        "sessions_max": (3, 6),
        "session_expiry_s_max": (1, 5),
        "filters_bytes": (4 << 10, 16 << 10),  # A short filter counts as 1 KiB.
        "queue_bytes": (24 << 10, 128 << 10),
        "broker_queue_bytes": (24 << 10, 128 << 10),
        "keep_alive_s_max": (KEEP_ALIVE_S, 10),  # Clients of 3.1.1 that ask for a longer one are turned away.
        "introduce_s": (1.0, 3.0),
        "share_takeover_s": (6.0, 10.0),
        "sys_interval_s": (1, 3),
        "learn_away_s": (5, 20),
    },
}
_MORE_SHARES = (0.0, 0.2, 0.4)  # share of the limits in `MORE` that one seed has

# The first two are shorter than a seed, so nodes leave whole topics and join them again.
INTEREST_MS = (1_000, 2_000, 90_000)
_FORGETFUL_SHARE = 0.4
_FIRST = {"limits": LIMITS, "delivery": DELIVERY, "mqtt": MQTT, "omen": OMEN}
TABLES = {table: {**choices, **MORE.get(table, {})} for table, choices in _FIRST.items()}
TABLES["delivery"]["interest_ms"] = INTEREST_MS


def draw_limits(random: Random) -> dict[str, dict[str, Any]]:
    """Draw the settings that all nodes of a mesh share. Return them by table and key."""
    share = random.choice((0.0, 0.1, 0.3, 0.6))
    drawn: dict[str, dict[str, Any]] = {}
    for table, choices in _FIRST.items():
        chosen = {key: random.choice(values) for key, values in choices.items() if random.random() < share}
        if chosen:
            drawn[table] = chosen
    if random.random() < _FORGETFUL_SHARE:
        drawn.setdefault("delivery", {})["interest_ms"] = random.choice(INTEREST_MS)
    omen, limits = drawn.get("omen", {}), drawn.setdefault("limits", {})
    period_s = omen.get("period_ms", 1_000) / 1_000
    # `silent_s` must be longer than the time after which OMen suspects a silent neighbor.
    limits["silent_s"] = max(limits.get("silent_s", 6.0), period_s * omen.get("silence_max", 5) + 1.0)
    share = random.choice(_MORE_SHARES)
    for table, choices in MORE.items():
        chosen = {key: random.choice(values) for key, values in choices.items() if random.random() < share}
        if chosen:
            drawn[table] = {**drawn.get(table, {}), **chosen}
    return drawn


# Limits at which clients of a broker are refused without being told.
UNTOLD = {"limits": ("topics_max", "topics_bytes_max"), "mqtt": ("filters_bytes",)}
# limits that attackers use up for all clients
USED_UP = {"limits": ("clients_max",), "mqtt": ("clients_max", "sessions_max")}
# A peer's lies count for one window. It is short if peers lie, so that the mesh is calm again afterwards.
LYING_WINDOW_MS = 20_000


def without(drawn: dict[str, dict[str, Any]], left_out: dict[str, tuple[str, ...]]) -> dict[str, dict[str, Any]]:
    """Return the drawn limits without those that `left_out` names by table."""
    return {
        table: {key: value for key, value in keys.items() if key not in left_out.get(table, ())}
        for table, keys in drawn.items()
    }


def apply_limits(drawn: dict[str, dict[str, Any]], name: str, fields: dict[str, Any]) -> NodeConfig:
    """Return the configuration of one node, made from the drawn limits and the fields that depend on its host."""
    merged = {
        **fields,
        "limits": LimitsConfig(**drawn.get("limits", {})),
        "delivery": DeliveryConfig(**drawn.get("delivery", {})),
        "omen": LiveOMenConfig(**drawn.get("omen", {})),
        "mqtt": replace(fields.get("mqtt", MqttConfig()), **drawn.get("mqtt", {})),
    }
    return NodeConfig(name=name, **merged)
