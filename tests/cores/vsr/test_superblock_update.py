"""A running member changes its superblock: three writes in order, read back, then the fourth."""

import pytest

from appliance.base.limits import SUPERBLOCK_COPIES, SUPERBLOCK_COPIES_TO_CONFIRM
from appliance.formats import superblock as sb
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from tests.cores.vsr.disk import Disk, Write
from tests.cores.vsr.group import Group, Node


def opening(group: Group) -> Node:
    """Replica 2 has just opened: the update that makes its incarnation durable has begun."""
    group.start(2)
    return group.nodes[2]


@pytest.fixture
def group() -> Group:
    return Group(start=[])


def superblock_writes(node: Node) -> list[Write]:
    return [w for w in node.disk.waiting if w.zone == "superblock"]


def test_copies_are_written_one_after_the_other(group: Group) -> None:
    node = opening(group)
    for copy in range(SUPERBLOCK_COPIES_TO_CONFIRM):
        (write,) = superblock_writes(node)
        assert write.address == copy * SUPERBLOCK_COPY_STRIDE
        assert sb.decode(write.data)[1] == copy
        group.finish(node, write)
    assert len(superblock_reads(node)) == SUPERBLOCK_COPIES_TO_CONFIRM, "then they are read back"
    assert node.core.durable_seen[3] != node.core.incarnation
    read_back(group, node)
    assert node.core.durable_seen[3] == node.core.incarnation, "three that are read back suffice"
    (write,) = superblock_writes(node)
    assert write.address == SUPERBLOCK_COPIES_TO_CONFIRM * SUPERBLOCK_COPY_STRIDE
    node.core.persist()
    node.core.settle()
    group.after(node)
    assert superblock_writes(node) == [write], "no other update begins before the fourth"
    group.settle()
    assert whole_copies(node.disk) == [0, 1, 2, 3]


def test_recovery_incarnation_monotonic(group: Group) -> None:
    seen = [group.nodes[2].disk.superblock().incarnation]
    for _ in range(4):
        seen.append(opening(group).core.incarnation)
        group.settle()
        assert group.nodes[2].disk.superblock().incarnation == seen[-1]
        group.crash(2)
    assert seen == sorted(set(seen)), "though the clock stood still"


def test_a_crash_after_each_write_or_sector_leaves_an_older_or_the_newer_one(group: Group) -> None:
    for steps in range(SUPERBLOCK_COPIES * 2 + 1):
        node = opening(group)
        before = node.disk.superblock()
        for _ in range(steps // 2):
            group.finish(node, superblock_writes(node)[0])
            if len(superblock_reads(node)) == SUPERBLOCK_COPIES_TO_CONFIRM:
                read_back(group, node)
        group.crash(2, keep=lambda write, odd=steps % 2: [0] if odd else [])
        after = node.disk.superblock()
        assert after.sequence in (before.sequence, before.sequence + 1)
        whole = (steps + 1) // 2  # the second sector, the view headers, does not change here
        assert (after.sequence > before.sequence) == (whole >= 2)
        node = opening(group)
        group.settle()
        assert node.disk.superblock().incarnation == node.core.incarnation
        group.crash(2)
        assert whole_copies(node.disk) == [0, 1, 2, 3]


def whole_copies(disk: Disk) -> list[int]:
    wanted = disk.superblock()
    at = [i * SUPERBLOCK_COPY_STRIDE for i in range(SUPERBLOCK_COPIES)]
    return [
        i
        for i in range(SUPERBLOCK_COPIES)
        if disk.peek(at[i], SUPERBLOCK_COPY_SIZE) == sb.encode(wanted, i)
    ]


# --- read-back ------------------------------------------------------------------------------------


def superblock_reads(node: Node) -> list[tuple[int, int]]:
    end = SUPERBLOCK_COPIES * SUPERBLOCK_COPY_STRIDE
    return [read for read in node.disk.reads.values() if read[0] < end]


def read_back(group: Group, node: Node) -> None:
    """Answer what was asked of the disk."""
    while node.disk.reads:
        group.io(node)


def run_update(group: Group, node: Node, lost: list[list[int]]) -> int:
    """Perform the update; attempt n loses the copies `lost[n]`. Returns the attempts made."""
    attempts = 0
    while node.halted is None and superblock_writes(node):
        write = superblock_writes(node)[0]
        copy = write.address // SUPERBLOCK_COPY_STRIDE
        attempts += copy == 0
        group.finish(node, write)
        if copy in (lost[attempts - 1] if attempts <= len(lost) else []):
            node.disk.poke(copy * SUPERBLOCK_COPY_STRIDE, bytes(SUPERBLOCK_COPY_SIZE))
        read_back(group, node)
    return attempts


@pytest.mark.parametrize("lost", range(SUPERBLOCK_COPIES))
def test_three_of_four_confirm(group: Group, lost: int) -> None:
    node = opening(group)
    assert run_update(group, node, [[lost]]) == 1
    assert node.core.superblock.incarnation == node.core.incarnation


def test_two_of_four_do_not_confirm_and_are_written_again(group: Group) -> None:
    node = opening(group)
    assert run_update(group, node, [[0, 1], [2, 3]]) == 3
    assert "superblock_retried" in node.marks
    assert node.core.superblock.incarnation == node.core.incarnation
    assert whole_copies(node.disk) == [0, 1, 2, 3]


def test_nothing_is_said_while_an_update_is_not_confirmed(group: Group) -> None:
    node = opening(group)
    for _ in range(SUPERBLOCK_COPIES_TO_CONFIRM):
        group.finish(node, superblock_writes(node)[0])
    node.core.on_tick(*group.times(node.index))
    assert not [e for e in node.core.effects if e[0] == 0], "its nonces might be used again"


def test_an_unwritable_superblock_halts(group: Group) -> None:
    node = opening(group)
    run_update(group, node, [[0, 1]] * 10)
    assert node.halted is not None and node.halted[0] == "SUPERBLOCK_UNWRITABLE"
    assert node.core.durable_seen[3] != node.core.incarnation, "it was never believed"


# --- repair before use ----------------------------------------------------------------------------


def test_broken_copies_are_repaired_before_any_update(group: Group) -> None:
    node = group.nodes[2]
    opening(group)
    group.settle()
    group.crash(2)
    good = node.disk.superblock()
    node.disk.poke(0, bytes(SUPERBLOCK_COPY_SIZE))
    node.disk.poke(2 * SUPERBLOCK_COPY_STRIDE, bytes(SUPERBLOCK_COPY_SIZE))
    opening(group)
    order = []
    while superblock_writes(node) and len(order) < 3:
        (write,) = superblock_writes(node)
        order.append((write.address // SUPERBLOCK_COPY_STRIDE, sb.decode(write.data)[0].sequence))
        group.finish(node, write)
    assert order == [(0, good.sequence), (2, good.sequence), (0, good.sequence + 1)]


# --- one at a time --------------------------------------------------------------------------------


def test_updates_that_meet_merge_into_one() -> None:
    group = Group()
    group.settle()
    node = group.nodes[2]
    node.hold = lambda write: write.zone == "superblock"
    sequence = node.disk.superblock().sequence
    for _ in range(5):
        node.core.persist()
        node.core.settle()
        group.after(node)
    assert len(superblock_writes(node)) == 1
    node.hold = lambda write: False
    group.settle()
    assert node.disk.superblock().sequence == sequence + 2, (
        "the one under way and one for all others"
    )
    assert sb.digest(node.disk.superblock()) == sb.digest(node.core.superblock)
