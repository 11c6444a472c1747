"""The one list of overlays: what it names is there, and the parts that read it know every overlay."""

from __future__ import annotations

from operator import attrgetter
from random import Random
from typing import get_args

import msgspec
import pytest

from trellis.cli.simulate import PROTOCOLS
from trellis.errors import InputError
from trellis.live.config import NodeConfig, read_config
from trellis.live.meshes import make_mesh
from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.mesh.codecs import CODECS, union_of
from trellis.protocols.overlays import OVERLAYS, Birth, load, overlay_of
from trellis.simulate.systems import maker_of


@pytest.mark.parametrize("name", OVERLAYS)
def test_everything_that_an_entry_names_is_there(name: str) -> None:
    entry = overlay_of(name)
    config = NodeConfig(name="a", overlay=name, topics=("t",))
    overlay = load(entry.maker)(Birth("a", ("t",), (), 7, Random(1), config))
    assert type(overlay) is load(entry.adapter)
    assert overlay.id == "a"
    assert overlay.incarnation == 7
    assert attrgetter(entry.heartbeat)(config) > 0
    assert name in {field.name for field in msgspec.structs.fields(NodeConfig)}, "node.toml has a table for it"
    assert load(entry.system).name == name
    assert maker_of(name) is load(entry.system)
    assert PROTOCOLS[name] == entry.about


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_live_node_can_be_made_of_every_overlay(name: str) -> None:
    mesh = make_mesh(NodeConfig(name="a", overlay=name, topics=("t",)), 3)
    mesh.start()
    assert type(mesh.overlay) is load(overlay_of(name).adapter)
    assert mesh.overlay.incarnation == 3


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_codec_has_the_messages_of_the_overlay_and_of_delivery(name: str) -> None:
    union = set(get_args(union_of(name)))
    assert union == {*get_args(load(overlay_of(name).messages)), *get_args(DeliveryMessage)}
    assert CODECS[name] is CODECS[name]


def test_an_overlay_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InputError, match=r'there is no overlay "ring".*omen, spidercast, vitis, magnet'):
        read_config(None, {}, {"name": "a", "overlay": "ring"})
    assert "ring" not in CODECS
    with pytest.raises(KeyError):
        CODECS["ring"]


def test_only_omen_starts_from_planned_links() -> None:
    with pytest.raises(InputError, match="vitis chooses its links by itself"):
        read_config(None, {}, {"name": "a", "overlay": "vitis", "planned.neighbours": ["b"]})
