"""Files are written whole or not at all: beside their place first, then renamed into it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trellis.errors import InputError


@contextmanager
def written_whole(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Gives a path beside `path` to write to; moves it into place at the end, removes it on any error.

    `private`: nobody but its owner ever may read it.
    """
    path = Path(path)
    temporary = _beside(path)
    try:
        yield temporary
        # mkstemp makes private files; a result has the rights that any new file of this user has.
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(
            str(path),
            f"cannot be written ({error.strerror or error})",
            "free some space or choose another place",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def expect_writable(path: str | Path) -> None:
    """Raise the InputError that `written_whole` would raise at the end of long work. Nothing is left behind."""
    _beside(Path(path)).unlink()


def _beside(path: Path) -> Path:
    """Return a new empty file in the folder of `path`."""
    if path.is_dir():
        raise InputError(str(path), "is a folder", "name a file to write to")
    if path.exists() and not path.is_file():
        # A rename would put a file in the place of a device: for root, of /dev/null too.
        raise InputError(str(path), "is a device or a pipe, and would be replaced", "name a file to write to")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise InputError(
            str(path), f"cannot be written ({error.strerror})", "choose a folder that exists and is yours"
        ) from error
    os.close(handle)
    return Path(name)


@contextmanager
def removed_on_failure(folder: str | Path) -> Iterator[None]:
    """Around work that makes a folder: where it fails, or is interrupted, a folder that was not there before goes."""
    folder = Path(folder)
    was_there = folder.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise
