"""The messages that OMen nodes send to each other.

Messages carry topic names, because the bits of a node's own topic table mean nothing elsewhere. A `Mask` is a bitset
over the topics of a question: bit i stands for the i-th topic of the `Ask`. `incarnation` is the sender's unless the
field says otherwise, and `mend` is the number of a repair at the node that asks.

| about       | messages                                                                                  |
| ----------- | ----------------------------------------------------------------------------------------- |
| links       | Connect, ConnectOk, LinkReady, Heartbeat, Stranger, Disconnect                            |
| records     | Record, RecordOk: a node tells its L successors its neighbors  [OM Alg. 4, l. 2; A-OMN-9] |
| churn       | Churn, Report, ReportOk, Finished, Join, JoinDone, Leaving  [OM Alg. 5-6]                 |
| backups     | Back: a registration; descriptors tell how many nodes are registered  [SH Struct 5]       |
| repair      | Ask, Answer, OpenLink, LinkOpened  [OM Alg. 1]                                            |
| on the ring | FindRecord, FoundRecord, RootReport, RootHeard, RootMeet                                  |
| suspicion   | Probe, ProbeOk                                                                            |
| parts       | the messages of Newscast, T-Man (layers `ring` and `backups`) and the failure detector    |
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import Ping, Pong
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.tman import TManReply, TManRequest
from trellis.protocols.wire import PEERS_MAX, TOPICS_MAX, Codec, Count, Name, NodeName, Topics

PATH_MAX = 64  # Most nodes on a root path.
HINTS_MAX = 4_096  # Most hints in one message.
LINKS_MAX = 16_384  # Most links of one node.
ROUTE_MAX = 32  # Most nodes that one question visits.

Path = Annotated[tuple[NodeName, ...], Meta(max_length=PATH_MAX)]
Names = Annotated[tuple[NodeName, ...], Meta(max_length=PEERS_MAX)]
Mask = Annotated[bytes, Meta(max_length=TOPICS_MAX // 8)]


class NodeRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node in one of its incarnations."""

    node: NodeName
    incarnation: Count


NodeRuns = Annotated[tuple[NodeRun, ...], Meta(max_length=LINKS_MAX)]


class Hint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """For one topic the path to its root, from the sender's next hop. Empty: the sender is the root."""

    topic: Name
    path: Path


# Links


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    """Asks for a link."""

    incarnation: Count
    topics: Topics
    degree: Count
    version: Count = 0  # Version of `topics`. A receiver that has a later version ignores them.
    # The receiver's incarnation in the record that the sender's holders have. 0: their record does not name it yet.
    named: Count = 0


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    """Accepts a link. The fields are those of `Connect`."""

    incarnation: Count
    topics: Topics
    degree: Count
    version: Count = 0
    ready: bool = False  # The holders of the sender's record know of the link, so no LinkReady follows.


class LinkReady(msgspec.Struct, frozen=True, gc=False, tag="link-ready"):
    """The holders of the sender's record know of the link."""

    incarnation: Count


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent once per period on every link. It shows that the sender is alive, and tells what has changed."""

    incarnation: Count
    ready: bool  # The same as a LinkReady.
    degree: Count
    version: Count  # The sender's version of the topics and hints that the receiver has with this message.
    acknowledged: Count  # The receiver's version that the sender has.
    successors: Names  # The sender's ring successors: where to report its crash.
    topics: Topics | None = None  # None if the receiver has acknowledged them.
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()


class Stranger(msgspec.Struct, frozen=True, gc=False, tag="stranger"):
    """The sender has no link to the receiver, or no longer."""

    incarnation: Count  # The receiver's, from the message that this answers.


class Disconnect(msgspec.Struct, frozen=True, gc=False, tag="disconnect"):
    """The sender has closed the link; or it asks the receiver to close it (with `version`).

    The receiver closes its end and answers `Disconnect`, if its topics still have this version. A node of an earlier
    release does not know `version`. It closes its end without an answer, and answers the next heartbeat with
    `Stranger`.
    """

    incarnation: Count
    version: Count = 0  # The receiver's version of its topics. 0: the sender has closed the link.


# Records


class Record(msgspec.Struct, frozen=True, gc=False, tag="record"):
    """The topics and neighbors of a node, for its ring successors."""

    incarnation: Count
    version: Count  # Grows with every change.
    topics: Topics
    neighbours: NodeRuns  # At least all links that are up. Some may be lost already, or not be up yet.


class RecordOk(msgspec.Struct, frozen=True, gc=False, tag="record-ok"):
    """The sender holds this version of the receiver's record, or a later one."""

    version: Count
    incarnation: Count  # The record's. So an acknowledgement from an earlier run of the owner does not count.
    life: Count  # The run of the holder. A holder that restarts has lost the record.


