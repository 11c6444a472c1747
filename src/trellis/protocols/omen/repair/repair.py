"""One repair: finds out which topics a departure has split, and opens the links that connect them again.

[OM Alg. 1, Alg. 5; docs/omen.md] `Repairs` (repairs.py) creates repairs and passes messages and timers to them. Their
kinds are leave (also after a crash), unsubscribe, relink (a lost link between two living nodes), and cut (see below).
These are the states:

    new         created and not started
    records     get the records of the departed nodes: from here, or from their ring successors
    answers     ask the neighbors of the departed nodes, and the survivors that reported. A neighbor that does not
                answer counts as departed too: its record is looked for, and its neighbors are asked. So a repair covers
                all of a group of departed neighbors (the closure)
    proof       ask nodes that may connect parts of a topic that seem to be split
    backups     ask backups that have topics which are still split
    links       have the links opened that Alg. 1 chooses: one end of each is told
    done        all these links are up, or there was nothing to do, or the repair gave up (`gave_up`)

| from                    | to      | when                                                                         |
| ----------------------- | ------- | ---------------------------------------------------------------------------- |
| new                     | records | `start`                                                                      |
| records                 | answers | each record was found, or is no longer looked for                            |
| answers, proof, backups | records | the closure finds another departed node                                      |
| answers, proof, backups | answers | a node that answered is leaving topics: its neighbors on them are required   |
| answers, proof          | proof   | answers do not prove that required nodes are connected; `PROOFS_MAX` times   |
| answers, proof          | backups | topics are still split                                                       |
| answers, proof, backups | links   | Alg. 1 has chosen links                                                      |
| all but new and records | done    | nothing is split, all links are up, it has started too often, or (`cut`) a   |
|                         |         | node that answered has not joined yet                                        |
| all but new and records | records | it starts again: a node that it needs is suspected, a link does not come up, |
|                         |         | an end of a link has changed its topics, or another survivor reports         |

The required nodes of a topic are the living neighbors of all departed nodes that take part in it. After the repair they
must be connected on that topic.

With `connectivity` 2 they must be in one block of the topic (`blocks.py`): connected, and still so after the loss of
any other node. Alg. 1 connects the parts as always, and further links are added until no node between required nodes
cuts the topic. A repair of kind `cut` needs no block: there a node looks whether its own loss would split a topic
(`cuts.py`), and counts itself as departed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import FindRecord, FoundRecord, LinkOpened, NodeRun, Record
from trellis.protocols.omen.repair.block_links import lacking_blocks, links_for_blocks, worth_asking_for_blocks
from trellis.protocols.omen.repair.offers import Offer, covering
from trellis.protocols.omen.repair.procedure import (
    ANSWERS,
    ASKING,
    BACKUPS,
    DONE,
    LINKS,
    NEW,
    PROOF,
    RECORDS,
    Context,
    Procedure,
    Transitions,
)
from trellis.protocols.omen.shadow import Pair
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.topics import places
from trellis.reached import reached

TRANSITIONS: Transitions = {
    NEW: (RECORDS,),
    RECORDS: (ANSWERS,),
    ANSWERS: (RECORDS, ANSWERS, PROOF, BACKUPS, LINKS, DONE),
    PROOF: (RECORDS, ANSWERS, PROOF, BACKUPS, LINKS, DONE),
    BACKUPS: (RECORDS, ANSWERS, LINKS, DONE),
    LINKS: (RECORDS, DONE),
    DONE: (RECORDS,),  # A survivor reports before the node has handled the end.
}

PROOFS_MAX = 2  # Rounds of questions in the state `proof`. The answers of the first round name further nodes.
SEARCHES_MAX = 16  # Further rounds of a repair of kind `cut`, which is not urgent. Each asks around one part.
# Deviation: [OM Alg. 1] has all of B(v') in the shadow set. Here as few backups are asked as cover the split topics.
# A backup that adds a single topic saves no link.
BACKUP_TOPICS = 2  # Split topics that a backup must add to those of the backups chosen before it.
RECORD_TRIES = 3  # A record is asked for 3 * `ask_tries` times: by then the ring knows which of its nodes have crashed.

RepairKind = Literal["leave", "unsubscribe", "relink", "cut"]


@dataclass(eq=False)
class Departed:
    """A node that has departed, as this repair knows it. No proof may use it in this incarnation."""

    incarnation: int  # The one that has departed. 0: unknown.
    topics: frozenset[Topic]  # Topics on which it has departed. Empty until its record is found.
    neighbors: dict[NodeId, int]  # Its neighbors, each with the incarnation in which it was linked.
    is_known: bool  # Its record was found, or is no longer looked for.
    tries: int = 0  # Questions for its record so far.


class Repair(Procedure):
    """One repair. See the module's docstring for its states."""

    transitions = TRANSITIONS

    def __init__(
        self,
        number: int,
        kind: RepairKind,
        node: NodeId,
        incarnation: int,
        context: Context,
        topics: tuple[Topic, ...] = (),
    ) -> None:
        super().__init__(number, node, incarnation, context, topics)
        self.questions.departed_near = self._departed_near
        self.kind: RepairKind = kind
        # Nodes that reported to have been neighbors of `node`, with the topics of the lost link.
        self.survivors: dict[NodeId, tuple[Topic, ...]] = {}
        self.departed: dict[NodeId, Departed] = {}  # Grows by the closure.
        self.link_ends: tuple[NodeId, ...] = ()  # The two ends of the lost link, for a relink: they are required.
        self.proofs = 0  # Rounds of questions for the proof since all required nodes have answered.
        self.needs_blocks = context.config.is_twice and kind != "cut"
        self.proofs_max = PROOFS_MAX if kind != "cut" else PROOFS_MAX + SEARCHES_MAX
        # Nodes that answered that they are leaving topics -> these topics, and their neighbors on them.
        self.leavers: dict[NodeId, tuple[frozenset[Topic], dict[NodeId, int]]] = {}

    # Inputs

    def start(self) -> Outcomes:
        """Begin the repair, or begin it again: forget all answers, and get the records."""
        self._move(RECORDS)
        self.starts += 1
        self.questions.restart()
        self.links.choose(())
        self.leavers = {}
        return self._get_records()

    def reopen(self, survivor: NodeId, topics: tuple[Topic, ...]) -> Outcomes:
        """Take in the report of a survivor while the repair runs.

        In the states up to `answers` it is asked like the other required nodes. The repair starts again if it names a
        topic that was not asked about, or if links are being opened and it has not answered. In the states `proof` and
        `backups` it is left out: it reports again later, and the coordinator then opens the event again.
        """
        self.survivors[survivor] = topics
        if self.state not in (NEW, RECORDS) and not set(topics) <= self.questions.index_of.keys():
            self.starts = 0
            return self.start()
        if self.state in (NEW, RECORDS, *ASKING):
            return self.questions.ask([survivor], required=True) if self.state == ANSWERS else []
        if survivor in self.questions.answers:  # It repeats its report, and the repair covers it.
            return []
        self.starts = 0
        return self.start()

    def on_dead(self, node: NodeId) -> Outcomes:
        """Start again if a node that this repair counts on is suspected."""
        if self.state in (*ASKING, LINKS) and (node in self.questions.answers or node in self.questions.asked):
            self.survivors.pop(node, None)
            return self.again()
        return []

    def on_record(self, message: FoundRecord) -> Outcomes:
        """Take in a record that we asked for, or the word that no successor has it."""
        departed = self.departed.get(message.node)
        if self.state != RECORDS or departed is None or departed.is_known:
            return []
        asked = run_of(message.incarnation)
        if message.record is not None and (not asked or run_of(message.record.incarnation) == asked):
            self._learn(departed, message.record)
        elif message.last:
            departed.is_known = True  # No node has it. The reports of survivors must suffice.
        return self._get_records()

    def on_opened(self, sender: NodeId, message: LinkOpened) -> Outcomes:
        """Note new links that are up. Start again if an end of one has changed its topics since its answer."""
        if self.state == LINKS:
            versions = {sender: message.topics_version, message.peer: message.peer_version}
            versions |= {one.peer: one.peer_version for one in message.more}
            if any(self._has_changed(node, version) for node, version in versions.items()):
                return self.again()
        return super().on_opened(sender, message)

    def _has_changed(self, node: NodeId, topics_version: int) -> bool:
        """Return whether a node has changed its topics since it answered. 0: the version is unknown.

        It may have left a topic without knowing that the new link was to serve it.
        """
        told = self.questions.answers.told.get(node)
        return told is not None and topics_version != 0 and told.topics_version != topics_version

    def on_timer(self) -> Outcomes:
        """Repeat what has not been answered in time."""
        return self._get_records(repeat=True) if self.state == RECORDS else super().on_timer()

    # Records

    def _get_records(self, repeat: bool = False) -> Outcomes:
        """Look for the records of all departed nodes. Begin to ask when none is missing any more."""
        effects: Outcomes = []
        is_waiting = False
        for name, departed in list(self.departed.items()):
            if departed.is_known:
                continue
            record = self.context.held(name, run_of(departed.incarnation))
            if record is not None:
                self._learn(departed, record)
                continue
            if departed.tries >= RECORD_TRIES * self.config.ask_tries:
                departed.is_known = True
                continue
            is_waiting = True
            if departed.tries == 0 or repeat:
                departed.tries += 1
                more = max(self.config.resilience - 1, 0)
                question = FindRecord(name, departed.incarnation, self.context.me, self.number, 0, more)
                effects += self.context.find(question, self.departed, departed.tries - 1)
        if is_waiting and self._lacks_a_record:
            return [*effects, self._timer(2)]
        return [*effects, *self._ask_required()]

    @property
    def _lacks_a_record(self) -> bool:
        return any(not departed.is_known for departed in self.departed.values())

    def _learn(self, departed: Departed, record: Record) -> None:
        departed.topics, departed.is_known = departed.topics | frozenset(record.topics), True
        for one in record.neighbours:
            departed.neighbors[one.node] = one.incarnation

    # Answers

    def _ask_required(self) -> Outcomes:
        """Ask all nodes whose answers are required: neighbors of the departed nodes, survivors, ends of a lost link."""
        self._move(ANSWERS)
        self.proofs = 0
        if self.kind == "leave":  # The creator of other repairs has set their topics.
            named = [*[one.topics for one in self.departed.values()], *self.survivors.values()]
            self.questions.change_topics(tuple(sorted({topic for some in named for topic in some})))
        neighbors = [node for departed in self.departed.values() for node in departed.neighbors]
        required = [*neighbors, *self.survivors, *self.link_ends]
        effects = self.questions.ask([node for node in required if node not in self.departed], required=True)
        if not self.questions.asked:
            return [*effects, *self._finish()]
        return [*effects, self._timer(self.questions.patience)]

    def _departed_near(self, node: NodeId) -> list[NodeRun]:
        return [NodeRun(name, one.incarnation) for name, one in self.departed.items() if node in one.neighbors]

    def _ask_again(self) -> Outcomes:
        """Repeat questions. Required nodes that were asked often enough count as departed."""
        effects, given_up = self.questions.repeat()
        for node in given_up:
            if node in self.questions.required:
                self._depart(node)
        if self._lacks_a_record:
            self._move(RECORDS)
            return [*effects, *self._get_records()]
        if self.questions.is_complete:
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
            *[departed.neighbors for departed in self.departed.values()],
            *[neighbors for _, neighbors in self.leavers.values()],
        ]

    def _decide(self) -> Outcomes:
        """Decide on the next step, now that all nodes have answered or were given up.

        In this order: get records of further departed nodes, ask further required nodes, ask for proofs, ask backups,
        open links. This is called again after the answers of each step.
        """
        self.questions.end_routes()
        more = self._closure()
        if len(self.departed) > 1:
            reached("a repair covers two dead nodes")
        if len(self.departed) > 2:
            reached("a repair covers three dead nodes")
        if self._lacks_a_record:
            self._move(RECORDS)
            return self._get_records()
        if more:
            self._move(ANSWERS)
            self.proofs = 0
            return [*self.questions.ask(more, required=True), self._timer(1)]
        required = self._required()
        if self.context.oracle is None and self.state in (ANSWERS, PROOF) and self.proofs < self.proofs_max:
            self._move(PROOF)
            self.proofs += 1
            asked = sorted(self._worth_asking(required) - self._seen())
            if asked:
                return self._ask_for_more(asked)
        parts = self._split(required)
        if parts and self.kind == "cut" and any(one.joining for one in self.questions.answers.told.values()):
            self.gave_up = True  # Links are about to come, for example those of a plan. `Cuts` looks again later.
            return self._finish()
        lacking = sum(parts) | (lacking_blocks(self.questions.answers, required) if self.needs_blocks else 0)
        if lacking and self.state != BACKUPS:
            self._move(BACKUPS)
            asked = covering(self._offers(lacking), BACKUP_TOPICS, self.context.key)
            if asked:
                return self._ask_for_more(asked)
        chosen = self._choose(parts, None)
        if self.needs_blocks and lacking:
            chosen += self._links_for_blocks(required, chosen)
        return self._open(chosen)

    def _seen(self) -> set[NodeId]:
        """Return the nodes that need not be asked: they were asked, were given up, or have departed."""
        return {*self.questions.asked, *self.departed, *self.questions.silent}

    def _worth_asking(self, required: dict[int, set[NodeId]]) -> set[NodeId]:
        """Return nodes whose answers may prove that the required nodes of a topic are connected."""
        answers, uses_hints = self.questions.answers, self.config.knowledge == "hints"
        worth: set[NodeId] = set()
        for index, nodes in required.items():
            part = answers.parts(index)
            asked = worth if self.proofs == 1 else None
            if len({part[node] for node in nodes if node in part}) > 1:
                paths = set[NodeId]()
                if self.proofs <= PROOFS_MAX:
                    paths = answers.worth_asking(index, nodes, self.departed, hints=uses_hints, asked=asked)
                if self.kind == "cut" and not paths - self._seen():
                    paths = answers.around_smallest_part(index, nodes, self._seen())
                worth |= paths
            elif self.needs_blocks:
                worth |= worth_asking_for_blocks(answers, index, nodes, self.departed, hints=uses_hints, asked=asked)
        return worth

    def _offers(self, topics: int) -> dict[NodeId, Offer]:
        """Return for each backup that was not asked which of these topics it has, and its degree, by gossip.

        A backup that gossip does not describe counts as having all of them.
        """
        seen = self._seen()
        known = {node: self.context.described(node) for node in self.backups if node not in seen}
        return {
            node: Offer(self.questions.mask(said.interest) & topics, sum(said.numbers[-1:]))
            if said is not None
            else Offer(topics)
            for node, said in known.items()
        }

    def _closure(self) -> list[NodeId]:
        """Find further departed and leaving nodes among those that answered. Return nodes that must be asked as well.

        A node that answered from a later run than the one that was linked has departed in its earlier run. The
        neighbors of a node that is leaving topics must be asked, because it counts as departed on these topics.
        """
        more: dict[NodeId, None] = {}
        todo = [*self._near(), dict.fromkeys([*self.survivors, *self.link_ends], 0)]
        while todo:
            for node, incarnation in todo.pop().items():
                told = self.questions.answers.told.get(node)
                if told is None or node in self.departed or node in self.leavers:
                    continue
                if incarnation and run_of(told.incarnation) > run_of(incarnation):
                    self.departed[node] = Departed(incarnation, frozenset(), {}, False)
                elif told.leaving:
                    names, neighbors = told.leaves(self.topics)
                    known = {**self.questions.asked, **self.departed}
                    more |= dict.fromkeys(one for one in neighbors if one not in known)
                    self.leavers[node] = (names, neighbors)
                    todo.append(neighbors)
        return list(more)

    # Links

    def _required(self) -> dict[int, set[NodeId]]:
        """Return the required nodes of each topic, by the index of the topic.

        They are the living neighbors, on that topic, of departed and leaving nodes. A neighbor that a record names in
        an earlier run does not count by this record, since that run has departed. It may count by another record.
        """
        answers = self.questions.answers
        required: dict[int, set[NodeId]] = {}
        sources: list[tuple[Iterable[Topic], Mapping[NodeId, int]]] = [
            *[(departed.topics, departed.neighbors) for departed in self.departed.values()],
            *self.leavers.values(),
            (self.topics, dict.fromkeys([*self.link_ends, *self.survivors], 0)),
        ]
        for names, nodes in sources:
            mask = self.questions.mask(names)
            for node, incarnation in nodes.items():
                told = answers.told.get(node)
                if told is not None and not (incarnation and run_of(incarnation) < run_of(told.incarnation)):
                    for index in places(answers.stays_on(node, mask)):
                        required.setdefault(index, set()).add(node)
        return required

    def _split(self, required: dict[int, set[NodeId]]) -> dict[int, list[list[NodeId]]]:
        """Return the parts of each topic whose required nodes are not proven to be connected, by the topic's bit."""
        parts: dict[int, list[list[NodeId]]] = {}
        for index, nodes in required.items():
            if len(nodes) > 1:
                groups = self._groups(index, nodes)
                if len(groups) > 1:
                    parts[1 << index] = groups
        return parts

    def _links_for_blocks(self, required: dict[int, set[NodeId]], chosen: list[Pair]) -> list[Pair]:
        """Return the links that are needed besides `chosen`, so that the required nodes of each topic are in one block.

        Their ends are the nodes of the shadow set, as in Alg. 1.
        """
        answers, context = self.questions.answers, self.context
        shadow = {node for nodes in required.values() for node in nodes} | {
            one for one in self.backups if one in answers
        }
        linked = self._linked_pairs(shadow)
        return links_for_blocks(answers, required, shadow, chosen, linked=linked, key=context.key, rho=self.config.rho)

    def _groups(self, index: int, nodes: Collection[NodeId]) -> list[list[NodeId]]:
        """Return the parts of a topic that have a required node. Each lists its members that may be ends of links.

        These are required nodes and backups that answered: the shadow set.
        """
        answers, oracle = self.questions.answers, self.context.oracle
        shadow = [node for node in answers.told if node in nodes or node in self.backups]
        if oracle is not None:
            topic = self.topics[index]
            gone = {*self.departed, *[node for node, (names, _) in self.leavers.items() if topic in names]}
            part = oracle(topic, [node for node in shadow if answers.stays_on(node, 1 << index)], gone)
        else:
            part = answers.parts(index)
        numbers = {part[node]: None for node in sorted(nodes) if node in part}
        return [[node for node in shadow if part.get(node) == number] for number in numbers]
