"""Tokens that somebody forges who has no private key of the site: all are refused alike.

Each bears the claims of a good token. What the header names is never fetched, opened or believed.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.base.limits import TOKEN_SIZE_MAX
from appliance.cores.edge.token import Tokens
from appliance.drivers.network.closings import CLOSE_CODES, HTTP_STATUSES
from appliance.formats.client_errors import TokenInvalid, TokenKeyUnknown
from tests.cores.edge.world import KEY, START_US, token

FORGER = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
GOOD = token("root", rights={"*": ["admin"]})
CLAIMS: dict[str, Any] = jwt.decode(GOOD, options={"verify_signature": False})
HEAD = {"alg": "EdDSA", "typ": "JWT", "kid": "k1"}
RAW = KEY.public_key().public_bytes_raw()
PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
URL = "https://evil.example/keys.json"
HASHES = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}


def b64(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(head: object, claims: object = CLAIMS, *, key: Ed25519PrivateKey = FORGER) -> str:
    """Signed, by the forger's key."""
    signed = f"{b64(head)}.{b64(claims)}"
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def with_secret(algorithm: str, secret: bytes) -> str:
    signed = f"{b64(HEAD | {'alg': algorithm})}.{b64(CLAIMS)}"
    return f"{signed}.{b64(hmac.new(secret, signed.encode(), HASHES[algorithm]).digest())}"


def own_jwk() -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": b64(FORGER.public_key()
            .public_bytes_raw())}  # fmt: skip


def unsigned() -> Iterator[tuple[str, str]]:
    body = b64(CLAIMS)
    for name in ("none", "None", "nOnE", ""):
        yield f"algorithm {name!r}", f"{b64(HEAD | {'alg': name})}.{body}."
    yield "no algorithm", f"{b64({'typ': 'JWT', 'kid': 'k1'})}.{body}."
    yield "no signature", f"{b64(HEAD)}.{body}."
    yield "a signature of zeros", f"{b64(HEAD)}.{body}.{b64(bytes(64))}"
    yield "two parts", f"{b64(HEAD)}.{body}"


def by_secret() -> Iterator[tuple[str, str]]:
    for algorithm in HASHES:
        yield f"{algorithm} with the public key", with_secret(algorithm, RAW)
    yield "HS256 with the public key as PEM", with_secret("HS256", PEM)
    yield "HS256 with a PEM that is padded", with_secret("HS256", b"\n" + PEM + b"\n\n")
    yield "HS256 with a PEM without its last newline", with_secret("HS256", PEM.rstrip())
    yield "HS256 with the key's x", with_secret("HS256", b64(RAW).encode())
    yield "HS256 with an empty key", with_secret("HS256", b"")
    yield "HS256 with the kid", with_secret("HS256", b"k1")


def by_header() -> Iterator[tuple[str, str]]:
    yield "a key of its own", forged(HEAD | {"jwk": own_jwk()})
    yield "a key of its own, no kid", forged({"alg": "EdDSA", "jwk": own_jwk()})
    yield "an address of keys", forged(HEAD | {"jku": URL})
    yield "an address of keys on this machine", forged(HEAD | {"jku": "file:///etc/passwd"})
    yield "an address of a certificate", forged(HEAD | {"x5u": URL})
    yield "a certificate", forged(HEAD | {"x5c": [b64(PEM)]})
    yield "a certificate's digest", forged(HEAD | {"x5t#S256": b64(hashlib.sha256(RAW).digest())})
    yield "a demand", forged(HEAD | {"crit": ["exp"]})
    yield "a demand for claims that are not encoded", forged(HEAD | {"crit": ["b64"], "b64": False})
    yield "a token in a token", forged(HEAD | {"cty": "JWT"}, GOOD)


def by_kid() -> Iterator[tuple[str, str]]:
    for name, kid in (
        ("a path", "../../../../dev/null"),
        ("an absolute path", "/proc/sys/kernel/randomize_va_space"),
        ("SQL", "k1' UNION SELECT 'AA' --"),
        ("a command", "k1; cat /etc/passwd |"),
        ("an address", URL),
        ("a zero byte", "k1\x00"),
        ("another case", "K1"),
        ("a space behind it", "k1 "),
        ("a list", ["k1"]),
        ("an object", {"k1": "k1"}),
        ("nothing", None),
        ("a number", 1),
    ):
        yield f"kid as {name}", forged(HEAD | {"kid": kid})


def by_shape() -> Iterator[tuple[str, str]]:
    head, body, signature = GOOD.split(".")
    yield "another's claims", f"{head}.{b64(CLAIMS | {'sub': 'anna'})}.{signature}"
    yield "another's signature", forged(HEAD)
    yield "a head that stands twice", f"{head}.{head}.{signature}"
    yield "a head with a name twice", forged(b'{"alg":"none","alg":"EdDSA","kid":"k1"}')
    yield "1 MB", forged(HEAD, CLAIMS | {"more": "x" * (1 << 20)})
    yield "1 MB of a head", forged(HEAD | {"more": "x" * (1 << 20)})
    yield "nested too deeply", forged(b"[" * 5000)
    yield "four parts", f"{GOOD}.{signature}"
    yield "another curve", _es256()
    s = int.from_bytes(base64.urlsafe_b64decode(signature + "==")[32:], "little")
    order = 2**252 + 27742317777372353535851937790883648493
    r = base64.urlsafe_b64decode(signature + "==")[:32]
    yield (
        "the signature's other form",
        f"{head}.{body}.{b64(r + (s + order).to_bytes(32, 'little'))}",
    )


def _es256() -> str:
    made: str = jwt.encode(CLAIMS, generate_private_key(SECP256R1()), "ES256", {"kid": "k1"})
    return made


FORGERIES = dict([*unsigned(), *by_secret(), *by_header(), *by_kid(), *by_shape()])


def tokens() -> Tokens:
    return Tokens(issuer="site", audience="chat", keys={"k1": KEY.public_key()})


def test_there_are_forty_forgeries_and_more() -> None:
    assert len(FORGERIES) == len(set(FORGERIES.values())) >= 40
    assert tokens().verify(GOOD, START_US).author == "root"


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_token_is_refused(name: str) -> None:
    with pytest.raises((TokenInvalid, TokenKeyUnknown)) as refused:
        tokens().verify(FORGERIES[name], START_US)
    kind = type(refused.value)
    assert (HTTP_STATUSES[kind], CLOSE_CODES[kind]) == (401, 4003)  # all alike
    told = str(refused.value)
    assert len(told) < 100 and "k1" not in told and "evil" not in told  # nothing comes back


def test_a_token_that_demands_what_we_do_not_know_is_refused_however_it_is_signed() -> None:
    with pytest.raises(TokenInvalid):
        tokens().verify(forged(HEAD | {"crit": ["exp"]}, key=KEY), START_US)


def test_a_good_token_has_a_size() -> None:
    small = forged(HEAD, CLAIMS | {"more": "x"}, key=KEY)
    tokens().verify(small, START_US)
    with pytest.raises(TokenInvalid, match="bytes"):
        tokens().verify(forged(HEAD, CLAIMS | {"more": "x" * TOKEN_SIZE_MAX}, key=KEY), START_US)