# Churn


class Churn(msgspec.Struct, frozen=True, gc=False, tag="churn"):
    """A join or departure, told to the L successors of its node."""

    kind: Literal["join", "leave"]
    node: NodeName
    incarnation: Count


class Report(msgspec.Struct, frozen=True, gc=False, tag="report"):
    """The reporter was a neighbor of `node`, which has departed. Routed to the first living successor of `node`."""

    node: NodeName
    incarnation: Count  # The departed node's.
    reporter: NodeName
    hops: Count = 0
    topics: Topics = ()  # The topics of the lost link. The repair knows no others if no record is found.


class ReportOk(msgspec.Struct, frozen=True, gc=False, tag="report-ok"):
    """Tells a survivor what has become of a departure.

    It is also sent to survivors that have not reported, because the record of the departed node names them. `alive` is
    also sent to every node that was told about the departure. `done` is also sent to the node that leaves.
    """

    node: NodeName
    incarnation: Count  # That of `node`.
    state: Literal["open", "done", "alive"]  # The repair goes on; it is done and covers the survivor; `node` is alive.


class Finished(msgspec.Struct, frozen=True, gc=False, tag="finished"):
    """This departure is repaired, or this join is over.  [OM Alg. 5, notifySuccRange]"""

    node: NodeName
    incarnation: Count
    kind: Literal["leave", "join"]


class Join(msgspec.Struct, frozen=True, gc=False, tag="join"):
    """Asks the sender's ring successor to link the sender on its topics."""

    incarnation: Count
    topics: Topics


class JoinDone(msgspec.Struct, frozen=True, gc=False, tag="join-done"):
    """The join of the receiver is over."""

    incarnation: Count  # The receiver's.


class Leaving(msgspec.Struct, frozen=True, gc=False, tag="leaving"):
    """The sender leaves, and has these neighbors."""

    record: Record


class Back(msgspec.Struct, frozen=True, gc=False, tag="back"):
    """The sender counts on the receiver as a backup (`on`), or no longer does."""

    on: bool


# Repair


class Neighbor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A neighbor of the node that answers, and those topics of the question that the neighbor has."""

    node: NodeName
    incarnation: Count
    wants: Mask


Neighbors = Annotated[tuple[Neighbor, ...], Meta(max_length=LINKS_MAX)]


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """The answer of `node`, passed on by the nodes after it on the route. The fields are those of `Answer`."""

    node: NodeName
    incarnation: Count
    degree: Count
    wants: Mask
    leaving: Mask
    neighbours: Neighbors
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()
    joining: bool = False
    topics_version: Count = 0


RelayedAnswers = Annotated[tuple[Relayed, ...], Meta(max_length=ROUTE_MAX)]


class Route(msgspec.Struct, frozen=True, array_like=True):
    """The route of a question: it goes from node to node, and the last one sends all answers to the asker."""

    asker: NodeName
    mend: Count
    left: Annotated[tuple[NodeName, ...], Meta(max_length=ROUTE_MAX)]  # The nodes that are asked next, in this order.
    answers: RelayedAnswers = ()  # The answers of nodes that were asked before.


class Ask(msgspec.Struct, frozen=True, gc=False, tag="ask"):
    """Asks what a node knows about these topics. It also tells a survivor that it need not report for a while."""

    # 0 in a question that is passed on along a route. A node of an earlier release, which does not know `way`, then
    # sends its answer to a node that ignores it.
    mend: Count
    attempt: Count  # Number of the asker's present set of questions. The answer repeats it.
    topics: Topics
    gone: Annotated[
        tuple[NodeRun, ...], Meta(max_length=PEERS_MAX)
    ] = ()  # Departed nodes whose records name the receiver
    way: Route | None = None  # None: the asker asks this node directly.


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What a node knows about the topics of a question."""

    mend: Count
    attempt: Count
    incarnation: Count
    degree: Count
    wants: Mask  # Topics that the node takes part in.
    leaving: Mask  # Topics that it is leaving and still relays.
    neighbours: Neighbors  # By links that are up and are not being dropped.
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()
    joining: bool = False  # Its own join is not over, so a link to it connects to no other node yet.
    topics_version: Count = 0
    more: RelayedAnswers = ()  # Answers of other nodes on the route of the question.


