"""InstallSnapshot, both sides."""

from collections.abc import Callable

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_SNAPSHOT_SIZE_MAX
from appliance.cores.raft.effects import CutLog, Restore, SaveSnapshot, Snapshot
from appliance.cores.raft.member import LEADER, Member
from appliance.cores.raft.progress import Progress, Transfer
from appliance.formats.raft_legacy.frame import (
    INSTALL_SNAPSHOT,
    SNAPSHOT_SYNC,
    Entry,
    Request,
    Response,
)
from appliance.formats.raft_legacy.snapshot_block import (
    SnapshotBlock,
    decode_snapshot_block,
    encode_snapshot_block,
)

# --- the leader's side ----------------------------------------------------------------------------


def send_block(m: Member, peer: Progress) -> None:
    """The next block of the snapshot, or the first one of the newest."""
    if peer.transfer is None:
        assert m.log.snapshot is not None
        peer.transfer = Transfer(m.log.snapshot)
    snapshot, offset = peer.transfer.snapshot, peer.transfer.offset
    data = snapshot.data[offset : offset + m.settings.snapshot_block_size]
    done = offset + len(data) == len(snapshot.data)
    block = SnapshotBlock(snapshot.index, snapshot.term, snapshot.configuration, offset, data, done)
    entry = Entry(m.term, SNAPSHOT_SYNC, encode_snapshot_block(block))
    m.send(
        peer,
        Request(
            INSTALL_SNAPSHOT,
            m.id,
            peer.id,
            m.term,
            snapshot.term,
            snapshot.index,
            m.commit,
            (entry,),
        ),
    )


def on_install_response(
    m: Member,
    peer: Progress,
    request: Request,
    response: Response,
    feed: Callable[[Member, Progress], None],
) -> int:
    """Go on behind what the peer confirmed. The index of the snapshot once it has all, else 0."""
    if m.role != LEADER or request.term != m.term or response.term != m.term:
        return 0
    transfer = peer.transfer
    if transfer is None or transfer.snapshot.index != request.previous_index:
        return 0
    if not response.accepted:
        peer.transfer = None  # JRaft says so where it holds more already: ask what it holds
        peer.next = max(peer.next, request.previous_index + 1)
        feed(m, peer)
        return 0
    if response.next_index < len(transfer.snapshot.data):
        transfer.offset = response.next_index
        feed(m, peer)
        return 0
    peer.transfer = None
    return transfer.snapshot.index


# --- the receiver's side --------------------------------------------------------------------------


def on_install(m: Member, token: int, request: Request) -> None:
    """Collect blocks; the last one makes the snapshot ours, durably, before it is confirmed."""
    try:
        (entry,) = request.entries
        if entry.type != SNAPSHOT_SYNC:
            raise FarmFrameError("block_malformed", f"a value of type {entry.type}")
        block = decode_snapshot_block(entry.value)
    except (ValueError, FarmFrameError):
        m.mark("block_malformed")
        m.answer(token, request, accepted=False, next_index=0)
        return
    end = block.offset + len(block.block)
    if block.index <= m.commit:  # a no would make a JRaft leader repeat it without pause
        m.receiving = None
        m.answer(token, request, accepted=True, next_index=end)
        return
    held = _collect(m, block)
    if held is None:
        assert m.receiving is not None
        m.answer(token, request, accepted=True, next_index=len(m.receiving[1]))
        return
    if block.done and not _install(m, block, bytes(held)):
        m.mark("snapshot_damaged")
        m.answer(token, request, accepted=False, next_index=0)
        return
    m.answer(token, request, accepted=True, next_index=end)


def _collect(m: Member, block: SnapshotBlock) -> bytearray | None:
    """All of the snapshot so far; None: this block does not continue it."""
    key = (block.index, block.term)
    if m.receiving is None or m.receiving[0] != key or block.offset == 0:
        m.receiving = (key, bytearray())
    held = m.receiving[1]
    if block.offset != len(held):
        return None
    assert block.offset + len(block.block) <= FARM_SNAPSHOT_SIZE_MAX  # checked when decoded
    held += block.block
    return held


def _install(m: Member, block: SnapshotBlock, data: bytes) -> bool:
    m.receiving = None
    if not data or not m.snapshot_fits(data):
        return False
    snapshot = Snapshot(block.index, block.term, block.configuration, data)
    last = m.log.last
    m.log.replace(snapshot)
    if m.log.last < last:
        m.beat.writes.append(CutLog(snapshot.index + 1))
    m.commit = snapshot.index
    m.beat.writes.append(SaveSnapshot(snapshot, m.log.before, m.log.before_term))
    m.save()
    m.word(Restore(snapshot))
    m.refresh_peers()
    return True
