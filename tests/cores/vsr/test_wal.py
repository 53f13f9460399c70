"""Appending: prepare, witness, acknowledgement, in whatever order the disk answers."""

from itertools import permutations

import pytest

from appliance.cores.vsr import wal
from appliance.cores.vsr.journal import Journal
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, SMALL
from tests.cores.vsr.chain import chain
from tests.cores.vsr.disk import Write
from tests.cores.vsr.group import Group, Node

WRITES_MAX = SMALL.wal_writes_max
PREPARES = chain(9)


def watch(node: Node) -> None:
    """Check, at the start of each witness, that its prepare is durable."""
    disk, start_write = node.disk, node.disk.write

    def watched(token: int, address: int, buffers: list[bytes | memoryview]) -> None:
        start_write(token, address, buffers)
        write = disk.waiting[-1]
        if write.zone == "witness":
            header = env.decode_stored(write.data[:HEADER_SIZE])
            if header.operation != env.OPERATION_RESERVED:
                stored = disk.header_at(disk.prepare_at(header.op))
                assert stored is not None and stored.digest == header.digest
        in_flight = [w for w in disk.waiting if w.zone == "prepare"]
        assert len(in_flight) <= WRITES_MAX

    disk.write = watched  # type: ignore[method-assign]


@pytest.fixture
def group() -> Group:
    out = Group(start=[])
    node = out.nodes[2]
    watch(node)
    out.start(2)
    out.settle()
    node.hold = lambda write: True
    return out


def acks(group: Group) -> list[int]:
    return [h.op for h in group.sent(env.PREPARE_OK)]


def append(group: Group, messages: list[Message]) -> Node:
    """The backup receives these prepares."""
    for prepare in messages:
        group.tell(2, prepare)
    return group.nodes[2]


def op_of(write: Write) -> int:
    return env.decode_stored(write.data[:HEADER_SIZE]).op


def all_orders(group: Group, node: Node, choices: list[int]) -> None:
    """Complete whatever is in flight, `choices` deciding which one, until nothing is."""
    for choice in choices:
        if node.disk.waiting:
            group.finish(node, node.disk.waiting[choice % len(node.disk.waiting)])
    while node.disk.waiting:
        group.finish(node, node.disk.waiting[0])


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_whatever_the_order_of_completions_each_is_acknowledged_once_and_after_its_witness(
    order: tuple[int, int, int],
) -> None:
    for second in permutations(range(3)):
        group = Group(start=[2])
        group.settle()
        node = group.nodes[2]
        node.hold = lambda write: True
        append(group, [PREPARES[op] for op in (1, 2, 3)])
        all_orders(group, node, [*order, *second])
        assert sorted(acks(group)) == [1, 2, 3]
        assert node.core.journal.dirty_count == 0
        assert all(node.disk.holds(op, PREPARES[op].header.digest) for op in (1, 2, 3))


def test_at_most_so_many_prepares_are_in_flight_and_the_others_follow(group: Group) -> None:
    node = append(group, [PREPARES[op] for op in range(1, 9)])
    assert [op_of(w) for w in node.disk.waiting] == list(range(1, WRITES_MAX + 1))
    assert len(node.core.wal.queue) == 8 - WRITES_MAX
    group.finish(node, node.disk.waiting[2])
    assert sorted(op_of(w) for w in node.disk.waiting if w.zone == "prepare") == [1, 2, 4, 5]
    node.hold = lambda write: False
    group.settle()
    assert sorted(acks(group)) == list(range(1, 9)) and not node.core.wal.queue


def test_an_append_is_not_repeated_while_it_runs_and_not_when_it_is_clean(group: Group) -> None:
    node = append(group, [PREPARES[1], PREPARES[1]])
    wal.append(node.core, PREPARES[1])
    group.after(node)
    assert len(node.disk.waiting) == 1 and not node.core.wal.waiting
    group.finish(node, node.disk.waiting[0])
    wal.append(node.core, PREPARES[1])
    group.after(node)
    assert len(node.disk.waiting) == 1, "its witness is on the way"
    group.finish(node, node.disk.waiting[0])
    wal.append(node.core, PREPARES[1])
    group.after(node)
    assert not node.disk.waiting
    assert acks(group) == [1]


def replaced(group: Group, node: Node, new: Message) -> None:
    """The slot comes to belong to another prepare of the same op, which is to be written."""
    journal: Journal = node.core.journal
    journal.remove(new.header.op)
    journal.install(new.header)
    wal.append(node.core, new)
    group.after(node)


OTHER = chain(1, view=1)[1]


