"""Say in one line what a command has written when Ctrl-C or SIGTERM ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trellis.cli import failures


class Terminated(SystemExit):
    """SIGTERM. It is raised as an exception so that the command cleans up as it does after Ctrl-C."""

    def __init__(self, left: str = "") -> None:
        super().__init__(failures.TERMINATED)
        self.left = left


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence that says what the command has written."""

    def __init__(self, left: str) -> None:
        super().__init__(left)
        self.left = left


@contextmanager
def ending_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise Terminated, once. A program that has a handler of its own keeps it."""
    usable = threading.current_thread() is threading.main_thread()
    if not usable or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the cleaning up
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def telling_what_is_left(left: Callable[[], str]) -> Iterator[None]:
    """Add what `left` returns to the line that Ctrl-C or SIGTERM prints. It is called after the block has cleaned up.

    Of nested blocks the innermost says it.
    """
    try:
        yield
    except Terminated as error:
        raise Terminated(error.left or left()) from None
    except KeyboardInterrupt as error:
        raise Interrupted(getattr(error, "left", "") or left()) from None
    except Exception as error:
        if not failures.is_interrupt(error):
            raise
        raise Interrupted(left()) from None
