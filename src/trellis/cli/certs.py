"""`trellis certs ca`, `certs node NAME`, `certs client NAME`: an authority for a cluster, and its certificates.

A certificate says in an alternative name of the kind URI whether its holder is a node or a client (`live/tls.py`).
Names of hosts in it are for programs that compare them; they are no names of nodes.

Python's standard library reads certificates and makes none; the `openssl` program, which most machines have, does.
Keys are made on elliptic curves (P-256) and are readable by their owner alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from trellis.cli.common import AsJson, examples, show, table
from trellis.errors import InputError
from trellis.protocols.wire import node_name_fault

EXAMPLE = examples(
    "trellis certs ca", "trellis certs node a", "trellis certs node b --host b.example.org", "trellis certs client ann"
)
app = typer.Typer(no_args_is_help=True, epilog=EXAMPLE)

_HOST = re.compile(r"[A-Za-z0-9*][A-Za-z0-9.*-]{0,252}")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_CA = """\
[req]
prompt = no
distinguished_name = name
x509_extensions = authority
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_SIGNED = """\
[req]
prompt = no
utf8 = yes
string_mask = utf8only
distinguished_name = name
[name]
CN = {name}
[signed]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectAltName = {alternatives}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""

Folder = Annotated[Path, typer.Option("--folder", "-d", help="Where the files are.", metavar="DIR")]


@app.callback()
def _certs() -> None:
    """Certificates for mutual TLS: an authority once, then one certificate for each node and client."""


@app.command("ca", epilog=examples("trellis certs ca --name 'plant 7'"))
def authority(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option("--name", help="Name of the authority.")] = "trellis",
    days: Annotated[int, typer.Option("--days", help="How long it is valid.", min=1)] = 3_650,
    as_json: AsJson = False,
) -> None:
    """Make an authority: ca.pem, for all nodes and clients, and ca.key, which signs and should not be on nodes."""
    if not name.isprintable() or not 0 < len(name) <= 64 or set(name) & set('\\\\$"#'):
        raise InputError(
            "--name", f'"{name}" cannot be a name here', "give 1 to 64 letters, without quotes, $, # and \\"
        )
    _check_days(days)
    certificate, key = folder / "ca.pem", folder / "ca.key"
    for path in (certificate, key):
        if path.exists():
            remedy = "name another --folder; docs/runbook.md says how to change an authority"
            raise InputError(str(path), "is there already, and certificates depend on it", remedy)
    program = _openssl()
    _make(folder)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        config = _written(Path(work) / "ca.cnf", _CA.format(name=name))
        _run(
            program, "req", "-x509", "-config", config, *_new_key(f"{work}/key"), "-days", str(days),
            "-out", f"{work}/pem",
        )  # fmt: skip
        _keep(work, certificate, key)
    _show({"certificate": certificate, "key": key}, "next: trellis certs node NAME, trellis certs client NAME", as_json)


@app.command("node", epilog=EXAMPLE)
def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The node's name, as in node.toml.", show_default=False)],
    folder: Folder = Path("certs"),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or address by which MQTT clients and browsers reach it; may be repeated.",
            metavar="HOST",
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", help="How long it is valid.", min=1)] = 397,
    as_json: AsJson = False,
) -> None:
    """Sign a certificate for a node: NAME.pem and NAME.key. Its holder may join the mesh as NAME.

    Run it again for the same name to replace the key and the files. A running node loads them by itself.
    """
    from trellis.live.tls import node_uri

    _check_name(name)
    mine = [name] if _HOST.fullmatch(name.replace("_", "-")) else []  # for programs that compare host names
    names = [f"URI:{node_uri(name)}", *(_alternative(one) for one in [*mine, *_LOCAL, *(hosts or ())])]
    files = _sign(folder, name, "node", names, "serverAuth, clientAuth", days)
    quoted = {what: json.dumps(str(path), ensure_ascii=False) for what, path in files.items()}
    told = "node.toml: [tls] cert = {certificate}, key = {key}, ca = {authority}"
    _show(files, told.format(**quoted), as_json)


CLIENT_EXAMPLE = examples(
    "trellis certs client ann", "trellis pub news hello --ca certs/ca.pem --cert certs/ann.pem --key certs/ann.key"
)


@app.command("client", epilog=CLIENT_EXAMPLE)
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name, for people.", show_default=False)],
    folder: Folder = Path("certs"),
    days: Annotated[int, typer.Option("--days", help="How long it is valid.", min=1)] = 397,
    as_json: AsJson = False,
) -> None:
    """Sign a certificate for a client: NAME.pem and NAME.key. Its holder may use client and admin ports only."""
    from trellis.live.tls import CLIENT_URI

    _check_name(name)
    files = _sign(folder, name, "client", [f"URI:{CLIENT_URI}{quote(name, safe='')}"], "clientAuth", days)
    quoted = {what: shlex.quote(str(path)) for what, path in files.items()}
    told = "trellis pub TOPIC MESSAGE --cert {certificate} --key {key} --ca {authority}"
    _show(files, told.format(**quoted), as_json)


def _check_days(days: int) -> None:
    """Refuse an end after the year 9999, which no certificate can name."""
    most = (datetime.date.max - datetime.datetime.now(datetime.UTC).date()).days
    if days > most:
        raise InputError("--days", f"{days} days from now are beyond the year 9999", f"give at most {most}")


def _check_name(name: str) -> None:
    """Check a name. It must be possible as a node's name, and as the name of a file."""
    fault = node_name_fault(name)
    if fault is not None:
        raise InputError("NAME", *fault)
    if name == "ca" or name.startswith(".") or "/" in name:
        raise InputError("NAME", f'"{name}" cannot be the name of a file here', "leave out / and dots in front; not ca")


