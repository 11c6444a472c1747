"""The lab: every figure of the papers as an experiment, and systems of one's own beside those of the papers.

    from trellis import lab

    lab.register("mine", Mine)                            a `System` of one's own
    found = lab.compare(["spidercast", "mine"], interests)
    print(found)                                          means with 95% intervals
    found.write("report")                                 report/index.html

Names are imported at their first use: much of the lab needs neither engine.  [docs/lab.md, A system of your own]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.lab.comparison import Comparison as Comparison
    from trellis.lab.side_by_side import compare as compare
    from trellis.lab.systems import Rounds as Rounds
    from trellis.lab.systems import register as register
    from trellis.lab.systems import unregister as unregister

_HOMES = {
    "register": "trellis.lab.systems",
    "unregister": "trellis.lab.systems",
    "Rounds": "trellis.lab.systems",
    "compare": "trellis.lab.side_by_side",
    "Comparison": "trellis.lab.comparison",
}
__all__ = ["Comparison", "Rounds", "compare", "register", "unregister"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
