"""The network models: what they do to messages on average, and what they never do."""

from __future__ import annotations

from random import Random
from statistics import fmean, median

import pytest

from trellis.errors import InputError
from trellis.simulate.network import LOST, Condition, Latency, Network, NetworkConfig

COUNT = 20_000


def network(**config):
    return Network(NetworkConfig(**config), Random(7))


def routed(net, count=COUNT, sender="a", receiver="b", gap_us=1000):
    return [net.route(n * gap_us, sender, receiver) - n * gap_us for n in range(count)]


def test_a_constant_latency_needs_no_asking():
    assert network(latency=Latency("constant", 2.5)).constant_us == 2500
    assert network(latency=Latency("uniform", 1, 2)).constant_us == LOST
    assert network(loss=0.1).constant_us == LOST


def test_a_uniform_latency_fills_its_range_evenly():
    drawn = routed(network(latency=Latency("uniform", 5, 15), fifo=False))
    assert min(drawn) >= 5000
    assert max(drawn) <= 15000
    assert fmean(drawn) == pytest.approx(10_000, rel=0.01)
    assert sum(value < 7500 for value in drawn) / COUNT == pytest.approx(0.25, abs=0.02)


def test_a_log_normal_latency_has_its_median_and_its_spread():
    drawn = routed(network(latency=Latency("lognormal", 20, sigma=0.5), fifo=False))
    assert median(drawn) == pytest.approx(20_000, rel=0.03)
    # 84.1% of a log-normal lie below median * e^sigma
    assert sum(value < 20_000 * 2.718281828**0.5 for value in drawn) / COUNT == pytest.approx(0.841, abs=0.01)


def test_loss_takes_its_share():
    net = network(loss=0.2)
    assert sum(time < 0 for time in routed(net)) / COUNT == pytest.approx(0.2, abs=0.01)
    assert net.effects["loss"] / COUNT == pytest.approx(0.2, abs=0.01)


def test_duplication_takes_its_share_and_copies_come_later():
    net, copies = network(duplicate=0.3, late_ms=50), []
    for n in range(COUNT):
        arrival = net.route(n, "a", "b")
        if net.second_us != LOST:
            copies.append(net.second_us - arrival)
    assert len(copies) / COUNT == pytest.approx(0.3, abs=0.01)
    assert 0 <= min(copies) < max(copies) <= 50_000


@pytest.mark.parametrize("latency", [Latency("uniform", 1, 50), Latency("lognormal", 20, sigma=1.0)])
def test_on_a_fifo_network_nothing_overtakes(latency):
    net = network(latency=latency)
    arrivals = [net.route(n * 1000, "a", "b") for n in range(5000)]
    assert arrivals == sorted(arrivals)


def test_without_fifo_messages_overtake_and_are_counted():
    net = network(latency=Latency("uniform", 1, 50), fifo=False)
    arrivals = [net.route(n * 1000, "a", "b") for n in range(5000)]
    overtook, latest = 0, 0
    for arrival in arrivals:
        overtook += arrival < latest
        latest = max(latest, arrival)
    assert net.effects["reorder"] == overtook > 1000


def test_directions_of_a_link_are_ordered_on_their_own():
    net = network(latency=Latency("constant", 10))
    net.add(slow := Condition("slow", 100_000, frozenset(["a"])))
    assert net.route(0, "a", "b") == 110_000
    net.remove(slow)
    assert net.route(1000, "a", "b") == 110_000  # waits for the slow one
    assert net.route(1000, "a", "c") == 11_000


def test_reordered_messages_are_overtaken_and_the_rest_keeps_its_order():
    net = network(reorder=0.1, late_ms=100)
    arrivals = [net.route(n * 1000, "a", "b") for n in range(5000)]
    late = [arrival > n * 1000 + 10_000 for n, arrival in enumerate(arrivals)]
    assert sum(late) / 5000 == pytest.approx(0.1, abs=0.02)
    in_time = [arrival for arrival, is_late in zip(arrivals, late, strict=True) if not is_late]
    assert in_time == sorted(in_time)
    assert net.effects["reorder"] > 1000


def test_a_partition_blocks_exactly_the_cut():
    net = network()
    net.add(cut := Condition("partition", senders=frozenset("ab")))
    blocked = {pair for pair in ("ab", "ba", "ac", "ca", "bd", "db", "cd", "dc") if net.route(0, *pair) == LOST}
    assert blocked == {"ac", "ca", "bd", "db"}
    assert net.effects["partition"] == 4
    net.remove(cut)
    assert net.route(0, "a", "c") == 10_000


def test_two_cuts_leave_three_sides():
    net = network()
    net.add(Condition("partition", senders=frozenset("ab")))
    net.add(Condition("partition", senders=frozenset("bc")))
    through = [pair for pair in ("ab", "bc", "ac", "ad", "cd") if net.route(0, *pair) != LOST]
    assert through == []
    net.heal()
    assert net.route(0, "a", "b") == 10_000


def test_asymmetric_loss_hits_one_direction():
    net = network()
    net.add(Condition("asymmetric-loss", 1.0, frozenset("a"), frozenset("b")))
    assert net.route(0, "a", "b") == LOST
    assert [net.route(0, *pair) for pair in ("ba", "ac", "cb")] == [10_000] * 3


def test_losses_add_up_as_separate_dice():
    net = network(loss=0.5)
    net.add(Condition("loss", 0.5))
    assert sum(time < 0 for time in routed(net)) / COUNT == pytest.approx(0.75, abs=0.01)


def test_slow_ends_add_to_each_other():
    net = network()
    net.add(Condition("slow", 30_000, frozenset("a")))
    net.add(Condition("slow", 5_000, frozenset("b")))
    assert [net.route(0, *pair) for pair in ("ab", "ca", "bc", "cd")] == [45_000, 40_000, 15_000, 10_000]


def test_after_all_conditions_end_the_network_is_as_calm_as_before():
    net = network()
    conditions = [Condition("loss", 0.5), Condition("partition", senders=frozenset("a")), Condition("reorder", 0.3)]
    for condition in conditions:
        net.add(condition)
    assert net.constant_us == LOST
    for condition in conditions:
        net.remove(condition)
    assert net.constant_us == 10_000


@pytest.mark.parametrize(
    ("text", "latency"),
    [
        ("10", Latency("constant", 10)),
        ("0.5", Latency("constant", 0.5)),
        ("5..20", Latency("uniform", 5, 20)),
        ("lognormal:20,0.7", Latency("lognormal", 20, sigma=0.7)),
    ],
)
def test_latencies_are_written_as_people_write_them(text, latency):
    assert Latency.parse(text) == latency


@pytest.mark.parametrize("text", ["", "fast", "-1", "20..5", "nan", "lognormal:x", "lognormal:5,-1"])
def test_a_latency_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="latency"):
        Latency.parse(text)


def test_a_probability_above_one_is_refused():
    with pytest.raises(InputError, match="between 0 and 1"):
        NetworkConfig(loss=1.5)
