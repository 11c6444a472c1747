"""One repair, from the question whom it concerns to links that stand.  [OM Alg. 1, Alg. 5; docs/omen.md]

    records     of the departed nodes: held here, or looked for at their ring successors
    answers     of their neighbours and of survivors who reported; a neighbour that stays silent counts as departed:
                its record is looked for as well, and its neighbours are asked (the closure of dead groups)
    proof       more answers, of nodes that may connect what seems apart
    backups     more answers, of backups that cover topics which are still apart; for a join, of those that Alg. 1 would
                choose by what gossip says of them
    links       by Alg. 1; one end of each is told, and the repair is over when all of them stand

Required nodes of a topic: the living neighbours of all departed ones that want it. They must end in one part. For a
join the joiner is the centre, and whoever wants a topic is one part already.

Whoever is found dead later sends the repair back to its beginning; so does a link that does not come to stand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_low

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import CancelTimer, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.joins import chosen_partners, parts_to_join, uncovered
from trellis.protocols.omen.knowledge import Answers, Told, masks
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.messages import (
    Answer,
    Ask,
    FindRecord,
    FoundRecord,
    Life,
    LinkOpened,
    Opened,
    Record,
    Relayed,
    Way,
)
from trellis.protocols.omen.offers import Offer, covering
from trellis.protocols.omen.opening import open_requests
from trellis.protocols.omen.shadow import LowEdges, Pair
from trellis.protocols.omen.ways import ways_over
from trellis.protocols.topics import places
from trellis.protocols.wire import PEERS_MAX
from trellis.reached import reached

PASSES_MAX = 6
PROOFS_MAX = 2  # rounds of questions to nodes that may connect what seems apart: the first answers name further ones
CHOICES_MAX = 4  # times that ends of links are chosen for a joiner; the last time all that are left are asked
# Deviation: [OM Alg. 1] has all of B(v') in the shadow set. Here as few are asked as cover the topics that are apart.
# One that adds a single topic saves no link: it is asked only where a link would end at a hub, which it may spare.
BACKUP_TOPICS = 2  # topics that are apart and that a backup must add to those of backups asked before it
HUB = 2  # times the median degree of those who answered: whoever has more is a hub
ASKING = ("answers", "proof", "backups")
RECORD_TRIES = 3  # times `ask_tries`: until the ring has noticed who of its nodes is dead
# Simulator only: (topic, nodes, gone) -> a label each, equal where they are connected in the whole overlay, not over
# those that have gone or are about to.
Oracle = Callable[[Topic, list[NodeId], Collection[NodeId]], dict[NodeId, int]]


@dataclass(eq=False)
class Departed:
    """A node that no proof may use, on these topics."""

    incarnation: int
    topics: frozenset[Topic]
    neighbours: dict[NodeId, int]  # with the incarnation in which each was linked
    is_known: bool  # its record was found
    tries: int = 0


@dataclass(eq=False)
class Mend:
    number: int
    kind: str  # leave, join, unsubscribe, relink
    node: NodeId  # whom it is about
    incarnation: int
    config: OMenConfig
    find: Callable[[FindRecord, Collection[NodeId], int], Effects]  # by way of others than these; tries
    held: Callable[[NodeId, int], Record | None]
    low_edges: LowEdges
    key: Callable[[NodeId], int]
    me: NodeId
    oracle: Oracle | None = None
    is_quiet: Callable[[NodeId], bool] = lambda node: False
    described: Callable[[NodeId], Descriptor | None] = lambda node: None  # as gossip says
    backups: list[NodeId] = field(default_factory=list)
    survivors: dict[NodeId, tuple[Topic, ...]] = field(default_factory=dict)  # who was its neighbour, on what
    departed: dict[NodeId, Departed] = field(default_factory=dict)
    required_only: dict[NodeId, None] | None = None  # a lost link: its two ends
    topics: tuple[Topic, ...] = ()
    state: str = "new"  # records, answers, proof, backups, links, done
    passes: int = 0
    proofs: int = 0  # rounds of questions for the proof, since all required nodes have answered
    choices: int = 0  # of ends of links for a joiner
    is_sparing: bool = False  # backups were asked in place of hubs
    attempt: int = 0
    answers: Answers = field(default_factory=Answers)
    asked: dict[NodeId, int] = field(default_factory=dict)  # who was asked -> questions so far
    must_answer: set[NodeId] = field(default_factory=set)
    ways: dict[NodeId, frozenset[NodeId]] = field(default_factory=dict)  # who was asked on a way -> all nodes of it
    on_ways: set[NodeId] = field(default_factory=set)  # of them, who was not asked by itself since
    silent: set[NodeId] = field(default_factory=set)  # who did not answer in this pass
    opening: dict[Pair, int] = field(default_factory=dict)  # new links -> requests so far
    opened: list[Pair] = field(default_factory=list)
    gave_up: bool = False
    is_short: bool = False  # an end of a new link has died
    # Who answered that it leaves topics: which, and its neighbours on them.
    leavers: dict[NodeId, tuple[frozenset[Topic], dict[NodeId, int]]] = field(default_factory=dict)
    _places: dict[Topic, int] = field(default_factory=dict)

    # Inputs

    def start(self) -> Effects:
        self.state, self.attempt = "records", self.attempt + 1
        self.passes += 1
        self.choices, self.is_sparing, self.silent = 0, False, set()
        self.answers, self.asked, self.must_answer = Answers(), {}, set()
        self.ways, self.on_ways = {}, set()
        self.opening, self.leavers = {}, {}
        return self._records()

    def again(self) -> Effects:
        """Something has changed: from the beginning, unless that happened too often (then the net is left)."""
        if self.passes >= PASSES_MAX:
            self.gave_up = True
            return self._finish()
        return self.start()

    def reopen(self, survivor: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """A survivor that was not counted in, or on a topic that nobody had named."""
        self.survivors[survivor] = topics
        if self.state not in ("new", "records") and not set(topics) <= self._places.keys():
            self.passes = 0
            return self.start()
        if self.state in ("new", "records", *ASKING):
            return self._ask([survivor], must=True) if self.state == "answers" else []
        if survivor in self.answers:  # it repeats its report, and is counted in
            return []
        self.passes = 0
        return self.start()

    def on_dead(self, node: NodeId) -> Effects:
        """A node that this repair counts on is gone."""
        if self.kind == "join" and node != self.node:
            return self._without(node)
        if self.state in (*ASKING, "links") and (node in self.answers or node in self.asked):
            self.survivors.pop(node, None)
            return self.again()
        return []

    def _without(self, node: NodeId) -> Effects:
        """A join proves nothing, so whoever is gone is left out.

        To begin anew while links are being opened would link the joiner twice over.
        """
        if self.state == "links":
            lost = [pair for pair in self.opening if node in pair]
            for pair in lost:
                del self.opening[pair]
            self.is_short = self.is_short or bool(lost)
            return self._linked() if lost else []
        self.silent.add(node)
        self.asked.pop(node, None)
        self.answers.drop(node)
        if self.state in ASKING and self.asked and all(one in self.answers for one in self.asked):
            return self._examine()
        return []

    def on_found(self, found: FoundRecord) -> Effects:
        departed = self.departed.get(found.node)
        if self.state != "records" or departed is None or departed.is_known:
            return []
        asked = life_of(found.incarnation)
        if found.record is not None and (not asked or life_of(found.record.incarnation) == asked):
            self._learn(departed, found.record)
        elif found.last:
            departed.is_known = True  # nobody knows more: what survivors report must do
        return self._records()

    def on_answer(self, sender: NodeId, answer: Answer) -> Effects:
        if answer.attempt != self.attempt or self.state not in ASKING:
            return []
        way = self.ways.get(sender, ())  # who passes on answers of others was asked on the same way
        passed_on = [one for one in answer.more if one.node in way and one.node not in self.answers]
        given: dict[NodeId, Answer | Relayed] = {**{one.node: one for one in passed_on}, sender: answer}
        taken = {node: Told(one, self._places) for node, one in given.items() if node in self.asked}
        for node, told in taken.items():
            self.answers.add(node, told)
        if taken and all(node in self.answers for node in self.asked):
            return self._examine()
        return []

    def on_opened(self, sender: NodeId, message: LinkOpened) -> Effects:
        opened = [Opened(message.peer, message.peer_version), *message.more]
        if self.kind != "join" and self.state == "links":
            versions = {sender: message.topics_version} | {one.peer: one.peer_version for one in opened}
            if any(self._has_changed(node, version) for node, version in versions.items()):
                return self.again()
        for peer in [one.peer for one in opened]:
            for pair in (sender, peer), (peer, sender):
                if pair in self.opening:
                    del self.opening[pair]
                    self.opened.append(pair)
        return self._linked() if self.state == "links" else []

    def _has_changed(self, node: NodeId, topics_version: int) -> bool:
        """Whether a node has changed its topics since it answered: it may not have counted a new link in."""
        told = self.answers.told.get(node)
        return told is not None and topics_version != 0 and told.topics_version != topics_version

    def on_timer(self) -> Effects:
        if self.state == "records":
            return self._records(retry=True)
        if self.state in ASKING:
            return self._ask_again()
        if self.state == "links":
            if any(tries >= 3 * self.config.ask_tries for tries in self.opening.values()):
                return self.again()
            return [*self._open(list(self.opening)), self._timer(2)]
        return []

    # Records

    def _records(self, retry: bool = False) -> Effects:
        effects: Effects = []
        waiting = False
        for name, departed in list(self.departed.items()):
            if departed.is_known:
                continue
            record = self.held(name, life_of(departed.incarnation))
            if record is not None:
                self._learn(departed, record)
                continue
            if departed.tries >= RECORD_TRIES * self.config.ask_tries:
                departed.is_known = True
                continue
            waiting = True
            if departed.tries == 0 or retry:
                departed.tries += 1
                question = FindRecord(
                    name, departed.incarnation, self.me, self.number, 0, max(self.config.resilience - 1, 0)
                )
                effects += self.find(question, self.departed, departed.tries - 1)
        if waiting and any(not departed.is_known for departed in self.departed.values()):
            return [*effects, self._timer(2)]
        return [*effects, *self._begin_to_ask()]

    def _learn(self, departed: Departed, record: Record) -> None:
        departed.topics, departed.is_known = departed.topics | frozenset(record.topics), True
        for one in record.neighbours:
            departed.neighbours[one.node] = one.incarnation

    # Answers

    def _begin_to_ask(self) -> Effects:
        self.state, self.proofs = "answers", 0
        if self.kind == "leave":  # the others are about topics that are given
            named = [*[one.topics for one in self.departed.values()], *self.survivors.values()]
            topics = tuple(sorted({topic for some in named for topic in some}))
            if topics != self.topics:  # answers are about the topics of the question: ask all anew
                self.topics, self.attempt = topics, self.attempt + 1
                self.answers, self.asked = Answers(), {}
                self.ways, self.on_ways = {}, set()
        self._places = masks(self.topics)
        must = [*self._neighbours(), *self.survivors]
        if self.required_only is not None:
            must += list(self.required_only)
        if self.kind == "join":
            must.append(self.node)
        effects = self._ask([node for node in must if node not in self.departed], must=True)
        if self.kind == "join":  # those that gossip does not describe cannot be chosen from
            effects += self._ask([node for node in self.backups if self.described(node) is None], must=False)
        if not self.asked:
            return [*effects, *self._finish()]
        return [*effects, self._timer(2 if self.on_ways else 1)]

    def _neighbours(self) -> list[NodeId]:
        gone = self.departed
        return [node for departed in gone.values() for node in departed.neighbours if node not in gone]

    def _ask(self, nodes: Iterable[NodeId], *, must: bool) -> Effects:
        effects: Effects = []
        for node in nodes:
            if must:
                self.must_answer.add(node)
            if node not in self.asked:
                self.asked[node] = 1
        fresh = [node for node, questions in self.asked.items() if questions == 1 and node not in self.answers]
        self.asked.update(dict.fromkeys(fresh, 2))
        alone = [node for node in fresh if node in self.must_answer or node == self.me or self.is_quiet(node)]
        others = [node for node in fresh if node not in alone]
        for way in [*[[node] for node in alone], *ways_over(others, self.config.way_max)]:
            if len(way) == 1:
                effects.append(self._question(way[0]))
                continue
            self.ways.update(dict.fromkeys(way, frozenset(way)))
            self.on_ways.update(way)
            onward = Way(self.me, self.number, tuple(way[1:]))
            effects.append(Send(way[0], Ask(self.number, self.attempt, self.topics, (), onward)))
        return effects

    def _ask_for_more(self, nodes: Iterable[NodeId]) -> Effects:
        """Ask nodes whose answers only save links. A way takes longer than a question and its answer."""
        return [*self._ask(nodes, must=False), self._timer(2 if self.on_ways else 1)]

    def _question(self, node: NodeId) -> Send:
        gone = [Life(name, one.incarnation) for name, one in self.departed.items() if node in one.neighbours]
        return Send(node, Ask(self.number, self.attempt, self.topics, tuple(gone[:PEERS_MAX])))

    def _ask_again(self) -> Effects:
        effects: Effects = []
        silent = [node for node in self.asked if node not in self.answers]
        # It may be another node on a way that said nothing: who was asked on one is now asked by itself.
        alone = [node for node in silent if node not in self.on_ways]
        # Required nodes are asked `helper_tries` or `ask_tries` times, once if they were quiet before. Others are asked
        # `optional_tries` times.
        tries = self.config.helper_tries or self.config.ask_tries
        given_up = [node for node in alone if self.asked[node] > (1 if self.is_quiet(node) else tries)]
        for node in silent:
            if node in given_up:
                continue
            if node in alone and node not in self.must_answer and self.asked[node] > self.config.optional_tries:
                given_up.append(node)
                continue
            self.asked[node] += 1
            effects.append(self._question(node))
        self.on_ways.clear()
        self.silent.update(given_up)
        for node in given_up:
            del self.asked[node]
            if node in self.must_answer and (node != self.node or self.kind != "join"):
                self._depart(node)
        if any(not departed.is_known for departed in self.departed.values()):
            self.state = "records"
            return [*effects, *self._records()]
        if all(node in self.answers for node in self.asked):
            return [*effects, *self._examine()]
        return [*effects, self._timer(1)]

    def _depart(self, node: NodeId) -> None:
        """A required node is silent: it is one of the departed."""
        known = [near[node] for near in self._near() if node in near]
        if node == self.node:
            known.append(self.incarnation)
        self.departed[node] = Departed(max(known, default=0), frozenset(), {}, False)

    def _near(self) -> list[Mapping[NodeId, int]]:
        """Neighbours of those who are gone or leave, with the incarnation in which each was linked."""
        return [
            *[departed.neighbours for departed in self.departed.values()],
            *[neighbours for _, neighbours in self.leavers.values()],
        ]

    def _examine(self) -> Effects:
        """All have answered: who of them has departed, and what is proven?"""
        self.on_ways.clear()
        more = self._closure()
        if len(self.departed) > 1:
            reached("a repair covers two dead nodes")
        if len(self.departed) > 2:
            reached("a repair covers three dead nodes")
        if any(not departed.is_known for departed in self.departed.values()):
            self.state = "records"
            return self._records()
        if more:
            self.state, self.proofs = "answers", 0
            return [*self._ask(more, must=True), self._timer(1)]
        if self.kind == "join":
            more = self._partners()
            if more:
                self.state = "backups"
                return self._ask_for_more(more)
            return self._join()
        required = self._required()
        if self.oracle is None and self.state in ("answers", "proof") and self.proofs < PROOFS_MAX:
            self.state, self.proofs = "proof", self.proofs + 1
            worth: set[NodeId] = set()
            for place, nodes in required.items():
                found = self.answers.parts(place)
                if len({found[node] for node in nodes if node in found}) > 1:
                    hints = self.config.knowledge == "hints"
                    asked = worth if self.proofs == 1 else None
                    worth |= self.answers.worth_asking(place, nodes, self.departed, hints=hints, asked=asked)
            ask = sorted(worth - {*self.asked, *self.departed, *self.silent})
            if ask:
                return self._ask_for_more(ask)
        parts = self._split(required)
        if parts and self.state != "backups":
            self.state = "backups"
            split = sum(parts)
            ask = covering(self._offers(split), BACKUP_TOPICS, self.key)
            if ask:
                return self._ask_for_more(ask)
        chosen = self._chosen(parts, None)
        ask = self._in_place_of_hubs(chosen, sum(parts)) if not self.is_sparing else []
        if ask:
            self.is_sparing = True
            return self._ask_for_more(ask)
        return self._link(chosen)

    def _offers(self, topics: int) -> dict[NodeId, Offer]:
        """Return for each backup that was not asked which of these topics it has, and its degree, as gossip says.

        A backup of which gossip says nothing counts as having all of them.
        """
        seen = {*self.asked, *self.departed, *self.silent}
        known = {node: self.described(node) for node in self.backups if node not in seen}
        return {
            node: Offer(self._mask(said.interest) & topics, sum(said.numbers[-1:]))
            if said is not None
            else Offer(topics)
            for node, said in known.items()
        }

    def _in_place_of_hubs(self, chosen: list[Pair], split: int) -> list[NodeId]:
        """Return backups that have a topic for which Alg. 1 would link to a hub: they may be ends instead."""
        told = self.answers.told
        usual = median_low(one.degree for one in told.values()) if chosen else 0
        topics = 0
        for pair in chosen:
            if any(told[end].degree > HUB * usual for end in pair):
                topics |= told[pair[0]].stays & told[pair[1]].stays & split
        return [node for node, offer in self._offers(topics).items() if offer.topics]

    def _mask(self, topics: Iterable[Topic]) -> int:
        return sum(1 << self._places[topic] for topic in topics if topic in self._places)

    def _partners(self) -> list[NodeId]:
        """Return whom to ask next for a joiner.

        Deviation: [OM 3.2] collects information from the whole shadow set. Gossip has told it; the ends are asked.
        """
        told, node = self.answers.told, self.node
        if node not in told or self.choices >= CHOICES_MAX:
            return []
        self.choices += 1
        seen = {*self.asked, *self.silent, node}
        known = {one: self.described(one) for one in self.backups if one not in seen}
        offers = {
            one: (self._mask(said.interest), said.numbers[-1:]) for one, said in known.items() if said is not None
        }
        if self.choices == CHOICES_MAX:
            return [one for one, (topics, _) in offers.items() if topics & uncovered(told, node)]
        return chosen_partners(told, node, offers, self.low_edges, self.key, self.config.rho)

    def _closure(self) -> list[NodeId]:
        """Nodes to ask beside: neighbours of those who answered and are leaving, or whose earlier life has ended."""
        more: dict[NodeId, None] = {}
        todo = [*self._near(), dict.fromkeys([*self.survivors, *(self.required_only or ())], 0)]
        while todo:
            for node, incarnation in todo.pop().items():
                told = self.answers.told.get(node)
                if told is None or node in self.departed or node in self.leavers:
                    continue
                if incarnation and life_of(told.incarnation) > life_of(incarnation):
                    self.departed[node] = Departed(incarnation, frozenset(), {}, False)
                elif told.leaving:
                    names, neighbours = told.leaves(self.topics)
                    more |= dict.fromkeys(one for one in neighbours if one not in {**self.asked, **self.departed})
                    self.leavers[node] = (names, neighbours)
                    todo.append(neighbours)
        return list(more)

    def _required(self) -> dict[int, set[NodeId]]:
        """For each topic the living neighbours of the departed who want it.

        A neighbor of an earlier life has departed itself; one that another record names in its present life is living.
        """
        required: dict[int, set[NodeId]] = {}
        sources: list[tuple[Collection[Topic], Mapping[NodeId, int]]] = [
            *[(departed.topics, departed.neighbours) for departed in self.departed.values()],
            *self.leavers.values(),
            (self.topics, dict.fromkeys([*(self.required_only or ()), *self.survivors], 0)),
        ]
        for names, nodes in sources:
            mask = self._mask(names)
            for node, incarnation in nodes.items():
                told = self.answers.told.get(node)
                if told is not None and not (incarnation and life_of(incarnation) < life_of(told.incarnation)):
                    for place in places(self.answers.stays_on(node, mask)):
                        required.setdefault(place, set()).add(node)
        return required

    def _split(self, required: dict[int, set[NodeId]]) -> dict[int, list[list[NodeId]]]:
        """For each topic whose required nodes are apart its parts, as far as answers prove them."""
        parts: dict[int, list[list[NodeId]]] = {}
        for place, nodes in required.items():
            if len(nodes) > 1:
                groups = self._groups(place, nodes)
                if len(groups) > 1:
                    parts[1 << place] = groups
        return parts

    def _groups(self, place: int, nodes: set[NodeId]) -> list[list[NodeId]]:
        """The parts that hold a required node, with all who answered and may be ends of links: the shadow set."""
        shadow = [node for node in self.answers.told if node in nodes or node in self.backups]
        if self.oracle is not None:
            topic = self.topics[place]
            gone = {*self.departed, *[node for node, (names, _) in self.leavers.items() if topic in names]}
            part = self.oracle(topic, [node for node in shadow if self.answers.stays_on(node, 1 << place)], gone)
        else:
            part = self.answers.parts(place)
        numbers = {part[node]: None for node in sorted(nodes) if node in part}
        return [[node for node in shadow if part.get(node) == number] for number in numbers]

    def _join(self) -> Effects:
        if self.node not in self.answers:
            self.gave_up = True
            return self._finish()
        return self._link(self._chosen(parts_to_join(self.answers.told, self.node), self.node))

    def _chosen(self, parts: Mapping[int, list[list[NodeId]]], centre: NodeId | None) -> list[Pair]:
        """Return the links that Alg. 1 adds."""
        told = self.answers.told
        nodes = {node for groups in parts.values() for group in groups for node in group}
        keys = {node: self.key(node) for node in nodes}
        ranked = sorted(nodes, key=lambda node: (keys[node], node))
        linked = {
            (one, other)
            for place, one in enumerate(ranked)
            for other in ranked[place + 1 :]
            if other in told[one].neighbours and self.answers.linked(one, other)
        }
        return self.low_edges(
            parts,
            {node: told[node].degree for node in nodes},
            keys,
            linked=linked,
            rho=self.config.rho,
            centre=centre,
        )

    def _link(self, chosen: list[Pair]) -> Effects:
        if not chosen:
            return self._finish()
        self.state = "links"
        self.opening = dict.fromkeys(chosen, 0)
        return [*self._open(chosen), self._timer(2)]

    def _open(self, pairs: list[Pair]) -> Effects:
        for pair in pairs:
            if pair in self.opening:
                self.opening[pair] += 1
        return open_requests(
            self.number, {pair: self.opening[pair] for pair in pairs if pair in self.opening}, self.answers
        )

    def _linked(self) -> Effects:
        if self.opening:
            return []
        if self.is_short:  # what the lost ends should have covered
            self.is_short = False
            return self.again()
        return self._finish()

    def _finish(self) -> Effects:
        self.state = "done"
        return [CancelTimer(f"mend/{self.number}")]

    def _timer(self, times: int) -> SetTimer:
        return SetTimer(f"mend/{self.number}", times * self.config.ask_ms)
