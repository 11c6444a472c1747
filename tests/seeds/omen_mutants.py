"""OMen, broken on purpose: what the check must find. Each is OMen with one promise of its repair left out."""

from __future__ import annotations

from random import Random
from typing import Any

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.node import ProtocolNode
from trellis.protocols.omen import OMenNode
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.repair.questions import Questions
from trellis.protocols.omen.repair.repair import Repair
from trellis.simulate.system import World
from trellis.simulate.systems.omen import OMen


class _NoClosure(Repair):
    """A silent neighbour is left out, its own neighbours are not asked: crashes are repaired independently."""

    def _depart(self, node: NodeId) -> None:
        pass


class _OldAnswers(Answers):
    """Links that one end has told of count as proof, whether or not the other end lives."""

    def parts(self, place: int) -> dict[NodeId, int]:
        bit, part = 1 << place, {}
        for number, start in enumerate(self.told):
            if start in part or not self.told[start].stays & bit:
                continue
            seen, stack = {start}, [start]
            while stack:
                node = stack.pop()
                for name, told in self.told.items():
                    near = {peer for peer, (_, wants) in told.neighbours.items() if wants & bit} | {name}
                    if node in near and told.stays & bit:
                        stack += near - seen
                        seen |= near
            part |= dict.fromkeys((one for one in seen if one in self.told and self.told[one].stays & bit), number)
        return part

    def worth_asking(self, place: int, required: Any, gone: Any, *, hints: bool, asked: Any) -> set[NodeId]:
        return set()


class _OldQuestions(Questions):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "answers" and type(value) is Answers:
            value = _OldAnswers()
        super().__setattr__(name, value)


class _OldProof(Repair):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.questions.__class__ = _OldQuestions
        self.questions.answers = Answers()


class _Mutant(OMen):
    repair: type[Repair] = Repair

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        made = super().make_node(node, topics, random, world)
        assert isinstance(made, OMenNode)
        made.repairs.make_repair = self.repair
        return made


class NoClosure(_Mutant):
    repair = _NoClosure


class OldProof(_Mutant):
    repair = _OldProof


class _NoBlocks(Repair):
    """Topics are connected again, and not two-connected."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.needs_blocks = False


class NoBlocks(_Mutant):
    repair = _NoBlocks
