"""The shipper of a node: for each shard it holds, committed records to signed files at the target.

    own replica ──ring, segments, state──▶ ┌──────┐ ──step──▶ worker thread ──▶ target
    own replica ◀──shipped records──────── │ core │ ◀──outcome──────┘
    clock ──▶                              └──────┘

One task for each shard asks the core for the next step and does it; what reads, hashes or talks to
the target runs in a thread, so that the loop stays quick. The replica of this node takes the
shipped records as it takes those of an edge, and passes them on to the primary.
"""

import asyncio
import contextlib
import json
import logging
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.errors import ApplianceError, FormatError, TargetDamaged, TargetError
from appliance.base.limits import TICK_MS
from appliance.base.printable import counted
from appliance.base.prng import Prng
from appliance.cores.shipping import shipper as core
from appliance.cores.shipping.plan import SECOND_US, parts
from appliance.cores.shipping.render import Reading, render
from appliance.cores.shipping.shipper import Append, Compare, Look, Put, PutHead, PutManifest
from appliance.cores.shipping.source import NotHere, Source
from appliance.cores.vsr.client import Client
from appliance.drivers.hdfs.deliver import deliver
from appliance.drivers.hdfs.open_target import is_shared, open_target
from appliance.drivers.hdfs.target import Entry, Target
from appliance.drivers.host import clock, service
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.node_folder import SHIPPED_FOLDER, SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.network.local import LocalLink
from appliance.drivers.network.status import StatusServer
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats import manifest as mf
from appliance.formats import record as rec
from appliance.formats.checkpoint import ShippingState
from appliance.formats.envelope import (
    LOCAL_BROKEN,
    LOCAL_COMMITTED,
    LOCAL_STATUS,
    OPERATION_APPEND,
    REPLY,
    Message,
)
from appliance.formats.event import Shipped, encode_shipped
from appliance.formats.manifest import PeriodManifest, ShippedFile
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT, SEQUENCE_GAP
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import Shard

STATE_TICKS = 25  # between two questions for the state of a shard
IDLE_S, AWAIT_S = 0.1, 0.02  # between two looks for a step; while an own record is awaited


@dataclass
class Mending:
    """A range that is put again at the operator's wish, and how far that is."""

    first_log_seq: int
    last_log_seq: int
    done: int = 0  # files and manifests looked at
    total: int = 0
    mended: list[str] = field(default_factory=list)
    error: str = ""
    ended: bool = False

    def plain(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "total": self.total,
            "mended": self.mended,
            "error": self.error,
            "ended": self.ended,
        }


