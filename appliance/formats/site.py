"""The site file `site.toml`: the nodes, how they are reached and known, the shards they hold.

The same file lies in every node's folder. It is made at format; when the farm keeps the directory,
it replaces this file, not what is computed from it.

    cluster, token_issuer, token_audience
    [[nodes]]     index, name, host, ports, public key, certificate
    [[shards]]    number, members (node indexes in the order of replicas), replica ids, counts

A room belongs to one shard for ever: that with the highest BLAKE2b of room id and shard number.
"""

import base64
import binascii
import functools
import hashlib
import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX, TICK_MS
from appliance.formats.configuration import (
    FilePath,
    Key,
    check_table,
    hexadecimal,
    mistake,
    read_toml,
    text,
    whole,
)

VERSION = 1
NODES_MAX = 64
SHARDS_MAX = 64
SITE_NUMBER_MAX = 255
SEGMENTS_MAX_LOW, SEGMENTS_MAX_HIGH = 8, 1 << 20
RETENTION_DAYS_MAX = 36_500
EVERYTHING = "everything"  # is kept, in place of days
ROUND_TRIP_MS_MAX = 1_000
CLIENT_PROXIES_MAX = 64
SITE_FILE = "site.toml"
_EPOCH_SIZE, _SHORT_ID_SIZE = 4, 5  # bytes of a cluster's id
FARM = "farm"  # name of the farm that the nodes of a site form


@dataclass(frozen=True)
class Node:
    """One machine with one executable."""

    index: int
    name: str
    host: str
    peer_port: int  # shard s listens for peers and remote edges on peer_port + s
    client_port: int
    console_port: int
    public_key: bytes  # Ed25519, 32 bytes: verifies what this node signs
    certificate_pem: str
    client_certificate_pem: str = ""  # what clients and operators are shown; "": the same one
    # where other replicas of the objects connect; 0: this node is to have none; None: nothing was
    # said of objects, as before there were any
    objects_port: int | None = None
    farm_port: int = 0  # where other members of the farm connect; 0: this node is none

    @property
    def farm_id(self) -> int:
        """The number of this node's member of the farm: 0 is nobody."""
        return self.index + 1

    @property
    def client_anchor(self) -> str:
        """The certificate that a client of this node expects, PEM."""
        return self.client_certificate_pem or self.certificate_pem

    @cached_property
    def spki(self) -> bytes:
        """SHA-256 of the certificate's SubjectPublicKeyInfo: what a TLS connection is pinned to."""
        return hashlib.sha256(spki_of(self.certificate_pem)).digest()


@dataclass(frozen=True)
class Shard:
    """One replication group: `members` are node indexes, by replica index, standbys last."""

    number: int
    members: list[int]
    replica_ids: list[bytes]  # random, permanent, by position
    replica_count: int
    standby_count: int
    segments_max: int

    def replica_index(self, node: int) -> int | None:
        """The position of `node` in this shard, or None."""
        return self.members.index(node) if node in self.members else None

    def replica_id_of(self, node: int) -> bytes:
        """The replica that `node`, one of the members, has of this shard."""
        return self.replica_ids[self.members.index(node)]

    def node_of(self, replica_id: bytes) -> int | None:
        """The node that has this replica; None when it is not described."""
        if replica_id not in self.replica_ids:
            return None
        return self.members[self.replica_ids.index(replica_id)]


