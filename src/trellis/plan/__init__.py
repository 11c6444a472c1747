"""Build and repair overlays with knowledge of all interests.

`construct` builds overlays: GM, MinMaxODA, LowODA and the baselines ring, random and star. `maintain.Maintenance`
repairs them. The package itself can be called: `trellis.plan(interests)` is `api.plan` (`callable_package.py`). Names
load when they are first used, so a help page can read the configurations here without waiting for kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trellis.callable_package import make_callable

if TYPE_CHECKING:
    from trellis.plan.construction import ALGORITHMS, Construction, construct, memory_needed

__all__ = ["ALGORITHMS", "Construction", "construct", "memory_needed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from trellis.plan import construction

        return getattr(construction, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


make_callable(__name__)
