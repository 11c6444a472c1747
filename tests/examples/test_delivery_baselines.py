"""A subscription begins behind everything that its node knew of a stream before, also if its neighbor knows less."""

from __future__ import annotations

import pytest

from examples.test_delivery_parts import mesh, take_part


def unsubscribe(net, name):
    part = net.nodes[name]
    net.carry_out(name, part.keep(part.delivery.unwant("t")))


def subscribe(net, name):
    part = net.nodes[name]
    net.carry_out(name, part.keep(part.delivery.want("t")))


def test_a_node_that_published_and_then_subscribes_gets_its_own_messages():
    """Its neighbor has not got its last messages when it tells its watermarks."""
    net = mesh([("a", "b")])
    unsubscribe(net, "a")
    net.publish("a", b"both have it")
    net.run(1_000)
    net.cut("a", "b")
    net.publish("a", b"only a has it")
    take_part(net, "a", False)
    net.run(1_000)
    subscribe(net, "a")
    take_part(net, "a", True)
    net.link("a", "b")
    net.run(4_000)
    for payload in (b"new", b"newer"):
        net.publish("a", payload)
        net.run(1_000)
    assert net.got("a") == [b"new", b"newer"]
    assert net.got("b") == [b"both have it", b"only a has it", b"new", b"newer"]


@pytest.mark.parametrize("count", [0, 2])
def test_a_node_that_took_part_before_gets_what_others_publish_after_it_has_subscribed(count):
    """It saw messages of `x` that its neighbor has not got. With `count` 0 its neighbor knows no stream of `x`."""
    net = mesh([("x", "w"), ("x", "b")])
    unsubscribe(net, "w")
    for number in range(count):
        net.publish("x", b"all have it %d" % number)
    net.run(1_000)
    net.cut("x", "b")
    net.publish("x", b"b has not got it")
    net.run(1_000)
    take_part(net, "w", False)
    net.cut("x", "w")
    net.run(1_000)
    subscribe(net, "w")
    take_part(net, "w", True)
    net.link("w", "b")
    net.run(4_000)
    net.link("x", "b")
    net.run(3_000)
    net.publish("x", b"new")
    net.run(2_000)
    assert net.got("w") == [b"new"]
    assert net.got("b")[-2:] == [b"b has not got it", b"new"]
