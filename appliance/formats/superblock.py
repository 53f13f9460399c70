"""The superblock: root of a replica's durable state, 8 KiB, stored in four copies.

    0       digest, copy index: the index lies outside the digest, so that all copies share one
    40      identity, views, members, what a state sync still lacks
    448     checkpoint state (256 bytes; the same bytes travel in a start_view)
    4096    view headers: the exact list this replica advertised for its view

A superblock is a value: to change it, `dataclasses.replace` it and write all copies anew, with
`sequence` + 1 and `parent` = the digest of the one before.

Reserved bytes are zero, and a later version may give them a meaning: of volumes from before it
reads zero, which says that nothing is known. A version of before takes no copy in which such a byte
is set (`is_newer`): it would lose what stands there at its next write.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from appliance.base.checksum import blake2b_256
from appliance.base.layout import bytes_of, offset_of, struct_of
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX
from appliance.base.padding import is_zero
from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.formats.geometry import HEADER_SIZE, SUPERBLOCK_COPY_SIZE
from appliance.formats.lives import (
    LIVES_MAX,
    TOLD_SIZE,
    Told,
    decode_lives,
    decode_told,
    encode_lives,
    encode_told,
)
from appliance.formats.volume_file import (
    NOT_KNOWN,
    VolumeFile,
    decode_volume_file,
    encode_volume_file,
)

MAGIC = b"TIGRSUPR"
VERSION = 1
VIEW_HEADERS_MAX = 32
KIND_SV, KIND_DVC = 0, 1  # the view headers are a start_view's or a do_view_change's list
CHECKPOINT_STATE_SIZE = 256
ID_SIZE = 16

CHECKPOINT_STATE = np.dtype(
    [
        ("header", "V128"),  # of the prepare at the checkpoint's op
        ("checkpoint_id", "V32"),  # SHA-256 of the manifest; zero for the empty state at op 0
        ("parent", "V32"),
        ("grandparent", "V32"),  # ids of the two checkpoints before
        ("manifest_size", "<u8"),
        ("log_seq", "<u8"),
        ("reserved", "V16"),
    ]
)
assert CHECKPOINT_STATE.itemsize == CHECKPOINT_STATE_SIZE

SUPERBLOCK = np.dtype(
    [
        ("digest", "V32"),  # BLAKE2b-256 of all that follows `reserved_a`
        ("copy", "<u2"),
        ("reserved_a", "V6"),
        ("magic", "V8"),
        ("version", "<u2"),
        ("shard", "<u2"),
        ("reserved_b", "V4"),
        ("sequence", "<u8"),
        ("cluster_id", "V16"),
        ("replica_id", "V16"),
        ("parent", "V32"),  # digest of the superblock with sequence - 1
        ("view", "<u4"),
        ("log_view", "<u4"),
        ("epoch", "<u4"),
        ("incarnation", "<u4"),
        ("commit_max", "<u8"),
        ("sync_op_min", "<u8"),
        ("sync_op_max", "<u8"),
        ("replica_count", "u1"),
        ("standby_count", "u1"),
        ("replica_count_old", "u1"),
        ("standby_count_old", "u1"),
        ("view_headers_count", "<u2"),
        ("view_headers_kind", "<u2"),
        ("members", "V128"),
        ("members_old", "V128"),  # 8 replica ids each, by index
        ("sync_log_seq", "<u8"),
        ("segments_max", "<u4"),
        ("reserved_c", "V4"),
        ("checkpoint", "V256"),
        ("members_op", "<u8"),  # op of the change that made `members`; 0 = format
        ("flags", "u1"),
        ("lives_count", "u1"),
        ("reserved_d", "V2"),
        ("life_gone", "<u4"),  # the highest that a member told which was removed
        ("told", "V192"),  # 8 rows of lives.TOLD, by index of the member
        ("lives", "V136"),  # as in lives.LIFE
        ("file", "V32"),  # as in volume_file.VOLUME_FILE; zero = not known yet
        ("reserved_e", "V3016"),
        ("view_headers", "V4096"),
    ]
)
assert SUPERBLOCK.itemsize == SUPERBLOCK_COPY_SIZE
_STRUCT = struct_of(SUPERBLOCK)
digest_of = bytes_of(SUPERBLOCK, "digest")  # of bytes that are known to begin with one
_STATE = struct_of(CHECKPOINT_STATE)
_DIGESTED = offset_of(SUPERBLOCK, "magic")
_MAGIC_AT = (SUPERBLOCK.names or ()).index("magic")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """Names one durable state: that after the op of `header`."""

    header: Header
    checkpoint_id: bytes
    parent: bytes
    grandparent: bytes
    manifest_size: int
    log_seq: int  # of the last record committed in it


@dataclass(frozen=True, slots=True)
class Superblock:
    """All fields of a superblock. Lists hold no padding: that exists on disk only.

    Invariants: log_view <= view; checkpoint.header.op <= commit_max; 1 to 6 replicas, at most
    8 members; sync_op_min <= sync_op_max; the three sync fields are zero when nothing is missing.
    """

    shard: int
    sequence: int
    cluster: bytes
    replica_id: bytes
    parent: bytes
    view: int
    log_view: int
    epoch: int
    incarnation: int
    commit_max: int
    sync_op_min: int
    sync_op_max: int
    sync_log_seq: int  # first record that may be missing here; 0 = none
    replica_count: int
    standby_count: int
    replica_count_old: int
    standby_count_old: int
    members: list[bytes]  # replica ids, replicas before standbys
    members_old: list[bytes]  # of the epoch before, until its successor is safe; else empty
    segments_max: int
    checkpoint: CheckpointState
    view_headers_kind: int
    view_headers: list[Header]  # descending op
    members_op: int = 0  # op of the change that made `members`; 0 = format
    flags: int = 0  # lives.FLAG_UNVOUCHED, lives.FLAG_REMADE
    told: list[Told] = field(default_factory=list)  # by index of the member; none: of nobody
    lives: list[tuple[int, int]] = field(default_factory=list)  # own ones; the oldest first
    life_gone: int = 0  # highest incarnation told by a member that was removed
    file: VolumeFile = NOT_KNOWN  # that the volume was when it was open last

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self.cluster) == ID_SIZE and len(self.replica_id) == ID_SIZE
        assert any(self.replica_id)
        assert len(self.parent) == 32
        assert self.log_view <= self.view
        assert self.checkpoint.header.op <= self.commit_max
        assert self.sync_op_min <= self.sync_op_max
        assert 1 <= self.replica_count <= REPLICAS_MAX
        assert self.replica_count_old <= REPLICAS_MAX
        assert len(self.members) == self.replica_count + self.standby_count <= MEMBERS_MAX
        old = self.replica_count_old + self.standby_count_old
        assert len(self.members_old) == old <= MEMBERS_MAX
        assert self.segments_max > 0
        assert self.view_headers_kind in (KIND_SV, KIND_DVC)
        assert len(self.view_headers) <= VIEW_HEADERS_MAX
        assert len(self.told) in (0, len(self.members))
        assert len(self.lives) <= LIVES_MAX


# Fields whose value in memory is the value in the layout.
_AS_STORED = tuple(
    known.name
    for known in fields(Superblock)
    if SUPERBLOCK.fields and known.name in SUPERBLOCK.fields
    if known.type in ("int", "bytes", int, bytes)
)


def encode_checkpoint_state(state: CheckpointState) -> bytes:
    """256 bytes."""
    assert len(state.checkpoint_id) == len(state.parent) == len(state.grandparent) == 32
    return _STATE.pack(
        state.header.raw,
        state.checkpoint_id,
        state.parent,
        state.grandparent,
        state.manifest_size,
        state.log_seq,
        b"",
    )


def decode_checkpoint_state(raw: bytes | memoryview) -> CheckpointState | None:
    """The state in 256 bytes; None when its header is broken or a reserved byte is set."""
    if len(raw) != CHECKPOINT_STATE_SIZE:
        return None
    header_raw, checkpoint_id, parent, grandparent, size, log_seq, reserved = _STATE.unpack(raw)
    header = envelope.decode_stored(header_raw)
    if header is None or any(reserved):
        return None
    return CheckpointState(header, checkpoint_id, parent, grandparent, size, log_seq)


def encode(superblock: Superblock, copy: int) -> bytes:
    """8192 bytes: copy number `copy` of `superblock`."""
    superblock.check()
    s = superblock
    raw = bytearray(
        _STRUCT.pack(
            b"",
            copy,
            b"",
            MAGIC,
            VERSION,
            s.shard,
            b"",
            s.sequence,
            s.cluster,
            s.replica_id,
            s.parent,
            s.view,
            s.log_view,
            s.epoch,
            s.incarnation,
            s.commit_max,
            s.sync_op_min,
            s.sync_op_max,
            s.replica_count,
            s.standby_count,
            s.replica_count_old,
            s.standby_count_old,
            len(s.view_headers),
            s.view_headers_kind,
            b"".join(s.members),
            b"".join(s.members_old),
            s.sync_log_seq,
            s.segments_max,
            b"",
            encode_checkpoint_state(s.checkpoint),
            s.members_op,
            s.flags,
            len(s.lives),
            b"",
            s.life_gone,
            b"".join(encode_told(told) for told in s.told),
            encode_lives(s.lives),
            encode_volume_file(s.file),
            b"",
            b"".join(header.raw for header in s.view_headers),
        )
    )
    raw[:32] = blake2b_256(memoryview(raw)[_DIGESTED:])
    return bytes(raw)


def digest(superblock: Superblock) -> bytes:
    """32 bytes, the same in all copies: the `parent` of the next superblock."""
    return encode(superblock, 0)[:32]


def decode(raw: bytes | memoryview) -> tuple[Superblock, int, bytes] | None:
    """(superblock, copy index as stored, digest) of one copy; None when anything in it is wrong.

    The copy index is not judged here: who reads four places decides what a stray copy means.
    """
    if len(raw) != SUPERBLOCK_COPY_SIZE:
        return None
    if blake2b_256(memoryview(raw)[_DIGESTED:]) != bytes(raw[:32]):
        return None
    row = dict(zip(SUPERBLOCK.names or (), _STRUCT.unpack(raw), strict=True))
    reserved = (value for name, value in row.items() if name.startswith("reserved"))
    if row["magic"] != MAGIC or row["version"] != VERSION or any(map(any, reserved)):
        return None
    old_count = row["replica_count_old"] + row["standby_count_old"]
    if (
        (state := decode_checkpoint_state(row["checkpoint"])) is None
        or (members := _members(row["members"], row["replica_count"] + row["standby_count"]))
        is None
        or (members_old := _members(row["members_old"], old_count)) is None
        or (headers := _headers(row["view_headers"], row["view_headers_count"])) is None
        or (lives := decode_lives(row["lives"], row["lives_count"])) is None
        or not is_zero(row["told"][len(members) * TOLD_SIZE :])
    ):
        return None
    superblock = Superblock(
        **{name: row[name] for name in _AS_STORED},
        cluster=row["cluster_id"],
        members=members,
        members_old=members_old,
        checkpoint=state,
        view_headers=headers,
        told=_told(row["told"], len(members)),
        lives=lives,
        file=decode_volume_file(row["file"]),
    )
    superblock.check()  # the digest was right: whoever wrote this broke its own rules
    return superblock, row["copy"], row["digest"]


def is_newer(raw: bytes | memoryview) -> bool:
    """Whether this copy is whole and a later version of the program wrote it: bytes are set that
    this one keeps zero, or `version` is above ours.
    """
    if len(raw) != SUPERBLOCK_COPY_SIZE:
        return False
    if blake2b_256(memoryview(raw)[_DIGESTED:]) != bytes(raw[:32]):
        return False
    return _STRUCT.unpack(raw)[_MAGIC_AT] == MAGIC and decode(raw) is None


def _members(raw: bytes, count: int) -> list[bytes] | None:
    """The first `count` ids, if no byte is set behind them."""
    if count > MEMBERS_MAX or not is_zero(raw[count * ID_SIZE :]):
        return None
    return [raw[i * ID_SIZE : (i + 1) * ID_SIZE] for i in range(count)]


def _told(raw: bytes, count: int) -> list[Told]:
    """The first `count` rows; none if nothing was ever told."""
    if is_zero(raw):
        return []
    return [decode_told(raw[i * TOLD_SIZE : (i + 1) * TOLD_SIZE]) for i in range(count)]


def _headers(raw: bytes, count: int) -> list[Header] | None:
    """The first `count` headers, if each is whole and no byte is set behind them."""
    if count > VIEW_HEADERS_MAX or not is_zero(raw[count * HEADER_SIZE :]):
        return None
    headers = [
        envelope.decode_stored(raw[i * HEADER_SIZE : (i + 1) * HEADER_SIZE]) for i in range(count)
    ]
    whole = [header for header in headers if header is not None]
    return whole if len(whole) == count else None
