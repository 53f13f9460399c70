"""Packets of the Go implementation, byte for byte: those a replica begins with, handshakes, diffs.

Vectors of ids, records and types stand beside their codings; the rest of a session is in
`test_exchange.py`.
"""

import pytest

from appliance.cores.metadata import packets
from appliance.cores.metadata.change import Write
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.log0 import SHARED, replica_record
from appliance.cores.metadata.packets import parse_change
from appliance.formats.rdx.stamps import bare, count_record
from appliance.formats.rdx.text import state_text
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import ID0, Id, make_id, parse_id, zip_id
from tests.cores.metadata.pair import A, B, exchange
from tests.cores.metadata.test_replica import ITS_COUNTER, ITS_TEXT, MAP_OF_ALL, TEN_FIELDS


def h(text: str) -> bytes:
    return bytes.fromhex(text)


# --- what a replica begins with -------------------------------------------------------------------

LOG0 = (
    "79 04 69 00 72 00",
    "63 12 69 04 00 00 00 10 72 00 74 08 30 4d 00 4e 61 6d 65 73",
    (
        "6f 43 69 04 00 00 00 20 72 04 00 00 00 10 6d 35 74 02 30 30 72 01 30"
        "74 07 30 47 6c 6f 62 61 6c 72 05 30 00 00 00 20 74 06 30 4e 61 6d 65 73"
        "72 05 30 00 00 01 20 74 06 30 4e 6f 64 65 73 72 05 30 00 00 02 20"
    ),
    (
        "63 24 69 04 00 00 00 30 72 00 74 07 30 53 00 4e 61 6d 65 74 07 31 02 56 00"
        "41 63 6b 74 08 31 04 53 00 41 64 64 72"
    ),
)
ALPHA = "79 12 69 01 0a 72 00 73 06 30 61 6c 70 68 61 76 00 73 01 30"


def test_a_replica_begins_with_the_packets_of_go() -> None:
    assert [packet.hex() for packet in SHARED] == [h(packet).hex() for packet in LOG0]
    assert replica_record(A, "alpha").hex() == h(ALPHA).hex()


def test_the_packets_of_the_beginning_give_the_states_of_go() -> None:
    writes = {
        (str(id), letter): state.hex()
        for packet in (*LOG0, ALPHA)
        for id, letter, state in parse_change(h(packet)).writes
    }
    assert writes[("a-0", "Y")] == writes[("a-0-2", "V")] == writes[("0-0", "Y")] == ""
    assert writes[("a-0-1", "S")] == "32000a616c706861"
    assert writes[("a-0-3", "S")] == "32000a"
    assert writes[("0-1", "C")] == "7408304d004e616d6573"
    assert writes[("0-2", "O")] == "00000010"
    assert writes[
        ("0-3", "C")
    ] == "74073053004e616d657407310256004163 6b74083104530041646472".replace(" ", "")


def test_a_reference_carries_its_source_as_in_go() -> None:
    state = bare(0, A, encode_value("R", parse_id("ae-32")))
    assert state.hex() == h("32 00 0a ae 00 00 00 00 20 03 00").hex()


# --- handshakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "mode", "vector", "trace", "bytes_"),
    [
        (
            Id(A, 0x7000),
            3,
            {0: 0x3000, A: 0x7000},
            "b4 9a ae 5a d3 44 d2 59 f0 72",
            (
                "68 21 34 0a 00 00 70 31 03 76 0c 76 04 00 00 00 30 76 04 0a 00 00 70"
                "73 0a b4 9a ae 5a d3 44 d2 59 f0 72"
            ),
        ),
        (
            Id(A, 0x2002),
            7,
            {0: 0x3000, A: 0x2002},
            "29 7c 30 a9 91 c1 b7 12 f4 70",
            (
                "68 21 34 0a 00 02 20 31 07 76 0c 76 04 00 00 00 30 76 04 0a 00 02 20"
                "73 0a 29 7c 30 a9 91 c1 b7 12 f4 70"
            ),
        ),
        (
            Id(B, 0x1001),
            7,
            {0: 0x3000, B: 0x1001},
            "00 01 02 03 04 05 06 07 08 09",
            (
                "68 21 34 0b 00 01 10 31 07 76 0c 76 04 00 00 00 30 76 04 0b 00 01 10"
                "73 0a 00 01 02 03 04 05 06 07 08 09"
            ),
        ),
    ],
)
def test_handshakes_are_those_of_go(
    last: Id, mode: int, vector: dict[int, int], trace: str, bytes_: str
) -> None:
    assert packets.handshake(last, mode, vector, h(trace)).hex() == h(bytes_).hex()
    read = packets.parse_handshake(h(bytes_))
    assert (read.last, read.mode, read.vector, read.trace) == (last, mode, vector, h(trace))


# --- diffs ----------------------------------------------------------------------------------------

