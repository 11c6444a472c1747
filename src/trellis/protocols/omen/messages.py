"""What OMen nodes say to each other. Names travel, bits do not: a `Mask` is a bitset over the topics of a question.

| about       | messages                                                                                        |
| ----------- | ----------------------------------------------------------------------------------------------- |
| links       | Connect, ConnectOk, LinkReady, Heartbeat, Stranger, Disconnect                                  |
| records     | Record, RecordOk: a node tells its L successors whom it is linked to  [OM Alg. 4, l. 2; A-OMN-9] |
| churn       | Churn, Report, ReportOk, Finished, Join, JoinDone, Leaving  [OM Alg. 5-6]                       |
| backups     | Back: registration, so that descriptors tell how many count on a node  [SH Struct 5]            |
| repair      | Ask, Answer, OpenLink, LinkOpened  [OM Alg. 1]                                                  |
| on the ring | FindRecord, FoundRecord, RootReport, RootHeard, RootMeet                                        |
| suspicion   | Probe, ProbeOk                                                                                  |
| parts       | of Newscast, T-Man (layers `ring` and `backups`) and the detector                               |
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

PATH_MAX = 64  # nodes on a root path
HINTS_MAX = 4_096  # hints in one message
LINKS_MAX = 16_384  # links of one node
WAY_MAX = 32  # nodes that one question visits

Path = Annotated[tuple[NodeName, ...], Meta(max_length=PATH_MAX)]
Names = Annotated[tuple[NodeName, ...], Meta(max_length=PEERS_MAX)]
Mask = Annotated[bytes, Meta(max_length=TOPICS_MAX // 8)]


class Life(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node in one of its lives."""

    node: NodeName
    incarnation: Count


Lives = Annotated[tuple[Life, ...], Meta(max_length=LINKS_MAX)]


class Hint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The nodes from the sender's next hop to the root of a topic; empty: the sender is the root."""

    topic: Name
    path: Path


# Links


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    incarnation: Count
    topics: Topics
    degree: Count
    version: Count = 0  # when the topics changed last: an earlier word may come later
    named: Count = 0  # incarnation of the receiver in the record that the sender's holders have; 0: in none yet


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    incarnation: Count
    topics: Topics
    degree: Count
    version: Count = 0
    ready: bool = False  # the holders of the sender's record know of the link: no LinkReady follows


class LinkReady(msgspec.Struct, frozen=True, gc=False, tag="link-ready"):
    """The holders of my record know of our link."""

    incarnation: Count


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    incarnation: Count
    ready: bool
    degree: Count
    version: Count  # of everything that is said here
    acknowledged: Count  # the receiver's version that the sender has
    successors: Names
    topics: Topics | None = None  # only where the receiver has not acknowledged them
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()


class Stranger(msgspec.Struct, frozen=True, gc=False, tag="stranger"):
    """I have no link to you (any more)."""

    incarnation: Count  # the receiver's, as the heartbeat said it


class Disconnect(msgspec.Struct, frozen=True, gc=False, tag="disconnect"):
    """I have closed our link; or with `version`: close it, and say so, if your topics are still of this version.

    A node that does not know `version` closes its end without a word. It answers the next heartbeat with `Stranger`.
    """

    incarnation: Count
    version: Count = 0


# Records


class Record(msgspec.Struct, frozen=True, gc=False, tag="record"):
    incarnation: Count
    version: Count
    topics: Topics
    neighbours: Lives


class RecordOk(msgspec.Struct, frozen=True, gc=False, tag="record-ok"):
    version: Count
    incarnation: Count  # of the record: not that of an earlier life of ours
    life: Count  # of the holder: one that restarts has lost it


# Churn


class Churn(msgspec.Struct, frozen=True, gc=False, tag="churn"):
    """An event, told to the L successors of the node that it happens to."""

    kind: Literal["join", "leave"]
    node: NodeName
    incarnation: Count


class Report(msgspec.Struct, frozen=True, gc=False, tag="report"):
    """The reporter was a neighbour of this node, which is gone. Goes to its first living successor."""

    node: NodeName
    incarnation: Count
    reporter: NodeName
    hops: Count = 0
    topics: Topics = ()  # that the link was about: all there is where no record is found


class ReportOk(msgspec.Struct, frozen=True, gc=False, tag="report-ok"):
    """To a survivor: the repair goes on, it is done and has counted the survivor in, or the node is alive.

    A survivor may not have reported: the record of the departed node names it. `alive` is also sent to every node that
    was told about the departure.
    """

    node: NodeName
    incarnation: Count
    state: Literal["open", "done", "alive"]


class Finished(msgspec.Struct, frozen=True, gc=False, tag="finished"):
    """This departure is mended, or this join is over.  [OM Alg. 5, notifySuccRange]"""

    node: NodeName
    incarnation: Count
    kind: Literal["leave", "join"]


