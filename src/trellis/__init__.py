"""Trellis: topic-connected overlays for publish/subscribe, planned, proven and run.

    interests = trellis.read_interests("interests.parquet")
    made = trellis.plan(interests, rho=3)                    made.overlay
    report = trellis.check(interests, made.overlay)          report.is_tco
    kept = trellis.maintain(interests, churn, made.overlay)  kept.overlay(), kept.history
    run = trellis.simulate("omen", interests, overlay=made.overlay, churn=churn)
    async with trellis.connect("127.0.0.1:7101") as client: ...

Each name is imported at its first use, so `import trellis` stays light: a live node does it. [docs/api.md]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.errors import InputError as InputError
    from trellis.errors import TrellisError as TrellisError
    from trellis.live.client import connect as connect
    from trellis.measure.check import check_overlay as check
    from trellis.model import ChurnTrace as ChurnTrace
    from trellis.model import Interests as Interests
    from trellis.model import Overlay as Overlay
    from trellis.model import read_churn as read_churn
    from trellis.model import read_interests as read_interests
    from trellis.model import read_overlay as read_overlay
    from trellis.model import write_table as write_table
    from trellis.plan.api import maintain as maintain
    from trellis.plan.api import plan as plan
    from trellis.simulate.api import simulate as simulate

__version__ = "0.1.0"

# Name -> module, and the name there if it is another one. Empty: a package that can be called.
_HOMES = {
    "read_interests": "trellis.model",
    "read_overlay": "trellis.model",
    "read_churn": "trellis.model",
    "write_table": "trellis.model",
    "plan": "",
    "check": "trellis.measure.check:check_overlay",
    "maintain": "trellis.plan.api",
    "simulate": "",
    "connect": "trellis.live.client",
    "Interests": "trellis.model",
    "Overlay": "trellis.model",
    "ChurnTrace": "trellis.model",
    "TrellisError": "trellis.errors",
    "InputError": "trellis.errors",
}
__all__ = [
    "ChurnTrace",
    "InputError",
    "Interests",
    "Overlay",
    "TrellisError",
    "__version__",
    "check",
    "connect",
    "maintain",
    "plan",
    "read_churn",
    "read_interests",
    "read_overlay",
    "simulate",
    "write_table",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home:
        return import_module(f"{__name__}.{name}")
    module, _, other = home.partition(":")
    return getattr(import_module(module), other or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
