"""What the harness asks of a system. An adapter is one class: a name, a way to find the program, and configurations."""

from __future__ import annotations

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fire.network import Place

MQTT_PORT = 1883
_SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/usr/lib/rabbitmq/bin:/opt/homebrew/sbin"


@dataclass(frozen=True)
class Command:
    """One process of a site."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: tuple[str, int] | None = None  # address and port where it accepts connections when it is up
    pause_s: float = 0.0  # after that: how long the next process, or the first client, waits


class System(ABC):
    """A way to join brokers. One instance serves one run."""

    name: str  # as the command line and the files have it
    title: str  # as the page has it
    safe: tuple[str, ...] = ()  # settings against losing messages, and where they are recommended
    known: tuple[str, ...] = ()  # what a reader must know about the configuration

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})  # given on the command line as NAME:KEY=VALUE

    @abstractmethod
    def missing(self) -> str | None:
        """Return why the system cannot run here and what to install, or None if it can."""

    def unfit(self, brokers: int) -> str | None:
        """Return why it makes no sense to run so many brokers, or None if it does."""
        return None

    @abstractmethod
    def version(self) -> str:
        """Return the versions of the programs."""

    @abstractmethod
    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        """Write configuration files into `folder`. Return the commands of each site, in the order of their start."""

    def configurations(self, folder: Path) -> dict[str, str]:
        """Return the text of the first site's configuration files, by name: they are printed on the page."""
        return {path.name: path.read_text("utf-8") for path in sorted(folder.glob("s0.*")) if path.suffix in _TEXT}


_TEXT = (".conf", ".toml", ".json")


def find(program: str) -> str | None:
    """Return the path of a program, also where users do not look."""
    return shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)


def said_by(*argv: str) -> str:
    """Return the first line that a command prints."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "unknown"


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path
