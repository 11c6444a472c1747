"""Probes: a node asks a suspected node whether it is alive, and the answer ends the suspicion.

A node whose present incarnation is suspected refutes that by a higher one (`me.py`). Its answer carries it.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.newscast import Newscast
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.membership.coordinator import Coordinator
from trellis.protocols.omen.membership.survivor import Survivor
from trellis.protocols.omen.membership.suspects import Suspects
from trellis.protocols.omen.messages import Probe, ProbeOk
from trellis.protocols.omen.signals import Outcomes, RecordChanged
from trellis.protocols.ring import Ring


class Probes:
    """Sends probes and answers them."""

    def __init__(
        self,
        me: Me,
        suspects: Suspects,
        ring: Ring,
        sampling: Newscast,
        coordinator: Coordinator,
        survivor: Survivor,
    ) -> None:
        self.me, self.suspects, self.ring, self.sampling = me, suspects, ring, sampling
        self.coordinator, self.survivor = coordinator, survivor

    def tick(self, tick: int) -> Outcomes:
        """Probe the suspects and seeds whose turn it is."""
        return [Send(node, Probe(self.suspects.incarnation_of(node))) for node in self.suspects.due(tick)]

    def on_probe(self, sender: NodeId, message: Probe) -> Outcomes:
        """Answer that we are alive. If `sender` suspects our present incarnation, refute that by a higher one."""
        answer: Outcomes = []
        if self.me.refute(message.suspected):
            answer.append(RecordChanged())  # It has our incarnation.
        answer.append(Send(sender, ProbeOk(self.me.describe())))
        suspected = self.suspects.incarnations.get(sender)
        if suspected is not None:  # It is alive: probe it in turn, so that it refutes our suspicion.
            answer.append(Send(sender, Probe(suspected)))
        return answer

    def on_probe_ok(self, sender: NodeId, message: ProbeOk) -> Outcomes:
        """Stop suspecting `sender`, and tell the parts that it is alive."""
        descriptor = message.descriptor
        if descriptor.node != sender:
            return []
        self.suspects.alive(sender)
        self.ring.tman.learn([descriptor])
        self.sampling.learn([descriptor])
        return [
            *self.coordinator.alive(sender, descriptor.incarnation),
            *self.survivor.alive(sender, descriptor.incarnation),
        ]
