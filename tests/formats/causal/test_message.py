"""Messages of Scalable Data Sync: known bytes, round trips, caps, and anything at all."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base import limits
from appliance.base.errors import CausalRefused
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import CONTENT, EPHEMERAL, SYNC, HistoryEntry, Message
from appliance.formats.causal.message_id import message_id
from appliance.formats.causal.wire import LENGTH, fields_of

FILTER = bytes.fromhex("001000400100040001000400100040000000000000040040")
VECTORS = {
    "content": (
        Message(
            "alice",
            "m3",
            "chan",
            1700000000123,
            (HistoryEntry("m1", None, "alice"), HistoryEntry("m2", b"\1\2\3\4", "bob")),
            FILTER,
            content=b"hello",
        ),
        (
            "0a05616c69636512026d331a046368616e50fbd095ffbc315a0b0a026d311a05616c6963655a0f0a02"
            "6d321204010203041a03626f626218001000400100040001000400100040000000000000040040a201"
            "0568656c6c6f"
        ),
    ),
    "content without filter": (
        Message("alice", "m1", "0", 1700000000000, content=b"hi"),
        "0a05616c69636512026d311a01305080d095ffbc31a201026869",
    ),
    "sync": (
        Message(
            "bob", "sync-1", "chan", 1700000000456, (HistoryEntry("m3", None, "alice"),), FILTER
        ),
        (
            "0a03626f62120673796e632d311a046368616e50c8d395ffbc315a0b0a026d331a05616c6963656218"
            "001000400100040001000400100040000000000000040040"
        ),
    ),
    "ephemeral": (
        Message("alice", "e1", "chan", content=b"typing"),
        "0a05616c696365120265311a046368616ea20106747970696e67",
    ),
    "repair request": (
        Message(
            "carol",
            "m5",
            "chan",
            1700000001000,
            (HistoryEntry("m4", None, "bob"),),
            repair_requests=(
                HistoryEntry("m2", b"\1\2\3\4", "bob"),
                HistoryEntry("m1", None, "alice"),
            ),
            content=b"x",
        ),
        (
            "0a056361726f6c12026d351a046368616e50e8d795ffbc315a090a026d341a03626f626a0f0a026d32"
            "1204010203041a03626f626a0b0a026d311a05616c696365a2010178"
        ),
    ),
}

ids = st.text(min_size=1, max_size=40)
entries = st.builds(
    HistoryEntry, ids, st.none() | st.binary(max_size=32), st.none() | st.text(max_size=20)
)
lamports = st.integers(0, limits.CAUSAL_LAMPORT_MAX - 1)
messages = st.builds(
    Message,
    st.text(max_size=20),
    ids,
    st.text(max_size=20),
    lamports,
    st.lists(entries, max_size=12).map(tuple),
    st.none() | st.binary(min_size=1, max_size=64),
    st.lists(entries, max_size=3).map(tuple),
    st.none() | st.binary(min_size=1, max_size=200),
)


@pytest.mark.parametrize("name", VECTORS)
def test_known_bytes_are_made_and_read(name: str) -> None:
    message, encoded = VECTORS[name]
    assert sds.encode(message).hex() == encoded
    assert sds.decode(bytes.fromhex(encoded)) == message


def test_kinds_follow_from_what_is_present() -> None:
    kinds = {name: message.kind for name, (message, _) in VECTORS.items()}
    assert kinds["content"] == kinds["repair request"] == CONTENT
    assert (kinds["sync"], kinds["ephemeral"]) == (SYNC, EPHEMERAL)


def test_a_filter_or_content_of_no_bytes_is_never_sent() -> None:
    empty = Message("b", "s", "c", 1, bloom_filter=b"", content=b"")
    assert sds.encode(empty) == bytes.fromhex("0a0162" + "120173" + "1a0163" + "5001")


def test_a_filter_of_no_bytes_is_read_and_told_from_an_absent_one() -> None:
    read = sds.decode(bytes.fromhex("0a01621201731a016350016200"))
    assert read.bloom_filter == b""
    assert read.kind == SYNC


@given(messages)
def test_round_trip(message: Message) -> None:
    assert sds.decode(sds.encode(message)) == message


@given(messages)
def test_the_stored_form_differs_in_the_filter_only(message: Message) -> None:
    encoded = sds.encode(message)
    stored = replace(message, bloom_filter=None)
    assert sds.decode(sds.stored_form(encoded)) == stored
    assert sds.stored_form(encoded) == sds.encode(stored)


@given(messages, st.integers(21, 200), st.binary(max_size=30))
def test_unknown_fields_are_ignored_and_any_order_is_read(
    message: Message, number: int, value: bytes
) -> None:
    extra = _tag(number) + bytes([len(value)]) + value
    assert sds.decode(extra + sds.encode(message)) == message


def _tag(number: int) -> bytes:
    value = number << 3 | 2
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


def test_the_last_of_a_repeated_singular_field_wins() -> None:
    encoded = sds.encode(Message("a", "m1", "c", 5, content=b"x")) + bytes.fromhex("12026d32")
    assert sds.decode(encoded).message_id == "m2"


def refused(data: bytes) -> str:
    with pytest.raises(CausalRefused) as caught:
        sds.decode(data)
    return caught.value.reason


BASE = sds.encode(Message("a", "m", "c", 5, content=b"x"))


def test_what_is_wrong_is_refused_with_its_reason() -> None:
    entry = b"\x5a\x03\x0a\x01z"
    assert refused(b"") == "kind"
    assert refused(sds.encode(Message("a", "", "c", 5))) == "message_id"
    assert refused(BASE + b"\x08\x01") == "wire_type"
    assert refused(BASE + b"\x52\x01\x01") == "wire_type"
    assert refused(BASE + b"\x5a\x02\x08\x01") == "wire_type"
    assert refused(BASE + b"\x0b") == "wire_type"
    assert refused(BASE + b"\x12\x02\xff\xfe") == "malformed"
    assert refused(BASE + b"\x12\x7f") == "truncated"
    assert refused(BASE + b"\x50" + b"\xff" * 10 + b"\x01") == "varint"
    assert refused(BASE + b"\x50" + b"\xff" * 9 + b"\x7f") == "varint"
    assert refused(BASE + b"\x00\x01") == "field_number"
    assert refused(BASE + b"\x5a\x00") == "entry_id"
    assert refused(BASE + entry * (limits.CAUSAL_ENTRIES_MAX + 1)) == "entries"
    assert refused(BASE + b"\x6a\x03\x0a\x01z" * (limits.CAUSAL_REPAIRS_MAX + 1)) == "entries"
    assert refused(bytes(limits.CAUSAL_MESSAGE_SIZE_MAX + 1)) == "message_size"
    assert refused(BASE + b"\xf8\x01\x01" * 17) == "fields_unknown"
    assert refused(sds.encode(Message("a", "m", "c", (1 << 64) - 1))) == "lamport_bound"
    assert refused(sds.encode(Message("a", "m", "c", limits.CAUSAL_LAMPORT_MAX))) == "lamport_bound"
    assert refused(sds.encode(Message("a", "m" * 257, "c", 5))) == "message_id"
    long_hint = HistoryEntry("z", bytes(limits.CAUSAL_HINT_SIZE_MAX + 1))
    assert refused(sds.encode(Message("a", "m", "c", 5, (long_hint,)))) == "hint_size"
    big = bytes(limits.CAUSAL_FILTER_SIZE_MAX + 1)
    assert refused(sds.encode(Message("a", "m", "c", 5, bloom_filter=big))) == "filter_size"


def test_what_a_short_look_at_an_entry_lets_pass_has_an_id_a_sender_and_nothing_else() -> None:
    plain, drawn = 0, random.Random(3)
    for _ in range(20_000):
        data = bytearray(b"\x0a\x02id" + drawn.choice([b"", b"\x1a\x03bob", b"\x12\x01h"]))
        for _ in range(drawn.randrange(3)):
            data[drawn.randrange(len(data))] = drawn.choice([0, 1, 2, 3, 10, 18, 26, 128, 255])
        entry = bytes(data[: drawn.randrange(len(data) + 1)])
        if sds._is_plain_entry(entry):
            plain += 1
            found = [(number, wire_type) for number, wire_type, *_ in fields_of(entry)]
            assert found in ([(1, LENGTH)], [(1, LENGTH), (3, LENGTH)])
    assert plain > 1_000
    assert not sds._is_plain_entry(b"") and sds._is_plain_entry(b"\x0a\x00\x1a\x00")
    for cut_short in (b"\x0a\x85\x01", b"\x0a\x02id\x1a\x85\x01"):  # sizes of two octets
        assert not sds._is_plain_entry(cut_short + bytes(132))


def test_exactly_the_caps_are_read() -> None:
    full = Message(
        "a",
        "m" * limits.CAUSAL_ID_SIZE_MAX,
        "c",
        limits.CAUSAL_LAMPORT_MAX - 1,
        (HistoryEntry("z", bytes(limits.CAUSAL_HINT_SIZE_MAX)),) * limits.CAUSAL_ENTRIES_MAX,
        bytes(64),
        (HistoryEntry("z"),) * limits.CAUSAL_REPAIRS_MAX,
    )
    capped = Message(*[getattr(full, name) for name in full.__slots__])
    if len(sds.encode(capped)) > limits.CAUSAL_MESSAGE_SIZE_MAX:
        capped = Message("a", full.message_id, "c", full.lamport, full.causal_history[:900])
    assert sds.decode(sds.encode(capped)) == capped


def test_a_hundred_thousand_random_strings_raise_nothing_but_the_refusal() -> None:
    chance = random.Random(20261124)
    seeds = [bytes.fromhex(encoded) for _, encoded in VECTORS.values()]
    read = 0
    for number in range(100_000):
        if number % 2:
            data = chance.randbytes(chance.randrange(120))
        else:
            mutated = bytearray(chance.choice(seeds))
            for _ in range(chance.randrange(1, 5)):
                mutated[chance.randrange(len(mutated))] = chance.randrange(256)
            data = bytes(mutated[: chance.randrange(len(mutated) + 1)])
        try:
            sds.decode(data)
            read += 1
        except CausalRefused as error:
            assert error.reason
    assert read > 100


def test_ids_name_channel_sender_lamport_and_content() -> None:
    known = "12f64f7955682fef0721da9b69de543b3d4f584fe483d3396622d5d0e460e822"
    facts = {"channel": "chan", "sender": "alice", "lamport": 1700000000123, "content": b"hello"}
    assert message_id(**facts) == known
    for name, other in (("channel", "x"), ("sender", "x"), ("lamport", 1), ("content", b"x")):
        assert message_id(**(facts | {name: other})) != known
