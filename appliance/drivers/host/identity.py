"""Makes the keys of a site: a node's for signing and for TLS, and that of the issuer of tokens.

Secrets come from the operating system and go into files only their owner reads; nothing prints one.
"""

import base64
import datetime
import hashlib
import ipaddress
import json
import os

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.base.errors import ConfigurationError
from appliance.base.signature import SEED_SIZE, SigningKey

# Peers pin the key, so the dates protect nothing; a wide span survives a clock that goes wrong.
_VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_VALID_UNTIL = datetime.datetime(2049, 12, 31, tzinfo=datetime.UTC)


def make_seed() -> bytes:
    """The seed of a new signing key."""
    return os.urandom(SEED_SIZE)


def public_key_of(seed: bytes) -> bytes:
    """32 bytes by which others verify what the owner of `seed` signs."""
    return SigningKey(seed).public


def make_certificate(name: str, host: str) -> tuple[str, str]:
    """(key, self-signed certificate), both PEM, for a node that is reached as `host` or locally."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_alternatives(name, host)), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
    )
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()


def _alternatives(name: str, host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    if all(c.isascii() and (c.isalnum() or c == "-") for c in name):
        names.append(x509.DNSName(name))
    addresses = {"127.0.0.1": None, "::1": None}
    try:
        addresses[str(ipaddress.ip_address(host))] = None
    except ValueError:
        if host != "localhost":
            names.append(x509.DNSName(host))
    return names + [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]


def make_token_key() -> str:
    """The private key of a new issuer of tokens, PEM."""
    key = ed25519.Ed25519PrivateKey.generate()
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def jwks_of(token_key_pem: str) -> str:
    """The text of `jwks.json`: the public half of a token key, named by its RFC 7638 thumbprint.
    ConfigurationError when it is no private key of Ed25519, without a passphrase."""
    try:
        key = serialization.load_pem_private_key(token_key_pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(f"the token key is no private key: {error}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigurationError(
            "the token key is no private key of Ed25519: put one there, or remove it and have one "
            "made"
        )
    raw = key.public_key().public_bytes_raw()
    x = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": x}
    canonical = json.dumps(jwk, sort_keys=True, separators=(",", ":")).encode()
    kid = base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
    public = {**jwk, "alg": "EdDSA", "use": "sig", "kid": kid}
    return json.dumps({"keys": [public]}, indent=1) + "\n"
