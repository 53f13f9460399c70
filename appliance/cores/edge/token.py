"""Tokens: who a client is and what he may do, from a JWT signed with Ed25519.

The only algorithm is Ed25519; a header may call it `EdDSA` (RFC 8037) or `Ed25519` (RFC 9864). The
key, which must be an Ed25519 key, decides how a signature is checked, never the header. Times are
compared with the `now` of the caller, not by the JWT library with a clock of its own. If a
signature is right and a claim is not, the refusal names the claim, or the setting of the site that
forbids it. Where the signature is wrong, nothing is told about the claims.
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
from appliance.formats.client.rights import IMPORT, RIGHTS, SEND
from appliance.formats.client_errors import (
    TokenExpired,
    TokenInvalid,
    TokenKeyUnknown,
    TokenNotYetValid,
    TokenRevoked,
)
from appliance.formats.revocation import JTI_SIZE_MAX

ALGORITHMS = ("EdDSA", "Ed25519")
jwt.register_algorithm("Ed25519", OKPAlgorithm())

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
_SHOWN_MAX = 60  # characters of a value in a refusal

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
            raise TokenInvalid(
                f"claim iss is {_shown(payload.get('iss'))}; token_issuer of this site is "
                f"{_shown(self.issuer)}"
            )
        audience = payload.get("aud")
        if audience != self.audience and not (type(audience) is list and self.audience in audience):
            raise TokenInvalid(
                f"claim aud is {_shown(audience)}; token_audience of this site is "
                f"{_shown(self.audience)}"
            )
        expires_us, issued_us = self._times(payload, now_us)
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

    def _times(self, payload: dict[str, Any], now_us: int) -> tuple[int, int]:
        """(when it expires, when it was issued: 0 where it does not say) of a token that is valid
        now. Without `iat` its life counts from `nbf`, without both from now (RFC 7519, section
        4.1)."""
        expires_us = _time_us(payload, "exp")
        said = [name for name in ("nbf", "iat") if payload.get(name) is not None]
        optional = {name: _time_us(payload, name) for name in said}
        if now_us >= expires_us:
            ago_s = (now_us - expires_us) // _SECOND_US
            raise TokenExpired(f"the token has expired: claim exp lies {ago_s} s back")
        for name, time_us in optional.items():
            if time_us > now_us + CLOCK_SKEW_US:
                ahead_s, most_s = (time_us - now_us) // _SECOND_US, CLOCK_SKEW_US // _SECOND_US
                raise TokenNotYetValid(
                    f"the token is not valid yet: claim {name} lies {ahead_s} s ahead of this "
                    f"node's clock, at most {most_s} s allowed: compare both clocks"
                )
        begin_us = optional.get("iat", optional.get("nbf", now_us))
        if expires_us - begin_us > self.life_s_max * _SECOND_US:
            raise TokenInvalid(
                f"valid for longer than {self.life_s_max} s: this site takes no such token; "
                "let claim exp come sooner, or see token_life_s_max of the node"
            )
        return expires_us, optional.get("iat", 0)

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
        if header.get("alg") not in ALGORITHMS:
            raise TokenInvalid("the header's alg: only EdDSA (Ed25519) is accepted")
        kid = header.get("kid")
        if type(kid) is not str:
            raise TokenInvalid("the header names no key (kid)")
        key = self.keys.get(kid)
        if key is None:
            raise TokenKeyUnknown("no public key has this kid: it is not in jwks.json of this node")
        try:
            payload = jwt.decode(token, key, algorithms=[*ALGORITHMS], options=_OPTIONS)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenInvalid("the signature is not right") from None
        return kid, key, payload


def _time_us(payload: dict[str, Any], name: str) -> int:
    value: Any = payload.get(name)
    if type(value) not in (int, float) or not 0 <= value < _TIME_MAX:
        raise TokenInvalid(
            f"claim {name} is missing or no time in seconds: {_shown(value)}; let the issuer set it"
        )
    return int(value * _SECOND_US)


def _shown(value: Any) -> str:
    """What a token says, short and printable."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


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


def parse_jwks(data: bytes, skipped: Callable[[str], None] = lambda why: None) -> Keys:
    """The Ed25519 keys of a JWKS file, by kid. What else its issuer publishes there (keys of other
    kinds, for encryption, without a kid) is left out, and `skipped` is told why (RFC 7517, section
    5); of two keys of one kid neither is taken. Raises ValueError when it is no key set.
    """
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from None
    entries = document.get("keys")
    if type(entries) is not list:
        raise ValueError('no list "keys"')
    keys: Keys = {}
    twice: set[str] = set()
    for position, entry in enumerate(entries):
        kid = entry.get("kid") if type(entry) is dict else None
        name = f"key {_shown(kid)}" if type(kid) is str else f"key {position}"
        try:
            key = _key(entry)
        except ValueError as error:
            skipped(f"{name}: {error}")
            continue
        known = keys.get(entry["kid"])
        if known is not None and known.public_bytes_raw() != key.public_bytes_raw():
            twice.add(entry["kid"])
        keys[entry["kid"]] = key
    for kid in sorted(twice):
        skipped(f"key {_shown(kid)}: two keys have this kid")
        del keys[kid]
    return keys


def _key(entry: Any) -> Ed25519PublicKey:
    """A key of a key set that verifies tokens; ValueError says why it does not."""
    if type(entry) is not dict:
        raise ValueError("not an object")
    kind = (entry.get("kty"), entry.get("crv"))
    if kind != ("OKP", "Ed25519"):
        raise ValueError(f"of kind {_shown(kind[0])} {_shown(kind[1])}, not OKP Ed25519")
    if type(entry.get("kid")) is not str:
        raise ValueError("without a kid")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or type(operations) is not list:
        raise ValueError("not for signatures")
    if "verify" not in operations:
        raise ValueError("not for verifying signatures")
    if entry.get("alg", "EdDSA") not in ALGORITHMS:
        raise ValueError(f"for alg {_shown(entry['alg'])}")
    if "d" in entry:
        raise ValueError("a private key, which belongs to nobody but its issuer: replace it")
    try:
        key = OKPAlgorithm.from_jwk(entry)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not a public Ed25519 key")
    return key
