"""The messages of SpiderCast.  [SC Fig. 4]

Every message of a neighbor maintenance task says to which task it belongs (A-SPC-1). Interests are sent as sorted names
of topics with a stamp: the node's incarnation and the number of changes of its interest. So a late message does not
bring an old interest back, and a restarted node is not taken for its earlier incarnation.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.wire import Codec, Count, NodeName, Topics

Task = Literal["greedy", "random"]
Size = Annotated[int, Meta(ge=0, le=1_000_000)]  # a degree or a target


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """How new a message about a node's interest is. Greater is newer."""

    incarnation: Count
    version: Count


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    """Ask for a link. Degree and target are those of the sender in this task."""

    task: Task
    degree: Size
    target: Size
    interest: Topics
    stamp: Stamp


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    """Accept a link."""

    task: Task
    degree: Size
    target: Size
    interest: Topics
    stamp: Stamp


class Redirect(msgspec.Struct, frozen=True, gc=False, tag="redirect"):
    """Refuse a link, and suggest to ask `to` instead. `to` may be missing (A-SPC-8)."""

    task: Task
    to: NodeName | None = None
    interest: Topics = ()


class Disconnect(msgspec.Struct, frozen=True, gc=False, tag="disconnect"):
    """Ask a neighbor to give up the link."""

    task: Task


class DisconnectOk(msgspec.Struct, frozen=True, gc=False, tag="disconnect-ok"):
    """Agree to give up the link."""

    task: Task


class Leave(msgspec.Struct, frozen=True, gc=False, tag="leave"):
    """Tell that there is no link of this task between the two nodes (any more)."""

    task: Task


class State(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The sender's degree and target in one task."""

    degree: Size
    target: Size


class Heartbeat(msgspec.Struct, frozen=True, gc=False, tag="heartbeat"):
    """A heartbeat for all tasks that share the link. A task that has no such link is absent.

    `interest` is set if it has changed since the last heartbeat, and in the answer to an `Inquire`.
    """

    stamp: Stamp
    greedy: State | None = None
    random: State | None = None
    interest: Topics | None = None


class Inquire(msgspec.Struct, frozen=True, gc=False, tag="inquire"):
    """Ask for the receiver's interest, because its heartbeat has a newer stamp than the interest that the sender knows.

    Deviation: a message of our own. The paper does not say how a neighbor learns of a change that it missed.
    """


SpiderCastMessage = Heartbeat | Connect | ConnectOk | Redirect | Disconnect | DisconnectOk | Leave | Inquire
CODEC: Codec[msgspec.Struct] = Codec(SpiderCastMessage | NewscastRequest | NewscastReply)
CONTROL = (Connect, ConnectOk, Redirect, Disconnect, DisconnectOk, Leave)  # the messages that [SC §3.8.1] counts
