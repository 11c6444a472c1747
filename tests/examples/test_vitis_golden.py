"""Gateway election on a ring of equals as text for a reviewer to read; `TRELLIS_REWRITE_GOLDEN=1 pytest ...` writes it.

Six nodes want the same topic; each hears only the two beside it. In every round each node takes what its neighbours
said in the round before (VI Alg. 5). The gateway falls silent after some rounds. With the reading A-VIT-11 nobody takes
back what came from itself, and with d = 3 what goes around the ring dies out after d rounds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trellis.protocols.ring import RING, identifier
from trellis.protocols.vitis import VitisConfig
from trellis.protocols.vitis.gateways import Gateways
from trellis.protocols.vitis.neighbors import FIRM, Neighbor, Neighbors

GOLDEN = Path(__file__).parents[1] / "golden" / "vitis"
TOPIC, NAMES = "x", tuple("abcdef")


class Equals:
    """Nodes of one cluster that speak in rounds, all at once."""

    def __init__(self, links, **fields):
        self.heard = {name: Neighbors() for name in NAMES}
        config = VitisConfig(**fields)
        self.gateways = {name: Gateways(name, (TOPIC,), self.heard[name], config) for name in NAMES}
        for one, other in links:
            for name, peer in ((one, other), (other, one)):
                self.heard[name].all[peer] = Neighbor(peer, 1, (TOPIC,), heard=0)
                self.heard[name].all[peer].parting = FIRM
        self.lines = [f"closest to the topic first: {' '.join(sorted(NAMES, key=closeness))}"]
        self.round = 0

    def rounds(self, count):
        for _ in range(count):
            self.round += 1
            said = {name: gateways.listed for name, gateways in self.gateways.items()}
            for name, gateways in self.gateways.items():
                for peer, one in self.heard[name].all.items():
                    gateways.listen(one, said[peer])
            for gateways in self.gateways.values():
                gateways.update()
                gateways.check()
            self.lines.append(
                f"round {self.round:2}  " + "  ".join(self._phrase(name) for name in self.gateways).rstrip()
            )

    def silence(self, name):
        """Its neighbours have not heard it for THRESHOLD rounds."""
        self.lines.append(f"{name} is silent")
        del self.gateways[name]
        for other, gateways in self.gateways.items():
            one = self.heard[other].all.pop(name, None)
            if one is not None:
                gateways.went(one)

    def _phrase(self, name):
        told = self.gateways[name].proposals[TOPIC]
        return (
            f"{name}: itself    " if told.gateway == name else f"{name}: {told.gateway} by {told.parent}, {told.hops}"
        )


def closeness(name):
    far = (identifier(name) - identifier(TOPIC)) % RING
    return min(far, RING - far)


RING_OF_EQUALS = [*zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True)]


def as_read():
    equals = Equals(RING_OF_EQUALS, gateway_hops=3)
    equals.rounds(5)
    equals.silence(min(NAMES, key=closeness))
    equals.rounds(6)
    return equals


def to_the_letter():
    """`new.parent` may be ourselves: two neighbours give a gateway that is gone back and forth, and count up to d."""
    equals = Equals(RING_OF_EQUALS, gateway_hops=3, take_back=True)
    equals.rounds(5)
    equals.silence(min(NAMES, key=closeness))
    equals.rounds(6)
    return equals


SCENES = {"gateways-on-a-ring": as_read, "gateways-on-a-ring-to-the-letter": to_the_letter}


@pytest.mark.parametrize("name", SCENES)
def test_the_election_goes_as_it_stands_in_the_file(name):
    told = "\n".join([(SCENES[name].__doc__ or __doc__.split("\n\n")[1]).strip(), "", *SCENES[name]().lines]) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TRELLIS_REWRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(told, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == told


@pytest.mark.parametrize(("scene", "rounds"), [(as_read, 3), (to_the_letter, 3)])
def test_a_gateway_that_is_gone_is_forgotten_within_d_rounds(scene, rounds):
    gone = min(NAMES, key=closeness)
    lines = scene().lines
    after = lines[lines.index(f"{gone} is silent") + 1 :]
    assert not any(f": {gone} by" in line for line in after[rounds:])
    assert any(f": {gone} by" in line for line in after[: rounds - 1])


def test_what_one_gave_away_comes_back_to_it_only_by_the_letter():
    """A-VIT-11: a neighbour of the silent gateway takes it back from the one that it had told of it, or does not."""
    gone = min(NAMES, key=closeness)
    beside = [other for link in RING_OF_EQUALS for other in link if gone in link and other != gone]
    counts = {}
    for scene in (as_read, to_the_letter):
        lines = scene().lines
        after = lines[lines.index(f"{gone} is silent") + 1 :]
        counts[scene.__name__] = sum(f"{name}: {gone} by" in line for line in after for name in beside)
    assert counts == {"as_read": 0, "to_the_letter": counts["to_the_letter"]}
    assert counts["to_the_letter"] > 0
