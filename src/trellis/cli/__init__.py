"""The program `trellis`. Ctrl-C while it is still being imported ends it as at any later time: one line, and 130."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType


def leave_at_once(signum: int, frame: FrameType | None) -> None:
    """Before and after a command there is nothing to put in order."""
    os.write(2, b"trellis: interrupted\n")
    os._exit(130)


def _is_the_program() -> bool:
    name = Path(sys.argv[0]).name if sys.argv else ""
    is_main = threading.current_thread() is threading.main_thread()
    return name.removesuffix(".exe") == "trellis" and is_main


if _is_the_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave_at_once)
