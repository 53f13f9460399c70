"""`tigerchat benchmark`: load a site over the network as its clients do, and say what it did.

A round keeps a fixed number of messages in flight in all, dealt over devices and rooms; what was
acknowledged between two moments counts. Everything told is judged when a round is over: numbers in
order, no op told twice. The generator's own work is measured beside that of the nodes, because on
one machine both share the cores.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import numpy as np
import psutil
import uvloop

from appliance.base.errors import ApplianceError, ConfigurationError
from appliance.base.limits import BODY_SIZE_MAX, WINDOW_LENGTH
from appliance.base.printable import json_line
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.carrier import Dial
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.connection import dial as dial_websocket
from appliance.drivers.chat.errors import ConnectionLost
from appliance.drivers.chat.pump import Listener, Load, Sender, Told
from appliance.drivers.chat.transports import transport_named
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import status_of
from appliance.drivers.nvme.direct import refuse_memory
from appliance.drivers.nvme.overhead import (
    ROUNDS,
    WRITES,
    Figures,
    measure_overhead,
    scratch_volume,
)
from appliance.drivers.nvme.volume import read_facts
from appliance.drivers.terminal.options import SiteWords, erase_option, site_options
from appliance.formats.client.address import WEBSOCKET, WEBTRANSPORT
from appliance.formats.room_name import room_id_of
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.status.replica import ReplicaStatus
from appliance.simulation.workloads.audience import Audience
from appliance.simulation.workloads.chatter import Ack, Chatter

ENCODINGS = ("binary", "json")
IN_FLIGHT = (1, 16, 256, 2048)
LISTENERS = (1, 100, 1000)
WARM_UP_S = 0.5
PAUSES_S = (2.0, 5.0, 15.0)  # for what disturbs a round to pass, before it is run again
STALLED_S = 60.0  # without one answer; then something is wrong with the site
AUDIENCE_WINDOW = 64
AUDIENCE_MESSAGES_MAX = 10_000  # few listeners: the round is as long as the speaker needs
DIALS_AT_ONCE = 50
MILLISECOND = 1e6


class BenchmarkFailed(ApplianceError):
    """The site refused, lost or mixed up what it was loaded with."""

    code = 1120


class Disturbed(BenchmarkFailed):
    """What passes came between, a view change or a lost connection: a round to be run again."""

    code = 1121


@click.group("benchmark", invoke_without_command=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.2, 600),
    default=3.0,
    show_default=True,
    help="Of each round.",
)
@click.option(
    "--in-flight",
    "in_flight",
    type=click.IntRange(1, 100_000),
    multiple=True,
    default=IN_FLIGHT,
    show_default=True,
    help="Unacknowledged messages in all.",
)
@click.option(
    "--encoding",
    "encodings",
    type=click.Choice(ENCODINGS),
    multiple=True,
    default=ENCODINGS,
    show_default=True,
)
@click.option("--rooms", type=click.IntRange(1, 1000), default=16, show_default=True)
@click.option(
    "--devices",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Connections that send, dealt over the nodes.",
)
@click.option("--body-size", type=click.IntRange(1, BODY_SIZE_MAX), default=256, show_default=True)
@click.option(
    "--listeners",
    type=click.IntRange(0, 20_000),
    multiple=True,
    default=LISTENERS,
    show_default=True,
    help="Subscribers of the fan-out rounds; 0: none.",
)
@click.option(
    "--deliveries",
    type=click.IntRange(100),
    default=300_000,
    show_default=True,
    help="Of each fan-out round, about.",
)
@click.option(
    "--transport",
    type=click.Choice((WEBSOCKET, WEBTRANSPORT)),
    default=WEBSOCKET,
    show_default=True,
    help="What carries the connections that send and listen.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@site_options
@click.pass_context
def command(
    ctx: click.Context,
    seconds: float,
    in_flight: tuple[int, ...],
    encodings: tuple[str, ...],
    rooms: int,
    devices: int,
    body_size: int,
    listeners: tuple[int, ...],
    deliveries: int,
    transport: str,
    as_json: bool,
    site: SiteWords,
) -> None:
    """Measure acknowledged messages a second, their latency, and fan-out.

    The site's rate limits must allow it: node.toml, device_rate and those after it. A local site on
    a memory file system is refused: nothing would be durable there. A round that something came
    between which passes (a view change, a lost connection) is run again, three times at most.
    """
    if ctx.invoked_subcommand is not None:
        return
    access, dial = access_of(**site._asdict()), transport_named(transport).dial
    nodes = Nodes(access.folder)
    show = _json_line if as_json else Table().show
    show(nodes.facts(access))
    for encoding in encodings:
        for count in in_flight:
            room = Chatter(
                rooms=rooms,
                devices=min(devices, count),
                in_flight=min(count, rooms * min(devices, count) * WINDOW_LENGTH),
                body_size=body_size,
            )
            measure = partial(acknowledge, access, nodes, room, encoding, seconds, dial)
            show(_undisturbed(nodes, measure) | {"transport": transport})
    for count in filter(None, listeners):
        messages = min(AUDIENCE_MESSAGES_MAX, max(AUDIENCE_WINDOW, deliveries // count))
        audience = Audience(
            listeners=count, messages=messages, window=AUDIENCE_WINDOW, body_size=body_size
        )
        heard = _undisturbed(nodes, partial(fan_out, access, nodes, audience, dial))
        show(heard | {"transport": transport})


@command.command("volume")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rounds", type=click.IntRange(1, 1000), default=ROUNDS, show_default=True)
@click.option("--writes", type=click.IntRange(10, 100_000), default=WRITES, show_default=True)
@click.option(
    "--device",
    type=click.Path(path_type=Path),
    help="Measure a volume on this raw device, too; it is blank afterwards.",
)
@erase_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: file, device.")
def volume(
    folder: Path, rounds: int, writes: int, device: Path | None, erase: int, as_json: bool
) -> None:
    """Measure what a volume on the disk of FOLDER adds to a durable write of 4 KiB.

    Rounds by turns: through the volume of a node, from the loop that asks for it until that hears
    that it is durable, and by a bare loop of the same system calls. Printed are p50 and p99 of each
    round, and the medians of all. A small volume is made in FOLDER and removed.
    """
    devices = [("file", None)] if device is None else [("file", None), ("device", device)]
    with contextlib.ExitStack() as stack:
        volumes = [
            (kind, stack.enter_context(scratch_volume(folder, path, erase)))
            for kind, path in devices  # all before the first is measured: one may be refused
        ]
        for kind, made in volumes:
            tell = _quiet if as_json else _RoundTable(kind).show
            found = uvloop.run(measure_overhead(made, rounds=rounds, writes=writes, tell=tell))
            if as_json:
                _json_line({"kind": "volume", "on": kind, **found.plain()})
            else:
                _round_line("all", found.all)
                click.echo(f"{kind}: durable by {found.method}; all: medians of the rounds")


class _RoundTable:
    """What each round measured, for people."""

    def __init__(self, kind: str) -> None:
        self._number = 0
        click.echo(f"{kind:>6}  volume p50   p99 µs  bare p50   p99 µs  p50 times  p99 times")

    def show(self, figures: Figures) -> None:
        self._number += 1
        _round_line(str(self._number), figures)


def _round_line(label: str, figures: Figures) -> None:
    click.echo(
        f"{label:>6}  {figures.volume_p50_us:10.0f}  {figures.volume_p99_us:7.0f}  "
        f"{figures.bare_p50_us:8.0f}  {figures.bare_p99_us:7.0f}  {figures.ratio_p50:9.2f}  "
        f"{figures.ratio:9.2f}"
    )


def _quiet(figures: Figures) -> None:
    """For programs: all comes at once."""


def _undisturbed(
    nodes: "Nodes", measure: Callable[[], Coroutine[Any, Any, dict[str, Any]]]
) -> dict[str, Any]:
    """What a round measured in which nothing came between; a few are tried."""
    for pause_s in PAUSES_S:
        try:
            return uvloop.run(measure())
        except (Disturbed, ConnectionLost) as error:
            click.echo(f"{error}; the round is run again", err=True)
            time.sleep(pause_s)
            nodes.processes = nodes.find()  # one may have been started anew
    return uvloop.run(measure())


# --- the nodes ------------------------------------------------------------------------------------


class Nodes:
    """The processes and volumes of a local site; of a remote one nothing is known."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder.resolve() if folder else None
        if self.folder is not None:
            refuse_memory(self.folder)
        self.processes = self.find()

    def find(self) -> list[psutil.Process]:
        """Role processes work in their node's folder."""
        found: list[psutil.Process] = []
        if self.folder is None:
            return found
        for process in psutil.process_iter():
            try:
                path = Path(process.cwd())
            except (psutil.Error, OSError):
                continue
            if self.folder in path.parents:
                found.append(process)
        return found

    def cpu_s(self) -> float:
        """CPU time of all of them since they started."""
        total = 0.0
        for process in self.processes:
            try:
                times = process.cpu_times()
            except psutil.Error:
                raise Disturbed(f"process {process.pid} of the site ended") from None
            total += times.user + times.system
        return total

    def durable_write_ms(self) -> list[float]:
        """For each replica, what its newest durable writes of the log took: the median."""
        if self.folder is None:
            return []
        site = load_site(self.folder / SITE_FILE)
        found = []
        for node in site.nodes:
            for shard in site.shards_of(node.index):
                status = status_of(
                    ReplicaStatus,
                    self.folder / node.name / SOCKETS_FOLDER,
                    cluster=site.cluster,
                    number=shard.number,
                )
                if status is not None:
                    found.append(round(status.volume.journal.p50_us / 1000, 3))
        return found

    def facts(self, access: Access) -> dict[str, Any]:
        """What the measurements that follow were made on."""
        facts: dict[str, Any] = {
            "kind": "site",
            "nodes": len(access.endpoints),
            "client_tls": access.endpoints[0].tls is not None,
            "cores": psutil.cpu_count(),
            "processes": len(self.processes),
        }
        if self.folder is not None:
            volumes = sorted(self.folder.glob("node-*/shard-*"))
            if not volumes or not self.processes:
                raise ConfigurationError(
                    f"no site runs in {self.folder}: start it with "
                    f"`tigerchat start --local {self.folder}`"
                )
            flushes = [read_facts(volume)["flush"] for volume in volumes]
            facts["flush"] = flushes[0]["method"]
            facts["durable_write_p50_us"] = [flush["p50_us"] for flush in flushes]
        return facts


