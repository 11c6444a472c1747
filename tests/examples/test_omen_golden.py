"""The running example of the paper as text for a reviewer to read; `TRELLIS_REWRITE_GOLDEN=1 pytest ...` writes it.

Node 10 of twelve goes, 11 coordinates.  [OM §4.4, Fig. 2] The paper gives interests only in its picture; ours are
chosen so that S and E_new are the paper's.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest

from conversation import Conversation, phrase
from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.moments import RepairDropped, RepairFinished, RepairStarted
from trellis.protocols.ring import identifier

GOLDEN = Path(__file__).parents[1] / "golden" / "omen"
INTERESTS = {
    0: "de", 1: "abe", 2: "de", 3: "cd", 4: "de", 5: "acf", 6: "ef", 7: "de", 8: "de", 9: "de", 10: "abcf", 11: "abcd",
}  # fmt: skip
LINKS = [(10, 1), (10, 5), (10, 6), (10, 11), (11, 3), (3, 2), (0, 2), (2, 4), (4, 7), (7, 8), (8, 9), (0, 1), (6, 9)]
TOLD = (
    m.Report, m.ReportOk, m.Churn, m.Ask, m.Answer, m.OpenLink, m.Connect, m.ConnectOk, m.Record, m.RecordOk,
    m.LinkReady, m.LinkOpened, m.Finished, m.FindRecord, m.FoundRecord,
)  # fmt: skip


def around_the_ring(count):
    """Names whose identifiers follow each other, one in each part of the ring."""
    names = []
    for place in range(count):
        tries = (f"v{place}{letter * times}" for times in range(1, 100) for letter in ascii_lowercase)
        names.append(next(name for name in tries if identifier(name) * count >> 160 == place))
    return names


def twelve(crash=10):
    names = around_the_ring(12)
    config = OMenConfig(coverage=2, resilience=1)
    nodes = [
        OMenNode(
            names[place],
            tuple(topics),
            Random(place),
            config,
            contacts=names[:3],
            neighbors=[names[u + v - place] for u, v in LINKS if place in (u, v)],
        )
        for place, topics in INTERESTS.items()
    ]
    talk = Conversation(nodes)
    talk.start()
    talk.run(30_000)
    coordinator = talk.nodes[names[11]]
    view = coordinator.views.views[names[10]]
    before, begun = talk.links(), len(talk.said)
    talk.crash(names[crash])
    talk.run(50)
    moments = []
    coordinator.moments.subscribe(moments.append)
    for peer in [name for name in talk.nodes if names[crash] in talk.claims[name]]:  # their streams have broken
        talk.carry_out(peer, talk.nodes[peer].on_peer_down(names[crash]))
    talk.run(10_000)
    short = {name: f"v{place}" for place, name in enumerate(names)}
    lines = [
        f"{when - 30_000:6} ms  {short[who]:>3} -> {short[to]:3}  {_renamed(phrase(message), short)}"
        for when, who, to, message in talk.said[begun:]
        if isinstance(message, TOLD)
    ]
    shadow = {*view.neighbours, *view.backups} - {names[10]}
    new = talk.links() - before
    return talk, moments, lines, sorted(int(short[one][1:]) for one in shadow), _numbers(new, short)


def _renamed(text, short):
    for name in sorted(short, key=len, reverse=True):
        text = text.replace(name, short[name])
    return text


def _numbers(links, short):
    return {tuple(sorted((int(short[u][1:]), int(short[v][1:])), reverse=True)) for u, v in links}


def test_the_running_example_ends_as_in_the_paper():
    talk, moments, _, shadow, new = twelve()
    repairs = [one for one in moments if isinstance(one, RepairStarted | RepairFinished | RepairDropped)]
    assert [type(one) for one in repairs] == [RepairStarted, RepairFinished], "v11 coordinates, once"
    assert shadow == [1, 3, 5, 6, 11]
    assert new == {(11, 1), (11, 5), (6, 5)}
    assert {end for link in new for end in link} <= set(shadow), "E_new lies within S x S"
    assert talk.nodes[around_the_ring(12)[11]].ring.predecessor == around_the_ring(12)[9], "v11 prepares for v9 now"
    assert around_the_ring(12)[9] in talk.nodes[around_the_ring(12)[11]].views


def test_the_conversation_of_the_running_example_reads_as_recorded():
    _, _, lines, shadow, new = twelve()
    text = "\n".join([f"# S = {shadow}, E_new = {sorted(new)}", *lines]) + "\n"
    path = GOLDEN / "running-example.txt"
    if os.environ.get("TRELLIS_REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
        pytest.skip("the golden file was written: look at its diff, and run without TRELLIS_REWRITE_GOLDEN")
    assert text == path.read_text(encoding="utf-8")
