"""A volume that is another file than it was is not worked on until its operator has said so."""

import pytest

from appliance.base.padding import is_zero
from appliance.cores.vsr.remedies import remedy_of
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE
from appliance.formats.volume_file import NOT_KNOWN, VolumeFile
from tests.cores.vsr.group import TINY, Group, Session

FIRST, SECOND = VolumeFile(5, 50, b"v" * 16), VolumeFile(6, 60, b"v" * 16)


def begun(replicas: int) -> tuple[Group, Session]:
    group = Group(replicas, geometry=TINY, segments_max=64, start=[])
    group.acquainted = False
    for node in group.nodes:
        node.file = VolumeFile(node.index + 100, 1, b"%16d" % node.index)
    group.nodes[0].file = FIRST
    for node in group.nodes:
        group.start(node.index)
    session = group.opened()
    group.run(60)
    return group, session


def replaced(group: Group, index: int, copy: bytes) -> None:
    """A copy is put in the place of the volume: another file."""
    group.crash(index)
    group.nodes[index].disk.poke(0, copy)
    group.nodes[index].file = SECOND


def test_a_volume_learns_which_file_it_is_and_opens_as_that_one_again_and_again() -> None:
    group, session = begun(3)
    assert group.core(0).superblock.file == FIRST
    for _ in range(3):
        group.restart(0)
        group.until(group.converged, ticks=2000)
    group.put(session, 2)
    assert group.core(0).superblock.file == FIRST


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_volume_from_before_files_were_written_down_keeps_its_data_and_learns_its_file(
    replicas: int,
) -> None:
    group = Group(replicas, geometry=TINY, segments_max=64, start=[])
    for node in group.nodes:
        node.file = NOT_KNOWN
        group.start(node.index)
    session = group.opened()
    group.fill(session, 3 * TINY.checkpoint_ops, 5)
    group.until(group.converged)
    committed, records = max(group.committed), group.core(0).state_machine.log_seq
    for node in group.nodes:
        group.crash(node.index)
        raw = node.disk.peek(0, SUPERBLOCK_COPY_SIZE)
        assert is_zero(raw[714:720]) and is_zero(raw[1048:4096]), "as versions of before keep it"
        node.file = VolumeFile(node.index + 100, 1, b"%16d" % node.index)
        group.start(node.index)
    group.until(lambda: group.primary is not None)
    group.until(group.converged)
    assert group.core(0).commit_min >= committed
    assert group.core(0).state_machine.log_seq >= records
    assert [node.core.superblock.file for node in group.nodes] == [n.file for n in group.nodes]
    group.put(session, 3)
    group.check()


@pytest.mark.parametrize("file", [FIRST._replace(birth_ns=0), NOT_KNOWN])
def test_what_cannot_be_told_at_a_start_keeps_nobody_out_and_is_not_forgotten(
    file: VolumeFile,
) -> None:
    group, _ = begun(3)
    group.crash(0)
    group.nodes[0].file = file
    group.start(0)
    group.until(group.converged, ticks=2000)
    assert group.core(0).superblock.file == FIRST


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_copy_halts_before_it_writes_or_says_anything(replicas: int) -> None:
    group, session = begun(replicas)
    copy = bytes(group.nodes[0].disk.data)
    group.put(session, 5)
    replaced(group, 0, copy)
    mark = len(group.trace)
    group.start(0)
    group.run(100)
    code, reason = group.nodes[0].halted
    assert code == "VOLUME_COPIED" and str(FIRST) in reason and str(SECOND) in reason
    assert "`tigerchat recover --moved`" in remedy_of(code)
    assert not [s for s, _, _ in group.trace[mark:] if s == 0]
    assert bytes(group.nodes[0].disk.data) == copy
    if replicas == 3:
        group.put(session, 3)
        group.check()


def test_what_was_committed_is_not_lost_where_nobody_else_that_knows_it_is_left() -> None:
    """The copy is of the last life, the third was cut off since: nothing but the file can tell."""
    group, session = begun(3)
    cut = group.isolate(2)
    copy = bytes(group.nodes[0].disk.data)
    group.put(session, 5)
    committed = max(group.committed)
    group.crash(1)
    replaced(group, 0, copy)
    group.heal(cut)
    group.start(0)
    group.run(300)
    assert group.nodes[0].halted[0] == "VOLUME_COPIED" and group.primary is None
    group.start(1)
    group.until(lambda: group.primary is not None)
    group.until(lambda: group.core(group.primary).commit_min >= committed)
    group.put(session, 3)
    group.check()


def test_a_volume_that_its_operator_says_was_moved_goes_on_as_the_file_that_it_is_now() -> None:
    group, session = begun(3)
    replaced(group, 0, bytes(group.nodes[0].disk.data))
    node = group.nodes[0]
    node.moved = True
    group.start(0)
    group.until(group.converged, ticks=2000)
    assert group.core(0).superblock.file == SECOND
    node.moved = False
    group.restart(0)
    group.until(group.converged, ticks=2000)
    group.put(session, 3)
    group.check()
    group.crash(0)
    node.file = FIRST  # and back again, without a word
    group.start(0)
    assert node.halted[0] == "VOLUME_COPIED"
