"""Snapshots that a node makes by itself: one file for each sealed segment of each of its shards.

    replica ──seals──▶ segment ──▶ snapshots/shard-00000/segment-000000007.tig ──▶ dropped, oldest
                                                                                   first

They are there whether something is shipped or not, take no more than `snapshots_mib`, and are
written at a pace that nobody notices. `tigerchat snapshot verify` checks one.
"""

import asyncio
import contextlib
import logging
import re
from collections import Counter
from pathlib import Path

from appliance.base.errors import TargetError
from appliance.base.limits import SNAPSHOT_FILES_MAX, SNAPSHOT_RATE_MAX
from appliance.base.prng import Prng
from appliance.cores.shipping.kept_snapshots import choose
from appliance.cores.shipping.source import NotHere, Source
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.drivers.host.node_folder import SNAPSHOTS_FOLDER, NodeFolder
from appliance.formats import snapshot
from appliance.formats.geometry import Geometry
from appliance.formats.segment import first_log_seq_of
from appliance.formats.site import Shard
from appliance.formats.status.shipper import SnapshotFiles
from appliance.roles.attached.log_session import LogSession

POLL_S = 0.2  # between two looks at what is sealed; at most one file is made after each
_NAME = re.compile(r"segment-([0-9]{9})\.tig")
_MIB = 1 << 20


def name_of(number: int) -> str:
    """The file of a segment."""
    return f"segment-{number:09}.tig"


class ShardSnapshots:
    """The files of one shard."""

    def __init__(
        self, node: NodeFolder, shard: Shard, session: LogSession, log: logging.Logger
    ) -> None:
        self.shard = shard.number
        self.error = ""
        self._session, self._log, self._key = session, log, node.signing_key
        self._folder = f"shard-{shard.number:05}"
        self._target = FolderTarget(node.path / SNAPSHOTS_FOLDER, rate_max=SNAPSHOT_RATE_MAX)
        share = node.settings.snapshots_mib * _MIB // len(node.shards)
        size = snapshot.file_size(session.geometry.segment_records)
        self._count_max = min(SNAPSHOT_FILES_MAX, share // size)
        self._existing: set[int] | None = None  # None: not looked at yet
        self._told: Source | None = None  # the session's, and ours beside it
        self._source: Source | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            told = self._session.source
            if told is not None:
                try:
                    await self._turn(told)
                    self.error = ""
                except (TargetError, NotHere) as error:
                    self._note(str(error))
            await asyncio.sleep(POLL_S)

    async def _turn(self, told: Source) -> None:
        """Look once, in a thread, by a reader of our own: shipping reads in a thread as well."""
        if self._told is not told or self._source is None:
            self._told, self._source = told, self._session.second_source()
        source = self._source
        source.log_seq, source.oldest_segment = told.log_seq, told.oldest_segment
        try:
            await asyncio.to_thread(self._poll, source, self._session.geometry)
        finally:
            told.broken |= source.broken  # the session has them mended
            source.broken.clear()

    def abort(self) -> None:
        """Have what is being written fail soon."""
        self._target.abort()

    def status(self) -> SnapshotFiles:
        """For the operator."""
        existing = self._existing or set()
        return SnapshotFiles(
            shard=self.shard,
            files=len(existing),
            files_max=self._count_max,
            newest_segment=max(existing, default=-1),
            error=self.error,
        )

    def _note(self, error: str) -> None:
        if error != self.error:
            self._log.warning("shard %d: snapshots: %s", self.shard, error)
        self.error = error

    def _poll(self, source: Source, geometry: Geometry) -> None:
        """Drop what is too much; make one file that is missing."""
        if self._existing is None:
            entries = self._target.list(self._folder)
            found = (_NAME.fullmatch(entry.name) for entry in entries)
            self._existing = {int(match[1]) for match in found if match is not None}
        existing = self._existing
        choice = choose(
            existing,
            newest=source.log_seq // geometry.segment_records - 1,
            oldest=source.oldest_segment,
            count_max=self._count_max,
        )
        for number in choice.drop:
            self._target.delete(f"{self._folder}/{name_of(number)}")
            existing.discard(number)
        if choice.make:
            self._make(source, geometry, choice.make[0])
            existing.add(choice.make[0])

    def _make(self, source: Source, geometry: Geometry, number: int) -> None:
        first = first_log_seq_of(geometry, number)
        last = first + geometry.segment_records - 1
        records = memoryview(source.records(first, last))
        data = b"".join(
            snapshot.render(
                [records],
                room_id=snapshot.SEGMENT,
                op=last,
                record_count=geometry.segment_records,
                key=self._key,
            )
        )
        path = f"{self._folder}/{name_of(number)}"
        self._target.put(path + ".part", data)
        self._target.rename(path + ".part", path, overwrite=True)


class ReadShard:
    """A shard that is read and not shipped: its link to the replica, and nothing else to do."""

    def __init__(
        self,
        node: NodeFolder,
        shard: Shard,
        prng: Prng,
        *,
        counters: Counter[str],
        drops: Counter[str],
    ) -> None:
        self.session = LogSession(
            node,
            shard,
            prng,
            counters=counters,
            drops=drops,
            on_status=lambda status: None,
            appends=False,
        )

    async def run(self) -> None:
        """Until cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def snapshots_of(
    node: NodeFolder, sessions: dict[int, LogSession], log: logging.Logger
) -> list[ShardSnapshots]:
    """Of all shards of a node; none where the setting is 0. `sessions` by the shard's number."""
    if not node.settings.snapshots_mib:
        return []
    return [ShardSnapshots(node, shard, sessions[shard.number], log) for shard in node.shards]


def remove_parts(folder: Path) -> None:
    """Remove what a kill left half written."""
    for part in (folder / SNAPSHOTS_FOLDER).glob("*/*.part"):
        part.unlink(missing_ok=True)
