"""The servers of a farm as a value, and the endpoint of a server."""

import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_ENDPOINT_SIZE_MAX, FARM_ID_MAX
from appliance.formats.raft_legacy.frame import check_id, check_index

_HEAD = struct.Struct(">qq")  # log_index, last_log_index
_SERVER = struct.Struct(">ii")  # id, length of the endpoint
_ID = struct.Struct(">i")

_ENDPOINT = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
    r"|\[(?P<six>[0-9A-Fa-f:.]+)\]):(?P<port>[1-9][0-9]{0,4})/?"
)


class Server(NamedTuple):
    id: int
    endpoint: str


@dataclass(slots=True, frozen=True)
class Configuration:
    """`index`: of this very entry, as its leader believed; `previous`: of the one before, or 0."""

    index: int
    previous: int
    servers: tuple[Server, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(server.id for server in self.servers)

    def endpoint_of(self, server_id: int) -> str | None:
        """The endpoint of a server, or None where it is not listed."""
        return next((s.endpoint for s in self.servers if s.id == server_id), None)


def encode_configuration(configuration: Configuration) -> bytes:
    servers = [encode_server(server) for server in configuration.servers]
    return _HEAD.pack(configuration.index, configuration.previous) + b"".join(servers)


def decode_configuration(value: bytes) -> Configuration:
    """Of a whole value; servers follow until it ends, each id once."""
    if len(value) < _HEAD.size:
        raise FarmFrameError("configuration_malformed", f"{len(value)} bytes of configuration")
    index, previous = _HEAD.unpack_from(value)
    check_index("log_index", index)
    check_index("last_log_index", previous)
    servers = []
    seen = set()
    offset = _HEAD.size
    while offset < len(value):
        server, offset = _decode_server(value, offset)
        if server.id in seen:
            sentence = f"server {server.id} is listed twice"
            raise FarmFrameError("configuration_malformed", sentence)
        seen.add(server.id)
        servers.append(server)
    return Configuration(index, previous, tuple(servers))


def encode_server(server: Server) -> bytes:
    """A server, as in a Configuration and in AddServer."""
    endpoint = server.endpoint.encode("ascii")
    return _SERVER.pack(server.id, len(endpoint)) + endpoint


def decode_server(value: bytes) -> Server:
    """The value of AddServer: one server, exactly."""
    server, end = _decode_server(value, 0)
    if end != len(value):
        sentence = f"{len(value) - end} bytes behind the server"
        raise FarmFrameError("configuration_malformed", sentence)
    return server


def _decode_server(value: bytes, offset: int) -> tuple[Server, int]:
    left = len(value) - offset
    if left < _SERVER.size:
        raise FarmFrameError("configuration_malformed", f"a server of {left} bytes")
    server_id, size = _SERVER.unpack_from(value, offset)
    offset += _SERVER.size
    check_id("server", server_id, 1)
    if not 1 <= size <= FARM_ENDPOINT_SIZE_MAX:
        sentence = f"an endpoint of {size} bytes, 1 to {FARM_ENDPOINT_SIZE_MAX} are allowed"
        raise FarmFrameError("endpoint_invalid", sentence)
    raw = value[offset : offset + size]
    if len(raw) != size:
        raise FarmFrameError("configuration_malformed", f"{len(raw)} of {size} bytes of endpoint")
    if not all(0x21 <= byte <= 0x7E for byte in raw):
        raise FarmFrameError("endpoint_invalid", "an endpoint with other than visible ASCII")
    return Server(server_id, raw.decode("ascii")), offset + size


def encode_server_id(server_id: int) -> bytes:
    """The value of RemoveServer."""
    return _ID.pack(server_id)


def decode_server_id(value: bytes) -> int:
    """The value of RemoveServer: exactly four bytes."""
    if len(value) != _ID.size:
        raise FarmFrameError("configuration_malformed", f"a server's id of {len(value)} bytes")
    server_id = int(_ID.unpack(value)[0])
    check_id("server", server_id, 1)
    return server_id


def endpoint_address(endpoint: str) -> tuple[str, int]:
    """Host and port of `word://host:port`; hosts are names, IPv4, or IPv6 in brackets.

    No underscore in a name: JRaft takes an endpoint for a URI and breaks on it.
    """
    found = _ENDPOINT.fullmatch(endpoint)
    port = int(found["port"]) if found else 0
    if found is None or port > 65535 or len(endpoint) > FARM_ENDPOINT_SIZE_MAX:
        sentence = f"endpoint {endpoint[:80]!r}: write tcp://host:port, without underscores"
        raise FarmFrameError("endpoint_invalid", sentence)
    return found["name"] or found["six"], port


def server_checked(server_id: int, endpoint: str) -> Server:
    """A server as we would list it ourselves."""
    if not 1 <= server_id <= FARM_ID_MAX:
        raise FarmFrameError("id_invalid", f"id {server_id}, 1 to {FARM_ID_MAX} is allowed")
    endpoint_address(endpoint)
    return Server(server_id, endpoint)
