"""The keeper: drops what is older than the site keeps, a whole segment at a time. Names of rooms
whose first records go are stated anew before, in shard 0, where edges that begin later find them.

One in each node, only where the site file has `retention_days`. It acts for the shards whose
primary is on its node: looks how old the oldest segments are, and writes a retain record, which
every replica applies at the same place of the log. What is not shipped stays, unless shipping is
off.
"""

import asyncio
import logging
import os
from pathlib import Path

import numpy as np

from appliance.cores.rooms.keeping import DAY_US, Kept, keep, names_in, said_in
from appliance.drivers.host import clock, service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.network.ask import status_of
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_NOOP
from appliance.formats.event import encode_retain
from appliance.formats.room_names import encode_room_names
from appliance.formats.session import DUPLICATE, OK, RESULT_NAMES, RESULT_STRUCT
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import Shard
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.verified_segment import SegmentBroken, VerifiedSegments
from appliance.roles.operator.numbering import Numbering
from appliance.roles.operator.session import OperatorSession
from appliance.roles.operator.trail import Trail

EVERY_S_MAX, EVERY_S_MIN = 60.0, 1.0  # between two looks; a tenth of what is kept, within these
CHECKPOINTS_TO_REUSE = 2  # after which a dropped extent may be written again
CROWDED_SEGMENTS = 4  # left: with so few, nothing may come that leads to a checkpoint
PATIENCE_S = 30.0  # for a retain record to be committed


class Segments:
    """The sealed segments of a replica's volume: when their newest records were written."""

    def __init__(self, node: NodeFolder, shard: Shard) -> None:
        facts = read_facts(node.volume(shard.number))
        self.geometry = GEOMETRIES[facts["geometry"]]
        self._mapped = MappedSegments(
            node.volume(shard.number) / "segments", self.geometry, facts["segments_max"]
        )

    def names(self, oldest: int, end: int) -> tuple[list[str], list[bytes]] | None:
        """Of rooms, as these segments tell them, and bodies that state anew what else they say of
        rooms, each once; None when one cannot be read now."""
        found: dict[str, None] = {}
        said: dict[bytes, None] = {}
        verified = VerifiedSegments(self._mapped, self.geometry, kept=1)
        for number in range(oldest, end):
            try:
                segment = verified.segment(number)
                if segment is None:
                    return None
                found |= dict.fromkeys(names_in(segment))
                said |= dict.fromkeys(said_in(segment))
            except SegmentBroken:
                return None
        return list(found), list(said)

    def newest_us(self, number: int) -> int | None:
        """Time of the newest record of a sealed segment; None when it cannot be read or is not
        what its checksum says."""
        return self._time(number, self.geometry.segment_records - 1)

    def oldest_us(self, number: int) -> int | None:
        """As `newest_us`, of its oldest record."""
        return self._time(number, 0)

    def _time(self, number: int, slot: int) -> int | None:
        view = self._mapped.view(number)
        if view is None:
            return None
        raw = view.record(slot)
        (row,) = np.frombuffer(raw, record.RECORD)
        expected = number * self.geometry.segment_records + slot + 1
        if not record.sealed(raw) or int(row["log_seq"]) != expected:
            return None
        return int(row["timestamp"])


def kept_of(status: ReplicaStatus, segments: Segments, *, ships: bool) -> Kept:
    """What a replica that answered `status` keeps."""
    return Kept(
        oldest=status.oldest_segment,
        segment_records=segments.geometry.segment_records,
        log_seq=status.log_seq,
        shipped=status.shipping.cursor,
        ships=ships,
        corrected=status.clock.corrected_us > 0,
    )


def time_of(status: ReplicaStatus) -> int:
    """By which the age of a record counts: the time that a record would be given now, by the clocks
    of the group. While they do not agree it is the one that the group goes by: a clock of this node
    that is a day ahead would let go of a day too much.
    """
    of_clock = status.clock
    if of_clock.agreed:
        return of_clock.log_us - of_clock.corrected_us
    return clock.realtime_us() - of_clock.errors_us.get(status.replica, 0)


def _is_crowded(shard: Shard, kept: Kept) -> bool:
    """Whether the shard is about to be full, or is."""
    used = kept.log_seq // kept.segment_records + 1 - kept.oldest
    return shard.segments_max - used <= CROWDED_SEGMENTS


