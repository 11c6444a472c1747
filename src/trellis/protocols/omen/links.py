"""Overlay links: how one comes to stand, stays, and is lost.

A link stands when the holders of both ends' records know of it: otherwise a link between two nodes that die together
might be known to nobody (docs/omen.md, condition 1). So each end tells its L ring successors
first. A link is up at an end that is ready and has heard that the other one is.

    asked ---- ConnectOk ----> opening ---- both ends ready ----> up
    (Connect makes it `opening` at once at the other end)

One end opens it. Where it knows the life of the peer, its record names the peer before it sends `Connect`, which says
that this end is ready. The other end updates its record, then sends `ConnectOk`, which says that it is ready: two
messages. Where the life is unknown, both are sent at once, and each end says `LinkReady` later.

Heartbeats are one message per link and period. They are the signs of life; they say `LinkReady` again, and what the
peer has not acknowledged: topics and hints. Whoever gets one over a link that it does not have says so (`Stranger`).

K1  a peer is watched iff there is a link to it; LinkUp was given iff the link is up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from trellis.protocols.effects import Effects, LinkDown, LinkUp, NodeId, Send
from trellis.protocols.omen.hints import Hints
from trellis.protocols.omen.me import Me, life_of
from trellis.protocols.omen.messages import (
    LINKS_MAX,
    Connect,
    ConnectOk,
    Disconnect,
    Heartbeat,
    LinkOpened,
    LinkReady,
    Opened,
    Stranger,
)
from trellis.protocols.suspicion import Suspicion
from trellis.protocols.wire import PEERS_MAX

ASKED, OPENING, UP = "asked", "opening", "up"
TOLD_AT_ONCE = 256  # topics: neighbors hear of a change of so short a list before the next heartbeat
CONNECT_TRIES = 6  # periods
ASKERS_MAX = 64  # of one link: whoever is turned away asks again, and is answered when the link is up


Asker = tuple[NodeId, int]  # a coordinator, and the number of its repair


@dataclass(eq=False)
class Link:
    peer: NodeId
    state: str
    incarnation: int = 0  # of the peer
    expected: int = 0  # incarnation of the peer as a coordinator said it; the record names it while we are asking
    interest: int = 0  # of the peer
    interest_version: int = 0  # the peer's, when it said so
    topics_version: int = 0  # the peer's, in its Connect or ConnectOk
    degree: int = 0
    successors: tuple[NodeId, ...] = ()
    needs: int = 0  # the version of our record that its holders must have
    ready: bool = False  # they have
    peer_ready: bool = False
    owes_ok: bool = False  # the peer's Connect is answered when the holders of our record know of the link
    acknowledged: int = 0  # our version that the peer has
    heard: int = 0  # the peer's version that we have
    tries: int = 0
    askers: list[Asker] = field(default_factory=list)  # coordinators that wait for it to be up
    is_hoped_for: bool = False  # planned (`planned.py`): while it is only asked for, nobody may be there
    is_closing: bool = False  # we want to drop it (`requests.py`): no topic and no proof may count on it


class Lost(msgspec.Struct, frozen=True):
    """A link that was there is gone, or one that was asked for does not come."""

    peer: NodeId
    incarnation: int
    interest: int
    why: str  # silent, restarted, stranger, closed, refused
    successors: tuple[NodeId, ...]
    was_up: bool
    degree: int = 0  # of the peer, as it said last


class Links:
    def __init__(self, me: Me, hints: Hints, silence_max: int) -> None:
        self.me, self.hints = me, hints
        self.links: dict[NodeId, Link] = {}
        self.suspicion = Suspicion(silence_max)
        self.lost: list[Lost] = []  # news for the node
        self.left_alone = 0  # the same: topics that a neighbour left, on which we may have counted
        self.is_changed = False  # what the record says has changed: the node renews it
        self.is_shrunk = False  # the record names neighbors that we have lost: the node renews it after a while
        self._opened: dict[Asker, list[Opened]] = {}  # links that are up, told when the asker's others are, too

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self.links

    def up(self) -> list[Link]:
        return [link for link in self.links.values() if link.state == UP]

    def seen(self) -> list[NodeId]:
        """Peers that are there, as far as we know."""
        return [peer for peer, link in self.links.items() if link.state != ASKED or not link.is_hoped_for]

    def on(self, topics: int) -> dict[NodeId, int]:
        """Who is linked to us on any of these, or is about to be, and its incarnation."""
        return {
            link.peer: link.incarnation
            for link in self.links.values()
            if link.state != ASKED and link.interest & topics
        }

    def covered(self) -> int:
        """Topics of ours that a neighbour has."""
        bits = 0
        for link in self.links.values():
            if link.state == UP and not link.is_closing:
                bits |= link.interest
        return bits & self.me.interest

    # Opening

    def open(self, peer: NodeId, asker: Asker | None = None, incarnation: int = 0) -> Effects:
        """Ask for a link. `incarnation`: the peer's, where somebody knows it."""
        if peer == self.me.id or self.me.is_leaving:
            return []
        link = self.links.get(peer)
        effects: Effects = []
        if link is None:
            if len(self.links) >= LINKS_MAX:  # whoever asks gives up after a while
                return []
            link = self.links[peer] = Link(peer, ASKED, expected=incarnation)
            self.suspicion.watch(peer)
            if incarnation:
                self._renew(link)  # Connect follows when its holders have the record
            else:
                effects.append(Send(peer, self._connect(link)))
        if asker is not None:
            if link.state == UP:
                return [*effects, Send(asker[0], LinkOpened(asker[1], peer, self.me.topics_version))]
            if asker not in link.askers and len(link.askers) < ASKERS_MAX:
                link.askers.append(asker)
        return effects

    def hope_for(self, peer: NodeId) -> Effects:
        effects = self.open(peer)
        if peer in self.links:
            self.links[peer].is_hoped_for = True
        return effects

    def on_connect(self, sender: NodeId, message: Connect) -> Effects:
        if self.me.is_leaving:
            return [Send(sender, Stranger(message.incarnation))]
        link = self.links.get(sender)
        if link is not None and link.incarnation and life_of(link.incarnation) < life_of(message.incarnation):
            effects = self._drop(link, "restarted")
            link = None
        else:
            effects = []
        if link is None:
            if len(self.links) >= LINKS_MAX:  # our record could not name it, nor could we as a neighbour
                return [*effects, Send(sender, Stranger(message.incarnation))]
            link = self.links[sender] = Link(sender, OPENING)
            self.suspicion.watch(sender)
        if life_of(message.incarnation) < life_of(link.incarnation):
            return effects
        self._take(link, message)
        link.acknowledged = link.heard = 0  # it begins anew: tell each other everything again
        if link.state == ASKED or not link.needs:
            self._accept(link)
        is_named = message.named > 0 and life_of(message.named) == life_of(self.me.incarnation)
        link.peer_ready = link.peer_ready or is_named
        if is_named and not link.ready and not link.owes_ok:  # if it asks again, it is answered at once
            link.owes_ok = True
            return effects
        link.owes_ok = False
        return [*effects, *self._come_up(link), Send(sender, self._connect_ok(link))]

    def on_connect_ok(self, sender: NodeId, message: ConnectOk) -> Effects:
        link = self.links.get(sender)
        if link is None:
            return [Send(sender, Stranger(message.incarnation))]
        if life_of(message.incarnation) < life_of(link.incarnation):
            return []
        effects: Effects = []
        if link.state == ASKED:
            self._take(link, message)
            self._accept(link)
            if link.ready and not message.ready:  # it may not have understood that we are
                effects.append(Send(sender, LinkReady(self.me.incarnation)))
        if message.ready and life_of(message.incarnation) == life_of(link.incarnation):
            link.peer_ready = True
        return [*effects, *self._come_up(link)]

    def on_ready(self, sender: NodeId, incarnation: int) -> Effects:
        link = self.links.get(sender)
        if link is None or life_of(link.incarnation) != life_of(incarnation):
            return []
        link.peer_ready = True
        return self._come_up(link)

    def on_record_known(self, version: int) -> Effects:
        """All holders of our record have this version, or a later one.

        Who leaves brings up no more links: it is mended around by the record that it left with.
        """
        effects: Effects = []
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

    def tick(self, successors: tuple[NodeId, ...]) -> Effects:
        effects: Effects = []
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

    def on_heartbeat(self, sender: NodeId, beat: Heartbeat) -> Effects:
        link = self.links.get(sender)
        if link is None:
            return [Send(sender, Stranger(beat.incarnation))]
        if beat.incarnation != link.incarnation:
            if life_of(beat.incarnation) < life_of(link.incarnation):
                return []
            if link.incarnation and life_of(beat.incarnation) > life_of(link.incarnation):
                return [*self._drop(link, "restarted"), Send(sender, Stranger(beat.incarnation))]
        self.suspicion.heard(sender)
        effects: Effects = []
        if link.state == ASKED:  # it took our Connect; its answer was lost
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
                if beat.acknowledged < self.me.topics_version:  # it has left topics without knowing of ours
                    self.left_alone |= link.interest & ~topics & self.me.interest
                self._interest(link, topics, beat.version)
            if link.state == UP:
                self.hints.told(sender, beat.hints)
                link.heard = beat.version
        return effects

    def heard(self, peer: NodeId) -> None:
        self.suspicion.heard(peer)

    # Losing

    def on_stranger(self, sender: NodeId, message: Stranger) -> Effects:
        link = self.links.get(sender)
        if link is None or life_of(message.incarnation) != life_of(self.me.incarnation):
            return []
        if link.state == ASKED and link.tries < 2:  # about an earlier link: ours is still under way
            return []
        if link.is_closing:  # it has closed its end, as we have asked
            return self._drop(link, "closed")
        if link.state == UP:
            self.me.refute(self.me.incarnation)  # it may have mended around us: our next loss is another one
        return self._drop(link, "stranger")

    def on_disconnect(self, sender: NodeId, message: Disconnect) -> Effects:
        link = self.links.get(sender)
        if link is None or life_of(message.incarnation) < life_of(link.incarnation):
            return []
        if not message.version:
            return self._drop(link, "closed")
        if link.state != UP or message.version != self.me.topics_version:
            return []  # since our answer we may have taken up a topic that only this link covers
        return [*self._drop(link, "closed"), Send(sender, Disconnect(self.me.incarnation))]

    def on_peer_down(self, peer: NodeId) -> Effects:
        link = self.links.get(peer)
        return self._drop(link, "silent") if link is not None else []

    def close(self, peer: NodeId) -> Effects:
        """In order: nothing depends on this link."""
        link = self.links.get(peer)
        if link is None:
            return []
        return [*self._drop(link, "closed", tell=False), Send(peer, Disconnect(self.me.incarnation))]

    def interest_changed(self, successors: tuple[NodeId, ...]) -> Effects:
        """Our topics have changed: links that share none any more are closed, and the others hear of it.

        A short list is told at once, so that a neighbor that has a new topic of ours as well can begin with it. A long
        one waits for the next heartbeat: a client may take up topics one by one.
        """
        effects: Effects = []
        is_told = len(self.me.topics) <= TOLD_AT_ONCE
        for link in list(self.links.values()):
            link.acknowledged = 0  # a topic that is newly shared has hints that were not told
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

    def _accept(self, link: Link) -> None:
        """The peer is there. The record is renewed unless it names the peer in this life already."""
        link.state = OPENING
        if not (link.needs and life_of(link.expected) == life_of(link.incarnation)):
            self._renew(link)

    def _take(self, link: Link, message: Connect | ConnectOk) -> None:
        link.incarnation, link.degree, link.topics_version = message.incarnation, message.degree, message.version
        self._interest(link, self.me.table.bits(message.topics), message.version)
        self.suspicion.heard(link.peer)

    def _interest(self, link: Link, interest: int, version: int) -> None:
        if version < link.interest_version:
            return  # overtaken: nobody would say the newer again
        link.interest_version = version
        if interest != link.interest:
            if link.interest & ~interest:
                self.hints.forget(link.peer, but=interest)
            if link.state == UP:
                self.hints.tell_again(interest & ~link.interest)
            link.interest = interest

    def _renew(self, link: Link) -> None:
        link.needs, link.ready = -1, False  # the node writes the version in when it has renewed the record
        self.is_changed = True

    def _come_up(self, link: Link) -> Effects:
        if link.state != OPENING or not link.ready or not link.peer_ready:
            return []
        link.state = UP
        self.me.degree += 1
        askers, link.askers = link.askers, []
        told = [effect for asker in askers for effect in self._tell(asker, Opened(link.peer, link.topics_version))]
        return [LinkUp(link.peer), *told]

    def _tell(self, asker: Asker, opened: Opened | None = None) -> Effects:
        """Tell a coordinator of its links in one message, when none of them is awaited here any more."""
        found = self._opened.setdefault(asker, [])
        if opened is not None:
            found.append(opened)
        if any(asker in link.askers for link in self.links.values()) and len(found) <= PEERS_MAX:
            return []
        del self._opened[asker]
        if not found:
            return []
        first, *more = found
        version = self.me.topics_version
        return [Send(asker[0], LinkOpened(asker[1], first.peer, version, first.peer_version, tuple(more)))]

    def _drop(self, link: Link, why: str, *, tell: bool = True) -> Effects:
        del self.links[link.peer]
        self.suspicion.unwatch(link.peer)
        effects: Effects = []
        was_up = link.state == UP
        if was_up:
            self.me.degree -= 1
            self.hints.forget(link.peer)
            effects.append(LinkDown(link.peer))
        self.is_shrunk = self.is_shrunk or link.state != ASKED or link.needs != 0
        for asker in link.askers:
            effects += self._tell(asker)
        if tell:
            self.lost.append(
                Lost(link.peer, link.incarnation, link.interest, why, link.successors, was_up, link.degree)
            )
        return effects

    def _heartbeat(self, link: Link, successors: tuple[NodeId, ...]) -> Heartbeat:
        me, known = self.me, link.acknowledged
        if link.state != UP:  # nothing that could be acknowledged
            return Heartbeat(me.incarnation, link.ready, me.degree, 0, link.heard, successors)
        topics = me.topics if known < me.topics_version else None
        hints, version = self.hints.news(link.interest & me.interest, known)
        return Heartbeat(me.incarnation, link.ready, me.degree, version, link.heard, successors, topics, hints)
