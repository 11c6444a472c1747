"""Parse options as users type them: a configuration from names and texts, and a whole workload in one word.

zipf:alpha=2.0,subs=10:90,sizes=powerlaw        spidercast-rss        spidercast-rss:nodes=500
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from trellis.errors import InputError
from trellis.workloads.configs import WorkloadConfig
from trellis.workloads.presets import named
from trellis.workloads.sizes import SHAPES, Sizes, parse_subs

Config = TypeVar("Config", bound=msgspec.Struct)

SIZE_OPTIONS = ("subs", "sizes", "size-exponent")  # The three together make one `Sizes`.


def option_name(field: str) -> str:
    """Return the name of the option of a field."""
    return field.rstrip("_").replace("_", "-")


def describe_options(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return what each option of a configuration means."""
    texts = {}
    for field in msgspec.structs.fields(kind):
        info = msgspec.inspect.type_info(field.type)
        texts[option_name(field.name)] = (getattr(info, "extra_json_schema", None) or {}).get("description", "")
    if _has_sizes(kind):
        texts["sizes"] = f"how sizes spread over an interval: {' or '.join(SHAPES)}"
        texts["size-exponent"] = "exponent of power-law sizes; higher makes large subscriptions rarer"
    return texts


def configure(base: Config, options: Mapping[str, object]) -> Config:
    """Return `base` with some options changed, given as texts or as values. An option that is None stays as it is."""
    given = {option_name(name): value for name, value in options.items() if value is not None}
    kind = type(base)
    fields = {option_name(field.name): field for field in msgspec.structs.fields(kind)}
    changes: dict[str, Any] = {}
    if _has_sizes(kind):
        sizes = {name: given.pop(name) for name in SIZE_OPTIONS if name in given}
        if sizes:
            changes["subs"] = _sizes(base.subs, sizes)  # type: ignore[attr-defined]
    for name, value in given.items():
        if name not in fields:
            raise InputError(
                f"--{name} {value}",
                f"{kind.__name__.lower()} has no such option",
                f"choose from {', '.join(describe_options(kind))}",
            )
        changes[fields[name].name] = _value(name, value, fields[name].type)
    return msgspec.structs.replace(base, **changes)


def parse_spec(text: str) -> WorkloadConfig:
    """Return the workload of `NAME` or `NAME:option=value,...`, where NAME is a generator, an alias or a preset."""
    name, _, listed = text.partition(":")
    options = {}
    for part in filter(None, listed.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise InputError(text, f'"{part}" has no value', f"write {part}=VALUE")
        options[option] = value
    try:
        return configure(named(name), options)
    except InputError as error:
        where = text if error.where == name else f"{text}: {error.where}"
        raise InputError(where, error.what, error.remedy) from None


def _has_sizes(kind: type[msgspec.Struct]) -> bool:
    return any(field.name == "subs" and field.default.__class__ is Sizes for field in msgspec.structs.fields(kind))


def _sizes(before: Sizes, given: Mapping[str, object]) -> Sizes:
    # --subs replaces the sizes as a whole: `--subs 10:30` is a uniform interval, whatever the default was.
    subs = given.get("subs", before)
    sizes = subs if isinstance(subs, Sizes) else parse_subs(str(subs))
    shape = str(given.get("sizes", sizes.shape))
    exponent = _value("size-exponent", given.get("size-exponent", sizes.exponent), float)
    return Sizes(sizes.low, sizes.high, shape, exponent)


def _value(name: str, value: object, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        wanted = "a whole number" if int in (bare, *get_args(bare)) else "a number"
        raise InputError(f"--{name} {value}", f"is not {wanted}", f"give {wanted}") from None
