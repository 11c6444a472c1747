"""The data that experiments start from: raw traces through the pipeline where they are at hand, else substitutes.

A case names its data in its parameters `interests` and `churn`; `DATA` says what stands behind a name and whether it is
the paper's own. The folder of raw traces (`--data`, or TRELLIS_DATA) is laid out as `RAW` says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trellis.errors import InputError
from trellis.lab.experiment import Parameters, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trellis.model import ChurnTrace, Interests


class DataSet(NamedTuple):
    text: str
    is_papers: bool = False  # False: a substitute


DATA = {
    "ego-facebook": DataSet("ego-Facebook (SNAP; 4,039 users) for the Facebook graph of 3 million users"),
    "friends": DataSet("a generated friendship graph (Holme-Kim) for the Facebook graph of 3 million users"),
    "followers": DataSet("a generated follower graph (power law 1.65) for the Twitter graph"),
    "google-2011": DataSet("Google's cluster trace of 2011, machine events", True),
    "machines": DataSet("generated machine events (Poisson) for Google's cluster trace of 2011"),
    "skype": DataSet("Skype superpeers, 2,081 nodes, for the paper's sessions of 4,000 nodes"),
    "crowd": DataSet("a generated flash crowd (half as many again join within 10 s) for the Skype sessions"),
    "wikipedia-jodie": DataSet("a month of edits of 1,000 Wikipedia pages for six years of all pages"),
    "wikipedia-2015": DataSet("one day of Wikipedia edits (2015) for six years of them"),
    "editors": DataSet("generated editors (popularity 1..348, mean 5.4) for six years of Wikipedia edits"),
}
# Raw traces: where they lie under the data folder.
RAW = {
    "ego-facebook": "ego-facebook/facebook_combined.txt.gz",
    "google-2011": "google-cluster-2011/machine_events/part-00000-of-00001.csv.gz",
    "skype": "skype-superpeers/SKYPE.avt.gz",
    "wikipedia-jodie": "wikipedia-jodie/ml_wikipedia.txt.gz",
    "wikipedia-2015": "wikipedia-ticker-2015/wikiticker-2015-09-12-sampled.json.gz",
}
FACEBOOK_USERS = 4039


@dataclass(frozen=True)
class AtHand:
    """Which raw traces there are."""

    folder: Path | None = None
    made: Path | None = None  # what an earlier run made of raw traces: enough to judge its results
    names: frozenset[str] = frozenset()  # the data of rows that are kept: enough to judge them, too

    @classmethod
    def find(cls, named: Path | None, made: Path | None = None) -> AtHand:
        """`named`, or what TRELLIS_DATA names; nothing where neither is given."""
        if named is not None and not named.is_dir():
            raise InputError(str(named), "is no folder", f"name the folder that holds {', '.join(sorted(RAW))}")
        told = os.environ.get("TRELLIS_DATA")
        return cls(named or (Path(told) if told and Path(told).is_dir() else None), made)

    def has(self, name: str) -> bool:
        if name in self.names:
            return True
        if self.folder is not None:
            return (self.folder / RAW[name]).is_file()
        return self.made is not None and next(self.made.glob(f"{name}-*"), None) is not None

    def friends(self, nodes: int) -> str:
        return "ego-facebook" if nodes <= FACEBOOK_USERS and self.has("ego-facebook") else "friends"

    def machines(self) -> str:
        return "google-2011" if self.has("google-2011") else "machines"

    def editors(self) -> list[str]:
        return [name for name in ("wikipedia-jodie", "wikipedia-2015") if self.has(name)] or ["editors"]


NOTHING, EVERYTHING = AtHand(), AtHand(names=frozenset(RAW))


def substitutes(parameters: Parameters) -> list[str]:
    """What keeps a case with these parameters from `reproduced`."""
    named = [str(parameters[name]) for name in ("interests", "churn") if parameters.get(name) in DATA]
    return [f"substitute data: {DATA[name].text}" for name in named if not DATA[name].is_papers]


def data_of(parameters: Parameters) -> list[str]:
    named = [str(parameters[name]) for name in ("interests", "churn") if parameters.get(name) in DATA]
    return [DATA[name].text for name in named]


@dataclass(frozen=True)
class Inputs:
    """What the pipeline made of raw traces: one folder for each table, beside the results."""

    folder: Path

    def interests(self, parameters: Parameters, seed: int) -> Interests:
        from trellis.lab import substitutes as generated
        from trellis.model import read_interests

        nodes = int(parameters["nodes"])
        match parameters["interests"]:
            case "friends":
                return generated.friend_interests(nodes, seed)
            case "followers":
                return generated.followers(nodes, seed)
            case "editors":
                return generated.editors(nodes, int(parameters["topics"]), seed)
            case _:
                return read_interests(self.folder / _interests_name(parameters, seed))

    def churn(self, parameters: Parameters, interests: Interests, seed: int) -> ChurnTrace:
        from trellis.lab import substitutes as generated
        from trellis.model import read_churn

        if parameters["churn"] == "machines":
            return generated.machine_churn(interests, seed)
        return read_churn(self.folder / _churn_name(parameters, seed), interests)


def _interests_name(parameters: Parameters, seed: int) -> str:
    return f"{parameters['interests']}-{parameters['nodes']}-{seed}"


def _churn_name(parameters: Parameters, seed: int) -> str:
    return f"{parameters['churn']}-on-{_interests_name(parameters, seed)}"


def prepare(spark: SparkSession, rows: Iterable[Row], at_hand: AtHand, folder: Path) -> list[str]:
    """Runs the pipeline for every input that rows need and that is not there yet. Returns what it made."""
    from trellis.model import write_table

    folder.mkdir(parents=True, exist_ok=True)
    inputs, made = Inputs(folder), []
    for row in rows:
        parameters, seed = row.case.parameters, row.seed
        source, churn = parameters.get("interests"), parameters.get("churn")
        if source in RAW and not (folder / (name := _interests_name(parameters, seed))).exists():
            _from_raw(spark, str(source), parameters, seed, at_hand, folder / name)
            made.append(name)
        if churn in RAW and not (folder / (name := _churn_name(parameters, seed))).exists():
            nodes = folder / _interests_name(parameters, seed)
            if source not in RAW and not nodes.with_suffix(".parquet").exists():
                write_table(inputs.interests(parameters, seed).to_table(), nodes.with_suffix(".parquet"))
            nodes = nodes if source in RAW else nodes.with_suffix(".parquet")
            _churn_from_raw(spark, str(churn), nodes, seed, at_hand, folder / name)
            made.append(name)
    return made


def _from_raw(
    spark: SparkSession, source: str, parameters: Parameters, seed: int, at_hand: AtHand, output: Path
) -> None:
    from trellis.pipeline import jobs

    raw, part = _raw(source, at_hand), output.with_name(f".{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    if source == "ego-facebook":
        jobs.social(spark, raw, str(part), format="facebook", sample_nodes=int(parameters["nodes"]), seed=seed)
    else:
        # Not seldom one page has one editor; the sample is of pages, so users follow from them.
        jobs.edits(spark, raw, str(part), format="wikipedia", topics=int(parameters["topics"]), seed=seed)
    part.rename(output)


def _churn_from_raw(spark: SparkSession, source: str, nodes: Path, seed: int, at_hand: AtHand, output: Path) -> None:
    from trellis.pipeline import jobs

    raw, part = _raw(source, at_hand), output.with_name(f".{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    kind = {"google-2011": "google2011", "skype": "avt"}[source]
    jobs.churn(spark, raw, str(part), map_to=str(nodes), format=kind, seed=seed)
    part.rename(output)


def _raw(source: str, at_hand: AtHand) -> str:
    if not at_hand.has(source):
        raise InputError(
            source, "this raw trace is not at hand", "name its folder with --data, or run again without it"
        )
    assert at_hand.folder is not None
    return str(at_hand.folder / RAW[source])
