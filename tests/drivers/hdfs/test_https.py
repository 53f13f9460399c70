"""A real HDFS that speaks HTTPS only and hands out delegation tokens: shipped to, read by reports.

Without Kerberos a name node makes tokens but takes whoever asks for its static user; that it
refuses a wrong token cannot be seen here.
"""

import json
import ssl
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from appliance.base.errors import StorageError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.formats.webhdfs_call import Login
from appliance.reports.file_store import file_store_of, read_all
from tests.ports import FreePorts
from tests.system import hdfs_site
from tests.system.hdfs_site import USER, Hdfs
from tools import hdfs as tool

PASSWORD = "changeit"
DATA = bytes(range(256)) * 5000


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[Hdfs]:
    folder = tmp_path_factory.mktemp("secure-hdfs")
    yield from hdfs_site.running(folder / "hdfs", free_ports, certified(folder))


def certified(folder: Path) -> tool.Tls:
    """A key of its own, and a certificate that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hdfs of a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(tool.HOST))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    tls = tool.Tls(folder / "keystore.p12", PASSWORD, folder / "ca.pem")
    tls.keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"hdfs",
            key,
            certificate,
            None,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    tls.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return tls


@pytest.fixture(scope="module")
def token(secure: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A delegation token of the name node, in a file for this user alone."""
    query = f"op=GETDELEGATIONTOKEN&renewer={USER}&user.name={USER}"
    trust = ssl.create_default_context(cafile=secure.tls.ca_file)
    with urllib.request.urlopen(f"{secure.url}/webhdfs/v1/?{query}", context=trust) as answer:
        word = json.load(answer)["Token"]["urlString"]
    path = tmp_path_factory.mktemp("token") / "token"
    path.touch(0o600)
    path.write_text(word + "\n")
    return path


def shipper(secure: Hdfs, **how: Any) -> WebHdfs:
    return WebHdfs(f"{secure.url}/tigerchat", user="nobody", prng=Prng(1), **how)


def test_a_token_over_https_puts_renames_and_reads(secure: Hdfs, token: Path) -> None:
    target = shipper(secure, token_file=token, ca_file=secure.tls.ca_file)
    target.put("_incoming/1-a", DATA)
    assert target.rename("_incoming/1-a", "hour=03/a", overwrite=False)
    assert b"".join(target.read("hour=03/a")) == DATA
    assert target.status("hour=03/a").size == len(DATA)


def test_a_certificate_nobody_vouches_for_is_refused(secure: Hdfs, token: Path) -> None:
    with pytest.raises((TargetRefused, TargetUnavailable), match="certificate"):
        shipper(secure, token_file=token).status("hour=03/a")


def test_a_token_that_others_can_read_is_refused(secure: Hdfs, token: Path, tmp_path: Path) -> None:
    loose = tmp_path / "token"
    loose.write_text(token.read_text())
    loose.chmod(0o644)
    with pytest.raises(TargetRefused, match="chmod 600"):
        shipper(secure, token_file=loose, ca_file=secure.tls.ca_file).status("hour=03/a")


def test_reports_read_over_https_with_the_token(
    secure: Hdfs, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = shipper(secure, token_file=token, ca_file=secure.tls.ca_file)
    target.put("for-reports", DATA)
    url = f"{secure.webhdfs_url}/tigerchat"
    login = Login(token=token.read_text().strip())
    with pytest.raises(StorageError, match="certificate"):
        read_all(file_store_of(url, login=login), "for-reports")
    monkeypatch.setenv("SSL_CERT_FILE", str(secure.tls.ca_file))
    assert read_all(file_store_of(url, login=login), "for-reports") == DATA
