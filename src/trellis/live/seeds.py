"""Tell whether seeds accept this node, whether it is certain that no other node runs, and whether its name is unique.

`Seeds` and `Names` are parts of `Health`, which calls `look` twice a second and reports their complaints. Delivery asks
`Seeds.why_unjoined` before it relies on being the only node.  [docs/live.md]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trellis.live.addresses import parse_seed
from trellis.live.log import listed, one_line
from trellis.protocols.effects import Contact, NodeId, Seed

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

TEXT_LETTERS_MAX = 500  # longest text of a complaint
WHYS_MAX = 3  # most seeds that the refusal of a publication names


class Seeds:
    """The seeds of this node, and why they have not accepted it."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node

    def others(self) -> list[Seed]:
        """Return the seeds that are not this node itself."""
        names, me = self.node.transport.names, self.node.transport.me
        seeds = [seed for seed in map(parse_seed, self.node.config.seeds) if names.get(seed) != me.node]
        return [seed for seed in seeds if seed != Seed(me.host, me.port)]

    def look(self) -> None:
        """Dial all other seeds, if no message of another node has come since the start.

        Publications wait for the result (`why_unjoined`).
        """
        if not self.node.has_met:
            for seed in self.others():
                self.node.transport.dialing.look_at(seed)

    def why_unjoined(self) -> str:
        """Return why a node that has met no other node cannot be sure that it is alone.

        The result is empty if the node has met another one since its start, or if it is certainly alone. It is alone if
        it has no seeds but itself, or if nothing listens at any of them now. A seed that does not answer proves
        nothing, and neither does a host name that cannot be resolved.
        """
        if self.node.has_met:
            return ""
        dialing = self.node.transport.dialing
        whys = [f"seed {seed}: {self._why(seed)}" for seed in self.others() if not dialing.is_switched_off(seed)]
        more = f"; and {len(whys) - WHYS_MAX} more seeds" if len(whys) > WHYS_MAX else ""
        return bounded("; ".join(whys[:WHYS_MAX]) + more)

    def complaints(self) -> list[str]:
        """Return why this node, which has seeds, gets no messages of others, one sentence each."""
        transport, others = self.node.transport, self.others()
        silence_s = self.node.health.links.silence_s()
        if others and transport.peers and silence_s:
            names = listed(sorted(transport.peers))
            return [f"No other node has said anything for {int(silence_s)} s, although streams are open to {names}."]
        if transport.peers:
            return []
        return [f"Seed {seed} did not accept this node: {self._why(seed)}." for seed in others]

    def _why(self, seed: Seed) -> str:
        """Return why a seed is not connected."""
        transport = self.node.transport
        if seed in transport.failures:
            return transport.failures[seed]
        return "its stream has ended, and it is dialed again" if seed in transport.names else "it has not answered yet"


class Names:
    """Complains if peers refuse this node because another node runs under its name.

    The complaint ends when the peer that refused this node accepts it, or cannot be reached any more. That peer is
    dialed again about every second (`Dialing.sweep`).
    """

    TOLD_S = 6.0  # The complaint also ends this long after the last refusal.

    def __init__(self, refusals: Mapping[Contact, float], name: NodeId, now: Callable[[], float]) -> None:
        """`refusals`: nodes and seeds whose last answer refused this node's name, and when that answer came."""
        self._refusals, self._name, self._now = refusals, name, now

    def complaints(self) -> list[str]:
        """Return the complaint as one sentence, or nothing."""
        if all(self._now() - when >= self.TOLD_S for when in self._refusals.values()):
            return []
        return [f"Another node named {self._name} runs, or this machine's clock was set back: peers refuse this one."]


def bounded(text: str) -> str:
    """Return a text as one line of bounded length, since a seed may have chosen its words."""
    text = one_line(text)
    return text if len(text) <= TEXT_LETTERS_MAX else f"{text[: TEXT_LETTERS_MAX - 4]} ..."
