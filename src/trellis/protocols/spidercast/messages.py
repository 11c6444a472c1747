"""The messages of SpiderCast.  [SC Fig. 4]

Every message of a neighbour maintenance task says which task it belongs to (A-SPC-1). Interests travel as sorted topic
names with a stamp: the incarnation of the node and the number of its interest changes, so that a late message does not
bring an old interest back, and a node that restarted is not mistaken for its former self.
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
    """How new a piece of news about a node's interest is."""

    incarnation: Count
    version: Count


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    task: Task
    degree: Size
    target: Size
    interest: Topics
    stamp: Stamp


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    task: Task
    degree: Size
    target: Size
    interest: Topics
    stamp: Stamp


class Redirect(msgspec.Struct, frozen=True, gc=False, tag="redirect"):
    """Try `to` instead. Without `to` it only says no.  (A-SPC-8)"""

    task: Task
    to: NodeName | None = None
    interest: Topics = ()


class Disconnect(msgspec.Struct, frozen=True, gc=False, tag="disconnect"):
    task: Task


class DisconnectOk(msgspec.Struct, frozen=True, gc=False, tag="disconnect-ok"):
    task: Task


class Leave(msgspec.Struct, frozen=True, gc=False, tag="leave"):
    """There is no link between us in this task (any more)."""

    task: Task


class State(msgspec.Struct, frozen=True, gc=False, array_like=True):
    degree: Size
    target: Size


class Heartbeat(msgspec.Struct, frozen=True, gc=False, tag="heartbeat"):
    """One for all tasks that share the link; a task that has no such link is absent.

    `interest` is there when it has changed since the last heartbeat, and in the answer to an `Inquire`.
    """

    stamp: Stamp
    greedy: State | None = None
    random: State | None = None
    interest: Topics | None = None


class Inquire(msgspec.Struct, frozen=True, gc=False, tag="inquire"):
    """Your heartbeat has a newer stamp than the interest I have of you: tell me.

    Deviation: a message of our own. The paper does not say how a neighbor learns of a change that it missed.
    """


SpiderCastMessage = Heartbeat | Connect | ConnectOk | Redirect | Disconnect | DisconnectOk | Leave | Inquire
CODEC: Codec[msgspec.Struct] = Codec(SpiderCastMessage | NewscastRequest | NewscastReply)
CONTROL = (Connect, ConnectOk, Redirect, Disconnect, DisconnectOk, Leave)  # counted by [SC §3.8.1]
