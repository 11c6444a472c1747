"""The outside judge: was every promise to clients kept?

The judge reads a history of what clients saw and of the faults that were injected. It knows the promises of
`docs/delivery.md` and `docs/mqtt.md`, and nothing of the protocols. The simulator, `trellis up` and harnesses on real
processes write the same histories, so one judge serves them all.

    history.py   the records of a history, and its file
    filters.py   which topics an MQTT filter matches
    story.py     a history sorted by session and by publication
    calm.py      when the mesh was disturbed, and by when it owes a message
    rules.py     one function for each promise
    prompt.py    the same for promises about time
    verdict.py   all rules together, and what they found
"""

from trellis.judge.history import History, read_history, write_history
from trellis.judge.verdict import Promise, Verdict, Violation, judge

__all__ = ["History", "Promise", "Verdict", "Violation", "judge", "read_history", "write_history"]
