"""Tokens: who a client is and what he may do, from a JWT signed with Ed25519.

Only EdDSA is accepted, whatever the token's header says, and only with keys that are Ed25519. Times
are compared with a `now` that is given; the JWT library's own clock is not asked.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jwt.algorithms import OKPAlgorithm

from appliance.base.errors import InputError
from appliance.base.limits import (
    CLOCK_SKEW_US,
    ROOM_NAME_SIZE_MAX,
    TOKEN_LIFE_S_DEFAULT,
    TOKEN_RIGHTS_MAX,
    TOKEN_SIZE_MAX,
)
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX, author_id_of
from appliance.formats.client_errors import (
    TokenExpired,
    TokenInvalid,
    TokenKeyUnknown,
    TokenNotYetValid,
    TokenRevoked,
)
from appliance.formats.revocation import JTI_SIZE_MAX

READ, SEND, MODERATE, IMPORT, ADMIN = 1, 2, 4, 16, 31  # admin includes the others
RIGHTS = {"read": READ, "send": SEND, "moderate": MODERATE, "import": IMPORT, "admin": ADMIN}

_OPTIONS: Any = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
_SECOND_US = 1_000_000
_TIME_MAX = 1 << 40  # seconds; keeps microseconds below 2^63

Keys = dict[str, Ed25519PublicKey]


class Claims(NamedTuple):
    """What a verified token says."""

    author: str
    author_id: int
    expires_us: int
    kid: str
    key: bytes  # the public key of that name which verified the token
    rights: tuple[tuple[str, int], ...]  # room pattern, bits
    issued_us: int = 0
    jti: str = ""

    @property
    def may_send(self) -> bool:
        """Whether there could be a room to send to."""
        return any(granted & (SEND | IMPORT) for _, granted in self.rights)

    def rights_in(self, room_name: str) -> int:
        """Bits of all patterns that match, together."""
        bits = 0
        for pattern, granted in self.rights:
            if pattern_matches(pattern, room_name):
                bits |= granted
        return bits


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether `name` is `pattern`, where each * is any text; linear in the name's length."""
    first, *others = pattern.split("*")
    if not others:
        return name == pattern
    last = others.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    offset, end = len(first), len(name) - len(last)
    for part in others:
        offset = name.find(part, offset, end)
        if offset < 0:
            return False
        offset += len(part)
    return True


class Tokens:
    """Verifies tokens of one issuer for one audience; `keys` may be replaced at any time."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        keys: Keys,
        life_s_max: int = TOKEN_LIFE_S_DEFAULT,
    ) -> None:
        self.issuer, self.audience, self.keys = issuer, audience, keys
        self.life_s_max = life_s_max
        self.is_revoked: Callable[[Claims], bool] = lambda claims: False

    def is_trusted(self, claims: Claims) -> bool:
        """Whether the key that verified these claims is still one of the issuer's."""
        key = self.keys.get(claims.kid)
        return key is not None and key.public_bytes_raw() == claims.key

    def verify(self, token: str, now_us: int) -> Claims:
        """The claims of `token`. Raises TokenInvalid, TokenKeyUnknown, TokenExpired,
        TokenNotYetValid, TokenRevoked."""
        kid, key, payload = self._signed(token)
        if payload.get("iss") != self.issuer:
            raise TokenInvalid("issuer is not the one this site trusts")
        audience = payload.get("aud")
        if audience != self.audience and not (type(audience) is list and self.audience in audience):
            raise TokenInvalid("audience is not this site")
        expires_us, before_us, issued_us = (
            _time_us(payload, name) for name in ("exp", "nbf", "iat")
        )
        if now_us >= expires_us:
            raise TokenExpired("the token has expired")
        if max(before_us, issued_us) > now_us + CLOCK_SKEW_US:
            raise TokenNotYetValid("the token is not valid yet")
        if expires_us - issued_us > self.life_s_max * _SECOND_US:
            raise TokenInvalid(
                f"valid for longer than {self.life_s_max} s: this site takes no such token"
            )
        author = _author(payload.get("sub"))
        claims = Claims(
            author=author,
            author_id=author_id_of(author),
            expires_us=expires_us,
            kid=kid,
            key=key.public_bytes_raw(),
            rights=_rights(payload.get("rights")),
            issued_us=issued_us,
            jti=_jti(payload.get("jti", "")),
        )
        if self.is_revoked(claims):
            raise TokenRevoked("the token was revoked")
        return claims

    def verify_still(self, claims: Claims, now_us: int) -> None:
        """What was verified a while ago may not hold any more. Raises TokenExpired,
        TokenKeyUnknown, TokenRevoked."""
        if now_us >= claims.expires_us:
            raise TokenExpired("the token has expired")
        distrust = self.distrust(claims)
        if distrust is not None:
            raise distrust

    def distrust(self, claims: Claims) -> InputError | None:
        """Why these claims, verified a while ago, are not believed any more."""
        if not self.is_trusted(claims):
            return TokenKeyUnknown("the key of this token is not trusted any more")
        if self.is_revoked(claims):
            return TokenRevoked("the token was revoked")
        return None

    def _signed(self, token: str) -> tuple[str, Ed25519PublicKey, dict[str, Any]]:
        """(kid, key, payload) of a token that this key has signed."""
        if len(token) > TOKEN_SIZE_MAX:
            raise TokenInvalid(f"a token has at most {TOKEN_SIZE_MAX} bytes")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenInvalid("not a JWT") from None
        if header.get("alg") != "EdDSA":
            raise TokenInvalid("only EdDSA is accepted")
        kid = header.get("kid")
        if type(kid) is not str:
            raise TokenInvalid("the header names no key (kid)")
        key = self.keys.get(kid)
        if key is None:
            raise TokenKeyUnknown("no public key has this kid")
        try:
            payload = jwt.decode(token, key, algorithms=["EdDSA"], options=_OPTIONS)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenInvalid("the signature is not right") from None
        return kid, key, payload


