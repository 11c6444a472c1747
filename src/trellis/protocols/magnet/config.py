"""The settings of Magnet and of the strawman. The defaults are the paper's values where it gives any."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.oscar.config import OscarConfig

TreeForm = Literal["graft", "greedy-path"]


class MagnetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of Magnet."""

    skewed: OscarConfig = OscarConfig()
    """The ring that carries the trees. Paper: OSCAR with 19 links a node."""

    control: OscarConfig = OscarConfig(links=16, walks=3, two_choices=False)
    """The ring of uniform identifiers that has home locations and membership trees. Paper: any DHT."""

    newscast: NewscastConfig = NewscastConfig(period_ms=2_000)
    """Random peers, by which separate parts of a ring find each other again. Paper: silent."""

    placement: Literal["similar", "name"] = "similar"
    """The position of a node. `similar`: next to the most similar node that is known [Alg. 1]. `name`: by the hash of
    the name, as in a name-independent DHT, which is the strawman (A-MAG-20)."""

    tree: TreeForm = "graft"
    """How a node joins a tree. `graft`: Alg. 2 as written. `greedy-path`: every join follows the greedy route from the
    home location, which is what the paper claims of its trees (A-MAG-13)."""

    sample_size: int = 10
    """Subscribers in the sample of a topic, k in the paper. Raising it finds more similar neighbors, but costs bytes.
    Paper: 10."""

    sample_ms: int = 5_000
    """The period of sampling rounds. Raising it saves traffic, but views are older. Paper: silent."""

    sampling: Literal["as-written", "uniform"] = "as-written"
    """How an inner node of the membership tree reduces a sample: to k of what its children sent, or by the size of
    their subtrees (A-MAG-17)."""

    rejoin_changes: int = 1
    """Changes of the interest after which a node chooses its position again. Raising it moves fewer nodes, but
    positions follow interests later. Paper: 1, or more."""

    improve_rounds: int = 0
    """Sampling rounds after which a node tries to improve its position, as its view changes [MG §3.2]. 0: never. Paper:
    optional."""

    inquire_ms: int = 1_000
    """How long a joining node waits for the samples of its topics before it asks again."""

    place_ms: int = 500
    """How long a node waits for a position before it asks the next most similar node."""

    tree_wait_ms: int = 300
    """Time between getting a position and joining trees. The new links are known by then."""

    join_ms: int = 1_500
    """How long a node waits for a tree join before it tries again, at the home location."""

    tree_ms: int = 2_000
    """The period of heartbeats to tree parents. Raising it saves traffic, but broken trees are repaired later. Paper:
    silent."""

    stale_max: int = 5
    """Heartbeats without a message from a child until it is dropped."""

    # Deviation: [MG §3.3] joins a tree again where the parent is silent. A parent may run and be cut off from the root
    # itself. So the root sends a count, and a node joins again if the count does not grow.
    root_silence_max: int = 4
    """Heartbeats without a new count of the root until a node considers itself cut off. Counts are forwarded at once,
    so few are enough. Cycles and separate parts of a tree last no longer than this. Raising it tolerates more losses.
    """

    publications_kept: int = 4_096
    """Publications that a node remembers to deliver each of them once."""

    def __post_init__(self) -> None:
        for field in ("sample_size", "sample_ms", "rejoin_changes", "inquire_ms", "place_ms", "join_ms", "tree_ms"):
            _at_least(self, field, 1)
        for field in ("stale_max", "root_silence_max", "publications_kept"):
            _at_least(self, field, 1)
        _at_least(self, "improve_rounds", 0)
        _at_least(self, "tree_wait_ms", 1)
        _at_least(self, "sample_size", 2)  # With two entries, one is another node (A-MAG-18).


def _at_least(config: msgspec.Struct, field: str, least: int) -> None:
    value = getattr(config, field)
    if value < least:
        raise InputError("", f"{field} is {value}", f"give {least} or more")
