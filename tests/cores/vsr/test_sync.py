"""State sync: who is too far behind takes a peer's checkpoint; chunks are found by their hashes."""

import pytest

from appliance.cores.vsr import backfill, normal, state_sync
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats.geometry import MANIFEST_SIZE_MAX, RECORD_SIZE
from tests.cores.vsr.chain import message, prepare
from tests.cores.vsr.group import TINY, Group, Session, dropped
from tests.cores.vsr.story import crash_when, drop_segments, ended
from tests.cores.vsr.test_checkpoints import same_segments, tiny

K = TINY.checkpoint_ops


def lagging(
    checkpoints: int, *, batch: int = 3, before: int = 5, seed: int = 1
) -> tuple[Group, Session]:
    """Replica 0 is down while the others take so many checkpoints."""
    group, session = tiny(before, seed=seed)
    group.until(group.converged)
    group.crash(0)
    group.fill(session, (before // K + checkpoints) * K + TINY.pipeline_max + 3, batch)
    return group, session


def marks(group: Group) -> list[str]:
    return group.nodes[0].marks


def test_sync_partition_lag_idle() -> None:
    group, session = lagging(4)
    group.start(0)
    group.until(group.converged)
    assert "sync_started" in marks(group) and "state_restored" in marks(group)
    assert group.core(0).sync_log_seq == 0 or group.core(0).backfill is None
    ended(group, session)
    assert same_segments(group) >= 3


def test_sync_partition_lag_busy() -> None:
    group, session = lagging(4)
    group.start(0)
    for _ in range(60):
        group.put(session, 1, 2)
        group.run(1)
    group.until(group.converged)
    assert "sync_started" in marks(group)
    ended(group, session)
    same_segments(group)


def test_sync_slightly_lagging_prefers_wal() -> None:
    group, session = tiny(3)
    group.until(group.converged)
    group.crash(0)
    group.fill(session, K + TINY.pipeline_max + 2)
    group.start(0)
    group.until(group.converged)
    assert "sync_started" not in marks(group)
    ended(group, session)


def test_a_segment_is_fetched_while_another_is_written_and_so_many_at_most_are_in_memory() -> None:
    group, session = lagging(12, batch=7)
    core = group.start(0)
    slow = {"slow": True}
    group.nodes[0].hold = lambda write: (
        slow["slow"] and write.zone == "segment" and core.backfill is not None
    )
    group.until(lambda: core.backfill is not None)
    for _ in range(60):
        group.run(1)
        assert len(core.backfill.segments) <= backfill.SEGMENTS_AT_ONCE
    assert [segment.here for segment in core.backfill.segments] == (
        [True] * backfill.SEGMENTS_AT_ONCE
    )
    assert all(segment.writes > 0 for segment in core.backfill.segments)
    slow["slow"] = False
    group.until(group.converged)
    ended(group, session)
    assert same_segments(group) > backfill.SEGMENTS_AT_ONCE


def test_missing_segments_are_refilled_and_the_range_is_cleared_at_the_next_checkpoint() -> None:
    group, session = lagging(8, batch=7)
    core = group.start(0)
    group.until(lambda: core.sync_log_seq > 0)
    assert 0 < core.sync_op_min < core.sync_op_max
    group.until(group.converged)
    assert "backfill_done" in marks(group) and "segment_backfilled" in marks(group)
    same_segments(group)
    group.fill(session, (max(group.committed) // K + 1) * K + 1)
    group.until(group.converged)
    block = group.nodes[0].disk.superblock()
    assert (block.sync_op_min, block.sync_op_max, block.sync_log_seq) == (0, 0, 0)
    ended(group, session)


def test_segments_that_the_group_drops_meanwhile_are_not_refilled() -> None:
    """Peers need not have them any more, and their extents are those of new segments."""
    group, session = lagging(8, batch=7)
    core, disk = group.start(0), group.nodes[0].disk
    rule = group.drop(lambda s, t, h: h.command == env.CHUNK and core.backfill is not None)
    group.until(lambda: core.backfill is not None)
    low, oldest, newest = core.backfill.low, core.backfill.number - 1, core.backfill.number
    assert low < oldest
    drop_segments(group, oldest)
    group.until(lambda: core.state_machine.oldest_segment == oldest)
    assert (core.backfill.low, core.backfill.number) == (oldest, newest)
    assert all(s.number >= oldest for s in core.backfill.segments)
    kept = {chunk.location for s in core.backfill.segments for chunk in (s.footer, *s.leaves)}
    assert set(core.backfill.chunks) == kept
    group.heal(rule)
    group.until(group.converged)
    assert core.backfill is None and "backfill_done" in marks(group)
    for number in range(low, newest + 1):
        written = disk.peek(disk.extent_at(number), TINY.extent_size)
        whole = group.nodes[1].disk.peek(disk.extent_at(number), TINY.extent_size)
        assert (written == whole) == (number >= oldest), f"segment {number}"


def test_a_refill_of_nothing_but_dropped_segments_ends() -> None:
    group, session = lagging(8, batch=7)
    core = group.start(0)
    group.drop(lambda s, t, h: h.command == env.CHUNK and core.backfill is not None)
    group.until(lambda: core.backfill is not None)
    drop_segments(group, core.backfill.number + 1)
    group.until(lambda: core.backfill is None)
    group.until(group.converged)


STAGES = {
    "installed in memory": lambda core: core.installing,
    "installed durably": lambda core: core.sync_op_max > 0 and not core.installing,
    "manifest here": lambda core: (
        core.fetch is not None and core.sync_op_max and core.fetch.manifest
    ),
    "one table here": lambda core: (
        core.fetch is not None
        and core.fetch.manifest
        and any(
            c.data is not None and c.location.kind == ck.KIND_TABLE
            for c in core.fetch.chunks.values()
        )
    ),
    "all chunks here": lambda core: (
        core.fetch is not None
        and core.fetch.manifest
        and all(c.data is not None for c in core.fetch.chunks.values())
    ),
    "restored": lambda core: core.sync_op_max and core.state_ready,
    "a footer here": lambda core: (
        core.backfill is not None and any(segment.leaves for segment in core.backfill.segments)
    ),
    "a segment being written": lambda core: (
        core.backfill is not None and any(segment.writes > 0 for segment in core.backfill.segments)
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_sync_crash_at_each_stage(stage: str) -> None:
    group, session = lagging(6, batch=6)
    core = group.start(0)
    crash_when(group, 0, lambda: STAGES[stage](core))
    group.start(0)
    group.until(group.converged)
    ended(group, session)
    same_segments(group)


def test_sync_crash_twice_and_with_torn_writes() -> None:
    group, session = lagging(6, batch=6)
    for stage in (
        "installed durably",
        "all chunks here",
        "a segment being written",
        "a footer here",
    ):
        core = group.start(0)
        try:
            crash_when(group, 0, lambda stage=stage, core=core: STAGES[stage](core), ticks=60)
        except AssertionError:
            group.crash(0, keep=lambda write: [0])
    group.start(0)
    group.until(group.converged)
    ended(group, session)
    same_segments(group)


def test_sync_newer_target_ratchets() -> None:
    """Its target's chunks are gone everywhere before they arrive; a newer one is taken."""
    group, session = lagging(3)
    rule = group.drop(lambda s, t, h: h.command == env.CHUNK)
    core = group.start(0)
    group.until(lambda: core.sync_op_max > 0 and not core.installing)
    first = core.sync_op_max
    group.fill(session, first + 4 * K)
    group.heal(rule)
    group.until(group.converged, ticks=3000)
    assert core.checkpoint_op > first + K
    ended(group, session)
    same_segments(group)


def test_sync_withholds_prepare_ok() -> None:
    """It does not vouch for what it lacks: nothing above c + P until c is proven durable."""
    group, session = lagging(3)
    group.drop(lambda s, t, h: h.command == env.CHUNK)
    core = group.start(0)
    group.until(lambda: core.sync_op_max > 0 and not core.installing)
    core.commit_max = core.checkpoint_op  # as if nothing above were known
    assert normal.acknowledge_max(core) == core.checkpoint_op + TINY.pipeline_max
    core.commit_max = core.checkpoint_op + TINY.pipeline_max + 1
    assert normal.acknowledge_max(core) == TINY.prepare_ok_max(core.checkpoint_op)


def installing() -> tuple[Group, Session]:
    """Replica 0 has taken a peer's checkpoint in memory; its superblocks wait for the disk."""
    group, session = lagging(4)
    core = group.start(0)
    group.settle()
    group.nodes[0].hold = lambda write: write.zone == "superblock"
    group.until(lambda: core.installing)
    return group, session


def test_nothing_is_acknowledged_while_the_new_checkpoint_is_in_memory_only() -> None:
    group, session = installing()
    mark = len(group.trace)
    group.put(session, 2)
    group.run(10)
    assert group.core(0).installing
    assert not group.sent(env.PREPARE_OK, source=0, since=mark)
    group.nodes[0].hold = lambda write: False
    ended(group, session)


def test_no_chunk_is_taken_while_the_new_checkpoint_is_in_memory_only() -> None:
    """Swarm seed 576: a superblock under way named the checkpoint before, in the same zone, and the
    new manifest was written over that one's.
    """
    group, session = installing()
    core, mark = group.core(0), len(group.trace)
    group.run(20)
    assert not group.sent(env.REQUEST_CHUNK, source=0, since=mark)
    manifest = next(iter(core.fetch.chunks.values()))
    raw = group.core(1).manifests[core.checkpoint_op]
    body = manifest.id + ck.encode_location(manifest.location) + raw
    group.tell(0, message(env.CHUNK, sender=1, body=body))
    assert core.counters["dropped_chunk_not_wanted"] == 1
    assert all(write.zone == "superblock" for write in group.nodes[0].disk.waiting)
    group.nodes[0].hold = lambda write: False
    group.until(group.converged)
    ended(group, session)


def test_a_fetched_checkpoint_is_installed_with_the_log_that_follows_it() -> None:
    """In one write: a vote of the view that it enters names all that this view began with."""
    group, _ = lagging(4)
    group.drop(lambda s, t, header: header.command == env.CHUNK)
    core = group.start(0)
    group.until(lambda: core.sync_op_max > 0 and not core.installing)
    block = group.nodes[0].disk.superblock()
    assert block.log_view == group.core(1).view
    assert block.checkpoint.header.op < group.core(1).op == block.view_headers[0].op


def test_what_was_never_checked_below_a_fetched_checkpoint_is_dropped() -> None:
    """It may belong to a log that was cut; who asked for it would be given it as committed."""
    group, session = lagging(4)
    core = group.start(0)
    group.settle()
    target = group.core(1).checkpoint_op
    cut = prepare(target - 2, view=0)
    applied = core.commit_min
    assert applied < cut.header.op < target <= cut.header.op + K
    core.journal.forget_header(core.journal.slot(cut.header.op))
    core.journal.install(cut.header)
    state = group.core(1).checkpoint
    state_sync._replace_log(core, state, [state.header], applied)
    assert core.op == target and core.journal.at(cut.header.op) is None


def test_sync_view_change_with_lagging() -> None:
    """The primary dies while a backup syncs: the other two need each other, and manage."""
    group, session = lagging(4)
    rule = group.drop(lambda s, t, h: h.command == env.CHUNK)
    core = group.start(0)
    group.until(lambda: core.sync_op_max > 0 and not core.installing)
    group.crash(group.primary)
    group.run(50)
    group.heal(rule)
    ended(group, session)


def test_a_replica_behind_does_not_lead_while_others_can() -> None:
    """vc_forfeit_lagging_primary"""
    group, session = lagging(4)
    assert group.primary == 1
    group.isolate(0)
    group.start(0)
    group.run(30)
    view = group.core(1).view
    while view % 3 != 2:
        view += 1
    group.heal()
    group.crash(1)  # the next primary in line is 2, then 0
    ended(group, session)


# --- chunks ---------------------------------------------------------------------------------------


def zone_of(group: Group, op: int) -> int:
    geometry = group.geometry
    return (
        geometry.checkpoints_offset + geometry.checkpoint_zone(op) * geometry.checkpoint_zone_size
    )


def damage(group: Group, index: int, what: str) -> None:
    """Break one chunk of the newest checkpoint on the disk of one replica."""
    disk = group.nodes[index].disk
    state = disk.superblock().checkpoint
    number = state.log_seq // TINY.segment_records
    zone = zone_of(group, state.header.op)
    tables = {name: zone + TINY.table_offset(name) + 8 for name in ("rooms", "windows", "sessions")}
    at = {"manifest": zone + 100, "leaf": disk.extent_at(number) + RECORD_SIZE // 2, **tables}[what]
    disk.flip(at)


def stopped(ops: int = 3 * K + 2, batch: int = 3) -> tuple[Group, Session]:
    group, session = tiny(4)
    group.fill(session, ops, batch)
    group.until(group.converged)
    for index in range(3):
        group.crash(index)
    return group, session


@pytest.mark.parametrize("what", ["manifest", "rooms", "windows", "sessions", "leaf"])
def test_a_broken_chunk_is_fetched_from_a_peer(what: str) -> None:
    group, session = stopped()
    damage(group, 0, what)
    for index in range(3):
        group.start(index)
    group.until(group.converged)
    assert "chunk_missing_locally" in marks(group)
    ended(group, session)
    group.until(group.converged)
    group.restart(0)
    group.until(group.converged)


def test_repair_chunk_disjoint_corruption_all_replicas() -> None:
    """No replica is whole, every chunk is whole somewhere."""
    group, session = stopped()
    damage(group, 0, "rooms")
    damage(group, 0, "leaf")
    damage(group, 1, "windows")
    damage(group, 2, "sessions")
    for index in range(3):
        group.start(index)
    group.until(group.converged, ticks=1500)
    ended(group, session)


def test_disjoint_corruption_of_manifests() -> None:
    group, session = stopped()
    for index in (0, 1):
        damage(group, index, "manifest")
    damage(group, 2, "windows")
    for index in range(3):
        group.start(index)
    group.until(group.converged, ticks=1500)
    ended(group, session)


def test_a_chunk_that_is_broken_everywhere_stalls_and_never_lies() -> None:
    group, session = stopped()
    for index in range(3):
        damage(group, index, "windows")
        group.start(index)
    group.run(300)
    assert all(not node.core.state_ready and node.halted is None for node in group.nodes)
    assert all(group.core(i).status != Status.HALTED for i in range(3))


def test_a_lone_replica_with_a_broken_chunk_halts() -> None:
    group = Group(1, geometry=TINY)
    session = group.opened()
    group.fill(session, 2 * K + 2)
    group.until(group.converged)
    group.crash(0)
    damage(group, 0, "windows")
    group.start(0)
    group.settle()
    assert group.nodes[0].halted is not None and group.nodes[0].halted[0] == "CHECKPOINT_CORRUPT"


def asked_chunk(
    group: Group, target: int, entries: list[tuple[bytes, ck.ChunkLocation]]
) -> list[bytes]:
    """Bodies of the chunks that a replica sends when it is asked for these."""
    body = b"".join(chunk_id + ck.encode_location(location) for chunk_id, location in entries)
    group.tell(target, message(env.REQUEST_CHUNK, sender=(target + 1) % 3, body=body))
    while group.nodes[target].disk.reads:
        group.io(group.nodes[target])
    return [
        bytes(m.body) for s, _, m in group.wire if s == target and m.header.command == env.CHUNK
    ]


def test_a_chunk_is_served_under_its_own_id_only() -> None:
    group, session = tiny(3 * K + 2)
    group.until(group.converged)
    core = group.core(0)
    op = core.checkpoint_op
    manifest = ck.decode(core.manifests[op], TINY)
    windows = ck.ChunkLocation(ck.KIND_TABLE, 0, ck.table_chunk_index(TINY, "windows", 0), op)
    wanted = manifest.tables["windows"].chunk_ids[0]
    (served,) = asked_chunk(group, 0, [(wanted, windows)])
    assert served[:32] == wanted and ck.checkpoint_id(served[48:]) == wanted
    group.wire.clear()
    assert not asked_chunk(group, 0, [(b"x" * 32, windows)])
    assert not asked_chunk(group, 0, [(wanted, windows._replace(number=op + 5 * K))])
    group.nodes[0].disk.flip(
        zone_of(group, op) + MANIFEST_SIZE_MAX + windows.index * TINY.table_chunk_size
    )
    assert not asked_chunk(group, 0, [(wanted, windows)]), "what rotted is not served"


@pytest.mark.parametrize("back", [1, 3])
def test_a_whole_chunk_of_another_checkpoint_is_served_if_it_lies_in_its_zone(back: int) -> None:
    """Swarm seed 700041: two groups of replicas, on two checkpoints, refused each other the chunk
    that was broken here and whole there."""
    group, session = tiny(4 * K + 2)
    group.until(group.converged)
    op = group.core(0).checkpoint_op - back * K
    location = ck.ChunkLocation(ck.KIND_TABLE, 0, ck.table_chunk_index(TINY, "windows", 0), op)
    before = zone_of(group, group.core(0).checkpoint_op - K)
    assert zone_of(group, op) == before, "the zone that the newest checkpoint does not have"
    start = before + MANIFEST_SIZE_MAX + location.index * TINY.table_chunk_size
    data = group.nodes[0].disk.peek(start, TINY.table_chunk_size)
    (served,) = asked_chunk(group, 0, [(ck.checkpoint_id(data), location)])
    assert served[48:] == data


def test_who_was_started_anew_serves_the_manifest_before_its_own_from_its_disk() -> None:
    """Swarm seed 584: one of four that fetched a checkpoint could not vote, and the others, started
    anew on the next one, no longer had its manifest in memory.
    """
    group, session = tiny(3 * K + 2)
    group.until(group.converged)
    op = group.core(0).checkpoint_op - K
    raw = group.core(0).manifests[op]
    wanted = (ck.checkpoint_id(raw), ck.ChunkLocation(ck.KIND_MANIFEST, 0, 0, op))
    group.restart(0)
    group.until(group.converged)
    assert op not in group.core(0).manifests
    (served,) = asked_chunk(group, 0, [wanted])
    assert served[48:] == raw
    group.wire.clear()
    group.nodes[0].disk.flip(zone_of(group, op) + len(raw) - 1)
    assert not asked_chunk(group, 0, [wanted]), "what rotted is not served"


@pytest.mark.parametrize("body", [b"", bytes(47), bytes(48), bytes(48 * 33)])
def test_a_request_for_chunks_that_breaks_a_rule_is_dropped(body: bytes) -> None:
    group, session = tiny()
    group.tell(0, message(env.REQUEST_CHUNK, sender=1, body=body))
    assert dropped(group.core(0), "request_chunk_invalid") == 1


def test_a_chunk_nobody_wants_or_that_does_not_match_is_dropped() -> None:
    group, session = lagging(4)
    rule = group.drop(lambda s, t, h: h.command == env.CHUNK)
    core = group.start(0)
    group.until(lambda: core.fetch is not None and not core.installing and core.sync_op_max > 0)
    location = next(iter(core.fetch.chunks))
    chunk = core.fetch.chunks[location]
    wrong = chunk.id + ck.encode_location(location) + b"not what was asked for"
    group.tell(0, message(env.CHUNK, sender=1, body=wrong))
    assert core.counters["dropped_chunk_does_not_match"] == 1 and chunk.data is None
    stray = b"y" * 32 + ck.encode_location(location) + b"z"
    group.tell(0, message(env.CHUNK, sender=1, body=stray))
    assert core.counters["dropped_chunk_not_wanted"] == 1
    group.heal(rule)
    ended(group, session)


# --- a disk that is lost --------------------------------------------------------------------------


def test_recovery_reformat_needs_sync() -> None:
    """A lost disk: P operations are committed, then an empty one joins two views ahead."""
    group, session = tiny(4 * K)
    group.until(group.converged)
    group.crash(0)
    group.put(session, TINY.pipeline_max)
    view = group.core(1).view
    group.format(0, view=view + 2, log_view=0)
    group.start(0)
    group.until(group.converged, ticks=2000)
    ended(group, session)
    same_segments(group)
