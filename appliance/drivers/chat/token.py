"""Signs tokens as a local site's issuer does; the edge's token core says what they must hold.

A token is a JWT: header and claims, and a signature over both (RFC 7515, compact serialisation). It
is put together here because the library that verifies them takes a fifth of the time of a `send`.
"""

import base64
import hashlib
import json
import os
import re
import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.base.errors import ConfigurationError
from appliance.formats.client.rights import RIGHTS

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


def parse_duration(text: str) -> int:
    """Seconds of `90s`, `15m`, `12h`, `7d`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ConfigurationError(f"--ttl is {text!r}; allowed: a number and s, m, h or d, as 12h")
    return int(found[1]) * _UNITS[found[2]]


def parse_rights(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """The claim of `*=read,send` and `team-*=moderate`."""
    rights: dict[str, list[str]] = {}
    for text in texts:
        pattern, sign, names = text.rpartition("=")
        chosen = [name.strip() for name in names.split(",")]
        if not sign or not pattern or any(name not in RIGHTS for name in chosen):
            raise ConfigurationError(
                f"--right is {text!r}; allowed: PATTERN=RIGHT,... with the rights "
                f"{', '.join(RIGHTS)}, as '*=read,send'"
            )
        rights.setdefault(pattern, []).extend(chosen)
    return rights


def load_key(pem: bytes, path: str) -> Ed25519PrivateKey:
    """The issuer's private key; ConfigurationError names the file when it is none."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{path} is no private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(f"{path} is no private key of Ed25519")
    return key


def key_id(key: Ed25519PrivateKey) -> str:
    """The thumbprint of RFC 7638 by which the nodes' key set names the public half."""
    raw = key.public_key().public_bytes_raw()
    public = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(raw)}
    canonical = json.dumps(public, sort_keys=True, separators=(",", ":"))
    return _base64url(hashlib.sha256(canonical.encode()).digest())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sign(
    key: Ed25519PrivateKey,
    *,
    issuer: str,
    audience: str,
    user: str,
    rights: dict[str, list[str]],
    ttl_s: int,
) -> str:
    """A token for `user`, valid from now on for `ttl_s` seconds."""
    now = int(time.time())
    claims = {
        "iss": issuer,
        "aud": audience,
        "sub": user,
        "jti": os.urandom(12).hex(),
        "iat": now,
        "nbf": now,
        "exp": now + ttl_s,
        "rights": rights,
    }
    header = {"alg": "EdDSA", "kid": key_id(key), "typ": "JWT"}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (header, claims))
    signed = ".".join(map(_base64url, parts))
    return f"{signed}.{_base64url(key.sign(signed.encode()))}"
