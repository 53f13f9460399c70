"""Who may come in: everything about a token that can be wrong is wrong once here."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.edge.token import (
    ADMIN,
    MODERATE,
    READ,
    SEND,
    Tokens,
    parse_jwks,
    pattern_matches,
)
from appliance.formats.author import author_id_of
from appliance.formats.client_errors import (
    TokenExpired,
    TokenInvalid,
    TokenKeyUnknown,
    TokenNotYetValid,
)
from tests.cores.edge.world import KEY, START_US, token

OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
NOW_S = START_US // 1_000_000


def tokens() -> Tokens:
    return Tokens(issuer="site", audience="chat", keys={"k1": KEY.public_key()})


def b64(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parts(**header: object) -> str:
    """A token whose header is changed, with the signature of a good one."""
    good = token().split(".")
    return ".".join((b64({"alg": "EdDSA", "typ": "JWT", "kid": "k1"} | header), good[1], good[2]))


def test_a_good_token_tells_author_expiry_and_rights() -> None:
    claims = tokens().verify(token("anna", rights={"team-*": ["read"], "*": ["send"]}), START_US)
    assert (claims.author, claims.author_id) == ("anna", author_id_of("anna"))
    assert claims.expires_us == START_US + 3600 * 1_000_000
    assert claims.rights_in("team-a") == READ | SEND
    assert claims.rights_in("other") == SEND


def test_a_list_of_audiences_may_contain_ours() -> None:
    assert tokens().verify(token(aud=["x", "chat"]), START_US).author == "anna"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (token(exp=NOW_S), TokenExpired),
        (token(exp=NOW_S - 1), TokenExpired),
        (token(nbf=NOW_S + 60), TokenNotYetValid),
        (token(iat=NOW_S + 60), TokenNotYetValid),
        (token(iss="other"), TokenInvalid),
        (token(iss=None), TokenInvalid),
        (token(aud="other"), TokenInvalid),
        (token(aud=None), TokenInvalid),
        (token(aud=["x"]), TokenInvalid),
        (token(exp=None), TokenInvalid),
        (token(nbf=None), TokenInvalid),
        (token(iat=None), TokenInvalid),
        (token(exp="soon"), TokenInvalid),
        (token(exp=1e300), TokenInvalid),
        (token(exp=True), TokenInvalid),
        (token(sub=""), TokenInvalid),
        (token(sub="x" * 129), TokenInvalid),
        (token(sub="a\nb"), TokenInvalid),
        (token(rights=[]), TokenInvalid),
        (token(rights={"*": "read"}), TokenInvalid),
        (token(rights={"*": ["fly"]}), TokenInvalid),
        (token(rights={"*": [["read"]]}), TokenInvalid),
        (token(rights={"x" * 129: []}), TokenInvalid),
        (token(rights={f"r{i}": ["read"] for i in range(65)}), TokenInvalid),
        (token(key=OTHER_KEY), TokenInvalid),
        (token(headers={"kid": "k2"}), TokenKeyUnknown),
        (parts(kid=5), TokenInvalid),
        (parts(kid=None), TokenInvalid),
        (parts(alg="none"), TokenInvalid),
        (parts(alg="HS256"), TokenInvalid),
        (parts(alg="ES256"), TokenInvalid),
        (token() + "x", TokenInvalid),
        (token()[:-4], TokenInvalid),
        ("", TokenInvalid),
        ("a.b.c", TokenInvalid),
        ("....", TokenInvalid),
        ("\x00" * 100, TokenInvalid),
    ],
)
def test_a_token_that_is_wrong_in_one_place_is_refused(bad: str, error: type) -> None:
    with pytest.raises(error):
        tokens().verify(bad, START_US)


def payload() -> dict[str, object]:
    """Of a token in which nothing is wrong but who signed it."""
    return jwt.decode(token("root"), options={"verify_signature": False})


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
@pytest.mark.parametrize("signature", ["", "AAAA", token().split(".")[2]])
def test_a_whole_token_without_a_signature_is_refused(name: str, signature: str) -> None:
    head = b64({"alg": name, "typ": "JWT", "kid": "k1"})
    with pytest.raises(TokenInvalid, match="EdDSA"):
        tokens().verify(f"{head}.{b64(payload())}.{signature}", START_US)


def public_forms() -> dict[str, bytes]:
    """What everybody knows of the site's key, in the forms that a library may take as a secret."""
    public = KEY.public_key()
    raw = public.public_bytes_raw()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {"raw": raw, "pem": pem, "der": der, "x": b64(raw).encode(), "empty": b""}