class ShardShipping:
    """One shard: its link to the replica, its session of the log, its core, its task."""

    def __init__(self, role: "ShipperRole", shard: Shard, target: Target, prng: Prng) -> None:
        node = role.node
        settings = node.settings
        self._role, self._target, self._shard = role, target, shard
        self._geometry = GEOMETRIES[read_facts(node.volume(shard.number))["geometry"]]
        self._key = node.signing_key
        self._trusted = frozenset(other.public_key for other in node.site.nodes)
        self._folder = mf.shard_folder(node.site.cluster, shard.number)
        # Standbys too, as they may come to vote: they stand by until their replica does.
        voters, standbys = (
            shard.members[: shard.replica_count],
            shard.members[shard.replica_count :],
        )
        first = shard.number % len(voters)
        self.core = core.Shipper(
            core.Role(
                cluster=node.site.cluster,
                shard=shard.number,
                node=settings.index,
                members=(*voters[first:], *voters[:first], *standbys),
                segment_records=self._geometry.segment_records,
                period_us=settings.ship_period_s * SECOND_US,
                patience_us=settings.ship_late_s * SECOND_US,
                may_claim=settings.ship_claim == "auto",
                shared=is_shared(settings),
            ),
            prng.fork(),
        )
        self._client_id = prng.bytes(16)
        self._client_seq = 1
        self._prng = prng
        self._client = Client(
            client_id=self._client_id,
            cluster=node.site.cluster,
            shard=shard.number,
            replica_count=shard.replica_count,
            geometry=self._geometry,
            prng=prng.fork(),
            members=tuple(shard.replica_ids),
        )
        replica = shard.members.index(settings.index)
        self._replica_id = shard.replica_ids[replica]
        self.follows = False  # its replica has no vote, and passes no request on
        self.link = LocalLink(
            self,
            Path(SOCKETS_FOLDER) / f"shard-{shard.number}",
            cluster=node.site.cluster,
            shard=shard.number,
            replica=replica,
            attach=True,
            message_size_max=self._geometry.message_size_max,
            prng=prng.fork(),
            counters=role.counters,
            drops=role.drops,
        )
        self.source: Source | None = None
        self._waiting: tuple[bytes, asyncio.Future[tuple[int, int, int]]] | None = None
        self.mending: Mending | None = None
        self.doing = ""
        self.put_files = self.put_bytes = 0

    # --- the replica

    def on_attached(self, link: LocalLink, facts: dict[str, Any], ring: memoryview | None) -> None:
        assert ring is not None
        segments = MappedSegments(
            Path(facts["segments_folder"]), self._geometry, facts["segments_max"]
        )
        self.source = Source(self._geometry, ring, segments)
        self.source.log_seq = facts["log_seq"]
        self._client.on_connected(self._replica_id)
        link.ask(LOCAL_STATUS)
        asyncio.get_running_loop().call_soon(self._perform)

    def on_message(self, link: LocalLink, message: Message) -> None:
        header = message.header
        if header.command == LOCAL_COMMITTED:
            if self.source is not None:
                self.source.log_seq = max(self.source.log_seq, header.op)
        elif header.command == LOCAL_STATUS:
            self._on_status(json.loads(bytes(message.body)))
        else:
            owner = bytes(message.body[:16]) if header.command == REPLY else header.area[:16]
            if owner == self._client_id:
                self._client.on_message(message)
                self._perform()

    def _on_status(self, status: dict[str, Any]) -> None:
        self.follows = not 0 <= status["replica"] < status["replica_count"]
        told = status["shipping"]
        state = ShippingState(**{name: told[name] for name in ShippingState._fields})
        state = state._replace(manifest_hash=bytes.fromhex(told["manifest_hash"]))
        self.core.on_state(state, told["cursor"], told["log_seq"], _now_us())

    def on_batch(self, link: LocalLink) -> None:
        """Everything was handled as it came."""

    def on_detached(self, link: LocalLink) -> None:
        self.source = None
        self._client.on_disconnected(self._replica_id)

    def on_tick(self, ticks: int) -> None:
        self._client.on_tick()
        self._perform()
        if self.source is not None and self.source.broken and self.link.connected:
            for number in sorted(self.source.broken):
                self.link.ask(LOCAL_BROKEN, op=number)
            self.source.broken.clear()
        if ticks % STATE_TICKS == 0 and self.link.connected:
            self.link.ask(LOCAL_STATUS)

    def _perform(self) -> None:
        """Do what the session of the log wants, and give it the record that waits."""
        client = self._client
        effects, client.effects = client.effects, []
        for effect in effects:
            if effect[0] == "send" and self.link.connected:
                self.link.send(self.link.signer.frame(effect[2], effect[3]))
            elif effect[0] == "reply" and self._waiting is not None:
                _, answer = self._waiting
                self._waiting = None
                seq, log_seq, _, code, _, _ = RESULT_STRUCT.unpack_from(effect[1])
                if not answer.done():
                    answer.set_result((code, seq, log_seq))
        if client.ready and self._waiting is not None:
            client.request(OPERATION_APPEND, self._waiting[0], 1)
            self._perform()

    async def _append(self, shipped: Shipped) -> tuple[int, int]:
        """(code, log_seq) of the record; asks until the shard answers."""
        while True:
            raw = rec.encode(
                room_id=rec.SHARD_ROOM_ID,
                msg_id=self._prng.bytes(16),
                author_id=0,
                body=encode_shipped(shipped),
                client_id=self._client_id,
                client_seq=self._client_seq,
                kind=rec.KIND_SHIPPED,
            )
            answer = asyncio.get_running_loop().create_future()
            self._waiting = (raw, answer)
            self._perform()
            code, seq, log_seq = await answer
            if code == SEQUENCE_GAP and seq != self._client_seq:
                self._client_seq = seq
                continue
            if code in (OK, DUPLICATE):
                self._client_seq += 1
            return code, log_seq

    # --- steps

    async def run(self) -> None:
        """One step after the other, until cancelled."""
        while True:
            pause_s = await self._turn()
            await asyncio.sleep(pause_s)

    async def _turn(self) -> float:
        """At most one step; seconds until the next look."""
        shipper, source = self.core, self.source
        if source is None or self.follows:
            return IDLE_S
        if self.mending is not None and not self.mending.ended:
            await self._mend(self.mending, source)
        try:
            step = shipper.step(source, _now_us(), clock.realtime_us())
        except NotHere as error:
            shipper.error = str(error)
            return 5 * IDLE_S
        if step is None:
            if self.link.connected and shipper.awaits:
                self.link.ask(LOCAL_STATUS)
                return AWAIT_S
            return IDLE_S
        self.doing = _described(step)
        try:
            await self._do(step, source)
        except (TargetError, FormatError) as error:
            shipper.on_failed(step, str(error), _now_us())
            self._role.log.warning("shard %d: %s: %s", self._shard.number, self.doing, error)
        self.doing = ""
        return 0.0

    async def _do(self, step: core.Step, source: Source) -> None:
        shipper = self.core
        if isinstance(step, Append):
            code, log_seq = await self._append(step.shipped)
            accepted = code in (OK, DUPLICATE)
            shipper.on_appended(step, accepted, log_seq, _now_us())
            if accepted:
                self._role.log.debug("shard %d: %s", self._shard.number, self.doing)
        elif isinstance(step, Put):
            file, _ = await asyncio.to_thread(self._put, step, source)
            shipper.on_put(step, file)
        elif isinstance(step, Look):
            seen = await asyncio.to_thread(self._look, step)
            shipper.on_looked(seen, _now_us())
        elif isinstance(step, Compare):
            shipper.on_compared(await asyncio.to_thread(self._compare, source))
        else:
            if isinstance(step, PutManifest):
                await asyncio.to_thread(self._put_manifest, step.manifest)
            elif isinstance(step, PutHead):
                await asyncio.to_thread(self._put_head, step.head)
            else:
                await asyncio.to_thread(self._sweep, step.generation)
            shipper.on_done(step)

    # --- at the target, in a thread

    def _put(self, step: Put, source: Source) -> tuple[ShippedFile, bool]:
        """Have the file there; what it is, and whether it had to be put."""
        rendered = render(step.part, source.records(*step.part), self._key)
        file = rendered.file
        path = f"{self._folder}/{mf.period_folder(step.period_start_us)}/{file.name}"
        there = self._target.status(path)
        if there is not None and there.size == file.size:
            reading = Reading()
            for block in self._target.read(path):
                reading.add(block)
            if reading.fits(file, self._trusted):
                return file, False
        self._deliver(path, rendered.data, overwrite=there is not None)
        self.put_files += 1
        self.put_bytes += len(rendered.data)
        return file, True

    def _put_manifest(self, manifest: PeriodManifest) -> bool:
        """Have the manifest there, and no other file of its range; whether it had to be put."""
        folder = f"{self._folder}/{mf.period_folder(manifest.period_start_us)}"
        path = f"{folder}/{mf.manifest_name(manifest.period_start_us)}"
        raw = self._read_small(path)
        wrong = True
        if raw is not None:
            try:
                wrong = mf.parse_manifest(raw, self._trusted).value != manifest
            except FormatError:
                wrong = True
        if wrong:
            self._deliver(path, mf.sign_manifest(manifest, self._key), overwrite=raw is not None)
        listed = {file.name for file in manifest.files}
        for entry in self._target.list(folder):
            span = mf.parse_snapshot_name(entry.name)
            if span is not None and entry.name not in listed:
                if manifest.first_log_seq <= span[0] <= manifest.last_log_seq:
                    self._target.delete(f"{folder}/{entry.name}")
        return wrong

    def _put_head(self, head: mf.ShippedHead) -> None:
        path = f"{self._folder}/{mf.HEAD_FILE}"
        raw = self._read_small(path)
        if raw is not None:
            try:
                if mf.parse_head(raw, self._trusted).value.number >= head.number:
                    return
            except FormatError as error:
                self._role.log.warning("%s is replaced: %s", path, error)
        self._deliver(path, mf.sign_head(head, self._key), overwrite=raw is not None)

    def _deliver(self, path: str, data: bytes, *, overwrite: bool) -> None:
        name = path.rpartition("/")[2]
        incoming = self._incoming(mf.incoming_name(self.core.generation, name))
        deliver(
            self._target,
            incoming,
            path,
            data,
            overwrite=overwrite,
            still_mine=lambda: self.core.ships,
        )

    def _incoming(self, name: str = "") -> str:
        return f"{self._folder}/{mf.INCOMING_FOLDER}" + (f"/{name}" if name else "")

    def _read_small(self, path: str) -> bytes | None:
        """A manifest or head; None where there is none."""
        entry = self._target.status(path)
        if entry is None or entry.size > mf.SIGNED_SIZE_MAX:
            return None if entry is None else b""
        return b"".join(self._target.read(path))

    def _sweep(self, generation: int) -> None:
        for entry in self._target.list(self._incoming()):
            parsed = mf.parse_incoming_name(entry.name)
            if parsed is not None and parsed[0] <= generation:
                self._target.delete(self._incoming(entry.name))

    def _look(self, step: Look) -> tuple[Entry, ...]:
        folder = f"{self._folder}/{mf.period_folder(step.period_start_us)}"
        return (*self._target.list(self._incoming()), *self._target.list(folder))

    # --- a target that lacks what was shipped

    def _compare(self, source: Source) -> str:
        """Put what the log calls shipped and the target lacks; in words what cannot be put.

        A head that names the newest period, or the one before, is word enough: it is put last.
        """
        count = self.core.state.manifest_count
        headed = self._head_number()
        if headed >= count - 1:
            return ""
        told = source.manifests()
        lacking = [s for s in told if s.number > headed and not self._has_manifest(s)]
        forgotten = (told[0].number if told else count) - headed - 1
        if not lacking and forgotten <= 0:
            return ""
        where = f"{self._target.describe()} lacks"
        self._role.log.warning(
            "shard %d: %s what was shipped before: %s put there anew",
            self._shard.number,
            where,
            counted(len(lacking), "period"),
        )
        lost = max(0, forgotten)
        try:
            mended = Mending(lacking[0].first_log_seq, self.core.cursor) if lacking else None
            if mended is not None:
                self.mending = mended
                mended.ended = True  # not the operator's wish: nobody begins it again
                self._mend_all(mended, source, lacking)
        except (TargetDamaged, NotHere) as error:
            return f"{where} periods that were shipped elsewhere; {error}"
        if lost:
            return f"{where} the {counted(lost, 'first period')}, of which the log tells no more"
        return ""

    def _head_number(self) -> int:
        """Of the manifest that the head at the target names; -1 where there is none."""
        raw = self._read_small(f"{self._folder}/{mf.HEAD_FILE}")
        if raw is None:
            return -1
        try:
            return mf.parse_head(raw, self._trusted).value.number
        except FormatError:
            return -1

    def _has_manifest(self, shipped: Shipped) -> bool:
        raw = self._read_small(
            f"{self._folder}/{mf.period_folder(shipped.period_start_us)}/"
            f"{mf.manifest_name(shipped.period_start_us)}"
        )
        if raw is None:
            return False
        try:
            return mf.parse_manifest(raw, self._trusted).hash == shipped.manifest_hash
        except FormatError:
            return False

    # --- putting again

    async def _mend(self, mending: Mending, source: Source) -> None:
        """Look at every file of the range, and put what is not as the log says."""
        try:
            if not self.core.ships:
                raise TargetDamaged(
                    f"node {self.core.state.node} ships this shard: ask there, or "
                    "make this node the shipper with `tigerchat ship now`"
                )
            await asyncio.to_thread(self._mend_wish, mending, source)
        except ApplianceError as error:
            mending.error = str(error)
        mending.ended = True

    def _mend_wish(self, mending: Mending, source: Source) -> None:
        """The periods of the range that the operator wants."""
        wanted = [
            shipped
            for shipped in source.manifests()
            if shipped.first_log_seq <= mending.last_log_seq
            and shipped.last_log_seq >= mending.first_log_seq
            or shipped.last_log_seq < shipped.first_log_seq
            and mending.first_log_seq <= 1
        ]
        self._mend_all(mending, source, wanted)

    def _mend_all(self, mending: Mending, source: Source, wanted: list[Shipped]) -> None:
        told = source.manifests()
        records = self._geometry.segment_records
        mending.total = sum(
            1 + len(parts(s.first_log_seq, s.last_log_seq, records)) for s in wanted
        )
        hashes = {shipped.number: shipped.manifest_hash for shipped in told}
        for shipped in wanted:
            self._mend_period(mending, source, shipped, hashes)

    def _mend_period(
        self, mending: Mending, source: Source, shipped: Shipped, hashes: dict[int, bytes]
    ) -> None:
        previous = hashes.get(shipped.number - 1, mf.NO_MANIFEST)
        files = []
        for part in parts(
            shipped.first_log_seq, shipped.last_log_seq, self._geometry.segment_records
        ):
            file, put = self._put(Put(part, shipped.period_start_us), source)
            files.append(file)
            mending.done += 1
            if put:
                mending.mended.append(file.name)
        manifest = PeriodManifest(
            cluster=self._role.node.site.cluster,
            shard=self._shard.number,
            number=shipped.number,
            previous=previous,
            period_start_us=shipped.period_start_us,
            period_us=shipped.period_us,
            first_log_seq=shipped.first_log_seq,
            last_log_seq=shipped.last_log_seq,
            files=tuple(files),
        )
        if shipped.number > 0 and previous == mf.NO_MANIFEST:
            raise TargetDamaged(
                f"manifest {shipped.number - 1} is told in records that are no longer kept"
            )
        if mf.manifest_hash(manifest) != shipped.manifest_hash:
            raise TargetDamaged(f"manifest {shipped.number} cannot be made as the log tells it")
        if self._put_manifest(manifest):
            mending.mended.append(mf.manifest_name(manifest.period_start_us))
        if shipped.number == self.core.state.manifest_count - 1:
            self._put_head(
                mf.ShippedHead(
                    cluster=manifest.cluster,
                    shard=manifest.shard,
                    number=manifest.number,
                    manifest=shipped.manifest_hash,
                    period_start_us=manifest.period_start_us,
                    period_us=manifest.period_us,
                    last_log_seq=manifest.last_log_seq,
                )
            )
        mending.done += 1

    def close_at_us(self) -> int:
        """The next whole second by the wall's clock, and past the newest record."""
        newest = clock.realtime_us()
        if self.source is not None and self.source.log_seq:
            with contextlib.suppress(NotHere):  # it is being fetched: then nothing newer is known
                newest = max(newest, self.source.timestamp(self.source.log_seq))
        return (newest // SECOND_US + 1) * SECOND_US

    # --- figures

    def status(self) -> dict[str, Any]:
        shipper, state = self.core, self.core.state
        newest = self.source.log_seq if self.source is not None else 0
        late_us = 0
        if self.source is not None:
            try:
                late_us = shipper.late_us(self.source, clock.realtime_us())
            except NotHere as error:
                self._role.log.debug("shard %d: %s", self._shard.number, error)
        return {
            "shard": self._shard.number,
            "attached": self.source is not None,
            "follows": self.follows,
            "ships": shipper.ships and not self.follows,
            "settled": shipper.settled,
            "generation": state.generation,
            "node": state.node,
            "cursor": shipper.cursor,
            "log_seq": newest,
            "backlog": newest - shipper.cursor,
            "manifests": state.manifest_count,
            "headed": shipper.headed,
            "announced": state.announced_end > 0,
            "closing": shipper.closing,
            "hole": shipper.hole if shipper.ships else "",
            "period_start_us": state.period_start_us,
            "late_s": late_us / SECOND_US,
            "doing": self.doing,
            "error": shipper.error,
            "failures": shipper.failures,
            "early_files": len(shipper.files),
            "put_files": self.put_files,
            "put_bytes": self.put_bytes,
            "mending": None if self.mending is None else self.mending.plain(),
        }


def _described(step: core.Step) -> str:
    """For the log and the operator."""
    if isinstance(step, Append):
        what = {
            1: "claim generation {0.generation}",
            2: "announce period {0.number}, records {0.first_log_seq} to {0.last_log_seq}",
            3: "tell manifest {0.number}",
        }
        return what[step.shipped.action].format(step.shipped)
    if isinstance(step, Put):
        return f"put records {step.part.first_log_seq} to {step.part.last_log_seq}"
    if isinstance(step, PutManifest):
        return f"put manifest {step.manifest.number}"
    if isinstance(step, PutHead):
        return f"put head {step.head.number}"
    if isinstance(step, Compare):
        return "compare the target with the log"
    return "look at the target" if isinstance(step, Look) else "sweep _incoming"


def _now_us() -> int:
    return clock.monotonic_ns() // 1000


class ShipperRole:
    """Wires the shipping of a node's shards. `serve` runs until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self.node, self.log = node, log
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        prng = Prng(clock.seed())
        self._target: Target | None = None
        self.shards: list[ShardShipping] = []
        if node.settings.ship_target != SHIP_OFF:
            self._target = open_target(
                node.settings, node.path, node.path / SHIPPED_FOLDER, prng.fork()
            )
            self.shards = [
                ShardShipping(self, shard, self._target, prng.fork()) for shard in node.shards
            ]
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / "shipper-0",
            cluster=node.site.cluster,
            number=0,
            status=self.status,
            on_wish=self.on_wish,
        )
        self._figures = Figures()
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._ticks = 0

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        loop = asyncio.get_running_loop()
        on_stop_signal(self._stopped.set)
        await self._status_server.start()
        for shard in self.shards:
            shard.link.start()
        tasks = [asyncio.create_task(shard.run()) for shard in self.shards]
        for task in tasks:
            task.add_done_callback(self._on_task_done)
        loop.call_soon(self._tick)
        service.notify("READY=1", f"STATUS=ships {counted(len(self.shards), 'shard')}")
        await self._stopped.wait()
        service.notify("STOPPING=1")
        if self._target is not None:
            self._target.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(shard.link.close() for shard in self.shards))
        await self._status_server.close()
        return self._exit_code

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """A task ends only when it is cancelled; anything else is a bug."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
            print(
                f"tigerchat: shipper stops: {type(error).__name__} {error}",
                file=sys.stderr,
                flush=True,
            )
            self._exit_code = 1
            self._stopped.set()

    def _tick(self) -> None:
        """Every 10 ms, for the patience of sessions; what a stall swallowed is not caught up."""
        if self._stopped.is_set():
            return
        self._ticks += 1
        for shard in self.shards:
            shard.on_tick(self._ticks)
        if self._ticks * TICK_MS % 1000 == 0:
            service.notify("WATCHDOG=1")
        asyncio.get_running_loop().call_later(TICK_MS / 1000, self._tick)

    # --- what processes of this machine ask

    def status(self) -> dict[str, Any]:
        """Everything an operator may want to know, as plain values."""
        return {
            "node": self.node.settings.index,
            "target": SHIP_OFF if self._target is None else self._target.describe(),
            "period_s": self.node.settings.ship_period_s,
            "late_s_max": self.node.settings.ship_late_s,
            "shards": [shard.status() for shard in self.shards],
            "process": self._figures.read(),
            "connection_events": dict(self.counters),
            "dropped": dict(self.drops),
        }

    def on_wish(self, wish: dict[str, Any]) -> dict[str, Any]:
        """`now`: no pause, ship from here, end the present period; `re-ship`: put a range of a
        shard again."""
        what = wish.get("wish")
        if what == "now":
            for shard in self.shards:
                may_claim = not shard.core.ships and not shard.follows
                close_at_us = shard.close_at_us() if wish.get("close") is True else 0
                shard.core.hurry(
                    claim=may_claim and wish.get("claim") is True, close_at_us=close_at_us
                )
            return self.status()
        first, last = wish.get("first"), wish.get("last")
        chosen = [shard for shard in self.shards if shard.core.role.shard == wish.get("shard")]
        if what != "re-ship" or type(first) is not int or type(last) is not int or not chosen:
            return {"error": f"no such wish, or no such shard here: {str(wish)[:100]}"}
        busy = chosen[0].mending
        if busy is not None and not busy.ended:
            return {"error": "another range is being put again; wait for its end"}
        chosen[0].mending = Mending(first, last)
        return self.status()


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> ShipperRole:
    """The shipper of a node."""
    return ShipperRole(node, log)
