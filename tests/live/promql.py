"""As much of PromQL as our alerts use, over samples that a test has scraped itself.

    increase(x{l="v", m=~"a|b"}[10m]) > 0       rate(x[5m]) > 0.01 * rate(y[5m])
    sum by (instance) (x) > 0                   x == 0 and y == 1
    x - time() < 14 * 86400

A range needs two samples of a series, as in Prometheus: a series that begins with its first event shows no increase.
Values are not extrapolated to the whole range.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from live.prometheus import Labels, Metrics

_TOKEN = re.compile(r'\s*(\d[\d.e+]*|[a-zA-Z_][a-zA-Z0-9_]*|"[^"]*"|=~|==|[<>=*/(){}\[\],-])')
_SECONDS = {"s": 1, "m": 60, "h": 3_600}
Vector = dict[Labels, float]


@dataclass
class History:
    """Scrapes of some instances, with their times in seconds."""

    series: dict[tuple[str, Labels], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    now_s: float = 0.0

    def scrape(self, at_s: float, found: Metrics, instance: str = "n") -> None:
        self.now_s = at_s
        for (name, labels), value in found.samples.items():
            key = tuple(sorted([*labels, ("instance", instance), ("job", "trellis")]))
            self.series[name, key].append((at_s, value))

    def value(self, expression: str) -> Vector:
        parser = _Parser(self, _tokens(expression))
        found = parser.conjunction()
        assert not parser.tokens, f"not understood: {parser.tokens}"
        assert isinstance(found, dict)
        return found


def alerts(rules: str) -> dict[str, str]:
    """Every alert of a file of rules, with its expression."""
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", rules))


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        assert match is not None, f"not understood: {text[at:]}"
        found.append(match[1])
        at = match.end()
    return found


class _Parser:
    def __init__(self, history: History, tokens: list[str]) -> None:
        self.history, self.tokens = history, tokens

    def conjunction(self) -> Vector | float:
        left = self.comparison()
        while self._took("and"):
            right = self.comparison()
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            left = {labels: value for labels, value in left.items() if labels in right}
        return left

    def comparison(self) -> Vector | float:
        left = self.difference()
        for sign, holds in ((">", float.__gt__), ("<", float.__lt__), ("==", float.__eq__)):
            if self._took(sign):
                right = self.difference()
                assert isinstance(left, dict)
                other = right if isinstance(right, dict) else dict.fromkeys(left, right)
                return {
                    one: value for one, value in left.items() if one in other and holds(float(value), float(other[one]))
                }
        return left

    def difference(self) -> Vector | float:
        left = self.product()
        while self._took("-"):
            right = self.product()
            assert isinstance(left, dict)
            assert isinstance(right, float)
            left = {labels: value - right for labels, value in left.items()}
        return left

    def product(self) -> Vector | float:
        left = self.atom()
        while self._took("*"):
            right = self.atom()
            if isinstance(left, float) and isinstance(right, float):
                left *= right
            elif isinstance(left, float) and isinstance(right, dict):
                left = {labels: left * value for labels, value in right.items()}
            else:
                assert isinstance(left, dict)
                assert isinstance(right, float)
                left = {labels: value * right for labels, value in left.items()}
        return left

    def atom(self) -> Vector | float:
        token = self.tokens.pop(0)
        if token[0].isdigit():
            return float(token)
        if token == "(":
            found = self.conjunction()
            self._need(")")
            return found
        if token == "time":
            self._need("(")
            self._need(")")
            return time.time()
        if token == "sum":
            return self._sum()
        if token in ("increase", "rate"):
            self._need("(")
            name, wanted = self.tokens.pop(0), self._labels()
            self._need("[")
            span = self.tokens.pop(0) + self.tokens.pop(0)
            self._need("]")
            self._need(")")
            seconds = float(span[:-1]) * _SECONDS[span[-1]]
            return self._grown(name, wanted, seconds, per_s=token == "rate")
        return {labels: series[-1][1] for labels, series in self._select(token, self._labels())}

    def _sum(self) -> Vector:
        kept: list[str] = []
        if self._took("by"):
            self._need("(")
            while not self._took(")"):
                kept.append(self.tokens.pop(0))
                self._took(",")
        self._need("(")
        inner = self.conjunction()
        self._need(")")
        assert isinstance(inner, dict)
        total: dict[Labels, float] = defaultdict(float)
        for labels, value in inner.items():
            total[tuple(one for one in labels if one[0] in kept)] += value
        return dict(total)

    def _labels(self) -> list[tuple[str, str, str]]:
        wanted: list[tuple[str, str, str]] = []
        if self._took("{"):
            while not self._took("}"):
                label, sign, text = (self.tokens.pop(0) for _ in range(3))
                wanted.append((label, sign, text.strip('"')))
                self._took(",")
        return wanted

    def _select(self, name: str, wanted: list[tuple[str, str, str]]) -> list[tuple[Labels, list[tuple[float, float]]]]:
        found = []
        for (one, labels), series in self.history.series.items():
            given = dict(labels)
            fits = (
                re.fullmatch(text, given.get(label, "")) is not None if sign == "=~" else given.get(label, "") == text
                for label, sign, text in wanted
            )
            if one == name and all(fits):
                found.append((labels, series))
        return found

    def _grown(self, name: str, wanted: list[tuple[str, str, str]], seconds: float, *, per_s: bool) -> Vector:
        grown: Vector = {}
        for labels, series in self._select(name, wanted):
            inside = [(at, value) for at, value in series if at > self.history.now_s - seconds]
            if len(inside) >= 2:
                steps = pairwise(inside)
                total = sum(later - before if later >= before else later for (_, before), (_, later) in steps)
                grown[labels] = total / (inside[-1][0] - inside[0][0]) if per_s else total
        return grown

    def _took(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def _need(self, token: str) -> None:
        assert self._took(token), f"{token} is missing before {self.tokens[:3]}"
