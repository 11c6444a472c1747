"""`social`: a graph of users -> the interests of a sample of them.  [OMen 6.1; Vitis IV-E]

omen   a few random seeds, breadth first until exactly the target, all edges among the reached.  [E-13..E-15]
vitis  random users and all they follow, in several rounds, subscriptions that leave the sample removed.

Only nodes of the sample and counts ever reach the driver; the graph stays where it was read.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline import statistics
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, SMALL_NODES, OnBadRows, Paths, Report, Run, collected, running
from trellis.pipeline.sources import graphs as graph_sources
from trellis.pipeline.sources.parsing import among_good
from trellis.pipeline.stages import graphs

FORMATS = ("edges", "facebook", "twitter")
Sampling = Literal["omen", "vitis", "all"]


def social(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    sample_nodes: int | None = None,
    sampling: Sampling = "omen",
    seeds: int = 5,
    directed: bool | None = None,
    seed: int | str = 0,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Write the interests of `sample_nodes` users (of all users where it is None).

    seeds      users to start from; `omen`: all at once (the paper's "a few"); `vitis`: in the first round
    directed   whether following is one-sided; without: `twitter` is, `facebook` is not, `edges` as a header of KONECT
               or SNAP says, else not
    """
    if sample_nodes is None:
        sampling = "all"
    if sampling not in ("omen", "vitis", "all"):
        raise InputError("", f'sampling "{sampling}" is unknown', "choose omen or vitis")
    if seeds < 1 or (sample_nodes is not None and sample_nodes < 1):
        raise InputError("", "a sample of no users, or from no seeds", "give numbers of 1 or more")
    parameters = {
        "format": format,
        "sample_nodes": sample_nodes,
        "sampling": sampling,
        "seeds": seeds,
        "directed": directed,
        "on_bad_rows": on_bad_rows,
        "max_bad_share": max_bad_share,
    }
    with running(spark, "social", output, parameters=parameters, seed=seed, overwrite=overwrite) as (run, reports):
        loops = F.count_if(among_good(F.col("source") == F.col("target")))
        source, given = run.read(paths, format, FORMATS, counts={"self_loops": loops})
        one_sided = is_directed(run, source.name, directed)
        refuse_cut_off(run)
        edges = run.keep(graphs.simple_edges(given, directed=one_sided))
        users = run.keep(graphs.degrees(edges, directed=one_sided))
        _count_graph(run, edges, users)
        sample, inside = edges, users.select("node")
        if sample_nodes is not None:
            inside = _sampled(run, edges, users, sampling, sample_nodes, seeds, seed, one_sided)
            small = sample_nodes <= SMALL_NODES
            sample = run.keep(graphs.edges_among(edges, inside, small=small))
        interests = graphs.interests_of(sample, directed=one_sided)
        run.write(interests.orderBy("node", "topic"))
        _compare(run, users, sample, inside, one_sided)
    return reports[0]


def is_directed(run: Run, format: str, directed: bool | None) -> bool:
    """Return whether the graph that was read is directed. Raise InputError if that is not told and may be so."""
    told = "by you"
    if directed is None:
        said = graph_sources.says_directed(run.first) if format == "edges" else format == "twitter"
        first_path = next(iter(run.inputs))
        if said is None and graph_sources.may_be_directed(run.first, first_path):
            raise InputError(
                first_path, "nothing says whether this graph is directed", "pass --directed or --undirected"
            )
        told = "not at all" if said is None else "by the format" if format != "edges" else "by the file"
        directed = bool(said)
    elif directed != (format == "twitter") and format != "edges":
        raise InputError("", f"{format} graphs are {'not ' if directed else ''}directed", "read it as edges instead")
    run.facts |= {"directed": directed, "direction_told": told}
    return directed


def refuse_cut_off(run: Run) -> None:
    """Raise InputError if the header of a single file promises more edges than there are."""
    promised = graph_sources.promised_edges(run.first)
    rows = run.facts["rows_read"] + sum(count for _, count in run.rejected)
    if len(run.inputs) == 1 and promised is not None and rows < promised:
        what = f"its header promises {promised:,} edges, and there are {rows:,}"
        raise InputError(next(iter(run.inputs)), what, "fetch it again, or remove that line if it is wrong")


def _count_graph(run: Run, edges: DataFrame, users: DataFrame) -> None:
    """Leave out and count self-loops and repeated edges. They add nothing to the interests."""
    run.step("the graph, each edge once")
    kept = edges.count()
    run.facts |= {
        "edges": kept,
        "repeated_edges": run.facts["rows_read"] - run.facts["self_loops"] - kept,
        "users": users.count(),
    }
    if not kept:
        raise InputError("", "the graph has no edge between two users", "check the format")


