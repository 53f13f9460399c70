"""The shipping of one shard: link to the replica, session of the log, one step after the other."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from appliance.base.errors import ApplianceError, FormatError, TargetError
from appliance.base.prng import Prng
from appliance.cores.shipping import shipper as core
from appliance.cores.shipping.lateness import state_in
from appliance.cores.shipping.plan import SECOND_US
from appliance.cores.shipping.role import Role
from appliance.cores.shipping.seams import SeekSeams
from appliance.cores.shipping.shipper import (
    Append,
    CheckTarget,
    Compare,
    Put,
    PutHead,
    PutManifest,
)
from appliance.cores.shipping.source import LogTime, NotHere, Source
from appliance.drivers.hdfs.open_target import is_shared
from appliance.drivers.hdfs.target import Target
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record as rec
from appliance.formats.event import Shipped, encode_shipped
from appliance.formats.session import DUPLICATE, OK, SEQUENCE_GAP
from appliance.formats.site import Shard
from appliance.formats.site_view import Group, SiteView
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import ShippedShard
from appliance.roles.attached.log_session import LogSession
from appliance.roles.shipper.repair import Repair, Repairs
from appliance.roles.shipper.shard_target import ShardTarget

IDLE_S, AWAIT_S = 0.1, 0.02  # between two looks for a step; while an own record is awaited


class ShardShipping:
    """One shard: its link to the replica, its session of the log, its core, its task."""

    def __init__(
        self,
        node: NodeFolder,
        shard: Shard,
        target: Target,
        prng: Prng,
        *,
        log: logging.Logger,
        counters: Counter[str],
        drops: Counter[str],
        on_report: Callable[[ReplicaStatus], None],
    ) -> None:
        """`on_report` hears what the replica tells of itself, before it is gone by."""
        self._log, self._shard, self._on_report = log, shard, on_report
        self._client_seq = 1  # of our next own record
        self._prng = prng
        self.follows = False  # its replica has no vote, and passes no request on
        self.session = LogSession(
            node,
            shard,
            prng.fork(),
            counters=counters,
            drops=drops,
            on_status=self._on_status,
        )
        self.core = core.Shipper(self._core_role(node, shard), prng.fork())
        self._target = ShardTarget(
            target,
            self.core,
            key=node.signing_key,
            trusted=node.view.public_keys,
            log=log,
        )
        self._repairs = Repairs(self.core, self._target)
        self.repair: Repair | None = None  # the newest that the operator wants
        self.doing = ""

    def _core_role(self, node: NodeFolder, shard: Shard) -> Role:
        settings = node.settings
        return Role(
            cluster=node.site.cluster,
            shard=shard.number,
            node=settings.index,
            members=_turns(node.view.groups[shard.number]),
            segment_records=self.session.geometry.segment_records,
            period_us=settings.ship_period_s * SECOND_US,
            patience_us=settings.ship_late_s * SECOND_US,
            may_claim=settings.ship_claim == "auto",
            shared=is_shared(settings),
        )

    def on_view(self, view: SiteView) -> None:
        """Other nodes hold the shard, or are described."""
        self.core.on_members(_turns(view.groups[self._shard.number]))
        self._target.trusted = view.public_keys

    # --- the replica

    def _on_status(self, status: ReplicaStatus) -> None:
        self._on_report(status)
        self.follows = not 0 <= status.replica < status.replica_count
        told = status.shipping
        log = LogTime(status.clock.log_us, status.clock.corrected_us)
        self.core.on_state(state_in(told), told.cursor, told.log_seq, _now_us(), log)

    async def _append(self, shipped: Shipped) -> tuple[int, int]:
        """(code, log_seq) of the record; asks until the shard answers."""
        while True:
            raw = rec.encode(
                room_id=rec.SHARD_ROOM_ID,
                msg_id=self._prng.bytes(16),
                author_id=0,
                body=encode_shipped(shipped),
                client_id=self.session.client_id,
                client_seq=self._client_seq,
                kind=rec.KIND_SHIPPED,
            )
            ((code, seq, log_seq),) = await self.session.append([raw])
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
        shipper, source = self.core, self.session.source
        if source is None or self.follows:
            return IDLE_S
        known = source.knows_seams(shipper.log_time.ahead_us)
        if known and self.repair is not None and not self.repair.ended:
            await self._put_again(self.repair, source)
        try:
            step = shipper.step(source, _now_us(), clock.realtime_us())
        except NotHere as error:
            shipper.error = str(error)
            return 5 * IDLE_S
        if step is None:
            if shipper.awaits:
                self.session.ask_status()
                return AWAIT_S
            return IDLE_S
        self.doing = _described(step)
        try:
            await self._do(step, source)
        except (TargetError, FormatError) as error:
            shipper.on_failed(step, str(error), _now_us())
            self._log.warning("shard %d: %s: %s", self._shard.number, self.doing, error)
        self.doing = ""
        return 0.0

    async def _do(self, step: core.Step, source: Source) -> None:
        shipper = self.core
        if isinstance(step, Append):
            code, log_seq = await self._append(step.shipped)
            accepted = code in (OK, DUPLICATE)
            shipper.on_appended(step, accepted, log_seq, _now_us())
            if accepted:
                self._log.debug("shard %d: %s", self._shard.number, self.doing)
        elif isinstance(step, Put):
            file, _ = await asyncio.to_thread(self._target.put, step, source)
            shipper.on_put(step, file)
        elif isinstance(step, CheckTarget):
            seen = await asyncio.to_thread(self._target.check, step)
            shipper.on_checked(seen, _now_us())
        elif isinstance(step, Compare):
            shipper.on_compared(await asyncio.to_thread(self._repairs.compare, source))
        else:
            if isinstance(step, PutManifest):
                await asyncio.to_thread(self._target.put_manifest, step.manifest)
            elif isinstance(step, PutHead):
                await asyncio.to_thread(self._target.put_head, step.head)
            elif isinstance(step, SeekSeams):
                await asyncio.to_thread(source.seek_seams, step.ahead_us, step.log_seq)
            else:
                await asyncio.to_thread(self._target.sweep, step.generation)
            shipper.on_done(step)

    def close_at_us(self) -> int:
        """The next whole second by the wall's clock and by the log's, past the newest record."""
        now_us = clock.realtime_us()
        source = self.session.source
        if source is not None:
            with contextlib.suppress(NotHere):  # it is being fetched: then nothing newer is known
                now_us = self.core.past_us(source, now_us)
        return (now_us // SECOND_US + 1) * SECOND_US

    async def _put_again(self, repair: Repair, source: Source) -> None:
        try:
            await asyncio.to_thread(self._repairs.put_range, repair, source)
        except ApplianceError as error:
            repair.error = str(error)
        repair.ended = True

    # --- figures

    def status(self) -> ShippedShard:
        shipper, state, source = self.core, self.core.state, self.session.source
        newest = source.log_seq if source is not None else 0
        late_us = 0
        if source is not None:
            try:
                late_us = shipper.late_us(source, clock.realtime_us())
            except NotHere as error:
                self._log.debug("shard %d: %s", self._shard.number, error)
        return ShippedShard(
            shard=self._shard.number,
            attached=source is not None,
            follows=self.follows,
            ships=shipper.ships and not self.follows,
            settled=shipper.settled,
            generation=state.generation,
            node=state.node,
            cursor=shipper.cursor,
            log_seq=newest,
            backlog=newest - shipper.cursor,
            manifests=state.manifest_count,
            headed=shipper.headed,
            announced=state.announced_end > 0,
            closing=shipper.closing,
            hole=shipper.hole if shipper.ships else "",
            period_start_us=state.period_start_us,
            late_s=late_us / SECOND_US,
            doing=self.doing,
            error=shipper.error,
            failures=shipper.failures,
            early_files=len(shipper.files),
            put_files=self._target.files_put,
            put_bytes=self._target.bytes_put,
            mending=None if self.repair is None else self.repair.status(),
        )


def _turns(group: Group) -> tuple[int, ...]:
    """The nodes of a shard in the order in which they claim. Standbys are members too, as they may
    come to vote: they stand by until their replica does."""
    voters = group.voter_nodes
    first = group.shard.number % len(voters) if voters else 0
    return (*voters[first:], *voters[:first], *group.standby_nodes)


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
    if isinstance(step, SeekSeams):
        return "look for records that corrected the clock"
    return "look at the target" if isinstance(step, CheckTarget) else "sweep _incoming"


def _now_us() -> int:
    return clock.monotonic_ns() // 1000