SHORT_DIFF = (
    "64 27 74 04 0b 00 01 10 72 01 0b 66 00 79 00 66 02 00 10 6f 04 0a 00 00 10"
    "66 02 01 10 73 0a 32 00 0b 66 72 6f 6d 20 70 79"
)


def test_a_diff_in_its_short_form_is_that_which_go_accepted() -> None:
    rows: list[Write] = [
        (Id(B, 0), "Y", b""),
        (make_id(B, 1, 0), "O", zip_id(make_id(A, 1, 0))),
        (make_id(B, 1, 1), "S", h("32 00 0b 66 72 6f 6d 20 70 79")),
    ]
    assert packets.block_diff(Id(B, 0x1001), Id(B, 0), rows).hex() == h(SHORT_DIFF).hex()
    read = packets.parse_block_diff(h(SHORT_DIFF))
    assert (read.last, read.block, read.writes) == (Id(B, 0x1001), Id(B, 0), rows)


# of a diff of 230 bytes: where it begins, and what it holds of two edited fields
DIFF_HEAD = "44 e6 00 00 00 74 04 0b 00 00 20 72 01 0a 66 02 00 10 63 12"
DIFF_TEXT = "66 02 04 30 73 09 32 04 0b 66 72 6f 6d 20 62"
DIFF_COUNTER = "66 02 06 30 6e 0a 74 03 32 08 0a 74 03 32 0a 0b"


def sent_by_the_rule_of_go(end: Exchange, seen: dict[int, int]) -> list[bytes]:
    """D packets of a session without the index of changes, for a peer that has seen so much."""
    end.settle()
    end.replica.table.indexed = False
    session = end.open(bytes(10), 0)
    session.take(1 << 20)
    end.receive(session, packets.handshake(Id(A, seen[A]), 7, seen, bytes([1]) * 10), 0)
    return [packet for packet in session.take(1 << 20) if packet[0] | 32 == ord("d")]


def test_without_the_index_a_diff_holds_what_that_of_go_holds() -> None:
    """b edits a text and a counter of an object of a: both are sent, and beside them all of that
    block but the object itself and those registers that a wrote."""
    end = exchange(B, "beta")
    pairs = h("74 07 30 53 00 74 65 73 74") + h("74 07 31 02 4e 00 6e 75 6d")  # 0x12 bytes
    ten = h("74 04 30 46 00 46") + b"".join(
        h("74 05 31") + bytes([2 * n]) + letter + b"\0" + letter
        for n, letter in enumerate((bytes([byte]) for byte in b"IRSTNZEML"), 1)
    )
    for number, terms in ((1, pairs), (2, ten)):
        end.replica.receive(parse_change(packets.change("C", make_id(A, number, 0), ID0, terms)))
    for packet in (TEN_FIELDS, ITS_COUNTER, ITS_TEXT, MAP_OF_ALL):
        end.replica.receive(parse_change(h(packet)))
    seen = {0: 0x3000, A: 0x7000}
    of = make_id(A, 3, 0)
    end.replica.edit(of, [(4, "S", bare(2, 0, b"from b"))])
    end.replica.edit(of, [(6, "N", count_record(10, B))])

    made = sent_by_the_rule_of_go(end, seen)
    (diff,) = [one for one in made if packets.parse_block_diff(one).block == Id(A, 0)]
    long_form = b"D" + len(diff[2:]).to_bytes(4, "little") + diff[2:]  # Go writes each so
    assert long_form.startswith(h(DIFF_HEAD))
    assert h(DIFF_TEXT) in diff and h(DIFF_COUNTER) in diff
    read = packets.parse_block_diff(long_form)
    assert read == packets.parse_block_diff(diff)
    assert [(str(id), letter) for id, letter, _ in read.writes] == [
        *(("a-1", "C"), ("a-2", "C")),
        *(("a-3-4", "S"), ("a-3-6", "N"), ("a-3-7", "Z"), ("a-3-8", "E"), ("a-3-9", "M")),
        ("a-3-a", "L"),
    ]


def test_the_fields_of_an_object_of_go_read_as_go_prints_them() -> None:
    """Sets and counters both ways are printed there as the hexadecimal of their states."""
    end = exchange(B)
    for packet in (TEN_FIELDS, ITS_COUNTER, ITS_TEXT):
        end.replica.receive(parse_change(h(packet)))

    def shown(field: int, letter: str) -> str:
        state = end.replica.table.state(make_id(A, 3, field), letter)
        assert state is not None
        return state.hex() if letter in "ZE" else state_text(letter, state)

    assert ",".join(f"{letter}:{shown(field, letter)}" for field, letter in enumerate(
        "FIRSTNZEM", 1)) == (
        'F:3.500000,I:-11,R:ae-32,S:"world",T:term,N:8,Z:690432020a0d,'
        'E:690432000a02690432000a04730732000a666f7572,M:{1:2,"k":"v"}'
    )  # fmt: skip
