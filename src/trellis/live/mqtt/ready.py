"""Whether a sidecar that has started has taken up its broker's subscriptions again.  [docs/mqtt.md, A restart]"""

from __future__ import annotations

from trellis.live.mqtt.sidecar import Sidecar
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.topics import pattern_of
from trellis.reached import reached

_REFUSED_TOLD = 4  # most refused filters that /healthz names


class Readiness:
    """What is not confirmed yet since the start."""

    def __init__(self, host: Host, client: str, sidecar: Sidecar) -> None:
        """`client`: the sidecar's name as a client of `host`."""
        self.host, self.client, self.sidecar = host, client, sidecar
        self._unconfirmed: dict[str, None] = dict.fromkeys(sidecar.bridge.wanted)
        self._is_subscribing = True  # The broker has not confirmed our subscriptions.

    def pending(self) -> list[str]:
        """Return what is not confirmed yet since the start, one sentence each. Messages are missed until then.

        A filter that was refused is no longer waited for: `refused` reports it.
        """
        session = self.host.sessions.get(self.client)
        wanted = session.subscriptions if session is not None else {}
        for filter_ in list(self._unconfirmed):
            pattern = pattern_of(filter_, self.host.config.depth)
            if filter_ not in wanted or self.host.subscriptions.is_ready(pattern):
                del self._unconfirmed[filter_]
                reached("a remembered filter is confirmed again")
        self._is_subscribing = self._is_subscribing and self.sidecar.is_subscribing
        count = len(self._unconfirmed)
        told = [f"The mesh has not confirmed {count} filters of the broker's clients yet."] if count else []
        if self._is_subscribing:
            told.append("The broker has not confirmed this node's subscriptions yet.")
        return told

    def refused(self) -> list[str]:
        """Return which filters the mesh refuses, and why, one sentence each."""
        return [
            f"The mesh refuses the filter {filter_} of the broker's clients: {why}."
            for filter_, why in list(self.host.subscriptions.refused.items())[:_REFUSED_TOLD]
        ]
