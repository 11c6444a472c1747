"""What an OMen node can be told."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError

Knowledge = Literal["neighbours", "hints", "global"]
Routine = Literal["primal-dual", "primal-dual-carry", "primal-dual-uncovered", "greedy"]


class OMenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    coverage: int = 5
    """lambda: how often backups cover each topic. Raising it lowers degrees under churn; views grow. [OM §4.2]"""

    resilience: int = 3
    """L: nodes that may fail at once. Each node prepares for L predecessors and tells L successors of its links."""

    rho: float = 3.0
    """LowODA's rule: how much more an edge must contribute to be allowed to raise the maximum degree (A-OMN-3)."""

    knowledge: Knowledge = "hints"
    """What a coordinator learns: lists of the shadow set, also of whom hints name, or everything (simulator only)."""

    # Deviation: [OM 4.2] words `primal-dual-uncovered`. It is as skewed as the greedy rule: after 1,000 rounds of churn
    # the maximum degree is 63.8 with it and 22.6 with ours (docs/figures-shadows.md).
    backups: Routine = "primal-dual-carry"
    """How backups are chosen [SH Alg. 12, A-SHD-5; OM §4.2]: docs/omen.md has all of them measured. OMen's own rule,
    `primal-dual-uncovered`, gives the smallest views; like `greedy` it loads few nodes with most backups."""

    period_ms: int = 1_000
    """T_wait: one gossip exchange and one heartbeat per period. Raising it saves traffic; all is noticed later."""

    silence_max: int = 5
    """Periods without a sign of life until a peer is suspected."""

    ask_ms: int = 250
    """How long a coordinator waits for answers before it asks again. Above the slowest round trip."""

    ask_tries: int = 4
    """Questions to a silent node before it counts as dead, for this repair."""

    optional_tries: int = 2
    """Questions to a node whose answer only saves links. Each waits `ask_ms`; 1 is enough where no message is lost."""

    # Deviation: [OM 3.2] has the coordinator collect information from each node. Here nodes whose answers only save
    # links share a question, which saves messages.
    way_max: int = 8
    """Nodes that one question visits, where answers only save links: each passes it on with the answers so far, and
    the last one answers. Raising it saves messages; a node that says nothing costs the others on its way another
    question. 1 asks each node by itself, as live nodes do: few of them have streams to each other."""

    helper_tries: int = 0
    """Questions, `ask_ms` apart, to a node that a repair needs and that says nothing, before the repair goes on without
    it: a required node then counts as departed for this repair, a holder of a record is not waited for, and the next
    successor takes over from a coordinator. Being wrong costs links, not correctness. 0: required nodes are asked
    `ask_tries` times, and the others waited for until they are suspected. Live nodes use 2."""

    ready_rounds: int = 3
    """Gossip rounds that a view needs at least before it is ready (A-OMN-6)."""

    join_rounds: int = 16
    """Gossip rounds that the view of a joiner with very many topics needs: fewer links cover them if more is known."""

    view_rounds: int = 20
    """Gossip rounds in which a view gets better; afterwards it is rebuilt only when it is not ready."""

    # Deviation: [OM Alg. 5, processExeQ, l. 3] waits for a ready view without a limit.
    ready_wait: int = 20
    """Periods that a join waits for a ready view at most: without backups a repair is as right, only less even."""

    repair_wait: int = 20
    """The same for the repair of a departure. 0 repairs at once, with the backups that there are: topics are whole
    sooner, and degrees are less even. Live nodes do that."""

    standby_periods: int = 8
    """Periods after which an event that somebody else should have handled is looked at again. [OM Alg. 5]"""

    record_periods: int = 60
    """Periods for which the record of a departed node is kept after its repair."""

    relink_periods: int = 4
    """Periods for which a link lost between two living nodes may stay closed before its topics are repaired."""

    report_tries: int = 30
    """Periods for which a survivor repeats that it was a dead node's neighbour, if nobody confirms the repair."""

    try_periods_max: int = 32
    """Suspected nodes and seeds are tried at a falling rate: after 2, 4, ... periods, at most so many."""

    try_soon: int = 0
    """Periods for which a suspected node is tried in every period, before that rate falls. Raising it makes topics
    whole sooner after a network was cut; it costs one message a period for each dead node. Live nodes do that."""

    # Deviation: [OM 3.3] has a node watch its neighbors on the ring alone.
    watch_unheard: bool = False
    """Whether a node also watches all nodes of its ring table that have never answered it. That costs one message a
    period for each of them until it answers. Names that a peer has invented are then found out together. Live nodes do
    that."""

    suspects_max: int = 64
    """Suspected nodes that are remembered; the oldest is forgotten."""

    net: bool = True
    """Roots of a topic's parts meet at its home location: the net below all repairs."""

    net_periods: int = 5
    """Periods after which a root repeats a report that its topic's home location has not answered."""

    root_beat: int = 30
    """Periods between two reports of a root that the home location has answered. Raising it saves messages at rest; a
    topic that is split after its home location has crashed is joined later."""

    root_patience: int = 15
    """Periods that a node must have been a root before it reports; none where it has no neighbour on the topic."""

    leave_periods_max: int = 40
    """A node that leaves in order goes after so many periods even if nobody confirms the repair."""

    hops_max: int = 128
    """Lookups on the ring that take more hops are dropped."""

    def __post_init__(self) -> None:
        for field, least in (("coverage", 0), ("resilience", 1), ("period_ms", 10), ("silence_max", 1), ("ask_ms", 1)):
            if getattr(self, field) < least:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {least} or more")
        if not self.rho >= 1:
            raise InputError("", f"rho is {self.rho}", "give 1 or more")
