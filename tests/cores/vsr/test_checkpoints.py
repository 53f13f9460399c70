"""Checkpoints: the arithmetic of the ring, ids equal everywhere, a crash at each point."""

from dataclasses import replace

import pytest

from appliance.base.checksum import sha256
from appliance.base.limits import SECTOR_SIZE
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL, Geometry
from tests.cores.vsr.disk import Disk, Write
from tests.cores.vsr.group import TINY, Group, Node, Session
from tests.cores.vsr.story import ended

TIGHT = replace(SMALL, slot_count=4 + 2 * 4 + 1, checkpoint_ops=4)  # K = P, S = K + 2P + 1


# --- arithmetic -----------------------------------------------------------------------------------


def around(*ops: int) -> list[int]:
    return sorted({op + d for op in ops for d in (-2, -1, 0, 1, 2) if op + d >= 0})


def heads(geometry: Geometry, checkpoint: int) -> list[tuple[int, int]]:
    """(commit_max, head) that a replica on `checkpoint` may have by the rules."""
    p, most = geometry.pipeline_max, geometry.prepare_max(checkpoint)
    if geometry is PRODUCTION:
        commits = around(checkpoint, checkpoint + p, checkpoint + geometry.checkpoint_ops, most)
    else:
        commits = list(range(checkpoint, most + 1))
    return [
        (commit, op)
        for commit in commits
        if checkpoint <= commit <= most
        for op in range(commit, min(commit + p, most) + 1)
    ]


GEOMETRIES = {"production": PRODUCTION, "small": SMALL, "tiny": TINY, "tight": TIGHT}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_checkpoint_ring_never_overwrites_needed(name: str) -> None:
    """Whatever is still worth repairing lies in a slot of its own."""
    geometry = GEOMETRIES[name]
    for n in range(5):
        checkpoint = n * geometry.checkpoint_ops
        for commit_max, op in heads(geometry, checkpoint):
            low = geometry.repair_min(checkpoint, commit_max, op)
            assert op - low < geometry.slot_count
            assert low <= checkpoint + 1, "and reaches down to the checkpoint"


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_lagging_replica_finds_the_log_or_a_durable_checkpoint(name: str) -> None:
    """It is on c. Unless c + K is known to be durable, no peer has overwritten what follows c."""
    geometry = GEOMETRIES[name]
    k = geometry.checkpoint_ops
    for n in range(4):
        behind = n * k
        for ahead in (behind, behind + k, behind + 2 * k):
            for commit_max, op in heads(geometry, ahead):
                if geometry.durable(behind + k, commit_max):
                    continue
                assert op - (behind + 1) < geometry.slot_count, "the peer's ring has c + 1 .. op"


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_committed_op_proves_the_checkpoint_that_its_acknowledgers_hold(name: str) -> None:
    """Op m is acknowledged only up to prepare_ok_max: when `durable` says so, a quorum is on c."""
    geometry = GEOMETRIES[name]
    k, p = geometry.checkpoint_ops, geometry.pipeline_max
    for checkpoint in (k, 2 * k, 3 * k):
        before = checkpoint - k
        for m in range(checkpoint, checkpoint + k):
            may_acknowledge_without = m <= geometry.prepare_ok_max(before)
            assert geometry.durable(checkpoint, m) == (not may_acknowledge_without)
        assert geometry.prepare_ok_max(before) == checkpoint + p


def test_the_root_is_durable_and_nothing_lies_below_it() -> None:
    assert SMALL.durable(0, 0) and SMALL.repair_min(0, 0, 0) == 0
    assert SMALL.repair_min(SMALL.checkpoint_ops, SMALL.checkpoint_ops, SMALL.checkpoint_ops) == 1


def test_zones_alternate_so_that_the_last_checkpoint_is_never_touched() -> None:
    for n in range(1, 10):
        op = n * TINY.checkpoint_ops
        assert TINY.checkpoint_zone(op) != TINY.checkpoint_zone(op - TINY.checkpoint_ops)


# --- equal everywhere -----------------------------------------------------------------------------


def tiny(ops: int = 5, *, seed: int = 1) -> tuple[Group, Session]:
    group = Group(geometry=TINY, seed=seed, segments_max=64)
    session = group.opened()
    group.run(20)
    group.fill(session, ops)
    return group, session


def same_segments(group: Group) -> int:
    """Sealed segments, which must be equal byte for byte on all disks; how many there are."""
    log_seq = group.core(0).state_machine.log_seq
    count = log_seq // group.geometry.segment_records
    for number in range(max(0, count - group.segments_max + 1), count):
        at = group.nodes[0].disk.extent_at(number)
        whole = [node.disk.peek(at, group.geometry.extent_size) for node in group.nodes]
        assert len(set(whole)) == 1, f"segment {number} differs"
    return count


