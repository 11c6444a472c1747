"""Defects that Trellis once had, put back: the check of whole nodes finds each."""

from __future__ import annotations

import pytest

from seeds.mesh_mutants import MUTANTS, NOT_YET, SHOWN_BY
from seeds.mutants import find

# Found within few seeds: what is checked each time that tests run. Seeds without a fault of the named kind are not run.
SOON = (
    ("a_client_that_restarts_repeats_its_numbers", "", "lost"),
    ("a_name_with_a_colon_is_taken_for_an_address", "malformed", "is no address"),
)
SEEDS_MAX = 500


@pytest.mark.parametrize(("mutant", "only", "what"), SOON)
def test_a_defect_of_the_past_is_found_soon(mutant: str, only: str, what: str) -> None:
    found = find(mutant, seeds=60, only=[only] if only else [])
    assert found is not None
    assert what in found.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=pytest.mark.skip(NOT_YET[one])) if one in NOT_YET else one for one in MUTANTS],
)
def test_each_defect_of_the_past_is_found(mutant: str) -> None:
    only = [SHOWN_BY[mutant]] if mutant in SHOWN_BY else []
    assert find(mutant, seeds=SEEDS_MAX, only=only) is not None, f"{mutant} was not found in {SEEDS_MAX} seeds"
