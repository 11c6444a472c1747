"""The overlays that a mesh can keep: the one list of them.

The live node and its configuration, the simulator, the command line and `trellis up` read this list. An entry names
classes and functions as text ("module:attribute"). They are imported when they are first used, so a node starts fast,
and so does a command that prints its help.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from trellis.errors import InputError

if TYPE_CHECKING:
    from random import Random

    from trellis.protocols.effects import Contact, NodeId, Topic


class Overlay(NamedTuple):
    name: str
    about: str
    """A sentence for `--help`."""

    messages: str
    """The union of its messages, those of delivery left out."""

    adapter: str
    """The class that puts a node of its protocol below delivery (`mesh/driven.py`). It is called with the node."""

    maker: str
    """The function that makes the adapter and the node of a live mesh from a `Birth`."""

    heartbeat: str
    """The key of node.toml with the milliseconds between two heartbeats."""

    system: str
    """The class that runs its protocol in the simulator."""

    below: Mapping[str, Any] = {}
    """Options of that class for a run below delivery, so that nodes run there as they do live."""

    connects_topics: bool = False
    """Whether it promises to connect each topic through its subscribers alone. What is not promised is not judged."""

    proves_copies: bool = False
    """Whether delivery over it promises copies at nodes that are known to exist (docs/delivery.md)."""

    takes_plans: bool = False
    """Whether it starts from planned links, and opens and drops links on request."""


class Birth(NamedTuple):
    """What the overlay's node of a live mesh is made of."""

    name: NodeId
    topics: tuple[Topic, ...]
    contacts: tuple[Contact, ...]
    """Where it finds the first other nodes."""

    incarnation: int
    random: Random
    config: Any
    """The configuration of the node, with the overlay's own table under the overlay's name."""


OVERLAYS: Mapping[str, Overlay] = {
    entry.name: entry
    for entry in (
        Overlay(
            "omen",
            "OMen: repaired locally from backup sets that gossip keeps ready.",
            messages="trellis.protocols.omen.messages:Message",
            adapter="trellis.protocols.mesh.omen:OMenOverlay",
            maker="trellis.protocols.mesh.omen:make_omen",
            heartbeat="omen.period_ms",
            system="trellis.simulate.systems.omen:OMen",
            connects_topics=True,
            proves_copies=True,
            takes_plans=True,
        ),
        Overlay(
            "spidercast",
            "SpiderCast: every topic covered K times, greedily and at random.",
            messages="trellis.protocols.mesh.spidercast:MESSAGES",
            adapter="trellis.protocols.mesh.spidercast:SpiderCastOverlay",
            maker="trellis.protocols.mesh.spidercast:make_spidercast",
            heartbeat="spidercast.heartbeat_ms",
            system="trellis.simulate.systems.spidercast:SpiderCast",
            below={"gossip": True},
            connects_topics=True,
        ),
        Overlay(
            "vitis",
            "Vitis: clusters of similar nodes, joined by relay paths over a small-world ring.",
            messages="trellis.protocols.mesh.vitis:MESSAGES",
            adapter="trellis.protocols.mesh.vitis:VitisOverlay",
            maker="trellis.protocols.mesh.vitis:make_vitis",
            heartbeat="vitis.period_ms",
            system="trellis.simulate.systems.vitis:Vitis",
            below={"publications": 0},
        ),
        Overlay(
            "magnet",
            "Magnet: similar nodes side by side on a skewed ring, with multicast trees.",
            messages="trellis.protocols.mesh.magnet:MESSAGES",
            adapter="trellis.protocols.mesh.magnet:MagnetOverlay",
            maker="trellis.protocols.mesh.magnet:make_magnet",
            heartbeat="magnet.skewed.beat_ms",
            system="trellis.simulate.systems.magnet:Magnet",
        ),
    )
}


def overlay_of(name: str) -> Overlay:
    """Return the entry of an overlay. Raise InputError if there is none of that name."""
    if name not in OVERLAYS:
        raise InputError("overlay", f'there is no overlay "{name}"', f"choose from {', '.join(OVERLAYS)}")
    return OVERLAYS[name]


@cache
def load(reference: str) -> Any:
    """Return what "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)
