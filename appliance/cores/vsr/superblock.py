"""Bringing the superblock up to the present state, and keeping its copies whole.

One update at a time, its copies one after the other: three are written and read back, then it
counts, then the fourth follows. Updates that are wanted meanwhile merge into the next one
(`Member.persist`).
"""

from dataclasses import replace

from appliance.base.limits import SUPERBLOCK_COPIES, SUPERBLOCK_COPIES_TO_CONFIRM
from appliance.cores.vsr import lives
from appliance.cores.vsr.member import Member
from appliance.formats import superblock as sb
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.superblock import Superblock

ATTEMPTS_MAX = 3  # rewrites of copies that read back wrong, before giving up


def present(member: Member) -> Superblock:
    """The superblock that the present state calls for, but for sequence and parent."""
    assert member.superblock is not None
    assert member.checkpoint is not None
    state = member.checkpoint_next or member.checkpoint
    assert member.log_view <= member.view
    assert member.view_headers
    old = member.members_old
    return replace(
        member.superblock,
        view=member.view,
        log_view=member.log_view,
        incarnation=member.incarnation,
        epoch=member.epoch,
        members=member.members,
        replica_count=member.replica_count,
        standby_count=member.standby_count,
        members_op=member.configuration.op,
        members_old=list(old.members) if old else [],
        replica_count_old=old.replica_count if old else 0,
        standby_count_old=old.standby_count if old else 0,
        commit_max=max(member.commit_max, state.header.op),
        checkpoint=state,
        sync_op_min=member.sync_op_min,
        sync_op_max=member.sync_op_max,
        sync_log_seq=member.sync_log_seq,
        view_headers_kind=member.view_headers_kind,
        view_headers=list(member.view_headers),
        flags=member.origin.flags,
        file=member.origin.file,
        told=lives.rows(member),
        lives=list(member.lives),
        life_gone=lives.gone(member).incarnation,
    )


def recall(member: Member, block: Superblock) -> None:
    """At open: the one that counts."""
    assert member.superblock is None
    member.superblock = block


# --- an update ------------------------------------------------------------------------------------


def advance(member: Member) -> None:
    """Start the next update, if one is wanted and none is under way."""
    if (
        member.superblock_writing is not None
        or not member.superblock_wanted
        or member.superblock_repairs
    ):
        return
    before = member.superblock
    assert before is not None
    member.superblock_wanted = False
    block = replace(present(member), sequence=before.sequence + 1, parent=sb.digest(before))
    assert (block.epoch, block.view) >= (before.epoch, before.view)
    assert block.log_view <= block.view
    assert block.checkpoint.header.op >= before.checkpoint.header.op
    member.superblock_writing = block
    write_copy(member, block, 0, 0)


def write_copy(member: Member, block: Superblock, copy: int, attempts: int) -> None:
    """Write one copy of an update; never two at once."""
    assert 0 <= copy < SUPERBLOCK_COPIES
    assert 0 <= attempts <= ATTEMPTS_MAX + 1
    member.write(
        copy * SUPERBLOCK_COPY_STRIDE,
        [sb.encode(block, copy)],
        on_copy_written,
        block,
        copy,
        attempts,
    )


def on_copy_written(member: Member, block: Superblock, copy: int, attempts: int) -> None:
    """One copy is durable: write the next; once three are, read them back."""
    assert member.superblock_writing is block
    if copy + 1 < SUPERBLOCK_COPIES_TO_CONFIRM:
        write_copy(member, block, copy + 1, attempts)
        return
    if member.superblock is block:
        member.superblock_writing = None  # the last copy of an update that is confirmed
        return
    found: dict[int, bytes | None] = {}
    for other in range(copy + 1):
        member.read(
            other * SUPERBLOCK_COPY_STRIDE,
            SUPERBLOCK_COPY_SIZE,
            _on_copy_read,
            block,
            other,
            copy + 1,
            attempts,
            found,
        )


def _on_copy_read(
    member: Member,
    data: bytes | None,
    block: Superblock,
    copy: int,
    written: int,
    attempts: int,
    found: dict[int, bytes | None],
) -> None:
    """Confirm the update once all that were written are read and three are seen to hold it; else
    write the fourth, or begin anew.
    """
    assert copy not in found
    assert copy < written <= SUPERBLOCK_COPIES
    found[copy] = data
    if len(found) < written:
        return
    good = sum(raw == sb.encode(block, i) for i, raw in found.items())
    assert member.superblock is not block
    last = SUPERBLOCK_COPIES - 1
    if good >= SUPERBLOCK_COPIES_TO_CONFIRM:
        member.superblock = block
        if written <= last:
            write_copy(member, block, last, attempts)
        else:
            member.superblock_writing = None
    elif written <= last:
        write_copy(member, block, last, attempts)
    elif attempts >= ATTEMPTS_MAX:
        member.halt(
            "SUPERBLOCK_UNWRITABLE",
            f"{good} of {SUPERBLOCK_COPIES} copies can be read back, "
            f"{SUPERBLOCK_COPIES_TO_CONFIRM} are needed",
        )
    else:
        member.mark("superblock_retried")
        write_copy(member, block, 0, attempts + 1)


# --- broken copies --------------------------------------------------------------------------------


def repair(member: Member) -> None:
    """Write the next copy that opening found broken, one after the other; updates wait until all
    are whole.
    """
    if member.superblock_repairs and member.superblock is not None:
        member.mark("superblock_copy_repaired")
        copy = member.superblock_repairs[0]
        member.write(
            copy * SUPERBLOCK_COPY_STRIDE, [sb.encode(member.superblock, copy)], _on_copy_repaired
        )


def _on_copy_repaired(member: Member) -> None:
    assert member.superblock_writing is None
    assert member.superblock_repairs
    del member.superblock_repairs[0]
    repair(member)