@dataclass(frozen=True)
class Site:
    """All nodes and shards; nodes[i].index == i, shards[s].number == s."""

    cluster: bytes
    nodes: list[Node]
    shards: list[Shard]
    token_issuer: str
    token_audience: str
    number: int = 1  # among linked sites: it begins the source numbers of objects
    retention_days: float = 0.0  # how long messages are kept; 0: for ever
    farm_key: bytes = b""  # Ed25519, verifies who may sign the farm's directory; empty: no farm
    round_trip_ms: int = 0  # between its nodes, the longest; 0: they stand beside each other
    client_proxies: tuple[str, ...] = ()  # networks of proxies that say for whom they speak

    @property
    def tick_ms(self) -> int:
        """The tick of replicas and of their clients: half a round trip, so that a heartbeat takes
        one, an acknowledgement may take two, and five without a heartbeat are its loss."""
        return max(1, -(-self.round_trip_ms // (2 * TICK_MS))) * TICK_MS

    @property
    def epoch(self) -> int:
        """By which clients tell sites apart, 31 bits of the cluster's id."""
        return int.from_bytes(self.cluster[:_EPOCH_SIZE], "little") >> 1

    def shards_of(self, node: int) -> list[Shard]:
        """The shards of which `node` holds a replica."""
        return [shard for shard in self.shards if node in shard.members]


def short_id(cluster: bytes) -> str:
    """A cluster's id as people compare it."""
    return base64.b32encode(cluster[:_SHORT_ID_SIZE]).decode()


def retention_days_of(text: str) -> float:
    """Days as somebody writes them, EVERYTHING as 0; ConfigurationError: they are neither."""
    try:
        value = 0.0 if text == EVERYTHING else float(text)
        if not 0 <= value <= RETENTION_DAYS_MAX or (value == 0 and text != EVERYTHING):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"days are {text!r}; allowed: {EVERYTHING}, or a number up to {RETENTION_DAYS_MAX}"
        ) from None
    return value


def shard_of_room(site: Site, room_id: bytes) -> int:
    """The number of the shard that holds `room_id`, by rendezvous hash."""
    return shard_of_room_id(room_id, len(site.shards))


def shard_of_room_id(room_id: bytes, shard_count: int) -> int:
    """As `shard_of_room`; the number of shards is all that counts."""
    assert len(room_id) == 16 and shard_count > 0
    if shard_count == 1:
        return 0
    weights = [
        hashlib.blake2b(room_id + number.to_bytes(2, "little"), digest_size=8).digest()
        for number in range(shard_count)
    ]
    return max(range(shard_count), key=weights.__getitem__)


# --- reading ------------------------------------------------------------------------------------


def _host(value: Any) -> str:
    if type(value) is not str or not value or len(value) > 253:
        raise ValueError
    if not all(c.isascii() and (c.isalnum() or c in ".-:_") for c in value):
        raise ValueError
    return value


def _certificate(value: Any) -> str:
    spki_of(value)
    return str(value)


def _indexes(value: Any) -> list[int]:
    if type(value) is not list or not 1 <= len(value) <= MEMBERS_MAX:
        raise ValueError
    if len(set(value)) != len(value):
        raise ValueError
    if any(type(index) is not int or not 0 <= index < NODES_MAX for index in value):
        raise ValueError
    return value


def _ids(value: Any) -> list[bytes]:
    if type(value) is not list or not 1 <= len(value) <= MEMBERS_MAX:
        raise ValueError
    ids = [hexadecimal(16).parse(item) for item in value]
    if len(set(ids)) != len(ids):
        raise ValueError
    return ids


def _tables(value: Any) -> list[Any]:
    if type(value) is not list or not value:
        raise ValueError
    return value


def _days(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= RETENTION_DAYS_MAX:
        raise ValueError
    return float(value)


def _networks(value: Any) -> tuple[str, ...]:
    if type(value) is not list or len(value) > CLIENT_PROXIES_MAX:
        raise ValueError
    if any(type(item) is not str for item in value):
        raise ValueError
    networks = [ipaddress.ip_network(item) for item in value]
    if any(network.prefixlen == 0 for network in networks) or len(set(networks)) != len(networks):
        raise ValueError
    return tuple(map(str, networks))


def _key_or_none(value: Any) -> bytes:
    return hexadecimal(32).parse(value) if value else b""


_PORT = whole(1, 65535)
_SITE_KEYS = {
    "version": whole(VERSION, VERSION),
    "cluster": hexadecimal(16),
    "number": whole(1, SITE_NUMBER_MAX, 1),
    "token_issuer": text(128),
    "token_audience": text(128),
    "round_trip_ms": whole(0, ROUND_TRIP_MS_MAX, 0),
    "client_proxies": Key(
        f"a list of at most {CLIENT_PROXIES_MAX} different addresses or networks such as "
        '"192.0.2.7" or "10.1.0.0/16", whose bits behind the prefix are zero; not all addresses',
        _networks,
        (),
    ),
    "retention_days": Key(f"0 to {RETENTION_DAYS_MAX} days; 0 keeps everything", _days, 0.0),
    "farm_key": Key(hexadecimal(32).allowed, _key_or_none, ""),
    "nodes": Key(f"1 to {NODES_MAX} tables [[nodes]]", _tables),
    "shards": Key(f"1 to {SHARDS_MAX} tables [[shards]]", _tables),
}
_NODE_KEYS = {
    "index": whole(0, NODES_MAX - 1),
    "name": text(64),
    "host": Key("a host name or an address", _host),
    "peer_port": _PORT,
    "client_port": _PORT,
    "console_port": _PORT,
    "objects_port": whole(0, 65535, None),
    "farm_port": whole(0, 65535, 0),
    "public_key": hexadecimal(32),
    "certificate": Key("an X.509 certificate as PEM text", _certificate),
    "client_certificate": Key("an X.509 certificate as PEM text", _certificate, ""),
}
_SHARD_KEYS = {
    "number": whole(0, SHARDS_MAX - 1),
    "members": Key(f"1 to {MEMBERS_MAX} different indexes of nodes", _indexes),
    "replica_ids": Key("as many different ids of 32 hexadecimal digits as members", _ids),
    "replica_count": whole(1, REPLICAS_MAX),
    "standby_count": whole(0, MEMBERS_MAX - 1, 0),
    "segments_max": whole(SEGMENTS_MAX_LOW, SEGMENTS_MAX_HIGH),
}


def load_site(path: FilePath) -> Site:
    """The site in file `path`; raises ConfigurationError with file, key and what is allowed."""
    values = check_table(path, read_toml(path), _SITE_KEYS)
    nodes = [_node(path, table, i) for i, table in enumerate(values["nodes"])]
    shards = [_shard(path, table, i, len(nodes)) for i, table in enumerate(values["shards"])]
    if len(nodes) > NODES_MAX:
        raise mistake(path, "nodes", len(nodes), _SITE_KEYS["nodes"].allowed)
    if len(shards) > SHARDS_MAX:
        raise mistake(path, "shards", len(shards), _SITE_KEYS["shards"].allowed)
    site = Site(
        cluster=values["cluster"],
        nodes=nodes,
        shards=shards,
        token_issuer=values["token_issuer"],
        token_audience=values["token_audience"],
        number=values["number"],
        retention_days=values["retention_days"],
        farm_key=values["farm_key"] or b"",
        round_trip_ms=values["round_trip_ms"],
        client_proxies=values["client_proxies"],
    )
    _check_unique(path, site)
    return site


def _node(path: FilePath, table: Any, position: int) -> Node:
    prefix = f"nodes[{position}]."
    values = check_table(path, table, _NODE_KEYS, prefix)
    if values["index"] != position:
        raise mistake(path, prefix + "index", values["index"], f"{position}, its position")
    for name in ("certificate", "client_certificate"):
        values[f"{name}_pem"] = values.pop(name)
    return Node(**values)


def _shard(path: FilePath, table: Any, position: int, node_count: int) -> Shard:
    prefix = f"shards[{position}]."
    values = check_table(path, table, _SHARD_KEYS, prefix)
    members, count = values["members"], values["replica_count"] + values["standby_count"]
    if values["number"] != position:
        raise mistake(path, prefix + "number", values["number"], f"{position}, its position")
    if max(members) >= node_count:
        raise mistake(path, prefix + "members", members, f"indexes from 0 to {node_count - 1}")
    if len(members) != count:
        raise mistake(
            path, prefix + "members", members, f"{count} indexes, replica_count + standby_count"
        )
    if len(values["replica_ids"]) != count:
        raise mistake(
            path, prefix + "replica_ids", table["replica_ids"], _SHARD_KEYS["replica_ids"].allowed
        )
    return Shard(**values)


def ports_of(site: Site, index: int) -> list[tuple[int, str]]:
    """(port, key in the site file) of everything that node `index` listens on."""
    node = site.nodes[index]
    ports = [(node.peer_port + shard.number, "peer_port") for shard in site.shards_of(index)]
    ports += [(node.client_port, "client_port"), (node.console_port, "console_port")]
    optional = [(node.objects_port, "objects_port"), (node.farm_port, "farm_port")]
    return ports + [(port, key) for port, key in optional if port]


def _check_unique(path: FilePath, site: Site) -> None:
    """No port beyond the last, none used twice on a host; no key or name used by two nodes."""
    for name in ("name", "public_key"):
        values = [getattr(node, name) for node in site.nodes]
        for node in site.nodes:
            if values.index(getattr(node, name)) != node.index:
                raise ConfigurationError(
                    f"{path}: nodes[{node.index}].{name} is that of another "
                    "node; allowed: one of its own for each"
                )
    users: dict[tuple[str, int], str] = {}
    for node in site.nodes:
        for port, name in ports_of(site, node.index):
            key = f"nodes[{node.index}].{name}"
            if port > 65535:
                raise ConfigurationError(
                    f"{path}: {key} leads to port {port} for the last shard; allowed: at most 65535"
                )
            other = users.setdefault((node.host, port), key)
            if other != key:
                raise ConfigurationError(
                    f"{path}: {key} and {other} both use port {port} of "
                    f"{node.host}; allowed: a port of its own for each"
                )


# --- writing ------------------------------------------------------------------------------------


def encode_site(site: Site) -> str:
    """The text of `site.toml`; `load_site` gives the same site back."""
    lines = [
        "# The site: the same file on every node. Hosts and ports may be changed while all",
        "# nodes are stopped; the rest was fixed when the volumes were formatted.",
        f"version = {VERSION}",
        f'cluster = "{site.cluster.hex()}"',
        f"token_issuer = {_quoted(site.token_issuer)}",
        f"token_audience = {_quoted(site.token_audience)}",
        *([f"number = {site.number}"] if site.number != 1 else []),
    ]
    if site.farm_key:
        lines.append(f'farm_key = "{site.farm_key.hex()}"')
    if site.retention_days:
        lines.append(f"retention_days = {site.retention_days!r}")
    if site.round_trip_ms:
        lines.append(f"round_trip_ms = {site.round_trip_ms}")
    if site.client_proxies:
        lines.append(f"client_proxies = [{', '.join(map(_quoted, site.client_proxies))}]")
    for node in site.nodes:
        lines += [
            "",
            "[[nodes]]",
            f"index = {node.index}",
            f"name = {_quoted(node.name)}",
            f"host = {_quoted(node.host)}",
            f"peer_port = {node.peer_port}",
            f"client_port = {node.client_port}",
            f"console_port = {node.console_port}",
            *([] if node.objects_port is None else [f"objects_port = {node.objects_port}"]),
            *([f"farm_port = {node.farm_port}"] if node.farm_port else []),
            f'public_key = "{node.public_key.hex()}"',
            f'certificate = """\n{node.certificate_pem.strip()}\n"""',
        ]
        if node.client_certificate_pem:
            lines.append(f'client_certificate = """\n{node.client_certificate_pem.strip()}\n"""')
    for shard in site.shards:
        ids = ", ".join(f'"{replica_id.hex()}"' for replica_id in shard.replica_ids)
        lines += [
            "",
            "[[shards]]",
            f"number = {shard.number}",
            f"members = {shard.members}",
            f"replica_ids = [{ids}]",
            f"replica_count = {shard.replica_count}",
            f"standby_count = {shard.standby_count}",
            f"segments_max = {shard.segments_max}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- certificates -------------------------------------------------------------------------------


def spki_of(pem: str) -> bytes:
    """The DER bytes of the SubjectPublicKeyInfo of the first certificate in `pem`; else ValueError.

    tbsCertificate is version [0] (optional), serial, algorithm, issuer, validity, subject, then the
    key: six elements to step over, and no library needed on this floor.
    """
    der, position, limit = _certificate_after(pem, (0x02, 0x30, 0x30, 0x30, 0x30))
    stop = _element(der, position, 0x30)[1]
    if stop > limit:
        raise ValueError("broken certificate")
    return der[position:stop]


@functools.lru_cache(maxsize=1024)
def valid_until_ms(pem: str) -> int:
    """When the first certificate in `pem` ends, in milliseconds since the epoch; else ValueError.
    One that never ends says the last second of the year 9999."""
    der, position, limit = _certificate_after(pem, (0x02, 0x30, 0x30))
    position, _ = _element(der, position, 0x30)  # validity: from, until
    position = _element(der, position, der[position])[1]
    tag = der[position] if position < limit else 0
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("broken certificate")
    start, stop = _element(der, position, tag)
    text = der[start:stop].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year, of 1950 to 2049
        text = ("20" if text[:2] < "50" else "19") + text
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000


_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18


def _certificate_after(pem: str, tags: tuple[int, ...]) -> tuple[bytes, int, int]:
    """The first certificate in `pem` as DER, the position in its tbsCertificate behind the version
    and elements of these tags, and where that ends."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start, stop = pem.find(begin), pem.find(end)
    if start < 0 or stop < start:
        raise ValueError("no PEM certificate")
    try:
        der = base64.b64decode("".join(pem[start + len(begin) : stop].split()), validate=True)
    except binascii.Error as error:
        raise ValueError("broken base64") from error
    position, _ = _element(der, 0, 0x30)  # Certificate
    position, limit = _element(der, position, 0x30)  # tbsCertificate
    if der[position : position + 1] == b"\xa0":
        position = _element(der, position, 0xA0)[1]
    for tag in tags:
        position = _element(der, position, tag)[1]
    return der, position, limit


def _element(der: bytes, position: int, tag: int) -> tuple[int, int]:
    """(start of contents, end) of the DER element at `position`, which must have `tag`."""
    if position + 2 > len(der) or der[position] != tag:
        raise ValueError("broken certificate")
    size, start = der[position + 1], position + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4 or start + count > len(der):
            raise ValueError("broken certificate")
        size, start = int.from_bytes(der[start : start + count], "big"), start + count
    if start + size > len(der):
        raise ValueError("broken certificate")
    return start, start + size
