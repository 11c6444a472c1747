"""The program `trellis`. Ctrl-C while it is still being imported ends it as at any later time: one line, and 130."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType


def leave_at_once(signum: int, frame: FrameType | None) -> None:
    """End the program on Ctrl-C before or after a command, when there is nothing to clean up."""
    os.write(2, b"trellis: interrupted\n")
    os._exit(130)


def _leave_quietly(signum: int, frame: FrameType | None) -> None:
    """End a process that a command has started, without a message: the command itself says that it was interrupted."""
    os._exit(130)


def _is_the_program() -> bool:
    path = Path(sys.argv[0] if sys.argv else "")
    is_ours = path.name.removesuffix(".exe") == "trellis" or path.parts[-2:] == ("trellis", "__main__.py")
    return is_ours and threading.current_thread() is threading.main_thread()


if _is_the_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    _processes = sys.modules.get("multiprocessing.process")
    _is_child = _processes is not None and _processes.current_process().name != "MainProcess"
    signal.signal(signal.SIGINT, _leave_quietly if _is_child else leave_at_once)