def test_two_writes_of_one_slot_never_overlap(group: Group) -> None:
    node = append(group, [PREPARES[1]])
    replaced(group, node, OTHER)
    (write,) = node.disk.waiting
    assert write.data[:HEADER_SIZE] == PREPARES[1].header.raw, "the first goes on, alone"
    group.finish(node, write)
    (write,) = node.disk.waiting
    assert write.zone == "prepare" and write.data[:HEADER_SIZE] == OTHER.header.raw
    assert node.core.journal.dirty[1]
    group.finish(node, write)
    assert node.core.journal.dirty[1]
    group.finish(node, node.disk.waiting[0])
    assert node.core.journal.clean(OTHER.header)
    assert node.disk.holds(1, OTHER.header.digest)


def test_a_header_that_changes_while_its_witness_is_written_leaves_the_slot_dirty(
    group: Group,
) -> None:
    node = append(group, [PREPARES[1]])
    group.finish(node, node.disk.waiting[0])
    replaced(group, node, OTHER)
    (write,) = node.disk.waiting
    assert write.zone == "witness", "the second prepare waits for the first one's witness"
    group.finish(node, write)
    assert node.core.journal.dirty[1] and not acks(group)
    node.hold = lambda write: False
    group.settle()
    assert node.core.journal.clean(OTHER.header)


def test_a_header_that_changes_and_returns_is_written_and_clean_at_the_end(group: Group) -> None:
    node = append(group, [PREPARES[1]])
    replaced(group, node, OTHER)
    replaced(group, node, PREPARES[1])
    node.hold = lambda write: False
    group.settle()
    clean = [m for m in (PREPARES[1], OTHER) if node.core.journal.clean(m.header)]
    assert not clean or clean == [PREPARES[1]]
    if clean:
        assert node.disk.holds(1, PREPARES[1].header.digest)


def truncate(node: Node, op: int) -> None:
    """As a view change does: `op` was the head and never committed."""
    node.core.journal.remove(op)
    node.core.op = op - 1


def test_a_truncated_append_leaves_nothing_behind_but_bytes(group: Group) -> None:
    node = append(group, [PREPARES[1]])
    truncate(node, 1)
    node.hold = lambda write: False
    group.settle()
    assert node.core.journal.at(1) is None and not node.core.journal.dirty[1]
    assert not acks(group)
    assert node.disk.header_at(node.disk.prepare_at(1)).digest == PREPARES[1].header.digest


def test_a_queued_append_is_dropped_when_its_slot_changed_hands(group: Group) -> None:
    node = append(group, [PREPARES[op] for op in range(1, 7)])
    truncate(node, 6)
    node.hold = lambda write: False
    group.settle()
    assert sorted(acks(group)) == [1, 2, 3, 4, 5]
    assert node.disk.header_at(node.disk.prepare_at(6)).operation == env.OPERATION_RESERVED


def test_every_crash_point_of_an_append_leaves_what_the_table_can_judge(group: Group) -> None:
    """Acknowledged: found clean again. Not acknowledged: found, torn or gone, never a lie."""
    for point in range(5):
        for sectors in ([], [0]):
            fresh = Group(start=[2])
            fresh.settle()
            node = fresh.nodes[2]
            node.hold = lambda write: True
            append(fresh, [PREPARES[1], PREPARES[2]])
            for _ in range(point):
                if node.disk.waiting:
                    fresh.finish(node, node.disk.waiting[0])
            acknowledged = acks(fresh)
            fresh.crash(2, keep=lambda write, s=sectors: s)
            core = fresh.start(2)
            fresh.settle()
            for op in acknowledged:
                assert core.journal.clean(PREPARES[op].header)
            assert not core.journal.faulty_count, "nothing that was acknowledged is missing"


# --- reading back ---------------------------------------------------------------------------------


def test_a_prepare_is_read_back_only_if_every_byte_is_its_own() -> None:
    prepare = PREPARES[3]
    whole = (prepare.header.raw + bytes(prepare.body)).ljust(4096, b"\0")
    read = wal.parse_prepare(whole, prepare.header)
    assert read is not None and read.body == prepare.body
    assert wal.parse_prepare(None, prepare.header) is None
    assert wal.parse_prepare(whole, PREPARES[4].header) is None
    for at in range(0, 4096, 61):
        broken = bytearray(whole)
        broken[at] ^= 16
        assert wal.parse_prepare(bytes(broken), prepare.header) is None


def test_what_cannot_be_read_back_becomes_a_hole_unless_the_slot_moved_on(group: Group) -> None:
    node = append(group, [PREPARES[1]])
    node.hold = lambda write: False
    group.settle()
    core = node.core
    stranger: Header = OTHER.header
    wal.on_unreadable(core, stranger)
    assert core.journal.clean(PREPARES[1].header), "another prepare's failure says nothing of this"
    wal.on_unreadable(core, PREPARES[1].header)
    assert core.journal.faulty[1] and core.journal.at(1) is not None
