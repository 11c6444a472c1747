"""A node is killed while another one hangs, as live nodes see it: its streams break, and the hung one says nothing.

Virtual time, settings of live nodes. The hung node may be anything to the repair: the coordinator, a neighbor of the
killed node, a holder of records. The repair must not wait until it is suspected.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from trellis.fleet.interests import draw_interests
from trellis.fleet.planned import low_links
from trellis.live.config import LiveOMenConfig
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

REPAIRED_MS = 2_000
LOOK_MS = 50
NODES = 10


def live_omen() -> OMen:
    return OMen(**msgspec.structs.asdict(LiveOMenConfig()))


def split_topics(engine: Engine, hung: str, hung_links: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the topics that are split among the nodes that are awake; with the given links of the hung node."""
    world, near = engine.world, dict[str, set[str]]()
    for one, other in [*[pair for pair in world.links() if hung not in pair], *hung_links]:
        if one in world.living and other in world.living:
            near.setdefault(one, set()).add(other)
            near.setdefault(other, set()).add(one)
    split = []
    for topic in sorted({topic for name in world.living for topic in world.topics_of(name)}):
        takes_part = {name for name in world.living if topic in world.topics_of(name)}
        wanted = takes_part - {hung}
        reached: set[str] = set()
        stack = sorted(wanted)[:1]
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += near.get(node, set()) & takes_part
        if not wanted <= reached:
            split.append(topic)
    return split


def kill_while_another_hangs(seed: int) -> tuple[int, int]:
    """Return how many topics the kill has split, and for how many milliseconds.

    A topic that the hang alone has split is another repair, which begins when the hung node is suspected. Until then
    the hung node's links count for it.
    """
    random = Random(seed)
    interests = draw_interests(NODES, NODES, 4, seed)
    overlay = tuple((min(pair), max(pair)) for pair in low_links(interests, seed))
    engine = Engine(live_omen(), interests, seed=seed, overlay=overlay, broken_stream_ms=1)
    engine.run(30_000)
    hung, killed = random.sample(sorted(interests), 2)
    hung_links = [pair for pair in engine.world.links() if hung in pair]
    engine.pause(hung)
    engine.run(engine.world.now_ms + random.randrange(4_000))
    streams = [
        name
        for name in engine.world.living
        if name not in (hung, killed) and killed in engine.world.node(name).parts.detector.suspicion
    ]
    before = split_topics(engine, hung)
    engine.crash(killed)
    for name in streams:  # a live node has a stream to whom it watches on the ring, too
        engine._push_call(1, engine._peer_down, engine.world.actors[name], killed)
    begun, most = engine.world.now_ms, 0
    while engine.world.now_ms < begun + 20_000:
        split = {*split_topics(engine, hung, hung_links), *set(split_topics(engine, hung)) - set(before)}
        if not split:
            break
        most = max(most, len(split))
        engine.run(engine.world.now_ms + LOOK_MS)
    return most, engine.world.now_ms - begun


@pytest.mark.parametrize("first", [1, pytest.param(31, marks=pytest.mark.slow)])
def test_a_repair_does_not_wait_for_a_node_that_hangs(first):
    found = {seed: kill_while_another_hangs(seed) for seed in range(first, first + 30)}
    assert sum(split > 0 for split, _ in found.values()) >= 5, "too few kills split a topic"
    late = {seed: took for seed, (_, took) in found.items() if took > REPAIRED_MS}
    assert not late, f"seeds and ms: {late}"
