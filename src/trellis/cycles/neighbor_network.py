"""All state of a run of SpiderCast or of its baselines in cycles: `run` moves it on, `links` are its overlay.

Time passes in ticks of a millisecond. A message takes as long as in the event engine, unless that is told otherwise.
With views by gossip, or with `churns`, nodes may join, leave and crash while a run goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trellis.cycles.answers import CHANGED, FORMED
from trellis.cycles.chance import stream
from trellis.cycles.choice import (
    ANYBODY,
    COVER,
    COVER_LITERAL,
    RANDOM_COVER,
    SIMILAR,
    count_known,
    make_full_view,
    make_scratch,
    make_share_view,
)
from trellis.cycles.gossip_views import make_gossip
from trellis.cycles.instance import Instance
from trellis.cycles.mail import make_mail
from trellis.cycles.neighbor_churn import find_holders, make_new, peer_down, say_goodbye, stop
from trellis.cycles.neighbors import ASKED, COUNT, LIMIT, PEER, RESTLESS, RESTS, SEEN, TARGET, K, Rule, Tasks
from trellis.cycles.newscast import NODES_MAX
from trellis.cycles.tasks import ask_planned, run_ticks, start
from trellis.cycles.wheel import make_wheel
from trellis.errors import InputError
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.spidercast import NeighborConfig, SimilarityConfig, SpiderCastConfig

LATENCY_MS = 10  # the event engine's default
NOTICE_MS = 50  # until a broken stream tells the neighbors of a node of its crash
SENT = ("Connect", "ConnectOk", "Redirect", "Disconnect", "DisconnectOk", "Leave", "Heartbeat")  # as in `counts`
SENT_BY_GOSSIP = ("NewscastRequest", "NewscastReply")
LETTERS = 8  # messages that are under way at once, for each task: a turn sends one, an answer may be answered
WAKES = 8  # requests of a task in the time of a quarantine beyond one for each of its turns
CRASHES = 16  # neighbors that a task has lost to crashes in the time of the quarantine of suspects


class NeighborNetwork:
    """SpiderCast where `config` is a `SpiderCastConfig`, else similarity(x, y) or random(y)."""

    def __init__(
        self,
        instance: Instance,
        config: NeighborConfig,
        seed: int = 1,
        *,
        share: float = 1.0,
        planned: Iterable[tuple[int, int]] = (),
        gossip: GossipViewConfig | None = None,
        churns: bool = False,
        absent: Sequence[int] = (),
        notice_ms: int | None = NOTICE_MS,
    ) -> None:
        """Create the network.

        share      how many of the others each node knows
        planned    links to begin with, as numbers of nodes
        gossip     settings of views by gossip; None: nodes know all others, or a share of them
        churns     nodes may join, leave and crash, and without gossip all know at once who is there
        absent     nodes that are not there at the start
        notice_ms  how long it takes until neighbors are told of a crash; None: they are not told
        """
        nodes, wants = len(instance.nodes), instance.wants
        if nodes >= NODES_MAX:
            raise InputError("", f"{nodes:,} nodes", f"the cycle engine takes less than {NODES_MAX:,}")
        if (gossip is not None or churns) and share != 1:
            what = "nodes that gossip know whom they have heard of, and others know all that are there under churn"
            raise InputError("", what, "leave out the share they know")
        self._everybody = churns and gossip is None  # All nodes know all that are there, and nobody else.
        self.instance, self.config, self.seed, self.tick = instance, config, seed, 0
        self.notice_ms, self._notices = notice_ms, deque[tuple[int, int, int]]()  # when whom of whose crash
        self.rule = make_rule(nodes, config)
        self.gossip = make_gossip(nodes, gossip, stream(seed, "gossip"))
        if share == 1:
            self.view = make_full_view(wants, self.gossip if gossip is not None else None, churns)
        else:
            self.view = make_share_view(wants, share, stream(seed, "views"))
        asks = np.array(sorted((min(link), max(link)) for link in planned), np.int64).reshape(-1, 2)
        self.tasks = make_tasks(instance, config, self.rule, int(np.bincount(asks[:, 0]).max()) if len(asks) else 0)
        self.tasks.alive[list(absent)] = False
        self._show_everybody()
        if self.rule.covers and not self.view.changes:
            count_known(self.view, wants, self.tasks.spare[: len(wants.topics)])
            self.tasks.spare[len(wants.topics) :] = self.tasks.spare[: len(self.tasks.spare) - len(wants.topics)]
        rule, tasks = self.rule, self.tasks
        timers = len(tasks.state) + (1 if gossip is None else 2) * nodes
        self.wheel = make_wheel(timers, max(rule.connect, rule.heartbeat, self.gossip.period))
        self.mail = make_mail(LETTERS * len(tasks.state) + 3 * len(asks))
        self.counts = np.zeros(11, np.int64)
        self._scratch = make_scratch(wants, self.view, int(np.diff(tasks.begin).max(initial=0)))
        self._chance = stream(seed, "neighbors")
        if config.repair_only:
            for task in range(0, len(tasks.state), nodes):
                tasks.state[task + np.unique(asks), RESTS] = 1
        self._start(self._living())
        ask_planned(tasks, rule, self.mail, asks[:, 0].copy(), asks[:, 1].copy(), self.counts)

    def run(self, until_ms: int) -> None:
        """Let everything happen up to a time."""
        while self._notices and self._notices[0][0] < until_ms:
            due, node, peer = self._notices.popleft()
            self._run_ticks(due)
            if self.alive[node]:
                peer_down(
                    self.tasks, self.instance.wants, self.rule, self.view, self.gossip, self.wheel, node, peer, due,
                    self.counts,
                )  # fmt: skip
        self._run_ticks(until_ms)

    def join(self, node: int) -> None:
        """Let a node begin, or begin anew. Not sooner than a message of it, or to it, could be under way."""
        self._require_churn()
        first = np.array([known for known, _ in task_sizes(self.config)], np.int32)
        make_new(self.tasks, self.instance.wants, self.rule, node, first, self.tick, self.counts)
        self._show_everybody()
        self._start(np.array([node], np.int64))

    def crash(self, node: int) -> None:
        """End a node at once, with no message from it."""
        self._stop(node)
        if self.notice_ms is not None:
            holders = np.empty(self.rule.nodes, np.int64)
            found = find_holders(self.tasks, self.rule, node, holders)
            self._notices += [(self.tick + self.notice_ms, int(holder), node) for holder in holders[:found]]

    def leave(self, node: int) -> None:
        """Let a node leave in order: it tells its neighbors."""
        self._require_churn()
        say_goodbye(self.tasks, self.rule, self.mail, node, self.tick, self.counts)
        self._stop(node)

    def is_leaving(self, node: int) -> bool:
        """Return False: nobody has to come to terms with a departure before the node comes back."""
        return False

    def _stop(self, node: int) -> None:
        """End a node."""
        self._require_churn()
        stop(self.tasks, self.instance.wants, self.rule, self.wheel, node, self.tick, self.counts)
        self._show_everybody()

    def _show_everybody(self) -> None:
        """Let all nodes know who is there, where they know that at once."""
        if self._everybody:
            packed = np.packbits(self.alive, bitorder="little")
            self.view.bits.view(np.uint8)[0, : len(packed)] = packed
            self.view.version[0] += 1

    def _start(self, starting: Any) -> None:
        start(
            self.tasks, self.rule, self.gossip, self.wheel, starting, self._living(), self.tick, self._chance
        )  # fmt: skip

    def _living(self) -> Any:
        return np.flatnonzero(self.tasks.alive).astype(np.int64)

    def _require_churn(self) -> None:
        if not self.view.changes:
            what = "in cycles nodes join and leave only if views come by gossip, or the run was made for churn"
            raise InputError("", what, "set gossip or churns")

    def _run_ticks(self, until: int) -> None:
        run_ticks(
            self.tasks, self.instance.wants, self.rule, self.view, self.gossip, self.wheel, self.mail, self._scratch,
            self._chance, self.counts, self.tick, until,
        )  # fmt: skip
        self.tick = max(self.tick, until)

    @property
    def alive(self) -> Any:
        return self.tasks.alive

    @property
    def round(self) -> int:
        """Return the number of seconds that have passed."""
        return self.tick // 1000

    @property
    def changed_ms(self) -> int:
        """Return when a link or a node came or went last."""
        return int(self.counts[CHANGED])

    @property
    def links_formed(self) -> int:
        return int(self.counts[FORMED])

    @property
    def sent(self) -> dict[str, int]:
        """Return the messages of each type, those that were never sent left out."""
        found = [*zip(SENT, self.counts, strict=False), *zip(SENT_BY_GOSSIP, self.counts[9:], strict=True)]
        return {kind: int(count) for kind, count in found if count}

    def neighbors(self, task: int) -> Any:
        """Return the neighbors of a task, in the order in which the links came up."""
        begin = self.tasks.begin[task]
        return self.tasks.records[begin : begin + self.tasks.state[task, COUNT], PEER]

    def links(self) -> tuple[Any, Any]:
        """Return the links that both ends hold, each once: the smaller ends, and the larger ones."""
        nodes, counts = self.rule.nodes, self.tasks.state[:, COUNT].astype(np.int64)
        ends = np.cumsum(counts)
        places = np.repeat(self.tasks.begin[:-1] - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
        owners = np.repeat(np.arange(len(counts), dtype=np.int64) % nodes, counts)
        peers = self.tasks.records[places, PEER].astype(np.int64)
        if len(counts) > nodes:  # a link may belong to both tasks
            owners, peers = np.divmod(np.unique(owners * nodes + peers), nodes)
        found, held_by = np.unique(np.minimum(owners, peers) * nodes + np.maximum(owners, peers), return_counts=True)
        both = found[held_by == 2]
        return both // nodes, both % nodes

    def digest(self) -> str:
        """Return a digest of everything that the run has come to: the same seed gives the same one."""
        hashed = blake2b(digest_size=16)
        for array in (self.tasks.state, *self.links(), self.tasks.cover, self.counts, self._chance):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


def make_rule(nodes: int, config: NeighborConfig) -> Rule:
    """Return the rules of a run."""
    covers = isinstance(config, SpiderCastConfig)
    literal = isinstance(config, SpiderCastConfig) and config.demand == "literal"
    adaptive = isinstance(config, SpiderCastConfig) and config.adaptive
    return Rule(
        nodes=nodes,
        covers=covers,
        literal=literal,
        greedy_choice=(COVER_LITERAL if literal else COVER) if covers else SIMILAR,
        random_choice=RANDOM_COVER if covers else ANYBODY,
        margin=config.margin,
        latency=LATENCY_MS,
        connect=config.connect_timeout_ms,
        quarantine=config.quarantine_ms,
        suspect_quarantine=config.suspect_quarantine_ms,
        part=config.disconnect_timeout_ms,
        heartbeat=config.heartbeat_ms,
        silence_max=config.silence_max,
        redirects_max=config.redirects_max,
        redirect_room=config.margin if config.redirect_to == "margin" else 0,
        useful_redirects_only=config.useful_redirects_only,
        strictly=config.drop_from == "above-target",
        remember_refusals=config.remember_refusals,
        repair_only=config.repair_only,
        adaptive_max=config.adaptive_random_max if adaptive and isinstance(config, SpiderCastConfig) else 0,
    )


def task_sizes(config: NeighborConfig) -> tuple[tuple[int, int], ...]:
    """Return for each task that can run: K or its number of links at first, and at most."""
    if isinstance(config, SpiderCastConfig):
        random, most = config.coverage_random, config.adaptive_random_max if config.adaptive else config.coverage_random
        greedy = config.coverage_greedy, config.coverage_greedy
    else:
        assert isinstance(config, SimilarityConfig), "a config of SpiderCast or of its baselines"
        random = most = config.links_random
        greedy = config.links_similar, config.links_similar
    return (greedy, (random, most)) if most else (greedy,)


def make_tasks(instance: Instance, config: NeighborConfig, rule: Rule, asks_max: int) -> Tasks:
    """Return tasks without neighbors. `asks_max`: planned links that one node asks for, at most."""
    nodes, sizes = len(instance.nodes), np.diff(instance.wants.offsets)
    kinds = task_sizes(config)
    state = np.zeros((len(kinds) * nodes, 13), np.int32)
    room = np.empty(len(state), np.int64)
    for kind, (first, most) in enumerate(kinds):
        mine = slice(kind * nodes, (kind + 1) * nodes)
        state[mine, K] = first
        state[mine, LIMIT] = state[mine, TARGET] = first * (sizes if rule.covers else 1)
        room[mine] = np.minimum(nodes - 1, most * (sizes if rule.covers else 1) + rule.margin)
    state[:, ASKED], state[:, RESTLESS], state[:, SEEN] = -1, 1, -1
    begin = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    held = -(-rule.quarantine // rule.connect) + WAKES + CRASHES + asks_max
    covered = len(kinds) * instance.subscriptions if rule.covers else 0
    return Tasks(
        begin,
        np.zeros((int(begin[-1]), 8), np.int32),
        state,
        np.zeros((len(state), min(config.redirects_max, WAKES + asks_max)), np.int32),
        np.zeros((len(state), held, 3), np.int32),
        np.zeros(covered, np.int32),
        np.zeros(covered, np.int32),
        np.ones(nodes, np.bool_),
    )
