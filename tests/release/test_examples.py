"""Every example runs: the notebook cell by cell, the operator's script, the researcher's protocol."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import trellis
from trellis.live.config import read_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def example(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # structs look there for the names in their types
    spec.loader.exec_module(module)
    return module


def test_the_notebook_runs_from_its_first_cell_to_its_last_and_has_no_outputs(monkeypatch):
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    cells = json.loads((EXAMPLES / "overlay.ipynb").read_text("utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in codes), "commit it without outputs"
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        for place, cell in enumerate(codes, start=1):
            exec(compile("".join(cell["source"]), f"cell {place}", "exec"), space)
        assert len(plt.get_fignums()) == 2
    finally:
        plt.close("all")
    assert space["split"].split, "the loss splits something: else there is nothing to mend"
    assert space["new"]


def test_broker_logs_become_interests_a_plan_and_a_file_for_each_node(tmp_path):
    module = example("operator/from_logs.py")
    logs = sorted((EXAMPLES / "operator" / "logs").glob("*.log"))
    overlay = module.main(logs, tmp_path / "mesh")
    interests = trellis.read_interests(tmp_path / "mesh" / "interests.tsv")
    assert list(interests.nodes) == [log.stem for log in logs]
    assert trellis.check(interests, overlay).is_tco
    wishes = module.wanted(logs)
    assert {one for one in wishes["broker-2"] if one.startswith("plant/paint/")} == {
        "plant/paint/temp", "plant/paint/power", "plant/paint/alarm"
    }, "the historian's plant/paint/#"  # fmt: skip
    for log in logs:
        assert set(read_config(tmp_path / "mesh" / f"{log.stem}.toml", {}, {}).topics) == wishes[log.stem]


def test_logs_with_times_for_people_are_read_and_logs_without_subscriptions_are_refused_in_one_line(tmp_path):
    module = example("operator/from_logs.py")
    (tmp_path / "a.log").write_text("2026-11-16T12:00:11: hmi-10 1 plant/alarm\n")
    (tmp_path / "b.log").write_text("1763280011: Client hmi disconnected.\n")
    assert module.wanted([tmp_path / "a.log", tmp_path / "b.log"]) == {"a": {"plant/alarm"}, "b": set()}
    with pytest.raises(SystemExit, match="set log_type subscribe"):
        module.main([tmp_path / "b.log"], tmp_path / "mesh")


@pytest.mark.parametrize(
    ("pattern", "topic", "does"),
    [("a/+/c", "a/b/c", True), ("a/+", "a/b/c", False), ("a/#", "a", True), ("a/#", "ab", False), ("#", "a/b", True)],
)
def test_wildcards_of_the_operators_example_are_those_of_mqtt(pattern, topic, does):
    assert example("operator/from_logs.py").matches(pattern, topic) is does


def test_a_protocol_of_ones_own_holds_in_the_simulator_and_its_bugs_are_found(monkeypatch, capsys):
    module = example("researcher/chains.py")
    told = module.main(nodes=20, seeds=2)
    assert told["holds"], capsys.readouterr().out
    assert told["summary"]["tco"]
    monkeypatch.setattr(module.ChainNode, "on_peer_down", lambda self, peer: [])
    monkeypatch.setattr(module, "AGE_MAX", 1 << 40)  # the mutant: it forgets nobody
    assert not module.check_seeds(module.Chains, seeds=2, shrink_runs_max=0).holds


def test_systems_of_a_researcher_stand_beside_those_of_the_papers(tmp_path, monkeypatch):
    from trellis import lab

    monkeypatch.syspath_prepend(str(EXAMPLES / "researcher"))  # as Python does for a script
    module = example("researcher/compare.py")
    try:
        found = module.main(nodes=10, seeds=1, report=str(tmp_path))
    finally:
        lab.unregister("chains")
        lab.unregister("stars")
    for name in ("chains", "stars", "lowoda"):
        assert found.cell(name, "split topics").mean == 0
    assert "stars" in (tmp_path / "index.html").read_text("utf-8")