@pytest.mark.parametrize("seed", range(3))
def test_checkpoint_ids_equal_after_any_history(seed: int) -> None:
    """Crashes, view changes, replays, batches of all sizes: the group compares every id it sees."""
    group, session = tiny(seed=seed)
    dice = group.prng.fork()
    for _ in range(10):
        group.put(session, 4, 1 + dice.below(TINY.records_max))
        victim = dice.below(3)
        group.crash(victim)
        group.put(session, dice.below(6))
        group.start(victim)
        group.run(dice.below(40))
    ended(group, session)
    assert len(group.checkpoints) > 5
    assert same_segments(group) >= 5


def test_checkpoints_are_taken_at_every_trigger_by_everybody() -> None:
    group, session = tiny(5 * TINY.checkpoint_ops + 1)
    group.until(group.converged)
    k = TINY.checkpoint_ops
    assert sorted(group.checkpoints) == [n * k for n in range(6)]
    for node in group.nodes:
        state = node.disk.superblock().checkpoint
        assert state.header.op == 5 * k
        assert (state.checkpoint_id, state.parent, state.grandparent) == tuple(
            group.checkpoints[op] for op in (5 * k, 4 * k, 3 * k)
        )
        assert [node.core.manifests.get(op) is not None for op in (3 * k, 4 * k, 5 * k)] == [
            False,
            True,
            True,
        ]


def test_an_acknowledgement_beyond_the_next_checkpoint_waits_for_it() -> None:
    group, session = tiny(3)
    group.until(group.converged)
    group.crash(2)
    node = group.nodes[0]
    node.hold = lambda write: write.zone == "checkpoint"
    most = TINY.prepare_ok_max(0)
    group.fill(session, most)
    session.ask()
    group.run(20)
    assert not session.core.ready, "the quorum needs this replica, and it is not on its checkpoint"
    assert (node.core.op, node.core.checkpoint_op) == (most + 1, 0)
    assert max(h.op for h in group.sent(env.PREPARE_OK, source=0)) == most
    node.hold = lambda write: False
    group.settle()
    assert session.core.ready, "what was withheld follows at once"
    ended(group, session)


def test_a_lone_replica_that_starts_again_commits_no_further_than_its_checkpoint_lets_it() -> None:
    """Its whole log is durable, but an op so far ahead would say that the next checkpoint is."""
    group = Group(1, geometry=TINY)
    session, node = group.opened(), group.nodes[0]

    def slow(write: Write) -> bool:
        return write.zone == "checkpoint"

    node.hold = slow
    most = TINY.prepare_ok_max(0)
    group.fill(session, most)
    session.ask()
    group.run(20)
    assert (node.core.op, node.core.commit_max) == (most + 1, most)
    group.crash(0)
    group.start(0)
    node.hold = slow
    group.run(20)
    assert (node.core.op, node.core.commit_max, node.core.checkpoint_op) == (most + 1, most, 0)
    node.hold = lambda write: False
    group.until(lambda: node.core.commit_min == most + 1)
    assert node.core.checkpoint_op == TINY.checkpoint_ops
    ended(group, session)


def test_a_slow_checkpoint_of_one_replica_does_not_stop_the_others() -> None:
    group, session = tiny(3)
    node = group.nodes[0]
    node.hold = lambda write: write.zone in ("checkpoint", "superblock")
    group.fill(session, 4 * TINY.checkpoint_ops)
    assert node.core.checkpoint_op == 0 and node.core.op <= TINY.prepare_max(0)
    node.hold = lambda write: False
    ended(group, session)


# --- crashes --------------------------------------------------------------------------------------


