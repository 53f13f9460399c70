"""Certificates of QUIC: the short one made of the node's, and what the port shows."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from appliance.base.errors import ConfigurationError
from appliance.base.limits import QUIC_CERTIFICATE_LIFE_S
from appliance.drivers.network.quic.certificate import Shown, load_shown, make_short
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.quic_client import dial
from tests.drivers.network.site import TestNode, make_node

BEGIN_S = 1_796_000_000
SPAN = {"begin_s": BEGIN_S, "end_s": BEGIN_S + QUIC_CERTIFICATE_LIFE_S - 1}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("keys"), 0)


@pytest.fixture
def shown(node: TestNode) -> Shown:
    return load_shown(node.certificate, node.private)


def spki(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_each_process_makes_the_same_byte_for_byte(node: TestNode, shown: Shown) -> None:
    again = load_shown(node.certificate, node.private)
    assert make_short(shown, **SPAN).digest == make_short(again, **SPAN).digest
    later = {name: value + 1 for name, value in SPAN.items()}
    assert make_short(shown, **later).digest != make_short(shown, **SPAN).digest


def test_it_has_key_and_names_of_the_long_one_and_the_life_that_was_asked(shown: Shown) -> None:
    made, long = make_short(shown, **SPAN).certificate, shown.certificate
    assert made.not_valid_before_utc.timestamp() == SPAN["begin_s"]
    assert made.not_valid_after_utc.timestamp() == SPAN["end_s"]
    assert made.not_valid_after_utc - made.not_valid_before_utc < datetime.timedelta(days=14)
    assert spki(made) == spki(long) and made.subject == long.subject == made.issuer
    assert isinstance(made.public_key(), ec.EllipticCurvePublicKey)
    made.verify_directly_issued_by(made)
    names = x509.SubjectAlternativeName
    assert made.extensions.get_extension_for_class(names).value == (
        long.extensions.get_extension_for_class(names).value
    )


def test_one_of_an_authority_or_of_another_kind_of_key_is_shown_as_it_is(shown: Shown) -> None:
    assert shown.may_be_short
    authority = ec.generate_private_key(ec.SECP256R1())
    old = shown.certificate
    signed = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")]),
        subject_name=old.subject,
        public_key=shown.key.public_key(),
        serial_number=1,
        not_valid_before=old.not_valid_before_utc,
        not_valid_after=old.not_valid_after_utc,
    ).sign(authority, hashes.SHA256())
    assert not replace(shown, certificate=signed).may_be_short
    assert not replace(shown, key=ed25519.Ed25519PrivateKey.generate()).may_be_short
    assert not replace(shown, key=ec.generate_private_key(ec.SECP384R1())).may_be_short


def test_files_that_hold_no_certificate_are_named(node: TestNode, tmp_path: Path) -> None:
    empty = tmp_path / "empty.crt"
    empty.write_text("")
    with pytest.raises(ConfigurationError, match="empty.crt"):
        load_shown(empty, node.private)
    with pytest.raises(ConfigurationError, match="restore both"):
        load_shown(node.certificate, empty)


def seen(client: Any) -> bytes:
    """Of the certificate that the port has shown to this client."""
    found: x509.Certificate = client._quic.tls._peer_certificate
    return found.fingerprint(hashes.SHA256())


def test_another_one_is_shown_to_who_comes_then_and_nobody_loses_a_connection(
    node: TestNode, shown: Shown
) -> None:
    short = make_short(shown, **SPAN)

    async def test() -> None:
        async with open_port(node, echo) as port, dial(port.port) as before:
            port.show(short)
            async with dial(port.port) as after:
                assert (seen(before), seen(after)) == (shown.digest, short.digest)
                for client in (before, after):
                    assert (await client.fetch("/", method="POST", body=b"on")).body == b"on"

    uvloop.run(test())
