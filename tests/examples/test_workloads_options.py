"""Options, presets and other names: what a user may type, and what it stands for."""

from __future__ import annotations

import subprocess
import sys

from trellis.workloads.churn_configs import CHURN_MODELS
from trellis.workloads.configs import (
    GENERATORS,
    Correlated,
    Exponential,
    Hierarchical,
    Multimodal,
    Spatial,
    Uniform,
    Zipf,
)
from trellis.workloads.options import configure, describe_options, parse_spec
from trellis.workloads.presets import ALIASES, PRESETS, named
from trellis.workloads.sizes import Sizes


def test_a_spec_is_a_name_and_options():
    assert parse_spec("zipf:alpha=1.5,subs=10:90,sizes=powerlaw") == Zipf(
        2000, 200, Sizes(10, 90, "powerlaw", 3.0), alpha=1.5
    )
    assert parse_spec("zipf") == Zipf()
    assert parse_spec("multi:b_p=2,b-n=20") == Multimodal(b_p=2, b_n=20)
    assert parse_spec("hier:lambda=3,init-frac=0.2") == Hierarchical(lambda_=3.0, init_frac=0.2)
    assert parse_spec("low:nodes=10") == Correlated(10, level="low")
    assert parse_spec("spidercast-rss:nodes=500") == Zipf(500, 100, Sizes(10, 10), alpha=0.5)
    assert parse_spec("spatial:radius=0.1") == Spatial(radius=0.1)


def test_giving_an_interval_makes_sizes_uniform_whatever_they_were():
    assert configure(Zipf(), {"subs": "10:30"}).subs == Sizes(10, 30, "uniform")
    assert configure(Zipf(), {"size-exponent": 2}).subs == Sizes(10, 90, "powerlaw", 2.0)
    assert configure(Zipf(), {"sizes": "uniform"}).subs == Sizes(10, 90, "uniform")


def test_an_option_that_is_none_stays_as_it_was():
    assert configure(Zipf(alpha=1.0), {"alpha": None, "subs": None, "nodes": 7}) == Zipf(nodes=7, alpha=1.0)


def test_every_option_of_every_configuration_says_what_it_means():
    for kind in [*GENERATORS.values(), *CHURN_MODELS.values()]:
        for option, text in describe_options(kind).items():
            assert text, f"{kind.__name__}: --{option} has no description"
            assert option == option.strip("-_")


def test_every_name_of_a_workload_stands_for_one_configuration():
    names = [*GENERATORS, *ALIASES, *PRESETS]
    assert len(names) == len(set(names))
    for name in names:
        assert type(named(name)) in GENERATORS.values()


def test_presets_are_the_base_workloads_of_the_papers():
    assert PRESETS["shadows-unif"].config == Uniform(2000, 200, Sizes(10, 90, "powerlaw", 3.0))
    assert PRESETS["omen-zipf"].config == Zipf(2000, 200, Sizes(10, 90, "powerlaw", 3.0), alpha=2.0)
    assert PRESETS["spidercast-nyse"].config == Exponential(10_000, 100, Sizes(10, 10))
    assert PRESETS["vitis-high"].config == Correlated(10_000, 5000, 50, 100, "high")
    assert PRESETS["magnet-hierarchical"].config == Hierarchical(2**14, 2**14, 16.0, 0.1, 2.0, 2.0)
    assert len(PRESETS) == 17
    assert all(preset.about for preset in PRESETS.values())


def test_configurations_load_without_numpy():
    """A help page lists generators, options and presets: it must not wait for numpy or numba."""
    code = (
        "import sys, trellis.workloads.presets, trellis.workloads.options, trellis.workloads.churn_configs\n"
        "print([name for name in ('numpy', 'numba', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
