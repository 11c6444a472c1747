"""All simulated nodes lose their power at once, on disks with faults drawn by seeds.  [docs/durable.md]"""

from __future__ import annotations

import pytest

from trellis.protocols.delivery.durable import Durable
from trellis.protocols.delivery.streams import Entry
from trellis.simulate.power import run_seed

SOME = (1, 2, 4)  # a slow disk, a full one, and one on which bits change


def check(seed: int) -> None:
    told = run_seed(seed)
    assert told["owed"] > 200, told
    assert not told["wrong"], told
    assert not told["failures"], told


@pytest.mark.parametrize("seed", SOME)
def test_nothing_acknowledged_is_lost_twice_or_out_of_order(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2_000, 100))
def test_two_thousand_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def _is_synced_at_once(patch: pytest.MonkeyPatch) -> None:
    whole = Durable.keep

    def keep(self: Durable, entry: Entry) -> None:
        whole(self, entry)
        entry.is_synced = True

    patch.setattr(Durable, "keep", keep)


def _forgets_turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durable, "_put_back_turns", lambda self, turns: None)


def _does_not_resume(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durable, "resume", lambda self, topic: False)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [_is_synced_at_once, _forgets_turns, _does_not_resume])
def test_a_planted_defect_is_found(mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)  # type: ignore[operator]
    assert any(run_seed(seed)["wrong"] for seed in (1, 8, 15, 22, 29, 36))
