"""What an access list costs: a node's throughput of MQTT messages, with no list and with one of many rules.

    .venv/bin/python benchmarks/bench_acl.py [--rules 1000] [--messages 20000] [--rounds 5]

A process runs one node. A client publishes with QoS 1 and `--window` messages under way, on `--topics` topics in turn,
and `--readers` clients read all of them through a wildcard. Every publication and every delivery is checked. A third
of the rules are for everyone, and they match none of the topics; a third belongs to other users; the rest are rules of
the group of these clients. Runs without and with the list take turns, since the speed of a machine drifts, and the
first two do not count: a node that has just started waits until it is sure that it is alone. `computing` is the time
of the node's process for one message, which other programs disturb least.

`decision` is the time of one decision alone: remembered, and made anew.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from bench_mqtt import Client
from node_process import cpu_s, start
from trellis.live.mqtt.passwords import hash_password
from trellis.live.run import run_loop
from trellis.protocols.access.decide import Access, Who
from trellis.protocols.access.rules import parse_rules
from trellis.protocols.mqtt import packets as p

USER, PASSWORD = "bench", b"a password of the benchmark"


def access_list(count: int) -> str:
    """Return a list with `count` rules, by which the clients of the benchmark may do what they do."""
    third = count // 3
    lines = ["default deny", "[everyone]", *(f"deny readwrite secret/{number}/#" for number in range(third))]
    for number in range(third):
        lines += [f"[user somebody {number}]", f"allow readwrite bench/t/{number}"]
    lines += ["[group readers]", f"member {USER}", "allow readwrite bench/#"]
    lines += [f"allow readwrite home/+/room {number}" for number in range(count - 2 * third - 1)]
    return "\n".join(lines)


async def connected(address: str, name: str) -> Client:
    return await Client.connect(address, name, user=USER, password=PASSWORD)


async def publish(client: Client, asked: Namespace) -> None:
    free, sent, done = asked.window, 0, 0
    while done < asked.messages:
        packets = []
        while free and sent < asked.messages:
            topic = f"bench/t/{sent % asked.topics}"
            packets.append(p.Publish(topic=topic, payload=bytes(asked.payload), qos=1, id=sent % 60_000 + 1))
            sent, free = sent + 1, free - 1
        client.send(*packets)
        answers = [one for one in await client.read() if isinstance(one, p.Ack)]
        assert all(one.reason < 128 for one in answers), "a publication was refused"
        done, free = done + len(answers), free + len(answers)


async def read(client: Client, count: int) -> None:
    while count > 0:
        count -= sum(isinstance(one, p.Publish) for one in await client.read())


async def measure(address: str, pid: int, asked: Namespace) -> tuple[float, float]:
    """Return messages a second, and the node's computing time for one message in microseconds."""
    writer = await connected(address, "writer")
    readers = [await connected(address, f"reader{number}") for number in range(asked.readers)]
    for one in readers:
        one.send(p.Subscribe(1, (p.Asked("bench/t/+", 0),)))
        while not any(isinstance(packet, p.SubAck) for packet in await one.read()):
            pass
    began, computed = time.perf_counter(), cpu_s(pid)
    await asyncio.gather(publish(writer, asked), *(read(one, asked.messages) for one in readers))
    took_s, used_s = time.perf_counter() - began, cpu_s(pid) - computed
    for one in (writer, *readers):
        one.send(p.Disconnect())
        one.writer.close()
    return asked.messages / took_s, 1e6 * used_s / asked.messages


def decisions(rules: int) -> tuple[float, float]:
    """Return the microseconds of a decision that is remembered, and of one that is not."""
    access, who = Access(parse_rules(access_list(rules).encode(), "list")), Who(USER, "reader")
    topics = [f"bench/t/{number}" for number in range(1_000)]
    times: list[list[float]] = [[], []]
    for _ in range(20):
        access.use(access.rules)  # forgets all decisions
        for place in (1, 0):
            began = time.perf_counter()
            for topic in topics:
                access.rights(who, topic)
            times[place].append(time.perf_counter() - began)
    return 1e3 * statistics.median(times[0]), 1e3 * statistics.median(times[1])


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--payload", type=int, default=128)
    asked = parser.parse_args()
    known, anew = decisions(asked.rules)
    print(f"decision   {asked.rules} rules  remembered {known:.2f} us  made anew {anew:.2f} us", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        acl, users = Path(folder) / "list.acl", Path(folder) / "users"
        acl.write_text(access_list(asked.rules))
        users.write_text(f"{USER}:{hash_password(PASSWORD)}\n")
        listener = ("--set", "mqtt.listen=127.0.0.1:0", "--set", f"mqtt.users={users}")
        nodes = {
            "no list": start("a", "", *listener),
            f"{asked.rules} rules": start("b", "", *listener, "--set", f"access.acl={acl}"),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in nodes}
        try:
            for _ in range(1 + asked.rounds):
                for name, (process, about) in nodes.items():
                    found[name].append(run_loop(measure(about["mqtt_listen"], process.pid, asked)))
        finally:
            for process, _ in nodes.values():
                process.kill()
                process.wait()
    medians = {name: [statistics.median(one) for one in zip(*runs[1:], strict=True)] for name, runs in found.items()}
    for name, (rate, computing) in medians.items():
        print(f"{name:12} {rate:8.0f} messages a second  computing {computing:6.1f} us a message")
    (rate, computing), (rate_with, computing_with) = medians.values()
    print(f"the list costs {100 * (1 - rate_with / rate):.1f} % of throughput, ", end="")
    print(f"and {100 * (computing_with / computing - 1):.1f} % more computing")


if __name__ == "__main__":
    main()
