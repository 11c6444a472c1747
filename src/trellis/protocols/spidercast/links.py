"""The links of a node, each with the tasks that hold it. A link may belong to both tasks (A-SPC-1).

A link is up, and its node watched for silence, while at least one task holds it.
"""

from __future__ import annotations

from trellis.protocols.effects import Effects, LinkDown, LinkUp, NodeId
from trellis.protocols.spidercast.messages import Task
from trellis.protocols.suspicion import Suspicion


class Links:
    """The links of one node."""

    def __init__(self, suspicion: Suspicion) -> None:
        self.suspicion = suspicion
        self.tasks: dict[NodeId, tuple[Task, ...]] = {}  # in the order in which the links came up

    def __len__(self) -> int:
        return len(self.tasks)

    def up(self, node: NodeId, task: Task) -> Effects:
        """Note that a task holds a link. It comes up with the first task."""
        tasks = self.tasks.get(node, ())
        self.tasks[node] = (*tasks, task)
        if tasks:
            return []
        self.suspicion.watch(node)
        return [LinkUp(node)]

    def down(self, node: NodeId, task: Task) -> Effects:
        """Note that a task does not hold a link any more. It goes down with the last task."""
        tasks = tuple(holder for holder in self.tasks[node] if holder != task)
        if tasks:
            self.tasks[node] = tasks
            return []
        del self.tasks[node]
        self.suspicion.unwatch(node)
        return [LinkDown(node)]
