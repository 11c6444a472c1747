"""The parameters of Magnet and of the strawman, with the paper's values where it has any."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.oscar.config import OscarConfig

TreeForm = Literal["graft", "greedy-path"]


class MagnetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    skewed: OscarConfig = OscarConfig()
    """The ring that carries the trees. Paper: OSCAR with 19 links a node."""

    control: OscarConfig = OscarConfig(links=16, walks=3, two_choices=False)
    """The ring of uniform identifiers that holds home locations and membership trees. Paper: any DHT."""

    newscast: NewscastConfig = NewscastConfig(period_ms=2_000)
    """Random peers, from whom pieces of a ring find each other again. Paper: silent."""

    placement: Literal["similar", "name"] = "similar"
    """`similar`: next to the most similar node that is known [Alg. 1]. `name`: by the hash of the name, as in a
    name-independent DHT: the strawman (A-MAG-20)."""

    tree: TreeForm = "graft"
    """`graft`: Alg. 2 as written. `greedy-path`: every join descends the greedy route from the home location, which is
    what the paper claims of its trees (A-MAG-13)."""

    sample_size: int = 10
    """k, subscribers in the sample of a topic. Raising it finds more similar neighbours; it costs bytes. Paper: 10."""

    sample_ms: int = 5_000
    """The period of sampling rounds. Raising it saves traffic; views are older. Paper: silent."""

    sampling: Literal["as-written", "uniform"] = "as-written"
    """How an inner node truncates a sample: k of what its children sent, or by the size of their subtrees
    (A-MAG-17)."""

    rejoin_changes: int = 1
    """Interest changes between two placements. Raising it keeps the ring calm; placement lags. Paper: 1, or more."""

    improve_rounds: int = 0
    """Re-run Alg. 1 every so many sampling rounds, as the view changes [MG §3.2]. 0: never. Paper: optional."""

    inquire_ms: int = 1_000
    """How long a joining node waits for the samples of its topics before it asks again."""

    place_ms: int = 500
    """How long it waits for a place before it takes the next most similar node."""

    tree_wait_ms: int = 300
    """From having a place to joining trees: the new links are known by then."""

    join_ms: int = 1_500
    """How long a tree join is awaited before it is tried again, at the home location."""

    tree_ms: int = 2_000
    """The period of heartbeats to tree parents. Raising it saves traffic; broken trees mend later. Paper: silent."""

    stale_max: int = 5
    """Heartbeats without a word until a child is dropped."""

    # Deviation: [MG §3.3] joins a tree again where the parent is silent. Parents can live and be cut off themselves, so
    # the root counts, and a node joins again where the count stands still.
    root_silence_max: int = 4
    """Heartbeats without news from the root until a node counts as cut off. News are handed down at once, so few are
    enough; circles and loose pieces of a tree last so long. Raising it tolerates more losses."""

    publications_kept: int = 4_096
    """Publications that a node remembers in order to deliver each once."""

    def __post_init__(self) -> None:
        for field in ("sample_size", "sample_ms", "rejoin_changes", "inquire_ms", "place_ms", "join_ms", "tree_ms"):
            _at_least(self, field, 1)
        for field in ("stale_max", "root_silence_max", "publications_kept"):
            _at_least(self, field, 1)
        _at_least(self, "improve_rounds", 0)
        _at_least(self, "tree_wait_ms", 1)
        _at_least(self, "sample_size", 2)  # one of two is somebody else (A-MAG-18)


def _at_least(config: msgspec.Struct, field: str, least: int) -> None:
    value = getattr(config, field)
    if value < least:
        raise InputError("", f"{field} is {value}", f"give {least} or more")
