"""A node that belongs to another process ends with it, however that went: no orphan is left.

On Linux the kernel sends SIGKILL, which ends a stopped process too. Elsewhere a thread looks now and then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5


def die_with(parent: int) -> None:
    """To be called once, by the main thread, before anything else."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _look(parent)  # it may have gone before anybody was told


def _watch(parent: int) -> None:
    while True:
        time.sleep(_LOOK_S)
        _look(parent)


def _look(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