def _escaped(name: str) -> str:
    """Return a name as a value in a configuration of openssl. A common name has at most 64 letters."""
    return re.sub(r"([\\\"'#$,;=])", r"\\\1", name[:64])


def _sign(folder: Path, name: str, role: str, alternatives: list[str], usage: str, days: int) -> dict[str, Path]:
    """Make a key and a certificate, and return the files. A certificate of the other role is not written over."""
    _check_days(days)
    certificate, key, ca, ca_key = (folder / one for one in (f"{name}.pem", f"{name}.key", "ca.pem", "ca.key"))
    for path in (ca, ca_key):
        if not path.exists():
            raise InputError(str(path), "is not there", f"make an authority first: trellis certs ca --folder {folder}")
    program = _openssl()
    other = "client" if role == "node" else "node"
    if certificate.exists() and f"URI:trellis:{other}:" in _run(
        program, "x509", "-noout", "-text", "-in", str(certificate)
    ):
        raise InputError(str(certificate), f"is the certificate of a {other}", "choose another name or --folder")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        text = _SIGNED.format(name=_escaped(name), usage=usage, alternatives=", ".join(alternatives))
        config = _written(Path(work) / "signed.cnf", text)
        _run(program, "req", "-new", "-config", config, *_new_key(f"{work}/key"), "-out", f"{work}/csr")
        _run(
            program, "x509", "-req", "-in", f"{work}/csr", "-CA", str(ca), "-CAkey", str(ca_key),
            "-set_serial", str(secrets.randbits(120) + 1), "-days", str(days), "-extfile", config,
            "-extensions", "signed", "-out", f"{work}/pem",
        )  # fmt: skip
        _keep(work, certificate, key)
    return {"certificate": certificate, "key": key, "authority": ca}


def _openssl() -> str:
    program = shutil.which("openssl")
    if program is None:
        raise InputError("openssl", "the program is not installed", "install it (apt install openssl), then try again")
    return program


def _new_key(path: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        if not _HOST.fullmatch(host.replace("_", "-")):
            raise InputError(f"--host {host}", "is no name or address of a host", "write it without a port") from None
        return f"DNS:{host}"


def _run(program: str, *arguments: str) -> str:
    """Run openssl and return its output. Files that it makes can be read by their owner alone."""
    done = subprocess.run(
        [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, umask=0o077,
        env={**os.environ, "OPENSSL_CONF": os.devnull},
    )  # fmt: skip
    if done.returncode:
        told = " ".join(done.stderr.split())
        raise InputError("openssl", f"{arguments[0]} failed: {told}", "see whether openssl is version 1.1.1 or newer")
    return done.stdout


def _keep(work: str, certificate: Path, key: Path) -> None:
    """Let all users read a certificate."""
    Path(work, "pem").chmod(0o644)
    Path(work, "key").replace(key)
    Path(work, "pem").replace(certificate)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), error.strerror or "cannot be made", "name a folder that can be made") from None


def _written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def _show(files: dict[str, Path], hint: str, as_json: bool) -> None:
    told = {what: str(path) for what, path in files.items()}
    show(told, as_json, [*table(list(told.items())), hint])
