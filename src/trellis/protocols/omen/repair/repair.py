"""One repair: finds out which topics a churn event has split, and opens the links that connect them again.

[OM Alg. 1, Alg. 5; docs/omen.md] `Coordinator.new_mend` creates a repair, and `OMenNode` passes messages and timers to
it. The kinds of a repair are leave (also after a crash), join, unsubscribe, and relink (a lost link between two living
nodes). These are its states, in order:

    new         created and not started
    records     get the records of the departed nodes: from here, or from their ring successors
    answers     ask the neighbors of the departed nodes, and the survivors that reported. A neighbor that does not
                answer counts as departed too: its record is looked for, and its neighbors are asked. So a repair covers
                all of a group of departed neighbors (the closure)
    proof       ask nodes that may connect parts of a topic that seem to be split
    backups     ask backups that have topics which are still split; for a join, ask the nodes that Alg. 1 would choose
                by what gossip says about them
    links       have the links opened that Alg. 1 chooses: one end of each is told
    done        all these links are up, or there was nothing to do, or the repair gave up (`gave_up`)

The required nodes of a topic are the living neighbors of all departed nodes that take part in it. After the repair they
must be connected on that topic. For a join the joiner must be connected to the others, which count as connected already
(the joiner is the `centre`: all new links end there).

If a node that the repair needs is suspected, or a link does not come up, the repair starts again from the records
(`again`). After `PASSES_MAX` such starts it gives up, and the root rendezvous has to find what is still split. Each
question carries the number of its attempt, so that late answers are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import CancelTimer, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.omen.config import OMenConfig
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
from trellis.protocols.omen.repair.joins import chosen_partners, parts_to_join, uncovered
from trellis.protocols.omen.repair.offers import Offer, covering
from trellis.protocols.omen.repair.opening import open_requests
from trellis.protocols.omen.repair.routes import ways_over
from trellis.protocols.omen.shadow import LowEdges, Pair
from trellis.protocols.topics import places
from trellis.protocols.wire import PEERS_MAX
from trellis.reached import reached

PASSES_MAX = 6  # Most starts of a repair before it gives up.
PROOFS_MAX = 2  # Rounds of questions in the state `proof`. The answers of the first round name further nodes.
CHOICES_MAX = 4  # Times that link ends are chosen for a joiner. The last time, all that may help are asked.
# Deviation: [OM Alg. 1] has all of B(v') in the shadow set. Here as few backups are asked as cover the split topics.
# A backup that adds a single topic saves no link.
BACKUP_TOPICS = 2  # Split topics that a backup must add to those of the backups chosen before it.
ASKING = ("answers", "proof", "backups")  # The states that wait for answers.
RECORD_TRIES = 3  # A record is asked for 3 * `ask_tries` times: by then the ring knows which of its nodes have crashed.
# Simulator only: (topic, nodes, gone) -> one label per node. Labels are equal if the nodes are connected in the whole
# overlay without the nodes in `gone`, which have departed or are leaving.
Oracle = Callable[[Topic, list[NodeId], Collection[NodeId]], dict[NodeId, int]]


@dataclass(eq=False)
class Departed:
    """A node that has departed, as this repair knows it. No proof may use it in this incarnation."""

    incarnation: int  # The one that has departed. 0: unknown.
    topics: frozenset[Topic]  # Topics on which it has departed. Empty until its record is found.
    neighbours: dict[NodeId, int]  # Its neighbors, each with the incarnation in which it was linked.
    is_known: bool  # Its record was found, or is no longer looked for.
    tries: int = 0  # Questions for its record so far.


@dataclass(eq=False)
class Mend:
    """One repair. See the module's docstring for its states."""

    number: int  # Unique in this run of the node. Answers carry it.
    kind: str  # leave, join, unsubscribe, relink
    node: NodeId  # The node that has departed or joins; for a relink, the peer of the lost link.
    incarnation: int  # The incarnation of `node`.
    config: OMenConfig
    find: Callable[[FindRecord, Collection[NodeId], int], Effects]  # Sends the question. (It, nodes to avoid, tries)
    held: Callable[[NodeId, int], Record | None]  # Returns the record of a node's run that we hold ourselves.
    low_edges: LowEdges  # Alg. 1
    key: Callable[[NodeId], int]  # Breaks ties.
    me: NodeId
    oracle: Oracle | None = None
    is_quiet: Callable[[NodeId], bool] = lambda node: False  # Whether a node has missed periods and may hang.
    described: Callable[[NodeId], Descriptor | None] = lambda node: None  # Returns what gossip says about a node.
    backups: list[NodeId] = field(default_factory=list)  # Nodes that may be offered as ends of new links.
    # Nodes that reported to have been neighbors of `node`, with the topics of the lost link.
    survivors: dict[NodeId, tuple[Topic, ...]] = field(default_factory=dict)
    departed: dict[NodeId, Departed] = field(default_factory=dict)  # Grows by the closure.
    required_only: dict[NodeId, None] | None = None  # The two ends of the lost link, for a relink.
    topics: tuple[Topic, ...] = ()  # The topics of all questions. Masks in answers are bitsets over them.
    state: str = "new"  # records, answers, proof, backups, links, done
    passes: int = 0  # Starts so far.
    proofs: int = 0  # Rounds of questions for the proof since all required nodes have answered.
    choices: int = 0  # Times that link ends were chosen for a joiner.
    attempt: int = 0  # Number of the present set of questions. Answers to earlier ones are ignored.
    answers: Answers = field(default_factory=Answers)
    asked: dict[NodeId, int] = field(default_factory=dict)  # Each node that was asked -> 1 + questions sent to it.
    must_answer: set[NodeId] = field(default_factory=set)  # Nodes that count as departed if they do not answer.
    ways: dict[NodeId, frozenset[NodeId]] = field(default_factory=dict)  # Node asked on a route -> all nodes of it.
    on_ways: set[NodeId] = field(default_factory=set)  # Nodes asked on a route that were not asked directly since.
    silent: set[NodeId] = field(default_factory=set)  # Nodes that did not answer since the last start.
    opening: dict[Pair, int] = field(default_factory=dict)  # New links that are not up yet -> requests so far.
    opened: list[Pair] = field(default_factory=list)  # New links that are up.
    gave_up: bool = False
    is_short: bool = False  # An end of a new link was suspected, so the joiner may lack topics.
    # Nodes that answered that they are leaving topics -> these topics, and their neighbors on them.
    leavers: dict[NodeId, tuple[frozenset[Topic], dict[NodeId, int]]] = field(default_factory=dict)
    _places: dict[Topic, int] = field(default_factory=dict)  # Index of each topic in `topics`.

    # Inputs

    def start(self) -> Effects:
        """Begin the repair, or begin it again: forget all answers, and get the records."""
        self.state, self.attempt = "records", self.attempt + 1
        self.passes += 1
        self.choices, self.silent = 0, set()
        self.answers, self.asked, self.must_answer = Answers(), {}, set()
        self.ways, self.on_ways = {}, set()
        self.opening, self.leavers = {}, {}
        return self._records()

    def again(self) -> Effects:
        """Start again because something has changed. Give up if that has happened too often."""
        if self.passes >= PASSES_MAX:
            self.gave_up = True
            return self._finish()
        return self.start()

    def reopen(self, survivor: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """Take in the report of a survivor while the repair runs.

        In the states up to `answers` it is asked like the other required nodes. The repair starts again if it names a
        topic that was not asked about, or if links are being opened and it has not answered. In the states `proof` and
        `backups` it is left out: it reports again later, and the coordinator then opens the event again.
        """
        self.survivors[survivor] = topics
        if self.state not in ("new", "records") and not set(topics) <= self._places.keys():
            self.passes = 0
            return self.start()
        if self.state in ("new", "records", *ASKING):
            return self._ask([survivor], must=True) if self.state == "answers" else []
        if survivor in self.answers:  # It repeats its report, and the repair covers it.
            return []
        self.passes = 0
        return self.start()

    def on_dead(self, node: NodeId) -> Effects:
        """Start again if a node that this repair counts on is suspected. A join goes on without it."""
        if self.kind == "join" and node != self.node:
            return self._without(node)
        if self.state in (*ASKING, "links") and (node in self.answers or node in self.asked):
            self.survivors.pop(node, None)
            return self.again()
        return []

    def _without(self, node: NodeId) -> Effects:
        """Go on with a join without `node`. Nothing was proven by it, so the repair need not start again.

        A new start while links are being opened would give the joiner twice the links that it needs.
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
        """Take in a record that we asked for, or the word that no successor has it."""
        departed = self.departed.get(found.node)
        if self.state != "records" or departed is None or departed.is_known:
            return []
        asked = life_of(found.incarnation)
        if found.record is not None and (not asked or life_of(found.record.incarnation) == asked):
            self._learn(departed, found.record)
        elif found.last:
            departed.is_known = True  # No node has it. The reports of survivors must suffice.
        return self._records()

    def on_answer(self, sender: NodeId, answer: Answer) -> Effects:
        """Take in an answer, with the answers of other nodes on the same route that it carries.

        A passed-on answer is believed only from a node on the same route, and never in place of one that we have.
        """
        if answer.attempt != self.attempt or self.state not in ASKING:
            return []
        way = self.ways.get(sender, ())
        passed_on = [one for one in answer.more if one.node in way and one.node not in self.answers]
        given: dict[NodeId, Answer | Relayed] = {**{one.node: one for one in passed_on}, sender: answer}
        taken = {node: Told(one, self._places) for node, one in given.items() if node in self.asked}
        for node, told in taken.items():
            self.answers.add(node, told)
        if taken and all(node in self.answers for node in self.asked):
            return self._examine()
        return []

    def on_opened(self, sender: NodeId, message: LinkOpened) -> Effects:
        """Note new links that are up. Start again if an end of one has changed its topics since its answer."""
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
        """Return whether a node has changed its topics since it answered. 0: the version is unknown.

        It may have left a topic without knowing that the new link was to serve it.
        """
        told = self.answers.told.get(node)
        return told is not None and topics_version != 0 and told.topics_version != topics_version

    def on_timer(self) -> Effects:
        """Repeat what has not been answered in time."""
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
        """Look for the records of all departed nodes. Begin to ask when none is missing any more."""
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
        """Ask all nodes whose answers are required: neighbors of the departed nodes, survivors, and the joiner."""
        self.state, self.proofs = "answers", 0
        if self.kind == "leave":  # The creator of other repairs has set their topics.
            named = [*[one.topics for one in self.departed.values()], *self.survivors.values()]
            topics = tuple(sorted({topic for some in named for topic in some}))
            if topics != self.topics:  # Masks refer to the topics of the question, so all nodes are asked again.
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
        if self.kind == "join":  # Backups that gossip does not describe cannot be chosen later, so they are asked now.
            effects += self._ask([node for node in self.backups if self.described(node) is None], must=False)
        if not self.asked:
            return [*effects, *self._finish()]
        return [*effects, self._timer(2 if self.on_ways else 1)]

    def _neighbours(self) -> list[NodeId]:
        gone = self.departed
        return [node for departed in gone.values() for node in departed.neighbours if node not in gone]

    def _ask(self, nodes: Iterable[NodeId], *, must: bool) -> Effects:
        """Ask nodes that were not asked yet. `must`: they count as departed if they do not answer.

        Required nodes, quiet nodes and we ourselves are asked directly. The others share questions on routes.
        """
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
        """Ask nodes whose answers only save links. The wait is longer if questions travel on routes."""
        return [*self._ask(nodes, must=False), self._timer(2 if self.on_ways else 1)]

    def _question(self, node: NodeId) -> Send:
        """Return the question to one node. It names the departed nodes that had this node as a neighbor."""
        gone = [Life(name, one.incarnation) for name, one in self.departed.items() if node in one.neighbours]
        return Send(node, Ask(self.number, self.attempt, self.topics, tuple(gone[:PEERS_MAX])))

    def _ask_again(self) -> Effects:
        """Repeat questions that were not answered, or give nodes up that were asked often enough.

        A required node that is given up counts as departed. For all other nodes the repair goes on without the answer.
        """
        effects: Effects = []
        silent = [node for node in self.asked if node not in self.answers]
        # A node on a route may not have got the question, because another one on it did not answer. So it is not given
        # up yet, but asked directly.
        alone = [node for node in silent if node not in self.on_ways]
        # Required nodes are asked `helper_tries` times, or `ask_tries` times if that is 0. Others are asked
        # `optional_tries` times. A node that was quiet before is asked once.
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
        """Count a required node that does not answer as departed, in the latest incarnation that records name."""
        known = [near[node] for near in self._near() if node in near]
        if node == self.node:
            known.append(self.incarnation)
        self.departed[node] = Departed(max(known, default=0), frozenset(), {}, False)

    def _near(self) -> list[Mapping[NodeId, int]]:
        """Return the neighbors of each departed or leaving node, with the incarnations in which they were linked."""
        return [
            *[departed.neighbours for departed in self.departed.values()],
            *[neighbours for _, neighbours in self.leavers.values()],
        ]

    def _examine(self) -> Effects:
        """Decide on the next step, now that all nodes have answered or were given up.

        In this order: get records of further departed nodes, ask further required nodes, ask for proofs, ask backups,
        open links. This is called again after the answers of each step.
        """
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
        return self._link(self._chosen(parts, None))

    def _offers(self, topics: int) -> dict[NodeId, Offer]:
        """Return for each backup that was not asked which of these topics it has, and its degree, by gossip.

        A backup that gossip does not describe counts as having all of them.
        """
        seen = {*self.asked, *self.departed, *self.silent}
        known = {node: self.described(node) for node in self.backups if node not in seen}
        return {
            node: Offer(self._mask(said.interest) & topics, sum(said.numbers[-1:]))
            if said is not None
            else Offer(topics)
            for node, said in known.items()
        }

    def _mask(self, topics: Iterable[Topic]) -> int:
        """Return the bitset of those of these topics that the repair is about."""
        return sum(1 << self._places[topic] for topic in topics if topic in self._places)

    def _partners(self) -> list[NodeId]:
        """Return the nodes to ask next for a joiner.

        Deviation: [OM 3.2] collects information from the whole shadow set. Here Alg. 1 runs on what gossip has told
        about it, and only the link ends that it chooses are asked.
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
        """Find further departed and leaving nodes among those that answered. Return nodes that must be asked as well.

        A node that answered from a later run than the one that was linked has departed in its earlier run. The
        neighbors of a node that is leaving topics must be asked, because it counts as departed on these topics.
        """
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
        """Return the required nodes of each topic, by the index of the topic.

        They are the living neighbors, on that topic, of departed and leaving nodes. A neighbor that a record names in
        an earlier run does not count by this record, since that run has departed. It may count by another record.
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
        """Return the parts of each topic whose required nodes are not proven to be connected, by the topic's bit."""
        parts: dict[int, list[list[NodeId]]] = {}
        for place, nodes in required.items():
            if len(nodes) > 1:
                groups = self._groups(place, nodes)
                if len(groups) > 1:
                    parts[1 << place] = groups
        return parts

    def _groups(self, place: int, nodes: set[NodeId]) -> list[list[NodeId]]:
        """Return the parts of a topic that have a required node. Each lists its members that may be ends of links.

        These are required nodes and backups that answered: the shadow set.
        """
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
        """Link the joiner. Give up if it has not answered."""
        if self.node not in self.answers:
            self.gave_up = True
            return self._finish()
        return self._link(self._chosen(parts_to_join(self.answers.told, self.node), self.node))

    def _chosen(self, parts: Mapping[int, list[list[NodeId]]], centre: NodeId | None) -> list[Pair]:
        """Return the links that Alg. 1 adds to connect these parts. `centre`: all of them must end there."""
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
        """Ask ends of these links to open them, and count the requests."""
        for pair in pairs:
            if pair in self.opening:
                self.opening[pair] += 1
        return open_requests(
            self.number, {pair: self.opening[pair] for pair in pairs if pair in self.opening}, self.answers
        )

    def _linked(self) -> Effects:
        """Finish when no new link is awaited any more. Start again if an end of one was suspected."""
        if self.opening:
            return []
        if self.is_short:
            self.is_short = False
            return self.again()
        return self._finish()

    def _finish(self) -> Effects:
        self.state = "done"
        return [CancelTimer(f"mend/{self.number}")]

    def _timer(self, times: int) -> SetTimer:
        """Set the timer of this repair to `times` times `ask_ms`."""
        return SetTimer(f"mend/{self.number}", times * self.config.ask_ms)
