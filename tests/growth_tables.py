"""Made-up rows of the lab's entries beyond the papers: numbers that satisfy their rules, and some that break them."""

from __future__ import annotations

from math import log


def good(system: str, told: dict) -> dict:
    """Degrees that stay, delays and views that grow with the logarithm."""
    nodes, is_random = told["nodes"], system == "random(10)"
    return {
        "degree": 10.0,
        "degree_max": 2 * log(nodes),
        "quiet_s": log(nodes),
        "split": 50 * is_random,
        "components_per_topic": nodes / 100 if is_random else 1,
        "hit ratio": 0.9 if system == "OPT" else 1,
        "table max": 15,
        "degree mean": 18,
        "degree max": 3 * log(nodes),
        "overhead %": {"Vitis": 20, "RVR": 60}.get(system, 0),
        "delay": log(nodes),
        "missed": 0,
        "cost": nodes / (400 if system == "Magnet" else 40),
        "relays per topic": nodes / (400 if system == "Magnet" else 40),
        "view at the end": 10 * log(nodes),
        "share < 5%": 1,
    }


def linear(*metrics: str):
    """Return a change that lets metrics grow with the number of nodes."""
    return lambda system, told: dict.fromkeys(metrics, told["nodes"] / 1000)


# By entry: changes to `good`, of which each breaks the conditions of R that contain the text.
BREAKS = {
    "omen-growth": {
        "mean local view": lambda s, p: {"view at the end": p["nodes"] ** 0.7},
        "below 5% of all nodes": lambda s, p: {"share < 5%": 0.9},
        "smaller share": linear("view at the end"),
    },
    "spidercast-growth": {
        "connects every topic": lambda s, p: {"split": 1},
        "SpiderCast: mean degree": linear("degree"),
        "SpiderCast: greatest degree": linear("degree_max"),
        "until the last change": linear("quiet_s"),
        "similarity(10,0): mean degree": linear("degree"),
        "random(10) leaves": lambda s, p: {"split": 0},
    },
    "spidercast-million": {
        "connects every topic": lambda s, p: {"split": 1},
        "mean degree": linear("degree"),
        "greatest degree": linear("degree_max"),
        "until the last change": linear("quiet_s"),
    },
    "vitis-growth": {
        "hit ratio 100%": lambda s, p: {"hit ratio": 0.99},
        "Vitis: mean degree": linear("degree mean"),
        "RVR: greatest degree": linear("degree max"),
        "Vitis: overhead": linear("overhead %"),
        "RVR: delay": linear("delay"),
        "below that of RVR": lambda s, p: {"overhead %": 60},
        "at most 15": lambda s, p: {"table max": 16},
        "misses some": lambda s, p: {"hit ratio": 1},
    },
    "vitis-million": {
        "hit ratio 100%": lambda s, p: {"hit ratio": 0.99},
        "mean degree": linear("degree mean"),
        "greatest degree": linear("degree max"),
        "overhead": linear("overhead %"),
        "delay": linear("delay"),
    },
    "magnet-growth": {
        "every tree": lambda s, p: {"missed": 1},
        "Magnet: mean degree": linear("degree"),
        "strawman: relays": lambda s, p: {"relays per topic": p["nodes"] ** 2},
        "at least 70%": lambda s, p: {"cost": 100},
        "what Magnet does not save": lambda s, p: {"cost": p["nodes"] ** 1.5 / 1e5 if s == "Magnet" else p["nodes"]},
    },
}
# Changes that break the weaker rule as well.
BAD = {
    "omen-growth": lambda s, p: {"share < 5%": 0.5},
    "spidercast-growth": lambda s, p: {"split": 1},
    "spidercast-million": lambda s, p: {"split": 1},
    "vitis-growth": lambda s, p: {"hit ratio": 0.5},
    "vitis-million": lambda s, p: {"hit ratio": 0.5},
    "magnet-growth": lambda s, p: {"missed": 1},
}
