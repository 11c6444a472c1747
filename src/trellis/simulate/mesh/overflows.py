"""Read from the nodes how many messages they dropped because a queue or window was full. Record it for the judge."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from trellis.judge.history import Overflowed
from trellis.live.shell import LiveNode
from trellis.simulate.mesh.witness import Witness
from trellis.simulate.whole.whole import Mesh

_LOOK_S = 0.25
Place = Literal["window", "clients"]


class Overflows:
    """Watches counters of all nodes."""

    def __init__(self, mesh: Mesh, witness: Witness, places: Collection[Place]) -> None:
        """`places` says where nodes may drop messages. Elsewhere they have space for all messages."""
        self.mesh, self.witness, self.places = mesh, witness, places
        self._told: dict[tuple[LiveNode, str], int] = {}

    def watch(self) -> None:
        """Look at all nodes, now and every `_LOOK_S`."""
        for name, node in self.mesh.nodes.items():
            if self.mesh.is_running(name):
                self._note(name, node, "window", node.mesh.delivery.state.store.overflows)
                if node.mqtt is not None:
                    self._note(name, node, "clients", node.mqtt.host.counters["dropped"])
        self.mesh.world.after(_LOOK_S, self.watch)

    def _note(self, name: str, node: LiveNode, where: Place, count: int) -> None:
        more = count - self._told.get((node, where), 0)
        if more and where in self.places:
            self._told[node, where] = count
            self.witness.add(Overflowed(self.witness.now(), name, more, where))
