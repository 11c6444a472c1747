"""deploy/kubernetes/mesh.yaml without a cluster: what it says agrees, and its containers, run here, form a mesh.

Only names of pods and 0.0.0.0 are replaced by 127.0.0.1, ports by free ones, the path of the volume, and periods by
quicker ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import trellis
from release.test_by_hand import QUICK as QUICK_SETTINGS
from trellis.cli.main import run as trellis_run
from trellis.live.config import TlsConfig
from trellis.live.tls import make_context

yaml = pytest.importorskip("yaml", reason="PyYAML, which comes with amqtt, is not installed")

DEPLOY = Path(__file__).parents[2] / "deploy"
TEXT = (DEPLOY / "kubernetes" / "mesh.yaml").read_text("utf-8")
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
OBJECTS: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(TEXT)}
SERVICE, STATEFUL_SET, BUDGET = (OBJECTS[kind] for kind in ("Service", "StatefulSet", "PodDisruptionBudget"))
POD = STATEFUL_SET["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
PODS = [f"{STATEFUL_SET['metadata']['name']}-{number}" for number in range(STATEFUL_SET["spec"]["replicas"])]
LONG_S = 90.0
QUICK = {f"TRELLIS_{key.replace('.', '_').upper()}": str(value) for key, value in QUICK_SETTINGS.items()}


def commands() -> list[list[str]]:
    """The commands that the head of the manifest says to type."""
    head = TEXT[: TEXT.index("apiVersion:")].replace("\\\n#", " ")
    lines = [line.removeprefix("#").strip() for line in head.splitlines()]
    return [shlex.split(line) for line in lines if re.match(r"(trellis|kubectl) \w+ ", line)]


def secret_files() -> dict[str, str]:
    """Files of the Secret, by their names in it, and where `kubectl` is told to take them from."""
    (create,) = [
        words for words in commands() if words[:5] == ["kubectl", "create", "secret", "generic", "trellis-tls"]
    ]
    paths = [word.removeprefix("--from-file=") for word in create[5:]]
    return {Path(path).name: path for path in paths}


def environment(pod: str) -> dict[str, str]:
    """As a kubelet sets it: $(NAME) is replaced by variables that come before."""
    found: dict[str, str] = {}
    for one in CONTAINER["env"]:
        if "valueFrom" in one:
            assert one["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            found[one["name"]] = pod
        else:
            known = dict(found)
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name, known=known: known[name[1]], one["value"])
    return found


# What the files say


def test_objects_select_the_pods_and_ports_that_are_there():
    labels = POD["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == labels
    assert STATEFUL_SET["spec"]["selector"]["matchLabels"] == BUDGET["spec"]["selector"]["matchLabels"] == labels
    assert STATEFUL_SET["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    ports = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert {one["name"]: one["port"] for one in SERVICE["spec"]["ports"]} == ports
    given = environment(PODS[0])
    listening = {"peers": "TRELLIS_LISTEN", "clients": "TRELLIS_CLIENT_LISTEN", "admin": "TRELLIS_ADMIN_LISTEN"}
    assert {name: int(given[key].rpartition(":")[2]) for name, key in listening.items()} == ports
    exposed = re.findall(r"^EXPOSE (.+)$", CONTAINERFILE, re.MULTILINE)
    assert sorted(map(int, exposed[0].split())) == sorted(ports.values())


def test_seeds_and_advertised_addresses_are_names_that_the_service_gives_to_pods():
    service, port = SERVICE["metadata"]["name"], environment(PODS[0])["TRELLIS_LISTEN"].rpartition(":")[2]
    known = {f"{pod}.{service}:{port}" for pod in PODS}
    assert {environment(pod)["TRELLIS_ADVERTISE"] for pod in PODS} == known
    seeds = environment(PODS[0])["TRELLIS_SEEDS"].split(",")
    assert set(seeds) < known
    assert len(seeds) == 2
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert SERVICE["spec"]["publishNotReadyAddresses"] is True


def test_each_pod_has_a_certificate_of_its_own_in_the_secret():
    (volume,), (mount,) = POD["spec"]["volumes"], CONTAINER["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert not {"subPath", "subPathExpr"} & mount.keys(), "such files are not renewed while a pod runs"
    assert volume["secret"]["secretName"] == "trellis-tls"
    files, used = secret_files(), set()
    for pod in PODS:
        given = environment(pod)
        paths = [Path(given[f"TRELLIS_TLS_{one}"]) for one in ("CA", "CERT", "KEY")]
        assert {str(path.parent) for path in paths} == {mount["mountPath"]}
        assert {path.name for path in paths} <= files.keys()
        used |= {path.name for path in paths}
        assert ["trellis", "certs", "node", pod, "--host", f"{pod}.trellis"] in commands()
    assert used == files.keys(), "nothing else is given away, the authority's key least of all"
    assert len({environment(pod)["TRELLIS_TLS_CERT"] for pod in PODS}) == len(PODS)


def test_the_image_is_the_one_that_the_containerfile_builds():
    (tag,) = re.findall(r"podman build -f deploy/Containerfile -t (\S+) \.", CONTAINERFILE)
    assert CONTAINER["image"] == tag == f"trellis:{trellis.__version__}"
    (user,) = re.findall(r"^USER (\d+)$", CONTAINERFILE, re.MULTILINE)
    assert POD["spec"]["securityContext"] == {"runAsNonRoot": True, "runAsUser": int(user), "fsGroup": int(user)}
    assert "command" not in CONTAINER, "the image's entry point is run"


# What they do


@pytest.fixture
def secret(tmp_path, monkeypatch) -> Path:
    """The volume, filled by the commands in the manifest's head."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which signs certificates, is not installed")
    monkeypatch.chdir(tmp_path)
    for words in commands():
        if words[:2] == ["trellis", "certs"]:
            assert trellis_run(words[1:]) == 0
    volume = tmp_path / "volume"
    volume.mkdir()
    for name, path in secret_files().items():
        shutil.copy(path, volume / name)
    return volume


