"""OMen with `connectivity` 2, by name: what it keeps so that no single crash splits a topic."""

from __future__ import annotations

from itertools import pairwise

import pytest

import trellis
from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.protocols.omen import OMenConfig
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

OTHERS = [f"p{number}" for number in range(8)]  # a mesh beside, so that the ring has successors left


def mesh(interests, links, *, seed=1, net=False, absent=(), connectivity=2, **options):
    """A mesh that is 30 s old. `OTHERS` are a ring on a topic of their own, which no single loss splits."""
    interests = interests | dict.fromkeys(OTHERS, ("s",))
    ring = [*pairwise(OTHERS), (OTHERS[0], OTHERS[-1])]
    overlay = tuple(tuple(sorted(link)) for link in [*links, *ring])
    system = OMen(net=net, connectivity=connectivity, **options)
    engine = Engine(system, interests, seed=seed, overlay=overlay, absent=absent)
    return after(engine, 30)


def after(engine, seconds):
    engine.run(engine.world.now_ms + 1000 * seconds)
    return engine


def links(engine, *names):
    """The links that both ends claim, between any nodes or between these."""
    return {"".join(pair) for pair in engine.world.links() if not names or {*pair} <= {*names}}


CIRCLE = ["ab", "bc", "cd", "de", "ae"]


@pytest.mark.parametrize("gone_s", [2, 40])  # Back before its neighbors suspect it, and after they were repaired.
def test_links_to_a_neighbor_that_has_restarted_are_opened_again(gone_s):
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE)
    engine.crash("c")
    after(engine, gone_s)
    assert "bc" not in links(engine) or gone_s == 2
    engine.join("c", ("t",))
    assert {"bc", "cd"} <= links(after(engine, 40))


def test_links_to_a_neighbor_that_has_restarted_with_other_topics_stay_closed():
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE)
    engine.crash("c")
    after(engine, 40)
    engine.join("c", ("s",))
    assert not {"bc", "cd"} & links(after(engine, 60))


def test_by_default_a_restarted_node_joins_with_the_links_that_it_needs():
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE, connectivity=1)
    engine.crash("c")
    after(engine, 40)
    engine.join("c", ("t",))
    assert not {"bc", "cd"} <= links(after(engine, 60))


def test_a_connectivity_that_is_not_kept_is_refused():
    with pytest.raises(InputError, match="connectivity is 3"):
        OMenConfig(connectivity=3)
    given = Interests.from_pairs({"a": ("t",), "b": ("t",)})
    with pytest.raises(InputError, match="not two-connected"):
        trellis.simulate("omen", given, options={"connectivity": 2}, engine="cycles")
    with pytest.raises(InputError, match="not global knowledge"):
        OMenConfig(connectivity=2, knowledge="global")
