"""What the lab counts of a churn event of OMen and SpiderCast."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.lab.measures.omen import churned
from trellis.lab.substitutes import friend_interests
from trellis.model import ChurnTrace

NODES = 24


class Given:
    """Two machines crash: the second one a second after the first, and both come back an hour later."""

    def interests(self, parameters, seed):
        return friend_interests(NODES, seed)

    def churn(self, parameters, interests, seed):
        one, two = list(interests.nodes)[3:5]
        rows = [(10.0, one, "leave"), (11.0, two, "leave"), (3600.0, one, "join"), (7200.0, two, "join")]
        return ChurnTrace.from_rows([(*row, None) for row in rows])


@pytest.mark.parametrize("system", ["OMen", "spidercast(3,1)"])
def test_messages_of_an_event_are_counted_by_type_and_early_events_are_told(system):
    found = churned(system, {"nodes": NODES, "events": 4}, 1, Given())
    by_type = np.sum([values for metric, values in found.items() if metric.startswith("sent ")], axis=0)
    assert by_type.tolist() == (np.array(found["coordination"]) + found["set-up"]).tolist()
    assert min(by_type) > 0
    assert found["early"] == [1, 0, 0, 0]  # the second event of the trace comes before the first is over
    assert found["split_end"] == 0
