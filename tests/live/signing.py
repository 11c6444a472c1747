"""Certificates for tests, signed by openssl with any extensions, and files that a test may replace."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from trellis.live.config import TlsConfig
from trellis.live.tls import make_context

Sign = Callable[..., TlsConfig]


CLIENT = ("extendedKeyUsage = clientAuth", "subjectAltName = URI:trellis:client:ann")


def node_of(*names: str) -> tuple[str, str]:
    uris = ", ".join(f"URI:trellis:node:{name}" for name in names)
    return "extendedKeyUsage = serverAuth, clientAuth", f"subjectAltName = {uris}, DNS:localhost"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def signer(folder: Path) -> Sign:
    """Sign by any authority, as an operator without `trellis certs` would."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    serial = iter(range(1, 1_000))

    def signed(
        common: str, *extensions: str, days: int = 2, authority: str = "ca", dates: tuple[str, str] | None = None
    ) -> TlsConfig:
        """Return the files of a new certificate. `dates` are its first and its last moment, for `openssl ca`."""
        ca, ca_key, one = f"{authority}.pem", f"{authority}.key", f"{next(serial)}"
        if not (folder / ca).exists():
            subject = ["-subj", f"/CN={authority}", "-keyout", ca_key, "-out", ca]
            openssl(folder, "req", "-x509", *new, "-days", "9", *subject)
        openssl(folder, "req", *new, "-subj", f"/CN={common}", "-keyout", f"{one}.key", "-out", f"{one}.csr")
        (folder / f"{one}.cnf").write_text("\n".join(extensions))
        if dates is None:
            openssl(
                folder, "x509", "-req", "-in", f"{one}.csr", "-CA", ca, "-CAkey", ca_key, "-set_serial", one,
                "-days", str(days), "-extfile", f"{one}.cnf", "-out", f"{one}.pem",
            )  # fmt: skip
        else:
            _sign_between(folder, one, ca, ca_key, dates)
        return TlsConfig(
            cert=str(folder / f"{one}.pem"), key=str(folder / f"{one}.key"), ca=str(folder / ca), reload_s=0.05
        )

    return signed


_SIGNING = """\
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def _sign_between(folder: Path, one: str, ca: str, ca_key: str, dates: tuple[str, str]) -> None:
    """Sign with dates. `openssl x509` takes none before version 3.4, and `openssl ca` always did."""
    (folder / "index.txt").touch()
    (folder / "ca.cnf").write_text(_SIGNING)
    openssl(
        folder, "ca", "-batch", "-config", "ca.cnf", "-in", f"{one}.csr", "-cert", ca, "-keyfile", ca_key, "-startdate",
        dates[0], "-enddate", dates[1], "-extfile", f"{one}.cnf", "-notext", "-out", f"{one}.pem",
    )  # fmt: skip


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def replace(to: TlsConfig, by: TlsConfig) -> None:
    for old, new in ((to.cert, by.cert), (to.key, by.key), (to.ca, by.ca)):
        shutil.copyfile(new, f"{old}.new")
        Path(f"{old}.new").replace(old)


def shown_at(port: int, tls: TlsConfig) -> Callable[[], object]:
    async def serial() -> object:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=make_context(tls, server=False))
        found = writer.get_extra_info("peercert")["serialNumber"]
        await end(writer)
        return found

    return serial


def copied(tls: TlsConfig, folder: Path) -> TlsConfig:
    """Files of its own, so that a test can replace them."""
    folder.mkdir()
    for path in (tls.cert, tls.key, tls.ca):
        shutil.copy(path, folder)
    one = {key: str(folder / Path(getattr(tls, key)).name) for key in ("cert", "key", "ca")}
    return TlsConfig(**one, reload_s=tls.reload_s)