class Names:
    """Names of rooms, stated anew by `node` before the segments that tell them go."""

    def __init__(self, trail: Trail, node: str, log: logging.Logger) -> None:
        self._trail, self._node, self._log = trail, node, log
        # shard -> first segment whose names were not stated yet: the log may refuse for long to let
        # segments go, and would fill with the same names at each look
        self._next: dict[int, int] = {}

    async def stay(self, shard: int, segments: Segments, oldest: int, end: int) -> bool:
        """State those that go with these segments; whether that was committed."""
        first = max(oldest, self._next.get(shard, 0))
        told = await asyncio.to_thread(segments.names, first, end)
        if told is None:
            self._log.warning(
                "segments %d to %d cannot be read whole now: they stay", first, end - 1
            )
            return False
        at_us = clock.realtime_us()
        names, said = told
        bodies = [*encode_room_names(names, node=self._node, at_us=at_us)]
        for body in bodies + said:
            if not await self._trail.write(body, PATIENCE_S):
                return False
        self._next[shard] = max(first, end)
        return True


class KeeperRole:
    """Looks again and again, until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self._node, self._log = node, log
        self._life = Lifetime()
        self._stopped = self._life.asked
        self._beat = Beat("keeper", log, self._life)
        self._names = Names(Trail(node, log), node.node.name, log)
        self._numberings = {shard.number: Numbering() for shard in node.shards}
        days = node.site.retention_days
        self._every_s = min(EVERY_S_MAX, max(EVERY_S_MIN, days * DAY_US / 1_000_000 / 10))

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        self._beat.lead()
        on_stop_signal(self._stopped.set)
        self._beat.seconds()
        service.notify("READY=1", f"STATUS=keeps {self._node.site.retention_days} days")
        while not self._stopped.is_set():
            for shard in self._node.shards:
                with self._beat.weathers():
                    await self._poll(shard)
            try:
                async with asyncio.timeout(self._every_s):
                    await self._stopped.wait()
            except TimeoutError:
                continue
        service.notify("STOPPING=1")
        await self._life.close()
        return self._beat.exit_code

    async def _poll(self, shard: Shard) -> None:
        site = self._node.site
        status = await asyncio.to_thread(
            status_of,
            ReplicaStatus,
            Path(SOCKETS_FOLDER),
            cluster=site.cluster,
            number=shard.number,
        )
        if status is None or not status.is_serving_primary:
            return
        ships = self._node.settings.ship_target != SHIP_OFF
        segments = await asyncio.to_thread(Segments, self._node, shard)
        kept = kept_of(status, segments, ships=ships)
        now_us = time_of(status)
        oldest = await asyncio.to_thread(
            keep, kept, segments.newest_us, now_us, site.retention_days
        )
        if oldest > kept.oldest and await self._names.stay(
            shard.number, segments, kept.oldest, oldest
        ):
            push = 0
            if _is_crowded(shard, kept) or status.space.short:
                push = CHECKPOINTS_TO_REUSE * segments.geometry.checkpoint_ops
            code = await self._retain(shard, oldest, ships=ships, push=push)
            if code == OK:
                self._log.info("shard %d keeps segments from %d on", shard.number, oldest)
            elif code == DUPLICATE:  # then the next look goes by what that one let go
                self._log.info("shard %d took the record before, without an answer", shard.number)
            else:
                name = RESULT_NAMES[code]
                self._log.warning("shard %d keeps all: answered with %s", shard.number, name)

    async def _retain(self, shard: Shard, oldest: int, *, ships: bool, push: int) -> int:
        """Write the record, and so many empty operations behind it; the code of its result. Extents
        are used again two checkpoints later, and a full shard takes no messages that would lead
        there.
        """
        numbering = self._numberings[shard.number]
        raw = record.encode(
            room_id=record.SHARD_ROOM_ID,
            msg_id=os.urandom(16),
            author_id=0,
            body=encode_retain(oldest, unshipped=not ships),
            client_id=numbering.client_id,
            client_seq=numbering.client_seq,
            kind=record.KIND_RETAIN,
        )
        async with OperatorSession(self._node, shard) as session:
            answer = await session.ask(
                OPERATION_APPEND, raw, PATIENCE_S, f"the end of segments below {oldest}", records=1
            )
            seq, _, _, code, *_ = RESULT_STRUCT.unpack_from(answer)
            numbering.on_answer(code, seq)
            for _ in range(push):
                await session.ask(OPERATION_NOOP, b"", PATIENCE_S, "what leads to a checkpoint")
        return int(code)


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> KeeperRole:
    """The keeper of a node."""
    return KeeperRole(node, log)
