"""Packages that can be called: `trellis.plan(...)` plans, and `trellis.plan.construction` is still a module.

Two functions of the Python interface have the names of the packages they belong to. Python binds the name of a package
to the module as soon as anything in it is imported, so the module itself must be callable. Python lets a module have a
class of its own (the language reference, "Customizing module attribute access"); the class here has a `__call__`.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose `api.py` has a function of the package's own name. A call of the package calls that function."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        return getattr(import_module(f"{self.__name__}.api"), self.__name__.rpartition(".")[2])


def make_callable(package: str) -> None:
    """Let the package of this name be called. It must be imported already; its `__init__.py` calls this."""
    sys.modules[package].__class__ = CallablePackage
