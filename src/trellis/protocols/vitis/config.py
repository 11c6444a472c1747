"""The parameters of Vitis, and what Vitis, RVR and OPT have in common, with the paper's values as defaults."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.wire import PEERS_MAX


class TableConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bounded routing table, kept by T-Man over Newscast, with heartbeats: the same for all three systems."""

    table_size: int = 15
    """RT-SIZE. Raising it means fewer clusters and relays, and shorter paths; it costs heartbeats. Paper: 15."""

    period_ms: int = 1_000
    """The period delta t of both exchanges. Raising it saves traffic; all takes longer. Paper: silent (A-VIT-10)."""

    silence_max: int = 5
    """THRESHOLD, in periods. Raising it makes wrong suspicions rarer; crashes are noticed later. Paper: silent."""

    linger_rounds: int = 6
    """Deviation: rounds for which a link that neither end holds any more, and a relay path that is no longer renewed,
    still carry events after the round in which they ended. Raising it keeps subscribers reached while tables change;
    it costs traffic overhead. Paper: silent, 0 for its figures (A-VIT-18)."""

    view_size: int = 20
    """Newscast's c. Raising it shows more candidates per round; it costs bytes (A-SUB-1)."""

    age_max: int = 30
    """Rounds after which a descriptor that nobody renewed is dropped (A-SUB-2)."""

    incoming_max: int = 512
    """Nodes that may hold a link to this one without being in its table. Beyond it newcomers are not let in."""

    network_size: int = 0
    """n for the draw of long links; 0: estimated from the ring (A-SUB-3)."""

    event_rounds: int = 30
    """Rounds for which an event can be pulled. Raising it helps slow neighbours; it costs memory. Identities are kept
    for at least four times as long, so that no event is delivered twice."""

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
        return NewscastConfig(view_size=self.view_size, period_ms=self.period_ms, age_max=self.age_max)


class VitisConfig(TableConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sw_neighbors: int = 3
    """k: successor, predecessor and k - 2 long links; the other entries are friends (A-VIT-2). Raising it shortens
    lookups; it leaves fewer friends, and more traffic overhead. Paper: 3."""

    gateway_hops: int = 5
    """d: how far a gateway may be from the nodes it serves. Raising it means fewer gateways and relay paths, and
    longer ways inside a cluster. Paper: 5."""

    hop_limit: Literal["at-most", "below"] = "at-most"
    """A proposal is taken over at most d hops, as the prose says, or below d, as Alg. 5, l. 10 prints (A-VIT-12)."""

    take_back: bool = False
    """Also take a proposal that the neighbour has from us, as Alg. 5, l. 7 allows by its letter (A-VIT-11)."""

    strangers: bool = True
    """Fill the table with nodes that share no topic, as Alg. 4 does; they help lookups (A-VIT-4)."""

    relays_flood: bool = False
    """A relay that does not want a topic also notifies its interested neighbours: faster, more messages (A-VIT-19)."""

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