def free_ports() -> dict[tuple[str, str], int]:
    with ExitStack() as stack:
        found = {}
        for pod in PODS:
            for one in CONTAINER["ports"]:
                taken = stack.enter_context(socket.socket())
                taken.bind(("127.0.0.1", 0))
                found[pod, str(one["containerPort"])] = taken.getsockname()[1]
        return found


def local(pod: str, volume: Path, ports: dict[tuple[str, str], int]) -> dict[str, str]:
    """The environment of a pod, as it is on this machine."""
    found = {}
    for name, text in environment(pod).items():
        text = re.sub(r"0\.0\.0\.0:(\d+)", lambda here: f"127.0.0.1:{ports[pod, here[1]]}", text)
        text = re.sub(r"([\w-]+)\.trellis:(\d+)", lambda there: f"127.0.0.1:{ports[there[1], there[2]]}", text)
        found[name] = re.sub(r"^/tls(?=/)", str(volume), text)
    return found


def probed(kind: str, given: dict[str, str]) -> str:
    """Run a probe of the manifest once. Return why it fails; empty if it does not."""
    program, *words = CONTAINER[kind]["exec"]["command"]
    assert program == "python"
    done = subprocess.run([sys.executable, *words], env={**os.environ, **given}, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def ready(process: subprocess.Popen[str], given: dict[str, str]) -> Iterator[str]:
    """Run the readiness probe until it says yes; what it says before."""
    until = time.monotonic() + LONG_S
    while process.poll() is None and time.monotonic() < until:
        told = probed("readinessProbe", given)
        if not told:
            return
        yield told
    raise AssertionError(f"{given['TRELLIS_NAME']} does not become ready")


def test_a_node_that_waits_for_its_seeds_is_alive_and_not_ready(secret):
    given = local(PODS[2], secret, free_ports()) | QUICK
    (entry,) = re.findall(r"^ENTRYPOINT (\[.+])$", CONTAINERFILE, re.MULTILINE)
    command = [sys.executable, "-m", *json.loads(entry)]
    assert "refused" in probed("livenessProbe", given), "nothing runs yet"
    process = subprocess.Popen(command, env={**os.environ, **given}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "it is up"
        assert not probed("livenessProbe", given)
        assert "503" in probed("readinessProbe", given)
    finally:
        process.kill()
        process.communicate()


def test_the_containers_of_the_manifest_form_a_mesh_with_tls_that_delivers(secret, tmp_path):
    assert trellis_run(["certs", "client", "ann"]) == 0
    ports = free_ports()
    (entry,) = re.findall(r"^ENTRYPOINT (\[.+])$", CONTAINERFILE, re.MULTILINE)
    words = json.loads(entry)
    with ExitStack() as stack:
        started = {}
        for pod in PODS:
            given = local(pod, secret, ports) | QUICK
            log = stack.enter_context((tmp_path / f"{pod}.log").open("w"))
            process = subprocess.Popen(
                [sys.executable, "-m", *words], env={**os.environ, **given}, stdout=log, stderr=log, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started[pod] = process, given
        for process, given in started.values():
            for _ in ready(process, given):
                pass
        asyncio.run(deliver(tmp_path, started[PODS[0]][1], started[PODS[-1]][1]))
        assert all(process.poll() is None for process, _ in started.values())
    for pod in PODS:
        log = (tmp_path / f"{pod}.log").read_text()
        assert "certificate" not in log, f"nobody is refused: {log}"


async def deliver(folder: Path, publisher: dict[str, str], subscriber: dict[str, str]) -> None:
    files = {
        one: str(folder / "certs" / name) for one, name in (("cert", "ann.pem"), ("key", "ann.key"), ("ca", "ca.pem"))
    }
    tls = make_context(TlsConfig(**files), server=False)
    async with (
        asyncio.timeout(LONG_S),
        trellis.connect(subscriber["TRELLIS_CLIENT_LISTEN"], tls=tls) as there,
        trellis.connect(publisher["TRELLIS_CLIENT_LISTEN"], tls=tls) as here,
    ):
        await there.subscribe("news")
        await here.publish("news", b"from pod to pod")
        assert (await anext(there)).payload == b"from pod to pod"
