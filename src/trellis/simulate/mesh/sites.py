"""Model sites: a node that is the sidecar of a broker, and what the broker's clients may expect of the mesh.

A broker's SUBACK says nothing about the mesh. A client at a broker may expect messages of other sites under two
conditions:
- The sidecar has acknowledged the line of the broker's log that reports the subscription. Then it is saved.
- Since then nothing has disturbed the mesh for `LEARNED_S`, and for `registered_ms` no node has started, ended or been
  cut off for long. Before that the homes of topics are not sure of the subscribers, and a first subscriber waits for
  that [docs/delivery.md, How long a confirmation takes]. If the sidecar has restarted meanwhile, it is enough that it
  says that it is ready (`/readyz`).
While the sidecar is down nothing is owed: the mesh does not know its broker's clients.  [docs/mqtt.md, Sidecar]

All of this can be observed from outside, at the broker and at the node's admin port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trellis.judge.history import Confirmed, Subscribing, Unsubscribing
from trellis.live.health import unready
from trellis.simulate.mesh.broker import Broker, Store
from trellis.simulate.mesh.witness import Witness
from trellis.simulate.whole.whole import MQTT, Mesh

LEARNED_S = 8.0  # In a calm mesh, a subscription that the sidecar has read is known everywhere after this time.
_JOINS_S = 2.0  # A node is on the ring this long after its start.
_LOOK_S = 0.25


@dataclass
class _Wish:
    """A subscription at the broker."""

    client: str
    read_s: float | None = None  # when we first saw that the sidecar has read it
    is_saved: bool = False  # True: the sidecar had read it before it restarted.
    is_confirmed: bool = False


class Site:
    """A broker, its sidecar, and the subscriptions of the broker's clients."""

    def __init__(self, name: str, node: str, mesh: Mesh, witness: Witness, registered_s: float) -> None:
        """`name` is the name of the broker and of its host."""
        self.name, self.node, self.mesh, self.witness, self.registered_s = name, node, mesh, witness, registered_s
        self.store = Store()
        # True: the sidecar could not write a while ago, so what it has read may not survive a restart.
        self.is_forgetful = False
        self.is_down = False  # True: the sidecar has crashed or leaves, according to the history.
        self._wishes: dict[tuple[str, str], _Wish] = {}  # by session and filter

    @property
    def address(self) -> str:
        return self.mesh.address(self.name, MQTT)

    @property
    def is_behind(self) -> bool:
        """Return whether the broker has messages that its sidecar has not taken yet."""
        session = self.store.sessions.get(f"trellis-{self.node}")
        return session is not None and bool(session.queue or session.flying)

    def start(self) -> None:
        """Start the broker's process."""
        self.mesh.world.say(f"{self.name} starts")
        self.mesh.host(self.name).start(self._serve())

    async def _serve(self) -> None:
        await Broker(self.store).serve(self.mesh.host(self.name).address, MQTT)

    # Called by clients of the broker

    def subscribed(self, session: str, client: str, wanted: str) -> None:
        """Note a subscription that the broker has confirmed, or that a returning client still has."""
        self._wishes[session, wanted] = _Wish(client)

    def has_read(self, session: str, wanted: str) -> bool:
        """Return whether the sidecar has read the subscription. Without that it cannot be expected to remember it."""
        wish = self._wishes.get((session, wanted))
        return wish is not None and (wish.is_saved or self.store.is_read(wish.client, wanted))

    def gone(self, session: str, wanted: str) -> None:
        self._wishes.pop((session, wanted), None)

    def away(self, session: str) -> list[str]:
        """Note that a session has no connection now. Return its filters."""
        found = [wanted for one, wanted in self._wishes if one == session]
        for wanted in found:
            del self._wishes[session, wanted]
        return found

    # Called when something happens to the sidecar

    def sidecar_is_down(self) -> None:
        """Record that nothing is owed to the broker's clients from now on."""
        self.is_down, now = True, self.witness.now()
        for (session, wanted), wish in self._wishes.items():
            if wish.is_confirmed:
                self.witness.add(Unsubscribing(now, session, wanted))
                self.witness.add(Subscribing(now, session, wanted))
            is_read = wish.is_saved or self.store.is_read(wish.client, wanted)
            wish.is_saved = is_read and not self.is_forgetful
            wish.is_confirmed, wish.read_s = False, None

    def watch(self) -> None:
        """Look now and every `_LOOK_S` for subscriptions that the mesh must know."""
        if not self.is_down and self.node in self.mesh.nodes:
            self._look()
        self.mesh.world.after(_LOOK_S, self.watch)

    def _look(self) -> None:
        """Record as confirmed the subscriptions that the mesh must know by now."""
        now = self.witness.now()
        waiting = [(key, one) for key, one in self._wishes.items() if not one.is_confirmed]
        host = self.mesh.host(self.node)
        if not waiting or host.loop is None or host.call(unready, self.mesh.nodes[self.node]):
            return
        for (session, wanted), wish in waiting:
            if not self.store.is_read(wish.client, wanted):
                continue
            if wish.read_s is None:
                wish.read_s = now
            if wish.is_saved or now >= self.known_s(wish.read_s):
                wish.is_confirmed = True
                self.witness.add(Confirmed(now, session, wanted))

    def known_s(self, read_s: float) -> float:
        """Return when the mesh knows a subscription that the sidecar read at `read_s`, if no further fault happens."""
        learned_s = max(read_s, self.witness.disturbed_until) + LEARNED_S
        return max(learned_s, self.witness.changed_until + _JOINS_S + self.registered_s)


class Place(NamedTuple):
    """The place where an MQTT client connects: the listener of a node, or the broker beside it."""

    node: str
    site: Site | None = None
