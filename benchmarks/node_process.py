"""Nodes in processes of their own, and what they cost: shared by the benchmarks of the live mesh."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def start(name: str, seeds: str = "", *options: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """A node on free ports of loopback, and what it says of itself when it is up."""
    command = [sys.executable, "-m", "trellis", "node", "--json", "--name", name, "--listen", "127.0.0.1:0"]
    command += ["--client-listen", "127.0.0.1:0", *options, *(["--seeds", seeds] if seeds else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
