"""The settings of SpiderCast and of its baselines. The defaults are the paper's values."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError


class NeighborConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that SpiderCast shares with the overlays that reuse its code."""

    margin: int = 5
    """Links that are accepted beyond L^max. Raising it lets more requests succeed at once, but costs degree. Paper: 5.
    """

    connect_timeout_ms: int = 200
    """The pause between two iterations of a task. Raising it saves work when idle and lets slower networks answer
    within an iteration, but a node then needs longer to cover its topics. Paper: silent; at most 200 by §3.8
    (A-SPC-14)."""

    quarantine_ms: int = 2_000
    """How long a node that was sent a CONNECT is not asked again. Raising it saves repeated requests to full or crashed
    nodes, but a lost request is repeated later. Paper: "a specified period of time" (A-SPC-14)."""

    suspect_quarantine_ms: int = 10_000
    """The same after a suspicion, because views may name a crashed node for a while. Paper: silent."""

    disconnect_timeout_ms: int = 400
    """How long an unanswered DISCONNECT is outstanding (A-SPC-13: refusals are not answered). Raising it is safer in
    slow networks, because two outstanding ones can leave the node under-covered for a moment. But links are given up
    more slowly. Paper: silent."""

    heartbeat_ms: int = 1_000
    """The period of heartbeats. Raising it saves traffic, but crashes and degrees are noticed later. Paper: silent."""

    silence_max: int = 5
    """Heartbeat periods without a message until a neighbor is suspected. Raising it makes wrong suspicions rarer
    (p^silence_max per link and period at a loss of p), but crashes are noticed later. Paper: silent."""

    redirects_max: int = 32
    """Deviation: so many redirect candidates are remembered per task, since other nodes send them. Paper: no limit."""

    drop_from: Literal["target-reached", "above-target"] = "target-reached"
    """Which neighbors a covered node asks to part: those that show degree >= target, as the text of §2.3.1 says, or
    degree > target, as Fig. 3, l. 9 prints. The latter never happens below L^max (A-SPC-6)."""

    redirect_to: Literal["margin", "target"] = "margin"
    """Redirect to neighbors with degree < target + Margin (Fig. 4, l. 7), or with degree < target (text of the paper,
    A-SPC-7)."""

    useful_redirects_only: bool = False
    """Skip redirect candidates that would cover nothing. As printed, they are taken without this test (A-SPC-17)."""

    remember_refusals: bool = True
    """Deviation: a DISCONNECT that was ignored is not repeated until something has changed. As printed, which False
    gives, a covered node asks a covered neighbor in every iteration for ever (A-SPC-23)."""

    repair_only: bool = False
    """A node that was given neighbors does nothing until it loses one. Then it selects until it is covered. It never
    parts from a neighbor. This is SpiderCast as OMen's competitor, on an overlay that was planned (A-OMN-25)."""

    def __post_init__(self) -> None:
        for field in ("connect_timeout_ms", "quarantine_ms", "suspect_quarantine_ms", "disconnect_timeout_ms"):
            _at_least(self, field, 1)
        _at_least(self, "heartbeat_ms", 1)
        _at_least(self, "silence_max", 1)
        _at_least(self, "margin", 0)
        _at_least(self, "redirects_max", 1)


class SpiderCastConfig(NeighborConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of SpiderCast: (K_g, K_r)-coverage."""

    coverage_greedy: int = 3
    """K_g, neighbors of the greedy task for each topic. Raising it makes the connectivity of topics more robust, but
    costs links. Paper: 3. 0: off."""

    coverage_random: int = 0
    """K_r, neighbors of the random task for each topic. Raising it adds random links for heavily skewed interests,
    where greedy links alone form clusters. It costs many links. Paper: 0, and 1 for Zipf(2). 0: off."""

    adaptive: bool = False
    """Whether each node finds its own K_r, beginning with 0.  [SC §3.3.1]"""

    adaptive_random_max: int = 3
    """The greatest K_r that `adaptive` chooses. 4 is the letter of §3.3.1 (A-SPC-2)."""

    adaptive_restart: bool = True
    """Whether a change of the interest sets the adaptive K_r back to 0 (A-SPC-4)."""

    demand: Literal["known", "literal"] = "known"
    """Deviation: a topic needs min(K, known other subscribers) neighbors (`known`). As printed (`literal`) it needs K
    of them even if there are fewer subscribers. Then the node goes on to L^max with neighbors of no use (A-SPC-10)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "coverage_greedy", 0)
        _at_least(self, "coverage_random", 0)
        _at_least(self, "adaptive_random_max", 1)
        if self.adaptive and self.coverage_random:
            raise InputError("", "adaptive finds K_r by itself", "leave coverage_random at 0, or adaptive off")
        if self.adaptive and not self.coverage_greedy:
            raise InputError("", "adaptive needs greedy coverage", "set coverage_greedy to 1 or more")


class SimilarityConfig(NeighborConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the baselines: similarity(x, y). random(y) is similarity(0, y).  [SC §3.9.1]"""

    drop_from: Literal["target-reached", "above-target"] = "above-target"  # with a fixed target it works as printed

    links_similar: int = 10
    """x, the links to the most similar nodes. Paper: 7 to 10, and 20. 0: off."""

    links_random: int = 0
    """y, the links to random nodes. Paper: 0 to 3, and 10 for random(10). 0: off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "links_similar", 0)
        _at_least(self, "links_random", 0)


def _at_least(config: msgspec.Struct, field: str, least: int) -> None:
    value = getattr(config, field)
    if value < least:
        raise InputError("", f"{field} is {value}", f"give {least} or more")
