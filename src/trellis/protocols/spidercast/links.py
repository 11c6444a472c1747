"""Which tasks hold a link with whom: a link of the overlay may belong to both tasks (A-SPC-1).

A link is up while at least one task holds it, and is watched for silence as long.
"""

from __future__ import annotations

from trellis.protocols.effects import Effects, LinkDown, LinkUp, NodeId
from trellis.protocols.spidercast.messages import Task
from trellis.protocols.suspicion import Suspicion


class Links:
    def __init__(self, suspicion: Suspicion) -> None:
        self.suspicion = suspicion
        self.tasks: dict[NodeId, tuple[Task, ...]] = {}  # in the order in which the links came up

    def __len__(self) -> int:
        return len(self.tasks)

    def up(self, node: NodeId, task: Task) -> Effects:
        tasks = self.tasks.get(node, ())
        self.tasks[node] = (*tasks, task)
        if tasks:
            return []
        self.suspicion.watch(node)
        return [LinkUp(node)]

    def down(self, node: NodeId, task: Task) -> Effects:
        tasks = tuple(other for other in self.tasks[node] if other != task)
        if tasks:
            self.tasks[node] = tasks
            return []
        del self.tasks[node]
        self.suspicion.unwatch(node)
        return [LinkDown(node)]
