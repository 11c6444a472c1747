"""Measure whether load is shared fairly.  [SpiderCast 3.4; OMen 6.3]"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def gini(loads: npt.ArrayLike) -> float:
    """Return the Gini coefficient: half the mean difference between two loads, divided by the mean load.

    It is 0 if all are equal, and approaches 1 if one node bears all. Without loads, or if all are zero, it is 0. Loads
    must not be negative.
    """
    ordered = np.sort(np.asarray(loads, np.float64).ravel())
    total = float(ordered.sum())
    if total == 0:
        return 0.0
    assert ordered[0] >= 0, "a load is negative"
    ranks = np.arange(1, len(ordered) + 1)
    return float(np.sum((2 * ranks - len(ordered) - 1) * ordered)) / (len(ordered) * total)
