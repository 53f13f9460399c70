"""The envelope: one header of 128 bytes for all commands, its identity, and the signed frame
around it.

    frame = header (128) | body | Ed25519 signature (64)

`digest` is the identity of a message: BLAKE2b-128 of the header with the transport fields
(checksum, nonce, sender_id, route) and itself zeroed. It covers `body_digest`, and in prepares
`parent`, hence the whole history. What belongs to one hop is no part of it: a prepare
resent or served years later is the same prepare.
"""

import struct

import numpy as np

from appliance.base.body_digest import blake3_128
from appliance.base.checksum import blake2b_128, crc32c
from appliance.base.layout import bytes_of, struct_of
from appliance.base.signature import CONTEXT_ENVELOPE, SIGNATURE_SIZE, SigningKey
from appliance.formats.geometry import HEADER_SIZE

MAGIC = 0x54494752  # on the wire 52 47 49 54
VERSION = 1
SENDER_CLIENT = 255

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u2"),
        ("command", "u1"),
        ("operation", "u1"),
        ("checksum", "<u4"),  # transport: CRC32C of header (this field zero) and body
        ("epoch", "<u4"),
        ("nonce", "<u8"),  # transport: of the sender, never used twice
        ("view", "<u4"),
        ("aux", "<u4"),  # aux: request number or log_view, by command
        ("op", "<u8"),
        ("commit_num", "<u8"),
        ("cluster_id", "V16"),
        ("sender_id", "u1"),  # transport: who sent this hop; 255 for clients
        ("route", "u1"),  # transport: of a ping, what the program of its sender knows
        ("shard", "<u2"),
        ("body_size", "<u4"),
        ("digest", "V16"),
        ("body_digest", "V16"),
        ("area", "V24"),  # by command
    ]
)
assert HEADER.itemsize == HEADER_SIZE
_STRUCT = struct_of(HEADER)
# of bytes that are known to begin with a header
digest_of, body_digest_of = bytes_of(HEADER, "digest"), bytes_of(HEADER, "body_digest")
_TRANSPORT = struct.Struct("<I")
_U64 = struct.Struct("<Q")

# Commands.
(
    PREPARE,
    PREPARE_OK,
    COMMIT,
    START_VIEW_CHANGE,
    DO_VIEW_CHANGE,
    START_VIEW,
    REQUEST,
    REPLY,
    PING,
    PONG,
    PING_CLIENT,
    PONG_CLIENT,
    END_EPOCH,
    REQUEST_START_VIEW,
    REQUEST_HEADERS,
    REQUEST_PREPARE,
    REQUEST_REPLY,
    HEADERS,
    EVICTION,
    REQUEST_CHUNK,
    CHUNK,
) = range(0x01, 0x16)
COMMAND_NAMES = {
    PREPARE: "prepare",
    PREPARE_OK: "prepare_ok",
    COMMIT: "commit",
    START_VIEW_CHANGE: "start_view_change",
    DO_VIEW_CHANGE: "do_view_change",
    START_VIEW: "start_view",
    REQUEST: "request",
    REPLY: "reply",
    PING: "ping",
    PONG: "pong",
    PING_CLIENT: "ping_client",
    PONG_CLIENT: "pong_client",
    END_EPOCH: "end_epoch",
    REQUEST_START_VIEW: "request_start_view",
    REQUEST_HEADERS: "request_headers",
    REQUEST_PREPARE: "request_prepare",
    REQUEST_REPLY: "request_reply",
    HEADERS: "headers",
    EVICTION: "eviction",
    REQUEST_CHUNK: "request_chunk",
    CHUNK: "chunk",
}
# what a client (sender 255) may send to a replica
COMMANDS_CLIENT = frozenset((REQUEST, PING_CLIENT))

# 0x40 to 0x4f: between processes of one node only (`local.py`); 0x50 to 0x5f: what an edge asks
# replicas of other nodes to read their log (`remote.py`).

