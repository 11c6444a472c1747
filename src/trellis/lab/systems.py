"""Systems that can be compared: those of the papers, central algorithms, and whatever a researcher registers.

    lab.register("chains", Chains)                     a `System` for the event engine, or a function that makes one
    lab.register("walks", Walks, engine="cycles")      a network in rounds: Walks(interests, seed) has `cycle` and
                                                       `links`

A registration lasts as long as the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

from trellis.errors import InputError
from trellis.simulate.system import System
from trellis.simulate.systems import SYSTEMS, TOYS, maker_of

ENGINES = ("events", "cycles")
CENTRAL = ("lowoda", "gm", "minmax", "ring")  # planned with knowledge of all nodes: no engine runs
PAPERS = tuple(name for name in SYSTEMS if name not in (*TOYS, "delivery"))


class Rounds(Protocol):
    """A network of one's own in rounds, made by `make(interests, seed, **options)`.

    An attribute `messages`, if there is one, counts all messages that were sent so far.
    """

    def cycle(self) -> bool:
        """Run one gossip round, and return whether a link has changed."""
        ...

    def links(self) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return both ends of every link, each link once: places of nodes in `interests.nodes`."""
        ...


_own: dict[tuple[str, str], Callable[..., Any]] = {}  # (name, engine) -> maker


def register(name: str, make: Callable[..., Any], *, engine: str = "events") -> None:
    """Let `trellis.lab.compare` know a system of your own.

    name    how the table calls it; not the name of a system that Trellis has
    make    for the engine `events`: a class or function that gives a `trellis.simulate.system.System`; for `cycles`:
            one that takes interests and a seed and gives a network with `cycle` and `links` (`trellis.lab.Rounds`)
    engine  events or cycles; register twice for a system that has both
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError("", "a system needs a name", 'register it as lab.register("mine", make)')
    if name in PAPERS or name in CENTRAL:
        raise InputError(name, "Trellis has a system of this name", "choose another name")
    _check_engine(engine)
    if not callable(make):
        raise InputError(name, f"{make!r} cannot be called", "give a class or a function that makes the system")
    _own[name, engine] = make


def unregister(name: str) -> None:
    """Forget a system that was registered, on both engines."""
    for engine in ENGINES:
        _own.pop((name, engine), None)


def engines_of(name: str) -> tuple[str, ...]:
    """Return the engines that have this system; `central` for an algorithm that needs none."""
    if name in CENTRAL:
        return ("central",)
    if name in PAPERS:
        from trellis.simulate.by_cycles import SYSTEMS as IN_CYCLES

        return ENGINES if name in IN_CYCLES else ("events",)
    found = tuple(engine for engine in ENGINES if (name, engine) in _own)
    if not found:
        known = ", ".join((*PAPERS, *CENTRAL, *dict.fromkeys(own for own, _ in _own)))
        raise InputError("", f'no system is called "{name}"', f"register it, or choose from {known}")
    return found


def make_system(name: str, options: dict[str, Any]) -> System:
    """Return a system for the event engine, or one of Trellis' own for either."""
    own = _own.get((name, "events"))
    made = called(name, own or maker_of(name), **options)
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "make_node", None)):
        what = f"its maker gives {type(made).__name__}, which is no System"
        raise InputError(name, what, "subclass trellis.simulate.system.System")
    system: System = made
    return system


def make_rounds(name: str, interests: Any, seed: int, options: dict[str, Any]) -> Rounds:
    """Return a network of one's own in rounds."""
    made = called(name, _own[name, "cycles"], interests, seed, **options)
    for needed in ("cycle", "links"):
        if not callable(getattr(made, needed, None)):
            raise InputError(name, f"its network has no method `{needed}`", "see trellis.lab.Rounds")
    network: Rounds = made
    return network


def is_own(name: str, engine: str) -> bool:
    return (name, engine) in _own


def called(name: str, make: Callable[..., Any], *given: Any, **options: Any) -> Any:
    try:
        return make(*given, **options)
    except TypeError as error:
        raise InputError(name, " ".join(str(error).split()), "give options that its maker takes") from error


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise InputError("", f'no engine is called "{engine}"', f"choose from {', '.join(ENGINES)}")
