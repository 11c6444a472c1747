"""Overlay links: opens them, keeps them by heartbeats, and tells which are lost.

`link.py` has the states of a link, and why both ends renew their records before a link is up.

One end opens the link. If it knows the peer's incarnation, it puts the peer into its record first. Then it sends
`Connect`, which says that this end is ready. The other end renews its record and sends `ConnectOk`, which says the same
for that end. That takes two messages. If the incarnation is unknown, both messages are sent at once, and each end sends
`LinkReady` later.

Each link carries one heartbeat per period in either direction. Heartbeats show that the sender is alive. They repeat
`LinkReady`, and the topics and hints that the peer has not acknowledged. A node that gets a heartbeat on a link that it
does not have answers `Stranger`.

K1  A peer is watched if and only if there is a link to it. `LinkUp` was returned if and only if the link is up.
"""

from __future__ import annotations

from trellis.protocols.effects import LinkDown, LinkUp, NodeId, Send
from trellis.protocols.omen.links.hints import Hints
from trellis.protocols.omen.links.link import ASKED, OPENING, UP, Asker, Link
from trellis.protocols.omen.me import Me, run_of
from trellis.protocols.omen.messages import (
    LINKS_MAX,
    Connect,
    ConnectOk,
    Disconnect,
    Heartbeat,
    LinkOpened,
    LinkReady,
    NodeRun,
    Opened,
    OpenLink,
    Stranger,
)
from trellis.protocols.omen.signals import LinkLost, Outcomes, RecordChanged, TopicsLeftByNeighbor, Why
from trellis.protocols.suspicion import Suspicion
from trellis.protocols.wire import PEERS_MAX

TOLD_AT_ONCE = 256  # Neighbors learn of a changed topic list of at most this length before the next heartbeat.
CONNECT_TRIES = 6  # Periods for which an unanswered `Connect` is repeated.
ASKERS_MAX = 64  # Most coordinators that wait for one link. Further ones ask again, and are answered when it is up.


