"""Find the lists of topics in messages, and replace them.

A field is a list of topics if its type is `wire.Topics`. Such fields are found once for each type of message, in the
message itself and in the structs that it has (descriptors, records, samples).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from trellis.protocols.wire import TOPICS_MAX, WireError

Topics = tuple[str, ...]
Struct = TypeVar("Struct", bound=msgspec.Struct)

_LIST, _ONE, _EACH = "list", "one", "each"  # A field is a list of topics, a struct that has some, or a tuple of either.


class TopicLists:
    """The lists of topics in the messages of one union."""

    def __init__(self, union: Any) -> None:
        self._fields: dict[type, list[tuple[str, str]]] = {}
        for kind in get_args(union) or (union,):
            self._look_into(inspect.type_info(kind))

    @staticmethod
    @cache
    def of(union: Any) -> TopicLists:
        """Return the instance of a union. It is made once in a process, which may run many nodes."""
        return TopicLists(union)

    def are_in(self, kind: type) -> bool:
        """Return whether messages of this type can have lists of topics."""
        return bool(self._fields.get(kind))

    def replace(self, message: Struct, change: Callable[[Topics], Topics | None]) -> Struct:
        """Return the message with each list replaced by what `change` returns, or the same object if nothing changes.

        If `change` returns None, the element of a tuple that has the list is left out. Raise WireError if the list is
        not inside of such an element.
        """
        changed = self._replaced(message, change)
        if changed is None:
            raise WireError(f"the lists of topics of a {type(message).__name__} are too long")
        return changed

    def _replaced(self, value: Struct, change: Callable[[Topics], Topics | None]) -> Struct | None:
        """Return the struct with its lists replaced, or None if it must be left out."""
        new: dict[str, Any] = {}
        for name, how in self._fields.get(type(value), ()):
            before = getattr(value, name)
            if before is None:
                continue
            if how == _EACH:
                elements = [self._replaced(one, change) for one in before]
                if all(one is other for one, other in zip(elements, before, strict=True)):
                    continue
                after: Any = tuple(one for one in elements if one is not None)
            else:
                after = change(before) if how == _LIST else self._replaced(before, change)
                if after is None:
                    return None
            if after is not before:
                new[name] = after
        return msgspec.structs.replace(value, **new) if new else value

    def _look_into(self, kind: inspect.Type) -> bool:
        """Note the fields of a struct that have lists of topics. Return whether there are any."""
        assert isinstance(kind, inspect.StructType)
        if kind.cls not in self._fields:
            self._fields[kind.cls] = []  # A type that has itself as a field ends here.
            for field in kind.fields:
                how = self._how(field.type)
                if how is not None:
                    self._fields[kind.cls].append((field.name, how))
        return bool(self._fields[kind.cls])

    def _how(self, kind: inspect.Type) -> str | None:
        """Return how a field of this type has lists of topics, or None if it has none."""
        match kind:
            case inspect.UnionType(types=kinds):
                found = {self._how(one) for one in kinds} - {None}
                assert len(found) <= 1, f"a field holds lists of topics in more than one way: {kind}"
                return next(iter(found), None)
            case inspect.VarTupleType(item_type=inspect.StrType(), max_length=length) if length == TOPICS_MAX:
                return _LIST
            case inspect.VarTupleType(item_type=item):
                return _EACH if self._how(item) is not None else None
            case inspect.StructType():
                return _ONE if self._look_into(kind) else None
        return None
