"""The streams of chance behind all workloads: splitmix64, one stream a node."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.workloads import kernels
from trellis.workloads.generate import base_of, uniform_numbers

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


class SplitMix64:
    """The generator in plain Python, as its authors publish it."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + GAMMA) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


@pytest.fixture(autouse=True)
def _wrap_around():
    with np.errstate(over="ignore"):  # matters where the kernels run interpreted
        yield


def test_the_twin_gives_the_published_numbers_of_splitmix64():
    twin = SplitMix64(1234567)
    assert [twin.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0xDEADBEEF])
def test_the_kernel_gives_the_numbers_of_its_twin(seed):
    state, twin = np.array([seed], np.uint64), SplitMix64(seed)
    assert [int(kernels.next_bits(state)) for _ in range(200)] == [twin.next() for _ in range(200)]


def test_the_stream_of_a_node_starts_at_that_output_of_the_purposes_own_stream():
    base = base_of(7, "topics")
    purpose = SplitMix64(int(base))
    for node in range(100):
        twin = SplitMix64(purpose.next())
        expected = [(twin.next() >> 11) / 2**53 for _ in range(3)]
        assert kernels.units(base, node, 1, 3)[0].tolist() == expected


def test_purposes_and_seeds_have_streams_of_their_own():
    first = {float(uniform_numbers(seed, purpose, 0, 1)[0, 0]) for seed in range(50) for purpose in ("a", "b", "c")}
    assert len(first) == 150


def test_neighbouring_streams_do_not_resemble_each_other():
    """Correlation of each node's numbers with the next node's: 5 standard errors at most."""
    numbers = uniform_numbers(1, "x", 0, 2000, per_node=50)
    rows, columns = np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel()), np.corrcoef(numbers.T)
    assert abs(rows[0, 1]) < 5 / np.sqrt(99_950)
    assert np.abs(columns - np.eye(50)).max() < 5 / np.sqrt(2000)


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**30, 2**30 + 1, 2**31 - 1])
def test_the_largest_and_the_smallest_output_still_give_numbers_below_the_bound(bound):
    for output, expected in ((MASK, bound - 1), (0, 0)):
        state = np.array([state_before(output)], np.uint64)
        assert kernels.next_below(state, bound) == expected


@pytest.mark.parametrize("output", [0, MASK])
def test_exponential_numbers_are_positive_and_finite_at_both_ends(output):
    state = np.array([state_before(output)], np.uint64)
    assert 0 < kernels.next_exponential(state) < 40


def state_before(output: int) -> int:
    """The state from which splitmix64 gives `output` next: its steps undone one by one."""
    z = output
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        z ^= (z >> shift) ^ (z >> 2 * shift)
        z = z * pow(factor, -1, 2**64) & MASK
    before = (z - GAMMA) & MASK
    assert SplitMix64(before).next() == output
    return before