class Links:
    """All links of this node."""

    def __init__(self, me: Me, hints: Hints, silence_max: int) -> None:
        self.me, self.hints = me, hints
        self.links: dict[NodeId, Link] = {}
        self.suspicion = Suspicion(silence_max)
        self.is_shrunk = False  # Our record names neighbors that we have lost. `OwnRecord` renews it after a while.
        self._opened: dict[Asker, list[Opened]] = {}  # Links that are up and that the asker is not told of yet.

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self.links

    def up(self) -> list[Link]:
        """Return all links that are up."""
        return [link for link in self.links.values() if link.state == UP]

    def seen(self) -> list[NodeId]:
        """Return the peers of all links, without planned neighbors that have not answered yet."""
        return [peer for peer, link in self.links.items() if link.state != ASKED or not link.is_hoped_for]

    def on(self, topics: int) -> dict[NodeId, int]:
        """Return the peers that are or will soon be linked to us on any of these topics, with their incarnations."""
        return {
            link.peer: link.incarnation
            for link in self.links.values()
            if link.state != ASKED and link.interest & topics
        }

    def covered(self, times: int = 1) -> int:
        """Return the topics of ours that one neighbor has too, or two. A link that is being dropped does not count."""
        once = twice = 0
        for link in self.links.values():
            if link.state == UP and not link.is_closing:
                twice |= once & link.interest
                once |= link.interest
        return (once if times == 1 else twice) & self.me.interest

    # Opening

    def open(self, peer: NodeId, asker: Asker | None = None, incarnation: int = 0) -> Outcomes:
        """Ask for a link. `incarnation` is the peer's; 0 if it is unknown. `asker` is told when the link is up."""
        if peer == self.me.id or self.me.is_leaving:
            return []
        link = self.links.get(peer)
        effects: Outcomes = []
        if link is None:
            if len(self.links) >= LINKS_MAX:  # The asker gives up after a while.
                return []
            link = self.links[peer] = Link(peer, ASKED, expected=incarnation)
            self.suspicion.watch(peer)
            if incarnation:
                effects += self._renew(link)  # `on_record_known` sends Connect.
            else:
                effects.append(Send(peer, self._connect(link)))
        if asker is not None:
            if link.state == UP:
                return [*effects, Send(asker[0], LinkOpened(asker[1], peer, self.me.topics_version))]
            if asker not in link.askers and len(link.askers) < ASKERS_MAX:
                link.askers.append(asker)
        return effects

    def on_open_link(self, sender: NodeId, message: OpenLink) -> Outcomes:
        """Open the links that a coordinator has chosen."""
        asker, peers = (sender, message.mend), [NodeRun(message.peer, message.incarnation), *message.more]
        return [effect for peer in peers for effect in self.open(peer.node, asker, peer.incarnation)]

    def hope_for(self, peer: NodeId) -> Outcomes:
        """Ask for a planned link to a peer that may not have started yet."""
        effects = self.open(peer)
        if peer in self.links:
            self.links[peer].is_hoped_for = True
        return effects

    def on_connect(self, sender: NodeId, message: Connect) -> Outcomes:
        """Accept a link. Answer at once, or when we are ready if the sender is ready already."""
        if self.me.is_leaving:
            return [Send(sender, Stranger(message.incarnation))]
        link = self.links.get(sender)
        if link is not None and link.incarnation and run_of(link.incarnation) < run_of(message.incarnation):
            effects = self._drop(link, "restarted")
            link = None
        else:
            effects = []
        if link is None:
            if len(self.links) >= LINKS_MAX:  # Neither our record nor our answers could name one more neighbor.
                return [*effects, Send(sender, Stranger(message.incarnation))]
            link = self.links[sender] = Link(sender, OPENING)
            self.suspicion.watch(sender)
        if run_of(message.incarnation) < run_of(link.incarnation):
            return effects
        self._take(link, message)
        link.acknowledged = link.heard = 0  # The peer begins again, so both ends tell each other everything again.
        if link.state == ASKED or not link.needs:
            effects += self._accept(link)
        is_named = message.named > 0 and run_of(message.named) == run_of(self.me.incarnation)
        link.peer_ready = link.peer_ready or is_named
        if is_named and not link.ready and not link.owes_ok:  # A repeated Connect is answered at once.
            link.owes_ok = True
            return effects
        link.owes_ok = False
        return [*effects, *self._come_up(link), Send(sender, self._connect_ok(link))]

    def on_connect_ok(self, sender: NodeId, message: ConnectOk) -> Outcomes:
        """Take in the peer's answer to our Connect."""
        link = self.links.get(sender)
        if link is None:
            return [Send(sender, Stranger(message.incarnation))]
        if run_of(message.incarnation) < run_of(link.incarnation):
            return []
        effects: Outcomes = []
        if link.state == ASKED:
            self._take(link, message)
            effects += self._accept(link)
            if link.ready and not message.ready:  # The peer may not know that we are ready.
                effects.append(Send(sender, LinkReady(self.me.incarnation)))
        if message.ready and run_of(message.incarnation) == run_of(link.incarnation):
            link.peer_ready = True
        return [*effects, *self._come_up(link)]

    def on_ready(self, sender: NodeId, incarnation: int) -> Outcomes:
        """Note that the peer is ready."""
        link = self.links.get(sender)
        if link is None or run_of(link.incarnation) != run_of(incarnation):
            return []
        link.peer_ready = True
        return self._come_up(link)

    def on_record_known(self, version: int) -> Outcomes:
        """Bring links on: all holders of our record have acknowledged this version, or a later one.

        A node that leaves brings up no more links, because others repair around it by the record that it announced.
        """
        effects: Outcomes = []
        if self.me.is_leaving:
            return effects
        for link in list(self.links.values()):
            if link.state == UP or link.ready or not 0 < link.needs <= version:
                continue
            link.ready = True
            if link.state == ASKED:
                effects.append(Send(link.peer, self._connect(link)))
                continue
            word = self._connect_ok(link) if link.owes_ok else LinkReady(self.me.incarnation)
            link.owes_ok = False
            effects += [Send(link.peer, word), *self._come_up(link)]
        return effects

    # Staying

    def tick(self, successors: tuple[NodeId, ...]) -> Outcomes:
        """Send heartbeats and repeat Connects. Drop links of silent peers, and those that do not come up."""
        effects: Outcomes = []
        silent = self.suspicion.tick()
        for link in list(self.links.values()):
            if link.state == ASKED:
                link.tries += 1
                if link.tries > CONNECT_TRIES:
                    effects += self._drop(link, "refused")
                elif link.ready or link.tries > 1 or not link.expected:
                    effects.append(Send(link.peer, self._connect(link)))
            else:
                effects.append(Send(link.peer, self._heartbeat(link, successors)))
        for peer in silent:
            if peer in self.links:
                effects += self._drop(self.links[peer], "silent")
        return effects

    def on_heartbeat(self, sender: NodeId, beat: Heartbeat) -> Outcomes:
        """Take in what a heartbeat tells. Drop the link if the peer has restarted."""
        link = self.links.get(sender)
        if link is None:
            return [Send(sender, Stranger(beat.incarnation))]
        if beat.incarnation != link.incarnation:
            if run_of(beat.incarnation) < run_of(link.incarnation):
                return []
            if link.incarnation and run_of(beat.incarnation) > run_of(link.incarnation):
                return [*self._drop(link, "restarted"), Send(sender, Stranger(beat.incarnation))]
        self.suspicion.heard(sender)
        effects: Outcomes = []
        if link.state == ASKED:  # The peer got our Connect, and its answer was lost. We ask again.
            return effects
        link.incarnation = max(link.incarnation, beat.incarnation)
        link.degree, link.successors = beat.degree, beat.successors
        if beat.acknowledged > link.acknowledged:
            link.acknowledged = beat.acknowledged
        if beat.ready and not link.peer_ready:
            effects += self.on_ready(sender, beat.incarnation)
        if beat.version > link.heard:
            if beat.topics is not None:
                topics = self.me.table.bits(beat.topics)
                if beat.acknowledged < self.me.topics_version:  # It may have left topics without knowing ours.
                    left = link.interest & ~topics & self.me.interest
                    effects += [TopicsLeftByNeighbor(left)] if left else []
                self._interest(link, topics, beat.version)
            if link.state == UP:
                self.hints.told(sender, beat.hints)
                link.heard = beat.version
        return effects

    def heard(self, peer: NodeId) -> None:
        self.suspicion.heard(peer)

    # Losing

    def on_stranger(self, sender: NodeId, message: Stranger) -> Outcomes:
        """Drop a link that the peer does not have."""
        link = self.links.get(sender)
        if link is None or run_of(message.incarnation) != run_of(self.me.incarnation):
            return []
        if link.state == ASKED and link.tries < 2:  # It is about an earlier link. Our Connect is still under way.
            return []
        if link.is_closing:  # The peer has closed its end, as we have asked.
            return self._drop(link, "closed")
        effects = self._drop(link, "stranger")
        # Others may have repaired around us. A higher incarnation makes our next departure another event. Our record
        # carries it.
        if link.state == UP and self.me.refute(self.me.incarnation):
            effects.append(RecordChanged())
        return effects

    def on_disconnect(self, sender: NodeId, message: Disconnect) -> Outcomes:
        """Drop a link that the peer has closed, or that it asks us to close.

        We refuse a request by silence if our topics have changed since our answer: only this link may cover a new one.
        """
        link = self.links.get(sender)
        if link is None or run_of(message.incarnation) < run_of(link.incarnation):
            return []
        if not message.version:
            return self._drop(link, "closed")
        if link.state != UP or message.version != self.me.topics_version:
            return []
        return [*self._drop(link, "closed"), Send(sender, Disconnect(self.me.incarnation))]

    def on_peer_down(self, peer: NodeId) -> Outcomes:
        link = self.links.get(peer)
        return self._drop(link, "silent") if link is not None else []

    def close(self, peer: NodeId) -> Outcomes:
        """Close a link that no topic needs, and tell the peer. It does not count as lost."""
        link = self.links.get(peer)
        if link is None:
            return []
        return [*self._drop(link, "closed", tell=False), Send(peer, Disconnect(self.me.incarnation))]

    def interest_changed(self, successors: tuple[NodeId, ...]) -> Outcomes:
        """Close links that share no topic with us after a change of our topics, and tell the other neighbors.

        A short list is told at once, so that messages on a new topic can flow to neighbors that have it too. A long
        list waits for the next heartbeat, because clients often subscribe to topics one by one.
        """
        effects: Outcomes = []
        is_told = len(self.me.topics) <= TOLD_AT_ONCE
        for link in list(self.links.values()):
            link.acknowledged = 0  # The peer has not been told the hints of a topic that is newly shared.
            if link.state == UP and not link.interest & self.me.interest:
                effects += self.close(link.peer)
            elif link.state == UP and is_told:
                effects.append(Send(link.peer, self._heartbeat(link, successors)))
        return effects

    def check(self) -> None:
        assert set(self.links) == set(self.suspicion.watched), f"K1: {self.me.id} watches others than its links"
        assert self.me.id not in self.links, f"K1: {self.me.id} has a link to itself"
        assert self.me.degree == len(self.up()), f"K1: {self.me.id} counts {self.me.degree} links"

    def _connect(self, link: Link) -> Connect:
        me, named = self.me, link.expected if link.ready else 0
        return Connect(me.incarnation, me.topics, me.degree, me.topics_version, named)

    def _connect_ok(self, link: Link) -> ConnectOk:
        return ConnectOk(self.me.incarnation, self.me.topics, self.me.degree, self.me.topics_version, link.ready)

    def _accept(self, link: Link) -> Outcomes:
        """Go on with a link because the peer has answered. Renew our record unless it names this run of the peer."""
        link.move(OPENING)
        is_named = link.needs and run_of(link.expected) == run_of(link.incarnation)
        return self._renew(link) if not is_named else []

    def _take(self, link: Link, message: Connect | ConnectOk) -> None:
        link.incarnation, link.degree, link.topics_version = message.incarnation, message.degree, message.version
        self._interest(link, self.me.table.bits(message.topics), message.version)
        self.suspicion.heard(link.peer)

    def _interest(self, link: Link, interest: int, version: int) -> None:
        """Note the peer's topics, unless we know a later version."""
        if version < link.interest_version:
            return  # A newer list has overtaken this one, and the peer will not repeat it.
        link.interest_version = version
        if interest != link.interest:
            if link.interest & ~interest:
                self.hints.forget(link.peer, but=interest)
            if link.state == UP:
                self.hints.tell_again(interest & ~link.interest)
            link.interest = interest

    def _renew(self, link: Link) -> Outcomes:
        """Have our record renewed, so that it names the peer of this link."""
        link.needs, link.ready = -1, False  # `OwnRecord.renew` sets the version.
        return [RecordChanged()]

    def _come_up(self, link: Link) -> Outcomes:
        """Bring a link up if both ends are ready, and tell the coordinators that wait for it."""
        if link.state != OPENING or not link.ready or not link.peer_ready:
            return []
        link.move(UP)
        self.me.degree += 1
        askers, link.askers = link.askers, []
        told = [effect for asker in askers for effect in self._tell(asker, Opened(link.peer, link.topics_version))]
        return [LinkUp(link.peer), *told]

    def _tell(self, asker: Asker, opened: Opened | None = None) -> Outcomes:
        """Tell a coordinator of its new links, in one message once none of them is awaited here any more."""
        links_up = self._opened.setdefault(asker, [])
        if opened is not None:
            links_up.append(opened)
        if any(asker in link.askers for link in self.links.values()) and len(links_up) <= PEERS_MAX:
            return []
        del self._opened[asker]
        if not links_up:
            return []
        first, *more = links_up
        version = self.me.topics_version
        return [Send(asker[0], LinkOpened(asker[1], first.peer, version, first.peer_version, tuple(more)))]

    def _drop(self, link: Link, why: Why, *, tell: bool = True) -> Outcomes:
        """Forget a link. `tell`: the node reacts to the loss."""
        del self.links[link.peer]
        self.suspicion.unwatch(link.peer)
        effects: Outcomes = []
        was_up = link.state == UP
        if was_up:
            self.me.degree -= 1
            self.hints.forget(link.peer)
            effects.append(LinkDown(link.peer))
        self.is_shrunk = self.is_shrunk or link.state != ASKED or link.needs != 0
        for asker in link.askers:
            effects += self._tell(asker)
        if tell:
            effects.append(
                LinkLost(link.peer, link.incarnation, link.interest, why, link.successors, was_up, link.degree)
            )
        return effects

    def _heartbeat(self, link: Link, successors: tuple[NodeId, ...]) -> Heartbeat:
        me, known = self.me, link.acknowledged
        if link.state != UP:  # Topics and hints are told only when the link is up.
            return Heartbeat(me.incarnation, link.ready, me.degree, 0, link.heard, successors)
        topics = me.topics if known < me.topics_version else None
        hints, version = self.hints.news(link.interest & me.interest, known)
        return Heartbeat(me.incarnation, link.ready, me.degree, version, link.heard, successors, topics, hints)
