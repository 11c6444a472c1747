"""The manifest of a file that a command wrote without Spark: FILE.manifest.json, beside it.

It has the same entries as the manifest of a folder, so that `trellis pipeline lineage` follows both.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import trellis
from trellis.errors import InputError
from trellis.files import written_whole
from trellis.model.folders import MANIFEST, parts_of

ENDING = f".{MANIFEST}"
FOLDERS_UP = 4  # A file of a result lies at most so many folders below the manifest.


def now() -> str:
    """Return the present time as manifests have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_beside(
    output: Path,
    job: str,
    *,
    inputs: Iterable[Path],
    outputs: Iterable[Path],
    started: str,
    parameters: Mapping[str, Any],
    rows: Mapping[str, int],
    seed: int | str | None = None,
) -> None:
    """Write the manifest of `output`: what the command read, and what it wrote."""
    files = sorted({file for path in inputs for file in _files(path.absolute())})
    manifest = {
        "job": job,
        "inputs": [_entry(file, file) for file in files],
        "outputs": [_entry(path, Path(path.name)) for path in outputs if path.parent == output.parent],
        "parents": list(parents_in(files).values()),
        "started": started,
        "ended": now(),
        "application": "trellis",  # no application of Spark
        "parameters": {key: value if _is_plain(value) else str(value) for key, value in parameters.items()},
        "seed": seed,
        "rows": dict(rows),
        "versions": {"trellis": trellis.__version__, "python": platform.python_version()},
    }
    with written_whole(manifest_path(output)) as part:
        part.write_text(json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def manifest_path(result: Path) -> Path:
    """Return the path of the manifest of a result: in a folder, or beside a file."""
    return result / MANIFEST if result.is_dir() else result.with_name(result.name + ENDING)


def parents_in(files: Iterable[Path]) -> dict[str, dict[str, object]]:
    """Return the entries, by path, for the results that local files are or belong to. Raw files have none."""
    results: list[dict[str, object] | None] = []
    folders = set()
    for file in files:
        own = _told(file)
        if own is None:
            folders.add(file.parent)
        else:
            results.append(own)
    for folder in sorted(folders):
        above = (_told(one) for one in (folder, *folder.parents)[:FOLDERS_UP])
        results += [next((one for one in above if one is not None), None)]
    return {str(parent["path"]): parent for parent in results if parent is not None}


def _told(result: Path) -> dict[str, object] | None:
    """Return the entry for a file or folder that has a manifest of ours, else None."""
    try:
        content = manifest_path(result).read_bytes()
        manifest = json.loads(content)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or "job" not in manifest:
        return None
    return {"path": str(result), "job": manifest["job"], "manifest_sha256": hashlib.sha256(content).hexdigest()}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        return parts_of(path)
    except InputError:
        return sorted(one for one in path.rglob("*") if one.is_file())


def _entry(path: Path, shown: Path) -> dict[str, object]:
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(shown), "bytes": path.stat().st_size, "sha256": sha256}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
