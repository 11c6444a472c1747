"""The score of a run: its numbers, and the verdict whether it was good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trellis.protocols.overlays import overlay_of

# Keys of the JSON output that differ from the names of their fields. Scripts read them, so they stay as they are.
_KEYS = {
    "client_kind": "doors",
    "repairs_of_splits": "mends_of_splits",
    "unrepaired": "unmended",
    "repair_ms_p50": "mend_ms_p50",
    "repair_ms_p99": "mend_ms_p99",
    "hang_repair_ms_p50": "hang_mend_ms_p50",
    "hang_repair_ms_p99": "hang_mend_ms_p99",
    "repairs": "mends",
}


class Score(msgspec.Struct, kw_only=True, rename=_KEYS):
    nodes: int
    topics: int
    overlay: str
    client_kind: str  # how clients talk to nodes
    copies: int
    seed: int
    seconds: float  # under traffic
    published: int
    acknowledged: int
    refused: int  # not acknowledged in time, or their publisher died
    refusals: dict[str, int] = {}  # why, and how many of them
    refused_max: float = 1.0  # share of all publications that may be refused
    delivered: int
    expected: int  # deliveries that were owed; others may have happened too
    missing: int
    forgone: int  # deliveries that were lost with all copies of their message: beyond the promise
    duplicates: int
    excused: int  # duplicates that a broker sent again because its sidecar died before it acknowledged them
    repeats_max: int = 0  # most messages that a broker may send again for each killed sidecar
    disordered: int  # deliveries after a later message of the same publisher and topic
    strays: int  # deliveries of messages that were not published, or not on that topic
    kills: int
    kills_at_once: int  # largest number of nodes that were killed within two seconds
    hangs: int
    leaves: int
    starts: int  # starts of nodes that were down
    skipped: int  # steps that could not be done; in a run with regular kills, only if no kill could be done
    faults_asked: bool = False  # The run was to have faults: steps, or regular kills.
    faults_done: int = 0  # faults of any kind that were carried out
    links: int
    planned_links: int  # links that the mesh started with
    degree_max: int
    degree_mean: float
    one_sided_links: int
    split_topics: int
    repairs_of_splits: int  # kills that split a topic
    unrepaired: int  # kills and hangs after which some topic stayed split
    repair_ms_p50: int | None  # from a kill until every topic was connected again
    repair_ms_p99: int | None
    hang_repair_ms_p50: int | None  # from the beginning of a hang until every topic was connected again
    hang_repair_ms_p99: int | None
    delivery_ms_p50: float | None
    delivery_ms_p99: float | None
    repairs: list[dict[str, object]]
    processes: int  # largest number of nodes that ran at the same time
    node_failures: int  # nodes that ended by themselves
    client_reconnects: int
    cpu_s: float  # of all nodes together

    @property
    def refused_share(self) -> float:
        """Return the share of all publications that were not acknowledged."""
        return self.refused / self.published if self.published else 0.0

    def faults(self) -> Iterator[str]:
        """Yield what was wrong with the run. It was good if there is nothing."""
        promises = overlay_of(self.overlay).connects_topics
        if not self.published:
            yield "nothing was published"
        elif not self.acknowledged:
            yield "nothing was acknowledged"
        if self.refused_share > self.refused_max:
            yield (
                f"{_percent(self.refused_share)} of the publications were not acknowledged, and "
                f"{_percent(self.refused_max)} may be (--refused-max)"
            )
        if self.missing:
            yield f"{self.missing} acknowledged deliveries are missing"
        if self.forgone and self.kills_at_once < self.copies:
            yield f"{self.forgone} deliveries were lost, although never as many nodes died at once as there are copies"
        if self.duplicates > self.excused:
            yield f"{self.duplicates - self.excused} were delivered twice"
        if self.disordered or self.strays:
            yield f"{self.disordered} were out of order, {self.strays} not what was published"
        if self.split_topics and promises:
            yield f"{self.split_topics} topics are split at the end"
        if self.one_sided_links and promises:
            yield f"{self.one_sided_links} links stand at one end only"
        if self.unrepaired and promises:
            yield f"{self.unrepaired} kills or hangs were never repaired"
        if self.node_failures:
            yield f"{self.node_failures} nodes ended by themselves"
        if self.skipped and not self.faults_done:
            yield f"no fault that was asked for happened: {self.skipped} could not be done"
        elif self.skipped:
            yield f"{self.skipped} steps could not be done"

    def verdict(self) -> str:
        """Return one line that says whether the run is good, in the numbers of `rows`."""
        faults = list(self.faults())
        if faults:
            return f"not good: {'; '.join(faults)}"
        parts = ["nothing missing"]
        if self.forgone:
            parts.append(f"{self.forgone:,} lost with all their copies at once, which copies do not survive")
        parts.append(f"{self.duplicates:,} twice, as {self._bound} allow" if self.duplicates else "nothing twice")
        if overlay_of(self.overlay).connects_topics:
            parts.append("every topic whole")
        if self.faults_asked and not self.faults_done:
            parts.append("but no fault happened: the run was over before the first one was due")
        return f"good: {', '.join(parts)}"

    @property
    def _bound(self) -> str:
        """The limit for messages that come twice, in words."""
        return f"{self.kills:,} killed sidecars (each: at most {self.repeats_max} messages)"

    def to_json(self) -> dict[str, Any]:
        faults = list(self.faults())
        fields = msgspec.to_builtins(self)
        return {"ok": not faults, "faults": faults, **fields, "refused_share": round(self.refused_share, 4)}

    def rows(self) -> Iterator[tuple[str, object]]:
        """Yield the rows of the table for the terminal."""
        yield "nodes, topics", f"{self.nodes}, {self.topics} ({self.overlay}, {self.copies} copies)"
        if self.client_kind != "trellis":
            yield (
                "clients speak",
                "MQTT to the nodes" if self.client_kind == "mqtt" else f"MQTT to {self.client_kind} beside the nodes",
            )
        yield "under traffic", f"{self.seconds:.0f} s, {self.cpu_s:.0f} s of computing by all nodes"
        yield "published", self.published
        yield "acknowledged", self.acknowledged
        share, most = _percent(self.refused_share), _percent(self.refused_max)
        yield "not acknowledged", f"{self.refused:,} ({share}; {most} may be)"
        for why, count in sorted((self.refusals or {}).items(), key=lambda item: (-item[1], item[0])):
            yield "  of them", f"{count:,}: {why}"
        yield "deliveries owed", self.expected
        yield "missing", self.missing
        if self.forgone:
            yield "lost with all their copies at once", self.forgone
        yield "delivered, others too", self.delivered
        yield "delivered twice", self.duplicates
        if self.client_kind == "mosquitto":
            yield "  of them allowed", f"{self.excused:,}: sent again for {self._bound}"
        yield "delay of delivery, p50 and p99", _pair(self.delivery_ms_p50, self.delivery_ms_p99)
        yield "kills, hangs, departures, starts", f"{self.kills}, {self.hangs}, {self.leaves}, {self.starts}"
        yield "kill to connected, p50 and p99", _pair(self.repair_ms_p50, self.repair_ms_p99)
        if self.hangs:
            yield "hang to connected, p50 and p99", _pair(self.hang_repair_ms_p50, self.hang_repair_ms_p99)
        planned = f" ({self.planned_links} planned)" if self.planned_links else ""
        yield "links, degrees", f"{self.links}{planned}; {self.degree_mean:.2f} on average, {self.degree_max} at most"
        yield "topics split at the end", self.split_topics


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _pair(first: float | None, second: float | None) -> str:
    return "-" if first is None or second is None else f"{first:,.0f} ms, {second:,.0f} ms"
