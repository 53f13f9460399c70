"""A plain edit is read in one go to what the rules make of it; nothing else is taken for one."""

import random

import pytest

from appliance.base.errors import PacketRefused
from appliance.base.limits import REVISION_MAX
from appliance.cores.metadata import packets
from appliance.cores.metadata.packets import parse_any_change
from appliance.cores.metadata.plain_edit import plain_edit
from appliance.formats.rdx.stamps import AUTHOR_MAX, bare, count_record, element
from appliance.formats.toytlv.ids import ID0, Id, zip_id
from appliance.formats.toytlv.records import record, tiny_record
from tests.cores.metadata.pair import A, B
from tests.formats.go_records import long_record

MADE, OF = Id(B, 7 << 12), Id(A, 2 << 12)
TEXT = packets.edited(1, "S", bare(3, 0, b"a text"))
PARTS = 30_000


def edit(*fields: bytes, id: Id = MADE, of: Id = OF) -> bytes:
    return packets.change("E", id, of, b"".join(fields))


@pytest.mark.parametrize(
    "packet",
    [
        edit(TEXT),
        edit(TEXT, packets.edited(300, "I", bare(-4, B, b"\x05")), packets.edited(0, "F", b"0")),
        edit(packets.edited(2, "T", bare(0, 9, b"word"))),
        edit(packets.edited(1, "S", bare(REVISION_MAX, 0, b""))),
        edit(packets.edited(1, "I", bare(70_000, 0, bytes(8)))),
        edit(TEXT, id=Id(1 << 40, 1 << 12), of=Id(5, (1 << 52) - (1 << 12))),
        edit(),
    ],
)
def test_single_values_of_one_object_are_plain(packet: bytes) -> None:
    assert plain_edit(packet) == parse_any_change(packet) == packets.parse_change(packet)


@pytest.mark.parametrize(
    "packet",
    [
        edit(packets.edited(1, "N", count_record(4, B))),
        edit(packets.edited(1, "E", element("S", 0, 0, b"one"))),
        edit(packets.edited(1, "R", bare(0, 0, b"\x01\x10"))),
        edit(TEXT + record("R", zip_id(Id(A, 3 << 12))) + TEXT),
        edit(packets.edited(1, "S", bare(0, 0, bytes(250)))),  # a long record
        edit(tiny_record("F", b"\x01\x00\x00") + record("S", b"0")),
        edit(packets.edited(1, "S", bare(REVISION_MAX, AUTHOR_MAX, b""))),  # of 12 bytes
        packets.change("O", MADE, OF, record("S", b"0x")),
    ],
)
def test_other_changes_are_left_to_the_rules(packet: bytes) -> None:
    assert plain_edit(packet) is None
    assert packets.parse_change(packet) == parse_any_change(packet)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        edit(TEXT)[:-1],
        edit(TEXT) + b"0",
        edit(TEXT, id=Id(B, 7 << 12 | 1)),
        edit(TEXT, of=ID0),
        edit(packets.edited(4096, "S", b"0")),
        edit(packets.edited(1, "I", bare(1, 0, bytes(9)))),
        edit(packets.edited(1, "S", bare(REVISION_MAX + 1, 0, b""))),
        edit(packets.edited(1, "S", bare(0, AUTHOR_MAX + 1, b""))),
        edit(packets.edited(1, "S", b"1")),
        edit(packets.edited(1, "S", b"7" + bytes(7))),
        edit(packets.edited(1, "S", b":" + bytes(10))),
        edit(packets.edited(1, "S", b"")),
        edit(tiny_record("F", b"\x01")),
        record("E", record("I", b"\x01\x00\x10") + record("R", bytes(7)) + TEXT),
        record("E", record("I", bytes(2) + bytes([0, 0, 0, 0, 0, 0, 0x10, 1])[:8]) + TEXT),
        record("E", record("I", b"\x0b\x00\x70") + record("R", b"\x0a\x00")[:-1]),
    ],
)
def test_what_is_refused_is_never_plain(packet: bytes) -> None:
    assert plain_edit(packet) is None
    with pytest.raises(PacketRefused):
        packets.parse_change(packet)


def a_field(chance: random.Random) -> bytes:
    number = chance.choice((0, 1, 9, 255, 256, 4095, 4096, 70_000))
    revision = chance.choice((0, 1, -1, 200, -40_000, 1 << 40, REVISION_MAX, -REVISION_MAX - 1))
    author = chance.choice((0, A, B, 200, 70_000, AUTHOR_MAX, AUTHOR_MAX + 1))
    size = chance.choice((0, 1, 7, 8, 9, 20, 240, 260))
    value = bare(revision, author, chance.randbytes(size))
    letter = chance.choice("FISTFISTRNEQ")
    return packets.edited(number, letter, value)


def test_of_many_packets_none_is_read_in_another_way_than_by_the_rules(seed: int) -> None:
    chance = random.Random(seed)
    plain = refused = 0
    for _ in range(PARTS):
        id = Id(chance.choice((B, 300, 1 << 33)), chance.choice((7, 1 << 20, 1 << 39)) << 12)
        of = chance.choice((OF, Id(0, 0), Id(0, 1 << 12), Id(A, 1 << 51), Id(A, 5)))
        fields = b"".join(a_field(chance) for _ in range(chance.choice((0, 1, 1, 1, 2, 3))))
        packet = bytearray(packets.change("E", id, of, fields))
        if chance.random() < 0.1:
            packet = bytearray(long_record("E", bytes(packet[2:])))
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            at = chance.randrange(len(packet))
            packet[at : at + chance.randrange(2)] = chance.randbytes(chance.randrange(2))
        data = bytes(packet)
        found = plain_edit(data)
        plain += found is not None
        try:
            assert found in (None, parse_any_change(data))
        except PacketRefused:
            refused += 1
            assert found is None
    assert plain > PARTS // 20 and refused > PARTS // 4
