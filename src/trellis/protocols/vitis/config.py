"""The settings of Vitis, and those that Vitis, RVR and OPT share. The defaults are the paper's values."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.wire import PEERS_MAX


class TableConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of all three protocols: a bounded routing table, kept by T-Man over Newscast, with heartbeats."""

    table_size: int = 15
    """Most entries of the routing table, RT-SIZE in the paper. Raising it means fewer clusters and relays, and shorter
    paths, but costs heartbeats. Paper: 15."""

    period_ms: int = 1_000
    """The period of heartbeats and of both gossip exchanges, delta t in the paper. Raising it saves traffic, but
    everything takes longer. Paper: silent (A-VIT-10)."""

    silence_max: int = 5
    """Periods without a profile after which a neighbor counts as crashed, THRESHOLD in the paper. Raising it makes
    wrong suspicions rarer, but crashes are noticed later. Paper: silent."""

    linger_rounds: int = 6
    """Deviation: rounds for which a link that neither end holds any more, and a relay path that is no longer renewed,
    still carry events after the round in which they ended. Raising it keeps subscribers reached while tables change,
    but costs traffic overhead. Paper: silent, 0 for its figures (A-VIT-18)."""

    view_size: int = 20
    """Entries in the view of Newscast, c in its paper. Raising it shows more candidates per round, but costs bytes
    (A-SUB-1)."""

    age_max: int = 30
    """Rounds after which a descriptor that was not renewed is dropped (A-SUB-2)."""

    incoming_max: int = 512
    """Most nodes that may hold a link to this one without being in its table. A further one is refused."""

    network_size: int = 0
    """The number of nodes n for the draw of long links. 0: it is estimated from the ring (A-SUB-3)."""

    event_rounds: int = 30
    """Rounds for which an event can be pulled. Raising it helps slow neighbors, but costs memory. Identities of events
    are kept for at least four times as long, so that no event is delivered twice."""

    def __post_init__(self) -> None:
        for field in ("period_ms", "silence_max", "age_max", "incoming_max", "event_rounds"):
            _at_least(self, field, 1)
        _at_least(self, "table_size", 2)
        _at_least(self, "network_size", 0)
        _at_least(self, "linger_rounds", 0)
        if self.table_size + self.view_size >= PEERS_MAX:
            what = f"table_size is {self.table_size} and view_size {self.view_size}"
            raise InputError("", what, f"keep both together below {PEERS_MAX}")
        self.newscast()

    def newscast(self) -> NewscastConfig:
        """Return the settings of Newscast that follow from these."""
        return NewscastConfig(view_size=self.view_size, period_ms=self.period_ms, age_max=self.age_max)


class VitisConfig(TableConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of Vitis."""

    sw_neighbors: int = 3
    """Entries of the table that are not friends, k in the paper: successor, predecessor and k - 2 long links (A-VIT-2).
    Raising it shortens lookups, but leaves fewer friends and causes more traffic overhead. Paper: 3."""

    gateway_hops: int = 5
    """Most hops between a node and its gateway, d in the paper. Raising it means fewer gateways and relay paths, but
    longer paths inside a cluster. Paper: 5."""

    hop_limit: Literal["at-most", "below"] = "at-most"
    """Whether a proposal is accepted over at most d hops, as the paper's text says, or over less than d, as Alg. 5, l.
    10 prints (A-VIT-12)."""

    take_back: bool = False
    """Whether to accept a proposal that the neighbor has from us, as the letter of Alg. 5, l. 7 allows (A-VIT-11)."""

    strangers: bool = True
    """Whether to fill the table with nodes that share no topic, as Alg. 4 does. They help lookups (A-VIT-4)."""

    relays_flood: bool = False
    """Whether a relay that is not subscribed to a topic also notifies its subscribed neighbors. That is faster, and
    costs messages (A-VIT-19)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "gateway_hops", 1)
        if not 2 <= self.sw_neighbors <= self.table_size:
            what = f"sw_neighbors is {self.sw_neighbors}"
            raise InputError("", what, f"give 2 (the ring) to {self.table_size}, the size of the table")


def _at_least(config: msgspec.Struct, field: str, least: int) -> None:
    value = getattr(config, field)
    if value < least:
        raise InputError("", f"{field} is {value}", f"give {least} or more")
