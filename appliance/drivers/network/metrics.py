"""All figures of a node for Prometheus, from what its processes say of themselves.

One table says what of a status is which metric; the library writes the text: types, help, escaping.
A process that does not answer has `tigerchat_up` 0 and no other figure; one of a kind that the
table does not know has the figures that every process has of itself.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from appliance.formats.nvme_health import Health
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import ShippedShard, ShipperStatus
from appliance.formats.status.status import Status

METRICS_TYPE = CONTENT_TYPE_PLAIN_0_0_4
PREFIX = "tigerchat_"


class Said(NamedTuple):
    """A process that was asked, by its kind, and what it answered."""

    kind: str
    node: int
    number: int
    answer: Status | None


# A figure of a status: a number, or a table of them by the values of the figure's labels.
Value = float | Mapping[Any, float] | Mapping[Any, Mapping[Any, float]]
S = TypeVar("S", contravariant=True)


@dataclass(frozen=True, slots=True)
class Figure(Generic[S]):
    """One metric: how its value is read from a status, and the labels of its table, if it is one,
    beside those that name the process."""

    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    read: Callable[[S], Value]
    labels: tuple[str, ...] = ()


class _Connected(Protocol):
    """Whoever others connect to."""

    @property
    def connection_events(self) -> Mapping[str, int]: ...


class _Dropping(Protocol):
    """Whoever frames come to."""

    @property
    def dropped(self) -> Mapping[str, int]: ...


_MICRO, _MILLI, _PERCENT = 1e-6, 1e-3, 0.01
_NAME, _SHARD, _DISK = ("name",), ("shard",), ("disk",)
_TRANSPORT, _REASON = ("transport",), ("transport", "reason")
_C, _G = CounterMetricFamily, GaugeMetricFamily


def _by_shard(status: ShipperStatus, read: Callable[[ShippedShard], float]) -> Mapping[int, float]:
    return {shard.shard: read(shard) for shard in status.shards}


def _by_disk(status: ReplicaStatus, read: Callable[[Health], float]) -> Mapping[str, float]:
    return {name: read(health) for name, health in status.volume.health.disks.items()}


_PROCESS: tuple[Figure[Status], ...] = (
    Figure("resident_bytes", _G, "Memory that the process holds.", lambda s: s.process.rss),
    Figure("cpu_seconds", _C, "CPU time that the process used.", lambda s: s.process.cpu_seconds),
    Figure("open_files", _G, "Descriptors that the process holds.", lambda s: s.process.files),
    Figure("seconds_late", _C, "Seconds that a stall swallowed.", lambda s: s.beat.seconds_late),
    Figure(
        "weather", _C, "What the machine refused, and nobody expected.", lambda s: s.beat.weather
    ),
)
_EVENTS: Figure[_Connected] = Figure(
    "connection_events",
    _C,
    "What happened to connections, by name.",
    lambda s: s.connection_events,
    _NAME,
)
_DROPPED: Figure[_Dropping] = Figure(
    "dropped", _C, "Frames that were dropped, by reason.", lambda s: s.dropped, _NAME
)
_REPLICA: tuple[Figure[ReplicaStatus], ...] = (
    Figure("serving", _G, "1 while the replica's status is normal.", lambda s: s.serves),
    Figure("primary", _G, "1 while it is primary of its view.", lambda s: s.is_serving_primary),
    Figure("votes", _G, "1 for who votes, 0 for who only follows.", lambda s: s.votes),
    Figure("voters", _G, "Replicas of the shard that vote.", lambda s: s.replica_count),
    Figure("view", _G, "View of the replica.", lambda s: s.view),
    Figure("op", _G, "Newest op that the replica holds.", lambda s: s.op),
    Figure("commit_min", _G, "Newest op that the replica has executed.", lambda s: s.commit_min),
    Figure("commit_max", _G, "Newest op known to be committed.", lambda s: s.commit_max),
    Figure("checkpoint", _G, "Op of the newest checkpoint.", lambda s: s.checkpoint),
    Figure("log_seq", _G, "Records committed since the shard began.", lambda s: s.log_seq),
    Figure("dirty_slots", _G, "Journal slots that are not durable yet.", lambda s: s.dirty),
    Figure("faulty_slots", _G, "Journal slots known to be broken.", lambda s: s.faulty),
    Figure("clients", _G, "Sessions of edges that the log remembers.", lambda s: s.clients),
    Figure("connections", _G, "Connections of other nodes.", lambda s: s.connections),
    Figure("edges", _G, "Edges of this machine that are attached.", lambda s: s.edges),
    Figure("extents", _G, "Extents of the volume in use.", lambda s: s.volume.extents),
    Figure("extents_max", _G, "Extents it may have.", lambda s: s.volume.extents_max),
    Figure("disk_bytes", _G, "Bytes of its disk, taken or free.", lambda s: s.volume.disk_size),
    Figure("disk_free_bytes", _G, "Bytes of it that are free.", lambda s: s.volume.disk_free),
    Figure(
        "disk_failing",
        _G,
        "Warnings that a disk gives.",
        lambda s: _by_disk(s, lambda health: len(health.warnings)),
        _DISK,
    ),
    Figure(
        "disk_spare_ratio",
        _G,
        "Spare blocks left.",
        lambda s: _by_disk(s, lambda health: health.spare_percent * _PERCENT),
        _DISK,
    ),
    Figure(
        "disk_used_ratio",
        _G,
        "Life that is used.",
        lambda s: _by_disk(s, lambda health: health.used_percent * _PERCENT),
        _DISK,
    ),
    Figure(
        "disk_celsius",
        _G,
        "Temperature of a disk.",
        lambda s: _by_disk(s, lambda health: health.temperature_c),
        _DISK,
    ),
    Figure(
        "disk_media_errors",
        _C,
        "Data not given back.",
        lambda s: _by_disk(s, lambda health: health.media_errors),
        _DISK,
    ),
    Figure(
        "disk_power_losses",
        _C,
        "Unsafe shutdowns.",
        lambda s: _by_disk(s, lambda health: health.unsafe_shutdowns),
        _DISK,
    ),
    Figure("written_bytes", _C, "Bytes written to the volume.", lambda s: s.volume.bytes_written),
    Figure(
        "write_p50_seconds",
        _G,
        "Median durable write.",
        lambda s: s.volume.journal.p50_us * _MICRO,
    ),
    Figure("write_p99_seconds", _G, "99th percentile.", lambda s: s.volume.journal.p99_us * _MICRO),
    Figure(
        "log_ahead_seconds",
        _G,
        "Log time before the clock.",
        lambda s: s.clock.log_ahead_us * _MICRO,
    ),
    Figure("ticks_late", _C, "Ticks that a stall swallowed.", lambda s: s.ticks_late),
    Figure("received", _C, "Messages from peers, by command.", lambda s: s.received, _NAME),
    Figure("sent", _C, "Messages to peers, by command.", lambda s: s.sent, _NAME),
    Figure("events", _C, "What the protocol did, by name.", lambda s: s.counters, _NAME),
    _DROPPED,
    _EVENTS,
    *_PROCESS,
)
_EDGE: tuple[Figure[EdgeStatus], ...] = (
    Figure("serving", _G, "1 while the edge serves clients.", lambda s: s.serves),
    Figure("connections", _G, "Conversations of clients.", lambda s: s.connections),
    Figure("connections_max", _G, "Connections it has room for.", lambda s: s.connections_max),
    Figure(
        "transport_connections",
        _G,
        "Connections now.",
        lambda s: s.connections_by_transport,
        _TRANSPORT,
    ),
    Figure("received_bytes", _C, "Bytes from clients.", lambda s: s.bytes_received, _TRANSPORT),
    Figure("sent_bytes", _C, "Bytes to clients.", lambda s: s.bytes_sent, _TRANSPORT),
    Figure(
        "refusals",
        _C,
        "Who was not let in, by reason.",
        lambda s: s.refused_by_transport,
        _REASON,
    ),
    Figure(
        "ends",
        _C,
        "Conversations that the edge ended, by reason.",
        lambda s: s.ended_by_transport,
        _REASON,
    ),
    Figure("sessions", _G, "Sessions of clients.", lambda s: s.sessions),
    Figure("subscriptions", _G, "Rooms followed over these.", lambda s: s.subscriptions),
    Figure("lagging", _G, "Subscriptions served from stored segments.", lambda s: s.lagging),
    Figure("rooms_known", _G, "Rooms that the edge remembers.", lambda s: s.rooms_known),
    Figure("acked", _C, "Messages that were answered.", lambda s: s.acked),
    Figure("refused", _C, "Requests answered with an error.", lambda s: s.refused),
    Figure("live_events", _C, "Messages delivered as they came.", lambda s: s.live_events),
    Figure("stored_events", _C, "Messages delivered from segments.", lambda s: s.stored_events),
    Figure("log_seq", _G, "Newest record known, by shard.", lambda s: s.log_seq, _SHARD),
    Figure(
        "waiting_records",
        _G,
        "Records waiting for the log, by shard.",
        lambda s: s.waiting,
        _SHARD,
    ),
    Figure("ack_p50_seconds", _G, "Median request to the log.", lambda s: s.ack.p50_us * _MICRO),
    Figure("ack_p99_seconds", _G, "99th percentile.", lambda s: s.ack.p99_us * _MICRO),
    Figure("collections", _C, "Collections of all garbage.", lambda s: s.memory.collections),
    Figure("pause_seconds", _G, "Longest pause for one.", lambda s: s.memory.pause_ms_max * _MILLI),
    Figure("events", _C, "What clients did, by name.", lambda s: s.counters, _NAME),
    _DROPPED,
    _EVENTS,
    *_PROCESS,
)
_SHIPPER: tuple[Figure[ShipperStatus], ...] = (
    Figure(
        "late_seconds",
        _G,
        "Time past a period's end, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.late_s),
        _SHARD,
    ),
    Figure(
        "backlog_records",
        _G,
        "Records not shipped yet, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.backlog),
        _SHARD,
    ),
    Figure(
        "manifests",
        _G,
        "Manifests at the target, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.manifests),
        _SHARD,
    ),
    Figure(
        "ships",
        _G,
        "1 where this node ships, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.ships),
        _SHARD,
    ),
    Figure(
        "failures",
        _G,
        "Failures in a row, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.failures),
        _SHARD,
    ),
    Figure(
        "put_files",
        _C,
        "Files written to the target, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.put_files),
        _SHARD,
    ),
    Figure(
        "put_bytes",
        _C,
        "Bytes written to the target, by shard.",
        lambda s: _by_shard(s, lambda shard: shard.put_bytes),
        _SHARD,
    ),
    _DROPPED,
    _EVENTS,
    *_PROCESS,
)
_CONSOLE: tuple[Figure[ConsoleStatus], ...] = (
    Figure("alarms", _G, "Alarms that are raised, by name.", lambda s: s.alarms, _NAME),
    Figure("streams", _G, "Pages that are told each second.", lambda s: s.streams),
    _EVENTS,
    *_PROCESS,
)
FIGURES: dict[str, tuple[Figure[Any], ...]] = {
    ReplicaStatus.kind: _REPLICA,
    EdgeStatus.kind: _EDGE,
    ShipperStatus.kind: _SHIPPER,
    ConsoleStatus.kind: _CONSOLE,
}


def figures_of(kind: str) -> tuple[Figure[Any], ...]:
    """Of a kind that has none of its own those that every process has."""
    return FIGURES.get(kind, _PROCESS)


class _Figures(Collector):
    def __init__(self, said: Iterable[Said]) -> None:
        self._said = list(said)

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            PREFIX + "up", "1 while the process answers.", labels=("kind", "node", "number")
        )
        for kind, node, number, answer in self._said:
            up.add_metric((kind, str(node), str(number)), float(answer is not None))
        yield up
        for kind in dict.fromkeys((*FIGURES, *(said.kind for said in self._said))):
            told = [
                (str(node), str(number), answer)
                for of, node, number, answer in self._said
                if of == kind and answer is not None
            ]
            for figure in figures_of(kind):
                yield _family(kind, figure, told)


def _family(
    kind: str, figure: Figure[Any], told: list[tuple[str, str, Status]]
) -> CounterMetricFamily | GaugeMetricFamily:
    number_label = "shard" if kind == ReplicaStatus.kind else "number"
    labels = ("node", number_label, *figure.labels)
    family = figure.kind(f"{PREFIX}{kind}_{figure.name}", figure.help, labels=labels)
    for node, number, status in told:
        for names, each in _rows(figure.read(status), len(figure.labels)):
            family.add_metric((node, number, *names), each)
    return family


def _rows(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers in a table, under `depth` names each."""
    if not depth:
        yield (), float(value)
        return
    for name, within in sorted(value.items()):
        for names, each in _rows(within, depth - 1):
            yield (str(name), *names), each


def exposition(said: Iterable[Said]) -> bytes:
    """The text of all figures, of type METRICS_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(said))
    return generate_latest(registry)


class Probes:
    """Two pages for machines: `/metrics` for whoever shows the key as a bearer token or is signed
    in, `/readyz` for everybody, in one word."""

    def __init__(
        self,
        key: bytes,
        *,
        allowed: Callable[[Request], bool],
        said: Callable[[], Awaitable[list[Said]]],
        ready: Callable[[], bool],
    ) -> None:
        self._key, self._allowed, self._said, self._is_ready = key, allowed, said, ready

    def routes(self) -> list[Route]:
        return [Route("/metrics", self._metrics), Route("/readyz", self._ready)]

    async def _metrics(self, request: Request) -> Response:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(shown.encode(), self._key) and not self._allowed(request):
            return JSONResponse(
                {"error": "sign in, or show the node's keys/metrics.key as a bearer token"}, 401
            )
        return Response(exposition(await self._said()), media_type=METRICS_TYPE)

    async def _ready(self, request: Request) -> Response:
        ready = self._is_ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)


def serves(answer: Status | None) -> bool:
    """Whether the process that gave this answer does its duty."""
    return answer is not None and answer.serves
