"""Is the load shared fairly?  [SpiderCast 3.4; OMen 6.3]"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def gini(loads: npt.ArrayLike) -> float:
    """Half the mean difference between two loads, over the mean load: 0 all equal, towards 1 one bears all.

    Of no loads, or of loads that are all zero: 0. Loads must not be negative.
    """
    ordered = np.sort(np.asarray(loads, np.float64).ravel())
    total = float(ordered.sum())
    if total == 0:
        return 0.0
    assert ordered[0] >= 0, "a load is negative"
    ranks = np.arange(1, len(ordered) + 1)
    return float(np.sum((2 * ranks - len(ordered) - 1) * ordered)) / (len(ordered) * total)
