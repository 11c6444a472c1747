"""From the logs of the brokers you have to a mesh: who wants what, a plan, and a node.toml for each site.

    python examples/operator/from_logs.py examples/operator/logs/*.log --output mesh
    trellis up --interests mesh/interests.tsv --duration 30      # the same mesh on this machine, with nodes killed

Mosquitto logs a subscription as `time: client qos topic` (log_type subscribe, or all). What a broker's clients want,
the broker wants; so a log file is a node. A filter with a wildcard becomes the topics seen anywhere that it matches.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import trellis

SUBSCRIBED = re.compile(r"(?P<time>\d\S*): (?P<client>\S+) [012] (?P<filter>\S+)$")


def filters_in(log: Path) -> set[str]:
    """Everything that clients of this broker have subscribed to."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return {found["filter"] for line in lines if (found := SUBSCRIBED.match(line))}


def matches(pattern: str, topic: str) -> bool:
    """MQTT's wildcards: + is one level, # is the rest."""
    levels, names = pattern.split("/"), topic.split("/")
    if levels[-1] == "#":
        levels, names = levels[:-1], names[: len(levels) - 1]
    return len(levels) == len(names) and all(one in ("+", name) for one, name in zip(levels, names, strict=True))


def wanted(logs: list[Path]) -> dict[str, set[str]]:
    filters = {log.stem: filters_in(log) for log in logs}
    topics = {one for some in filters.values() for one in some if not set("+#") & set(one)}
    return {node: {one for one in topics if any(matches(each, one) for each in filters[node])} for node in filters}


def main(logs: list[Path], output: Path) -> trellis.Overlay:
    wishes = {node: topics for node, topics in wanted(logs).items() if topics}
    if not wishes:
        raise SystemExit("no line of these logs is `time: client qos topic`; set log_type subscribe in mosquitto.conf")
    for log in logs:
        if log.stem not in wishes:
            print(f"{log.stem} is left out: its clients want no topic that is named anywhere")
    interests = trellis.Interests.from_pairs(wishes)
    output.mkdir(exist_ok=True)
    trellis.write_table(interests.to_table(), output / "interests.tsv")

    made = trellis.plan(interests, rho=3)
    found = trellis.check(interests, made.overlay)
    trellis.write_table(made.overlay.to_table(), output / "overlay.tsv")
    print(f"{found.nodes} brokers, {found.topics} topics, {interests.subscriptions} wishes")
    print(f"{found.links} links connect every topic: {found.is_tco}; at most {found.degrees.maximum} at one broker")
    print(f"a full mesh has {found.nodes * (found.nodes - 1) // 2}")

    # A live mesh links itself: the plan tells beforehand what that takes. Each site gets its own file.
    names = list(interests.nodes)
    seeds = [f"127.0.0.1:{7001 + place}" for place in range(min(2, len(names)))]
    for place, name in enumerate(names):
        topics = [interests.topics[topic] for topic in interests.topics_of(place)]
        (output / f"{name}.toml").write_text(
            f"name = {json.dumps(name)}\n"
            f'listen = "127.0.0.1:{7001 + place}"\nclient_listen = "127.0.0.1:{7101 + place}"\n'
            f'admin_listen = "127.0.0.1:{9001 + place}"\nseeds = {json.dumps(seeds)}\ntopics = {json.dumps(topics)}\n',
            "utf-8",
        )
    print(f"start each with: trellis node --config {output}/{names[0]}.toml")
    return made.overlay


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Broker logs to a mesh.")
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("mesh"))
    given = parser.parse_args()
    main(given.logs, given.output)
