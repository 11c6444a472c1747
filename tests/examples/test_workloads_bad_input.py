"""Nonsense is refused when a configuration is built, in one line that names the option and a remedy."""

from __future__ import annotations

import pytest

from trellis.errors import InputError
from trellis.workloads.churn_configs import (
    CrashGroups,
    FlashCrowd,
    OnOff,
    RandomChurn,
    churn_named,
)
from trellis.workloads.configs import (
    Correlated,
    Exponential,
    Hierarchical,
    Multimodal,
    Spatial,
    Uniform,
    Zipf,
)
from trellis.workloads.options import configure, parse_spec
from trellis.workloads.presets import named
from trellis.workloads.rates import rates
from trellis.workloads.sizes import Sizes, parse_subs


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda: parse_subs("90:10"), "--subs 90:10"),
        (lambda: parse_subs("0"), "--subs 0"),
        (lambda: parse_subs("-3:5"), "--subs -3:5"),
        (lambda: parse_subs("ten"), "--subs ten"),
        (lambda: parse_subs("10:"), "--subs 10:"),
        (lambda: parse_subs("1:2:3"), "--subs 1:2:3"),
        (lambda: Sizes(1, 2, "normal"), "--sizes normal"),
        (lambda: Sizes(1, 2, "powerlaw", -1.0), "--size-exponent -1"),
        (lambda: Sizes(1, 2, "powerlaw", float("nan")), "--size-exponent nan"),
        (lambda: Uniform(nodes=0), "--nodes 0"),
        (lambda: Uniform(nodes=2**31), "--nodes 2147483648"),
        (lambda: Zipf(topics=-1), "--topics -1"),
        (lambda: Uniform(topics=80), "--subs 10:90"),
        (lambda: Zipf(alpha=-0.5), "--alpha -0.5"),
        (lambda: Zipf(alpha=float("inf")), "--alpha inf"),
        (lambda: Exponential(share=1.0), "--share 1"),
        (lambda: Exponential(share=0.05), "--share 0.05"),
        (lambda: Exponential(top=1.5), "--top 1.5"),
        (lambda: Correlated(level="medium"), "--level medium"),
        (lambda: Correlated(subs=0), "--subs 0"),
        (lambda: Correlated(subs=51), "--subs 51"),
        (lambda: Correlated(subs=5001, level="random"), "--subs 5001"),
        (lambda: Correlated(subs=102), "--subs 102"),
        (lambda: Correlated(buckets=1), "--buckets 1"),
        (lambda: Multimodal(b_p=11), "--b-p 11"),
        (lambda: Multimodal(b_n=1001, b_p=1), "--b-n 1001"),
        (lambda: Multimodal(subs=Sizes(101, 101)), "--subs 101"),
        (lambda: Multimodal(alpha=-1.0), "--alpha -1"),
        (lambda: Spatial(mean=0.5), "--mean 0.5"),
        (lambda: Spatial(nodes=10), "--mean 32"),
        (lambda: Spatial(radius=-0.1), "--radius -0.1"),
        (lambda: Spatial(mean=8.0, radius=0.1), "--mean 8.0 --radius 0.1"),
        (lambda: Hierarchical(topics=1000), "--topics 1000"),
        (lambda: Hierarchical(topics=1), "--topics 1"),
        (lambda: Hierarchical(z=0.0), "--z 0"),
        (lambda: Hierarchical(topics=8, z=9.0), "--z 9"),
        (lambda: Hierarchical(nodes=10), "--z 16"),
        (lambda: Hierarchical(init_frac=1.5), "--init-frac 1.5"),
        (lambda: Hierarchical(alpha0=1.0), "--alpha0 1"),
        (lambda: Hierarchical(lambda_=-2.0), "--lambda -2"),
        (lambda: rates(0), "--topics 0"),
        (lambda: rates(10, "normal"), "--rates normal"),
        (lambda: rates(10, alpha=-1.0), "--rate-alpha -1"),
        (lambda: rates(10, order="name"), "--rate-order name"),
        (lambda: RandomChurn(rounds=0), "--rounds 0"),
        (lambda: RandomChurn(joiners="clone"), "--joiners clone"),
        (lambda: RandomChurn(joiners="zipf:subs=90:10"), "--joiners zipf:subs=90:10: --subs 90:10"),
        (lambda: RandomChurn(joiners="spatial"), "--joiners spatial"),
        (lambda: RandomChurn(joiners=Hierarchical()), "--joiners hierarchical"),
        (lambda: OnOff(mean_up=0.0), "--mean-up 0"),
        (lambda: OnOff(mean_down=-1.0), "--mean-down -1"),
        (lambda: OnOff(duration=0.0), "--duration 0"),
        (lambda: FlashCrowd(joins=0), "--joins 0"),
        (lambda: FlashCrowd(fraction=0.0), "--fraction 0"),
        (lambda: FlashCrowd(start=-1.0), "--start -1"),
        (lambda: FlashCrowd(window=-1.0), "--window -1"),
        (lambda: CrashGroups(size=0), "--size 0"),
        (lambda: CrashGroups(groups=0), "--groups 0"),
        (lambda: CrashGroups(placement="rack"), "--placement rack"),
        (lambda: CrashGroups(interval=0.0), "--interval 0"),
        (lambda: CrashGroups(rejoin_after=0.0), "--rejoin-after 0"),
        (lambda: named("gauss"), "gauss"),
        (lambda: churn_named("storm"), "storm"),
        (lambda: parse_spec("zipf:alpha"), "zipf:alpha"),
        (lambda: parse_spec("zipf:alpha=x"), "zipf:alpha=x: --alpha x"),
        (lambda: parse_spec("zipf:nodes=1.5"), "zipf:nodes=1.5: --nodes 1.5"),
        (lambda: parse_spec("uniform:alpha=1"), "uniform:alpha=1: --alpha 1"),
        (lambda: configure(Zipf(), {"subs": "300"}), "--subs 300"),
        (lambda: configure(Zipf(), {"size-exponent": "steep"}), "--size-exponent steep"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_option(build, where):
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.where == where
    assert caught.value.what
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_whole_error_reads_as_one_line_with_a_remedy():
    with pytest.raises(InputError) as caught:
        parse_subs("90:10")
    assert str(caught.value) == "--subs 90:10: the interval runs backwards; write the smaller size first: 10:90"
