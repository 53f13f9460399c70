"""The scrub finds what rotted while nobody looked; it is mended, the bytes equal afterwards."""

import pytest

from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.cores.vsr import chunks, scrub
from appliance.cores.vsr.member import SCRUB_TICKS
from appliance.formats import envelope as env
from appliance.formats import local
from appliance.formats.geometry import (
    HEADER_SIZE,
    MANIFEST_SIZE_MAX,
    RECORD_SIZE,
    SUPERBLOCK_COPY_STRIDE,
)
from appliance.formats.segment import segment_id
from tests.cores.vsr.group import TINY, Group
from tests.cores.vsr.story import drop_segments, ended
from tests.cores.vsr.test_checkpoints import tiny
from tests.cores.vsr.test_sync import zone_of

K = TINY.checkpoint_ops


def idle_group() -> Group:
    """Everything that a disk can hold is there: sealed segments, replies, two checkpoints."""
    group, session = tiny(5 * K, seed=2)
    group.fill(session, 8 * K, 5)  # right on a checkpoint: what it names is all there is
    group.until(group.converged)
    group.run(20)
    return group


def until_found(group: Group, mark: str, index: int = 0) -> None:
    """Let the scrub go round: it is told to hurry, so that a round takes seconds."""
    core, marks = group.core(index), group.nodes[index].marks
    marks.clear()
    for _ in range(4000):
        core.timeouts["scrub"].start(1)
        group.run(1)
        if mark in marks:
            return
    raise AssertionError(f"{mark} never happened:\n" + group.report())


def test_a_replica_that_is_told_to_reads_all_at_once_and_then_at_leisure_again() -> None:
    group = idle_group()
    core = group.core(0)
    rounds = core.tour.rounds
    scrub.hurry(core, local.STEP_DOWN)
    assert core.tour.hurried == 0 and core.status_report().scrub == (rounds, 0)
    group.run(SCRUB_TICKS)
    began = core.tick
    scrub.hurry(core, memoryview(local.SCRUB))
    while core.tour.rounds < rounds + 2:
        group.run(1)
        assert core.tick - began < 4000
    assert core.status_report().scrub == (rounds + 2, rounds + 2)
    hurried = core.tick - began
    began = core.tick
    while core.tour.rounds < rounds + 3:
        group.run(1)
    assert core.tick - began > 2 * hurried, "one round now takes more than two in a hurry"


