"""The outside judge: was every promise to clients kept?

The judge reads a history of what clients saw and of the faults that were injected. It knows the promises of
`docs/delivery.md` and `docs/mqtt.md`, and nothing of the protocols. The simulator, `trellis up` and harnesses on real
processes write the same histories, so one judge serves them all.

    history.py   the records of a history, and its file
    filters.py   which topics a filter matches
    story.py     a history sorted by session and by publication
    calm.py      when the mesh was disturbed, and by when it owes a message
    sense.py     whether the history makes sense
    promise.py   what is promised, in numbers
    rules.py     one function for each promise
    copies.py    the same for the nodes that hold a message
    retained.py  the same for retained messages
    excuses.py   what the promises leave open
    room.py      what nodes may do where they have no room, and what clients are told then
    prompt.py    the same for promises about time
    verdict.py   all rules together, and what they found
"""

from trellis.judge.history import History, read_history, write_history
from trellis.judge.promise import Promise, Violation
from trellis.judge.verdict import Verdict, judge

__all__ = ["History", "Promise", "Verdict", "Violation", "judge", "read_history", "write_history"]
