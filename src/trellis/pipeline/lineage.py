"""The lineage of a result: the chain of manifests back to raw files, and whether any of them has changed.

A manifest lists the inputs of its job with their SHA-256, the earlier results that they belong to (`parents`), and the
files that the job wrote (`outputs`). Reading manifests needs no Spark, but only reaches files of this machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.pipeline.file_systems import FileSystems

MANIFEST = "manifest.json"
LEVELS_MAX = 100  # results behind results
_FOLDERS_UP = 4  # A file of a result lies at most so many folders below the manifest.
_SECRET = re.compile(r"secret|password|passwd|token|credential|access.?key", re.IGNORECASE)
_PASSING = ("spark.app.", "spark.driver.port", "spark.driver.extraJavaOptions", "spark.executor.id", "spark.local.dir")


@dataclass
class Origin:
    """A result or a raw file, with the results and files that it was made from."""

    path: str
    state: str  # unchanged | changed | missing | not looked at
    job: str | None = None  # None: a raw file
    told: dict[str, Any] = field(default_factory=dict)
    parents: list[Origin] = field(default_factory=list)

    def all(self) -> Iterator[Origin]:
        yield self
        for parent in self.parents:
            yield from parent.all()


def lineage(folder: str | Path) -> Origin:
    """Return the origins of a result. Raise InputError if `folder` is not the result of a job."""
    manifest = _manifest(Path(folder))
    if manifest is None:
        raise InputError(str(folder), "has no manifest of trellis pipeline", "name a folder that a job has written")
    return _result(Path(folder), manifest, 0)


def parents_of(file_systems: FileSystems, inputs: Iterable[str]) -> list[dict[str, object]]:
    """Return the entries of a manifest for the earlier results that these input files belong to."""
    parents: dict[str, dict[str, object]] = {}
    folders = {path.rpartition("/")[0] for path in inputs}
    for start in sorted(folders):
        folder = start
        for _ in range(_FOLDERS_UP):
            manifest = file_systems.manifest(folder) if folder else None
            if manifest is not None and "job" in manifest:
                content = file_systems.read_bytes(f"{folder}/{MANIFEST}")
                parents[folder] = {
                    "path": folder,
                    "job": manifest["job"],
                    "manifest_sha256": hashlib.sha256(content).hexdigest(),
                }
                break
            folder = folder.rpartition("/")[0]
    return list(parents.values())


def settings_of(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings of a session, without secrets and without what is different in every run."""
    kept = {key: value for key, value in settings if not key.startswith(_PASSING)}
    return {key: "(not told)" if _SECRET.search(key) else value for key, value in sorted(kept.items())}


def _result(folder: Path, manifest: Mapping[str, Any], depth: int) -> Origin:
    outputs = [entry for entry in manifest.get("outputs", []) if isinstance(entry, dict)]
    states = [_state(folder / str(entry["path"]), entry) for entry in outputs]
    told = {key: manifest.get(key) for key in ("started", "ended", "application", "rows", "seed")}
    origin = Origin(str(folder), _worst(states), str(manifest.get("job")), told | {"files": len(outputs)})
    if depth >= LEVELS_MAX:
        return origin
    roots = []
    for parent in manifest.get("parents", []):
        root = Path(str(parent["path"]))
        roots.append(root)
        origin.parents.append(_parent(root, parent, depth))
    for entry in manifest.get("inputs", []):
        path = Path(str(entry["path"]))
        if not any(path.is_relative_to(root) for root in roots):
            told = {key: entry[key] for key in ("bytes", "sha256") if key in entry}
            origin.parents.append(Origin(str(path), _state(path, entry), told=told))
    return origin


def _parent(root: Path, told: Mapping[str, Any], depth: int) -> Origin:
    manifest = _manifest(root)
    if manifest is None:
        state = "not looked at" if "://" in str(told["path"]) else "missing"
        return Origin(str(told["path"]), state, str(told.get("job")))
    origin = _result(root, manifest, depth + 1)
    if _sha256(root / MANIFEST) != told.get("manifest_sha256"):
        origin.state = "changed"  # It was made again since. These are the origins of the new one.
    return origin


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and "job" in manifest else None


def _state(path: Path, told: Mapping[str, Any]) -> str:
    if "sha256" not in told or "://" in str(told["path"]):
        return "not looked at"
    if not path.is_file():
        return "missing"
    return "unchanged" if _sha256(path) == told["sha256"] else "changed"


def _worst(states: Iterable[str]) -> str:
    seen = set(states)
    return next((state for state in ("missing", "changed", "not looked at") if state in seen), "unchanged")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