# Operations of a request or prepare.
(
    OPERATION_RESERVED,
    OPERATION_ROOT,
    OPERATION_REGISTER,
    OPERATION_RECONFIGURE,
    OPERATION_NOOP,
    OPERATION_MEMBER_CHANGE,
) = range(6)
OPERATION_APPEND = 16  # the rooms' operation of requests: records
OPERATION_APPEND_SPARING = 17  # the same in a prepare, while disks are about to be full
OPERATION_APPEND_CLOCK = 18  # one clock record: from it on, records bear another time than before
OPERATION_APPEND_BINDING = 19  # as 16, in a prepare: a msg_id belongs to who used it first
OPERATIONS_APPEND = (
    OPERATION_APPEND,
    OPERATION_APPEND_SPARING,
    OPERATION_APPEND_CLOCK,
    OPERATION_APPEND_BINDING,
)
# of requests, beside changes of the group
OPERATIONS_REQUESTED = (
    OPERATION_REGISTER,
    OPERATION_NOOP,
    OPERATION_APPEND,
    OPERATION_APPEND_CLOCK,
)
# of prepares behind the root: what else a log may hold, a newer program wrote
OPERATIONS_KNOWN = frozenset(
    (
        OPERATION_REGISTER,
        OPERATION_RECONFIGURE,
        OPERATION_NOOP,
        OPERATION_MEMBER_CHANGE,
        *OPERATIONS_APPEND,
    )
)
# nothing is prepared behind one of these until it is applied
OPERATIONS_ALONE = (OPERATION_MEMBER_CHANGE, OPERATION_RECONFIGURE, OPERATION_APPEND_CLOCK)

_ZERO4 = bytes(4)
ZERO16 = bytes(16)
ZERO24 = bytes(24)
BODY_DIGEST_EMPTY = blake3_128(b"")


class Header:
    """A decoded header. Treat it as frozen: `raw` holds the canonical bytes, transport fields
    zeroed.
    """

    __slots__ = (
        "command",
        "operation",
        "epoch",
        "view",
        "aux",
        "op",
        "commit_num",
        "cluster",
        "shard",
        "body_size",
        "digest",
        "body_digest",
        "area",
        "raw",
    )

    command: int
    operation: int
    epoch: int
    view: int
    aux: int
    op: int
    commit_num: int
    cluster: bytes
    shard: int
    body_size: int
    digest: bytes
    body_digest: bytes
    area: bytes
    raw: bytes

    @property
    def parent(self) -> bytes:
        """Digest of the prepare before this one (prepares only)."""
        return self.area[:16]

    @property
    def viewstamp(self) -> int:
        """Epoch and view as one number: a view of a lower epoch never outranks."""
        return self.epoch << 32 | self.view

    @property
    def timestamp(self) -> int:
        """Microseconds since the epoch (prepares only)."""
        timestamp: int = _U64.unpack_from(self.area, 16)[0]
        return timestamp

    def __repr__(self) -> str:
        name = COMMAND_NAMES.get(self.command, hex(self.command))
        return (
            f"{name}(op={self.op} view={self.view} aux={self.aux} commit={self.commit_num} "
            f"operation={self.operation} {self.digest.hex()[:8]})"
        )


def by_command(counts: list[int]) -> dict[str, int]:
    """Counts of messages, by the names of those commands that came at all."""
    return {
        COMMAND_NAMES.get(command, f"local_{command:#x}"): count
        for command, count in enumerate(counts)
        if count
    }


class Message:
    """A header and its body, with who sent this hop; what cores exchange and drivers frame."""

    __slots__ = ("header", "body", "sender", "route")

    def __init__(
        self,
        header: Header,
        body: bytes | memoryview = b"",
        sender: int = SENDER_CLIENT,
        route: int = 0,
    ) -> None:
        self.header = header
        self.body = body
        self.sender = sender
        self.route = route

    def __repr__(self) -> str:
        return f"{self.sender}:{self.header!r}"


def make(
    command: int,
    *,
    cluster: bytes,
    shard: int,
    epoch: int = 0,
    operation: int = 0,
    view: int = 0,
    aux: int = 0,
    op: int = 0,
    commit_num: int = 0,
    area: bytes = ZERO24,
    body: bytes | bytearray | memoryview = b"",
) -> Header:
    """A new header for `body`, with its digests; `area` is padded with zeros to 24 bytes."""
    header = Header()
    header.command, header.operation, header.epoch, header.view, header.aux = (
        command,
        operation,
        epoch,
        view,
        aux,
    )
    header.op, header.commit_num, header.cluster, header.shard = op, commit_num, cluster, shard
    header.body_size = len(body)
    header.body_digest = blake3_128(body) if len(body) else BODY_DIGEST_EMPTY
    header.area = area if len(area) == 24 else area.ljust(24, b"\0")
    assert len(header.area) == 24
    blank = _STRUCT.pack(
        MAGIC,
        VERSION,
        command,
        operation,
        0,
        epoch,
        0,
        view,
        aux,
        op,
        commit_num,
        cluster,
        0,
        0,
        shard,
        header.body_size,
        ZERO16,
        header.body_digest,
        header.area,
    )
    header.digest = blake2b_128(blank)
    header.raw = blank[:72] + header.digest + blank[88:]
    return header


