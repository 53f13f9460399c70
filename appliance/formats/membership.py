"""Who belongs to a shard's group, and the operations that change it.

    configuration   who is what (`group`), since which op; rides in a start_view and a pong_client
    member_change   body of the operation that adds or removes a standby, after the session block
    reconfigure     body of the operation that orders the members anew and begins an epoch

A configuration is named by the op that made it: of two the one with the higher op is newer. Each
of the two operations is answered with one result whose code is a `Verdict`. The primary judges and
writes verdict and outcome into the prepare, so that whoever applies it needs no earlier state.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX
from appliance.formats.geometry import RESULT_SIZE
from appliance.formats.group import ID_SIZE, Configuration
from appliance.formats.session import RESULT_STRUCT

KIND_ADD, KIND_REMOVE = 1, 2
CONFIGURATION_SIZE, MEMBER_CHANGE_SIZE, RECONFIGURE_SIZE = 160, 256, 160

CONFIGURATION = np.dtype(
    [
        ("epoch", "<u4"),
        ("replica_count", "u1"),
        ("standby_count", "u1"),
        ("reserved_a", "V2"),
        ("op", "<u8"),  # that made it; 0 = format
        ("members", "V128"),  # 8 replica ids, by index, replicas before standbys
        ("reserved_b", "V16"),
    ]
)
assert CONFIGURATION.itemsize == CONFIGURATION_SIZE

MEMBER_CHANGE = np.dtype(
    [
        ("epoch", "<u4"),  # the present one
        ("kind", "u1"),  # 1 add, 2 remove
        ("verdict", "u1"),  # of the primary; 0 in requests
        ("replica_count", "u1"),
        ("standby_count", "u1"),  # after the change; 0 in requests
        ("reserved", "V8"),
        ("replica_id", "V16"),
        ("public_key", "V32"),  # Ed25519 of the node, for the record
        ("members", "V128"),  # after the change, by the primary; 0 in requests
        ("address", "V64"),  # host:port in UTF-8, zero padded, for the record
    ]
)
assert MEMBER_CHANGE.itemsize == MEMBER_CHANGE_SIZE

RECONFIGURE = np.dtype(
    [
        ("epoch", "<u4"),  # the one that begins
        ("verdict", "u1"),  # as above
        ("replica_count", "u1"),
        ("standby_count", "u1"),
        ("reserved_a", "V9"),
        ("members", "V128"),  # the new order
        ("reserved_b", "V16"),
    ]
)
assert RECONFIGURE.itemsize == RECONFIGURE_SIZE

_CONFIGURATION, _CHANGE = struct_of(CONFIGURATION), struct_of(MEMBER_CHANGE)
_RECONFIGURE = struct_of(RECONFIGURE)


class Verdict(IntEnum):
    """What became of a change; the code of its result."""

    OK = 0
    EPOCH_IN_PAST = 1
    EPOCH_IN_FUTURE = 2
    ALREADY_APPLIED = 3
    CONFLICT = 4  # another order of the same epoch was committed
    NO_OP = 5
    NOT_A_PERMUTATION = 6
    DUPLICATE_MEMBER = 7
    COUNT_CHANGED = 8
    STANDBY_NOT_READY = 9  # who shall be promoted lags, or still fetches a state
    IN_PROGRESS = 10  # the epoch before is not settled yet
    TOO_MANY_MEMBERS = 11
    NOT_A_STANDBY = 12  # a voting replica cannot be removed


@dataclass(frozen=True, slots=True)
class MemberChange:
    """Adds or removes one standby."""

    epoch: int
    kind: int
    replica_id: bytes
    public_key: bytes = bytes(32)
    address: str = ""
    verdict: Verdict = Verdict.OK
    replica_count: int = 0  # and the members after the change, once it was judged
    members: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """The members in a new order."""

    epoch: int
    replica_count: int
    members: tuple[bytes, ...]
    verdict: Verdict = Verdict.OK


def encode_configuration(value: Configuration) -> bytes:
    """160 bytes."""
    assert 1 <= value.replica_count <= REPLICAS_MAX and len(value.members) <= MEMBERS_MAX
    assert all(len(member) == ID_SIZE for member in value.members)
    return _CONFIGURATION.pack(
        value.epoch,
        value.replica_count,
        value.standby_count,
        b"",
        value.op,
        b"".join(value.members),
        b"",
    )


def decode_configuration(raw: bytes | memoryview) -> Configuration | None:
    """The configuration in 160 bytes; None when a rule is broken."""
    if len(raw) != CONFIGURATION_SIZE:
        return None
    epoch, replicas, standbys, pad_a, op, ids, pad_b = _CONFIGURATION.unpack(raw)
    members = _ids(ids, replicas, standbys)
    if members is None or any(pad_a) or any(pad_b) or len(set(members)) != len(members):
        return None
    return Configuration(epoch, op, replicas, members)


def _ids(raw: bytes, replicas: int, standbys: int) -> tuple[bytes, ...] | None:
    """So many ids, none zero and nothing behind them; None otherwise."""
    count = replicas + standbys
    if not 1 <= replicas <= REPLICAS_MAX or count > MEMBERS_MAX or any(raw[count * ID_SIZE :]):
        return None
    members = tuple(raw[i * ID_SIZE : (i + 1) * ID_SIZE] for i in range(count))
    return members if all(any(member) for member in members) else None


def encode_change(change: MemberChange) -> bytes:
    """256 bytes."""
    address = change.address.encode()[:64]
    standbys = len(change.members) - change.replica_count
    return _CHANGE.pack(
        change.epoch,
        change.kind,
        change.verdict,
        change.replica_count,
        standbys,
        b"",
        change.replica_id,
        change.public_key,
        b"".join(change.members),
        address,
    )


def decode_change(raw: bytes | memoryview) -> MemberChange | None:
    """The change in 256 bytes; None when it is malformed."""
    if len(raw) != MEMBER_CHANGE_SIZE:
        return None
    epoch, kind, verdict, replicas, standbys, pad, replica_id, key, ids, address = _CHANGE.unpack(
        raw
    )
    if kind not in (KIND_ADD, KIND_REMOVE) or any(pad) or not any(replica_id):
        return None
    members = _ids(ids, replicas, standbys) if replicas else () if not any(ids) else None
    if members is None or verdict > max(Verdict):
        return None
    text = address.rstrip(b"\0").decode(errors="replace")
    return MemberChange(epoch, kind, replica_id, key, text, Verdict(verdict), replicas, members)


def encode_reconfigure(value: Reconfigure) -> bytes:
    """160 bytes."""
    return _RECONFIGURE.pack(
        value.epoch,
        value.verdict,
        value.replica_count,
        len(value.members) - value.replica_count,
        b"",
        b"".join(value.members),
        b"",
    )


def decode_reconfigure(raw: bytes | memoryview) -> Reconfigure | None:
    """The new order in 160 bytes; None when it is malformed. Whether it fits is not judged here."""
    if len(raw) != RECONFIGURE_SIZE:
        return None
    epoch, verdict, replicas, standbys, pad_a, ids, pad_b = _RECONFIGURE.unpack(raw)
    members = _ids(ids, replicas, standbys)
    if members is None or any(pad_a) or any(pad_b) or verdict > max(Verdict):
        return None
    return Reconfigure(epoch, replicas, members, Verdict(verdict))


def encode_change_result(verdict: Verdict, timestamp: int) -> bytes:
    """64 bytes: the one result of a change."""
    return RESULT_STRUCT.pack(0, 0, timestamp, verdict, b"", b"")


def decode_change_result(results: bytes | memoryview) -> Verdict:
    """The verdict in a reply's results."""
    assert len(results) == RESULT_SIZE
    return Verdict(RESULT_STRUCT.unpack(results)[3])
