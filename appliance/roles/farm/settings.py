"""What an operator says of a member; files with secrets are for their owner alone."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError, FarmFrameError
from appliance.base.json_text import parse_json
from appliance.base.limits import FARM_ID_MAX
from appliance.cores.raft.dial import Credentials
from appliance.cores.raft.digest import ALGORITHMS, SHA256, secret_of
from appliance.cores.raft.settings import TICK_MS, Settings
from appliance.cores.raft.users import FARM_NAME, MEMBER, TYPES, USER_NAME, User
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.network.farm_stream import is_loopback
from appliance.formats.raft_legacy.configuration import Server, endpoint_address

TLS, PLAIN, RAW = "tls", "plain", "raw"
CARRIERS = (TLS, PLAIN, RAW)
REALM_DEFAULT = "farm"


@dataclass(slots=True, frozen=True)
class FarmSettings:
    """`listen` is our socket, `endpoint` what all members are told; a gateway may lie between."""

    folder: Path
    id: int
    farm: str
    listen: tuple[str, int]
    endpoint: str
    peers: tuple[Server, ...]  # the other members from the start; for a joiner none
    join: bool
    carrier: str
    user: str = ""
    password: str = field(default="", repr=False)
    realm: str = REALM_DEFAULT
    users: tuple[User, ...] = ()
    algorithms: tuple[str, ...] = (SHA256,)
    certificate: Path | None = None
    key: Path | None = None
    pins: dict[int, bytes] = field(default_factory=dict)  # id -> digest of its key
    proxy: tuple[str, int] | None = None
    proxy_absolute: bool = False  # ask it for the whole URL, instead of CONNECT
    require_server_proof: bool = False  # of whom we log in to
    seal: bytes = field(default=b"", repr=False)  # the farm's key for guests; empty: takes none
    known: tuple[Server, ...] = ()  # whom a joiner may ask to be added; others: all members
    raft: Settings = field(default_factory=Settings)

    def check(self) -> None:
        """ConfigurationError: one sentence with what is wrong and what is allowed."""
        if not 1 <= self.id <= FARM_ID_MAX:
            raise ConfigurationError(f"id {self.id}; allowed: 1 to {FARM_ID_MAX}")
        if FARM_NAME.fullmatch(self.farm) is None:
            raise ConfigurationError(f"farm {self.farm!r}; allowed: 1 to 64 of A-Z a-z 0-9 . _ -")
        if self.carrier not in CARRIERS:
            raise ConfigurationError(f"carrier {self.carrier!r}; allowed: {', '.join(CARRIERS)}")
        for server in (Server(self.id, self.endpoint), *self.peers):
            self._check_server(server)
        if self.carrier != TLS and not is_loopback(self.listen[0]):
            raise ConfigurationError(
                f"carrier {self.carrier} on {self.listen[0]}; allowed: on a loopback address only"
            )
        if self.carrier == TLS and (self.certificate is None or self.key is None):
            raise ConfigurationError("carrier tls needs a certificate and its key")
        if self.carrier != RAW and not (self.user and self.password and self.users):
            raise ConfigurationError("a login needs a user, its password file and a users file")
        if self.proxy_absolute and (self.proxy is None or self.carrier != PLAIN):
            raise ConfigurationError(
                f"absolute targets with carrier {self.carrier}; allowed: with a proxy and carrier "
                f"{PLAIN}, others go through CONNECT"
            )
        if self.require_server_proof and self.carrier == RAW:
            raise ConfigurationError(f"carrier {RAW} has no login in which a server could prove")
        if self.join and self.peers:
            raise ConfigurationError("a joiner lists no peers: whoever adds it tells it")

    def credentials(self) -> Credentials | None:
        """As whom the member logs in; None: it speaks raw frames."""
        if self.carrier == RAW:
            return None
        return Credentials(self.user, self.password, self.algorithms, self.require_server_proof)

    def _check_server(self, server: Server) -> None:
        try:
            host, _ = endpoint_address(server.endpoint)
        except FarmFrameError as error:
            raise ConfigurationError(str(error)) from error
        if self.carrier != TLS and not is_loopback(host):
            raise ConfigurationError(
                f"endpoint {server.endpoint} with carrier {self.carrier}; allowed: loopback only"
            )
        if server.id != self.id and self.carrier == TLS and server.id not in self.pins:
            raise ConfigurationError(f"peer {server.id} has no pinned key: say --pin {server.id}=…")


def timed(
    raft: Settings,
    *,
    election_ms: tuple[int, int],
    heartbeat_ms: int,
    snapshots: int | None = None,
) -> Settings:
    """`raft` with other times. ConfigurationError when they do not fit each other.

    `snapshots`: entries between two of them.
    """
    distance = raft.snapshot_distance if snapshots is None else snapshots
    low, high = (value // TICK_MS for value in election_ms)
    heartbeat = heartbeat_ms // TICK_MS
    if not 0 < 3 * heartbeat <= low <= high:
        raise ConfigurationError(
            f"election {election_ms[0]} to {election_ms[1]} ms, heartbeat {heartbeat_ms} ms; "
            f"allowed: a rising pair, and a heartbeat of {TICK_MS} ms up to a third of the lower"
        )
    return replace(
        raft,
        election_ticks_min=low,
        election_ticks_max=high,
        heartbeat_ticks=heartbeat,
        client_ticks=5 * high,
        join_ticks=10 * high,
        snapshot_distance=distance,
        snapshot_lag=min(raft.snapshot_lag, distance // 2),
    )


# --- files with secrets ---------------------------------------------------------------------------


def read_secret(path: Path) -> str:
    """The text of a file that only its owner may read. ConfigurationError otherwise."""
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not readable ({error}); restore it") from error
    if mode & 0o077:
        raise ConfigurationError(f"{path} has mode {mode:o}; allowed: 600, its owner alone")
    return text


def read_password(path: Path) -> str:
    password = read_secret(path).rstrip("\n")
    if not password:
        raise ConfigurationError(f"{path} is empty; it must hold a password")
    return password


def read_users(path: Path) -> tuple[User, ...]:
    """A JSON list of name, class, id and H(A1) by algorithm."""
    return users_of(read_rows(path))


def users_of(rows: list[dict[str, Any]]) -> tuple[User, ...]:
    """The same, as it is known."""
    return tuple(map(_user, rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The same as it stands there."""
    try:
        rows: list[dict[str, Any]] = parse_json(read_secret(path))
        for row in rows:
            _user(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path}: not a list of users ({error}); restore it") from error
    return rows


