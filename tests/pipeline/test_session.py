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


@pytest.mark.parametrize(
    ("asked", "submitted", "used"),
    [
        (None, None, "local[*]"),
        ("local[2]", None, "local[2]"),
        (None, "spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn", "yarn"),
    ],
)
def test_the_master_of_spark_submit_is_not_overridden(asked, submitted, used):
    from trellis.pipeline.session import chosen_master

    assert chosen_master(asked, submitted) == used
    if submitted:
        with pytest.raises(InputError, match=r'spark-submit has master ".*", and --master is "local'):
            chosen_master("local[*]", submitted)


@pytest.mark.slow
def test_a_command_under_spark_submit_runs_on_its_master_with_its_settings(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "from trellis.pipeline.session import open_session\n"
        "with open_session() as spark:\n"
        "    print(spark.sparkContext.master, spark.conf.get('spark.sql.ansi.enabled'))\n"
    )
    submit = Path(sys.executable).with_name("spark-submit")
    words = ["--master", "local[1]", "--conf", "spark.sql.ansi.enabled=false", str(script)]
    from trellis.pipeline.java import java_home

    environment = os.environ | {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([str(submit), *words], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "local[1] false\n", done.stderr


def test_spark_connect_is_refused_with_the_reason():
    from trellis.pipeline.session import open_session

    with pytest.raises(InputError, match="is Spark Connect, which gives no access to files"), open_session("sc://h"):
        pass


def test_executors_that_cannot_run_kernels_are_told_in_one_line():
    from trellis.pipeline.executors import verdict, why

    own = {"numpy": "2.3.1", "numba": "0.63.0", "pyarrow": "26.0.1"}
    assert verdict([("h1", own), ("h1", own), ("h2", own | {"numba": "0.63.1"})], own)["numpy"] == "2.3.1"
    with pytest.raises(TrellisError, match="executors on h2 has no numba, pyarrow; install the extra"):
        verdict([("h1", own), ("h2", {"numpy": "2.3.1"})], own)
    with pytest.raises(TrellisError, match=r"executors on h1 has numba 0\.60\.0, and the driver 0\.63\.0; install"):
        verdict([("h1", own | {"numba": "0.60.0"})], own)
    assert why('java.io.IOException: Cannot run program "/opt/py": error=2') == "the executors have no /opt/py"
    mismatch = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, x"
    assert why(mismatch) == "the executors have another version of Python than the driver (3.9 and 3.11)"
    assert why("ModuleNotFoundError: No module named 'trellis'") == "the Python of the executors has no trellis"
    assert why("ZeroDivisionError") is None


WITHOUT_PYARROW = """
import sys
from trellis.errors import TrellisError
from trellis.pipeline import jobs
from trellis.pipeline.session import open_session
conf = {"spark.pyspark.python": sys.argv[1], "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
try:
    with open_session("local-cluster[1,1,1024]", conf=conf, driver_memory="1g") as spark:
        jobs.generate(spark, "uniform:nodes=100,topics=10,subs=2", sys.argv[2])
except TrellisError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_executor_without_pyarrow_is_one_line_before_the_job(tmp_path):
    (tmp_path / "broken" / "pyarrow").mkdir(parents=True)
    (tmp_path / "broken" / "pyarrow" / "__init__.py").write_text("raise ImportError('none here')")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "broken"}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = [sys.executable, "-c", WITHOUT_PYARROW, str(python), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    assert "the Python of the executors on" in done.stdout
    assert "has no pyarrow; install the extra" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ('UnsupportedFileSystemException: No FileSystem for scheme "gs"', "Spark has no file system for gs://"),
        ("ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "system for s3a://; add"),
        ("org.apache.hadoop.security.AccessControlException: Permission denied: user=x", "no right to read or write"),
        ("java.net.UnknownHostException: nowhere.invalid", "the host nowhere.invalid is not known"),
        ("Job aborted: ExecutorLostFailure (executor 3 exited", "executors were lost again and again"),
        ("Reason: All masters are unresponsive! Giving up.", "the cluster does not answer"),
    ],
)
def test_what_java_says_becomes_one_line_that_a_user_can_act_on(said, line):
    from pyspark.errors import PySparkException

    from trellis.pipeline.failures import explained

    with pytest.raises(TrellisError, match=line) as caught, explained():
        raise PySparkException(said + "\n\tat org.apache.spark.Nowhere(Nowhere.scala:1)")
    assert "\n" not in str(caught.value)


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


# Ctrl-C and SIGTERM: while Java starts, and in the middle of a job. Nothing may stay, neither a process nor a file.
INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
from trellis.cli.main import run

os.setpgid(0, 0)
moment, kind = sys.argv[1:]

def look():
    if moment == "start":
        while not [one for one in Path("/proc").glob("[0-9]*/stat") if is_child(one)]:
            time.sleep(0.05)
    else:
        while not [name for name in os.listdir() if name.endswith(".part")]:  # what is written before it is whole
            time.sleep(0.05)
    os.killpg(0, getattr(signal, kind))

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
@pytest.mark.parametrize(("moment", "kind"), [("start", "SIGINT"), ("job", "SIGINT"), ("job", "SIGTERM")])
def test_ctrl_c_and_sigterm_end_java_and_leave_no_folder(tmp_path, moment, kind):
    folder, scratch = tmp_path / "here", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    words = [sys.executable, "-c", INTERRUPTED, moment, kind]
    environment = os.environ | {"TMPDIR": str(scratch)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    said = {"SIGINT": (130, "trellis: interrupted\n"), "SIGTERM": (143, "trellis: ended by SIGTERM\n")}
    assert (done.returncode, done.stderr) == said[kind]
    assert done.stdout.startswith("[] "), "no folder stays"
    assert [path.name for path in scratch.iterdir() if path.name.startswith("trellis-")] == []
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
