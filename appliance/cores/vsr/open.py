"""A replica's data file at the two moments when nobody else uses it: format and open.

format   superblock, root prepare and reserved headers over a file of zeros
load     which superblock counts, and what each slot of the write-ahead ring holds
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from appliance.base.errors import StorageError
from appliance.base.limits import (
    SECTOR_SIZE,
    SUPERBLOCK_COPIES,
    SUPERBLOCK_COPIES_TO_OPEN,
)
from appliance.base.padding import is_zero
from appliance.cores.vsr.checkpoint import root_state
from appliance.cores.vsr.recovery import Found, Slot, read_header
from appliance.cores.vsr.remedies import remedy_of
from appliance.cores.vsr.wal import parse_prepare
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.geometry import (
    HEADER_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    Geometry,
    whole_sectors,
)
from appliance.formats.lives import FLAG_REMADE, FLAG_UNVOUCHED
from appliance.formats.volume_file import NOT_KNOWN, VolumeFile

FlushAll = Callable[[], None]
ReadMany = Callable[[list[tuple[int, int]]], list[bytes | None]]
LOAD_BATCH = 64  # slots read at once: bounds the memory of a load


@dataclass(slots=True)
class Loaded:
    """What a data file says; nothing was written yet."""

    superblock: sb.Superblock
    # copies to be written again before anything else, in this order
    repairs: list[int]
    slots: list[Slot]
    file: VolumeFile = NOT_KNOWN  # that the volume is now
    moved: bool = False  # the operator has said that it is the same volume all the same


class VolumeUnusable(StorageError):
    """The volume cannot be opened without risking a lie: `halt` names the case, the text the
    remedy.
    """

    code = 1006

    def __init__(
        self, halt: str, reason: str, remedy: str = "restore this replica from its peers"
    ) -> None:
        super().__init__(f"{halt}: {reason}; {remedy} (docs/operations.md)")
        self.halt = halt


def load(geometry: Geometry, flush_all: FlushAll, read_many: ReadMany) -> Loaded:
    """Read what opening needs: superblock copies, witness ring, headers, and the bodies above the
    checkpoint.

    What is found counts as durable from now on: it is acknowledged, voted with and committed. A
    process that was killed may have written it and not flushed it, so `flush_all` comes first: it
    returns once the medium has whatever can be read. `read_many` answers a list of (address,
    length) with the bytes of each, None where the disk gave an error. Raises VolumeUnusable where
    no superblock can be trusted.
    """
    flush_all()
    copies = read_many(
        [(i * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE) for i in range(SUPERBLOCK_COPIES)]
    )
    block, repairs = choose(copies)
    assert len(set(repairs)) == len(repairs) <= SUPERBLOCK_COPIES
    slots: list[Slot] = []
    for first in range(0, geometry.slot_count, LOAD_BATCH):
        slots += _load_slots(
            geometry, read_many, block, range(first, min(first + LOAD_BATCH, geometry.slot_count))
        )
    assert len(slots) == geometry.slot_count
    return Loaded(block, repairs, slots)


def choose(copies: list[bytes | None]) -> tuple[sb.Superblock, list[int]]:
    """The superblock that counts, and the copies to repair.

    Two that agree, of the highest sequence. A confirmed update is always found: 2 + 3 > 4. Where no
    two agree, one copy may have rotted while a crash tore another: see `_unfinished`.
    """
    assert len(copies) == SUPERBLOCK_COPIES
    found = [sb.decode(raw) if raw is not None else None for raw in copies]
    if not any(found):
        _refuse_newer(copies)
        raise VolumeUnusable("SUPERBLOCK_MISSING", "not one superblock copy can be read")
    groups: dict[bytes, set[int]] = {}
    blocks: dict[bytes, sb.Superblock] = {}
    for position, item in enumerate(found):
        if item is not None:
            block, copy, digest = item
            index = copy if copy < SUPERBLOCK_COPIES else position
            groups.setdefault(digest, set()).add(index)
            blocks[digest] = block
    valid = [d for d, members in groups.items() if len(members) >= SUPERBLOCK_COPIES_TO_OPEN]
    valid = valid or _unfinished(blocks)
    if not valid:
        _refuse_newer(copies)
        raise VolumeUnusable("SUPERBLOCK_QUORUM_LOST", "no two superblock copies agree")
    chosen_digest = max(valid, key=lambda d: blocks[d].sequence)
    chosen = blocks[chosen_digest]
    assert chosen_digest in valid
    _check_others(chosen, chosen_digest, blocks, valid)
    return chosen, _repairs(found, chosen_digest)


def _refuse_newer(copies: list[bytes | None]) -> None:
    """Nothing is lost where a later version of the program has written what we cannot read."""
    if any(raw is not None and sb.is_newer(raw) for raw in copies):
        raise VolumeUnusable(
            "VOLUME_NEWER",
            "a later version of this program has written the superblock",
            remedy_of("VOLUME_NEWER"),
        )


def _unfinished(blocks: dict[bytes, sb.Superblock]) -> list[bytes]:
    """The update that a crash cut off, where each of its copies and its predecessor's stands alone.

    Copies are written one at a time, so one is torn at most; with a rotten one beside it two are
    left: the update and its predecessor. Had the update been confirmed, on three copies, one of
    them would be left now; so the newest is never older than what was spoken of. That it names its
    predecessor as parent shows that no update between them was lost.
    """
    if len(blocks) < 2:
        return []
    older, newest = sorted(blocks, key=lambda digest: blocks[digest].sequence)[-2:]
    follows = blocks[newest].sequence == blocks[older].sequence + 1
    return [newest] if follows and blocks[newest].parent == older else []


def _check_others(
    chosen: sb.Superblock,
    chosen_digest: bytes,
    blocks: dict[bytes, sb.Superblock],
    valid: list[bytes],
) -> None:
    assert chosen_digest in valid
    assert blocks[chosen_digest] is chosen
    for digest, block in blocks.items():
        if digest == chosen_digest:
            continue
        if block.sequence == chosen.sequence:
            raise VolumeUnusable(
                "SUPERBLOCK_FORK", f"two superblocks of sequence {chosen.sequence}"
            )
        if block.sequence > chosen.sequence + 1:
            raise VolumeUnusable(
                "SUPERBLOCK_PARENT_SKIPPED",
                f"sequence {block.sequence} follows {chosen.sequence}: an update was lost",
            )
        if block.sequence != chosen.sequence - 1:
            continue
        if digest != chosen.parent and digest in valid:
            raise VolumeUnusable(
                "SUPERBLOCK_NOT_CONNECTED",
                f"sequence {chosen.sequence} does not continue {block.sequence}",
            )
        if digest == chosen.parent and not _grown(block, chosen):
            raise VolumeUnusable("SUPERBLOCK_REGRESSED", f"sequence {chosen.sequence} goes back")


def _grown(old: sb.Superblock, new: sb.Superblock) -> bool:
    assert new.sequence == old.sequence + 1
    if new.epoch != old.epoch:
        return new.epoch > old.epoch
    return (
        new.view >= old.view
        and new.log_view >= old.log_view
        and new.commit_max >= old.commit_max
        and new.checkpoint.header.op >= old.checkpoint.header.op
    )


def _repairs(found: list[tuple[sb.Superblock, int, bytes] | None], digest: bytes) -> list[int]:
    """Copies to write again: first what exists nowhere, then what lies elsewhere, then misplaced
    duplicates. A copy that still tells of an older update goes after those that tell nothing.
    """
    home = [
        i for i, item in enumerate(found) if item is not None and item[2] == digest and item[1] == i
    ]
    elsewhere = {
        item[1]
        for i, item in enumerate(found)
        if item is not None and item[2] == digest and item[1] != i
    }
    assert len(home) <= SUPERBLOCK_COPIES
    broken = [i for i in range(SUPERBLOCK_COPIES) if i not in home]
    empty = [i for i in broken if found[i] is None]
    empty += [i for i in broken if (item := found[i]) is not None and item[2] != digest]
    misplaced = [i for i in broken if i not in empty]
    assert len(empty) + len(misplaced) == len(broken)
    return (
        [i for i in empty if i not in elsewhere] + [i for i in empty if i in elsewhere] + misplaced
    )


def _load_slots(
    geometry: Geometry, read_many: ReadMany, block: sb.Superblock, indexes: range
) -> list[Slot]:
    """Witness and prepare of some slots; a body is verified if its op lies above the checkpoint."""
    assert len(indexes) > 0
    witnesses = read_many(
        [(geometry.wal_headers_offset + i * SECTOR_SIZE, SECTOR_SIZE) for i in indexes]
    )
    prepares = read_many(
        [
            (geometry.wal_prepares_offset + i * geometry.message_size_max, SECTOR_SIZE)
            for i in indexes
        ]
    )
    slots = []
    bodies: list[tuple[int, int]] = []
    for index, witness_raw, prepare_raw in zip(indexes, witnesses, prepares, strict=True):
        witness = read_header(
            witness_raw, index=index, cluster=block.cluster, shard=block.shard, geometry=geometry
        )
        if witness_raw is not None and not is_zero(witness_raw[HEADER_SIZE:]):
            witness = (Found.BAD, None)
        prepare = read_header(
            prepare_raw, index=index, cluster=block.cluster, shard=block.shard, geometry=geometry
        )
        slots.append(Slot(*witness, *prepare))
        header = prepare[1]
        if header is None:
            if (
                prepare[0] == Found.NIL
                and prepare_raw is not None
                and not is_zero(prepare_raw[HEADER_SIZE:])
            ):
                slots[-1].prepare = Found.BAD
        elif HEADER_SIZE + header.body_size > geometry.message_size_max:
            slots[-1].prepare, slots[-1].prepare_header = Found.BAD, None
        elif header.op > block.checkpoint.header.op:
            bodies.append((len(slots) - 1, whole_sectors(HEADER_SIZE + header.body_size)))
    read = read_many(
        [
            (geometry.wal_prepares_offset + (indexes[0] + at) * geometry.message_size_max, length)
            for at, length in bodies
        ]
    )
    for (at, _), data in zip(bodies, read, strict=True):
        header = slots[at].prepare_header
        assert header is not None
        if parse_prepare(data, header) is None:
            slots[at].prepare, slots[at].prepare_header = Found.BAD, None
    assert len(slots) == len(indexes)
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplica:
    """Whose data file is made, and of which group.

    A lost disk is replaced with `view` = two above what the group has reached and `log_view` = 0,
    and with the group's present epoch, members and the op that made them; with an `incarnation`
    above all that the group remembers of this replica, as no wall clock can be relied on for that.
    Not `vouched`: nobody could be asked whether this replica ever was; it votes when others said
    that they have never heard of it.
    """

    cluster: bytes
    shard: int
    replica_id: bytes
    members: list[bytes]  # replicas before standbys
    replica_count: int
    segments_max: int
    view: int
    log_view: int | None = None  # None: as `view`
    epoch: int = 0
    members_op: int = 0
    incarnation: int = 0
    vouched: bool = True


def format_writes(geometry: Geometry, new: NewReplica) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of what format writes over a file of zeros; the superblock comes last."""
    assert new.segments_max > 0
    assert new.replica_id in new.members
    assert 0 < new.replica_count <= len(new.members)
    begins_with_group = new.log_view in (None, new.view)
    remade = not begins_with_group or new.members_op > 0
    flags = (0 if new.vouched else FLAG_UNVOUCHED) | (FLAG_REMADE if remade else 0)
    root = env.root(new.cluster, new.shard)
    rings = (
        (geometry.wal_headers_offset, SECTOR_SIZE),
        (geometry.wal_prepares_offset, geometry.message_size_max),
    )
    for start, stride in rings:  # one after the other: headers are neighbours
        for slot in range(geometry.slot_count):
            header = root if slot == 0 else env.reserved(slot, new.cluster, new.shard)
            yield start + slot * stride, header.raw.ljust(SECTOR_SIZE, b"\0")
    block = sb.Superblock(
        shard=new.shard,
        sequence=1,
        cluster=new.cluster,
        replica_id=new.replica_id,
        parent=bytes(32),
        view=new.view,
        log_view=new.view if new.log_view is None else new.log_view,
        epoch=new.epoch,
        incarnation=new.incarnation,
        commit_max=0,
        sync_op_min=0,
        sync_op_max=0,
        sync_log_seq=0,
        replica_count=new.replica_count,
        standby_count=len(new.members) - new.replica_count,
        replica_count_old=0,
        standby_count_old=0,
        members=list(new.members),
        members_old=[],
        segments_max=new.segments_max,
        checkpoint=root_state(new.cluster, new.shard),
        # who replaces a lost disk votes at once, with this list
        view_headers_kind=sb.KIND_SV if begins_with_group else sb.KIND_DVC,
        view_headers=[root],
        members_op=new.members_op,
        flags=flags,
        lives=[(new.incarnation, 0)] if new.incarnation else [],
    )
    for copy in range(SUPERBLOCK_COPIES):
        yield copy * SUPERBLOCK_COPY_STRIDE, sb.encode(block, copy)
