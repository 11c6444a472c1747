"""List the systems by name. A module is imported only when its system is needed, so listing names is fast."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from trellis.errors import InputError
from trellis.simulate.system import System

# name -> module, and the function or class in it that makes the system from its options
SYSTEMS = {
    "omen": "trellis.simulate.systems.omen:OMen",
    "spidercast": "trellis.simulate.systems.spidercast:SpiderCast",
    "similarity": "trellis.simulate.systems.spidercast:Similarity",
    "random": "trellis.simulate.systems.spidercast:RandomLinks",
    "magnet": "trellis.simulate.systems.magnet:Magnet",
    "scribe": "trellis.simulate.systems.scribe:Scribe",
    "vitis": "trellis.simulate.systems.vitis:Vitis",
    "rvr": "trellis.simulate.systems.rvr:Rvr",
    "opt": "trellis.simulate.systems.opt:Opt",
    "delivery": "trellis.simulate.systems.delivery:Delivery",
    "pingpong": "trellis.simulate.systems.toys:PingPong",
    "flooder": "trellis.simulate.systems.toys:Flooder",
    "mesh": "trellis.simulate.systems.toys:Mesh",
}
TOYS = ("pingpong", "flooder", "mesh")  # for tests of the engine; the command line does not offer them


def maker_of(name: str) -> Callable[..., System]:
    """Return the maker of a system. It can be pickled, with its options in a `functools.partial`."""
    if name not in SYSTEMS:
        known = ", ".join(sorted(set(SYSTEMS) - set(TOYS)))
        raise InputError("", f'no protocol is called "{name}"', f"choose from {known}")
    module, _, attribute = SYSTEMS[name].partition(":")
    maker: Callable[..., System] = getattr(import_module(module), attribute)
    return maker
