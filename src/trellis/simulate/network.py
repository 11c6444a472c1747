"""Decide what the network does to a message: how long it takes, and whether it arrives once, twice or never.

A `NetworkConfig` describes the network without faults. Faults add conditions to it for a while (`add`, `remove`), and
all of them act on every message:

1. A *cut* (partition) between sender and receiver blocks the message. It may also be lost. The loss of the network, of
   every loss window, and of every directed loss from this sender to this receiver are drawn independently.
2. Its latency is drawn, and a slow sender or receiver adds to it.
3. With the probability of reordering it is delayed by up to `late_ms` more, and others may overtake it. All other
   messages keep their order on a *FIFO* network: in one direction none arrives before an earlier one. This is the
   default, as on a TCP stream. With `fifo=False` every message arrives after its own latency.
4. With the probability of duplication a second copy arrives up to `late_ms` after the first, without any order.

Conditions are evaluated when a message is sent. A message that was under way when a cut began still arrives. A message
that was sent into a cut stays lost after it heals. All randomness comes from one stream of the network's own. Times are
whole microseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from math import exp
from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.effects import NodeId

LOST = -1
LATENCY_MS_MAX, SIGMA_MAX = 3_600_000, 10


class Latency(msgspec.Struct, frozen=True):
    """A distribution of latencies.

    constant: always `low_ms`. uniform: from `low_ms` to `high_ms`. lognormal: median `low_ms`, spread `sigma`.
    """

    shape: str = "constant"
    low_ms: float = 10.0
    high_ms: float = 0.0
    sigma: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Latency:
        """Read `10` (constant), `5..20` (uniform) or `lognormal:20,0.5` (median, sigma).

        All times are in milliseconds.
        """
        try:
            if text.startswith("lognormal:"):
                median, _, sigma = text.removeprefix("lognormal:").partition(",")
                found = cls("lognormal", float(median), sigma=float(sigma or 0.5))
            elif ".." in text:
                low, _, high = text.partition("..")
                found = cls("uniform", float(low), float(high))
            else:
                found = cls("constant", float(text))
        except ValueError:
            found = cls("constant", -1)
        highest = found.high_ms if found.shape == "uniform" else found.low_ms
        # `not <=` is also true for not-a-number.
        if not (0 <= found.low_ms <= highest <= LATENCY_MS_MAX and 0 <= found.sigma <= SIGMA_MAX):
            remedy = f"write 10, 5..20 or lognormal:20,0.5: milliseconds up to {LATENCY_MS_MAX:,}, sigma to {SIGMA_MAX}"
            raise InputError("", f'latency "{text}" is not known', remedy)
        return found

    def drawer(self, random: Random) -> Callable[[], int]:
        """Return a function that draws one latency in microseconds."""
        low = round(self.low_ms * 1000)
        if self.shape == "constant":
            return lambda: low
        if self.shape == "uniform":
            span, draw = round(self.high_ms * 1000) - low + 1, random.random
            return lambda: low + int(draw() * span)
        draw_normal, sigma = random.normalvariate, self.sigma
        return lambda: round(low * exp(draw_normal(0.0, sigma)))


class NetworkConfig(msgspec.Struct, frozen=True):
    """The network without faults. `loss`, `duplicate` and `reorder` are probabilities of each message."""

    latency: Latency = Latency()
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late_ms: int = 1000  # longest additional delay of a message that is reordered, and of a second copy
    fifo: bool = True

    def __post_init__(self) -> None:
        for field in ("loss", "duplicate", "reorder"):
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise InputError("", f"a {field} of {value:g}", "give a probability between 0 and 1")


class Condition(msgspec.Struct, frozen=True, eq=False):
    """A condition of the network that a fault adds: loss, asymmetric-loss, duplicate, reorder, partition or slow."""

    kind: str
    value: float = 0.0  # a probability; for slow: microseconds
    # asymmetric-loss: the senders; partition: the nodes of one side; slow: the slow nodes
    senders: frozenset[NodeId] | None = None
    receivers: frozenset[NodeId] | None = None  # asymmetric-loss: the receivers


class Network:
    """The network of a run. The engine calls `route` for every message, unless `constant_us` already is the answer."""

    def __init__(self, config: NetworkConfig, random: Random) -> None:
        self.config, self.random = config, random
        # messages by what happened to them; `reorder` counts those that overtook another one
        self.effects: Counter[str] = Counter()
        self.second_us = LOST  # when the second copy of the message just routed arrives; LOST if there is none
        self._draw, self._fifo = config.latency.drawer(random), config.fifo
        self._conditions: list[Condition] = []
        self._was_slow = False
        # By sender and receiver: the arrival of the last message that keeps its order, and the latest arrival of all.
        self._last: defaultdict[NodeId, dict[NodeId, int]] = defaultdict(dict)
        self._latest: dict[tuple[NodeId, NodeId], int] = {}
        self._weigh()

    def add(self, condition: Condition) -> None:
        self._conditions.append(condition)
        self._weigh()

    def remove(self, condition: Condition) -> None:
        """Remove a condition. Do nothing if it has already ended."""
        self._conditions = [other for other in self._conditions if other is not condition]
        self._weigh()

    def heal(self) -> None:
        """End every condition that a fault has added."""
        self._conditions = []
        self._weigh()

    def route(self, now: int, sender: NodeId, receiver: NodeId) -> int:
        """Return when a message that is sent now arrives, or LOST. Set `second_us` if there is a second copy."""
        self.second_us = LOST
        if self._may_lose and (why := self._why_lost(sender, receiver)):
            self.effects[why] += 1
            return LOST
        draw, arrival = self.random.random, now + self._draw()
        if self._slow:
            arrival += self._slow.get(sender, 0) + self._slow.get(receiver, 0)
        if self._reorder and draw() < self._reorder:
            arrival += int(draw() * self.config.late_ms * 1000) + 1
        elif self._fifo:
            last = self._last[sender]
            if last.get(receiver, 0) > arrival:
                arrival = last[receiver]
            last[receiver] = arrival
        if self._may_overtake:
            pair = (sender, receiver)
            if arrival < self._latest.get(pair, 0):
                self.effects["reorder"] += 1
            else:
                self._latest[pair] = arrival
        if self._duplicate and draw() < self._duplicate:
            self.effects["duplicate"] += 1
            self.second_us = arrival + int(draw() * self.config.late_ms * 1000)
        return arrival

    def _why_lost(self, sender: NodeId, receiver: NodeId) -> str | None:
        """Return which condition loses a message, or None if it is not lost."""
        for cut in self._cuts:
            if (sender in cut) != (receiver in cut):
                return "partition"
        draw = self.random.random
        if self._loss and draw() < self._loss:
            return "loss"
        for probability, senders, receivers in self._directed:
            if sender in senders and receiver in receivers and draw() < probability:
                return "asymmetric-loss"
        return None

    def _weigh(self) -> None:
        """Sum up all conditions, so that routing costs little while there are none.

        `constant_us` is the latency if it is constant and no condition acts, else LOST.
        """
        config, acting = self.config, self._conditions
        self._loss = _any_of([config.loss, *_values(acting, "loss")])
        self._duplicate = _any_of([config.duplicate, *_values(acting, "duplicate")])
        self._reorder = _any_of([config.reorder, *_values(acting, "reorder")])
        self._cuts = [condition.senders or frozenset() for condition in acting if condition.kind == "partition"]
        self._directed = [
            (condition.value, condition.senders or frozenset(), condition.receivers or frozenset())
            for condition in acting
            if condition.kind == "asymmetric-loss"
        ]
        self._slow: dict[NodeId, int] = {}
        for condition in acting:
            if condition.kind == "slow":
                for node in condition.senders or ():
                    self._slow[node] = self._slow.get(node, 0) + int(condition.value)
        self._may_lose = bool(self._loss or self._cuts or self._directed)
        self._may_overtake = bool(self._reorder) or not config.fifo
        calm = not (self._may_lose or self._duplicate or self._reorder or self._slow)
        # After a node was slow, messages of a FIFO network may have to wait for earlier ones, even without conditions.
        self._was_slow = self._was_slow or bool(self._slow)
        plain = calm and config.latency.shape == "constant" and not self._was_slow
        self.constant_us = round(config.latency.low_ms * 1000) if plain else LOST


def _values(conditions: list[Condition], kind: str) -> list[float]:
    return [condition.value for condition in conditions if condition.kind == kind]


def _any_of(probabilities: list[float]) -> float:
    """Return the probability that at least one of independent events happens."""
    spared = 1.0
    for probability in probabilities:
        spared *= 1.0 - probability
    return 1.0 - spared if any(probabilities) else 0.0
