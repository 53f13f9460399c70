"""Outside the rings a disk gets one write after the other to the same place."""

import pytest

from appliance.base.limits import SECTOR_SIZE
from appliance.base.prng import Prng
from appliance.cores.vsr import write_order
from tests.cores.vsr.group import TINY, Group, Node

ZONE = TINY.checkpoints_offset
EXTENT = TINY.data_size + TINY.extent_size


def still() -> Node:
    """A replica whose disk performs nothing by itself."""
    group = Group(1, geometry=TINY, segments_max=8)
    group.run(20)
    node = group.nodes[0]
    node.hold = lambda write: True
    assert not node.disk.waiting and not node.core.placed_writes
    return node


@pytest.fixture
def node() -> Node:
    return still()


def sectors(value: int, count: int = 1) -> list[bytes | memoryview]:
    return [bytes([value]) * SECTOR_SIZE] * count


def write(node: Node, address: int, value: int, done: list[int], count: int = 1) -> None:
    """Ask for it; `done` gets `value` when the member is told."""
    write_order.write(node.core, address, sectors(value, count), _note, done, value)
    start(node)


def _note(_member: object, done: list[int], value: int) -> None:
    done.append(value)


def start(node: Node) -> None:
    effects, node.core.effects = node.core.effects, []
    for kind, *rest in effects:
        if len(rest) == 3:
            node.disk.write(*rest)
        else:
            assert rest == ["write_waits_for_another"], kind


def finish(node: Node, index: int = 0) -> None:
    """One of the writes in flight becomes durable."""
    node.disk.perform(node.disk.waiting[index])


@pytest.mark.parametrize("place", [TINY.replies_offset, ZONE, EXTENT])
def test_the_second_write_of_a_place_starts_when_the_first_is_durable(
    node: Node, place: int
) -> None:
    done: list[int] = []
    for value in (1, 2, 3):
        write(node, place, value, done)
    for value in (1, 2, 3):
        assert [w.data[0] for w in node.disk.waiting] == [value]
        assert write_order.writing(node.core, place)
        finish(node)
        assert done[-1] == value and node.disk.data[place] == value
    assert done == [1, 2, 3] and not write_order.writing(node.core, place)
    assert not node.core.placed_writes


def test_other_places_and_other_pieces_of_a_segment_do_not_wait(node: Node) -> None:
    done: list[int] = []
    places = [
        TINY.replies_offset,
        TINY.replies_offset + TINY.reply_size_max,
        ZONE,
        ZONE + TINY.table_offset("rooms"),
        EXTENT,
        EXTENT + SECTOR_SIZE,
        EXTENT + TINY.extent_size,
    ]
    for value, place in enumerate(places, start=1):
        write(node, place, value, done)
    assert len(node.disk.waiting) == len(places)
    for _ in places:
        finish(node, len(node.disk.waiting) - 1)
    assert done == list(range(len(places), 0, -1))


def test_a_write_waits_for_all_that_it_overlaps(node: Node) -> None:
    done: list[int] = []
    write(node, EXTENT, 1, done)
    write(node, EXTENT + SECTOR_SIZE, 2, done)
    write(node, EXTENT, 3, done, count=2)
    write(node, EXTENT + 2 * SECTOR_SIZE, 4, done)
    assert [w.data[0] for w in node.disk.waiting] == [1, 2, 4]
    finish(node, 0)
    assert [w.data[0] for w in node.disk.waiting] == [2, 4]
    finish(node, 0)
    assert [w.data[0] for w in node.disk.waiting] == [4, 3]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_disk_does_what_was_written_last_lies_there(node: Node, seed: int) -> None:
    """The disk itself refuses two writes in flight that overlap."""
    prng, done, asked = Prng(seed), [], 0
    expected = bytearray(TINY.extent_size)
    size = TINY.extent_size // SECTOR_SIZE
    while asked < 200 or node.disk.waiting:
        if asked < 200 and prng.chance(1, 2):
            asked += 1
            first = prng.below(size)
            count = prng.between(1, size - first)
            expected[first * SECTOR_SIZE : (first + count) * SECTOR_SIZE] = (
                bytes([asked]) * SECTOR_SIZE * count
            )
            write(node, EXTENT + first * SECTOR_SIZE, asked, done, count)
        elif node.disk.waiting:
            finish(node, prng.below(len(node.disk.waiting)))
    assert sorted(done) == list(range(1, 201))
    assert node.disk.data[EXTENT : EXTENT + TINY.extent_size] == expected
    assert not node.core.placed_writes
