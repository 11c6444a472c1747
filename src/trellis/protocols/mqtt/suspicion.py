"""Finds a message that its receiver does not accept, and for which it ends the connection each time.

[docs/mqtt.md, Set aside] Acknowledgements come in the order of messages. So when a receiver ends a connection, the
oldest unacknowledged message is the first suspect. The next time, a suspect is sent alone: then nothing else can be the
cause. An acknowledgement ends the suspicion.
"""

from __future__ import annotations

TIMES_MAX = 3  # The suspect is set aside when the connection has ended this often in a row.


class Suspicion:
    """The suspect of one receiver."""

    def __init__(self) -> None:
        self.number: int | None = None  # packet identifier of the suspect
        self.times = 0  # connections in a row that ended after it was sent; 0 without a suspect

    def acknowledged(self) -> None:
        """The receiver has acknowledged a message: there is no suspect."""
        self.number, self.times = None, 0

    def ended(self, number: int) -> bool:
        """A connection ended, and `number` is the oldest unacknowledged message. Return whether to set it aside."""
        self.times = self.times + 1 if number == self.number else 1
        self.number = number
        if self.times < TIMES_MAX:
            return False
        self.acknowledged()
        return True
