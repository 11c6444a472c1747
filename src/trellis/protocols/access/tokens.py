"""Signed tokens (JWT, RFC 7519) that a client gives as its password.  [docs/access.md, Tokens]

J1  The signature is checked first, with HS256 and our key, whatever algorithm the token names.
J2  A token is valid from `nbf` until `exp`, and `exp` must be there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any

import msgspec

from trellis.errors import TrellisError
from trellis.protocols.access.rules import USER_LETTERS_MAX
from trellis.protocols.wire import is_printable

TOKEN_BYTES_MAX = 8_192
KEY_BYTES_MIN = 32  # as long as the hash [RFC 7518, 3.2]
LEEWAY_S = 10  # The clocks of the issuer and of this node may differ by this much.

_FORM = re.compile(rb"\A([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\Z")


class TokenError(TrellisError):
    """A token that proves nothing. The text says why, for the node's log."""


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token that we use."""

    sub: str
    exp: int | float
    nbf: int | float = 0
    aud: str | list[str] | None = None


class _Head(msgspec.Struct, frozen=True):
    """The header of a token."""

    alg: str
    crit: Any = None


_heads, _claims = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Claims)


def is_token(password: bytes) -> bool:
    """Return whether a password has the form of a token."""
    return password.startswith(b"eyJ") and password.count(b".") == 2


def read_token(token: bytes, key: bytes, now_s: float, audience: str = "") -> Claims:
    """Return the claims of a token. Raise TokenError if it is not signed with `key`, or not valid at `now_s`.

    `audience` is our name in `aud`. If it is empty, a token that names an audience is refused.
    """
    found = _FORM.match(token) if len(token) <= TOKEN_BYTES_MAX else None
    if found is None:
        raise TokenError("it has not the form of a token")
    head, claims, signature = found.groups()
    wanted = hmac.digest(key, head + b"." + claims, hashlib.sha256)
    if not hmac.compare_digest(wanted, _decoded(signature)):  # J1
        raise TokenError("its signature is wrong")
    try:
        about, said = _heads.decode(_decoded(head)), _claims.decode(_decoded(claims))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenError("sub and exp are missing, or have the wrong type") from None
    if about.alg != "HS256" or about.crit is not None:
        raise TokenError("it asks for another algorithm than HS256, or for an extension (crit)")
    if said.exp + LEEWAY_S <= now_s:
        raise TokenError("it has expired")
    if said.nbf - LEEWAY_S > now_s:
        raise TokenError("it is not valid yet")
    if not is_printable(said.sub) or len(said.sub) > USER_LETTERS_MAX:
        raise TokenError("its sub cannot be the name of a user")
    named = [said.aud] if isinstance(said.aud, str) else said.aud
    is_meant = audience in (named or ()) if audience else named is None
    if not is_meant:
        raise TokenError("its aud does not name this mesh (access.jwt_audience)")
    return said


def _decoded(part: bytes) -> bytes:
    """Return the bytes of a base64url part, or b"" if its length is impossible."""
    if len(part) % 4 == 1:
        return b""
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
