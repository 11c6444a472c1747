"""One session of Spark: what it refuses, where it listens, and what it leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from trellis.errors import InputError, TrellisError
from trellis.pipeline.package import zip_package


def test_a_second_session_in_one_process_is_refused(spark):
    from trellis.pipeline.session import open_session

    with pytest.raises(TrellisError, match="already open"), open_session("local[1]"):
        pass


@pytest.mark.parametrize("master", ["nonsense", "local[2", "local-cluster[2]", "http://host:7077", ""])
def test_an_unknown_master_is_refused_before_java_starts(master):
    from trellis.pipeline.session import open_session

    with pytest.raises(InputError, match="is unknown; give local"), open_session(master):
        pass


def test_an_unknown_log_level_is_refused(spark):
    from trellis.pipeline.session import open_session

    with pytest.raises(InputError, match="log level"), open_session("local[1]", log_level="chatty"):
        pass


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[4]", True), ("local-cluster[2,1,1024]", False), ("spark://localhost:7077", False)],
)
def test_only_a_truly_local_master_needs_no_package(master, local):
    from trellis.pipeline.session import is_local

    assert is_local(master) is local


def test_a_session_listens_on_this_machine_only_and_has_no_page(spark):
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None


def test_the_zip_holds_the_package_without_caches_and_the_same_bytes_each_time(tmp_path):
    first = zip_package(tmp_path)
    content = first.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "trellis/__init__.py" in names
    assert "trellis/pipeline/session.py" in names
    assert not [name for name in names if "__pycache__" in name]
    assert zip_package(tmp_path).read_bytes() == content


def test_the_zip_can_be_imported_on_its_own(tmp_path):
    archive = str(zip_package(tmp_path))
    code = f"import sys; sys.path.insert(0, {archive!r}); import trellis.ids; print(trellis.ids.__file__)"
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "trellis.zip" in said.stdout


def test_a_full_disk_is_one_line_and_other_errors_pass(spark):
    from py4j.protocol import Py4JJavaError

    from trellis.pipeline.failures import explained

    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(TrellisError, match="the disk is full; free some space, choose another --output"), explained():
        spark._jvm.java.io.FileOutputStream("/dev/full").write(1)
    with pytest.raises(Py4JJavaError), explained():
        spark._jvm.java.io.FileOutputStream("/proc/none").write(1)


@pytest.mark.slow
def test_a_command_whose_results_fill_the_disk_is_one_line(tmp_path):
    """A disk of 64 kB, in a mount namespace of its own."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk, with unshare")
    (tmp_path / "full").mkdir()
    (tmp_path / "likes.tsv").write_text("".join(f"u{user}\tt{user % 977}\n" for user in range(60_000)))
    mounted = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none full && exec "$@"', "sh"]
    words = "pipeline pairs likes.tsv --columns 1,2 --no-header -o full/out --master local[1]".split()
    command = [*mounted, sys.executable, "-m", "trellis", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "the disk is full; free some space, choose another --output" in done.stderr


# Ctrl-C: once while Java starts, once in the middle of a job. Nothing may stay, neither a process nor a file.
INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
from trellis.cli.main import run

os.setpgid(0, 0)
(moment,) = sys.argv[1:]

def look():
    if moment == "start":
        while not [one for one in Path("/proc").glob("[0-9]*/stat") if is_child(one)]:
            time.sleep(0.05)
    else:
        while not [name for name in os.listdir() if name.endswith(".part")]:  # what is written before it is whole
            time.sleep(0.05)
    os.killpg(0, signal.SIGINT)

def is_child(path):
    try:
        return int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False

threading.Thread(target=look, daemon=True).start()
code = run(["pipeline", "generate", "uniform:nodes=200000,topics=1000,subs=20", "-o", "out", "--master", "local[1]"])
print([str(path) for path in Path().iterdir()], [one for one in Path("/proc").glob("[0-9]*/stat") if is_child(one)])
sys.exit(code)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "job"])
def test_ctrl_c_ends_java_and_leaves_no_folder(tmp_path, moment):
    folder = tmp_path / "here"
    folder.mkdir()
    words = [sys.executable, "-c", INTERRUPTED, moment]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, timeout=300)
    assert (done.returncode, done.stderr) == (130, "trellis: interrupted\n")
    assert done.stdout.startswith("[] "), "no folder stays"
    if moment == "start":
        assert done.stdout == "[] []\n", "Java has ended"
    over = threading.Event()
    for _ in range(200):  # Java ends by itself when its standard input does
        if not (left := [link for link in Path("/proc").glob("[0-9]*/cwd") if works_in(link, folder)]):
            break
        over.wait(0.1)
    assert left == []


def works_in(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False
