"""A volume of a cluster that is gone, as a source: what its own checkpoint and log vouch for.

    superblock -> manifest -> footers, from the newest back; leaves of the open segment
                  manifest's op -> prepares behind it, as far as a start would follow them

Nothing is written, and no replica may work on the volume meanwhile.
"""

from pathlib import Path

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError, StorageError
from appliance.cores.vsr import open as opening
from appliance.cores.vsr import recovery
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.wal import parse_prepare
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import (
    HEADER_SIZE,
    MANIFEST_SIZE_MAX,
    RECORD_SIZE,
    whole_sectors,
)
from appliance.formats.segment import (
    decode_footer,
    footer_leaf_ids,
    leaf_record_count,
    segment_id,
)
from appliance.roles.operator.log_source import Span, digests_of


def _leave_as_it_is() -> None:
    """Nobody acknowledges what is read here."""


class VolumeBroken(StorageError):
    """Nothing there says what its records are."""


class VolumeSource:
    """Opened, held, its front verified. StorageError where not even that can be read."""

    def __init__(self, folder: Path) -> None:
        self.reader = VolumeReader(folder)
        self.reader.hold()
        self.name = str(self.reader.folder)
        self.findings: list[str] = []
        self.geometry = self.reader.geometry
        loaded = opening.load(self.geometry, _leave_as_it_is, self.reader.read_many)
        self.block = loaded.superblock
        self._zone = 0  # where the checkpoint's tables lie
        self.manifest = self._manifest()
        self.first_log_seq, self.last_log_seq = 1, 0
        self._leaf_ids: dict[int, list[bytes] | None] = {}  # segment -> of its leaves
        self._chain = (0, env.root(self.block.cluster, self.block.shard).digest)
        if self.manifest is not None:
            manifest = self.manifest
            self.last_log_seq = manifest.log_seq
            self.first_log_seq = manifest.oldest_segment * self.geometry.segment_records + 1
            self._chain = (manifest.op, manifest.prepare_digest)
            self._read_footers(manifest)
        self._journal, self.head_op = self._recover(loaded.slots)

    @property
    def log(self) -> tuple[int, int, int]:
        """How new its log is: of two, the higher one counts."""
        return self.block.epoch, self.block.log_view, self.head_op

    @property
    def commit_max(self) -> int:
        """Operations up to here are known to be committed."""
        return self.block.commit_max

    # --- the checkpoint

    def _manifest(self) -> ck.Manifest | None:
        """Of the newest checkpoint that is whole; None: the log is there from its begin."""
        state = self.block.checkpoint
        if state.header.op == 0:
            return None
        zone = self.geometry.checkpoint_zone(state.header.op)
        for which, wanted in ((zone, state.checkpoint_id), (1 - zone, state.parent)):
            start = self.geometry.checkpoints_offset + which * self.geometry.checkpoint_zone_size
            raw = self.reader.read(start, MANIFEST_SIZE_MAX) or bytes(ck.HEAD_SIZE)
            raw = raw[: ck.size_of(raw)]
            try:
                if sha256(raw) == wanted:
                    self._zone = start
                    return ck.decode(raw, self.geometry)
            except FormatError as error:
                self.findings.append(str(error))
            if which == zone:
                self.findings.append("its newest checkpoint is broken: the one before is taken")
        raise VolumeBroken(
            f"{self.name}: neither of its checkpoints is whole: restore from another volume, or "
            "from what was shipped"
        )

    def _read_footers(self, manifest: ck.Manifest) -> None:
        """The ids of all leaves, from the newest sealed segment back; each footer names the one
        before. Behind a broken one a footer stands for itself: its leaves must fit."""
        open_number, count = divmod(manifest.log_seq, self.geometry.segment_records)
        if count:
            self._leaf_ids[open_number] = manifest.leaf_ids
        wanted: bytes | None = manifest.newest_segment_id
        for number in range(open_number - 1, manifest.oldest_segment - 1, -1):
            raw = self._footer(number)
            if raw is None or (wanted is not None and segment_id(raw) != wanted):
                self.findings.append(f"the footer of segment {number} is broken or not there")
                self._leaf_ids[number] = wanted = None
                continue
            footer = decode_footer(raw, self.geometry)
            self._leaf_ids[number] = footer_leaf_ids(raw, footer)
            wanted = footer.previous_id

    def footer(self, number: int) -> bytes | None:
        """Of a sealed segment, if it is what the one behind it names."""
        return self._footer(number) if self._leaf_ids.get(number) is not None else None

    def tables(self) -> dict[str, list[bytes]]:
        """The chunks of the checkpoint's tables of rooms and windows."""
        assert self.manifest is not None
        found: dict[str, list[bytes]] = {}
        for name in ("rooms", "windows"):
            found[name] = []
            for index, wanted in enumerate(self.manifest.tables[name].chunk_ids):
                size = self.geometry.table_chunk_size
                start = self._zone + self.geometry.table_offset(name) + index * size
                data = self.reader.read(start, size)
                if data is None or sha256(data) != wanted:
                    raise VolumeBroken(
                        f"{self.name}: chunk {index} of the table of {name} is broken: restore "
                        "from another volume, or from what was shipped"
                    )
                found[name].append(data)
        return found

    def _footer(self, number: int) -> bytes | None:
        try:
            raw = self.reader.read_footer(number % self.reader.segments_max)
            if raw is None:
                return None
            footer = decode_footer(raw, self.geometry)
        except (FormatError, StorageError):
            return None
        return raw[: footer.size] if footer.number == number else None

    # --- committed records

    def next_from(self, log_seq: int) -> int | None:
        first = max(log_seq, self.first_log_seq)
        while first <= self.last_log_seq:
            number, slot = divmod(first - 1, self.geometry.segment_records)
            if self._extent(number) is not None:
                return first
            first += self.geometry.segment_records - slot
        return None

    def _extent(self, number: int) -> bytes | None:
        try:
            return self.reader.read_extent(number % self.reader.segments_max)
        except StorageError:
            return None

    def span(self, log_seq: int) -> Span | None:
        if not self.first_log_seq <= log_seq <= self.last_log_seq:
            return None
        geometry = self.geometry
        number, slot = divmod(log_seq - 1, geometry.segment_records)
        data = self._extent(number)
        if data is None:
            self._say(f"segment {number} cannot be read")
            return None
        count = min(geometry.segment_records, self.last_log_seq - number * geometry.segment_records)
        digests = digests_of(memoryview(data)[: count * RECORD_SIZE])
        known = self._leaf_ids[number]
        doubtful, first = [], 0
        for leaf in range(-(-count // geometry.records_max)):
            end = min(first + leaf_record_count(geometry, leaf), count)
            if known is None or sha256(b"".join(digests[first:end])) != known[leaf]:
                doubtful.append((first, end))
            first = end
        if doubtful and known is not None:
            leaves = ", ".join(str(a // geometry.records_max) for a, _ in doubtful)
            self._say(f"segment {number}: leaf {leaves} is broken")
        return Span(data[: count * RECORD_SIZE], digests, doubtful).tail(slot)

    def _say(self, finding: str) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    # --- the log behind the checkpoint

    def _recover(self, slots: list[recovery.Slot]) -> tuple[Journal, int]:
        """The journal as a start would have it, and the op of its head."""
        block, geometry = self.block, self.geometry
        found = recovery.recover(
            slots,
            geometry=geometry,
            checkpoint=block.checkpoint.header.op,
            view_headers=block.view_headers,
            log_viewstamp=block.epoch << 32 | block.log_view,
            solo=False,
        )
        head = recovery.head(
            found.journal,
            view=block.view,
            log_view=block.log_view,
            view_headers=block.view_headers,
            checkpoint_header=block.checkpoint.header,
            geometry=geometry,
        )
        return found.journal, head

    @property
    def begin(self) -> tuple[int, bytes]:
        """(op, digest) of the prepare that its checkpoint ends with."""
        return self._chain

    def header(self, op: int) -> Header | None:
        """Of the prepare that its log has there, whether it can be read or not."""
        return self._journal.at(op)

    def prepare(self, op: int, parent: bytes) -> Message | None:
        """The prepare of its log that follows `parent`, if it can be read here."""
        header = self._journal.at(op)
        return self._read(header) if header is not None and header.parent == parent else None

    def _read(self, header: Header) -> Message | None:
        slot = header.op % self.geometry.slot_count
        size = whole_sectors(HEADER_SIZE + header.body_size)
        address = self.geometry.wal_prepares_offset + slot * self.geometry.message_size_max
        return parse_prepare(self.reader.read(address, size), header)
