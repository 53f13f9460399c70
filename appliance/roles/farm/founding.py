"""The first member of a farm, and the files of one that comes by code.

Both leave a folder from which `farm serve --imported` runs: settings, users, password, and where
TLS is spoken a key with its certificate.
"""

import asyncio
import secrets
import ssl
from pathlib import Path
from typing import Any

from appliance.base.authority import authority
from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.base.limits import FARM_HANDSHAKE_MS_MAX, MIB
from appliance.cores.raft.invitation import SECRET_SIZE, Code, encode_join
from appliance.cores.raft.login import VERSION
from appliance.cores.raft.users import MEMBER
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.network.farm_stream import DialFailed, Route, open_stream
from appliance.drivers.network.stream_end import end
from appliance.drivers.network.tls import spki_digest
from appliance.formats.raft_legacy.configuration import endpoint_address
from appliance.roles.farm.exchange import (
    CERTIFICATE_FILE,
    KEY_FILE,
    SETTINGS_FILE,
    checked,
    exported,
    unpack,
)
from appliance.roles.farm.guests import SEAL_SIZE, invite
from appliance.roles.farm.settings import REALM_DEFAULT, TLS, FarmSettings, make_user

_ANSWER_SIZE_MAX = 4 * MIB  # of who lets us in: settings and users of a farm
_TRIES_MORE, _AGAIN_S = 3, 0.5  # a member may not have looked yet at the code that was just made


def _make_key(folder: Path, host: str, carrier: str) -> bytes:
    """The key of a new member; the digest of its SPKI, empty where no TLS is spoken."""
    if carrier != TLS:
        return b""
    key, certificate = make_certificate("farm", host)
    write_durable(folder / KEY_FILE, key, mode=0o600)
    write_durable(folder / CERTIFICATE_FILE, certificate)
    return spki_digest(ssl.PEM_cert_to_DER_cert(certificate))


def _refuse_used(folder: Path) -> None:
    if (folder / SETTINGS_FILE).exists():
        raise ConfigurationError(f"{folder} has a member already; choose an empty folder")


def found(folder: Path, farm: str, listen: tuple[str, int], endpoint: str, carrier: str) -> None:
    """Make member 1 of a new farm, which others may join by code."""
    _refuse_used(folder)
    host, _ = endpoint_address(endpoint)
    pin = _make_key(folder, host, carrier)
    password = secrets.token_urlsafe(32)
    row = make_user(name="node1", role=MEMBER, server_id=1, realm=REALM_DEFAULT, password=password)
    settings = FarmSettings(
        folder=folder,
        id=1,
        farm=farm,
        listen=listen,
        endpoint=endpoint,
        peers=(),
        join=False,
        carrier=carrier,
        user="node1",
        password=password,
        pins={1: pin} if pin else {},
        certificate=folder / CERTIFICATE_FILE,
        key=folder / KEY_FILE,
        seal=secrets.token_bytes(SEAL_SIZE),
    )
    unpack(folder, exported(settings, pin, [row]), password)


def make_code(settings: FarmSettings, minutes: int) -> Code:
    """A code that lets one machine in, by way of this member. ConfigurationError: none can be."""
    if not settings.seal:
        raise ConfigurationError(
            "this farm takes nobody by code: it was not made by `farm init`, or was exported before"
        )
    secret = secrets.token_hex(SECRET_SIZE)
    invite(settings.folder, secret, minutes)
    pin = settings.pins.get(settings.id, b"")
    return Code(settings.farm, settings.endpoint, pin, secret)


async def join(code: Code, folder: Path, endpoint: str) -> int:
    """Fetch what a member needs into `folder`; its number. StorageError: nobody let us in."""
    _refuse_used(folder)
    host, _ = endpoint_address(endpoint)
    pin = _make_key(folder, host, TLS if code.pin else "")
    answer = await _fetch(code, endpoint, pin)
    for _ in range(_TRIES_MORE):
        if answer is not None:
            break
        await asyncio.sleep(_AGAIN_S)
        answer = await _fetch(code, endpoint, pin)
    if answer is None:
        raise StorageError(_refused(code))
    unpack(folder, answer["farm"], answer["password"])
    return int(answer["id"])


def _refused(code: Code) -> str:
    return (
        f"{code.endpoint} lets nobody in with this code: it was used, has expired or is of another "
        "farm; have a new one made with `farm invite`"
    )


async def _fetch(code: Code, endpoint: str, pin: bytes) -> dict[str, Any] | None:
    """What the member says that made the code; None: it knows none such that counts."""
    host, port = endpoint_address(code.endpoint)
    try:
        reader, writer = await open_stream(Route(host, port, code.pin or None))
    except DialFailed as error:
        raise StorageError(
            f"{code.endpoint} cannot be reached, or is not who made this code ({error.reason}): "
            "look whether it runs"
        ) from error
    try:
        async with asyncio.timeout(10 * FARM_HANDSHAKE_MS_MAX / 1000):
            writer.write(encode_join(code, VERSION, authority(host, port), endpoint, pin))
            data = b""
            while len(data) <= _ANSWER_SIZE_MAX and (more := await reader.read(1 << 16)):
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            return None
        answer = parse_json(body)
        password, server_id = answer["password"], answer["id"]
        if type(server_id) is not int or not isinstance(password, str):
            raise ValueError("no number, or no password")
        password.encode()  # no halves of characters: it is written down
        return {"farm": checked(answer["farm"]), "password": password, "id": server_id}
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise StorageError(_refused(code)) from error
    finally:
        await end(writer)
