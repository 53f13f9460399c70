"""HTTP Digest with `qop=auth`: what is hashed, and how its header fields are written and read.

RFC 2617 for MD5, RFC 7616 for SHA-256. Not spoken: other schemes, Digest without qop, auth-int,
the -sess variants, userhash.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

MD5, SHA256 = "MD5", "SHA-256"
ALGORITHMS = {MD5: "md5", SHA256: "sha256"}  # name on the wire -> name of the hash
METHOD = "GET"

_ACCEPT_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COUNT = re.compile(r"[0-9a-f]{8}")


class DigestMalformed(Exception):
    """A header field does not follow the grammar."""


def hashed(algorithm: str, text: str) -> str:
    """Lower-case hex over the UTF-8 bytes of `text`."""
    return hashlib.new(ALGORITHMS[algorithm], text.encode(), usedforsecurity=False).hexdigest()


def secret_of(algorithm: str, *, username: str, realm: str, password: str) -> str:
    """H(A1): what a server keeps instead of the password."""
    return hashed(algorithm, f"{username}:{realm}:{password}")


def response_of(
    algorithm: str, secret: str, *, nonce: str, nc: str, cnonce: str, uri: str, method: str = METHOD
) -> str:
    """The proof of a request; with an empty `method`, that of the answer (rspauth)."""
    request = hashed(algorithm, f"{method}:{uri}")
    return hashed(algorithm, f"{secret}:{nonce}:{nc}:{cnonce}:auth:{request}")


def accept_of(key: str) -> str:
    """Sec-WebSocket-Accept for a Sec-WebSocket-Key."""
    digest = hashlib.new("sha1", (key + _ACCEPT_SUFFIX).encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parameters_of(value: str, offset: int = 0) -> dict[str, str]:
    """`name=value, name="value"` with names in lower case. DigestMalformed otherwise."""
    found: dict[str, str] = {}
    while True:
        while offset < len(value) and value[offset] in " \t,":
            offset += 1
        if offset == len(value):
            return found
        name, offset = _token(value, offset)
        text, offset = _equals(value, offset)
        if name.lower() in found:
            raise DigestMalformed(f"{name} stands there twice")
        found[name.lower()] = text


def challenges_of(value: str) -> list[tuple[str, dict[str, str]]]:
    """(scheme in lower case, parameters) of one WWW-Authenticate, which may hold several."""
    found: list[tuple[str, dict[str, str]]] = []
    offset = 0
    while True:
        while offset < len(value) and value[offset] in " \t,":
            offset += 1
        if offset == len(value):
            return found
        name, offset = _token(value, offset)
        if offset < len(value) and value[offset] == "=":
            text, offset = _equals(value, offset)
            if not found or name.lower() in found[-1][1]:
                raise DigestMalformed(f"{name} belongs to no scheme")
            found[-1][1][name.lower()] = text
        else:
            found.append((name.lower(), {}))


def _token(value: str, offset: int) -> tuple[str, int]:
    match = _TOKEN.match(value, offset)
    if match is None:
        raise DigestMalformed(f"no word at {offset}")
    return match[0], match.end()


def _equals(value: str, offset: int) -> tuple[str, int]:
    if value[offset : offset + 1] != "=":
        raise DigestMalformed(f"no = at {offset}")
    offset += 1
    match = _QUOTED.match(value, offset)
    if match is not None:
        return re.sub(r"\\(.)", r"\1", match[1]), match.end()
    return _token(value, offset)


@dataclass(slots=True, frozen=True)
class Challenge:
    """What a server asks a client to hash with."""

    realm: str
    nonce: str
    opaque: str
    algorithm: str
    stale: bool = False


def encode_challenge(challenge: Challenge) -> str:
    """Realm, qop, nonce and opaque quoted; algorithm and stale bare."""
    stale = ", stale=true" if challenge.stale else ""
    return (
        f'Digest realm={quoted(challenge.realm)}, qop="auth", algorithm={challenge.algorithm}, '
        f"nonce={quoted(challenge.nonce)}, opaque={quoted(challenge.opaque)}{stale}"
    )


def usable_challenges(values: list[str]) -> list[Challenge]:
    """Those that we speak, of all WWW-Authenticate fields of an answer, in their order."""
    found = []
    for value in values:
        for scheme, words in challenges_of(value):
            offered = [word.strip() for word in words.get("qop", "").split(",")]
            algorithm = words.get("algorithm", MD5)
            known = next((name for name in ALGORITHMS if name == algorithm.upper()), None)
            if scheme != "digest" or "auth" not in offered or known is None:
                continue
            if "realm" not in words or not words.get("nonce"):
                continue
            found.append(
                Challenge(
                    realm=words["realm"],
                    nonce=words["nonce"],
                    opaque=words.get("opaque", ""),
                    algorithm=known,
                    stale=words.get("stale", "").lower() == "true",
                )
            )
    return found


@dataclass(slots=True, frozen=True)
class Authorization:
    """A client's proof; `nc` is eight lower-case hex digits."""

    username: str
    realm: str
    nonce: str
    uri: str
    response: str
    algorithm: str
    nc: str
    cnonce: str
    opaque: str


def encode_authorization(authorization: Authorization) -> str:
    a = authorization
    return (
        f"Digest username={quoted(a.username)}, realm={quoted(a.realm)}, nonce={quoted(a.nonce)}, "
        f'uri={quoted(a.uri)}, response="{a.response}", algorithm={a.algorithm}, qop=auth, '
        f"nc={a.nc}, cnonce={quoted(a.cnonce)}, opaque={quoted(a.opaque)}"
    )


def decode_authorization(value: str) -> Authorization | str:
    """The proof in an Authorization field, or a word for why it is of a kind we do not take.

    DigestMalformed: it is broken.
    """
    scheme, offset = _token(value, 0)
    if scheme.lower() != "digest":
        return "scheme_refused"
    words = parameters_of(value, offset)
    if words.get("userhash", "false").lower() != "false":
        return "userhash_refused"
    if "qop" not in words:
        return "qop_missing"
    if words["qop"] != "auth":
        return "qop_refused"
    algorithm = words.get("algorithm", MD5).upper()
    if algorithm not in ALGORITHMS:
        return "algorithm_refused"
    needed = ("username", "realm", "nonce", "uri", "response", "nc", "cnonce")
    if missing := [name for name in needed if not words.get(name)]:
        raise DigestMalformed(f"{missing[0]} is missing")
    if _COUNT.fullmatch(words["nc"]) is None:
        raise DigestMalformed("nc is not eight hex digits")
    texts = {name: words[name] for name in needed}
    return Authorization(**texts, algorithm=algorithm, opaque=words.get("opaque", ""))