def decode(raw: bytes | memoryview) -> Header | None:
    """The header in 128 bytes, transport fields ignored; None unless magic, version and digest
    are right.
    """
    (
        magic,
        version,
        command,
        operation,
        _,
        epoch,
        _,
        view,
        aux,
        op,
        commit_num,
        cluster,
        _,
        _,
        shard,
        body_size,
        digest,
        body_digest,
        area,
    ) = _STRUCT.unpack(raw)
    if magic != MAGIC or version != VERSION:
        return None
    blank = _STRUCT.pack(
        magic,
        version,
        command,
        operation,
        0,
        epoch,
        0,
        view,
        aux,
        op,
        commit_num,
        cluster,
        0,
        0,
        shard,
        body_size,
        ZERO16,
        body_digest,
        area,
    )
    if blake2b_128(blank) != digest:
        return None
    header = Header()
    header.command, header.operation, header.epoch, header.view, header.aux = (
        command,
        operation,
        epoch,
        view,
        aux,
    )
    header.op, header.commit_num, header.cluster, header.shard = op, commit_num, cluster, shard
    header.body_size, header.digest, header.body_digest, header.area = (
        body_size,
        digest,
        body_digest,
        area,
    )
    header.raw = blank[:72] + digest + blank[88:]
    return header


def decode_stored(raw: bytes | memoryview) -> Header | None:
    """As `decode`, for headers at rest: the transport fields must be zero there."""
    header = decode(raw)
    return header if header is not None and header.raw == bytes(raw) else None


def body_valid(header: Header, body: bytes | memoryview) -> bool:
    """Whether `body` is the one that `header` names."""
    if len(body) != header.body_size:
        return False
    return header.body_digest == (blake3_128(body) if len(body) else BODY_DIGEST_EMPTY)


def checksum_of(head: bytes, body: bytes | memoryview) -> int:
    """The link's checksum that the frame of this header as sent, and this body, should have."""
    return crc32c(body, crc32c(head[12:], crc32c(_ZERO4, crc32c(head[:8]))))


def checksum_valid(head: bytes, body: bytes | memoryview) -> bool:
    """Whether the link's checksum of a frame is right: for whoever checks a frame by hand."""
    named: int = _TRANSPORT.unpack_from(head, 8)[0]
    return checksum_of(head, body) == named


def reserved(op: int, cluster: bytes, shard: int) -> Header:
    """Placeholder: a blank in a DVC's list (its op), or an empty slot on disk (op = slot index).

    All zero but magic, version, command, operation 0, op, cluster, shard and digest.
    """
    return make(PREPARE, cluster=cluster, shard=shard, operation=OPERATION_RESERVED, op=op)


def root(cluster: bytes, shard: int) -> Header:
    """The prepare at op 0: the same on every member."""
    return make(PREPARE, cluster=cluster, shard=shard, operation=OPERATION_ROOT, op=0)


def frame(
    header: Header,
    body: bytes | memoryview,
    *,
    sender: int,
    route: int,
    nonce: int,
    key: SigningKey | None,
) -> list[bytes | memoryview]:
    """The buffers of one frame, in order; with no key (Unix socket of one node) the signature is
    zero.
    """
    head = bytearray(header.raw)
    _U64.pack_into(head, 16, nonce)
    head[64] = sender
    head[65] = route
    _TRANSPORT.pack_into(head, 8, crc32c(body, crc32c(head)) if len(body) else crc32c(head))
    signature = bytes(SIGNATURE_SIZE) if key is None else key.sign(CONTEXT_ENVELOPE, bytes(head))
    return [bytes(head), body, signature] if len(body) else [bytes(head), signature]
