"""Tokens that an operator takes back: the body of an audit record in shard 0, a line of JSON.

    {"act":{"do":"revoke_token","jti":ID},"at_us":...,"node":NAME}     the token with this `jti`
    {"act":{"do":"revoke_token","sub":NAME},...}                       all that NAME had until then

Other audit records are none: a reader gets None for them.
"""

from typing import Any, NamedTuple

import msgspec

from appliance.formats.author import AUTHOR_NAME_SIZE_MAX

SHARD = 0  # of every site
JTI_SIZE_MAX = 128  # bytes
_ACT = "revoke_token"
_SIZES = {"jti": JTI_SIZE_MAX, "sub": AUTHOR_NAME_SIZE_MAX}


class Revocation(NamedTuple):
    """`claim` is "jti" or "sub", `value` what it says in the tokens that are meant."""

    claim: str
    value: str


def is_valid(revocation: Revocation) -> bool:
    """Whether a token could have such a claim."""
    size_max = _SIZES.get(revocation.claim, 0)
    return 1 <= len(revocation.value.encode()) <= size_max and revocation.value.isprintable()


def encode_revocation(revocation: Revocation, *, node: str, at_us: int) -> bytes:
    """Body of an audit record."""
    assert is_valid(revocation)
    act = {"do": _ACT, revocation.claim: revocation.value}
    return msgspec.json.encode({"act": act, "at_us": at_us, "node": node})


def decode_revocation(body: bytes) -> Revocation | None:
    """What an audit record takes back, if it does."""
    try:
        act: Any = msgspec.json.decode(body, type=dict[str, Any]).get("act")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if type(act) is not dict or act.get("do") != _ACT:
        return None
    for claim in _SIZES:
        value = act.get(claim)
        if type(value) is str and is_valid(Revocation(claim, value)):
            return Revocation(claim, value)
    return None
