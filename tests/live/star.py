"""A star of network namespaces around a router that can drop what goes between any two of them, without a word.

n0 10.92.0.2 --- router --- 10.92.1.2 n1
                   |
          clients 10.92.2.2
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Star:
    def __init__(self, places: Iterable[str]) -> None:
        self.hosts = {place: f"10.92.{number}.2" for number, place in enumerate(places)}
        self._mark = f"ts{os.getpid()}"

    def inside(self, place: str, *command: str) -> list[str]:
        """Return the command that runs another one inside the namespace of a place."""
        return ["ip", "netns", "exec", self._name(place), *command]

    def cut(self, one: str, other: str) -> None:
        self._rules("add", one, other)

    def heal(self, one: str, other: str) -> None:
        self._rules("del", one, other)

    def set_up(self) -> None:
        for place in (*self.hosts, "router"):
            _ip("netns", "add", self._name(place))
            _ip("-n", self._name(place), "link", "set", "lo", "up")
        for number, (place, host) in enumerate(self.hosts.items()):
            inner, outer, gateway = self._name(place), f"to{number}", f"10.92.{number}.1"
            _ip("-n", inner, "link", "add", "up0", "type", "veth", "peer", outer, "netns", self._name("router"))
            _ip("-n", inner, "address", "add", f"{host}/24", "dev", "up0")
            _ip("-n", self._name("router"), "address", "add", f"{gateway}/24", "dev", outer)
            _ip("-n", inner, "link", "set", "up0", "up")
            _ip("-n", self._name("router"), "link", "set", outer, "up")
            _ip("-n", inner, "route", "add", "default", "via", gateway)
        forward = "open('/proc/sys/net/ipv4/ip_forward', 'w').write('1')"
        _run(*self.inside("router", sys.executable, "-I", "-c", forward))

    def tear_down(self) -> None:
        for place in (*self.hosts, "router"):
            subprocess.run(["ip", "netns", "del", self._name(place)], check=False, capture_output=True, timeout=30)

    def _rules(self, what: str, one: str, other: str) -> None:
        """A packet that a blackhole rule fits is dropped, and nobody is told."""
        for source, target in ((one, other), (other, one)):
            words = ("from", self.hosts[source], "to", self.hosts[target], "blackhole")
            _ip("-n", self._name("router"), "rule", what, *words)

    def _name(self, place: str) -> str:
        return f"{self._mark}{place}"


@contextmanager
def star(*places: str) -> Iterator[Star]:
    found = Star(places)
    try:
        found.set_up()
        yield found
    finally:
        found.tear_down()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
