"""Links that an operator has opened and dropped, to bring a mesh nearer to a plan.  [docs/replan.md]

Deviation: in the paper a link goes when an end of it does. Here an operator may have single links opened and dropped.
A drop must not split a topic, and must not be taken for a crash. So a link is dropped only if the answers of other
nodes prove that no topic needs it. A drop has three steps:

1. **Closing.** From now on, our answers to coordinators do not name the link, and it covers no topic of ours. So no
   proof that begins later uses it. The drop is refused while a repair runs here. It is also refused while a coordinator
   that we answered within `ASKED_PERIODS` may count on the link.
2. **Proof.** As in a repair (`knowledge.py`), each topic that both ends share needs a chain of nodes between the ends.
   Each node of the chain must have answered since step 1. We ask the peer and the nodes that the operator names (`via`;
   naming them proves nothing), then neighbors of nodes that answered. Without a proof the link stays. With
   `connectivity` 2 both ends must be in one block of the topic (`blocks.py`): no one node may cut the chain.
3. **Agreement.** We ask the peer to close its end (`Disconnect` with the version of its topics). It closes its end and
   answers `Disconnect`. It does not answer if its topics have changed since its answer, because it may count on the
   link. It does not answer either if its answer is older than `AGREE_PERIODS`. Then the link stays.

| from    | to      | when                                                                            |
| ------- | ------- | ------------------------------------------------------------------------------- |
| -       | refused | too many requests are under way, or the drop cannot begin now (`_why_not`)      |
| -       | closing | a drop begins: the link is closing, and nodes are asked                         |
| closing | proven  | the answers prove that no topic needs the link: the peer is asked to agree      |
| closing | refused | there is no proof, the peer has not joined, or it took too long: the link stays |
| proven  | refused | the peer has not agreed in time, or topics have changed: the link stays         |
| any     | done    | the link is gone; a link to be opened is up                                     |

Two drops at the same time must not each use the other's link in their proofs. So a node that has answered in the proof
of a drop does not itself drop a link on these topics. It waits until it is released, or for `ASKED_PERIODS`. The peer
agrees earlier than that or never, because `AGREE_PERIODS` is less. A drop whose peer has not answered step 3 releases
no node. If a node crashes during a proof, its repair uses answers that do not name the link.

`OMenNode` calls `open` and `drop`, and `look` after every input while requests are under way.

D1  A link is closing if and only if a drop of it is under way here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trellis.protocols.effects import NodeId, Send, SetTimer, Topic
from trellis.protocols.omen.blocks import in_one_block
from trellis.protocols.omen.knowledge import Answers, Told, masks
from trellis.protocols.omen.links.link import UP, Link
from trellis.protocols.omen.messages import Answer, Ask, Disconnect
from trellis.protocols.omen.repair.answers import AnswerParts, answer
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.topics import places

REQUEST_TIMER = "request"
REQUESTS_MAX = 64  # Most finished requests that are remembered: the latest.
BUSY_MAX = 16  # Most requests that are under way at once.
DROP_PERIODS = 2  # Periods after which a drop is given up. It is less than `ASKED_PERIODS` of the node.
ROUND_MAX = 64  # Most nodes that are asked in one round of a proof.
PROOF_MAX = 256  # Most nodes that are asked for one drop.
TRIES = 2  # Questions to a node that does not answer.

Kind = Literal["open", "drop"]
State = Literal["under way", "done", "refused"]


@dataclass(eq=False)
class Request:
    """A link that an operator wants opened or dropped."""

    change: Kind
    peer: NodeId
    state: State = "under way"
    why: str = ""  # Why it was refused. Empty otherwise.


@dataclass(eq=False)
class _Drop:
    """A drop that is under way."""

    request: Request
    number: int  # Number of its questions. Repairs and drops share one sequence of numbers.
    topics: tuple[Topic, ...]  # The topics that both ends share.
    since: int  # The tick at which it began.
    peer_version: int = 0  # The version of the peer's topics in its answer. 0: it has not answered.
    is_proven: bool = False  # Step 2 is over.
    answers: Answers = field(default_factory=Answers)
    asked: dict[NodeId, int] = field(default_factory=dict)  # Each node that was asked -> questions so far.


class Requests:
    """The requests of operators, and their outcomes."""

    def __init__(self, parts: AnswerParts, repairs: Repairs, was_asked: Callable[[int], bool]) -> None:
        """Create it without requests. `was_asked` returns whether a coordinator may count on us for these topics."""
        self.parts, self.repairs, self.was_asked = parts, repairs, was_asked
        self.latest: list[Request] = []  # All requests under way, and the latest that are over.
        self.counts: Counter[tuple[Kind, State]] = Counter()  # Requests that are over.
        self.busy = 0  # Requests that are under way.
        self._drops: dict[int, _Drop] = {}  # Drops under way, by number.

    # What an operator asks for

    def open(self, peer: NodeId) -> Outcomes:
        """Open a link to `peer`."""
        request = self._note(Request("open", peer))
        links, me = self.parts.links, self.parts.me
        if me.is_leaving or peer == me.id or request.state == "refused":
            self._refuse(request, request.why or ("this node leaves" if me.is_leaving else "it is this node itself"))
            return []
        effects = links.open(peer, incarnation=self.parts.incarnation_of(peer))
        if peer not in links:
            self._refuse(request, "this node has too many links")
        return effects

    def drop(self, peer: NodeId, via: Sequence[NodeId] = ()) -> Outcomes:
        """Begin to drop the link to `peer`: mark it as closing, and ask for the proof (steps 1 and 2)."""
        request = self._note(Request("drop", peer))
        link = self.parts.links.links.get(peer)
        if request.state == "refused":
            return []
        if link is None:
            self._end(request, "done")
            return []
        shared = link.interest & self.parts.me.interest
        why = self._why_not(link, shared)
        if why:
            self._refuse(request, why)
            return []
        topics = self.parts.me.table.topics(shared)
        drop = _Drop(request, self.repairs.next_number(), topics, self.parts.ticks)
        self._drops[drop.number] = drop
        link.is_closing = True
        own = answer(self.parts, self._question(drop))
        drop.answers.add(self.parts.me.id, Told(own, masks(topics)))
        nodes = dict.fromkeys([peer, *via])
        return self._ask(drop, [one for one in nodes if one != self.parts.me.id])

    def _why_not(self, link: Link, shared: int) -> str:
        """Return why a drop cannot begin now. Empty: it can."""
        if link.state != UP or link.is_closing:
            return "the link is being opened, or dropped already"
        if self.parts.me.is_leaving or self.parts.is_joining:
            return "this node joins or leaves"
        if self.repairs.running:
            return "a repair runs at this node"
        if self.was_asked(shared):
            return "a repair elsewhere may count on this link"
        return ""

    # Inputs

    def on_answer(self, sender: NodeId, message: Answer) -> Outcomes:
        """Take in an answer to a question of a proof."""
        drop = self._drops.get(message.mend)
        if drop is None or drop.is_proven or sender not in drop.asked:
            return []
        drop.answers.add(sender, Told(message, masks(drop.topics)))
        if sender == drop.request.peer:
            if message.joining:
                return self._keep(drop, "the other end has not joined yet")
            drop.peer_version = message.topics_version
        return self._examine(drop)

    def on_timer(self, number: int) -> Outcomes:
        """Repeat what a drop waits for, or give the drop up."""
        drop = self._drops.get(number)
        if drop is None:
            return []
        if self.parts.ticks - drop.since > DROP_PERIODS:
            return self._keep(drop, "the other end has not agreed" if drop.is_proven else "it took too long")
        if drop.is_proven:
            return self._agree(drop)
        silent = [node for node in drop.asked if node not in drop.answers]
        again = [node for node in silent if drop.asked[node] < TRIES]
        if not again:
            return self._examine(drop, is_over=True)
        for node in again:
            drop.asked[node] += 1
        return [*[Send(node, self._question(drop)) for node in again], self._timer(drop)]

    def look(self) -> Outcomes:
        """End requests whose link has come up, was closed, or is gone. Called after every input."""
        links, interest = self.parts.links, self.parts.me.interest
        effects: Outcomes = []
        for request in self.latest:
            if request.state != "under way":
                continue
            link = links.links.get(request.peer)
            if request.change == "drop":
                if link is None or not link.is_closing:
                    effects += self._release(request)
                    self._end(request, "done")
            elif link is None:
                self._refuse(request, "it did not answer")
            elif link.state == UP and link.interest & interest:
                self._end(request, "done")
            elif link.state == UP:
                self._refuse(request, "it has no topic of this node")
                effects += links.close(request.peer)
        return effects

    def check(self) -> None:
        closing = {link.peer for link in self.parts.links.links.values() if link.is_closing}
        dropped = {drop.request.peer for drop in self._drops.values()}
        assert self.busy == sum(one.state == "under way" for one in self.latest)
        assert closing == dropped, f"D1: {self.parts.me.id} closes {closing} and drops {dropped}"

    # The proof

    def _examine(self, drop: _Drop, *, is_over: bool = False) -> Outcomes:
        """Go to step 3 if the proof is complete. Otherwise ask further nodes once all that were asked have answered.

        `is_over`: those that have not answered will not be asked again.
        """
        me, peer = self.parts.me.id, drop.request.peer
        if peer not in drop.answers:
            return self._keep(drop, "the other end does not answer") if is_over else []
        apart = 0
        for index in range(len(drop.topics)):
            if not self._connects(drop.answers, index, me, peer):
                apart |= 1 << index
        if not apart:
            drop.is_proven = True
            return self._agree(drop)
        if not is_over and not all(node in drop.answers for node in drop.asked):
            return []
        more = self._neighbors(drop, apart)
        if not more:
            first = drop.topics[next(iter(places(apart)))]
            return self._keep(drop, f'nothing else is known to connect topic "{first}"')
        return self._ask(drop, more)

    def _connects(self, answers: Answers, index: int, me: NodeId, peer: NodeId) -> bool:
        """Return whether answers prove that a topic does not need the link: without it, both ends are connected.

        With `connectivity` 2 they must be in one block. Then no node cuts the topic that did not cut it before.
        """
        part = answers.parts(index)
        if me not in part or part.get(peer) != part[me]:
            return False
        return not self.parts.config.is_twice or in_one_block(answers.graph(index), (me, peer))

    def _neighbors(self, drop: _Drop, apart: int) -> list[NodeId]:
        """Return the nodes to ask next: neighbors, on these topics, of nodes that answered. Most topics come first."""
        named: dict[NodeId, int] = {}
        for told in drop.answers.told.values():
            for node, (_, wants) in told.neighbours.items():
                if node not in drop.asked and node != self.parts.me.id:
                    named[node] = named.get(node, 0) | wants & apart
        able = sorted((node for node in named if named[node]), key=lambda one: (-named[one].bit_count(), one))
        return able[: min(ROUND_MAX, PROOF_MAX - len(drop.asked))]

    def _ask(self, drop: _Drop, nodes: Sequence[NodeId]) -> Outcomes:
        fresh = list(nodes)[: PROOF_MAX - len(drop.asked)]
        drop.asked.update(dict.fromkeys(fresh, 1))
        return [*[Send(node, self._question(drop)) for node in fresh], self._timer(drop)]

    def _question(self, drop: _Drop) -> Ask:
        return Ask(drop.number, 0, drop.topics)

    # The end

    def _agree(self, drop: _Drop) -> Outcomes:
        """Ask the peer to close its end (step 3). Keep the link if we share further topics with it by now."""
        me, peer = self.parts.me, drop.request.peer
        shared = self.parts.links.links[peer].interest & me.interest
        if me.is_leaving or set(me.table.topics(shared)) - set(drop.topics):
            return self._keep(drop, "topics have changed meanwhile")
        return [Send(peer, Disconnect(me.incarnation, drop.peer_version)), self._timer(drop)]

    def _keep(self, drop: _Drop, why: str) -> Outcomes:
        """Keep the link, and refuse the request.

        Once we have asked the peer to close its end, it may still do so. Then nodes that answered are not released.
        """
        link = self.parts.links.links.get(drop.request.peer)
        if link is not None:
            link.is_closing = False
        effects = self._release(drop.request)
        self._refuse(drop.request, why)
        return [] if drop.is_proven else [*effects]

    def _release(self, request: Request) -> list[Send]:
        """Forget a drop. Return messages that release the nodes that answered: questions about no topic."""
        for drop in [one for one in self._drops.values() if one.request is request]:
            del self._drops[drop.number]
            others = [node for node in drop.answers.told if node != self.parts.me.id]
            return [Send(node, Ask(drop.number, 0, ())) for node in others]
        return []

    def _refuse(self, request: Request, why: str) -> None:
        if request.state == "under way":
            self._end(request, "refused", why)

    def _end(self, request: Request, state: State, why: str = "") -> None:
        request.state, request.why = state, why
        self.counts[request.change, state] += 1
        self.busy -= 1

    def _note(self, request: Request) -> Request:
        """Add a new request, and refuse it if too many are under way."""
        busy = [one for one in self.latest if one.state == "under way"]
        over = [one for one in self.latest if one.state != "under way"]
        self.latest = [*over[-REQUESTS_MAX:], *busy, request]
        self.busy += 1
        if self.busy > BUSY_MAX:
            self._refuse(request, "too many changes are under way at this node")
        return request

    def _timer(self, drop: _Drop) -> SetTimer:
        return SetTimer(f"{REQUEST_TIMER}/{drop.number}", self.parts.config.ask_ms)
