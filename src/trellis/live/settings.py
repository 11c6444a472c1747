"""Read settings that are given as text, and word the errors about keys and values that cannot be used.

In node.toml values have types. In the environment and in --set they are text. There a list is written as in TOML or
with commas: `["a", "b"]`, `"a", "b"` or `a,b`. `config.py` calls these functions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from trellis.errors import InputError

_IPV6 = re.compile(r"\[[0-9A-Fa-f:.%]*\]:")  # "[::1]:7001" is an address, not a list.
_NEAREST_MAX = 3  # most similar keys that an error names
_ALL_KEYS = "trellis node --print-config shows all keys"
_UNKNOWN = re.compile(r"unknown field `(.*)`")
_EXPECTED = re.compile(r"Expected `(\w+)")
# Type that msgspec expected -> what is wrong with a value of another type, and what to do.
_FAULTS = {
    "int": ("is no whole number", "give one, as in 500"),
    "float": ("is no number", "give one, as in 0.5"),
    "bool": ("is neither true nor false", "give one of them"),
    "str": ("is no text", "write it in quotes"),
    "array": ("is no list", 'write ["a", "b"]'),
    "object": ("is no table", "write its keys below its name in brackets, as in [tls]"),
}


def read_value(key: str, kind: Any, text: str) -> object:
    """Return the value of a key of type `kind` that was given as text. Only lists are parsed; the rest stays text."""
    if get_origin(kind) is not tuple:
        return text
    text = text.strip()
    if text.startswith("[") and not _IPV6.match(text):
        return _toml(key, text, text)
    if text[:1] in ('"', "'"):
        return _toml(key, f"[{text}]", text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _toml(key: str, text: str, given: str) -> object:
    """Return a list that is written as in TOML. `given` is the text for the error."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise InputError(key, f"{given} is no list of TOML", 'write ["a", "b"], or a,b') from None


def unknown_key(where: str, key: str, known: Sequence[str]) -> InputError:
    """Return the error about an unknown key. It names the most similar keys of `known`."""
    last = key.rpartition(".")[2]
    same = [known_key for known_key in known if known_key.rpartition(".")[2] == last]
    near = [*same, *get_close_matches(key, known, _NEAREST_MAX, 0.7)][:_NEAREST_MAX]
    meant = f"perhaps {' or '.join(dict.fromkeys(near))} is meant; " if near else ""
    return InputError(where, f'there is no key "{key}"', f"{meant}{_ALL_KEYS}")


def unknown_field(text: str) -> str | None:
    """Return the unknown field that an error text of msgspec names; None if the error is another one."""
    named = _UNKNOWN.search(text)
    return named[1] if named else None


def bad_value(where: str, error_text: str, value: object, kind: Any) -> InputError:
    """Return the error about a value that does not fit its key. `error_text` comes from msgspec."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    if get_origin(kind) is Literal:
        return InputError(where, f"{shown} is not one of its values", f"give {' or '.join(map(str, get_args(kind)))}")
    expected = _EXPECTED.search(error_text)
    what, remedy = _FAULTS.get(expected[1] if expected else "", ("", ""))
    return (
        InputError(where, f"{shown} {what}", remedy) if what else InputError(where, f"{shown}: {error_text}", _ALL_KEYS)
    )
