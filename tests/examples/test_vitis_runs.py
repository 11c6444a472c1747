"""What `trellis simulate vitis` leaves behind: pictures of one topic, and events by rates."""

from __future__ import annotations

import pytest

from trellis.errors import InputError
from trellis.model import Interests
from trellis.simulate.dissemination_draw import gateways_of, relay_links, topic_clusters
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.run import RunConfig, simulate
from trellis.simulate.systems.opt import Opt
from trellis.simulate.systems.rvr import Rvr
from trellis.simulate.systems.vitis import Vitis


def small_run(system, seed=3):
    wanted = draw_interests(InstanceDraw(nodes=40, topics=8, subscriptions=3), 1)
    return simulate(system, Interests.from_pairs(wanted), RunConfig(seed=seed, duration_ms=65_000))


def test_every_cluster_has_a_gateway_and_relay_paths_lead_from_gateways_on():
    """III-B: "nodes inside each cluster select a number of representative nodes, as gateways"."""
    world = small_run(Vitis(table_size=4)).engine.world
    split = 0
    for topic in [f"t{number}" for number in range(8)]:
        clusters, gateways = topic_clusters(world, topic), set(gateways_of(world, topic))
        assert sorted(node for cluster in clusters for node in cluster) == sorted(
            node for node in world.living if topic in world.topics_of(node)
        )
        assert all(gateways.intersection(cluster) for cluster in clusters), topic
        split += len(clusters) > 1
        reached = {hop for _, hop in relay_links(world, topic)}
        assert {one for one, _ in relay_links(world, topic)} <= gateways | reached
    assert split  # or it would say little


@pytest.mark.parametrize("make_system", [Vitis, Rvr, Opt])
def test_a_run_is_drawn_and_the_same_run_gives_the_same_bytes(make_system, tmp_path):
    run = small_run(make_system(table_size=4))
    drawn = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        run.engine.system.draw(run, folder)
        drawn.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert set(drawn[0]) == {"clusters.png", "dissemination.png"}
    assert drawn[0] == drawn[1]


def test_events_are_published_and_friends_are_chosen_by_the_rates_in_a_table(tmp_path):
    """IV-D: hot topics have "a high rate of publications"."""
    table = tmp_path / "rates.tsv"
    table.write_text("topic\trate\n" + "".join(f"t{number}\t{int(number == 2)}\n" for number in range(8)))
    run = small_run(Vitis(table_size=4, publications=2, rates=str(table)))
    world = run.engine.world
    fans = {node for node in world.living if "t2" in world.topics_of(node)}
    told = [one for one in run.engine.system.dissemination.publications if one.origin in fans]
    assert told
    assert {one.topic for one in told} == {"t2"}
    assert run.parameters["system"]["rates"] == str(table)
    assert len(topic_clusters(world, "t2")) == 1  # all its subscribers are of utility to each other, and nobody else


def test_a_table_of_rates_that_makes_no_sense_is_refused(tmp_path):
    table = tmp_path / "rates.tsv"
    table.write_text("topic\trate\nt0\t-1\n")
    with pytest.raises(InputError, match="negative"):
        Vitis(rates=str(table))
