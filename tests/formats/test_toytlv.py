"""Integers, ids, records and version vectors, against bytes of the Go implementation."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import IdOutOfBounds, PacketRefused, TextRefused
from appliance.base.limits import VECTOR_ENTRIES_MAX
from appliance.formats.toytlv.ids import (
    Id,
    first_field,
    id_of_key,
    key_of_id,
    make_id,
    pack_id,
    parse_id,
    typed_field,
    unpack_id,
    unzip_id,
    zip_id,
)
from appliance.formats.toytlv.integers import (
    unzip_float,
    unzip_int,
    unzip_pair,
    unzip_signed,
    zip_float,
    zip_int,
    zip_pair,
    zip_signed,
)
from appliance.formats.toytlv.records import (
    TINY,
    Splitter,
    record,
    records,
    take,
    tiny_record,
)
from appliance.formats.toytlv.version_vectors import (
    decode_vector,
    encode_vector,
    join,
    vector_text,
)
from tests.formats.go_records import long_record

WORDS = st.integers(0, (1 << 64) - 1)
# both sides of each border between widths
BORDERS = sorted(
    {0, 1, (1 << 64) - 1} | {(1 << bits) + d for bits in (8, 16, 32) for d in (-1, 0, 1)}
)


@pytest.mark.parametrize(
    ("number", "bytes_"),
    [(0, ""), (1, "01"), (0xFF, "ff"), (0x100, "0001"), (0xFFFFFF, "ffffff")],
)
def test_zipped_integers_are_those_of_go(number: int, bytes_: str) -> None:
    assert zip_int(number).hex() == bytes_
    assert unzip_int(bytes.fromhex(bytes_)) == number


@pytest.mark.parametrize(
    ("number", "bytes_"),
    [
        *((0, ""), (-1, "01"), (1, "02"), (63, "7e"), (64, "80"), (123, "f6")),
        *((256, "0002"), (345, "b202"), (-(1 << 63), "ff" * 8), (-11, "15"), (-14, "1b")),
    ],
)
def test_zipped_signed_integers_are_those_of_go(number: int, bytes_: str) -> None:
    assert zip_signed(number).hex() == bytes_
    assert unzip_signed(bytes.fromhex(bytes_)) == number


@pytest.mark.parametrize(
    ("number", "bytes_"),
    [
        *((0.0, ""), (1.0, "fc0f"), (-1.0, "fd0f"), (2.0, "02"), (0.5, "fc07"), (3.5, "0230")),
        *((12.25, "021401"), (1234.0, "02c912"), (3.1415, "0290845303c148f6")),
        (-0.1, "fd9d999999999959"),
    ],
)
def test_zipped_floats_are_those_of_go(number: float, bytes_: str) -> None:
    assert zip_float(number).hex() == bytes_
    assert unzip_float(bytes.fromhex(bytes_)) == number


@given(st.binary(min_size=8, max_size=8))
def test_every_pattern_of_a_float_survives(pattern: bytes) -> None:
    number = struct.unpack(">d", pattern)[0]
    again = struct.pack(">d", unzip_float(zip_float(number)))
    assert again == pattern or math.isnan(number)  # a NaN may be quietened by the machine


@pytest.mark.parametrize("number", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324])
def test_special_floats_survive(number: float) -> None:
    assert struct.pack(">d", unzip_float(zip_float(number))) == struct.pack(">d", number)


@pytest.mark.parametrize(
    ("big", "little", "bytes_"),
    [
        (0, 0, ""),
        (1, 0, "01"),
        (0, 1, "0001"),
        (0xA, 3, "0a03"),
        (0x100, 0, "000100"),
        (0x100, 5, "000105"),
        (0, 0x100, "00000001"),
        (0x10000, 1, "0000010001"),
        (0x10000, 0x100, "000001000001"),
        (0, 0x10000, "0000000000000100"),
        (0xB0B, 0xAF0003, "0b0b00000300af00"),
        (1 << 32, 0, "000000000100000000"),
        (1, 1 << 32, "01" + "00" * 7 + "0000000001000000"),
    ],
)
def test_zipped_pairs_are_those_of_go(big: int, little: int, bytes_: str) -> None:
    assert zip_pair(big, little).hex() == bytes_
    assert unzip_pair(bytes.fromhex(bytes_)) == (big, little)


def test_pairs_survive_on_both_sides_of_every_width() -> None:
    for big in BORDERS:
        for little in BORDERS:
            assert unzip_pair(zip_pair(big, little)) == (big, little)


@given(WORDS, WORDS)
def test_pairs_survive(big: int, little: int) -> None:
    assert unzip_pair(zip_pair(big, little)) == (big, little)


@pytest.mark.parametrize("size", [7, 11, 13, 14, 15, 17])
def test_a_pair_of_a_length_that_nobody_writes_is_refused(size: int) -> None:
    with pytest.raises(PacketRefused, match="bad_pair"):
        unzip_pair(bytes(size))


@given(WORDS)
def test_integers_survive(number: int) -> None:
    assert unzip_int(zip_int(number)) == number
    signed = number - (1 << 63)
    assert unzip_signed(zip_signed(signed)) == signed


def test_nine_bytes_are_no_integer() -> None:
    for decode in (unzip_int, unzip_signed, unzip_float):
        with pytest.raises(PacketRefused, match="bad_integer"):
            decode(bytes(9))


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zipped"),
    [
        ("0-0", ""),
        ("a-1", "0a000010"),
        ("0-2-1", "00000120"),
        ("a-0-3", "0a03"),
        ("ae-32", "ae00000000200300"),
        ("8e-82f0-32", "8e00000032002f08"),
        ("b0b-af0-3", "0b0b00000300af00"),
    ],
)
def test_zipped_ids_are_those_of_go(text: str, zipped: str) -> None:
    assert str(parse_id(text)) == text
    assert zip_id(parse_id(text)).hex() == zipped
    assert unzip_id(bytes.fromhex(zipped)) == parse_id(text)


def test_the_key_of_an_id_is_that_of_go_and_sorts_like_it() -> None:
    id = parse_id("8e-82f0-32")
    assert key_of_id(id).hex() == "000000000000008e00000000082f0032"
    assert id_of_key(key_of_id(id)) == id


def test_the_packed_form_is_that_of_the_first_protocol() -> None:
    id, letter = unpack_id(0x0008E000082F0032)
    assert (str(id), letter) == ("8e-82f0-1", "S")
    assert pack_id(id, "S") == 0x0008E000082F0032


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("8e-82f0-32", ("8e-82f0-1", "S")),
        ("8e-82f0-42", ("8e-82f0-2", "C")),
        ("1-1-ff9", ("1-1-7f", "Z")),
        ("8e-82f0", None),
        ("8e-82f0-1f", None),  # no number
        ("8e-82f0-3a", None),  # no letter
    ],
)
def test_the_field_that_the_first_protocol_means_by_an_id(
    text: str, field: tuple[str, str] | None
) -> None:
    found = first_field(parse_id(text))
    assert (found and (str(found[0]), found[1])) == field
    assert typed_field(parse_id(text)) == (found or (parse_id(text), ""))
    if found:
        packed = int(text.split("-")[0], 16) << 44 | parse_id(text).progress
        assert pack_id(*found) == packed and unpack_id(packed) == found


OWN_IDS = st.builds(
    make_id, st.integers(0, 0xFFFFF), st.integers(0, 0xFFFFFFFF), st.integers(0, 127)
)


@given(OWN_IDS, st.sampled_from("FIRSTNZEMCV"))
def test_an_id_of_ours_survives_in_every_form(id: Id, letter: str) -> None:
    assert parse_id(str(id)) == id
    assert parse_id(str(id).upper()) == id
    assert unzip_id(zip_id(id)) == id
    assert id_of_key(key_of_id(id)) == id
    assert unpack_id(pack_id(id, letter)) == (id, letter if id.field else "")
    assert pack_id(id, letter) < 1 << 64


@given(st.lists(OWN_IDS, min_size=2, max_size=2))
def test_keys_and_packed_ids_sort_as_ids_do(pair: list[Id]) -> None:
    one, two = pair
    assert (key_of_id(one) < key_of_id(two)) == (one < two)
    assert (pack_id(one) < pack_id(two)) == (one < two)


def test_one_number_alone_is_a_field() -> None:
    assert parse_id("5") == Id(0, 5)


@pytest.mark.parametrize("text", ["", "-", "a-", "g-1", "1-2-3-4", "1 -2", "+1-2", "0x1-2", "1-_1"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(TextRefused):
        parse_id(text)


@pytest.mark.parametrize("text", ["100000-1", "1-100000000", "1-1-1000", "f" * 100])
def test_an_id_wider_than_its_text_form_is_refused(text: str) -> None:
    with pytest.raises(IdOutOfBounds):
        parse_id(text)


@pytest.mark.parametrize("id", [Id(1 << 20, 0), Id(1, 1 << 44), Id(1, 128)])
def test_an_id_outside_of_the_bounds_has_no_packed_form(id: Id) -> None:
    with pytest.raises(IdOutOfBounds):
        pack_id(id)


@pytest.mark.parametrize("word", [-1, 1 << 64, 31, 1, 1 << 5 | 26])
def test_a_word_that_packs_no_id_is_refused(word: int) -> None:
    with pytest.raises(IdOutOfBounds):
        unpack_id(word)


def test_a_progress_wider_than_52_bits_is_refused() -> None:
    with pytest.raises(PacketRefused, match="bad_id"):
        unzip_id(zip_pair(1, 1 << 52))


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "bytes_"),
    [
        (tiny_record("T", b"\x08\x05"), "320805"),
        (record("A", b"A"), "610141"),
        (tiny_record("B", b"BB"), "324242"),
        (record("S", b""), "7300"),
        (tiny_record("S", b""), "30"),
        (record("S", bytes(255)), "73ff" + "00" * 255),
        (record("S", bytes(256)), "5300010000" + "00" * 256),
        (tiny_record("S", bytes(9)), "39" + "00" * 9),
        (tiny_record("S", bytes(10)), "730a" + "00" * 10),
        (
            record(
                "M",
                tiny_record("F", zip_id(parse_id("b0b-af0-3")))
                + record("S", b"0Key")
                + record("S", b"0Value"),
            ),
            "6d17380b0b00000300af007304304b6579730630" + "56616c7565",
        ),
    ],
)
def test_records_are_those_of_go(made: bytes, bytes_: str) -> None:
    assert made.hex() == bytes_


@pytest.mark.parametrize("size", [0, 9, 10, 255, 256, 70_000])
def test_records_survive_at_the_borders_of_their_headers(size: int) -> None:
    body = b"x" * size
    for made in (record("S", body), long_record("S", body)):
        assert list(records(made)) == [(ord("S"), body)]
    tiny = TINY if size <= 9 else ord("S")
    assert list(records(tiny_record("S", body))) == [(tiny, body)]


@given(
    st.lists(st.tuples(st.sampled_from("ASZ"), st.binary(max_size=300)), max_size=6),
    st.integers(1, 50),
)
def test_a_stream_cut_anywhere_gives_the_same_records(
    parts: list[tuple[str, bytes]], step: int
) -> None:
    made = [record(letter, body) for letter, body in parts]
    stream = b"".join(made)
    splitter = Splitter(1 << 20)
    found = []
    for at in range(0, len(stream), step):
        found += splitter.feed(stream[at : at + step])
    assert found == made
    assert splitter.held == 0


def test_a_stream_cut_at_every_place_gives_the_same_records() -> None:
    made = [tiny_record("T", b"ab"), record("S", bytes(20)), long_record("D", bytes(300))]
    stream = b"".join(made)
    for at in range(len(stream) + 1):
        splitter = Splitter(1000)
        assert splitter.feed(stream[:at]) + splitter.feed(stream[at:]) == made


def test_whole_records_before_a_broken_byte_are_not_given_twice() -> None:
    splitter = Splitter(100)
    with pytest.raises(PacketRefused, match="bad_record"):
        splitter.feed(record("A", b"1") + b"\xff")


@pytest.mark.parametrize("first", [0x00, 0x2F, 0x3A, 0x40, 0x5B, 0x60, 0x7B, 0xFF])
def test_a_byte_that_begins_no_record_is_refused(first: int) -> None:
    with pytest.raises(PacketRefused, match="bad_record"):
        take(bytes([first]), 0, 1)
    with pytest.raises(PacketRefused, match="bad_record"):
        Splitter(100).feed(bytes([first]))


def test_a_record_over_the_bound_is_refused_by_its_header() -> None:
    assert Splitter(256).feed(record("S", bytes(256)))
    with pytest.raises(PacketRefused, match="record_too_large"):
        Splitter(256).feed(record("S", bytes(257))[:5])


@given(st.binary(max_size=40))
def test_any_bytes_are_records_or_refused(data: bytes) -> None:
    for decode in (lambda d: list(records(d)), decode_vector, unzip_id, Splitter(1000).feed):
        try:
            decode(data)
        except PacketRefused:
            pass


# --- version vectors ------------------------------------------------------------------------------


def test_a_vector_is_that_of_go() -> None:
    vector = {0: 0x3000, 0xA: 3}
    assert encode_vector(vector).hex() == "76040000003076020a03"
    assert decode_vector(encode_vector(vector)) == vector
    assert vector_text({0: 3, 0xA: 3, 0xB: 3}) == "0-0-3,a-0-3,b-0-3"


def test_an_entry_with_nothing_seen_differs_from_no_entry() -> None:
    assert encode_vector({0: 0}).hex() == "7600"
    assert encode_vector({0xB: 0}).hex() == "76010b"
    assert decode_vector(bytes.fromhex("760076010b")) == {0: 0, 0xB: 0}
    assert decode_vector(b"") == {}


@given(*[st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 51), max_size=8)] * 2)
def test_joined_vectors_hold_the_newest_of_both(one: dict[int, int], two: dict[int, int]) -> None:
    both = dict(one)
    join(both, two)
    assert both == {s: max(one.get(s, -1), two.get(s, -1)) for s in one.keys() | two.keys()}
    assert decode_vector(encode_vector(one) + encode_vector(two)) == both


def test_a_vector_of_too_many_sources_is_refused() -> None:
    most = dict.fromkeys(range(VECTOR_ENTRIES_MAX), 1)
    assert decode_vector(encode_vector(most)) == most
    with pytest.raises(PacketRefused, match="vector_too_large"):
        decode_vector(encode_vector(most | {VECTOR_ENTRIES_MAX: 1}))
