"""A seed that is known by its name already: what is sent to its address goes over the stream that stands."""

from __future__ import annotations

import pytest

from live.lives import config, mesh, peer_address, run, until
from live.test_impostors import assert_flows
from trellis.live.health import not_ready
from trellis.live.shell import LiveNode


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_a_node_renamed_on_its_own_address_joins_although_the_seed_dials_its_old_name_there(end):
    async def work() -> None:
        async with mesh("solo", "bee", topics=("t",)) as nodes:
            seed, old = nodes
            await until(lambda: all(len(node.links) == 1 for node in nodes))
            if end == "in order":
                old.leave()
                await old.wait()
            else:
                await old.stop(in_order=False)
            new = nodes[1] = LiveNode(config("wasp", (peer_address(seed),), topics=("t",), listen=peer_address(old)))
            await new.start()
            seed.transport.send("bee", b"to the old name", may_drop=True)
            await until(lambda: not not_ready(new))
            await until(lambda: all(len(node.links) == 1 for node in nodes))
            await assert_flows(seed, new)

    run(work(), 20.0)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_node_that_its_seed_has_dialed_first_joins(names):
    """Whichever of the two streams is kept, the node learns the name of its seed from the refusal of the other."""

    async def work() -> None:
        async with mesh(names[0], topics=("t",)) as nodes:
            seed = nodes[0]
            new = LiveNode(config(names[1], (peer_address(seed),), topics=("t",)))
            nodes.append(new)
            await new.start()
            seed.transport.book.meet(new.transport.me)
            seed.transport.dialing.look_again(new.name)
            await until(lambda: not not_ready(new))
            assert list(new.transport.names.values()) == [seed.name]

    run(work(), 20.0)