def places(group: Group) -> dict[str, tuple[int, int, str]]:
    """What rots -> (start, size of what must be equal afterwards, mark of finding it)."""
    core, disk = group.core(0), group.nodes[0].disk
    op, checkpoint = core.op, core.checkpoint_op
    sealed = core.state_machine.log_seq // TINY.segment_records - 1
    zone = zone_of(group, checkpoint)
    header = core.journal.at(op)
    entry = next(e for e in core.sessions.entries.values() if e.reply is not None)
    behind = disk.extent_at(sealed) + TINY.segment_data_size + SECTOR_SIZE // 2  # in its sector
    size = -(-(HEADER_SIZE + header.body_size) // SECTOR_SIZE) * SECTOR_SIZE
    return {
        "superblock": (
            (SUPERBLOCK_COPIES - 1) * SUPERBLOCK_COPY_STRIDE,
            8192,
            "scrub_found_superblock",
        ),
        "witness": (disk.witness_at(op), SECTOR_SIZE, "scrub_found_witness"),
        "prepare": (disk.prepare_at(op), size, "scrub_found_prepare"),
        "reply": (
            TINY.replies_offset + entry.row * TINY.reply_size_max,
            SECTOR_SIZE,
            "scrub_found_reply",
        ),
        "manifest": (zone, SECTOR_SIZE, "scrub_found_chunk"),
        "windows": (
            zone + TINY.table_offset("windows"),
            TINY.table_chunk_size,
            "scrub_found_chunk",
        ),
        "sessions": (
            zone + TINY.table_offset("sessions"),
            TINY.table_chunk_size,
            "scrub_found_chunk",
        ),
        "leaf": (disk.extent_at(sealed), 7 * RECORD_SIZE, "scrub_found_segment"),
        "footer": (disk.extent_at(sealed) + TINY.segment_data_size, 2048, "scrub_found_segment"),
        "behind a footer": (behind, SECTOR_SIZE // 2, "scrub_found_segment"),
        "open segment": (disk.extent_at(sealed + 1), SECTOR_SIZE, "scrub_found_open_segment"),
        "old segment": (disk.extent_at(1) + RECORD_SIZE, 7 * RECORD_SIZE, "scrub_found_segment"),
    }


KINDS = (
    "superblock",
    "witness",
    "prepare",
    "reply",
    "manifest",
    "windows",
    "sessions",
    "leaf",
    "footer",
    "behind a footer",
    "open segment",
    "old segment",
)


@pytest.mark.parametrize("kind", KINDS)
def test_scrub_finds_and_heals_cold_corruption(kind: str) -> None:
    group = idle_group()
    at, size, mark = places(group)[kind]
    disk = group.nodes[0].disk
    whole = disk.peek(at, size)
    disk.flip(at + 70)
    assert disk.peek(at, size) != whole
    until_found(group, mark)
    group.run(100)
    group.until(group.converged)
    if kind == "superblock":
        assert disk.superblock().view == group.core(0).view
    else:
        assert disk.peek(at, size) == whole
    assert group.core(1).view == group.core(0).view == 1, "nobody had to leave the view"
    ended(group, group.sessions[0])


def test_places_cover_the_tables_in_a_checkpoint_zone() -> None:
    assert TINY.table_offset("rooms") == MANIFEST_SIZE_MAX
    assert TINY.table_offset("windows") < TINY.table_offset("sessions")


def test_a_round_over_a_healthy_disk_changes_nothing() -> None:
    group = idle_group()
    group.run(50)
    core, node = group.core(0), group.nodes[0]
    before = bytes(node.disk.data)
    rounds = core.tour.rounds
    node.marks.clear()
    for _ in range(3000):
        core.timeouts["scrub"].start(1)
        group.run(1)
        if core.tour.rounds >= rounds + 2:
            break
    assert core.tour.rounds >= rounds + 2
    assert not [m for m in node.marks if m.startswith("scrub")] and bytes(node.disk.data) == before


def test_scrub_under_load_finds_nothing_where_nothing_is_wrong() -> None:
    group = idle_group()
    session = group.sessions[0]
    for _ in range(150):
        for node in group.nodes:
            node.core.timeouts["scrub"].start(1)
        group.put(session, 1, 3)
        group.run(2)
    assert not [m for node in group.nodes for m in node.marks if m.startswith("scrub")]
    ended(group, session)


@pytest.mark.parametrize("kind", ["manifest", "sessions"])
def test_the_next_checkpoint_over_a_zone_waits_for_what_is_being_mended_there(kind: str) -> None:
    """Swarm seeds 161 and 238: both were in flight, and which of them lay there in the end was the
    disk's choice.
    """
    group = idle_group()
    node, session = group.nodes[0], group.sessions[0]
    zone = zone_of(group, node.core.checkpoint_op - K)
    at = zone if kind == "manifest" else zone + TINY.table_offset(kind)
    node.disk.flip(at + 70)
    node.hold = lambda write: write.address == at
    until_found(group, "scrub_found_chunk")
    group.until(lambda: [write.address for write in node.disk.waiting] == [at])
    group.fill(session, 9 * K)
    group.until(lambda: node.core.checkpointing is not None)
    assert "write_waits_for_another" in node.marks
    node.hold = lambda write: False
    group.until(group.converged)
    assert node.core.checkpoint_op == 9 * K and zone_of(group, 9 * K) == zone
    end = zone + TINY.checkpoint_zone_size
    assert node.disk.data[zone:end] == group.nodes[1].disk.data[zone:end]
    ended(group, session)


@pytest.mark.parametrize("kind", ["manifest", "sessions"])
def test_what_a_zone_held_before_is_not_mended_any_more(kind: str) -> None:
    """A chunk of the checkpoint before comes when the zone is the next one's."""
    group = idle_group()
    node, session = group.nodes[0], group.sessions[0]
    zone = zone_of(group, node.core.checkpoint_op - K)
    at = zone if kind == "manifest" else zone + TINY.table_offset(kind)
    rule = group.drop(lambda s, t, h: h.command == env.REQUEST_CHUNK)
    if kind == "sessions":
        node.disk.flip(at + 70)
        until_found(group, "scrub_found_chunk")
        assert node.core.mending
    node.hold = lambda write: write.zone == "checkpoint"
    group.fill(session, 9 * K)
    group.until(lambda: node.core.checkpointing is not None)
    assert not node.core.mending and list(node.core.manifests) == [8 * K]
    group.heal(rule)
    for _ in range(200):
        node.core.timeouts["scrub"].start(1)
        group.run(1)
    assert [m for m in node.marks if m.startswith("scrub_found")] == (
        ["scrub_found_chunk"] if kind == "sessions" else []
    )
    assert len({write.address for write in node.disk.waiting}) == len(node.disk.waiting)
    node.hold = lambda write: False
    group.until(group.converged)
    end = zone + TINY.checkpoint_zone_size
    assert node.disk.data[zone:end] == group.nodes[1].disk.data[zone:end]
    ended(group, session)


@pytest.mark.parametrize("checkpoints", [3, 4])
def test_after_a_state_sync_the_scrub_leaves_the_new_checkpoint_in_peace(checkpoints: int) -> None:
    """Its zone is that of a checkpoint whose manifest was held before."""
    group = idle_group()
    node, session = group.nodes[0], group.sessions[0]
    held = sorted(node.core.manifests)
    assert len(held) == 2
    rule = group.isolate(0)
    group.fill(session, (8 + checkpoints) * K)
    group.heal(rule)
    group.until(group.converged)
    assert "sync_started" in node.marks
    zone = zone_of(group, node.core.checkpoint_op)
    assert zone in [zone_of(group, op) for op in held]
    whole, rounds = node.disk.peek(zone, TINY.checkpoint_zone_size), node.core.tour.rounds
    node.marks.clear()
    while node.core.tour.rounds < rounds + 2:
        node.core.timeouts["scrub"].start(1)
        group.run(1)
    assert "scrub_found_chunk" not in node.marks
    assert node.disk.peek(zone, TINY.checkpoint_zone_size) == whole
    ended(group, session)


def test_a_broken_segment_that_the_group_drops_does_not_keep_the_scrub() -> None:
    group = idle_group()
    core, disk = group.core(0), group.nodes[0].disk
    disk.flip(disk.extent_at(2) + 70)
    rule = group.drop(lambda s, t, h: h.command == env.CHUNK)
    until_found(group, "scrub_found_segment")
    assert core.backfill.low == core.tour.segment == 2
    drop_segments(group, 3)
    group.heal(rule)
    rounds = core.tour.rounds
    group.nodes[0].marks.clear()
    for _ in range(4000):
        core.timeouts["scrub"].start(1)
        group.run(1)
        if core.tour.rounds == rounds + 2:
            break
    assert core.tour.rounds == rounds + 2 and core.backfill is None
    assert "scrub_found_segment" not in group.nodes[0].marks, "what is dropped is not looked at"


def test_a_footer_that_was_read_before_its_segment_was_dropped_is_not_written_again() -> None:
    """What rotted behind it is nobody's any more, and its extent may be another segment's."""
    for is_dropped in (False, True):
        group = idle_group()
        core, node = group.core(0), group.nodes[0]
        core.timeouts["scrub"].stop()
        at = node.disk.extent_at(1) + TINY.segment_data_size
        node.disk.flip(at + SECTOR_SIZE // 2)
        read = node.disk.peek(at, -(-TINY.footer_size_max // SECTOR_SIZE) * SECTOR_SIZE)
        footer = chunks.footer_of(read, core)
        assert footer is not None
        core.tour.segment, core.tour.id, core.tour.busy = 1, segment_id(footer), True
        if is_dropped:
            drop_segments(group, 3)
            rooms = core.state_machine
            group.until(lambda rooms=rooms: rooms.oldest_segment == 3)  # type: ignore[misc]
        writes: list[int] = []
        node.hold = lambda write, writes=writes: writes.append(write.address) is not None
        scrub._on_footer(core, read, 1)
        group.run(5)
        assert (at in writes) == (not is_dropped)


# --- what readers find ----------------------------------------------------------------------------


def quiet_group() -> Group:
    """As `idle_group`, and the scrubber of the first never comes by."""
    group = idle_group()
    group.core(0).timeouts["scrub"].stop()
    return group


def mended(group: Group, at: int, whole: bytes, ticks: int = 100) -> bool:
    """Whether it lies there again within so many ticks of 10 ms."""
    for _ in range(ticks):
        if group.nodes[0].disk.peek(at, len(whole)) == whole:
            return True
        group.run(1)
    return False


@pytest.mark.parametrize("number", [0, 1, -1], ids=["oldest", "in between", "newest"])
@pytest.mark.parametrize("inside", [70, TINY.segment_data_size + 70], ids=["leaf", "footer"])
def test_what_a_reader_finds_broken_is_mended_from_a_peer_within_a_second(
    number: int, inside: int
) -> None:
    group = quiet_group()
    core, disk = group.core(0), group.nodes[0].disk
    sealed = core.state_machine.log_seq // TINY.segment_records
    number %= sealed
    at = disk.extent_at(number)
    whole = disk.peek(at, TINY.segment_data_size + 2048)
    disk.flip(at + inside)
    core.on_segment_broken(number)
    assert mended(group, at, whole)
    assert core.state_machine.oldest_segment == 0 and not core.reports.numbers
    ended(group, group.sessions[0])


BORDERS = [0, 15_680, 31_360, 44_800]  # of the leaves of a segment
FOOTER = (TINY.segment_data_size, TINY.segment_data_size + SECTOR_SIZE)


@pytest.mark.parametrize(
    ("leaves", "footer", "spans"),
    [
        ([0], False, [(0, 16_384)]),
        ([1], False, [(12_288, 32_768)]),
        ([2], False, [(28_672, 45_056)]),
        ([0, 1], False, [(0, 32_768)]),
        ([1, 2], False, [(12_288, 45_056)]),
        ([0, 2], False, [(0, 16_384), (28_672, 45_056)]),
        ([0, 1, 2], False, [(0, 45_056)]),
        ([], True, [FOOTER]),
        ([1], True, [(12_288, 32_768), FOOTER]),
        ([0, 1, 2], True, [(0, 45_056), FOOTER]),
    ],
)
def test_of_a_segment_only_the_sectors_of_what_is_broken_are_written(
    leaves: list[int], footer: bool, spans: list[tuple[int, int]]
) -> None:
    group = quiet_group()
    core, node = group.core(0), group.nodes[0]
    at, writes = node.disk.extent_at(1), []
    whole = node.disk.peek(at, TINY.extent_size)
    for leaf in leaves:
        node.disk.flip(at + BORDERS[leaf] + 70)
        node.disk.flip(at + BORDERS[leaf + 1] - 70)
    if footer:
        node.disk.flip(FOOTER[0] + at + 70)
    node.hold = lambda write: writes.append((write.address - at, len(write.data))) is not None
    core.on_segment_broken(1)
    assert mended(group, at, whole)
    step = TINY.message_size_max
    assert sorted(writes) == [
        (start, min(step, end - start)) for first, end in spans for start in range(first, end, step)
    ]
    ended(group, group.sessions[0])


@pytest.mark.parametrize("number", [0, 1, -1], ids=["oldest", "in between", "newest"])
@pytest.mark.parametrize("inside", [70, FOOTER[0] + 70], ids=["leaf", "footer"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_readers_find_broken_waits_for_no_tick(number: int, inside: int, count: int) -> None:
    """A reader's request waits for a second at most: it waits for reads, writes and a peer only."""
    group = quiet_group()
    core, node = group.core(0), group.nodes[0]
    sealed = core.state_machine.log_seq // TINY.segment_records
    extents = [node.disk.extent_at((number + i) % sealed) for i in range(count)]
    whole = [node.disk.peek(at, TINY.extent_size) for at in extents]
    for i, at in enumerate(extents):
        node.disk.flip(at + inside)
        core.on_segment_broken((number + i) % sealed)
    tick = group.tick
    group.after(node)
    group.settle()
    assert [node.disk.peek(at, TINY.extent_size) for at in extents] == whole
    assert group.tick == tick and core.backfill is None and not core.reports.numbers
    ended(group, group.sessions[0])


def test_all_that_readers_find_is_mended_though_the_chain_to_it_is_broken_as_well() -> None:
    group = quiet_group()
    core, disk = group.core(0), group.nodes[0].disk
    sealed = core.state_machine.log_seq // TINY.segment_records
    assert sealed >= 3
    spans = [(disk.extent_at(number), TINY.extent_size) for number in range(sealed)]
    whole = [disk.peek(*span) for span in spans]
    for at, _ in spans:
        disk.flip(at + RECORD_SIZE + 9)
        disk.flip(at + TINY.segment_data_size + 40)  # the name of the segment before
    for number in range(sealed):
        core.on_segment_broken(number)
        core.on_segment_broken(number)  # each reader tells of it
    group.run(100 * sealed)
    assert [disk.peek(*span) for span in spans] == whole
    ended(group, group.sessions[0])


def test_a_report_about_what_is_whole_or_not_there_changes_nothing() -> None:
    group = quiet_group()
    core, node = group.core(0), group.nodes[0]
    before = bytes(node.disk.data)
    for number in (0, 1, 1 << 40, core.state_machine.log_seq // TINY.segment_records):
        core.on_segment_broken(number)
    group.run(100)
    assert bytes(node.disk.data) == before and not core.reports.numbers
    assert core.backfill is None
    ended(group, group.sessions[0])


def test_a_segment_that_was_sealed_since_the_last_checkpoint_is_mended_as_well() -> None:
    group = quiet_group()
    core, disk, session = group.core(0), group.nodes[0].disk, group.sessions[0]
    checkpoint = core.checkpoint_op
    sealed = core.state_machine.log_seq // TINY.segment_records
    while core.state_machine.log_seq // TINY.segment_records == sealed:
        group.put(session, 1, 5)
        group.run(3)
    group.until(group.converged)
    group.run(20)
    assert core.checkpoint_op == checkpoint
    at = disk.extent_at(sealed)
    whole = disk.peek(at, TINY.segment_data_size + 2048)
    disk.flip(at + TINY.segment_data_size + 40)
    core.on_segment_broken(sealed)
    assert mended(group, at, whole)
    ended(group, session)
