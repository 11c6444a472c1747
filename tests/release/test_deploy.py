"""What is in deploy/: as far as it can be checked without a cluster, it fits the program."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import trellis
from trellis.cli.main import run
from trellis.live.config import known_keys, read_config

DEPLOY = Path(__file__).parents[2] / "deploy"
MESH = (DEPLOY / "kubernetes" / "mesh.yaml").read_text("utf-8")
PIPELINE = (DEPLOY / "kubernetes" / "pipeline.yaml").read_text("utf-8")
VARIABLES = {"TRELLIS_" + key.replace(".", "_").upper(): key for key in known_keys()}


def test_the_service_starts_a_node_and_gives_it_time_to_leave(capsys):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "trellis.service").read_text("utf-8"))
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/trellis")
    assert run([*words, "--help"]) == 0, capsys.readouterr().err
    assert int(service["TimeoutStopSec"]) > read_config(None, {}, {"name": "a"}).limits.leave_s


def test_the_mesh_of_the_manifest_has_a_configuration_that_a_node_takes():
    given = dict(re.findall(r"\{ name: (TRELLIS_\w+), value: \"?([^\"}]+?)\"? \}", MESH))
    assert given.keys() <= VARIABLES.keys()
    assert len(given) >= 7
    config = read_config(
        None, {**given, "TRELLIS_NAME": "trellis-0", "TRELLIS_ADVERTISE": "trellis-0.trellis:7001"}, {}
    )
    assert config.tls
    assert len(config.seeds) == 2
    assert int(re.findall(r"terminationGracePeriodSeconds: (\d+)", MESH)[0]) > config.limits.leave_s
    assert f"image: trellis:{trellis.__version__}" in MESH
    assert f"image: trellis-pipeline:{trellis.__version__}" in PIPELINE


def test_the_commands_of_the_pipelines_manifest_can_be_typed(capsys):
    lines = [line.strip() for line in PIPELINE.splitlines() if line.strip().startswith("trellis ")]
    assert len(lines) == 3
    for line in lines:
        assert run([*shlex.split(line)[1:], "--help"]) == 0, capsys.readouterr().err


def test_the_container_runs_a_node_as_nobody_in_particular(capsys):
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT \[(.+)]$", text, re.MULTILINE)
    words = [word.strip().strip('"') for word in entry.split(",")]
    assert words[0] == "trellis"
    assert run([*words[1:], "--help"]) == 0, capsys.readouterr().err
    assert re.search(r"^USER \d+$", text, re.MULTILINE)


def test_the_manifests_are_yaml_that_kubernetes_tools_read(tmp_path):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which reads them, is not installed")
    for path in (DEPLOY / "kubernetes").glob("*.yaml"):
        shutil.copy(path, tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.yaml"))
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{', '.join(names)}]\n")
    done = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    kinds = re.findall(r"^kind: (\w+)", done.stdout, re.MULTILINE)
    assert sorted(kinds) == ["Job", "PodDisruptionBudget", "Service", "StatefulSet"]
