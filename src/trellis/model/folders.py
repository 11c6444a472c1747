"""Find the Parquet files of a path: the file itself, or the parts of a folder that Spark wrote.

A folder that a job of ours wrote has a manifest, which lists the files of the result. Only these are read. A job that
failed or was killed may have left others beside them.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from trellis.errors import InputError

MANIFEST = "manifest.json"
FORMATS = "name it .parquet, .tsv, .csv or .jsonl (the last three also .gz), or name a folder of Parquet parts"
_AGAIN = "run it again"


def parts_of(path: Path) -> list[Path]:
    """Return the Parquet files of a path in name order."""
    if path.is_dir():
        return _parts_in(path)
    if not path.exists():
        raise InputError(str(path), "there is no such file", "check the path")
    if path.suffix != ".parquet":
        raise InputError(str(path), "its name does not tell the format", FORMATS)
    return [path]


def manifest_in(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder that lists the files of a result; None if the folder has none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("outputs"), list) else None


def _parts_in(folder: Path) -> list[Path]:
    if (folder / "_temporary").exists():
        raise InputError(str(folder), "the job that writes this folder has not finished", _AGAIN)
    listed = _listed(folder)
    if listed is not None:
        return listed
    if any(one.is_dir() for one in folder.glob("data-*")):  # A job of ours writes them before its manifest.
        raise InputError(str(folder), "the job that writes this folder has written no manifest", _AGAIN)
    # A folder with subfolders such as a=1/ is a partitioned table of another program.
    parts = sorted(part for part in folder.glob("*.parquet") if part.is_file() and part.name[0] not in "._")
    if not parts:
        raise InputError(str(folder), "the folder holds no Parquet part", FORMATS)
    return parts


def _listed(folder: Path) -> list[Path] | None:
    """Return the parts that the manifest lists. None if there is no manifest.

    `profile` and `verify` write several tables into one folder, each into a folder below with a name of its own.
    """
    manifest, top = manifest_in(folder), folder
    if manifest is None:
        manifest, top = manifest_in(folder.parent), folder.parent
    if manifest is None:
        return None
    paths = [PurePosixPath(str(entry["path"])) for entry in manifest["outputs"] if isinstance(entry, dict)]
    parquet = [path for path in paths if path.suffix == ".parquet" and not any(name[0] in "._" for name in path.parts)]
    inside = [part for part in (top / path for path in parquet) if part.is_relative_to(folder)]
    if top != folder and not inside:
        return None  # the manifest of something else, which only lies beside the folder
    _refuse_several_tables(folder, inside)
    missing = [part for part in inside if not part.is_file()]
    if missing:
        raise InputError(str(missing[0]), "is listed in the manifest of its folder, and is not there", "make it again")
    if not inside:
        raise InputError(str(folder), "its manifest lists no Parquet part", FORMATS)
    return sorted(inside)


def _refuse_several_tables(folder: Path, parts: list[Path]) -> None:
    below = [part.relative_to(folder).parts[:-1] for part in parts]
    tables = sorted({name for names in below for name in names if name.endswith(".parquet")})
    if tables:
        raise InputError(str(folder), f"holds several tables: {', '.join(tables)}", f"name one: {folder / tables[0]}")
