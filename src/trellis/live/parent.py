"""End a process when its parent ends, even if the parent crashes, so that no orphan stays behind.

`trellis up` starts its nodes like this. On Linux the kernel sends SIGKILL to the child, which also ends a stopped
process. Elsewhere a thread checks twice a second whether the parent is still the same.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5  # between two checks of the thread


def die_with(parent: int) -> None:
    """Make this process end when its parent, the process `parent`, ends.

    Call it once, in the main thread, before anything else. If the parent has already ended, this process exits now.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _look(parent)  # The parent may have ended before the kernel or the thread watched it.


def _watch(parent: int) -> None:
    while True:
        time.sleep(_LOOK_S)
        _look(parent)


def _look(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
