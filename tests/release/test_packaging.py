"""The wheel: built without a network, whole, and at work outside the checkout; and pages that are made from code."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from types import ModuleType

import pytest

import trellis
from trellis.cli.main import run

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "trellis"
    there = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    there = {name for name in there if "/__pycache__/" not in name and not name.endswith(".part")}
    names = set(wheel.namelist())
    assert {"trellis/web/index.html", "trellis/web/app.js", "trellis/lab/page.css", "trellis/py.typed"} <= names
    assert {name for name in names if name.startswith("trellis/")} == there
    assert not [name for name in names if not name.startswith(("trellis/", "trellis_overlay-"))]


def test_the_wheel_says_what_it_needs_and_under_which_licence(wheel):
    home = f"trellis_overlay-{trellis.__version__}.dist-info"
    about = message_from_string(wheel.read(f"{home}/METADATA").decode())
    assert about["Version"] == trellis.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert f"{home}/licenses/LICENSE" in wheel.namelist()
    assert b"trellis = trellis.cli.main:main" in wheel.read(f"{home}/entry_points.txt")
    assert set(about.get_all("Provides-Extra") or ()) == {"plan", "pipeline", "live", "graph", "all"}
    base = [line for line in about.get_all("Requires-Dist") or () if "extra" not in line]
    assert sorted(re.match(r"[a-z]+", line)[0] for line in base) == ["msgspec", "rich", "typer"]


def test_the_wheel_works_outside_the_checkout(wheel, tmp_path):
    wheel.extractall(tmp_path / "installed")
    (tmp_path / "interests.tsv").write_text("node\ttopic\na\tx\nb\tx\nc\tx\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "installed"),
        "NUMBA_DISABLE_JIT": "1",
    }
    lines = [
        "import trellis",
        "assert trellis.__file__.startswith(sys.argv[1]), trellis.__file__",
        "from trellis.cli.main import run",
        "from trellis.live.explain import config_lines",
        "from trellis.live.config import NodeConfig",
        "assert any('Unique in the cluster' in line for line in config_lines(NodeConfig(name='a')))",
        "from importlib.resources import files",
        "assert 'circle.js' in files('trellis').joinpath('web', 'app.js').read_text()",
        "assert run(['plan', 'interests.tsv', '--algorithm', 'star', '-o', 'overlay.tsv']) == 0",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *lines]), str(tmp_path / "installed")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "overlay.tsv").read_text().startswith("u\tv\n")


def test_the_version_is_semantic_and_the_changelog_tells_about_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", trellis.__version__)
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert trellis.__version__ in headings[:2]


# Pages that are made


def maker(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_the_python_interface_is_as_the_code_is():
    made = maker("make_api")
    assert made.page() == made.PAGE.read_text("utf-8"), "run: make docs"
    documented = re.findall(r"^### (?:trellis\.)?(\w+)", made.page(), re.MULTILINE)
    assert {*trellis.__all__} - {"__version__"} <= {*documented}


def test_the_example_of_the_reference_runs():
    (example,) = re.findall(r"```python\n(import trellis.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)
    exec(compile(example, "api.md", "exec"), {})


def test_every_package_that_an_extra_brings_has_its_licence_listed():
    made = maker("make_licences")
    listed = dict(re.findall(r"^\| (\S+) \| \w+ \| (.+) \|$", made.PAGE.read_text("utf-8"), re.MULTILINE))
    needed = set().union(*(made.needed_by(made.OURS, extra, set()) for extra in made.EXTRAS))
    assert {"msgspec", "numba", "pyspark", "networkx"} <= needed
    assert needed <= listed.keys(), "run: make docs"
    assert all(listed.values())


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell, capsys):
    assert run(["completion", shell]) == 0
    assert "_TRELLIS_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [("trellis ch", "check churn"), ("trellis simulate sp", "spidercast"), ("trellis node --log-j", "--log-json")],
)
def test_the_program_offers_what_can_follow(words, offered):
    asked = {"_TRELLIS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "trellis"], env={**os.environ, **asked}, capture_output=True, text=True, timeout=120
    )
    assert sorted(done.stdout.split()) == offered.split()


def test_an_unknown_shell_is_refused_in_one_line(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
