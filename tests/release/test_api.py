"""The Python interface: six functions, the same whether or not their rooms were imported before."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import trellis
from trellis.cli.main import run

FUNCTIONS = ("read_interests", "plan", "check", "maintain", "simulate", "connect")
WANTED = {"a": ["x", "y"], "b": ["x"], "c": ["x", "y"], "d": ["y"], "e": ["x", "y"]}


@pytest.fixture(scope="module")
def interests():
    return trellis.Interests.from_pairs(WANTED)


@pytest.fixture(scope="module")
def churn():
    return trellis.ChurnTrace.from_rows([(1.0, "a", "leave", None), (2.0, "b", "subscribe", "y")])


def test_every_promised_name_is_there_and_says_what_it_does():
    assert set(trellis.__all__) - {"__version__"} == set(trellis._HOMES)
    for name in trellis.__all__:
        assert getattr(trellis, name).__doc__
        assert name in dir(trellis)
    with pytest.raises(AttributeError, match="plam"):
        trellis.plam  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_has_a_type_and_every_option_a_line_of_help(name):
    signature = inspect.signature(getattr(trellis, name))
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    assert signature.return_annotation is not inspect.Signature.empty


def test_rooms_stay_packages_while_they_are_called(interests):
    import trellis.plan.construction
    import trellis.simulate.engine

    assert trellis.plan is sys.modules["trellis.plan"]
    assert trellis.plan.construction.construct is trellis.plan.construct
    assert trellis.plan(interests).overlay.to_table() == trellis.plan.construct(interests).overlay.to_table()
    assert list(inspect.signature(trellis.simulate).parameters)[:2] == ["protocol", "interests"]


def test_importing_a_room_in_either_order_gives_the_same_name():
    first = "import trellis; a = trellis.plan; import trellis.plan.ties; assert trellis.plan is a and callable(a)"
    last = "import trellis.plan.ties; assert callable(trellis.plan) and callable(trellis.simulate)"
    for lines in (first, last):
        assert subprocess.run([sys.executable, "-c", lines], timeout=120).returncode == 0


def test_a_plan_is_checked_broken_and_maintained(interests, churn):
    made = trellis.plan(interests, rho=3)
    assert trellis.check(interests, made.overlay).is_tco
    broken = trellis.Overlay.from_ids(made.overlay.nodes, made.overlay.u[1:], made.overlay.v[1:])
    assert not trellis.check(interests, broken, diameters=False).is_tco
    told: list[tuple[int, int]] = []
    kept = trellis.maintain(interests, churn, made.overlay, progress=lambda done, of: told.append((done, of)))
    assert kept.split_topics() == 0
    assert kept.history.complete
    assert told == [(1, 2), (2, 2)]
    assert "a" not in kept.interests().nodes
    stopped = trellis.maintain(interests, churn, should_stop=lambda: True)
    assert (len(stopped.history), stopped.history.complete) == (1, False)


def test_a_simulation_by_name_and_by_system_is_the_same_run(interests, churn):
    from trellis.simulate.systems.omen import OMen

    overlay = trellis.plan(interests).overlay
    named = trellis.simulate(
        "omen", interests, options={"resilience": 1}, overlay=overlay, churn=churn, rounds_per_event=5, seed=3
    )
    own = trellis.simulate(OMen(resilience=1), interests, overlay=overlay, churn=churn, rounds_per_event=5, seed=3)
    assert named.summary() == own.summary()
    assert named.summary()["tco"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda given: trellis.plan(given, "best"), 'unknown algorithm "best"'),
        (lambda given: trellis.plan(given, memory_bytes_max=1), "are allowed"),
        (lambda given: trellis.simulate("omem", given), 'no protocol is called "omem"'),
        (lambda given: trellis.simulate("vitis", given, options={"spokes": 3}), "spokes"),
    ],
)
def test_bad_arguments_are_input_errors_of_one_line(interests, call, told):
    with pytest.raises(trellis.InputError, match=told) as error:
        call(interests)
    assert "\n" not in str(error.value)


def test_the_commands_give_what_the_functions_give(interests, churn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trellis.write_table(interests.to_table(), "interests.tsv")
    trellis.write_table(churn.to_table(), "churn.tsv")
    assert run("plan interests.tsv --seed 5 -o overlay.tsv".split()) == 0
    made = trellis.plan(trellis.read_interests("interests.tsv"), seed=5)
    assert trellis.read_overlay("overlay.tsv", made.overlay.nodes).to_table() == made.overlay.to_table()
    assert (
        run("maintain interests.tsv overlay.tsv --churn churn.tsv --overlay-out kept.tsv -o history.tsv".split()) == 0
    )
    kept = trellis.maintain(interests, churn, made.overlay)
    assert trellis.read_overlay("kept.tsv", kept.interests().nodes).to_table() == kept.overlay().to_table()
    capsys.readouterr()
    assert run("simulate omen interests.tsv --overlay overlay.tsv --seed 3 --json -o run".split()) == 0
    summary = trellis.simulate("omen", interests, overlay=made.overlay, seed=3).summary()
    assert json.loads(capsys.readouterr().out)["digest"] == summary["digest"]
