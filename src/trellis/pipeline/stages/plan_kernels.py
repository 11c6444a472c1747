"""Kernels inside executors: numba wants files to cache what it compiles, and a cluster gets the package as a zip.

Numba needs a folder for the machine code of a module. For a module inside a zip, older versions refuse the import, and
newer ones use the user's home, which a container may not have. So an executor that runs from a zip unpacks it once,
into Spark's own folder for this application, and imports all further modules from there. The machine code is in the
same folder. It is compiled once for each executor, and removed with the application.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = "trellis-unpacked"


def import_from_files() -> None:
    """Unpack the package if it is in a zip. A worker calls this before it imports kernels."""
    import trellis

    archive = zip_of(Path(trellis.__file__))
    if archive is None:
        return
    from pyspark import SparkFiles

    root = _unpacked(archive, Path(SparkFiles.getRootDirectory()))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trellis" and hasattr(module, "__path__"):
            own = str(root.joinpath(*name.split(".")))
            if own not in module.__path__:
                module.__path__.insert(0, own)


def zip_of(module: Path) -> Path | None:
    """The zip file that a module was imported from, if it was."""
    return next((path for path in module.parents if path.is_file() and zipfile.is_zipfile(path)), None)


def _unpacked(archive: Path, folder: Path) -> Path:
    target = folder / FOLDER
    if target.exists():
        return target
    # Several workers of one executor may come here at once: the first to rename wins, and all bring the same files.
    fresh = Path(tempfile.mkdtemp(prefix=f"{FOLDER}.", dir=folder))
    with zipfile.ZipFile(archive) as files:
        files.extractall(fresh)
    try:
        fresh.rename(target)
    except OSError:
        if not target.exists():
            raise
    return target
