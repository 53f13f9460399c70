"""TLS, 1.3 only. Between nodes both sides show a certificate, and the key in it must be a known
node's.

Certificates of nodes are signed by themselves, and those of the site's nodes are the only trust
anchors: there is no authority that could issue another one. Names in them are ignored; what counts
is the digest of the public key (SPKI).
"""

import hashlib
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from appliance.base.errors import ConfigurationError


def spki_digest(certificate_der: bytes) -> bytes:
    """SHA-256 of the SubjectPublicKeyInfo of a certificate: what a peer is known by. ssl.SSLError
    where it holds no key that can be read."""
    from cryptography import x509  # here: it takes a tenth of the start of a process
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        key = x509.load_der_x509_certificate(certificate_der).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ssl.SSLError(f"a certificate without a key that can be read: {error}") from error
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()


def show_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Have `context` speak TLS 1.3 only, and show this certificate of its files (PEM).

    Raises ConfigurationError, which names both files.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{certificate} and {key}: not a certificate and its key, or not readable ({error}); "
            f"restore both files"
        ) from error


def server_context(certificate: Path, key: Path, anchors: Iterable[str]) -> ssl.SSLContext:
    """For connections that nodes open to us."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, anchors)
    context.num_tickets = 0  # every connection shows its certificate; nothing is resumed
    return context


def client_context(certificate: Path, key: Path, anchors: Iterable[str]) -> ssl.SSLContext:
    """For connections that we open to nodes."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, anchors)


def _context(protocol: int, certificate: Path, key: Path, anchors: Iterable[str]) -> ssl.SSLContext:
    """`anchors` are the certificates of all nodes of the site, PEM."""
    context = ssl.SSLContext(protocol)
    show_certificate(context, certificate, key)
    context.check_hostname = False  # the key is compared instead, see `identify`
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata="\n".join(anchors))
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"the certificates of the site's nodes are not readable PEM ({error}); "
            f"restore site.toml"
        ) from error
    return context


def shown_at(host: str, port: int, timeout_s: float) -> bytes:
    """The SPKI digest of the key that whoever listens there proves to own; nothing is said of us.

    Raises ConnectionRefusedError where nobody listens, another OSError (TimeoutError, ssl.SSLError)
    where somebody does who shows none.
    """
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    probe.minimum_version = ssl.TLSVersion.TLSv1_3
    probe.check_hostname, probe.verify_mode = False, ssl.CERT_NONE  # the caller compares it
    with (
        socket.create_connection((host, port), timeout=timeout_s) as plain,
        probe.wrap_socket(plain, server_hostname=host) as tls,
    ):
        certificate = tls.getpeercert(binary_form=True)
        assert certificate is not None
        return spki_digest(certificate)


def identify(tls: ssl.SSLObject, pins: dict[bytes, int]) -> int | None:
    """The node whose key the peer has proved to own, None for a stranger. Only after the handshake.
    ssl.SSLError where its certificate cannot be read."""
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        return None
    return pins.get(spki_digest(certificate))
