"""When clients of a broker may count on the mesh: what the simulator writes down for them."""

from __future__ import annotations

import pytest

from trellis.judge.history import Disturbed, Down, Event, Up
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.trial import Trial

READ_S = 52.0  # when the sidecar has read the subscription
WITH_SITES = MeshPlan(nodes_max=3, clients=6, sites=1.0)


@pytest.mark.parametrize(
    ("fault", "known_s"),
    [
        pytest.param(Disturbed(1.0, 2.0, "lossy", ("n0",)), 60.0, id="long ago"),
        pytest.param(Disturbed(49.0, 50.5, "lossy", ("n0",)), 60.0, id="too short for anybody to be given up"),
        pytest.param(Disturbed(54.0, 55.5, "lossy", ("n0",)), 63.5, id="later than the subscription"),
        pytest.param(Disturbed(45.0, 50.0, "partition", ("n0",)), 64.0, id="a cut"),
        pytest.param(Up(50.0, "n1"), 64.0, id="a node starts"),
        pytest.param(Down(50.0, "n1", False, False), 64.0, id="a node ends"),
    ],
)
def test_a_subscription_is_known_when_homes_are_sure_again(fault: Event, known_s: float) -> None:
    trial = Trial(1, WITH_SITES, None, {"delivery": {"registered_ms": 12_000}})
    site = next(iter(trial.sites.values()))
    trial.witness.add(fault)
    assert site.known_s(READ_S) == known_s
