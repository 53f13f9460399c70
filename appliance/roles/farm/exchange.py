"""What many machines need to know of one farm, as one file; passwords only in one of their own.

farm, realm, carrier, digests   as every member has to have them
require_server_proof            whether members insist on it; absent: they do not
members      id, endpoint, pin: the SHA-256 of the SPKI of its key in hex, empty without TLS
timings      ms and entries
limits       the bounds of this version, to be compared; nobody reads them back
users        name, class, id and H(A1) by algorithm: as good as passwords for a login, so the
             file is for its owner alone
    seal         the farm's key for guests, in hex; empty: none can be invited
"""

import json
from pathlib import Path
from typing import Any

from appliance.base import limits
from appliance.base.errors import ConfigurationError, FarmFrameError
from appliance.base.json_text import parse_json
from appliance.cores.raft.settings import OWN, TICK_MS
from appliance.drivers.host.durable_file import write_durable
from appliance.formats.raft_legacy.configuration import (
    Server,
    endpoint_address,
    server_checked,
)
from appliance.roles.farm.settings import (
    RAW,
    TLS,
    FarmSettings,
    read_password,
    read_secret,
    read_users,
    timed,
    write_users,
)

VERSION = 1
SETTINGS_FILE, USERS_FILE, PASSWORD_FILE = "farm.json", "users.json", "password"
CERTIFICATE_FILE, KEY_FILE = "tls.crt", "tls.key"


def exported(settings: FarmSettings, own_pin: bytes, users: list[dict[str, Any]]) -> dict[str, Any]:
    """The file of a farm as a member knows it; `own_pin` of its own certificate, empty without."""
    raft = settings.raft
    pins = {**settings.pins, settings.id: own_pin}
    servers = sorted((Server(settings.id, settings.endpoint), *settings.peers))
    return {
        "version": VERSION,
        "farm": settings.farm,
        "realm": settings.realm,
        "carrier": settings.carrier,
        "digests": list(settings.algorithms),
        "require_server_proof": settings.require_server_proof,
        "members": [
            {"id": s.id, "endpoint": s.endpoint, "pin": pins.get(s.id, b"").hex()} for s in servers
        ],
        "timings": {
            "election_ms_min": raft.election_ticks_min * TICK_MS,
            "election_ms_max": raft.election_ticks_max * TICK_MS,
            "heartbeat_ms": raft.heartbeat_ticks * TICK_MS,
            "snapshot_distance": raft.snapshot_distance,
        },
        "limits": {
            name.lower(): value
            for name, value in sorted(vars(limits).items())
            if name.startswith("FARM_")
        },
        "users": users,
        "seal": settings.seal.hex(),
    }


def write_export(path: Path, content: dict[str, Any]) -> None:
    write_durable(path, json.dumps(content, indent=1) + "\n", mode=0o600)


def read_export(path: Path) -> dict[str, Any]:
    """What `write_export` wrote. ConfigurationError otherwise."""
    try:
        return checked(parse_json(read_secret(path)))
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: no farm that was exported ({error!r}); export it again"
        ) from error


def checked(found: Any) -> dict[str, Any]:
    """A farm as `exported` makes it. ValueError: it is none."""
    try:
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']}, this program writes {VERSION}")
        _members(found)
        _timings(found)
        if not isinstance(found.get("require_server_proof", False), bool):
            raise ValueError("require_server_proof that is neither true nor false")
        if not isinstance(found["users"], list):
            raise ValueError("users that are no list")
    except (KeyError, TypeError, FarmFrameError) as error:
        raise ValueError(repr(error)) from error
    return dict(found)


def _members(content: dict[str, Any]) -> dict[int, tuple[Server, bytes]]:
    found = {}
    for row in content["members"]:
        pin = bytes.fromhex(row["pin"])
        if len(pin) not in (0, 32):
            raise ValueError(f"a pin of {len(pin)} bytes")
        server = server_checked(row["id"], row["endpoint"])
        found[server.id] = (server, pin)
    return found


def _timings(content: dict[str, Any]) -> tuple[tuple[int, int], int, int]:
    row = content["timings"]
    low, high, beat = (row[f"{k}"] for k in ("election_ms_min", "election_ms_max", "heartbeat_ms"))
    distance = row["snapshot_distance"]
    if not all(type(value) is int for value in (low, high, beat, distance)):
        raise ValueError("timings that are no integers")
    return (low, high), beat, distance


def unpack(folder: Path, content: dict[str, Any], password: str) -> None:
    """The files of one machine in `folder`: settings, users and, if there is one, its password."""
    write_export(folder / SETTINGS_FILE, content)
    write_users(folder / USERS_FILE, content["users"])
    read_users(folder / USERS_FILE)
    if password:
        write_durable(folder / PASSWORD_FILE, password + "\n", mode=0o600)


def settings_of(
    folder: Path, server_id: int, *, listen: tuple[str, int] | None, join: bool
) -> FarmSettings:
    """How member `server_id` runs by the files that `unpack` made in `folder`, with its certificate
    and key beside them. `listen` None: at its own endpoint.

    ConfigurationError when the files do not list it, or lack what it needs.
    """
    content = read_export(folder / SETTINGS_FILE)
    members = _members(content)
    users = read_users(folder / USERS_FILE)
    if server_id not in members:
        ids = ", ".join(map(str, members))
        raise ConfigurationError(f"member {server_id} is not in {SETTINGS_FILE}; allowed: {ids}")
    own, _ = members[server_id]
    others = [server for server, _ in members.values() if server.id != server_id]
    election_ms, heartbeat_ms, distance = _timings(content)
    has_login, has_tls = content["carrier"] != RAW, content["carrier"] == TLS
    return FarmSettings(
        folder=folder,
        id=server_id,
        farm=content["farm"],
        realm=content["realm"],
        carrier=content["carrier"],
        algorithms=tuple(content["digests"]),
        require_server_proof=content.get("require_server_proof", False),
        listen=listen or endpoint_address(own.endpoint),
        endpoint=own.endpoint,
        peers=() if join else tuple(others),
        join=join,
        user=next((user.name for user in users if user.id == server_id), ""),
        password=read_password(folder / PASSWORD_FILE) if has_login else "",
        users=users,
        certificate=folder / CERTIFICATE_FILE if has_tls else None,
        key=folder / KEY_FILE if has_tls else None,
        pins={server.id: pin for server, pin in members.values() if pin},
        seal=bytes.fromhex(content.get("seal", "")),
        known=tuple(others) if join else (own, *others),
        raft=timed(OWN, election_ms=election_ms, heartbeat_ms=heartbeat_ms, snapshots=distance),
    )
