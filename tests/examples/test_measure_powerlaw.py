"""Power-law fits recover the law that numbers were drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.measure.distributions import Distribution
from trellis.measure.powerlaw import ccdf_slope, fit_power_law


def drawn(exponent: float, x_min: int, count: int, seed: int) -> np.ndarray:
    """Whole numbers from x_min on, P(x) ~ x^-exponent, by inversion over a long table."""
    x = np.arange(x_min, 2_000_000, dtype=np.float64)
    reached = np.cumsum(x**-exponent)
    return x_min + np.searchsorted(reached, np.random.default_rng(seed).random(count) * reached[-1])


@pytest.mark.parametrize(("exponent", "x_min"), [(1.9, 1), (2.5, 1), (2.5, 7), (3.5, 3)])
def test_the_exponent_is_found_within_four_standard_errors(exponent, x_min):
    fit = fit_power_law(Distribution.of(drawn(exponent, x_min, 20_000, seed=1)), x_min)
    assert fit.error < 0.03
    assert abs(fit.exponent - exponent) < 4 * fit.error
    assert fit.tail == 20_000
    assert fit.distance < 1.63 / 20_000**0.5  # Kolmogorov-Smirnov at the level of 1 %


def test_the_beginning_of_the_tail_is_found_below_which_there_is_no_law():
    tail = drawn(2.5, 20, 10_000, seed=2)
    flat = np.random.default_rng(3).integers(1, 20, 10_000)
    fit = fit_power_law(Distribution.of(np.concatenate([tail, flat])))
    assert 18 <= fit.x_min <= 40
    assert abs(fit.exponent - 2.5) < 0.1


def test_a_bell_of_numbers_is_not_near_any_power_law():
    numbers = Distribution.of(np.random.default_rng(5).binomial(10_000, 0.1, 1000))
    assert not fit_power_law(numbers, x_min=numbers.minimum).is_near
    assert fit_power_law(Distribution.of(drawn(2.5, 1, 1000, seed=5)), x_min=1).is_near


def test_the_fit_is_the_greatest_likelihood_among_nearby_exponents():
    numbers = Distribution.of(drawn(2.2, 1, 500, seed=4))
    fit = fit_power_law(numbers, 1)

    def likelihood(exponent: float) -> float:
        norm = np.sum(np.arange(1, 10_000_000, dtype=np.float64) ** -exponent)
        return float(-np.log(norm) * numbers.total - exponent * (np.log(numbers.values) @ numbers.counts))

    best = likelihood(fit.exponent)
    assert best > likelihood(fit.exponent - 0.01)
    assert best > likelihood(fit.exponent + 0.01)


def test_numbers_that_are_all_equal_or_not_positive_have_no_tail_to_fit():
    for numbers in ([], [0, 0], [5] * 100, [0, 5]):
        assert fit_power_law(Distribution.of(numbers)) is None
        assert ccdf_slope(Distribution.of(numbers)) is None


def test_a_tail_that_ends_at_once_is_not_taken_for_a_power_law():
    assert fit_power_law(Distribution.of([100] * 1000 + [101]), 100) is None


def test_the_slope_of_a_straight_ccdf_is_found_exactly():
    # 4096 / 4^k numbers of at least 2^k: P(X >= x) = x^-2.
    numbers = [2**k for k in range(6) for _ in range(4096 // 4**k - 4096 // 4 ** (k + 1))] + [64]
    found = ccdf_slope(Distribution.of(numbers))
    assert found.slope == pytest.approx(-2)
    assert found.r_squared == pytest.approx(1)
    assert found.decades == pytest.approx(np.log10(64))


def test_the_slope_of_a_power_law_is_one_less_steep_than_its_exponent():
    found = ccdf_slope(Distribution.of(drawn(2.5, 1, 200_000, seed=6)))
    assert found.slope == pytest.approx(-1.5, abs=0.15)
    assert found.r_squared > 0.95
