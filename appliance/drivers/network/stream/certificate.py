"""The certificate that a peer shows, checked against the fingerprint that its operator told us."""

import asyncio
import ssl

from appliance.base.errors import ConfigurationError
from appliance.base.limits import HANDSHAKE_MS_MAX
from appliance.drivers.network.tls import spki_digest


async def certificate_of(host: str, port: int, fingerprint: bytes) -> str:
    """The certificate (PEM) shown at that address.

    Its public key must have this SHA-256 `fingerprint`; ConfigurationError if it has another one,
    or if nobody answers.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # compared below
    try:
        async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except (OSError, TimeoutError) as error:
        raise ConfigurationError(
            f"nobody shows a certificate at {host}:{port} ({error or 'no answer in time'}): check "
            f"address and port, and that the peer runs"
        ) from error
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    found = spki_digest(certificate)
    if found != fingerprint:
        raise ConfigurationError(
            f"the key at {host}:{port} has the fingerprint {found.hex()}, not "
            f"{fingerprint.hex()}: ask its operator again, over another way"
        )
    return ssl.DER_cert_to_PEM_cert(certificate)


def add_anchor(context: ssl.SSLContext, certificate: str) -> None:
    """Have `context` accept this certificate (PEM) too, from the next handshake on."""
    context.load_verify_locations(cadata=certificate)
