"""The outside judge: was every promise to clients kept?

The judge reads a history: the messages and answers that clients got, and the faults that were injected. It knows the
promises of `docs/delivery.md` and `docs/mqtt.md`, and nothing of the protocols. The simulator, `trellis up` and
harnesses on real processes write the same histories, so one judge serves them all.

    history.py   the records of a history, and its file
    filters.py   which topics a filter matches
    story.py     a history sorted by session and by publication
    calm.py      when the mesh was disturbed, and by when it owes a message
    sense.py     whether the history makes sense
    promise.py   the promises, in numbers
    rules.py     one function for each promise
    copies.py    the same for the nodes that hold a message
    retained.py  the same for retained messages
    prompt.py    the same for promises about time
    excuses.py   why a message may be missing, or come again
    faults.py    which nodes and paths a fault touches
    limits.py    excuses of nodes at their limits, which drop messages and turn clients away
    behind.py    excuses of brokers, whose sidecars may be behind
    silent.py    excuses of wildcards that were confirmed while nodes were silent
    interest.py  excuses of nodes whose interest ended in a long cut
    verdict.py   all rules together, and the verdict
"""

from trellis.judge.history import History, read_history, write_history
from trellis.judge.promise import Promise, Violation
from trellis.judge.verdict import Verdict, judge

__all__ = ["History", "Promise", "Verdict", "Violation", "judge", "read_history", "write_history"]
