"""Signals to a node as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys


def test_sighup_does_not_end_a_node_without_certificates():
    """`systemctl reload` sends it, whether there are certificates or not."""
    words = ["node", "--name", "a", "--listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--json"]
    node = subprocess.Popen(
        [sys.executable, "-m", "trellis", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert json.loads(node.stdout.readline())["name"] == "a"
        node.send_signal(signal.SIGHUP)
        while "a: was told to load its certificates, and has none" not in (line := node.stderr.readline()):
            assert line, f"the process has ended with {node.wait()}"
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=60)
        assert node.returncode == 0
    finally:
        node.kill()
        node.communicate(timeout=60)
