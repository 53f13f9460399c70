"""Who may come in: everything about a token that can be wrong is wrong once here."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import InputError
from appliance.cores.edge.token import Tokens, parse_jwks, pattern_matches
from appliance.formats.author import author_id_of
from appliance.formats.client.rights import ADMIN, MODERATE, READ, SEND
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
        (token(nbf=NOW_S + 61), TokenNotYetValid),
        (token(iat=NOW_S + 61), TokenNotYetValid),
        (token(nbf="now"), TokenInvalid),
        (token(iat=True), TokenInvalid),
        (token(iss="other"), TokenInvalid),
        (token(iss=None), TokenInvalid),
        (token(aud="other"), TokenInvalid),
        (token(aud=None), TokenInvalid),
        (token(aud=["x"]), TokenInvalid),
        (token(exp=None), TokenInvalid),
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
        (parts(alg="Ed448"), TokenInvalid),
        (parts(alg="eddsa"), TokenInvalid),
        (parts(alg=["EdDSA"]), TokenInvalid),
        (parts(alg=None), TokenInvalid),
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
    for seconds in (-60, 5, 60):
        good = token(iat=NOW_S + seconds, nbf=NOW_S + seconds)
        assert tokens().verify(good, START_US).author == "anna"
    for name in ("iat", "nbf"):
        with pytest.raises(
            TokenNotYetValid, match=rf"claim {name} lies 61 s ahead .* at most 60 s"
        ):
            tokens().verify(token(**{name: NOW_S + 61}), START_US)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"nbf": None},
        {"iat": None},
        {"nbf": None, "iat": None},
        {"nbf": 0},
        {"nbf": NOW_S - 0.5},
        {"aud": ["chat"]},
        {"jti": ""},
        {"typ": "anything"},
        {"exp": NOW_S + 0.001},
    ],
)
@pytest.mark.parametrize("name", ["EdDSA", "Ed25519"])
def test_issuers_write_tokens_in_several_ways(claims: dict[str, object], name: str) -> None:
    plain = {key: value for key, value in (payload() | claims).items() if value is not None}
    signed = f"{b64({'alg': name, 'kid': 'k1'})}.{b64(plain)}"
    found = tokens().verify(f"{signed}.{b64(KEY.sign(signed.encode()))}", START_US)
    assert found.author == "root"
    assert found.issued_us == int(plain.get("iat", 0)) * 1_000_000


def test_the_life_of_a_token_that_does_not_say_when_it_was_issued_counts_from_nbf_or_now() -> None:
    kept = Tokens(issuer="site", audience="chat", keys={"k1": KEY.public_key()}, life_s_max=100)
    for claims in ({"nbf": NOW_S - 50}, {"nbf": None}):
        end = NOW_S + (50 if claims["nbf"] else 100)
        assert kept.verify(token(iat=None, exp=end, **claims), START_US).issued_us == 0
        with pytest.raises(TokenInvalid, match="longer than 100 s"):
            kept.verify(token(iat=None, exp=end + 1, **claims), START_US)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (token(iss="other"), "claim iss is 'other'; token_issuer of this site is 'site'"),
        (token(iss=None), "claim iss is None"),
        (token(aud="other"), "claim aud is 'other'; token_audience of this site is 'chat'"),
        (token(aud="x" * 500), r"claim aud is 'x{59}\.\.\.; token_audience"),
        (token(exp=NOW_S - 7), "claim exp lies 7 s back"),
        (token(exp=None), "claim exp is missing or no time in seconds: None; let the issuer set"),
        (token(iat="2026"), "claim iat is missing or no time in seconds: '2026'"),
        (token(exp=NOW_S + 86_400 * 365), "let claim exp come sooner, or see token_life_s_max"),
        (parts(alg="RS256"), r"the header's alg: only EdDSA \(Ed25519\) is accepted"),
        (f"{b64({'alg': 'EdDSA'})}.e30.AA", r"the header names no key \(kid\)"),
        (token(headers={"kid": "k2\n"}), r"it is not in jwks\.json of this node"),
    ],
)
def test_a_refusal_names_the_claim_or_the_setting(bad: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tokens().verify(bad, START_US)


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


GOOD = {
    "kty": "OKP",
    "crv": "Ed25519",
    "kid": "k1",
    "x": b64(KEY.public_key().public_bytes_raw()),
}


def kept_of(*entries: object) -> tuple[list[str], list[str]]:
    """Kids that are taken of a key set, and why others are not."""
    skipped: list[str] = []
    return sorted(parse_jwks(json.dumps({"keys": entries}).encode(), skipped.append)), skipped


@pytest.mark.parametrize("wrong", ["", "[]", "{}", '{"keys": 1}', '{"keys": ', "\xff", "null"])
def test_what_is_no_key_set_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"keys|JSON"):
        parse_jwks(wrong.encode("latin-1"))


def elliptic() -> dict[str, str]:
    numbers = generate_private_key(SECP256R1()).public_key().public_numbers()
    x, y = (b64(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "kid": "e", "x": x, "y": y}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (elliptic(), "key 'e': of kind 'EC' 'P-256'"),
        ({"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"}, "key 'r': of kind 'RSA' None"),
        ({"kty": "RSA", "n": "AQAB", "e": "AQAB", "x5c": ["MII"]}, "key 1: of kind 'RSA'"),
        ({"kty": "oct", "kid": "o", "k": "AAAA"}, "key 'o': of kind 'oct' None"),
        ({"kty": "AKP", "alg": "ML-DSA-44", "kid": "a", "pub": "AA"}, "key 'a': of kind 'AKP'"),
        (GOOD | {"kid": "x", "crv": "X25519"}, "key 'x': of kind 'OKP' 'X25519'"),
        (
            GOOD | {"kid": "4", "crv": "Ed448", "x": b64(bytes(57))},
            "key '4': of kind 'OKP' 'Ed448'",
        ),
        (GOOD | {"kid": "n", "use": "enc"}, "key 'n': not for signatures"),
        (GOOD | {"kid": "n", "key_ops": ["sign"]}, "key 'n': not for verifying"),
        (GOOD | {"kid": "n", "key_ops": "verify"}, "key 'n': not for signatures"),
        (GOOD | {"kid": "n", "alg": "ES256"}, "key 'n': for alg 'ES256'"),
        (GOOD | {"kid": "d", "d": b64(bytes(range(32)))}, "key 'd': a private key"),
        (GOOD | {"kid": "s", "x": "AAAA"}, "key 's': "),
        (GOOD | {"kid": "s", "x": 7}, "key 's': "),
        (GOOD | {"kid": 1}, "key 1: without a kid"),
        ({name: GOOD[name] for name in ("kty", "crv", "x")}, "key 1: without a kid"),
        (7, "key 1: not an object"),
        (None, "key 1: not an object"),
    ],
)
def test_other_keys_of_an_issuer_are_left_out_and_named(other: object, why: str) -> None:
    taken, skipped = kept_of(GOOD, other, GOOD | {"kid": "k2", "use": "sig", "alg": "Ed25519"})
    assert taken == ["k1", "k2"]
    assert len(skipped) == 1 and skipped[0].startswith(why), skipped


def test_of_two_keys_of_one_name_neither_is_taken_and_one_key_may_stand_twice() -> None:
    other = GOOD | {"x": b64(OTHER_KEY.public_key().public_bytes_raw())}
    assert kept_of(GOOD, other, GOOD | {"kid": "k2"}) == (
        ["k2"],
        ["key 'k1': two keys have this kid"],
    )
    assert kept_of(GOOD, GOOD) == (["k1"], [])
    assert kept_of() == ([], [])
