"""Users of the MQTT listener and their passwords, hashed with scrypt.

    python -m trellis.live.mqtt.passwords FILE USER        asks for the password, adds or replaces the line

A line is `user:n$r$p$salt$hash`, with salt and hash in hexadecimal.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import secrets
import sys
from pathlib import Path

from trellis.errors import InputError
from trellis.files import written_whole

_N, _R, _P = 1 << 14, 8, 1  # 16 MiB, about 40 ms
_N_MAX, _R_MAX, _P_MAX = 1 << 18, 16, 8
USERS_MAX = 100_000


def hash_password(password: bytes, salt: bytes | None = None) -> str:
    """Return `n$r$p$salt$hash` for a password."""
    salt = secrets.token_bytes(16) if salt is None else salt
    return f"{_N}${_R}${_P}${salt.hex()}${_scrypt(password, salt, _N, _R, _P).hex()}"


class Passwords:
    """The users of one file."""

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users
        self._nobody = hash_password(secrets.token_bytes(16))

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self._users)

    def is_right(self, user: str | None, password: bytes | None) -> bool:
        """Return whether a password is right. It computes for tens of milliseconds, so call it in a thread.

        It takes about as long for an unknown user, so that the time does not tell which users exist.
        """
        known = self._users.get(user or "")
        n, r, p, salt, digest = (known or self._nobody).split("$")
        computed = _scrypt(password or b"", bytes.fromhex(salt), int(n), int(r), int(p))
        return hmac.compare_digest(computed, bytes.fromhex(digest)) and known is not None and password is not None


def read_passwords(path: str, where: str = "mqtt.users") -> Passwords:
    """Return the users of a file. `where` is the key that names the file, for errors. Raises `InputError`."""
    users: dict[str, str] = {}
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InputError(where, f"{path}: {why}", "name a file that this user can read") from None
    except UnicodeDecodeError:
        raise InputError(where, f"{path}: not text", "make it with python -m trellis.live.mqtt.passwords") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        user, _, hashed = line.rpartition(":")
        if not user or not _is_hash(hashed):
            remedy = "make it with python -m trellis.live.mqtt.passwords"
            raise InputError(where, f"{path}:{number}: not user:n$r$p$salt$hash", remedy)
        users[user] = hashed
    if len(users) > USERS_MAX:
        raise InputError(where, f"{path}: {len(users)} users", f"give {USERS_MAX} or fewer")
    return Passwords(users)


def _is_hash(hashed: str) -> bool:
    """Return whether a text is `n$r$p$salt$hash`, with parameters that we accept."""
    parts = hashed.split("$")
    try:
        n, r, p = (int(text) for text in parts[:3])
        salt, digest = (bytes.fromhex(text) for text in parts[3:])
    except ValueError:
        return False
    is_sound = 1 < n <= _N_MAX and n & (n - 1) == 0 and 0 < r <= _R_MAX and 0 < p <= _P_MAX
    return is_sound and len(salt) >= 8 and len(digest) == 32


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=32)


def main(arguments: list[str]) -> int:
    """Add or replace a user. Return the exit code."""
    if len(arguments) != 2 or not arguments[1] or "\n" in arguments[1]:
        sys.stderr.write("usage: python -m trellis.live.mqtt.passwords FILE USER\n")
        return 2
    path, user = Path(arguments[0]), arguments[1]
    password = getpass.getpass(f"password of {user}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    try:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if line.rpartition(":")[0] != user]
        with written_whole(path, private=True) as part:
            part.write_text("\n".join([*kept, f"{user}:{hash_password(password.encode())}"]) + "\n", "utf-8")
    except (OSError, UnicodeDecodeError, InputError) as error:
        told = error if isinstance(error, InputError) else f"{path}: cannot be read ({error}); name another file"
        sys.stderr.write(f"{told}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