def _sampled(
    run: Run,
    edges: DataFrame,
    users: DataFrame,
    sampling: Sampling,
    target: int,
    seeds: int,
    seed: int | str,
    directed: bool,
) -> DataFrame:
    available = run.facts["users"]
    if target > available:
        raise InputError("", f"the graph has only {available:,} users", f"ask for at most {available}")
    search = Search(run, edges, users.select("node"), target, seed, small=target <= SMALL_NODES)
    if sampling == "omen":
        search.breadth_first(seeds)
    else:
        search.followees_of_random_users(seeds, both_directions=not directed)
    run.facts |= {"seeds_drawn": search.seeds_drawn, "rounds": search.rounds}
    return search.reached


class Search:
    """The users reached so far, in rounds; at most `target`, and in the end exactly so many."""

    def __init__(
        self, run: Run, edges: DataFrame, users: DataFrame, target: int, seed: int | str, *, small: bool
    ) -> None:
        self.run, self.edges, self.users = run, edges, users
        self.target, self.seed, self.small = target, seed, small
        self.reached: DataFrame = users.limit(0)
        self.size = self.seeds_drawn = self.rounds = 0

    def breadth_first(self, seeds: int) -> None:
        """Sample breadth first, over links in either direction. The last level is cut at random.  [OMen 6.1; E-14]"""
        frontier, batch = self.draw(seeds), 1
        while self.size < self.target:
            frontier, added = self.add(self._neighbors(frontier, both_directions=True))
            if not added:
                # The component is complete. Further seeds come one, two, four, ... at a time, since a graph of many
                # small components would else take a round for each.
                frontier, batch = self.draw(batch), 2 * batch

    def followees_of_random_users(self, seeds: int, *, both_directions: bool) -> None:
        """Sample users and their followees. Each round draws twice as many users; the last one is cut.  [Vitis IV-E]"""
        batch = seeds
        while self.size < self.target:
            self.add(self._neighbors(self.draw(batch), both_directions=both_directions))
            batch *= 2

    def draw(self, count: int) -> DataFrame:
        """Add further random users that are not reached yet, and return them."""
        rest = self.users.join(self._hinted(self.reached), "node", "left_anti") if self.size else self.users
        count = min(count, self.target - self.size)
        drawn, added = self.add(graphs.drawn_nodes(rest, count=count, seed=self.seed, purpose="seeds"))
        self.seeds_drawn += added
        return drawn

    def add(self, nodes: DataFrame) -> tuple[DataFrame, int]:
        """Add new nodes, at most up to the target size, and then random ones. Return those added, and their number."""
        self.rounds += 1
        self.run.step(f"sampling, round {self.rounds}: {self.size:,} of {self.target:,} users")
        wanted = self.target - self.size
        fresh, added = self.run.settle(nodes)
        if added > wanted:
            fresh, added = self.run.settle(graphs.drawn_nodes(fresh, count=wanted, seed=self.seed, purpose="level"))
        if added:
            self.reached, self.size = self.run.settle(self.reached.union(fresh) if self.size else fresh)
        return fresh, added

    def _neighbors(self, frontier: DataFrame, *, both_directions: bool) -> DataFrame:
        return graphs.next_level(self.edges, frontier, self.reached, both_directions=both_directions, small=self.small)

    def _hinted(self, table: DataFrame) -> DataFrame:
        return F.broadcast(table) if self.small else table


def _compare(run: Run, users: DataFrame, sample: DataFrame, inside: DataFrame, directed: bool) -> None:
    """How far the sample's degrees are from the full graph's: largest gap between the CCDFs.  [OMen Fig. 7]

    Beside it the slope of each CCDF on logarithmic axes: edges to the outside are gone, so a good sample may have
    smaller degrees throughout and still their shape.
    """
    run.step("degrees of sample and graph")
    own = graphs.with_isolated(graphs.degrees(sample, directed=directed), inside)
    sample_degrees, graph_degrees = (collected(table, "followers", "followees") for table in (own, users))
    facts: dict[str, object] = {}
    for quantity, mine in sample_degrees.items():
        full = graph_degrees[quantity]
        facts[quantity] = {
            "ks": statistics.ks_distance(*mine, *full),
            "mean": statistics.moments(*mine)["mean"],
            "mean_full": statistics.moments(*full)["mean"],
            "slope": statistics.loglog_slope(*mine),
            "slope_full": statistics.loglog_slope(*full),
        }
    value, count = sample_degrees["followees"]
    run.facts |= {
        "sample": facts,
        "sample_nodes": int(count.sum()),
        "nodes_without_interests": int(count[value == 0].sum()),
    }
