"""The neighbor maintenance task.  [SC Fig. 2, Fig. 3, Fig. 4]

A node runs it twice, for greedy and for random coverage, each with its own neighbors (A-SPC-1). An iteration asks at
most one node for a link, or one neighbor to part. The handlers are those of the figures. What they leave open:

- `neighbors` is keyed by name. A second CONNECT or CONNECT-OK of a neighbor refreshes its record (A-SPC-12).
- A CONNECT is *awaited* until it is answered or its quarantine ends. A CONNECT-OK that is not awaited is late or
  repeated. It is answered with LEAVE, so that no link is held by one end only (A-SPC-12).
- Messages get lost, so a link may still be held by one end only. That end says so in its next heartbeat. The other end
  answers with LEAVE (`on_state`), unless it awaits a CONNECT-OK at that moment.
- One DISCONNECT is outstanding at a time (A-SPC-13). Meanwhile the asked neighbor counts as lost when another one asks
  to part. A refusal is not answered. After a timeout the neighbor is not asked again until its degree or its target, or
  our own neighbors, have changed (A-SPC-23).
- A neighbor that we refused only because of our own request is *willing*. It is asked later, after a random wait.
  Otherwise neighbors that ask at the same time would refuse each other for ever.

T1  There are at most L^max + Margin neighbors. After the interest has shrunk there may be more, but their number does
    not grow until it is within the bound again.
T2  L <= L^max.
T3  The goal counts exactly the interests of the neighbors.
T4  The node that is asked to part, and the willing ones, are neighbors. No neighbor is awaited.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from trellis.protocols.effects import CancelTimer, Effects, NodeId, Send, SetTimer
from trellis.protocols.membership import InterestView
from trellis.protocols.spidercast.config import NeighborConfig
from trellis.protocols.spidercast.goals import Goal, Me
from trellis.protocols.spidercast.links import Links
from trellis.protocols.spidercast.messages import (
    Connect,
    ConnectOk,
    Disconnect,
    DisconnectOk,
    Leave,
    Redirect,
    Stamp,
    State,
    Task,
)
from trellis.protocols.spidercast.neighbors import Neighbor, fewest_missed, high_degree, most_alike
from trellis.protocols.spidercast.select import Selection


class NeighborTask:
    """One task of a node, with its neighbors."""

    def __init__(
        self,
        task: Task,
        goal: Goal,
        choose: Selection,
        *,
        me: Me,
        view: InterestView,
        links: Links,
        random: Random,
        config: NeighborConfig,
    ) -> None:
        self.task, self.goal, self.choose = task, goal, choose
        self.me, self.view, self.links, self.random, self.config = me, view, links, random, config
        self.neighbors: dict[NodeId, Neighbor] = {}
        self.redirects: dict[NodeId, int] = {}  # connect_cand_from_redirect: node -> interest, oldest first
        self.quarantine: dict[NodeId, bool] = {}  # Nodes that were asked not long ago. True: an answer is awaited.
        self.asked_to_part: NodeId | None = None  # the neighbor with an outstanding DISCONNECT
        # Neighbors that wanted to part, and that we refused because of `asked_to_part`.
        self.willing: dict[NodeId, None] = {}
        self.target = goal.limit  # L (A-SPC-11)
        self.bound = goal.limit + config.margin  # the bound of T1
        self.changes = 0  # counts the changes of the set of neighbors, and of their interests
        self.stale = 0  # messages that came too late to have an effect
        self._restless = True  # Something has changed since an iteration that found nothing to do.
        self._rests = False  # With `repair_only`: the task does nothing until a neighbor is lost.
        self._view_version = -1
        self._iterate = SetTimer(f"{task}/iterate", config.connect_timeout_ms)
        self._wake = SetTimer(f"{task}/iterate", 0)
        self._part_timer = f"{task}/part"

    # MAINTAINNEIGHBORS and its routines  [SC Fig. 2]

    def start(self) -> Effects:
        """Set the timer of the first iteration, at a random time, so that nodes do not act at the same moments."""
        if not self.goal.active or self._rests:
            return []
        return [SetTimer(self._iterate.tag, self.random.randrange(self.config.connect_timeout_ms))]

    def begin_with(self, nodes: Iterable[NodeId]) -> Effects:
        """Ask for links that were planned. The end with the smaller name asks."""
        self._rests = self.config.repair_only
        effects: Effects = []
        for node in nodes:
            if self.me.id < node:
                effects += self._ask(node)
        return effects

    def rouse(self) -> Effects:
        """End the rest, because a neighbor is lost in this task or in the other one."""
        if not self._rests:
            return []
        self._rests = False
        return self.wake()

    @property
    def idle(self) -> bool:
        """Return whether the last iteration found nothing to do and nothing has changed since."""
        return not self._restless and (self._view_version == self.view.version or not self.goal.depends_on_view)

    def iterate(self) -> Effects:
        """Run one iteration of MAINTAINNEIGHBORS.  [SC Fig. 2, l. 1-13; A-SPC-15: there is a pause after each]"""
        if not self.goal.active:
            return []  # l. 3; `wake` starts the loop again
        if self._rests:
            return []
        if self.idle:
            return [self._iterate]
        self._restless, self._view_version = False, self.view.version
        effects: Effects = []
        under, gap = self.under_covered(), 0
        if under:
            self.target = self.goal.limit
            gap = self.target - len(self.neighbors)
            if gap > 0:
                effects += self._connect(under)
        if self.config.repair_only:  # A view that knows nobody lacks nobody, so the task rests only with full coverage.
            self._rests = not under and not self.goal.depends_on_view
        elif not under or gap < 0:
            effects += self._disconnect(under)
        self._restless = bool(effects or self.willing)  # While there is something to do, the next iteration goes on.
        effects.append(self._iterate)
        return effects

    def wake(self) -> Effects:
        """Run the next iteration at once."""
        self._restless = True
        return [self._wake] if self.goal.active and not self._rests else []

    def under_covered(self) -> int:
        return self.goal.under(self.neighbors)

    def _connect(self, under: int) -> Effects:
        """Ask the best node for a link (CONNECT).  [SC Fig. 2, l. 14-20]"""
        node = self._next_redirect(under)
        if node is None:
            exclude = {self.me.id, *self.neighbors, *self.quarantine}
            node = self.choose(self.view, under, self.me.interest, exclude)
        if node is None:
            return []  # There is nobody to ask until a quarantine ends or the view changes.
        return self._ask(node)

    def _ask(self, node: NodeId) -> Effects:
        self.quarantine[node] = True
        return [
            Send(node, Connect(self.task, len(self.neighbors), self.target, self.me.topics, self.me.stamp)),
            SetTimer(f"{self.task}/quarantine/{node}", self.config.quarantine_ms),
        ]

    def _next_redirect(self, under: int) -> NodeId | None:
        """Return the oldest redirect candidate that can be asked, and forget those before it."""
        while self.redirects:
            node = next(iter(self.redirects))
            interest = self.redirects.pop(node)
            if node in self.neighbors or node in self.quarantine:
                continue
            if self.config.useful_redirects_only and not interest & under:
                continue
            return node
        return None

    def _disconnect(self, under: int) -> Effects:
        """Ask a neighbor to part, if there is one too many (DISCONNECT).  [SC Fig. 2, l. 21-30]"""
        self.target = min(self.goal.limit, len(self.neighbors))
        if self.asked_to_part is not None:
            return []
        # Deviation: [SC Fig. 2, l. 21-30] always asks. If a neighbor is willing, a coin decides. Otherwise two
        # neighbors that ask each other at the same time would refuse each other for ever.
        if self.willing and self.random.randrange(2):
            return []
        over = len(self.neighbors) - self.target
        # Deviation: [SC Fig. 3, l. 8-22] knows no willing neighbors. They are asked first, whatever degree they show.
        node, under_then = self._willing_candidate(under, over)
        if node is None:
            node, under_then = self._disconnect_candidate(under)
        if node is None or not (over > 0 or not under_then):
            return []
        self.asked_to_part = node
        return [
            Send(node, Disconnect(self.task)),
            SetTimer(self._part_timer, self.config.disconnect_timeout_ms),
        ]

    def _willing_candidate(self, under: int, over: int) -> tuple[NodeId | None, int]:
        """Return a willing neighbor that we can do without, and what is under-covered then."""
        while self.willing:
            node = next(iter(self.willing))
            del self.willing[node]
            under_then = self.goal.under_without(under, self.neighbors[node].interest)
            if over > 0 or not under_then:
                return node, under_then
        return None, 0

    def _disconnect_candidate(self, under: int) -> tuple[NodeId | None, int]:
        """Return a least needed neighbor, and what is under-covered then: DISCONNECTCANDIDATE.  [SC Fig. 3, l. 8-22]"""
        asked_in_vain = self.changes
        strictly = self.config.drop_from == "above-target"
        candidates = [
            (node, record)
            for node, record in self.neighbors.items()
            if high_degree(record, strictly) and record.refused_at != asked_in_vain
        ]
        least_missed, under_then = fewest_missed(candidates, self.goal, under)
        return self._any(least_missed), under_then

    # Handlers  [SC Fig. 4]

    def on_connect(self, sender: NodeId, message: Connect) -> Effects:
        """Accept a link if there are less than L^max + Margin, otherwise redirect (CONNECT).  [SC Fig. 4, l. 1-9]"""
        interest = self.me.table.bits(message.interest)
        record = Neighbor(message.degree, message.target, interest, message.stamp)
        if sender in self.neighbors:  # The message was repeated, it crossed ours, or our answer was lost.
            self._refresh(sender, record)
            return [Send(sender, self._connect_ok())]
        if len(self.neighbors) >= self.goal.limit + self.config.margin:
            return [Send(sender, self._redirect(sender, interest))]
        effects = self._add(sender, record)
        effects.append(Send(sender, self._connect_ok()))  # l. 3 comes before l. 4-5, so L is as it was
        self._raise_target()
        return effects

    def on_connect_ok(self, sender: NodeId, message: ConnectOk) -> Effects:
        """Take the sender as a neighbor if we await it (CONNECT-OK).  [SC Fig. 4, l. 12-18]"""
        awaited = self.quarantine.get(sender, False)
        record = Neighbor(message.degree, message.target, self.me.table.bits(message.interest), message.stamp)
        if sender in self.neighbors:
            self._refresh(sender, record)
            return []
        if awaited and len(self.neighbors) < self.goal.limit + self.config.margin:
            effects = self._add(sender, record)
            self._raise_target()
            return effects
        self.stale += not awaited
        self._answered(sender)
        return [Send(sender, Leave(self.task))]

    def on_redirect(self, sender: NodeId, message: Redirect) -> Effects:
        """Remember the suggested node (REDIRECT).  [SC Fig. 4, l. 10-11]"""
        if not self.quarantine.get(sender, False):
            self.stale += 1
            return []
        self._answered(sender)
        node = message.to
        if (
            node is None
            or node == self.me.id
            or node in self.neighbors
            or len(self.redirects) >= self.config.redirects_max
        ):
            return []
        self.redirects[node] = self.me.table.bits(message.interest)
        self._restless = True
        return []

    def on_leave(self, sender: NodeId) -> Effects:
        """Remove the sender (LEAVE).  [SC Fig. 4, l. 19-20]"""
        self._answered(sender)  # A CONNECT-OK that this LEAVE has overtaken does not count.
        return self._remove(sender)

    def on_disconnect(self, sender: NodeId) -> Effects:
        """Agree to part if we can do without the sender (DISCONNECT).  [SC Fig. 4, l. 21-26]"""
        record = self.neighbors.get(sender)
        if record is None:
            return [Send(sender, DisconnectOk(self.task))]  # Only the other end held the link.
        # Deviation: [SC Fig. 4, l. 22] counts all other neighbors. The one that we have asked to part may be gone at
        # any moment, so it does not count (A-SPC-13).
        leaving = self.neighbors[self.asked_to_part] if self.asked_to_part not in (None, sender) else None
        remaining = len(self.neighbors) - (leaving is not None)
        also = None if leaving is None else leaving.interest
        under_now = self.under_covered()
        under = self.goal.under_without(under_now, record.interest, also)
        if remaining <= self.target and under:
            alone = self.goal.under_without(under_now, record.interest)
            if leaving is not None and (len(self.neighbors) > self.target or not alone):
                self.willing[sender] = None
                self._restless = True
            return []  # A refusal is not answered.
        effects = self._remove(sender)
        if not under:
            # l. 26; L^max bounds L by definition.
            self.target = min(self.goal.limit, len(self.neighbors))
        return [*effects, Send(sender, DisconnectOk(self.task))]

    def on_disconnect_ok(self, sender: NodeId) -> Effects:
        """Remove the sender, which has agreed to part (DISCONNECT-OK).  [SC Fig. 4, l. 27-28]"""
        return self._remove(sender)

    def on_suspect(self, node: NodeId) -> Effects:
        """Remove a suspected node, and quarantine it (FAILUREDETECTIONSUSPECT).  [SC Fig. 4, l. 29-30]"""
        self.redirects.pop(node, None)
        if node not in self.neighbors:
            return []
        self.quarantine[node] = False
        delay = SetTimer(f"{self.task}/quarantine/{node}", self.config.suspect_quarantine_ms)
        return [delay, *self._remove(node)]

    def on_state(self, sender: NodeId, state: State) -> Effects:
        """Handle the part of a heartbeat that says that the sender holds a link with us in this task."""
        record = self.neighbors.get(sender)
        if record is None:
            # The link is held by the sender only, unless the answer to our CONNECT is still under way.
            return [] if self.quarantine.get(sender, False) else [Send(sender, Leave(self.task))]
        if record.degree != state.degree or record.target != state.target:
            record.degree, record.target, record.refused_at = state.degree, state.target, -1
            self._restless = True
        return []

    def on_interest(self, sender: NodeId, interest: int, stamp: Stamp) -> None:
        """Take in a changed interest of a neighbor. The next iteration takes it into account.  [SC §2.4]"""
        record = self.neighbors.get(sender)
        if record is not None and stamp > record.stamp:
            self._replace_interest(record, interest, stamp)

    def on_own_interest(self) -> Effects:
        """Handle a change of our own interest, or of K, and so of L^max.

        The next iteration is run at once.  [SC §2.4]
        """
        self.changes += 1
        self.bound = max(self.goal.limit + self.config.margin, len(self.neighbors))
        self.target = min(self.target, self.goal.limit)
        return self.wake()

    def on_timer(self, tag: str) -> Effects:
        _, what, node = (*tag.split("/", 2), "")[:3]
        if what == "iterate":
            return self.iterate()
        if what == "quarantine":
            self.quarantine.pop(node, None)
            self._restless = True
        elif what == "part" and self.asked_to_part is not None:
            if self.config.remember_refusals:
                self.neighbors[self.asked_to_part].refused_at = self.changes
            self.asked_to_part = None
            self._restless = True
        return []

    def leave(self) -> Effects:
        """Leave in order: send LEAVE to all neighbors.  [SC §2.4]"""
        effects: Effects = [Send(node, Leave(self.task)) for node in self.neighbors]
        for node in list(self.neighbors):
            effects += self.links.down(node, self.task)
        self.neighbors.clear()
        self.willing.clear()
        self.asked_to_part = None
        return effects

    def check(self) -> None:
        """Assert the invariants T1, T2 and T4."""
        count = len(self.neighbors)
        assert count <= self.bound, f"T1: {self.me.id} has {count} {self.task} neighbours, the bound is {self.bound}"
        assert self.target <= self.goal.limit, f"T2: L = {self.target} of {self.me.id} is above {self.goal.limit}"
        parting = {*self.willing, *([] if self.asked_to_part is None else [self.asked_to_part])}
        assert parting <= self.neighbors.keys(), f"T4: {self.me.id} would part from strangers, {parting}"
        awaited = [node for node in self.neighbors if self.quarantine.get(node, False)]
        assert not awaited, f"T4: {self.me.id} awaits an answer of its neighbours {awaited}"

    # Helpers

    def _connect_ok(self) -> ConnectOk:
        return ConnectOk(self.task, len(self.neighbors), self.target, self.me.topics, self.me.stamp)

    def _redirect(self, sender: NodeId, interest: int) -> Redirect:
        """Return a REDIRECT to the most similar neighbor that has room.  [SC Fig. 4, l. 7-9; A-SPC-8]"""
        room = self.config.margin if self.config.redirect_to == "margin" else 0
        able = [
            (node, record)
            for node, record in self.neighbors.items()
            if record.degree < record.target + room and node != sender
        ]
        to = self._any(most_alike(able, interest))
        if to is None:
            return Redirect(self.task)
        return Redirect(self.task, to, self.me.table.topics(self.neighbors[to].interest))

    def _any(self, nodes: list[NodeId]) -> NodeId | None:
        return nodes[self.random.randrange(len(nodes))] if nodes else None

    def _add(self, node: NodeId, record: Neighbor) -> Effects:
        self.neighbors[node] = record
        self.goal.gain(record.interest)
        self._answered(node)
        self.changes += 1
        self._restless = True
        return self.links.up(node, self.task)

    def _raise_target(self) -> None:
        # [SC Fig. 4, l. 4-5, l. 15-16]
        if self.target < self.goal.limit and len(self.neighbors) < self.target + self.config.margin:
            self.target += 1

    def _remove(self, node: NodeId) -> Effects:
        """Remove a neighbor, and wake the task if it is needed (REMOVECONNECTION).  [SC Fig. 4, l. 34-38]"""
        record = self.neighbors.pop(node, None)
        if record is None:
            self.stale += 1
            return []
        self.goal.lose(record.interest)
        self.changes += 1
        self.bound = max(self.goal.limit + self.config.margin, len(self.neighbors))
        effects = self.links.down(node, self.task)
        self.willing.pop(node, None)
        self._restless = True
        if self.asked_to_part == node:
            self.asked_to_part = None
            effects.append(CancelTimer(self._part_timer))
        if len(self.neighbors) < self.target or self.under_covered():
            effects += self.wake()
        return effects

    def _refresh(self, node: NodeId, news: Neighbor) -> None:
        """Update the record of a neighbor, unless the message is older than the record."""
        record = self.neighbors[node]
        if news.stamp < record.stamp:
            self.stale += 1
            return
        if news.stamp > record.stamp:
            self._replace_interest(record, news.interest, news.stamp)
        self.on_state(node, State(news.degree, news.target))
        self._answered(node)

    def _replace_interest(self, record: Neighbor, interest: int, stamp: Stamp) -> None:
        self.goal.lose(record.interest)
        self.goal.gain(interest)
        record.interest, record.stamp, record.refused_at = interest, stamp, -1
        self.changes += 1  # Another neighbor may be the least needed one now.
        self._restless = True

    def _answered(self, node: NodeId) -> None:
        """Note that no answer of this node is awaited any more. Its quarantine goes on."""
        if node in self.quarantine:
            self.quarantine[node] = False
