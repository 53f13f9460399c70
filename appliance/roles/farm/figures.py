"""A node's real figures as the status document that it posts to its farm."""

import asyncio
import base64
import contextlib
import hashlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import psutil

from appliance.base.errors import FormatError
from appliance.base.limits import FARM_DOCUMENT_SIZE_MAX
from appliance.cores.directory.directory import canonical
from appliance.cores.directory.moving import LEVEL
from appliance.cores.directory.status import PUBLISH_OFF, Group
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.network.ask import Told, status_of
from appliance.formats.client.address import client_url
from appliance.formats.group import Configuration
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import FARM, Shard
from appliance.formats.site_view import configuration_in
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.replica import REMOVED, STANDBY, ReplicaStatus
from appliance.formats.status.status import Status
from appliance.roles.farm.node_files import may_sign

BANDWIDTH_DEFAULT = 125_000_000  # bytes a second of a link that does not tell its speed
_LAG_PROBE_S, _LAG_PROBES = 0.25, 240  # together the last minute
_ASK_S = 1.0  # for a process of this node to say how it is
SYNC_STEP = 10  # per cent between two posts of how far a replica has come


class LoopLag:
    """How late the loop calls, milliseconds: the 99th percentile of the last minute."""

    def __init__(self) -> None:
        self._late_ms: deque[int] = deque(maxlen=_LAG_PROBES)

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PROBE_S
            await asyncio.sleep(_LAG_PROBE_S)
            self._late_ms.append(max(0, int((loop.time() - due) * 1000)))

    @property
    def p99_ms(self) -> int:
        ordered = sorted(self._late_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else 0


@dataclass(slots=True)
class Traffic:
    """Bytes a second on all links but loopback, between two looks."""

    at: float = 0.0
    count: int = 0

    def read(self) -> tuple[int, int]:
        """(what the links can do, what they did since the look before)."""
        links = psutil.net_if_stats()
        up = [name for name, link in links.items() if link.isup and name != "lo"]
        configured = sum(links[name].speed * 125_000 for name in up) or BANDWIDTH_DEFAULT
        counters = psutil.net_io_counters(pernic=True)
        count = sum(counters[n].bytes_sent + counters[n].bytes_recv for n in up if n in counters)
        now = time.monotonic()
        elapsed, moved = now - self.at, count - self.count
        known, self.at, self.count = self.at > 0 and elapsed > 0, now, count
        return configured, max(0, int(moved / elapsed)) if known else 0


@dataclass(slots=True, frozen=True)
class Service:
    """A shard that this node serves, as its replica says. `blacklist`: why nobody shall come;
    `ships`: whether the shipper of this node could begin to ship it; `group`: who belongs to it;
    `synced`: per cent of its state that is here."""

    shard: int
    uptime_ms: int
    blacklist: str
    ships: bool = False
    group: Group | None = None
    synced: int = LEVEL


@dataclass(slots=True)
class NodeStatus:
    """What the farm asks of its node; every answer is measured when it is asked for."""

    node: NodeFolder
    started: float = field(default_factory=time.monotonic)
    lag: LoopLag = field(default_factory=LoopLag)
    traffic: Traffic = field(default_factory=Traffic)
    connections: int = 0  # of clients
    circuits: int = 0  # of other nodes, held by this one's replicas

    def read_services(self) -> list[Service]:
        """Asks the replicas and edges of this node; blocks for as long as they take."""
        found = []
        circuits = 0
        for shard in self.node.held:
            replica = self._status_of(ReplicaStatus, shard.number)
            if replica is None:
                found.append(Service(shard.number, 0, "the replica does not answer"))
                continue
            circuits += replica.connections
            if replica.role != REMOVED:
                why = "" if replica.serves else replica.status
                ships = self._may_ship() and replica.role != STANDBY
                group = group_of(shard, replica)
                synced = synced_percent(replica)
                found.append(Service(shard.number, _uptime_ms(replica), why, ships, group, synced))
        connections = 0
        for number in range(self.node.settings.edge_processes):
            edge = self._status_of(EdgeStatus, number)
            connections += edge.connections if edge is not None else 0
        self.circuits, self.connections = circuits, connections
        return found

    def _may_ship(self) -> bool:
        settings = self.node.settings
        return settings.ship_target != SHIP_OFF and settings.ship_claim == "auto"

    def _status_of(self, kind: type[Told], number: int) -> Told | None:
        """What is no such status is no answer: the other process may be of another version."""
        with contextlib.suppress(FormatError):
            return status_of(
                kind,
                self.node.path / SOCKETS_FOLDER,
                cluster=self.node.site.cluster,
                number=number,
                timeout_s=_ASK_S,
            )
        return None

    def uptime_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)