class OpenLink(msgspec.Struct, frozen=True, gc=False, tag="open-link"):
    """Tells a node to open links to these peers.

    Nodes of an earlier release do not know `more`. They are asked for each link that does not come up.
    """

    mend: Count
    peer: NodeName
    incarnation: Count = 0  # The peer's, from its answer. 0: unknown.
    more: Annotated[tuple[NodeRun, ...], Meta(max_length=PEERS_MAX)] = ()  # Further peers.


class Opened(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A link that is up, with the peer's version of its topics. 0: unknown."""

    peer: NodeName
    peer_version: Count = 0


class LinkOpened(msgspec.Struct, frozen=True, gc=False, tag="link-opened"):
    """These links are up. If a version differs from the answer's, an end may have left a topic since."""

    mend: Count
    peer: NodeName
    topics_version: Count = 0  # The sender's.
    peer_version: Count = 0  # The peer's, when the link was opened. 0: unknown.
    more: Annotated[tuple[Opened, ...], Meta(max_length=PEERS_MAX)] = ()  # Further links.


# On the ring


class FindRecord(msgspec.Struct, frozen=True, gc=False, tag="find-record"):
    """Looks for the record of `node`: at its first living successor, then from one successor to the next."""

    node: NodeName
    incarnation: Count  # That of `node`. 0 means any.
    asker: NodeName
    mend: Count
    hops: Count
    left: Count  # Further successors to ask.


class FoundRecord(msgspec.Struct, frozen=True, gc=False, tag="found-record"):
    """Answers a `FindRecord`. `incarnation` is that of the question."""

    node: NodeName
    incarnation: Count
    mend: Count
    last: bool  # No other node will answer.
    record: Record | None


class RootReport(msgspec.Struct, frozen=True, gc=False, tag="root-report"):
    """`root` is a root of the topic. Routed to the home location of the topic."""

    topic: Name
    root: NodeName
    hops: Count


class RootHeard(msgspec.Struct, frozen=True, gc=False, tag="root-heard"):
    """The sender is the home location of this topic, and has got the report."""

    topic: Name


class RootMeet(msgspec.Struct, frozen=True, gc=False, tag="root-meet"):
    """`root` is another root of the topic, so the topic is split."""

    topic: Name
    root: NodeName


# Suspicion


class Probe(msgspec.Struct, frozen=True, gc=False, tag="probe"):
    """Asks whether the receiver is alive."""

    suspected: Count  # The receiver's incarnation that the sender suspects. 0: none.


class ProbeOk(msgspec.Struct, frozen=True, gc=False, tag="probe-ok"):
    """The sender is alive. Its descriptor carries its incarnation."""

    descriptor: Descriptor


Message = (
    Connect
    | ConnectOk
    | LinkReady
    | Heartbeat
    | Stranger
    | Disconnect
    | Record
    | RecordOk
    | Churn
    | Report
    | ReportOk
    | Finished
    | Join
    | JoinDone
    | Leaving
    | Back
    | Ask
    | Answer
    | OpenLink
    | LinkOpened
    | FindRecord
    | FoundRecord
    | RootReport
    | RootHeard
    | RootMeet
    | Probe
    | ProbeOk
    | Ping
    | Pong
    | NewscastRequest
    | NewscastReply
    | TManRequest
    | TManReply
)
CODEC: Codec[msgspec.Struct] = Codec(Message)

# The messages that count as the cost of churn events.  [OM §6, Fig. 12] The others do not count: gossip, heartbeats,
# registrations of backups, probes, `Stranger` and the root rendezvous.
CONTROL = (
    Connect,
    ConnectOk,
    LinkReady,
    Disconnect,
    Record,
    RecordOk,
    Churn,
    Report,
    ReportOk,
    Finished,
    Join,
    JoinDone,
    Leaving,
    Ask,
    Answer,
    OpenLink,
    LinkOpened,
    FindRecord,
    FoundRecord,
)


def pack(mask: int) -> bytes:
    """Return a bitset as the bytes of a `Mask`."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def unpack(mask: bytes) -> int:
    """Return the bitset that `pack` was given."""
    return int.from_bytes(mask, "little")