def taking(group: Group, session: Session, node: Node) -> None:
    """The replica is about to take a checkpoint; whatever it writes for it is held."""
    k = group.geometry.checkpoint_ops
    trigger = (max(group.committed) // k + 1) * k
    group.fill(session, trigger - 1)
    group.until(group.converged)
    node.hold = lambda write: write.zone not in ("prepare", "witness")
    group.put(session, 2)
    group.run(3)
    assert node.core.checkpointing is not None


def missing_chunks(disk: Disk) -> list[ck.ChunkLocation]:
    """Chunks of the checkpoint that the superblock names and the disk does not hold."""
    geometry, state = disk.geometry, disk.superblock().checkpoint
    if state.header.op == 0:
        return []
    zone = geometry.checkpoints_offset
    zone += geometry.checkpoint_zone(state.header.op) * geometry.checkpoint_zone_size
    raw = disk.peek(zone, state.manifest_size) or b""
    if ck.checkpoint_id(raw) != state.checkpoint_id:
        return [ck.ChunkLocation(ck.KIND_MANIFEST, 0, 0, state.header.op)]
    manifest = ck.decode(raw, geometry)
    out = []
    for name, table in manifest.tables.items():
        for i, chunk_id in enumerate(table.chunk_ids):
            index = ck.table_chunk_index(geometry, name, i)
            location = ck.ChunkLocation(ck.KIND_TABLE, 0, index, state.header.op)
            at = zone + ck.zone_offset(geometry, location)
            if sha256(disk.peek(at, geometry.table_chunk_size) or b"") != chunk_id:
                out.append(location)
    number, count = divmod(manifest.log_seq, geometry.segment_records)
    leaf_size = geometry.records_max * RECORD_SIZE
    for i, leaf_id in enumerate(manifest.leaf_ids):
        records = min(geometry.records_max, count - i * geometry.records_max)
        data = disk.peek(disk.extent_at(number) + i * leaf_size, records * RECORD_SIZE) or b""
        if seg.leaf_id(data) != leaf_id:
            out.append(ck.ChunkLocation(ck.KIND_LEAF, records, i, number))
    return out


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_crash_at_each_point_of_a_checkpoint_leaves_one_whole_state(order: str) -> None:
    """After n of its writes: the restart stands on the old checkpoint or on the new one."""
    group, session = tiny()
    node, finished, n = group.nodes[0], 0, 0
    while not finished and n < 60:
        taking(group, session, node)
        old = node.core.checkpoint_op
        for _ in range(n):
            held = [w for w in node.disk.waiting if node.hold(w)]
            if held:
                group.finish(node, held[0 if order == "first" else -1])
            while node.disk.reads:
                group.io(node)
        finished = node.core.checkpoint_op > old
        group.crash(0, keep=lambda write: [0])
        assert not missing_chunks(node.disk), "the superblock names only what is durable"
        core = group.start(0)
        assert core.checkpoint_op in (old, old + TINY.checkpoint_ops)
        group.until(group.converged)
        n += 1
    assert 10 < n < 60
    ended(group, session)
    same_segments(group)


@pytest.mark.parametrize("seed", range(3))
def test_power_cuts_of_all_during_checkpoints(seed: int) -> None:
    group, session = tiny(seed=seed)
    dice = group.prng.fork()

    def some(write: Write) -> list[int]:
        return [i for i in range(len(write.data) // SECTOR_SIZE) if dice.chance(1, 2)]

    for _ in range(5):
        taking(group, session, group.nodes[dice.below(3)])
        for node in group.nodes:
            node.hold = lambda write: dice.chance(1, 3)
        group.run(2)
        for index in range(3):
            group.crash(index, keep=some)
            assert not missing_chunks(group.nodes[index].disk)
        for index in range(3):
            group.start(index)
        group.until(group.converged, ticks=1500)
    ended(group, session)
    same_segments(group)


def test_repair_primary_checkpoint_backup_crash_before() -> None:
    """Only the primary took the checkpoint; it dies, and those behind it go on by the log."""
    group, session = tiny(TINY.checkpoint_ops - 1)
    group.until(group.converged)
    for index in (0, 2):
        group.nodes[index].hold = lambda write: write.zone == "checkpoint"
    group.put(session, 3)
    group.run(5)
    assert group.core(1).checkpoint_op == 8
    for index in (0, 1, 2):
        group.crash(index)
    group.start(0)
    group.start(2)
    group.put(session, 3)
    ended(group, session)


def test_repair_backup_fast_forward_one_checkpoint_without_sync() -> None:
    group, session = tiny(5)
    group.crash(0)
    group.fill(session, TINY.checkpoint_ops + TINY.pipeline_max)
    group.start(0)
    group.until(group.converged)
    assert "sync_started" not in group.nodes[0].marks
    assert group.core(0).checkpoint_op == TINY.checkpoint_ops
    ended(group, session)


def test_a_restart_reads_the_checkpoint_and_replays_only_what_follows() -> None:
    group, session = tiny(6 * TINY.checkpoint_ops + 3)
    group.until(group.converged)
    core = group.restart(0)
    assert core.commit_min == 6 * TINY.checkpoint_ops
    group.settle()
    assert core.state_ready and core.state_machine.log_seq >= core.commit_min - 2
    ended(group, session)


def test_a_restart_on_a_checkpoint_that_holds_every_record_lets_them_be_read() -> None:
    """Swarm seeds 271 and 312: nothing but registers follow the checkpoint, so nothing changed."""
    group = Group(geometry=TIGHT)
    session = group.opened()
    group.fill(session, TIGHT.checkpoint_ops)
    while min(node.core.checkpoint_op for node in group.nodes) < TIGHT.checkpoint_ops:
        group.client()
        group.settle()
    records = group.core(1).published
    assert records > 0
    group.restart(1)
    assert group.core(1).published == 0
    group.until(lambda: group.core(1).published == records)
