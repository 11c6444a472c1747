"""The `trellis` package as one zip, for executors that share neither files nor an environment with the driver."""

from __future__ import annotations

import zipfile
from pathlib import Path

import trellis

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: the same sources give the same bytes


def zip_package(folder: str | Path) -> Path:
    """Write `trellis.zip` into `folder`: what `--py-files` and `SparkContext.addPyFile` take.

    It holds our sources only. What they import (numpy, numba, pyarrow, ...) must be in the executors' Python.
    """
    root = Path(trellis.__file__).parent
    target = Path(folder) / "trellis.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                entry = zipfile.ZipInfo(str(Path("trellis") / path.relative_to(root)), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    return target
