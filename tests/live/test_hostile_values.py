"""No value that the wire types allow ends a node, breaks a handler, or makes a node grow without bound.

`make test` tries some thousands of inputs for each overlay, `make test-slow` a million in all. A part of it by hand:

    PYTHONPATH=src:tests python -m live.hostile_values --overlay omen --inputs 250000 --seed 1
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from live.hostile_values import try_hostile_values
from trellis.live.frames import CONTROLS, Control
from trellis.live.talk import TO_NODE, ToNode
from trellis.protocols.mesh import CODECS
from trellis.protocols.pieces import PIECES_MESSAGES, PiecesMessage
from trellis.protocols.pieces.messages import PIECES
from trellis.simulate.mesh.values import Values, kinds_of

MIB = 1 << 20
METRICS_MAX = 2_000  # lines of /metrics of three nodes, when messages of every kind have come and gone


def check(found: dict, growth_bytes_max: int) -> None:
    assert found["bugs"] == 0, "a handler or a timer has failed: the log has the traceback"
    assert found["faults"] == {}, "a node has said what every other node cuts it off for"
    half = len(found["bytes"]) // 2
    assert found["bytes"][-1] - found["bytes"][half] < growth_bytes_max, found["bytes"]
    assert found["metrics"][-1] < METRICS_MAX, found["metrics"]
    tried = found["tried"]
    kinds = {kind.__name__ for kind in kinds_of(CODECS[found["overlay"]].union)}
    others = {"control": Control, "client": ToNode, "pieces": PiecesMessage}
    kinds |= {f"{what} {kind.__name__}" for what, union in others.items() for kind in kinds_of(union)}
    assert kinds <= tried.keys(), kinds - tried.keys()
    assert {"timer", "lost stream", "garbage", "answer"} <= tried.keys()
    counted = found["counted"]
    assert counted["delivery delivered"] > 0  # or nobody was linked, and hardly anything was looked at
    assert counted["links_up"] > 2
    pieces = found["pieces"]
    assert min(pieces["asked"], pieces["got bytes"], pieces["given"], pieces["refused"]) > 0, pieces


@pytest.mark.parametrize("overlay", CODECS)
def test_hostile_values_break_no_handler_and_end_no_node(overlay):
    check(try_hostile_values(overlay, 2_500, seed=1), 128 * MIB)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("overlay", CODECS)
def test_a_million_hostile_values_break_no_handler_and_end_no_node(overlay, seed):
    check(try_hostile_values(overlay, 25_000, seed=100 + seed), 64 * MIB)


@pytest.mark.parametrize(
    ("codec", "union"), [(one, one.union) for one in (*CODECS.values(), CONTROLS, TO_NODE, PIECES_MESSAGES, PIECES)]
)
def test_drawn_values_are_values_of_their_types(codec, union):
    """Or nothing but the decoder would be tried."""
    values = Values(Random(1), ("a", "x"), ("t", "#"), ("127.0.0.1",))
    for kind in kinds_of(union):
        for _ in range(30):
            message = values.message(kind)
            assert codec.decode(msgspec.msgpack.encode(message)) == message