class Join(msgspec.Struct, frozen=True, gc=False, tag="join"):
    incarnation: Count
    topics: Topics


class JoinDone(msgspec.Struct, frozen=True, gc=False, tag="join-done"):
    incarnation: Count


class Leaving(msgspec.Struct, frozen=True, gc=False, tag="leaving"):
    """I leave in order; this is whom I am linked to."""

    record: Record


class Back(msgspec.Struct, frozen=True, gc=False, tag="back"):
    """I count on you as a backup; or I do so no more."""

    on: bool


# Repair


class Neighbour(msgspec.Struct, frozen=True, gc=False, array_like=True):
    node: NodeName
    incarnation: Count
    wants: Mask


Neighbours = Annotated[tuple[Neighbour, ...], Meta(max_length=LINKS_MAX)]


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """The answer of a node, as nodes that were asked after it pass it on. The fields are those of `Answer`."""

    node: NodeName
    incarnation: Count
    degree: Count
    wants: Mask
    leaving: Mask
    neighbours: Neighbours
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()
    joining: bool = False
    topics_version: Count = 0


RelayedAnswers = Annotated[tuple[Relayed, ...], Meta(max_length=WAY_MAX)]


class Way(msgspec.Struct, frozen=True, array_like=True):
    """A question goes from node to node, and the last one sends all answers to the asker."""

    asker: NodeName
    mend: Count  # the number of the asker's repair
    left: Annotated[tuple[NodeName, ...], Meta(max_length=WAY_MAX)]  # who is asked next, in this order
    answers: RelayedAnswers = ()  # of those who were asked before


class Ask(msgspec.Struct, frozen=True, gc=False, tag="ask"):
    """What do you know about these topics? It also tells a survivor that it need not report for a while."""

    mend: Count  # 0 in a question that another node than the asker passes on: who does not know `way` answers in vain
    attempt: Count
    topics: Topics
    gone: Annotated[tuple[Life, ...], Meta(max_length=PEERS_MAX)] = ()  # departed nodes whose record names the receiver
    way: Way | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    mend: Count
    attempt: Count
    incarnation: Count
    degree: Count
    wants: Mask
    leaving: Mask  # topics that it still relays but wants no more
    neighbours: Neighbours
    hints: Annotated[tuple[Hint, ...], Meta(max_length=HINTS_MAX)] = ()
    joining: bool = False  # its own join is not over: a link to it leads nowhere yet
    topics_version: Count = 0
    more: RelayedAnswers = ()  # of others on the way of the question


class OpenLink(msgspec.Struct, frozen=True, gc=False, tag="open-link"):
    """Open links to these peers. Nodes that do not know `more` are asked for each of them when the link stays away."""

    mend: Count
    peer: NodeName
    incarnation: Count = 0  # of the peer, as it answered; 0: unknown
    more: Annotated[tuple[Life, ...], Meta(max_length=PEERS_MAX)] = ()  # further peers


class Opened(msgspec.Struct, frozen=True, gc=False, array_like=True):
    peer: NodeName
    peer_version: Count = 0


class LinkOpened(msgspec.Struct, frozen=True, gc=False, tag="link-opened"):
    """These links stand. Versions of topics other than in the answers: a link may not be about what was proven."""

    mend: Count
    peer: NodeName
    topics_version: Count = 0  # of the sender
    peer_version: Count = 0  # of the peer, when the link was opened; 0: unknown
    more: Annotated[tuple[Opened, ...], Meta(max_length=PEERS_MAX)] = ()  # further links


# On the ring


class FindRecord(msgspec.Struct, frozen=True, gc=False, tag="find-record"):
    """Who holds the record of this node? Goes to its first living successor, then from one to the next."""

    node: NodeName
    incarnation: Count
    asker: NodeName
    mend: Count
    hops: Count
    left: Count  # further successors to ask


class FoundRecord(msgspec.Struct, frozen=True, gc=False, tag="found-record"):
    node: NodeName
    incarnation: Count
    mend: Count
    last: bool  # nobody else will answer
    record: Record | None


class RootReport(msgspec.Struct, frozen=True, gc=False, tag="root-report"):
    topic: Name
    root: NodeName
    hops: Count


class RootHeard(msgspec.Struct, frozen=True, gc=False, tag="root-heard"):
    """I am the home location of this topic."""

    topic: Name


class RootMeet(msgspec.Struct, frozen=True, gc=False, tag="root-meet"):
    topic: Name
    root: NodeName


# Suspicion


class Probe(msgspec.Struct, frozen=True, gc=False, tag="probe"):
    suspected: Count  # the incarnation that is thought to be dead


class ProbeOk(msgspec.Struct, frozen=True, gc=False, tag="probe-ok"):
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

# What a churn event costs: the rest is gossip and heartbeats, which go on anyway.  [OM §6, Fig. 12]
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
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def unpack(mask: bytes) -> int:
    return int.from_bytes(mask, "little")