def _time_us(payload: dict[str, Any], name: str) -> int:
    value: Any = payload.get(name)
    if type(value) not in (int, float) or not 0 <= value < _TIME_MAX:
        raise TokenInvalid(f"claim {name} is missing or no time")
    return int(value * _SECOND_US)


def _author(value: Any) -> str:
    if (
        type(value) is not str
        or not value.isprintable()
        or not 1 <= len(value.encode()) <= AUTHOR_NAME_SIZE_MAX
    ):
        raise TokenInvalid(f"claim sub is not a name of 1 to {AUTHOR_NAME_SIZE_MAX} bytes")
    return value


def _jti(value: Any) -> str:
    if type(value) is not str or len(value.encode(errors="replace")) > JTI_SIZE_MAX:
        raise TokenInvalid(f"claim jti is no text of at most {JTI_SIZE_MAX} bytes")
    return value


def _rights(value: Any) -> tuple[tuple[str, int], ...]:
    if type(value) is not dict or len(value) > TOKEN_RIGHTS_MAX:
        raise TokenInvalid(f"claim rights is not an object of at most {TOKEN_RIGHTS_MAX} patterns")
    rights = []
    for pattern, names in value.items():
        if len(pattern) > ROOM_NAME_SIZE_MAX or type(names) is not list or len(names) > len(RIGHTS):
            raise TokenInvalid("claim rights: a pattern is too long or has no list of rights")
        bits = 0
        for name in names:
            if type(name) is not str or name not in RIGHTS:
                raise TokenInvalid(f"claim rights: only {', '.join(RIGHTS)}")
            bits |= RIGHTS[name]
        rights.append((pattern, bits))
    return tuple(rights)


def parse_jwks(data: bytes) -> Keys:
    """The Ed25519 keys of a JWKS file, by kid; raises ValueError with a reason."""
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from None
    entries = document.get("keys")
    if type(entries) is not list:
        raise ValueError('no list "keys"')
    keys: Keys = {}
    for entry in entries:
        if type(entry) is not dict or type(entry.get("kid")) is not str:
            raise ValueError("a key without kid")
        try:
            key = OKPAlgorithm.from_jwk(entry)
        except (jwt.PyJWTError, ValueError) as error:
            raise ValueError(f"key {entry['kid']}: {error}") from None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"key {entry['kid']}: not a public Ed25519 key")
        if entry["kid"] in keys:
            raise ValueError(f"key {entry['kid']} stands twice")
        keys[entry["kid"]] = key
    return keys