@dataclass
class Cost:
    """CPU time of nodes and generator between two moments."""

    nodes: Nodes
    nodes_s: float = 0.0
    own_s: float = 0.0

    def start(self) -> None:
        self.nodes_s, self.own_s = self.nodes.cpu_s(), time.process_time()

    def for_each(self, count: int) -> dict[str, float]:
        """Microseconds for each of `count` things since `start`."""
        spent = self.nodes.cpu_s() - self.nodes_s, time.process_time() - self.own_s
        names = ("cpu_us_nodes", "cpu_us_generator")
        return {
            name: round(s * 1e6 / max(count, 1), 1) for name, s in zip(names, spent, strict=True)
        }


def percentiles(values: Iterable[float], scale: float) -> dict[str, float]:
    """p50 and p99 in milliseconds of values that are `scale` to the millisecond."""
    column = np.asarray(values, dtype=float)
    if not len(column):
        return {"p50_ms": 0.0, "p99_ms": 0.0}
    p50, p99 = np.percentile(column, [50, 99]) / scale
    return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


# --- acknowledgements -----------------------------------------------------------------------------


async def acknowledge(
    access: Access,
    nodes: Nodes,
    chatter: Chatter,
    encoding: str,
    seconds: float,
    dial: Dial = dial_websocket,
) -> dict[str, Any]:
    """One round of `chatter`; what was acknowledged in `seconds`."""
    await open_rooms(access, chatter.setup())
    rooms = [room_id_of(name) for name in chatter.setup()]
    devices = chatter.start()
    senders = [
        Sender(
            [Load(rooms[flow.room], chatter.body(flow).encode(), flow.depth) for flow in flows],
            encoding == "binary",
            lambda: None,
        )
        for flows in devices.values()
    ]
    try:
        for index, sender in enumerate(senders):
            endpoint = access.endpoints[index % len(access.endpoints)]
            await sender.connect(endpoint, access.token(), dial)
        for sender in senders:
            sender.start()
        await _go_on(senders, WARM_UP_S)
        cost, before = Cost(nodes), sum(sender.acked for sender in senders)
        cost.start()
        begin = time.perf_counter_ns()
        await _go_on(senders, seconds, beyond=before)
        end = time.perf_counter_ns()
        count = sum(sender.acked for sender in senders) - before
        costs = cost.for_each(count)
        await _drain(senders)
    finally:
        for sender in senders:
            await sender.close()
    told = [sender.told() for sender in senders]
    wrong = chatter.check(_acks(chatter, senders, told))
    if wrong:
        raise BenchmarkFailed(f"{len(wrong)} wrong answers, the first: {wrong[0]}")
    latencies = np.concatenate([t.latency_ns[(t.at_ns >= begin) & (t.at_ns < end)] for t in told])
    return {
        "kind": "acknowledged",
        "encoding": encoding,
        "client_tls": access.endpoints[0].tls is not None,
        "in_flight": sum(flow.depth for flow in chatter.flows),
        "rooms": len(rooms),
        "devices": len(senders),
        "body_size": chatter.body_size,
        "per_s": round(count / ((end - begin) / 1e9)),
        "messages": count,
        **percentiles(latencies, MILLISECOND),
        **costs,
        "durable_write_ms": nodes.durable_write_ms(),
    }


