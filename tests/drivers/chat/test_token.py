"""Tokens that a command signs itself: byte for byte what the library that verifies them makes."""

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.drivers.chat.token import key_id, sign


def test_a_token_is_the_one_that_the_library_would_make_of_its_claims() -> None:
    key = Ed25519PrivateKey.generate()
    rights = {"*": ["read", "send"], "räume-*": ["moderate"]}
    token = sign(key, issuer="i", audience="a", user="Ada \u00e9", rights=rights, ttl_s=60)
    claims = jwt.decode(token, key.public_key(), algorithms=["EdDSA"], audience="a", issuer="i")
    assert (claims["sub"], claims["rights"]) == ("Ada \u00e9", rights)
    assert claims["exp"] - claims["iat"] == 60
    assert token == jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": key_id(key)})
