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
    assert found.cell("line", "messages, cycles").mean > 0
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


def test_messages_of_the_two_engines_stand_in_columns_of_their_own():
    """They count different things, so no reader should compare a number of one engine with one of the other."""
    found = lab.compare(["spidercast", "line", "lowoda"], INTERESTS, seeds=1, engine="both", rounds=20)
    columns = {(one["system"], one["engine"]): [name for name in one if name.startswith("messages")]
               for one in found.rows()}  # fmt: skip
    assert columns == {
        ("spidercast", "events"): ["messages, events"],
        ("spidercast", "cycles"): ["messages, cycles"],
        ("line", "cycles"): ["messages, cycles"],
        ("lowoda", "central"): [],
    }
    with pytest.raises(InputError, match="messages, events was not measured"):
        found.cell("line", "messages, events")


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


def network(links=((0,), (1,)), sent=0, changed=False):
    """Return a maker of networks that give these links, this count of messages and this answer of `cycle`."""

    class Made:
        messages = sent

        def __init__(self, interests, seed):
            pass

        def cycle(self):
            return changed

        def links(self):
            return links

    return Made


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
        (lambda: bad(Astray), "bad: a link leads to a node that there is not: link 0 is (0, 99), nodes are 0 to 7"),
        (lambda: bad(network(([0], [-1]))), "bad: a link leads to a node that there is not: link 0 is (0, -1)"),
        (lambda: bad(network(([3, 2], [4, 2]))), "bad: a node is linked to itself: link 1 is (2, 2)"),
        (lambda: bad(network(([3, 4], [4, 3]))), "bad: the link (3, 4) is given 2 times"),
        (lambda: bad(network(([0, 1], [2]))), "bad: its links have 2 first ends and 1 second ends"),
        (lambda: bad(network(([0.0], [1]))), "bad: the first ends of its links have 0.0, which is no place"),
        (lambda: bad(network(([0], [float("nan")]))), "bad: the second ends of its links have nan"),
        (lambda: bad(network((["n0"], ["n1"]))), "bad: the first ends of its links have 'n0'"),
        (lambda: bad(network(([True], [1]))), "bad: the first ends of its links have True"),
        (lambda: bad(network(([[0, 1]], [[1, 2]]))), "bad: the first ends of its links have [0, 1]"),
        (lambda: bad(network(None)), "bad: `links` returned None"),
        (lambda: bad(network(changed=None)), "bad: `cycle` returned None"),
        (lambda: bad(network(sent=-3)), "bad: its attribute `messages` is -3"),
        (lambda: bad(network(sent=float("nan"))), "bad: its attribute `messages` is nan"),
        (lambda: bad(network(sent="many")), "bad: its attribute `messages` is 'many'"),
        (lambda: bad(network(sent=None)), "bad: its attribute `messages` is None"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=-2), "seeds=-2: names no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds="12"), "seeds='12': names no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[1, "2"]), "seeds: '2': is no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[-1]), "seeds: -1: is no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[True]), "seeds: True: is no seed"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[2**40]), "is no seed; give whole numbers from 0 to"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=[4, 5, 4]), "seeds: 4: is listed twice"),
        (lambda: lab.compare(["lowoda"], INTERESTS, seeds=1.5), "seeds=1.5: names no seed"),
        (lambda: lab.compare(["lowoda"], trellis.Interests.from_pairs({})), "the interests for seed 1 have no nodes"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(wrong, says):
    with pytest.raises(TrellisError) as told:
        wrong()
    assert says in str(told.value)
    assert "\n" not in str(told.value)