async def open_rooms(access: Access, names: list[str]) -> list[UUID]:
    """Have the rooms there."""
    async with Client(access.endpoints, access.token) as client:
        return [(await client.create_room(name)).room_id for name in names]


async def _go_on(senders: list[Sender], seconds: float, *, beyond: int = -1) -> None:
    """Let them run, and on until more than `beyond` are acknowledged: a round without an answer
    measures nothing. End at once when one of them cannot.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.1))
        _check(senders)
    while sum(sender.acked for sender in senders) <= beyond:
        if time.monotonic() > until + STALLED_S:
            raise BenchmarkFailed(
                f"nothing was acknowledged for {STALLED_S:.0f} s: look at `tigerchat status`"
            )
        await asyncio.sleep(0.1)
        _check(senders)


def _check(ends: Iterable[Sender | Listener]) -> None:
    for end in ends:
        if end.failure:
            failure = Disturbed if end.temporary else BenchmarkFailed
            raise failure(f"the site answered {end.failure}")
        if end.connection is not None and end.connection.lost.done():
            raise Disturbed(f"a connection was lost: {end.connection.lost.result()}")


async def _drain(senders: list[Sender]) -> None:
    for sender in senders:
        sender.stop()
    until = time.monotonic() + STALLED_S
    while any(sender.waiting for sender in senders):
        if time.monotonic() > until:
            raise BenchmarkFailed(f"{sum(s.waiting for s in senders)} messages stayed unanswered")
        _check(senders)
        await asyncio.sleep(0.01)


def _acks(chatter: Chatter, senders: list[Sender], told: list[Told]) -> Iterable[Ack]:
    devices = chatter.start()
    for device, (sender, column) in enumerate(zip(senders, told, strict=True)):
        flows = [devices[device][position] for position in sender.order]
        for flow, seq, op in zip(
            column.flow.tolist(), column.client_seq.tolist(), column.op.tolist(), strict=True
        ):
            yield Ack(flows[flow], seq, op)


# --- fan-out --------------------------------------------------------------------------------------


async def fan_out(
    access: Access, nodes: Nodes, audience: Audience, dial: Dial = dial_websocket
) -> dict[str, Any]:
    """One round of `audience`: until every listener has every message."""
    (room_id,) = await open_rooms(access, audience.setup())
    listeners = [
        Listener(room_id, audience.body_size, lambda: None) for _ in range(audience.listeners)
    ]
    endpoints, token = access.endpoints, access.token()
    gate = asyncio.Semaphore(DIALS_AT_ONCE)

    async def open_one(index: int, listener: Listener) -> None:
        async with gate:
            await listener.connect(endpoints[index % len(endpoints)], token, dial)
            await listener.listen()

    try:
        await asyncio.gather(*(open_one(i, item) for i, item in enumerate(listeners)))
        async with Client(endpoints, access.token) as speaker:
            cost = Cost(nodes)
            cost.start()
            begin = time.perf_counter()
            await _speak(speaker, room_id, audience, listeners)
            seconds = time.perf_counter() - begin
            costs = cost.for_each(audience.listeners * audience.messages)
    finally:
        await asyncio.gather(*(listener.close() for listener in listeners))
    latencies = [value for listener in listeners for value in listener.latencies_us]
    return {
        "kind": "fan_out",
        "encoding": "binary",
        "client_tls": endpoints[0].tls is not None,
        "listeners": audience.listeners,
        "messages": audience.messages,
        "body_size": audience.body_size,
        "per_s": round(audience.listeners * audience.messages / seconds),
        **percentiles(latencies, 1000.0),
        **costs,
    }


async def _speak(
    speaker: Client, room_id: UUID, audience: Audience, listeners: list[Listener]
) -> None:
    """Say everything, never further ahead of the slowest listener than allowed."""
    sent, body = 0, audience.body()
    last_progress, slowest = time.monotonic(), 0
    while slowest < audience.messages:
        for _ in range(audience.allowed(slowest) - sent):
            await speaker.post(room_id, body)
            sent += 1
        await asyncio.sleep(0.001)
        _check(listeners)
        delivered = min(listener.delivered for listener in listeners)
        if delivered > slowest:
            last_progress, slowest = time.monotonic(), delivered
        elif time.monotonic() - last_progress > STALLED_S:
            raise BenchmarkFailed(f"a listener stopped at {slowest} of {audience.messages}")


# --- showing --------------------------------------------------------------------------------------


def _json_line(row: dict[str, Any]) -> None:
    click.echo(json_line(row))


class Table:
    """Rows of one kind under one heading."""

    HEADS: dict[str, str] = {
        "acknowledged": "encoding  TLS  in flight   acked/s   p50 ms   p99 ms   "
        "CPU µs a message: nodes, generator   durable write ms",
        "fan_out": "listeners  TLS  messages  deliveries/s   p50 ms   p99 ms   CPU µs a delivery: "
        "nodes, generator",
    }

    def __init__(self) -> None:
        self.kind = ""

    def show(self, row: dict[str, Any]) -> None:
        """Print one row, after its heading if it is the first of its kind."""
        form: dict[str, Callable[[dict[str, Any]], str]] = {
            "site": self._site,
            "acknowledged": self._acknowledged,
            "fan_out": self._fan_out,
        }
        if row["kind"] != self.kind and row["kind"] in self.HEADS:
            click.echo("\n" + self.HEADS[row["kind"]])
        self.kind = row["kind"]
        click.echo(form[self.kind](row))

    def _site(self, row: dict[str, Any]) -> str:
        line = f"{row['nodes']} nodes, {row['cores']} cores"
        if "flush" in row:
            writes = ", ".join(f"{value / 1000:.2f}" for value in row["durable_write_p50_us"])
            line += f"; a durable write of 4 KiB takes {writes} ms by {row['flush']}"
        return line

    def _acknowledged(self, row: dict[str, Any]) -> str:
        tls = "yes" if row["client_tls"] else "no"
        writes = " ".join(f"{value:.2f}" for value in row["durable_write_ms"])
        return (
            f"{row['encoding']:<8}  {tls:<3}  {row['in_flight']:>9}  {row['per_s']:>8,}  "
            f"{row['p50_ms']:>7.2f}  {row['p99_ms']:>7.2f}   {row['cpu_us_nodes']:>23.0f}  "
            f"{row['cpu_us_generator']:>9.0f}   {writes}"
        )

    def _fan_out(self, row: dict[str, Any]) -> str:
        tls = "yes" if row["client_tls"] else "no"
        return (
            f"{row['listeners']:>9}  {tls:<3}  {row['messages']:>8}  {row['per_s']:>12,}  "
            f"{row['p50_ms']:>7.2f}  {row['p99_ms']:>7.2f}   {row['cpu_us_nodes']:>20.1f}  "
            f"{row['cpu_us_generator']:>10.1f}"
        )
