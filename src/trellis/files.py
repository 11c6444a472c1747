"""Write files completely or not at all: into a temporary file in the same folder, which is then renamed."""

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
    """Give a temporary path to write to. Rename it to `path` at the end, or remove it after any error.

    `private`: only its owner may read it, at any time.
    """
    path = Path(path)
    temporary = _beside(path)
    try:
        yield temporary
        # mkstemp makes private files, and a result should have the rights of any new file of this user.
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
            "free some space or choose another folder",
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
        # A rename would replace a device with a file: for root, /dev/null too.
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
def filled_whole(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to. At the end its files and folders replace those of `folder`.

    After an error, `folder` is as it was. Other files in it are kept.
    """
    try:
        beside = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder))
    except OSError as error:
        what = f"cannot be written to ({error.strerror})"
        raise InputError(str(folder), what, "choose a folder that is yours, or free some space") from error
    try:
        yield beside
        for made in sorted(beside.iterdir()):
            old = folder / made.name
            if made.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            made.replace(old)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def removed_on_failure(folder: str | Path) -> Iterator[None]:
    """Remove a folder that the block has made, if the block fails or is interrupted."""
    folder = Path(folder)
    was_there = folder.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise
