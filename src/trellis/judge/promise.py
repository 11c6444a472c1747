"""The promises, in numbers, and the record of a broken promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trellis.judge.story import NEVER


@dataclass(frozen=True)
class Promise:
    """The promises, in numbers. The defaults are those of a node's configuration."""

    copies: int = 2  # nodes that hold an acknowledged message
    depth: int = 2  # levels of an MQTT topic that decide on which overlay topic it travels
    window_s: float = 60.0  # a cut that lasts longer may lose messages
    registered_s: float = 15.0  # a subscriber is known at its topic's home location after so long
    interest_s: float = 60.0  # a node that only publishes on a topic takes part in it for so long
    learned_s: float = 86_400.0  # a sidecar may keep the subscriptions of a client of its broker so long after its end
    takeover_s: float = 15.0  # another member of a group gets a message if the node of the first is silent for so long
    outcome_s: float = 45.0  # a publication is acknowledged or refused within this time
    confirm_s: float = 60.0  # a subscription is confirmed within this time of calm
    settle_s: float = 25.0  # after the last fault, until everything flows again
    spread_s: float = 15.0  # an acknowledged message has reached every subscriber by then, unless the network is cut
    grace_s: float = 5.0  # from the acknowledgement to the last subscriber, in calm
    retained_s: float = 5.0  # a retained message comes within this time of the confirmation
    recalled_s: float = 15.0  # the same, for wildcards
    retained_max: int = 10_000  # topics with a retained message that a node keeps; if there are more, it may lack any
    heal_s: float = NEVER  # a message comes within this time of its acknowledgement and of the last fault
    alone_s: float = 5.0  # a node answers within this time when all others have ended and it could notice that
    accept_s: float = NEVER  # a node that has been up and undisturbed for so long takes clients
    acknowledge_s: float = 14.0  # no acknowledgement takes longer, while nothing but crashes disturbs the mesh
    start_s: float = 20.0  # after so long a node that has started acknowledges as fast as any other
    restart_s: float = NEVER  # a node that is back in a calm mesh answers publications on known topics within this time
    clients_max: dict[str, int] = field(default_factory=dict)  # a node with so many may turn others away: by `speaks`
    sessions_max: int | None = None  # the same for sessions of MQTT clients, connected or not
    remembers: bool = True  # nodes know for `window_s` every publication that they took from a client
    durable: bool = False  # nodes have stores: crashes of all holders and restarts excuse nothing [docs/durable.md]
    may_refuse: tuple[str, ...] | None = None  # words of refusals that are right also in calm; None: all are


@dataclass(frozen=True)
class Violation:
    """A broken promise."""

    kind: str
    t: float
    text: str
    session: str = ""
    message: str = ""


@dataclass
class Counts:
    """How much was judged. A verdict that rests on no deliveries is worth nothing."""

    owed: int = 0
    excused: Counter[str] = field(default_factory=Counter)  # lost or twice, and allowed: why, and how often
    copies_judged: int = 0
    retained_judged: int = 0
