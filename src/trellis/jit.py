"""Compile kernels with numba's `njit`, with a cache on disk if one can be written, and without it if not.

numba keeps compiled kernels beside the source, else below the user's home, or in NUMBA_CACHE_DIR. If none of these
folders can be written, it refuses to import a kernel. That is usual for the user of a service, who has no home. Then
kernels are compiled again in every process, which is slower and has the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event

_uncached: set[str] = set()  # kernels without a folder for their cache


def njit(*, cache: bool = True, folder: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `numba.njit` that does without a cache if none can be written.

    numba compiles a cached kernel again when the kernel's own file changes, and does not look at the kernels that it
    calls. `folder`: compile it again when any file of its folder changes.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if not cache:
            return numba.njit(**options)(function)
        try:
            kernel = _forgiving(numba.njit(cache=True, **options)(function))
            return _stamped_by_folder(kernel, function) if folder else kernel
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            _uncached.add(function.__name__)
            return numba.njit(**options)(function)

    return decorate


def is_cached() -> bool:
    """Tell whether all kernels that were compiled so far are cached for the next process."""
    return not _uncached


@contextmanager
def compiling(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` once, as soon as a kernel is compiled inside. One that is loaded from the cache is not compiled."""
    with event.install_listener("numba:compile", _Once(told)):
        yield


class _Once(event.Listener):
    def __init__(self, told: Callable[[], None]) -> None:
        self._told: Callable[[], None] | None = told

    def on_start(self, event: Any) -> None:
        if self._told is not None:
            told, self._told = self._told, None
            told()

    def on_end(self, event: Any) -> None:
        pass


def _forgiving(kernel: Any) -> Any:
    """Let a kernel work also if its cache can no longer be written: the disk is full, or the folder was removed."""
    cache = getattr(kernel, "_cache", None)  # NUMBA_DISABLE_JIT leaves a plain function without one
    if cache is None or not hasattr(cache, "save_overload"):
        return kernel
    save = cache.save_overload

    def save_if_possible(signature: Any, compiled: Any) -> None:
        try:
            save(signature, compiled)
        except OSError:
            _uncached.add(kernel.__name__)

    cache.save_overload = save_if_possible
    return kernel


def _stamped_by_folder(kernel: Any, function: Callable[..., Any]) -> Any:
    """Make the cache of `kernel` valid only for the present state of its folder."""
    index: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = _folder_stamp(Path(function.__code__.co_filename).parent)
    return kernel


@lru_cache(maxsize=16)
def _folder_stamp(folder: Path) -> tuple[tuple[str, float, int], ...]:
    return tuple((path.name, path.stat().st_mtime, path.stat().st_size) for path in sorted(folder.glob("*.py")))
