"""The lineage of a result: the chain of manifests back to raw files, and whether any of them has changed.

A manifest lists the inputs of its job with their SHA-256, the earlier results that they belong to (`parents`), and the
files that the job wrote (`outputs`). A result that was appended to lists its runs as well (`runs`). Reading manifests
needs no Spark, but only reaches files of this machine.
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
from trellis.model.folders import MANIFEST
from trellis.pipeline.beside import FOLDERS_UP, manifest_path, parents_in

if TYPE_CHECKING:
    from trellis.pipeline.file_systems import FileSystems

LEVELS_MAX = 100  # results behind results
APPENDED = "unchanged, appended to since"
_OF_A_RUN = (
    "started",
    "ended",
    "application",
    "settings",
    "parameters",
    "seed",
    "versions",
    "rows",
    "rejected",
    "parents",
)
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"secret|password|passwd|token|credential|access.?key", re.IGNORECASE)
_PASSING = ("spark.app.", "spark.driver.port", "spark.driver.extraJavaOptions", "spark.executor.id", "spark.local.dir")


@dataclass
class Origin:
    """A result or a raw file, with the results and files that it was made from."""

    path: str
    state: str  # unchanged | unchanged, appended to since | changed | missing | not looked at
    job: str | None = None  # None: a raw file
    told: dict[str, Any] = field(default_factory=dict)
    parents: list[Origin] = field(default_factory=list)

    def all(self) -> Iterator[Origin]:
        yield self
        for parent in self.parents:
            yield from parent.all()


def lineage(result: str | Path) -> Origin:
    """Return the origins of a result: a folder, or a file. Raise InputError if no manifest tells how it was made."""
    manifest = _manifest(Path(result))
    if manifest is None:
        what = "has no manifest of trellis pipeline or trellis plan"
        raise InputError(str(result), what, "name a folder that a job has written, or a plan")
    return _result(Path(result), manifest, 0)


def parents_of(file_systems: FileSystems, inputs: Iterable[str]) -> list[dict[str, object]]:
    """Return the entries of a manifest for the earlier results that these input files are or belong to."""
    paths = sorted(set(inputs))
    parents = parents_in(Path(path) for path in paths if not _is_remote(path))
    for start in sorted({path.rpartition("/")[0] for path in paths if _is_remote(path)}):
        folder = start
        for _ in range(FOLDERS_UP):
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


def appended(
    before: Mapping[str, Any], before_sha256: str, manifest: Mapping[str, Any], inputs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what is different in the manifest of a run that was appended to a result: sums, and all runs.

    before_sha256  of the manifest before. It tells later which runs a result of that time was made from
    """
    runs = before.get("runs") or [_run(before, "")]
    totals = {
        name: before.get("rows", {}).get(name, 0) + manifest["rows"].get(name, 0)
        for name in {**before.get("rows", {}), **manifest["rows"]}
    }
    known = {str(parent["path"]): parent for parent in before.get("parents", [])}
    return {
        "inputs": [*before.get("inputs", []), *inputs],
        "parents": list((known | {str(parent["path"]): parent for parent in manifest["parents"]}).values()),
        "rows": totals,
        "rejected": before.get("rejected", 0) + manifest["rejected"],
        "runs": [*runs, _run(manifest, before_sha256)],
    }


def _run(manifest: Mapping[str, Any], before_sha256: str) -> dict[str, Any]:
    """Return what a manifest tells about one run."""
    files = {name: [entry["path"] for entry in manifest.get(name, [])] for name in ("inputs", "outputs")}
    return {key: manifest.get(key) for key in _OF_A_RUN} | files | {"manifest_before_sha256": before_sha256}


def settings_of(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings of a session, without secrets and without what is different in every run."""
    kept = {key: value for key, value in settings if not key.startswith(_PASSING)}
    return {key: "(not told)" if _SECRET.search(key) else value for key, value in sorted(kept.items())}


def _result(result: Path, manifest: Mapping[str, Any], depth: int) -> Origin:
    folder = result if result.is_dir() else result.parent
    outputs = [entry for entry in manifest.get("outputs", []) if isinstance(entry, dict)]
    states = [_state(folder / str(entry["path"]), entry) for entry in outputs]
    told = {key: manifest.get(key) for key in ("started", "ended", "application", "rows", "seed")}
    runs = manifest.get("runs") or []
    told |= {"files": len(outputs), "runs": len(runs) or 1}
    origin = Origin(str(result), _worst(states), str(manifest.get("job")), told)
    if depth >= LEVELS_MAX:
        return origin
    roots = []
    for parent in manifest.get("parents", []):
        root = Path(str(parent["path"]))
        roots.append(root)
        origin.parents.append(_parent(root, parent, depth))
    run_of = [number for number, run in enumerate(runs, 1) for _ in run.get("inputs", [])]
    for index, entry in enumerate(manifest.get("inputs", [])):
        path = Path(str(entry["path"]))
        if not any(path.is_relative_to(root) for root in roots):
            told = {key: entry[key] for key in ("bytes", "sha256") if key in entry}
            if index < len(run_of):
                told["run"] = run_of[index]
            origin.parents.append(Origin(str(path), _state(path, entry), told=told))
    return origin


def _parent(root: Path, told: Mapping[str, Any], depth: int) -> Origin:
    manifest = _manifest(root)
    if manifest is None:
        state = "not looked at" if _is_remote(str(told["path"])) else "missing"
        return Origin(str(told["path"]), state, str(told.get("job")))
    then = _as_it_was(manifest, str(told.get("manifest_sha256")))
    if then is not None:
        origin = _result(root, then, depth + 1)
        origin.state = APPENDED if origin.state == "unchanged" else origin.state
        return origin
    origin = _result(root, manifest, depth + 1)
    if _sha256(manifest_path(root)) != told.get("manifest_sha256"):
        origin.state = "changed"  # It was made again since. These are the origins of the new one.
    return origin


def _as_it_was(manifest: Mapping[str, Any], sha256: str) -> dict[str, Any] | None:
    """Return the manifest with the runs until it had this hash; None if no run was appended to it since."""
    runs = manifest.get("runs") or []
    count = next((at for at, run in enumerate(runs) if at and run.get("manifest_before_sha256") == sha256), 0)
    if not count:
        return None
    inputs = sum(len(run["inputs"]) for run in runs[:count])
    outputs = {path for run in runs[:count] for path in run["outputs"]}
    parents = {str(parent["path"]): parent for run in runs[:count] for parent in run.get("parents") or []}
    return {
        **manifest,
        **{key: runs[count - 1].get(key) for key in ("started", "ended", "application")},
        "inputs": manifest.get("inputs", [])[:inputs],
        "outputs": [entry for entry in manifest.get("outputs", []) if entry["path"] in outputs],
        "parents": list(parents.values()),
        "runs": runs[:count],
    }


def _manifest(result: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads(manifest_path(result).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and "job" in manifest else None


def _state(path: Path, told: Mapping[str, Any]) -> str:
    if "sha256" not in told or _is_remote(str(told["path"])):
        return "not looked at"
    if not path.is_file():
        return "missing"
    return "unchanged" if _sha256(path) == told["sha256"] else "changed"


def _is_remote(path: str) -> bool:
    return _REMOTE.match(path) is not None


def _worst(states: Iterable[str]) -> str:
    seen = set(states)
    return next((state for state in ("missing", "changed", "not looked at") if state in seen), "unchanged")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
