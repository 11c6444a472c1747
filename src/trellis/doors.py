"""Rooms that can be called: `trellis.plan(...)` plans, and `trellis.plan.construction` is still a file of the room.

The functions of the Python interface are named as the rooms they belong to, and Python binds the name of a package to
the module as soon as anything in it is imported. So the room itself is what is called: Python lets a module have a
class of its own (the language reference, "Customizing module attribute access"), and this one has a `__call__`.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """A package whose `api.py` has a function of the package's own name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        return getattr(import_module(f"{self.__name__}.api"), self.__name__.rpartition(".")[2])


def make_callable(room: str) -> None:
    sys.modules[room].__class__ = Room
