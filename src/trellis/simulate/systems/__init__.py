"""List the systems by name. A module is imported only when its system is needed, so listing names is fast."""

from __future__ import annotations

from collections.abc import Callable

from trellis.errors import InputError
from trellis.protocols.overlays import OVERLAYS, load
from trellis.simulate.system import System

# name -> module, and the function or class in it that makes the system from its options
SYSTEMS = {
    **{name: overlay.system for name, overlay in OVERLAYS.items()},
    "similarity": "trellis.simulate.systems.spidercast:Similarity",
    "random": "trellis.simulate.systems.spidercast:RandomLinks",
    "scribe": "trellis.simulate.systems.scribe:Scribe",
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
    maker: Callable[..., System] = load(SYSTEMS[name])
    return maker
