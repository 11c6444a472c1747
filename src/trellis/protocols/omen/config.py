"""The settings of an OMen node. `trellis node --print-config` prints the text below each field.

Durations in periods are multiples of `period_ms`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError

Knowledge = Literal["neighbours", "hints", "global"]
Routine = Literal["primal-dual", "primal-dual-carry", "primal-dual-uncovered", "greedy"]


class OMenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, with the values of the experiments. `LiveOMenConfig` has the values of live nodes."""

    coverage: int = 5
    """lambda: how many backups cover each topic. Raising it lowers degrees under churn and makes views larger.
    [OM §4.2]"""

    resilience: int = 3
    """L: how many nodes may fail at once. Each node keeps backup sets for L predecessors, and L successors hold its
    record."""

    rho: float = 3.0
    """LowODA's rule: a link may raise the maximum degree only if it is worth it. It must contribute more than rho times
    as much as the best link that does not raise it (A-OMN-3)."""

    knowledge: Knowledge = "hints"
    """What a coordinator uses to prove that nodes are connected. `neighbours`: links that answers name. `hints`: also
    nodes on root paths. `global`: the whole overlay (simulator only)."""

    # Deviation: [OM 4.2] words `primal-dual-uncovered`. It is as skewed as the greedy rule: after 1,000 rounds of churn
    # the maximum degree is 63.8 with it and 22.6 with ours (docs/results/shadows.md).
    backups: Routine = "primal-dual-carry"
    """The rule by which backups are chosen [SH Alg. 12, A-SHD-5; OM §4.2]. docs/omen.md has measurements of all rules.
    The paper's own rule, `primal-dual-uncovered`, gives the smallest views. Like `greedy`, it makes few nodes the
    backups of most others."""

    # Deviation: [OM 3] keeps topics connected. With 2, links are kept that a plan of `--connectivity 2` has.
    connectivity: int = 1
    """How many node-disjoint paths there are between any two subscribers of a topic when all repairs are over. 1: each
    topic is connected, as in the paper, and one crash may split it until it is repaired. 2: no single crash splits a
    topic of three or more subscribers. That takes more links, messages and time for each repair. The same at all
    nodes."""

    period_ms: int = 1_000
    """T_wait: each period has one gossip exchange and one heartbeat per link. Raising it saves traffic and makes the
    node notice everything later."""

    silence_max: int = 5
    """Periods of silence until a peer is suspected. Raising it makes wrong suspicions rarer and right ones later."""

    ask_ms: int = 250
    """Time that a coordinator waits for answers before it asks again. It must be above the slowest round trip."""

    ask_tries: int = 4
    """Questions without an answer after which a required node counts as departed, for this repair."""

    optional_tries: int = 2
    """Questions to a node whose answer only saves links. Each waits `ask_ms`. 1 is enough if no message is lost."""

    # Deviation: [OM 3.2] has the coordinator collect information from each node. Here nodes whose answers only save
    # links share a question, which saves messages.
    way_max: int = 8
    """Most nodes that one question visits if their answers only save links. Each node passes the question on with the
    answers so far, and the last one sends all of them. Raising it saves messages. If a node on the route does not
    answer, all others on it are asked again. 1 asks each node directly. Live nodes use 1, because few of them have
    streams to each other."""

    helper_tries: int = 0
    """Questions, `ask_ms` apart, to a node that a repair needs and that does not answer. Then the repair goes on
    without it. A required node counts as departed for this repair. Links do not wait for a holder of a record. The next
    successor takes over from a coordinator. A wrong decision costs links, not correctness. 0: required nodes are asked
    `ask_tries` times, and the others are waited for until they are suspected. Live nodes use 2."""

    ready_rounds: int = 3
    """Gossip rounds after which a view may be ready, at the earliest (A-OMN-6)."""

    join_rounds: int = 16
    """Most gossip rounds that the view of a joiner needs to be ready; the more topics, the more rounds. Fewer links
    cover the topics if more nodes are known."""

    view_rounds: int = 20
    """Gossip rounds during which a view is improved. After them it is rebuilt only when it is not ready."""

    # Deviation: [OM Alg. 5, processExeQ, l. 3] waits for a ready view without a limit.
    ready_wait: int = 20
    """Most periods that a join waits for a ready view. A repair without backups is as correct, but makes degrees less
    even."""

    repair_wait: int = 20
    """Most periods that the repair of a departure waits for a ready view. 0 repairs at once with the backups that are
    known: topics are connected again sooner, and degrees are less even. Live nodes use 0."""

    standby_periods: int = 8
    """Periods after which a node on standby takes over an event that the coordinator has not handled. [OM Alg. 5]"""

    record_periods: int = 60
    """Periods for which the record of a departed node is kept after its repair."""

    relink_periods: int = 4
    """Periods for which a lost link between two living nodes may stay down before its topics are repaired."""

    report_tries: int = 30
    """Periods for which a survivor repeats its report of a lost neighbor, if it is not told that the repair is done."""

    try_periods_max: int = 32
    """Longest pause, in periods, between two probes of a suspected node or a seed. The pauses are 2, 4, ... periods."""

    try_soon: int = 0
    """Periods for which a suspected node is probed in every period, before the pauses grow. Raising it connects topics
    sooner after a network was cut. It costs one message per period for each crashed node. Live nodes raise it."""

    # Deviation: [OM 3.3] has a node watch its neighbors on the ring alone.
    watch_unheard: bool = False
    """Whether a node also watches all nodes of its ring table that have never answered it. That costs one message per
    period for each of them until it answers. Names that a peer has invented are then found out all at once. Live nodes
    do that."""

    suspects_max: int = 64
    """Most suspected nodes that are remembered. If there are more, the oldest is forgotten."""

    net: bool = True
    """Whether roots of a topic's parts meet at its home location. This root rendezvous is the fallback below all
    repairs."""

    net_periods: int = 5
    """Periods after which a root repeats a report that its topic's home location has not answered."""

    root_beat: int = 30
    """Periods between two reports of a root that the home location has answered. Raising it saves messages at rest. It
    delays the repair of a topic that is split after its home location has crashed."""

    root_patience: int = 15
    """Periods that a node must have been the root of a topic before it reports. A node without a neighbor on the topic
    reports sooner."""

    cut_periods: int = 10
    """With `connectivity` 2: periods without a change of a node's neighbors on a topic, after which the node looks
    whether its own loss would split the topic. Raising it saves messages under churn, and leaves topics that were not
    two-connected at the start so for longer. 0: no node looks."""

    leave_periods_max: int = 40
    """Periods after which a node that leaves closes its links even if it is not told that the repair is done."""

    hops_max: int = 128
    """Most hops of a message that is routed on the ring. It is dropped if it takes more."""

    def __post_init__(self) -> None:
        """Refuse values that no node can work with."""
        for field, least in (("coverage", 0), ("resilience", 1), ("period_ms", 10), ("silence_max", 1), ("ask_ms", 1)):
            if getattr(self, field) < least:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {least} or more")
        if not self.rho >= 1:
            raise InputError("", f"rho is {self.rho}", "give 1 or more")
        if self.connectivity not in (1, 2):
            raise InputError("", f"connectivity is {self.connectivity}", "give 1 or 2")
        if self.connectivity == 2 and self.knowledge == "global":
            raise InputError(
                "", "connectivity 2 needs the answers of nodes, not global knowledge", "give knowledge hints"
            )

    @property
    def is_twice(self) -> bool:
        """Whether each topic is kept two-connected."""
        return self.connectivity == 2
