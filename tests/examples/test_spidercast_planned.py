"""SpiderCast from an overlay that was planned: OMen's competitor.  [OM §6.1; A-OMN-25]"""

from __future__ import annotations

from trellis.model import Interests
from trellis.plan import construct
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.probes import Camera
from trellis.simulate.run import link_names
from trellis.simulate.systems.spidercast import SpiderCast


def planned(seed=1):
    """A run from LowODA's overlay in which nodes select only after a loss (A-OMN-25)."""
    wanted = draw_interests(InstanceDraw(nodes=60, topics=20, subscriptions=4), seed)
    links = tuple(sorted(link_names(construct(Interests.from_pairs(wanted), "lowoda", seed=seed).overlay)))
    engine = Engine(SpiderCast(kg=3, kr=1, repair_only=True), wanted, seed=seed, overlay=links)
    engine.run(20_000)
    return engine, {tuple(sorted(link)) for link in links}


def test_a_planned_overlay_is_taken_over_and_kept_while_nobody_goes():
    engine, links = planned()
    assert {tuple(link) for link in engine.world.links()} == links


def test_after_a_crash_only_the_neighbours_of_the_dead_select_and_nobody_parts():
    engine, links = planned()
    gone = max(engine.world.living, key=lambda name: len(engine.world.claims(name)))
    hit = set(engine.world.claims(gone))
    engine.crash(gone)
    engine.run(60_000)
    now = {tuple(link) for link in engine.world.links()}
    kept = {link for link in links if gone not in link}
    assert kept <= now, "a link of two living nodes was given up"
    assert now > kept, "nobody selected"
    assert all(set(link) & hit for link in now - kept), "a node selected that had lost nothing"
    engine.system.check_settled(engine.world)


def test_a_joiner_selects_until_it_is_covered_though_its_view_knows_few_nodes_at_first():
    wanted = draw_interests(InstanceDraw(nodes=120, topics=80, subscriptions=6), 1)
    new = sorted(wanted)[7]
    there = {name: topics for name, topics in wanted.items() if name != new}
    links = tuple(sorted(link_names(construct(Interests.from_pairs(there), "lowoda", seed=1).overlay)))
    system = SpiderCast(kg=3, kr=1, repair_only=True, gossip=True)
    engine = Engine(system, wanted, seed=1, overlay=links, absent=(new,))
    engine.run(10_000)
    assert engine.join(new)
    engine.run(60_000)
    assert len(Camera(engine.world).take().connectivity.split) == 0
