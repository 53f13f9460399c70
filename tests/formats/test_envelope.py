"""The header's 128 bytes: every offset, and an identity that ignores the hop and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.checksum import crc32c
from appliance.base.layout import offset_of
from appliance.base.signature import CONTEXT_ENVELOPE, SIGNATURE_SIZE, SigningKey, verify
from appliance.formats import envelope
from appliance.formats.envelope import HEADER, Header
from appliance.formats.geometry import HEADER_SIZE

FIELDS = [
    ("magic", 0, 4),
    ("version", 4, 2),
    ("command", 6, 1),
    ("operation", 7, 1),
    ("checksum", 8, 4),
    ("epoch", 12, 4),
    ("nonce", 16, 8),
    ("view", 24, 4),
    ("aux", 28, 4),
    ("op", 32, 8),
    ("commit_num", 40, 8),
    ("cluster_id", 48, 16),
    ("sender_id", 64, 1),
    ("route", 65, 1),
    ("shard", 66, 2),
    ("body_size", 68, 4),
    ("digest", 72, 16),
    ("body_digest", 88, 16),
    ("area", 104, 24),
]
TRANSPORT = [(8, 12), (16, 24), (64, 66)]  # checksum, nonce, sender_id and route
CLUSTER = b"cluster of tests"
KEY = SigningKey(b"k" * 32)
COMMANDS = [
    "prepare",
    "prepare_ok",
    "commit",
    "start_view_change",
    "do_view_change",
    "start_view",
    "request",
    "reply",
    "ping",
    "pong",
    "ping_client",
    "pong_client",
    "end_epoch",
    "request_start_view",
    "request_headers",
    "request_prepare",
    "request_reply",
    "headers",
    "eviction",
    "request_chunk",
    "chunk",
]


def example(body: bytes = b"body") -> Header:
    return envelope.make(
        envelope.PREPARE,
        cluster=CLUSTER,
        shard=3,
        epoch=2,
        operation=16,
        view=7,
        aux=5,
        op=12,
        commit_num=10,
        area=b"\1" * 24,
        body=body,
    )


def test_every_offset_of_the_layout_is_pinned() -> None:
    found = [(name, offset_of(HEADER, name), HEADER[name].itemsize) for name in HEADER.names]
    assert found == FIELDS
    assert sum(size for _, _, size in FIELDS) == 128


def test_the_magic_reads_rgit_on_the_wire() -> None:
    assert example().raw[:4] == bytes.fromhex("52474954")


def test_commands_and_operations_have_their_numbers() -> None:
    assert envelope.COMMAND_NAMES == dict(enumerate(COMMANDS, start=1))
    assert (
        envelope.OPERATION_RESERVED,
        envelope.OPERATION_ROOT,
        envelope.OPERATION_REGISTER,
        envelope.OPERATION_RECONFIGURE,
        envelope.OPERATION_NOOP,
        envelope.OPERATION_MEMBER_CHANGE,
    ) == (0, 1, 2, 3, 4, 5)
    assert envelope.OPERATION_APPEND == 16


@given(
    command=st.integers(1, 21),
    operation=st.integers(0, 255),
    epoch=st.integers(0, 2**32 - 1),
    view=st.integers(0, 2**32 - 1),
    aux=st.integers(0, 2**32 - 1),
    op=st.integers(0, 2**64 - 1),
    commit_num=st.integers(0, 2**64 - 1),
    shard=st.integers(0, 2**16 - 1),
    area=st.binary(max_size=24),
    body=st.binary(max_size=300),
)
def test_a_header_is_read_back(command: int, body: bytes, **values: int) -> None:
    made = envelope.make(command, cluster=CLUSTER, body=body, **values)
    read = envelope.decode_stored(made.raw)
    assert read is not None
    area = values.pop("area")
    assert read.area == area.ljust(24, b"\0")
    for name, value in values.items():
        assert getattr(read, name) == value, name
    assert (read.command, read.cluster, read.body_size) == (command, CLUSTER, len(body))
    assert {name: getattr(read, name) for name in Header.__slots__} == {
        name: getattr(made, name) for name in Header.__slots__
    }
    assert envelope.body_valid(read, body)
    assert not envelope.body_valid(read, body + b"x")


def test_the_hop_may_change_and_every_other_byte_may_not() -> None:
    raw = example().raw
    for at in range(128):
        changed = bytearray(raw)
        changed[at] ^= 0x10
        hop = any(start <= at < end for start, end in TRANSPORT)
        read = envelope.decode(changed)
        assert (read is not None) == hop
        if read is not None:
            assert read.raw == raw
        assert envelope.decode_stored(changed) is None


def test_a_body_of_the_same_size_is_told_apart() -> None:
    assert envelope.body_valid(example(), b"body")
    assert not envelope.body_valid(example(), b"bode")
    assert envelope.body_valid(example(b""), b"")


@pytest.mark.parametrize("body", [b"", b"body"])
def test_a_frame_has_a_crc_of_all_and_a_signature_of_the_header_as_sent(body: bytes) -> None:
    header = example(body)
    parts = envelope.frame(header, body, sender=2, route=5, nonce=99, key=KEY)
    raw = b"".join(parts)
    assert len(raw) == HEADER_SIZE + SIGNATURE_SIZE + len(body)
    sent = raw[:128]
    assert sent[64:66] == bytes([2, 5])
    assert sent[16:24] == (99).to_bytes(8, "little")
    zeroed = sent[:8] + bytes(4) + sent[12:]
    assert sent[8:12] == crc32c(zeroed + body).to_bytes(4, "little")
    assert verify(KEY.public, CONTEXT_ENVELOPE, sent, raw[-64:])
    assert not verify(KEY.public, b"another use", sent, raw[-64:])
    assert envelope.decode(sent) is not None


def test_a_frame_between_processes_of_one_node_has_a_zero_signature() -> None:
    raw = b"".join(envelope.frame(example(), b"body", sender=255, route=0, nonce=0, key=None))
    assert raw[-64:] == bytes(64)


def test_the_root_and_the_blanks_of_an_op_are_the_same_everywhere() -> None:
    assert envelope.root(CLUSTER, 3).digest == envelope.root(CLUSTER, 3).digest
    assert envelope.root(CLUSTER, 3).digest != envelope.root(CLUSTER, 4).digest
    blank = envelope.reserved(17, CLUSTER, 3)
    assert (blank.operation, blank.op, blank.body_size) == (0, 17, 0)
    assert envelope.decode_stored(blank.raw) is not None