@pytest.mark.parametrize("algorithm", ["HS256", "HS512", "EdDSA"])
@pytest.mark.parametrize("form", public_forms())
def test_a_whole_token_signed_with_the_public_key_as_a_secret_is_refused(
    form: str, algorithm: str
) -> None:
    """Also one whose header claims the right algorithm."""
    head = b64({"alg": algorithm, "typ": "JWT", "kid": "k1"})
    signed = f"{head}.{b64(payload())}"
    digest = hashlib.sha512 if algorithm == "HS512" else hashlib.sha256
    signature = hmac.new(public_forms()[form], signed.encode(), digest).digest()
    with pytest.raises(TokenInvalid):
        tokens().verify(f"{signed}.{b64(signature)}", START_US)


def test_a_token_that_is_valid_for_too_long_is_refused() -> None:
    day = 86_400
    kept = Tokens(issuer="site", audience="chat", keys={"k1": KEY.public_key()}, life_s_max=day)
    assert kept.verify(token(exp=NOW_S + day), START_US).author == "anna"
    for exp, iat in ((NOW_S + day + 1, NOW_S), (NOW_S + 10, NOW_S - day)):
        with pytest.raises(TokenInvalid, match="longer than 86400 s"):
            kept.verify(token(exp=exp, iat=iat), START_US)


def test_claims_tell_which_key_signed_them_and_whether_it_is_still_trusted() -> None:
    kept = tokens()
    claims = kept.verify(token(), START_US)
    assert (claims.kid, claims.key) == ("k1", KEY.public_key().public_bytes_raw())
    assert kept.is_trusted(claims)
    kept.keys = {"k2": KEY.public_key()}
    assert not kept.is_trusted(claims)
    kept.keys = {"k1": OTHER_KEY.public_key()}
    assert not kept.is_trusted(claims)


def test_a_changed_payload_is_refused() -> None:
    head, _, signature = token("anna").split(".")
    with pytest.raises(TokenInvalid):
        tokens().verify(f"{head}.{token('root').split('.')[1]}.{signature}", START_US)


def test_small_clock_differences_are_forgiven() -> None:
    assert tokens().verify(token(iat=NOW_S + 5, nbf=NOW_S + 5), START_US).author == "anna"
    for name in ("iat", "nbf"):
        with pytest.raises(TokenNotYetValid):
            tokens().verify(token(**{name: NOW_S + 6}), START_US)


@given(st.text(max_size=300))
def test_any_text_is_answered_with_a_typed_error(text: str) -> None:
    with pytest.raises((TokenInvalid, TokenKeyUnknown)):
        tokens().verify(text, START_US)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "", True),
        ("*", "any", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*b", "ab", True),
        ("a*b", "ab", True),
        ("a*b", "aab", True),
        ("ab*ba", "aba", False),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
        ("*x*", "axb", True),
        ("", "", True),
        ("", "a", False),
        ("**", "a", True),
        ("a.c", "abc", False),
        ("A", "a", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert pattern_matches(pattern, name) is matches


def test_a_pattern_of_many_stars_costs_linear_time() -> None:
    assert not pattern_matches("*a" * 60 + "b", "a" * 128)


def test_admin_includes_the_other_rights() -> None:
    assert ADMIN == ADMIN | READ | SEND | MODERATE


def test_jwks_gives_ed25519_keys_by_kid() -> None:
    raw = KEY.public_key().public_bytes_raw()
    keys = parse_jwks(
        json.dumps(
            {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": b64(raw)}]}
        ).encode()
    )
    assert keys["k1"].public_bytes_raw() == raw


def test_jwks_with_anything_else_says_what_is_wrong() -> None:
    ed448 = Ed448PrivateKey.generate().public_key().public_bytes_raw()
    numbers = generate_private_key(SECP256R1()).public_key().public_numbers()
    good = {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": "k1",
        "x": b64(KEY.public_key().public_bytes_raw()),
    }
    for wrong in (
        "",
        "[]",
        "{}",
        '{"keys": 1}',
        '{"keys": [1]}',
        '{"keys": [{"kid": "a"}]}',
        json.dumps({"keys": [good, good]}),
        json.dumps({"keys": [good | {"kid": 1}]}),
        json.dumps({"keys": [good | {"d": b64(bytes(range(32)))}]}),
        json.dumps({"keys": [good | {"crv": "Ed448", "x": b64(ed448)}]}),
        json.dumps(
            {
                "keys": [
                    {
                        "kty": "EC",
                        "crv": "P-256",
                        "kid": "e",
                        "x": b64(numbers.x.to_bytes(32, "big")),
                        "y": b64(numbers.y.to_bytes(32, "big")),
                    }
                ]
            }
        ),
    ):
        with pytest.raises(ValueError, match=r"key|JSON"):
            parse_jwks(wrong.encode())
