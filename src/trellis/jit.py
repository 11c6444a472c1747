"""How kernels are compiled: numba's `njit`, with a cache on disk where one can be written, and without where not.

numba keeps compiled kernels beside the source, else under the user's home, or where NUMBA_CACHE_DIR says. It refuses to
import a kernel where none of them can be written, which is usual for a service's user without a home. Then we compile
in every process anew: slower, but the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import event

_uncached: set[str] = set()  # kernels that no folder was found for


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that goes without a cache where none can be kept."""

    def decorate(function: Callable[..., Any]) -> Any:
        if not cache:
            return numba.njit(**options)(function)
        try:
            return _forgiving(numba.njit(cache=True, **options)(function))
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            _uncached.add(function.__name__)
            return numba.njit(**options)(function)

    return decorate


def is_cached() -> bool:
    """Whether what is compiled now is there for the next process."""
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
    """A kernel whose work goes on where its cache cannot be written any more: the disk is full, or the folder gone."""
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
