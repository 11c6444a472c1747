"""A strict reader of the OpenMetrics text format 1.0, after its specification: what it does not know is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from live.prometheus import Labels, check_histogram, read_labels

_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|info|stateset|summary|unknown)")
_HELP = re.compile(r'# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n"]|\\\\|\\n|\\")*)')
_UNIT = re.compile(r"# UNIT ([a-zA-Z_:][a-zA-Z0-9_:]*) ([a-zA-Z0-9_:]+)")
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|[+-]?[iI]nf(?:inity)?|[nN]a[nN]"
_SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{(.*)\}})? ({_NUMBER})")
_SUFFIXES = {"counter": ("_total", "_created"), "gauge": ("",), "info": ("_info",)}
_SUFFIXES |= {"histogram": ("_bucket", "_sum", "_count", "_created")}


@dataclass
class Family:
    name: str
    kind: str = "unknown"
    help: str | None = None
    unit: str | None = None
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def parse_openmetrics(text: str) -> dict[str, Family]:
    assert text.endswith("# EOF\n"), "it does not end with # EOF"
    found: dict[str, Family] = {}
    current: Family | None = None
    for line in text.removesuffix("# EOF\n").removesuffix("\n").split("\n"):
        assert line != "# EOF", "something follows # EOF"
        if line.startswith("#"):
            current = _describe(line, found, current)
        else:
            _sample(line, current)
    for family in found.values():
        _check(family)
    _check_clashes(found)
    return found


def _describe(line: str, found: dict[str, Family], current: Family | None) -> Family:
    match = _TYPE.fullmatch(line) or _HELP.fullmatch(line) or _UNIT.fullmatch(line)
    assert match is not None, f"not a line of the format: {line!r}"
    name, what = match[1], line[2:6]
    if current is None or current.name != name:
        assert name not in found, f"{name} is told in two places"
        current = found[name] = Family(name)
    assert not current.samples, f"{line}: after samples"
    if what == "TYPE":
        assert current.kind == "unknown", f"{line}: a second type"
        current.kind = match[2]
    elif what == "HELP":
        assert current.help is None, f"{line}: a second help"
        current.help = match[2]
    else:
        assert current.unit is None, f"{line}: a second unit"
        assert name.endswith(f"_{match[2]}"), f"{name} does not end with its unit"
        current.unit = match[2]
    return current


def _sample(line: str, family: Family | None) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, f"not a line of the format: {line!r}"
    assert family is not None, f"{line}: of no family"
    assert match[1] in {family.name + one for one in _SUFFIXES[family.kind]}, f"{line}: not of {family.name}"
    labels = read_labels(match[2] or "")
    assert (match[1], labels) not in family.samples, f"{line}: told twice"
    family.samples[match[1], labels] = float(match[3])


def _check(family: Family) -> None:
    for (name, labels), value in family.samples.items():
        if family.kind == "counter" or name.endswith(("_bucket", "_count")):
            assert value >= 0, f"{name}{labels} is {value}"
        if family.kind == "info":
            assert value == 1, f"{name}{labels} is {value}"
    if family.kind == "histogram":
        check_histogram(family.name, family.samples)


def _check_clashes(found: dict[str, Family]) -> None:
    """No family may have the name of a sample of another one."""
    for family in found.values():
        for suffix in ("_total", "_created", "_bucket", "_sum", "_count", "_info"):
            if suffix in _SUFFIXES[family.kind]:
                assert family.name + suffix not in found, f"{family.name}{suffix} is a family, too"
