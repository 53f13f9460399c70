"""All figures of a node for Prometheus, from what its processes say of themselves.

One table says which value of an answer is which metric; the library writes the text: types, help,
escaping. A process that does not answer has `tigerchat_up` 0 and no other figure.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

METRICS_TYPE = CONTENT_TYPE_PLAIN_0_0_4
PREFIX = "tigerchat_"


class Said(NamedTuple):
    """A process that was asked, by what it does ("replica", "edge", "shipper", "console"), and what
    it answered."""

    kind: str
    node: int
    number: int
    answer: Mapping[str, Any] | None


class Figure(NamedTuple):
    """One metric: where its value stands in an answer ("a.b": key b of the value of a). A value
    that is a table becomes a sample for each of its rows, whose key is under `label`; of a table of
    tables the key within is under `inner`."""

    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    path: str
    scale: float = 1.0
    label: str = "name"
    inner: str = ""


_C, _G = CounterMetricFamily, GaugeMetricFamily
_PROCESS = (
    Figure("resident_bytes", _G, "Memory that the process holds.", "process.rss"),
    Figure("cpu_seconds", _C, "CPU time that the process used.", "process.cpu_seconds"),
    Figure("open_files", _G, "Descriptors that the process holds.", "process.files"),
    Figure("seconds_late", _C, "Seconds that a stall swallowed.", "beat.seconds_late"),
    Figure("weather", _C, "What the machine refused, and nobody expected.", "beat.weather"),
)
_EVENTS = Figure(
    "connection_events", _C, "What happened to connections, by name.", "connection_events"
)
_TRANSPORT = "transport"
_DROPPED = Figure("dropped", _C, "Frames that were dropped, by reason.", "dropped")
_BY_TRANSPORT = (
    Figure(
        "transport_connections",
        _G,
        "Connections now.",
        "connections_by_transport",
        label=_TRANSPORT,
    ),
    Figure("received_bytes", _C, "Bytes from clients.", "bytes_received", label=_TRANSPORT),
    Figure("sent_bytes", _C, "Bytes to clients.", "bytes_sent", label=_TRANSPORT),
    Figure(
        "refusals",
        _C,
        "Who was not let in, by reason.",
        "refused_by_transport",
        label=_TRANSPORT,
        inner="reason",
    ),
    Figure(
        "ends",
        _C,
        "Conversations that the edge ended, by reason.",
        "ended_by_transport",
        label=_TRANSPORT,
        inner="reason",
    ),
)
FIGURES: dict[str, tuple[Figure, ...]] = {
    "replica": (
        Figure("serving", _G, "1 while the replica's status is normal.", "serving"),
        Figure("primary", _G, "1 while the replica is primary of its view.", "primary"),
        Figure("votes", _G, "1 for who votes, 0 for who only follows.", "votes"),
        Figure("voters", _G, "Replicas of the shard that vote.", "replica_count"),
        Figure("view", _G, "View of the replica.", "view"),
        Figure("op", _G, "Newest op that the replica holds.", "op"),
        Figure("commit_min", _G, "Newest op that the replica has executed.", "commit_min"),
        Figure("commit_max", _G, "Newest op known to be committed.", "commit_max"),
        Figure("checkpoint", _G, "Op of the newest checkpoint.", "checkpoint"),
        Figure("log_seq", _G, "Records committed since the shard began.", "log_seq"),
        Figure("dirty_slots", _G, "Journal slots that are not durable yet.", "dirty"),
        Figure("faulty_slots", _G, "Journal slots known to be broken.", "faulty"),
        Figure("clients", _G, "Sessions of edges that the log remembers.", "clients"),
        Figure("connections", _G, "Connections of other nodes.", "connections"),
        Figure("edges", _G, "Edges of this machine that are attached.", "edges"),
        Figure("extents", _G, "Extents of the volume in use.", "volume.extents"),
        Figure("extents_max", _G, "Extents that the volume may have.", "volume.extents_max"),
        Figure("disk_bytes", _G, "Bytes of the volume's disk, taken or free.", "volume.disk_size"),
        Figure("disk_free_bytes", _G, "Bytes of it that are free.", "volume.disk_free"),
        Figure("disk_failing", _G, "Warnings that a disk gives.", "disk_failing", label="disk"),
        Figure("disk_spare_ratio", _G, "Spare blocks left.", "disk_spare", 0.01, label="disk"),
        Figure("disk_used_ratio", _G, "Life that is used.", "disk_used", 0.01, label="disk"),
        Figure("disk_celsius", _G, "Temperature of a disk.", "disk_celsius", label="disk"),
        Figure("disk_media_errors", _C, "Data not given back.", "disk_media", label="disk"),
        Figure("disk_power_losses", _C, "Unsafe shutdowns.", "disk_power", label="disk"),
        Figure("written_bytes", _C, "Bytes written to the volume.", "volume.bytes_written"),
        Figure("write_p50_seconds", _G, "Median durable write.", "volume.journal.p50_us", 1e-6),
        Figure("write_p99_seconds", _G, "99th percentile.", "volume.journal.p99_us", 1e-6),
        Figure("log_ahead_seconds", _G, "Log time before the clock.", "clock.log_ahead_us", 1e-6),
        Figure("ticks_late", _C, "Ticks that a stall swallowed.", "ticks_late"),
        Figure("received", _C, "Messages from peers, by command.", "received"),
        Figure("sent", _C, "Messages to peers, by command.", "sent"),
        Figure("events", _C, "What the protocol did, by name.", "counters"),
        _DROPPED,
        _EVENTS,
        *_PROCESS,
    ),
    "edge": (
        Figure("serving", _G, "1 while the edge serves clients.", "serving"),
        Figure("connections", _G, "Conversations of clients.", "connections"),
        Figure("connections_max", _G, "Connections that it has room for.", "connections_max"),
        *_BY_TRANSPORT,
        Figure("sessions", _G, "Sessions of clients.", "sessions"),
        Figure("subscriptions", _G, "Rooms followed over these.", "subscriptions"),
        Figure("lagging", _G, "Subscriptions served from stored segments.", "lagging"),
        Figure("rooms_known", _G, "Rooms that the edge remembers.", "rooms_known"),
        Figure("acked", _C, "Messages that were answered.", "acked"),
        Figure("refused", _C, "Requests answered with an error.", "refused"),
        Figure("live_events", _C, "Messages delivered as they came.", "live_events"),
        Figure("stored_events", _C, "Messages delivered from segments.", "stored_events"),
        Figure("log_seq", _G, "Newest record known, by shard.", "log_seq", label="shard"),
        Figure(
            "waiting_records",
            _G,
            "Records waiting for the log, by shard.",
            "waiting",
            label="shard",
        ),
        Figure("ack_p50_seconds", _G, "Median request to the log.", "ack.p50_us", 1e-6),
        Figure("ack_p99_seconds", _G, "99th percentile.", "ack.p99_us", 1e-6),
        Figure("collections", _C, "Collections of all garbage.", "memory.collections"),
        Figure("pause_seconds", _G, "Longest pause for one.", "memory.pause_ms_max", 1e-3),
        Figure("events", _C, "What clients did, by name.", "counters"),
        _DROPPED,
        _EVENTS,
        *_PROCESS,
    ),
    "shipper": (
        Figure("late_seconds", _G, "Time past a period's end, by shard.", "late_s", label="shard"),
        Figure(
            "backlog_records", _G, "Records not shipped yet, by shard.", "backlog", label="shard"
        ),
        Figure("manifests", _G, "Manifests at the target, by shard.", "manifests", label="shard"),
        Figure("ships", _G, "1 where this node ships, by shard.", "ships", label="shard"),
        Figure("failures", _G, "Failures in a row, by shard.", "failures", label="shard"),
        Figure(
            "put_files", _C, "Files written to the target, by shard.", "put_files", label="shard"
        ),
        Figure(
            "put_bytes", _C, "Bytes written to the target, by shard.", "put_bytes", label="shard"
        ),
        _DROPPED,
        _EVENTS,
        *_PROCESS,
    ),
    "console": (
        Figure("alarms", _G, "Alarms that are raised, by name.", "alarms"),
        Figure("streams", _G, "Pages that are told each second.", "streams"),
        _EVENTS,
        *_PROCESS,
    ),
}
_SHIPPER_SHARD = ("late_s", "backlog", "manifests", "ships", "failures", "put_files", "put_bytes")


# Of each disk under a volume: figure -> what its health calls it.
_DISK = {
    "disk_spare": "spare_percent",
    "disk_used": "used_percent",
    "disk_celsius": "temperature_c",
    "disk_media": "media_errors",
    "disk_power": "unsafe_shutdowns",
}


def _disks(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A table by disk of each figure."""
    disks = _value(answer, "volume.health.disks")
    well_formed = disks if isinstance(disks, Mapping) else {}
    of_each = {name: of for name, of in well_formed.items() if isinstance(of, Mapping)}
    tables = {key: {name: of.get(it) for name, of in of_each.items()} for key, it in _DISK.items()}
    failing = {name: len(of.get("warnings", ())) for name, of in of_each.items()}
    return {**tables, "disk_failing": failing}


