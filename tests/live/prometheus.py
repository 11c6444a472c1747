"""A strict reader of Prometheus' text format 0.0.4: what it does not know is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n]|\\\\|\\n)*)")
_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Inf)|NaN)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')

_ESCAPED = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]


@dataclass
class Metrics:
    kinds: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, tuple(sorted(labels.items()))))


def parse_metrics(text: str) -> Metrics:
    assert text.endswith("\n"), "the last line has no end"
    found, helped, family = Metrics(), "", ""
    for line in text[:-1].split("\n"):
        if match := _HELP.fullmatch(line):
            helped = match[1]
            assert helped not in found.kinds, f"{helped} is told in two places"
        elif match := _TYPE.fullmatch(line):
            assert match[1] == helped, f"the type of {match[1]} does not follow its help"
            family, found.kinds[match[1]] = match[1], match[2]
        elif match := _SAMPLE.fullmatch(line):
            labels = read_labels(match[2] or "")
            suffixes = ("_bucket", "_sum", "_count") if found.kinds.get(family) == "histogram" else ("",)
            assert match[1] in {family + one for one in suffixes}, f"{line}: not of {family}"
            assert (match[1], labels) not in found.samples, f"{line}: told twice"
            found.samples[match[1], labels] = float(match[3])
        else:
            raise AssertionError(f"not a line of the format: {line!r}")
    for name in [name for name, kind in found.kinds.items() if kind == "histogram"]:
        check_histogram(name, found.samples)
    for (name, _), value in found.samples.items():
        assert found.kinds.get(name) != "counter" or (value >= 0 and name.endswith("_total")), name
    return found


def read_labels(text: str) -> Labels:
    """Read what stands between the braces of a sample."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match is not None, f"not a label: {text[at:]!r}"
        assert match[1] not in labels, f"the label {match[1]} is there twice"
        labels[match[1]] = _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], match[2])
        at = match.end()
        if at < len(text):
            assert text[at] == ",", f"no comma after a label: {text!r}"
            at += 1
            assert at < len(text), f"a comma at the end: {text!r}"
    return tuple(sorted(labels.items()))


def check_histogram(name: str, samples: Mapping[tuple[str, Labels], float]) -> None:
    """Buckets grow up to infinity, which holds the count, and there is a sum."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(one for one in labels if one[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"]), value))
    for rest, buckets in series.items():
        assert buckets == sorted(buckets), f"{name}{rest}: buckets do not grow"
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), samples[f"{name}_count", rest])
        assert (f"{name}_sum", rest) in samples
