"""Writes docs/api.md from the signatures and texts of the Python interface: `make docs`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trellis
from trellis.live.client import Client, ClientError, NotAcknowledged, Receipt
from trellis.live.explain import explanations
from trellis.live.received import Message, Mqtt
from trellis.measure.check import CheckResult
from trellis.plan.construction import Construction
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_history import Round
from trellis.simulate.run import Run

PAGE = Path(__file__).parent / "api.md"
HEAD = """\
# The Python interface

Made by `make docs` from the code. Everything is typed (`py.typed`), and each name is imported at its first use, so
`import trellis` stays light. What is not on this page may change with any release.

```python
import trellis

interests = trellis.Interests.from_pairs({"a": ["x", "y"], "b": ["x"], "c": ["x", "y"], "d": ["y"]})
made = trellis.plan(interests, rho=3)
assert trellis.check(interests, made.overlay).is_tco

churn = trellis.ChurnTrace.from_rows([(1.0, "a", "leave", None)])
kept = trellis.maintain(interests, churn, made.overlay)
assert kept.split_topics() == 0

run = trellis.simulate("omen", interests, overlay=made.overlay, churn=churn, rounds_per_event=5, seed=7)
assert run.summary()["tco"]
```

A file or an argument that is wrong raises `trellis.InputError`, whose text says where, what, and what to do. Examples
that run: [a notebook](../examples/overlay.ipynb), [an operator's](../examples/operator/README.md) and
[a researcher's](../examples/researcher/README.md).
"""
FUNCTIONS = (
    "read_interests", "read_overlay", "read_churn", "write_table", "plan", "check", "maintain", "simulate", "connect"
)  # fmt: skip
RESULTS = (
    Construction,
    CheckResult,
    Maintenance,
    Round,
    Run,
    Client,
    Receipt,
    Message,
    Mqtt,
    ClientError,
    NotAcknowledged,
)
MODEL = (trellis.Interests, trellis.Overlay, trellis.ChurnTrace)
ERRORS = (trellis.TrellisError, trellis.InputError)


def main() -> int:
    PAGE.write_text(page(), "utf-8")
    return 0


def page() -> str:
    lines = [HEAD, "## Functions", ""]
    for name in FUNCTIONS:
        lines += function(name, getattr(trellis, name))
    for title, kinds in (("What they give", RESULTS), ("Data", MODEL), ("Errors", ERRORS)):
        lines += [f"## {title}", ""]
        for kind in kinds:
            lines += about(kind)
    return "\n".join(lines).rstrip() + "\n"


def function(name: str, value: Any) -> Iterator[str]:
    yield from (f"### trellis.{name}", "", "```python", f"def {name}{signature(value)}: ...", "```", "")
    yield from told(value._function if inspect.ismodule(value) else value)


def about(kind: type) -> Iterator[str]:
    yield from (f"### {kind.__name__}", "")
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):  # else Python wrote it
        yield from told(kind)
    rows = [(f"`{name}`".replace("|", "\\|"), text.replace("|", "\\|")) for name, text in members(kind)]
    if rows:
        yield from ("| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows), "")


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Fields, properties and methods."""
    fields = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    fields += getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    texts = explanations(kind)
    for name in fields:
        annotation = kind.__annotations__[name]
        yield f"{name}: {getattr(annotation, '__forward_arg__', annotation)}", texts.get(name, "")
    for name, value in vars(kind).items():
        if name.startswith("_") or name in ("opened", "received", "ended"):  # those are for the stream
            continue
        inner = getattr(value, "__func__", value)
        if isinstance(value, property) and value.__doc__:
            yield name, _first(value.__doc__)
        elif inspect.isfunction(inner):
            yield f"{name}{signature(inner, width=1_000)}", _first(inner.__doc__ or "")


def signature(value: Any, width: int = 100) -> str:
    """On one line where it fits, else a line for each parameter."""
    parts, found = [], inspect.signature(value)
    is_named = False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not is_named:
            is_named = True
            parts.append("*")
        default = "" if one.default is one.empty else f" = {_code(one.default)}"
        parts.append(f"{one.name}: {one.annotation}{default}")
    line = f"({', '.join(parts)}) -> {found.return_annotation}"
    if len(line) < width:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in parts) + f") -> {found.return_annotation}"


def _code(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def told(value: Any) -> Iterator[str]:
    """The text; indented lists of parameters are kept as they are."""
    text = inspect.cleandoc(value.__doc__ or "")
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        is_list = len(lines) > 0 and "  " in lines[0].strip()
        yield from (("```text", *lines, "```", "") if is_list else (" ".join(lines), ""))


def _first(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


if __name__ == "__main__":
    sys.exit(main())