def _replica(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **answer,
        **_disks(answer),
        "serving": answer.get("status") == "normal",
        "primary": answer.get("role") == "primary" and answer.get("status") == "normal",
        "votes": answer.get("role") in ("primary", "backup"),
    }


def _edge(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "serving": answer.get("health") == ""}


def _shipper(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of its shards, each as a table by shard."""
    shards = answer.get("shards", [])
    tables = {key: {str(row["shard"]): row.get(key) for row in shards} for key in _SHIPPER_SHARD}
    return {**answer, **tables}


_SHAPES: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "replica": _replica,
    "edge": _edge,
    "shipper": _shipper,
    "console": dict,
}


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
        for kind, figures in FIGURES.items():
            shaped = [
                (str(said.node), str(said.number), _SHAPES[kind](said.answer))
                for said in self._said
                if said.kind == kind and said.answer is not None
            ]
            for figure in figures:
                yield _family(kind, figure, shaped)


def _family(
    kind: str, figure: Figure, shaped: list[tuple[str, str, Mapping[str, Any]]]
) -> CounterMetricFamily | GaugeMetricFamily:
    values = [(node, number, _value(answer, figure.path)) for node, number, answer in shaped]
    by_name = any(isinstance(value, Mapping) for _, _, value in values)
    number_label = "shard" if kind == "replica" else "number"
    named = [label for label in (figure.label, figure.inner) if label] if by_name else []
    labels = ("node", number_label, *named)
    family = figure.kind(f"{PREFIX}{kind}_{figure.name}", figure.help, labels=labels)
    for node, number, value in values:
        for names, each in _rows(value, len(named)):
            family.add_metric((node, number, *names), each * figure.scale)
    return family


def _rows(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers in a table, under `depth` names each; what is no such table has none."""
    if depth and isinstance(value, Mapping):
        for name, within in sorted(value.items()):
            for names, each in _rows(within, depth - 1):
                yield (str(name), *names), each
    elif not depth and isinstance(value, int | float):
        yield (), float(value)


def _value(answer: Mapping[str, Any], path: str) -> Any:
    """The value at `path`; None where there is none."""
    value: Any = answer
    for word in path.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value


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


def serves(answer: Mapping[str, Any] | None) -> bool:
    """Whether the replica or edge that gave this answer does its duty."""
    if answer is None:
        return False
    return bool(answer.get("status", "normal") == "normal" and not answer.get("health", ""))
