"""One link, as our end of it sees it.

A link counts only when the holders of both ends' records know of it. Otherwise two linked nodes could crash together
and no record would name the link (docs/omen.md, condition 1). So each end first renews its record at its L ring
successors; then it is ready. A link is up at an end that is ready and has heard that the other end is ready.

| from    | to      | when                                                                                             |
| ------- | ------- | ------------------------------------------------------------------------------------------------ |
| -       | asked   | we want the link: `Links.open`                                                                   |
| -       | opening | the peer wants the link: its `Connect` has come                                                  |
| asked   | opening | the peer has answered: `ConnectOk`, or its own `Connect`                                         |
| opening | up      | both ends are ready                                                                              |
| any     | -       | the peer is silent, has restarted, does not know the link or closes it; or we close it (`_drop`) |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from trellis.protocols.effects import NodeId


class LinkState(StrEnum):
    """The states of our end of a link."""

    ASKED = "asked"
    OPENING = "opening"
    UP = "up"


ASKED, OPENING, UP = LinkState
TRANSITIONS = {
    ASKED: (OPENING,),
    OPENING: (OPENING, UP),  # The peer may send `Connect` more than once.
    UP: (),
}

Asker = tuple[NodeId, int]  # a coordinator, and the number of its repair


@dataclass(eq=False)
class Link:
    """Our end of a link. `interest`, `degree` and `successors` are the peer's, as it told them last."""

    peer: NodeId
    state: LinkState
    incarnation: int = 0  # The peer's. 0 until it has answered.
    expected: int = 0  # The peer's incarnation as a coordinator knows it. Our record names it until the peer answers.
    interest: int = 0
    interest_version: int = 0  # The peer's version in the message that told `interest`.
    topics_version: int = 0  # The peer's, in its last Connect or ConnectOk.
    degree: int = 0
    successors: tuple[NodeId, ...] = ()
    # Version of our record that its holders must acknowledge before this end is ready. -1 until the record is renewed,
    # and 0 while the record need not name the peer.
    needs: int = 0
    ready: bool = False  # The holders of our record have acknowledged `needs`.
    peer_ready: bool = False  # The peer has said that it is ready.
    owes_ok: bool = False  # We answer the peer's Connect as soon as we are ready.
    acknowledged: int = 0  # Our version (`Me.version`) that the peer has acknowledged.
    heard: int = 0  # The peer's version that we have taken in.
    tries: int = 0  # Periods since we asked for the link.
    askers: list[Asker] = field(default_factory=list)  # Coordinators that wait for the link to be up.
    is_hoped_for: bool = False  # The link is planned (`planned.py`): until it is answered, the peer may not exist.
    is_closing: bool = False  # We want to drop the link (`requests.py`): no topic and no proof may count on it.

    def move(self, state: LinkState) -> None:
        """Enter a state. `TRANSITIONS` must allow it."""
        assert state in TRANSITIONS[self.state], f"link to {self.peer}: from {self.state} to {state}"
        self.state = state
