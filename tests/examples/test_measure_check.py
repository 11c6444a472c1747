"""What check and profile gather: figures for people, plain values for machines, pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from trellis.errors import InputError
from trellis.measure.bounds import links_lower_bound
from trellis.measure.check import check_overlay
from trellis.measure.draw import draw_check, draw_profile
from trellis.measure.profile import profile
from trellis.measure.similarity import sample_within, similarity
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay

CHAIN = Interests.from_pairs({"a": ["x", "y"], "b": ["x", "y"], "c": ["y", "z"], "d": ["z"]})
WHOLE = Overlay.from_pairs(CHAIN.nodes, [("a", "b"), ("b", "c"), ("c", "d")])
BROKEN = Overlay.from_pairs(CHAIN.nodes, [("a", "b"), ("c", "d"), ("a", "d")])


def test_a_check_of_a_tco_gathers_degrees_and_diameters():
    found = check_overlay(CHAIN, WHOLE).to_json()
    assert json.loads(json.dumps(found)) == found
    assert (found["tco"], found["links"], found["split"], found["idle_links"]) == (True, 3, [], 0)
    assert (found["nodes"], found["topics"], found["components"], found["components_missing"]) == (4, 3, 3, 0)
    assert (found["degree"]["max"], found["degree"]["mean"], found["degree"]["p50"]) == (2, 1.5, 1)
    assert found["diameter"] == {"topics": 3, "max": 2, "mean": 4 / 3, "radius_max": 1, "radius_mean": 1.0}


def test_a_check_of_a_broken_overlay_names_the_split_topic():
    found = check_overlay(CHAIN, BROKEN, diameters=False).to_json()
    assert (found["tco"], found["split_topics"], found["components_missing"], found["idle_links"]) == (False, 1, 1, 1)
    assert found["split"][0]["topic"] == "y"
    assert found["split"][0]["sizes"] == [2, 1]
    assert found["diameter"] is None
    assert json.loads(json.dumps(found)) == found


def test_a_profile_does_not_see_topics_without_subscribers():
    nodes = Names(["a", "b"])
    dense = Interests.from_ids(nodes, Names(["t"]), [0, 1], [0, 0])
    sparse = Interests.from_ids(nodes, Names(["idle", "t"]), [0, 1], [1, 1])
    assert profile(sparse).to_json() == profile(dense).to_json()


def test_a_profile_is_plain_values_and_holds_rates_where_they_differ():
    rated = Interests(CHAIN.nodes, CHAIN.topics, CHAIN.node_offsets, CHAIN.node_topics, np.array([0.0, 0.0, 3.0]))
    found = profile(rated, d=2).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["rates"] == {"min": 0.0, "mean": 1.0, "max": 3.0, "gini": pytest.approx(2 / 3)}
    assert profile(CHAIN).rates is None
    assert (found["sizes"]["max"], found["popularity"]["max"], len(found["similarity"]["tdi"])) == (2, 3, 2)


def test_a_profile_without_similarity_says_so():
    assert profile(CHAIN, similarity=False).to_json()["similarity"] is None


def test_a_sample_is_proposed_only_where_all_nodes_cost_too_much():
    steps = int(np.sum(CHAIN.popularity**2))
    assert sample_within(CHAIN, steps) is None
    assert sample_within(CHAIN, steps // 2) == 1
    assert similarity(CHAIN, sample=2, seed=3).seed == 3


@pytest.mark.parametrize("wrong", [{"d_max": 0}, {"sample": 0}, {"sample": -3}])
def test_similarity_to_nobody_or_of_nobody_is_refused(wrong):
    with pytest.raises(InputError, match="at least 1"):
        similarity(CHAIN, **wrong)


def test_identical_interests_need_as_many_links_as_a_tree_has():
    over = Interests.from_pairs({node: ["x", "y", "z"] for node in range(9)})
    assert links_lower_bound(over) == 8


def test_nodes_that_share_one_topic_at_a_time_need_a_link_for_each():
    over = Interests.from_pairs({"hub": range(6), **{f"n{t}": [t, (t + 1) % 6] for t in range(6)}})
    # The hub shares two topics with each other node, others share one: 12 components go, two a link at most.
    assert links_lower_bound(over) == 6
    assert links_lower_bound(Interests.from_pairs({"a": ["x"], "b": ["y"]})) == 0


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_input_gives_the_same_picture(tmp_path: Path, kind):
    result = check_overlay(CHAIN, BROKEN)
    for name in ("one", "two"):
        draw_check(CHAIN, BROKEN, result, tmp_path / f"{name}.{kind}")
    one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
    assert one == two
    assert one.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    other = check_overlay(CHAIN, WHOLE)
    draw_check(CHAIN, WHOLE, other, tmp_path / f"other.{kind}")
    assert (tmp_path / f"other.{kind}").read_bytes() != one


def test_a_picture_says_what_was_measured(tmp_path: Path, monkeypatch):
    import matplotlib.text

    written: list[str] = []
    plain = matplotlib.text.Text.set_text
    monkeypatch.setattr(matplotlib.text.Text, "set_text", lambda self, s: (written.append(str(s)), plain(self, s))[1])
    draw_check(CHAIN, BROKEN, check_overlay(CHAIN, BROKEN), tmp_path / "check.png")
    shown = "\n".join(written)
    assert "4 nodes, 3 links: 1 of 3 topics split" in shown
    assert "y: 2" in shown
    assert "mean 1.50" in shown
    assert "max 1, mean 1.00" in shown


@pytest.mark.parametrize("similar", [True, False])
def test_profiles_of_the_smallest_instances_can_be_drawn(tmp_path: Path, similar):
    lonely = Interests.from_pairs({"a": ["x"]})
    idle = Interests.from_ids(Names(["a"]), Names([]), [], [])
    for number, over in enumerate((lonely, idle, CHAIN)):
        draw_profile(over, tmp_path / f"{number}.svg", profile(over, similarity=similar))
        overlay = Overlay.from_ids(over.nodes, [], [])
        draw_check(over, overlay, check_overlay(over, overlay), tmp_path / f"{number}.png")
    assert len(list(tmp_path.iterdir())) == 6


def test_a_picture_of_another_kind_is_refused_and_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(InputError, match=r"neither a \.png nor a \.svg"):
        draw_profile(CHAIN, tmp_path / "profile.gif")
    with pytest.raises(InputError, match="cannot be written"):
        draw_profile(CHAIN, tmp_path / "nowhere" / "profile.png")
    assert list(tmp_path.iterdir()) == []


def test_drawing_does_not_read_settings_of_the_user(tmp_path: Path):
    import matplotlib

    draw_profile(CHAIN, tmp_path / "before.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        draw_profile(CHAIN, tmp_path / "after.svg")
    assert (tmp_path / "before.svg").read_bytes() == (tmp_path / "after.svg").read_bytes()


def test_measuring_does_not_load_matplotlib():
    import subprocess

    code = "import sys, trellis.measure.draw, trellis.measure.check; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
