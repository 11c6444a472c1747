"""A researcher's own systems, registered and run beside those of the papers."""

from __future__ import annotations

import json
from math import isnan

import msgspec
import pytest

import trellis
from trellis import lab
from trellis.errors import InputError, TrellisError
from trellis.protocols.effects import LinkUp
from trellis.protocols.wire import Codec
from trellis.simulate.system import System

INTERESTS = trellis.Interests.from_pairs({f"n{number}": ["all", f"t{number % 2}"] for number in range(8)})


class Nothing(msgspec.Struct, frozen=True, tag="nothing"):
    """Hubs need no message."""


class Hub:
    """Everybody links itself to n0, and n0 to everybody."""

    def __init__(self, node, others):
        self.id, self.links = node, others if node == "n0" else ["n0"]

    def start(self):
        return [LinkUp(one) for one in self.links]

    def on_timer(self, tag):
        return []

    on_message = on_peer_down = subscribe = unsubscribe = on_timer

    def leave(self):
        return []

    def check(self):
        assert self.id


class Hubs(System):
    name = "hubs"
    settle_ms = 1_000

    def __init__(self, spare: int = 0):
        self.codec = Codec(Nothing)
        self.spare = spare

    def make_node(self, node, topics, random, world):
        return Hub(node, [f"n{number}" for number in range(1, 8)])


class Line:
    """A line of nodes that grows by a link in each round; the seed says where it ends."""

    def __init__(self, interests, seed, ends=7):
        self.now, self.end, self.messages = 0, ends - seed % 2, 0

    def cycle(self):
        self.now, before, self.messages = min(self.end, self.now + 1), self.now, self.messages + 2
        return self.now != before

    def links(self):
        return list(range(self.now)), list(range(1, self.now + 1))


@pytest.fixture(autouse=True)
def registered():
    lab.register("hubs", Hubs)
    lab.register("line", Line, engine="cycles")
    yield
    for name in ("hubs", "line", "bad"):
        lab.unregister(name)


def test_systems_of_both_engines_stand_in_one_table_with_intervals(tmp_path):
    found = lab.compare(["spidercast", "hubs", "line", "lowoda"], INTERESTS, seeds=2, engine="both", rounds=20)
    assert found.systems == [("spidercast", "events"), ("spidercast", "cycles"), ("hubs", "events"),
                             ("line", "cycles"), ("lowoda", "central")]  # fmt: skip
    hubs = found.cell("hubs", "degree max")
    assert (hubs.mean, hubs.half_width, hubs.values) == (7, 0, (7, 7))
    assert found.cell("hubs", "split topics").mean == 1  # n0 does not want t1
    line = found.cell("line", "links")
    assert line.values == (6, 7)  # seeds 1 and 2
    assert line.half_width == pytest.approx(12.706 * 0.5, rel=1e-3)  # Student's t with one degree of freedom
    assert found.cell("line", "messages").mean > 0
    assert found.cell("spidercast", "degree mean", "cycles").mean == 3
    assert found.cell("lowoda", "split topics").mean == 0
    with pytest.raises(InputError, match="several engines"):
        found.cell("spidercast", "links")
    assert "6.5 ± 6.4" in str(found)
    page = found.write(tmp_path / "report")
    text = page.read_text("utf-8")
    assert all(name in text for name in ("hubs", "line", "spidercast", "6.5 ± 6.4", "data:image/svg+xml"))
    told = json.loads((tmp_path / "report" / "comparison.json").read_text("utf-8"))
    assert [one["system"] for one in told["systems"]] == [label for label, _ in found.systems]
    assert "| line | cycles |" in (tmp_path / "report" / "comparison.md").read_text("utf-8")


def test_events_are_measured_where_a_system_disseminates_them():
    found = lab.compare(["vitis", ("line", {"ends": 3})], INTERESTS, seeds=[5], engine="cycles", rounds=20)
    assert found.cell("vitis", "hit ratio %").mean == 100
    assert found.cell("vitis", "delay").mean >= 1
    assert isnan(found.cell("vitis", "delay").half_width)  # one seed has no interval
    assert found.cell("line (ends 3)", "links").mean == 2
    with pytest.raises(InputError, match="was not measured"):
        found.cell("line (ends 3)", "delay")


def test_interests_may_be_drawn_for_each_seed():
    sizes = {3: 4, 9: 6}
    found = lab.compare(
        ["ring"],
        lambda seed: trellis.Interests.from_pairs({f"n{n}": ["a"] for n in range(sizes[seed])}),
        seeds=[3, 9],
    )
    assert found.cell("ring", "links").values == (4, 6)


class Broken(Line):
    def cycle(self):
        raise ValueError("no\nsuch luck")


class Astray(Line):
    def links(self):
        return [0], [99]


def bad(make, engine="cycles"):
    lab.register("bad", make, engine=engine)
    return lab.compare(["bad"], INTERESTS, seeds=1, engine=engine)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: lab.compare([], INTERESTS), "no systems are listed"),
        (lambda: lab.compare("spidercast", INTERESTS), "no systems are listed"),
        (lambda: lab.compare([3], INTERESTS), "names no system"),
        (lambda: lab.compare(["nobody"], INTERESTS), 'no system is called "nobody"'),
        (lambda: lab.compare(["line"], INTERESTS, engine="events"), "the engine events does not have it"),
        (lambda: lab.compare(["line"], INTERESTS, engine="steam"), 'no engine is called "steam"'),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=0), "names no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[]), "names no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, rounds=0), "is not 1 or more"),
        (lambda: lab.compare(["lowoda"], {"a": ["x"]}), "the interests are dict"),
        (lambda: lab.compare([("hubs", {"wings": 2})], INTERESTS), "unexpected keyword argument 'wings'"),
        (lambda: lab.register("omen", Hubs), "Trellis has a system of this name"),
        (lambda: lab.register("", Hubs), "a system needs a name"),
        (lambda: lab.register("bad", 3), "cannot be called"),
        (lambda: lab.register("bad", Hubs, engine="steam"), 'no engine is called "steam"'),
        (lambda: bad(lambda: 3, "events"), "which is no System"),
        (lambda: bad(lambda interests, seed: 3), "has no method `cycle`"),
        (lambda: bad(Broken), "bad, engine cycles, seed 1: ValueError: no such luck; mend the system"),
        (lambda: bad(Astray), "a link leads to a node that there is not"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(wrong, says):
    with pytest.raises(TrellisError) as told:
        wrong()
    assert says in str(told.value)
    assert "\n" not in str(told.value)
