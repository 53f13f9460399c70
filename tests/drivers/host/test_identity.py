"""Keys of a site: what becomes of a file that is none."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.identity import jwks_of, make_token_key

OTHERS = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "p256": ec.generate_private_key(ec.SECP256R1()),
    "ed448": ed448.Ed448PrivateKey.generate(),
    "x25519": x25519.X25519PrivateKey.generate(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_token_key_of_another_kind_is_refused_by_a_sentence(name: str) -> None:
    plain = serialization.NoEncryption()
    pem = OTHERS[name].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
    )
    with pytest.raises(ConfigurationError, match="is no private key of Ed25519: put one there"):
        jwks_of(pem.decode())


@pytest.mark.parametrize("text", ["", "none", "-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_token_key_that_is_no_key_is_refused_by_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the token key is no private key: "):
        jwks_of(text)


def test_a_token_key_with_a_passphrase_is_refused_by_a_sentence() -> None:
    key = serialization.load_pem_private_key(make_token_key().encode(), password=None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ConfigurationError, match="the token key is no private key: "):
        jwks_of(pem.decode())
