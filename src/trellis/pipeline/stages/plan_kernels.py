"""Kernels inside executors: numba wants files to cache what it compiles, and a cluster gets the package as a zip.

Numba finds no sure place for the machine code of a module inside a zip: older versions refuse to import it, newer
ones fill a folder in the user's home, which a container may not have. So an executor that runs from a zip unpacks it
once, into Spark's own folder for this application, and imports from there what it has not imported yet. The machine
code lies beside it: compiled once an executor, and gone with the application.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = "trellis-unpacked"


def import_from_files() -> None:
    """To be called by a worker before it imports kernels; does nothing where the package lies in files already."""
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