def group_of(shard: Shard, replica: ReplicaStatus) -> Group | None:
    """As the replica tells it; None: it tells of none, or of a member that is not described."""
    told = configuration_in(replica)
    return None if told is None else group_in(shard, told)


def group_in(shard: Shard, told: Configuration) -> Group | None:
    """By the numbers of nodes; None: a member is not described."""
    nodes = [shard.node_of(member) for member in told.members]
    known = tuple(node + 1 for node in nodes if node is not None)
    if len(known) < len(nodes):
        return None
    return Group(shard.number, told.op, known[: told.replica_count], known[told.replica_count :])


def synced_percent(replica: ReplicaStatus) -> int:
    """Of the shard's state that a replica has; below LEVEL of one that only follows, in steps, as
    each is posted."""
    done, total = replica.synced
    if replica.role != STANDBY or (replica.state_ready and done == total and replica.commit_min):
        return LEVEL
    return min(LEVEL - 1, LEVEL * done // total // SYNC_STEP * SYNC_STEP) if total else 0


def _uptime_ms(status: Status) -> int:
    """Of its process; 0 while that does not tell."""
    started = status.process.started or time.time()
    return max(0, int((time.time() - started) * 1000))


def service_id(node: NodeFolder, shard: int) -> str:
    """The identity of a shard's service on this node: what exclusions may name."""
    text = f"{node.site.cluster.hex()} shard {shard} node {node.node.public_key.hex()}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def client_address(node: NodeFolder) -> str:
    """Where clients of this node connect."""
    own = node.node
    return client_url(own.host, own.client_port, tls=node.settings.client_tls)


def publish_of(node: NodeFolder) -> str:
    """Whether the operator, and the site's key, let this node be chosen to sign directories."""
    return node.settings.farm_publish if may_sign(node) else PUBLISH_OFF


@dataclass(slots=True, frozen=True)
class Published:
    """The last directory that this node signed; empty: none."""

    data: bytes = b""
    version: int = 0
    time_ms: int = 0


def status_document(
    status: NodeStatus,
    services: list[Service],
    *,
    date_ms: int,
    published: Published,
    publishing: bool,
) -> bytes:
    """One value for the log, at most FARM_DOCUMENT_SIZE_MAX bytes."""
    node = status.node
    configured, current = status.traffic.read()
    meta: dict[str, Any] = {
        "destination": base64.b64encode(node.site.farm_key).decode(),
        "lastPublishedTime": published.time_ms,
        "publishConfig": publish_of(node),
        "publishing": publishing,
        "version": published.version,
    }
    if published.data and publishing:
        meta["lastPublishedLS"] = base64.b64encode(published.data).decode()
    document = {
        "cluster": FARM,
        "date": date_ms,
        "id": node.node.farm_id,
        "address": client_address(node),
        "config": {},
        "meta": meta,
        "router": {
            "uptime": status.uptime_ms(),
            "jobLag": status.lag.p99_ms,
            "exploratoryTunnels": 0,
            "participatingTunnels": status.circuits,
            "bandwidthConfigured": configured,
            "bandwidthCurrent": min(current, configured),
        },
        "destinations": [
            {
                "destination": service_id(node, service.shard),
                "address": client_address(node),
                "shard": service.shard,
                "ships": service.ships,
                "uptime": service.uptime_ms,
                "bandwidthConfigured": configured,
                "bandwidthCurrent": min(current, configured),
                "connectionsConfigured": node.settings.connections_max,
                "connectionsCurrent": status.connections,
                **({"blacklist": {"why": service.blacklist}} if service.blacklist else {}),
                **({"synced": service.synced} if service.synced < LEVEL else {}),
            }
            for service in services
        ],
        "groups": [service.group.row() for service in services if service.group is not None],
    }
    value = canonical(document)
    if len(value) > FARM_DOCUMENT_SIZE_MAX:  # the directory goes first: it can be asked for again
        meta.pop("lastPublishedLS", None)
        value = canonical(document)
    assert len(value) <= FARM_DOCUMENT_SIZE_MAX
    return value
