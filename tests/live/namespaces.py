"""Two network namespaces with a router between them, which can stop to forward: TCP streams across it die in silence.

    left 10.91.1.2 --- 10.91.1.1 router 10.91.2.1 --- 10.91.2.2 right

While the router does not forward, it drops every packet and says nothing: no reset, no ICMP message. So both ends keep
their streams until something of theirs gives up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOSTS = {"left": "10.91.1.2", "right": "10.91.2.2"}
_GATEWAYS = {"left": "10.91.1.1", "right": "10.91.2.1"}


class Router:
    def __init__(self) -> None:
        self._mark = f"tr{os.getpid()}"

    def name(self, place: str) -> str:
        return f"{self._mark}{place}"

    def inside(self, side: str, *command: str) -> list[str]:
        """Return the command that runs another one inside a side's namespace."""
        return ["ip", "netns", "exec", self.name(side), *command]

    def set_up(self) -> None:
        for place in ("left", "right", "router"):
            _ip("netns", "add", self.name(place))
            _ip("-n", self.name(place), "link", "set", "lo", "up")
        for side, host in HOSTS.items():
            here, there = "up0", f"to-{side}"
            _ip("-n", self.name(side), "link", "add", here, "type", "veth", "peer", there, "netns", self.name("router"))
            _ip("-n", self.name(side), "address", "add", f"{host}/24", "dev", here)
            _ip("-n", self.name("router"), "address", "add", f"{_GATEWAYS[side]}/24", "dev", there)
            _ip("-n", self.name(side), "link", "set", here, "up")
            _ip("-n", self.name("router"), "link", "set", there, "up")
            _ip("-n", self.name(side), "route", "add", "default", "via", _GATEWAYS[side])
        self.heal()

    def cut(self) -> None:
        self._forward(0)

    def heal(self) -> None:
        self._forward(1)

    def tear_down(self) -> None:
        for place in ("left", "right", "router"):
            subprocess.run(["ip", "netns", "del", self.name(place)], check=False, capture_output=True, timeout=30)

    def _forward(self, value: int) -> None:
        write = f"open('/proc/sys/net/ipv4/ip_forward', 'w').write('{value}')"
        _run(*self.inside("router", sys.executable, "-I", "-c", write))


def why_not() -> str:
    """Return the reason why namespaces cannot be used here, or nothing."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "ip (iproute2) is not installed"
    router = Router()
    try:
        router.set_up()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return f"network namespaces cannot be made here: {said.strip()[:200]}"
    finally:
        router.tear_down()
    return ""


@contextmanager
def network() -> Iterator[Router]:
    router = Router()
    try:
        router.set_up()
        yield router
    finally:
        router.tear_down()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
