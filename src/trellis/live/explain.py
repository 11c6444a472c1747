"""`trellis node --print-config`: print a whole node.toml with an explanation of every key.

The explanation of a field is the string right below it in its class, or the comment behind it. Python keeps neither at
run time. So they are read from the source, which is installed with the program.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

from trellis.live.config import NodeConfig
from trellis.protocols.mqtt.config import HIDDEN, shown

_WIDTH = 110
_HEAD = """\
# A node of Trellis. Every key is here; each can also be given as TRELLIS_... in the environment, tables with an
# underscore (TRELLIS_OMEN_PERIOD_MS=500), or as --set KEY=VALUE (--set omen.period_ms=500). Never --set a password: all
# users of a machine can read the arguments of its processes. Passwords are not printed here.
"""


def config_lines(config: NodeConfig) -> Iterator[str]:
    """Yield the lines of a configuration, as TOML that `trellis node --config` reads. Passwords are left out."""
    yield from _HEAD.splitlines()
    yield from _table(config, "")


def explanations(kind: type) -> dict[str, str]:
    """Return the explanation of each field of a class and its base classes. A subclass may replace explanations."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("trellis."):
            texts |= _told_in(base)
    return texts


@cache
def _told_in(kind: type) -> dict[str, str]:
    """Return the explanations in the source of one class, without its base classes."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for index, statement in enumerate(body.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        below = body.body[index + 1] if index + 1 < len(body.body) else None
        behind = lines[(statement.end_lineno or 0) - 1][statement.end_col_offset or 0 :].partition("#")[2].strip()
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(below.value.value).split())
        elif behind:
            texts[statement.target.id] = behind[:1].upper() + behind[1:]
    return texts


def _table(config: Any, name: str) -> Iterator[str]:
    """Yield one table. Plain keys come first, because TOML needs them above nested tables."""
    texts, tables = explanations(type(config)), []
    if name:
        yield from ("", f"[{name}]")
    for field in get_type_hints(type(config)):
        value = getattr(config, field)
        if hasattr(value, "__struct_fields__"):
            tables.append((value, f"{name}.{field}" if name else field))
            continue
        yield ""
        yield from (f"# {line}" for line in textwrap.wrap(texts.get(field, ""), _WIDTH))
        key = f"{name}.{field}" if name else field
        printed = shown(key, value)
        if printed != value:  # "***" is not printed either: a node would read it as the password
            yield "# The password is not printed. Put it into a file, and name that in broker_password_file."
            value = "" if printed == HIDDEN else str(printed).replace(f":{HIDDEN}@", "@")
        yield f"{field} = {_toml(value)}" if value is not None else f"# {field} ="
    for value, field in tables:
        yield from _table(value, field)


def _toml(value: Any) -> str:
    """Return a value as TOML. For these types JSON is the same, except for infinity."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
