"""What the QUIC port shows: the certificate that TCP shows, or a short one made of it.

A short one is made of the other and of the span in which it is good, and of nothing else: each
process of the node makes the same one, byte for byte, and so does one that is started again;
nothing of it lies on disk. It has the same key, so whoever knows the port by its key (SPKI) knows
it by either.
"""

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from appliance.base.errors import ConfigurationError

_SERIAL_SIZE = 16  # bytes
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(slots=True, frozen=True)
class Shown:
    """A certificate with its key, and those above it that are sent along."""

    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...]
    key: Any  # as the library of certificates has it

    @property
    def digest(self) -> bytes:
        """SHA-256 of the certificate: what a page is told to accept."""
        return hashlib.sha256(self.certificate.public_bytes(Encoding.DER)).digest()

    @property
    def may_be_short(self) -> bool:
        """Whether a short one can be made of it. One that an authority has signed is the
        operator's own, and shown as it is; browsers take no digest of other kinds of keys."""
        key = self.key
        is_of_kind = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
        return is_of_kind and self.certificate.issuer == self.certificate.subject


def load_shown(certificate: Path, private_key: Path) -> Shown:
    """Of two files (PEM). Raises ConfigurationError, which names both."""
    try:
        first, *above = x509.load_pem_x509_certificates(certificate.read_bytes())
        key = load_pem_private_key(private_key.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"{certificate} and {private_key}: not a certificate and its key, or not readable "
            f"({error}); restore both files"
        ) from error
    return Shown(first, tuple(above), key)


def make_short(shown: Shown, *, begin_s: int, end_s: int) -> Shown:
    """The one that is good from `begin_s` to `end_s`, both included, in seconds since the epoch;
    `shown.may_be_short`."""
    assert shown.may_be_short
    old = shown.certificate
    seed = old.fingerprint(hashes.SHA256()) + begin_s.to_bytes(8, "big", signed=True)
    serial = int.from_bytes(hashlib.blake2b(seed, digest_size=_SERIAL_SIZE).digest()) >> 1 or 1
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.subject)
        .public_key(shown.key.public_key())
        .serial_number(serial)
        .not_valid_before(_EPOCH + datetime.timedelta(seconds=begin_s))
        .not_valid_after(_EPOCH + datetime.timedelta(seconds=end_s))
    )
    for extension in old.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName | x509.BasicConstraints):
            builder = builder.add_extension(extension.value, critical=extension.critical)
    made = builder.sign(shown.key, hashes.SHA256(), ecdsa_deterministic=True)
    return Shown(made, (), shown.key)