def _user(row: dict[str, Any]) -> User:
    name, role, server_id, secrets = row["name"], row["class"], row["id"], row["secrets"]
    if USER_NAME.fullmatch(name) is None or role not in TYPES:
        raise ValueError(f"user {name!r} of class {role!r}")
    if (server_id > 0) != (role == MEMBER) or not set(secrets) <= set(ALGORITHMS):
        raise ValueError(f"user {name!r} with id {server_id}")
    hexes = all(re.fullmatch(r"[0-9a-f]{32}|[0-9a-f]{64}", s) for s in secrets.values())
    if not hexes or not secrets:
        raise ValueError(f"user {name!r} with a secret that is no digest")
    return User(name, role, server_id, dict(secrets))


def make_user(*, name: str, role: str, server_id: int, realm: str, password: str) -> dict[str, Any]:
    """A row of a users file; passwords go no further than here."""
    secrets = {
        algorithm: secret_of(algorithm, username=name, realm=realm, password=password)
        for algorithm in ALGORITHMS
    }
    row = {"name": name, "class": role, "id": server_id, "secrets": secrets}
    _user(row)
    return row


def write_users(path: Path, rows: list[dict[str, Any]]) -> None:
    write_durable(path, json.dumps(rows, indent=1) + "\n", mode=0o600)
