"""Re-spacing: spread out a part of the ring where labels have grown too long. The order stays.  (A-MAG-7)

A node that has given out a label longer than the grid sends a wave clockwise, from successor to successor. The wave
counts the nodes that it passes. It turns back where the arc from its start has enough grid points for them. On its
return each node moves clockwise, to its share of that arc, unless it is beyond it already. A node never passes its
successor, which has moved before. So the order is kept at every moment, even if messages are lost: a wave that breaks
off has only moved fewer nodes.

R1  A node moves clockwise only, and stays before its successor.
"""

from __future__ import annotations

from trellis.protocols.effects import Effects, NodeId, Send
from trellis.protocols.oscar.config import OscarConfig
from trellis.protocols.oscar.labels import Label, grid, grid_label, inside
from trellis.protocols.oscar.messages import HOPS_MAX, Spread, SpreadBack
from trellis.protocols.oscar.table import Table

_ROOM_BITS = 32  # Halvings that must fit between two re-spaced nodes.
_WAVES_MAX = 64  # Most waves that a node remembers, by origin.


class Respacing:
    """The part of one node in re-spacing."""

    def __init__(self, layer: str, table: Table, config: OscarConfig) -> None:
        self.layer, self.table, self.config = layer, table, config
        self.moves = 0  # how often this node was moved
        self._came_from: dict[NodeId, NodeId] = {}  # origin of a wave -> the node that sent it to us

    def is_due(self, label: Label) -> bool:
        """Return whether a label is so long that re-spacing should begin."""
        return len(label) > self.config.grid_bytes

    def begin(self) -> Effects:
        """Send a wave to the successor."""
        me, first = self.table.me, self.table.successor
        if me is None or first is None:
            return []
        return [Send(first.node, Spread(self.layer, self.table.node, me.label, 1))]

    def on_spread(self, sender: NodeId, wave: Spread) -> Effects:
        """Forward a wave, or turn it back if there is room enough."""
        me, first = self.table.me, self.table.successor
        if me is None or first is None or wave.count >= HOPS_MAX:
            return []
        size = self.config.grid_bytes
        around = wave.origin == self.table.node
        arc = (grid(me.label, size) - grid(wave.start, size)) % (1 << 8 * size)
        if around:
            arc = 1 << 8 * size
        if around or self._is_roomy(arc, wave.count):
            step = arc // wave.count
            if wave.count <= 1 or step < 1:
                return []
            position = grid(wave.start, size) + step * (wave.count - 1)
            return [Send(sender, self._back(wave.origin, wave.start, position, step))]
        if len(self._came_from) >= _WAVES_MAX:
            self._came_from.clear()
        self._came_from[wave.origin] = sender
        return [Send(first.node, Spread(self.layer, wave.origin, wave.start, wave.count + 1))]

    def _is_roomy(self, arc: int, count: int) -> bool:
        """Return whether an arc has room for many more halvings between any two of its nodes.

        The longer the wave, the more room is asked for. So long waves are rare, and n joins at one point cost O(n log
        n) moves instead of n^2.
        """
        room = arc >> min(_ROOM_BITS, 4 * self.config.grid_bytes)
        return room * room > count**3

    def on_spread_back(self, sender: NodeId, wave: SpreadBack) -> Effects:
        """Move to the label that a returning wave gives us, and forward the wave."""
        me, size = self.table.me, self.config.grid_bytes
        if me is not None and self.table.successor is not None and self.table.successor.node == sender:
            # The nodes ahead have moved. Their old labels would put them into the wrong order.
            self.table.set_successors([wave.me, *wave.successors], self.config.successors)
        if me is None or wave.origin == self.table.node:
            return []
        before = self._came_from.pop(wave.origin, None)
        if before is None or not inside(me.label, wave.start, wave.me.label):
            return []
        first = self.table.successor
        limit = wave.me.label if first is None or first.node == sender else first.label
        if inside(wave.place, me.label, wave.me.label) and inside(wave.place, me.label, limit):
            self.table.move(wave.place)
            self.moves += 1
        step = grid(wave.step, size)
        position = grid(wave.place, size) - step
        return [Send(before, self._back(wave.origin, wave.start, position, step))]

    def _back(self, origin: NodeId, start: Label, position: int, step: int) -> SpreadBack:
        """Return the message for the next node on the way back."""
        table, size = self.table, self.config.grid_bytes
        assert table.me is not None
        known = tuple(table.successors[: self.config.successors - 1])
        return SpreadBack(
            self.layer, origin, start, grid_label(position, size), grid_label(step, size), table.me, known
        )
