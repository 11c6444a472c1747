"""Systems that no package index has: where to get them. Nothing here was run, so there is no adapter to trust yet.

To measure one, replace `configure` with its configuration and commands, as README.md beside this package shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import Command, System


class Elsewhere(System):
    where: str

    def missing(self) -> str | None:
        return f"it has no adapter yet, and no package index has it: {self.where}"

    def version(self) -> str:
        return "not installed"

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        raise NotImplementedError(self.missing())


class Emqx(Elsewhere):
    name = "emqx"
    title = "EMQX"
    where = "packages and images at https://www.emqx.com/en/downloads (Cluster Linking: version 5.8 or newer)"


class HiveMq(Elsewhere):
    name = "hivemq"
    title = "HiveMQ"
    where = "community edition at https://github.com/hivemq/hivemq-community-edition (clusters: https://www.hivemq.com)"


class VerneMq(Elsewhere):
    name = "vernemq"
    title = "VerneMQ"
    where = "packages at https://vernemq.com/downloads"
