"""Authenticate clients, and load the files that this needs: access list, passwords, token key.  [docs/access.md]

`Gate` holds the files of one node. The client port and the MQTT listener ask it who a client is (`Gate.prove`). What a
user may then do is decided by the access list (`Gate.access`, from `protocols/access`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.errors import InputError
from trellis.live.clock import wall_s
from trellis.live.config import AccessConfig
from trellis.live.mqtt.passwords import Passwords, read_passwords
from trellis.live.tls import signature, user_of
from trellis.protocols.access.decide import Access
from trellis.protocols.access.rules import FILE_BYTES_MAX, Rules, parse_rules
from trellis.protocols.access.tokens import KEY_BYTES_MIN, LEEWAY_S, TokenError, is_token, read_token

log = logging.getLogger("trellis.live")

_KEY_BYTES_MAX = 4_096


@dataclass(frozen=True)
class Proven:
    """The result for a client that is admitted."""

    user: str | None = None  # The name that the client has proven. None: it has proven none.
    left_s: float | None = None  # Seconds until its token expires. None: it gave no token.


def read_rules(path: str, where: str = "access.acl") -> Rules:
    """Return the rules of an access list. Raise InputError, prefixed with `where`, if the file cannot be used."""
    try:
        return parse_rules(_read(path, FILE_BYTES_MAX), path)
    except InputError as error:
        raise InputError(f"{where}: {error.where}" if where else error.where, error.what, error.remedy) from None


def read_key(path: str) -> bytes:
    """Return the key by which tokens are checked: the bytes of the file without trailing line ends."""
    where = "access.jwt_key"
    try:
        key = _read(path, _KEY_BYTES_MAX).rstrip(b"\r\n")
    except InputError as error:
        raise InputError(f"{where}: {error.where}", error.what, error.remedy) from None
    if key.startswith(b"-----BEGIN"):
        remedy = "give the secret that issuer and nodes share, in a file of its own"
        raise InputError(where, f"{path} is in PEM, and tokens are checked by HS256 alone", remedy)
    if len(key) < KEY_BYTES_MIN:
        remedy = f"give {KEY_BYTES_MIN} or more, such as: openssl rand -hex 32"
        raise InputError(where, f"{path} has {len(key)} bytes", remedy)
    return key


def _read(path: str, bytes_max: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower(), "name a file that this user can read") from None
    if len(data) > bytes_max:
        raise InputError(path, f"it has more than {bytes_max} bytes", "name a smaller file")
    return data


class Gate:
    """Hold the access files of one node, and tell who its clients are.

    The node calls `look` regularly, so files can be replaced while it runs. If a new file cannot be used, all old files
    stay in use and `trouble` says why.
    """

    def __init__(self, node: str, config: AccessConfig, mqtt_users: str = "") -> None:
        """Load the files. Raise InputError if one cannot be used. `mqtt_users`: the value of `mqtt.users`."""
        self.node, self.config, self._mqtt_users = node, config, mqtt_users
        self.trouble = ""  # Why the newest files are not in use. Empty if they are.
        self.files = tuple(filter(None, (config.acl, config.users, config.jwt_key, mqtt_users)))
        self.access: Access | None = None
        self._passwords: Passwords | None = None
        self._mqtt_passwords: Passwords | None = None
        self._key: bytes | None = None
        # Signatures of the files: as of the last look, and as of the last successful load.
        self._seen = self._loaded = signature(self.files)
        self._load()

    def _load(self) -> None:
        """Read all files, then put all of them into use. If one raises InputError, nothing changes."""
        config = self.config
        rules = read_rules(config.acl) if config.acl else None
        passwords = read_passwords(config.users, "access.users") if config.users else None
        mqtt = read_passwords(self._mqtt_users) if self._mqtt_users else None
        key = read_key(config.jwt_key) if config.jwt_key else None
        self._passwords, self._mqtt_passwords, self._key = passwords, mqtt, key
        if rules is not None and self.access is not None:
            self.access.use(rules)
        elif rules is not None:
            self.access = Access(rules)

    def look(self, *, at_once: bool = False) -> bool:
        """Load the files if they have changed. Return whether they were loaded and are in use now.

        A changed file is loaded only if it is the same as at the previous look, so that it is not read half-written.
        `at_once`: load all files now, whether or not they have changed.
        """
        present = signature(self.files)
        is_settled, self._seen = present == self._seen, present
        if not at_once and (present == self._loaded or not is_settled):
            if present == self._loaded:
                self.trouble = ""  # the files that could not be used were replaced by the old ones
            return False
        try:
            self._load()
        except InputError as error:
            if self.trouble != str(error):
                self.trouble = str(error)
                log.warning("%s: new access files cannot be used, the old ones stay: %s", self.node, error)
            return False
        self.trouble, self._loaded = "", present
        count = len(self.access.rules.rules) if self.access is not None else 0
        log.info("%s: loaded its access files: %d rules", self.node, count)
        return True

    def warnings(self) -> list[str]:
        """Return warnings for the operator, one sentence each."""
        return [f"new access files are not in use: {self.trouble}"] if self.trouble else []

    # Authentication

    @property
    def is_slow(self) -> bool:
        """Return whether `prove` may take tens of milliseconds to hash a password. Then call it in a thread."""
        return self._passwords is not None or self._mqtt_passwords is not None

    def prove(
        self, user: str | None, password: bytes | None, certificate: Mapping[str, Any], *, is_mqtt: bool
    ) -> Proven | None:
        """Return the user that a client has proven to be, or None if the client must be refused.

        A password or token that can be checked must be right. A client without a password is the user that its
        certificate names. A client of MQTT needs a password if `mqtt.users` is configured. Where there is neither a
        password file nor a token key, names and passwords are ignored.
        """
        shown = user_of(certificate) if certificate else None
        passwords = (self._mqtt_passwords if is_mqtt else None) or self._passwords
        is_demanded = is_mqtt and self._mqtt_passwords is not None
        if self._key is not None and password is not None and is_token(password):
            return self._by_token(self._key, user, password)
        if not is_demanded and password is None and user in (None, "", shown):
            return Proven(shown)
        if passwords is not None:
            return Proven(user) if passwords.is_right(user, password) else None
        return None if self._key is not None else Proven(shown)  # nothing to check the name against

    def _by_token(self, key: bytes, user: str | None, token: bytes) -> Proven | None:
        """Return the user that a token names, and for how long it is valid. None, and a log line, if it is refused."""
        now_s = wall_s()
        try:
            said = read_token(token, key, now_s, self.config.jwt_audience)
            if user and user != said.sub:
                raise TokenError("it is for another user than the one that the client names")
        except TokenError as error:
            log.warning("%s: refused a client: %s", self.node, f"its token is not accepted: {error}")
            return None
        return Proven(said.sub, said.exp + LEEWAY_S - now_s)
