"""Whether seeds accept this node, whether it is certainly alone, and whether its name is its own.  [docs/live.md]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trellis.live.addresses import parse_seed
from trellis.live.log import listed, one_line
from trellis.protocols.effects import Contact, NodeId, Seed

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

TEXT_LETTERS_MAX = 500
WHYS_MAX = 3  # seeds that a refused publication names


class Seeds:
    """Whether any seed accepted this node, if it has seeds."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node

    def others(self) -> list[Seed]:
        """Return the seeds that are not this node itself."""
        names, me = self.node.transport.names, self.node.transport.me
        seeds = [seed for seed in map(parse_seed, self.node.config.seeds) if names.get(seed) != me.node]
        return [seed for seed in seeds if seed != Seed(me.host, me.port)]

    def look(self) -> None:
        """Dial all seeds until another node has said anything: publications wait for what becomes of that."""
        if not self.node.has_met:
            for seed in self.others():
                self.node.transport.dialing.look_at(seed)

    def why_unjoined(self) -> str:
        """Return why it is not certain that this node is alone, if it has met nobody since its start. Empty: it is.

        A node without other seeds is alone. So is a node at whose seeds nothing listens just now: no node runs there.
        Silence proves nothing, and neither does a host name that cannot be resolved.
        """
        if self.node.has_met:
            return ""
        dialing = self.node.transport.dialing
        whys = [f"seed {seed}: {self._why(seed)}" for seed in self.others() if not dialing.is_switched_off(seed)]
        more = f"; and {len(whys) - WHYS_MAX} more seeds" if len(whys) > WHYS_MAX else ""
        return bounded("; ".join(whys[:WHYS_MAX]) + more)

    def complaints(self) -> list[str]:
        transport, others = self.node.transport, self.others()
        silence_s = self.node.health.links.silence_s()
        if others and transport.peers and silence_s:
            names = listed(sorted(transport.peers))
            return [f"No other node has said anything for {int(silence_s)} s, although streams are open to {names}."]
        if transport.peers:
            return []
        return [f"Seed {seed} did not accept this node: {self._why(seed)}." for seed in others]

    def _why(self, seed: Seed) -> str:
        transport = self.node.transport
        if seed in transport.failures:
            return transport.failures[seed]
        return "its stream has ended, and it is dialed again" if seed in transport.names else "it has not answered yet"


class Names:
    """Whether another node runs under this node's name: others then refuse this one.

    The complaint is over when the peer that refused this node accepts it, or cannot be reached any more. That peer is
    dialed again every second or two.
    """

    TOLD_S = 6.0  # The complaint is over after so long without a word of that peer.

    def __init__(self, refusals: Mapping[Contact, float], name: NodeId, now: Callable[[], float]) -> None:
        """`refusals`: who refused this node's name in its last word to it, and when."""
        self._refusals, self._name, self._now = refusals, name, now

    def complaints(self) -> list[str]:
        if all(self._now() - when >= self.TOLD_S for when in self._refusals.values()):
            return []
        return [f"Another node named {self._name} runs, or this machine's clock was set back: peers refuse this one."]


def bounded(text: str) -> str:
    """A seed's reason is its own words: they make one line, and no more than that."""
    text = one_line(text)
    return text if len(text) <= TEXT_LETTERS_MAX else f"{text[: TEXT_LETTERS_MAX - 4]} ..."
