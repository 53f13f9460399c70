"""A piece of a snapshot, as the one value of InstallSnapshot."""

import struct
from dataclasses import dataclass

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_BLOCK_SIZE_MAX, FARM_SNAPSHOT_SIZE_MAX
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    decode_configuration,
    encode_configuration,
)
from appliance.formats.raft_legacy.frame import check_index

_HEAD = struct.Struct(">qqi")  # last index, its term, size of the configuration
_BLOCK = struct.Struct(">qi")  # offset, size of the block


@dataclass(slots=True, frozen=True)
class SnapshotBlock:
    """`index` and `term`: of the last entry that the snapshot covers; `offset`: in bytes."""

    index: int
    term: int
    configuration: Configuration
    offset: int
    block: bytes
    done: bool


def encode_snapshot_block(block: SnapshotBlock) -> bytes:
    configuration = encode_configuration(block.configuration)
    return b"".join(
        (
            _HEAD.pack(block.index, block.term, len(configuration)),
            configuration,
            _BLOCK.pack(block.offset, len(block.block)),
            block.block,
            b"\x01" if block.done else b"\x00",
        )
    )


def decode_snapshot_block(value: bytes) -> SnapshotBlock:
    """Of a whole value; every size must fit exactly."""
    if len(value) < _HEAD.size:
        raise FarmFrameError("block_malformed", f"a snapshot block of {len(value)} bytes")
    index, term, size = _HEAD.unpack_from(value)
    check_index("last index of a snapshot", index)
    check_index("last term of a snapshot", term)
    tail = len(value) - _HEAD.size - size
    if size < 0 or tail < _BLOCK.size + 1:
        raise FarmFrameError("block_malformed", f"a configuration of {size} bytes in a block")
    configuration = decode_configuration(value[_HEAD.size : _HEAD.size + size])
    offset, block_size = _BLOCK.unpack_from(value, _HEAD.size + size)
    if block_size != tail - _BLOCK.size - 1:
        sentence = f"a block of {block_size} bytes where {tail - _BLOCK.size - 1} are left"
        raise FarmFrameError("block_malformed", sentence)
    if block_size > FARM_BLOCK_SIZE_MAX:
        sentence = f"a block of {block_size} bytes, at most {FARM_BLOCK_SIZE_MAX} are allowed"
        raise FarmFrameError("block_too_large", sentence)
    if not 0 <= offset <= FARM_SNAPSHOT_SIZE_MAX - block_size:
        sentence = f"a snapshot that reaches {offset + block_size} bytes"
        raise FarmFrameError("snapshot_too_large", sentence)
    block = value[-1 - block_size : -1]
    return SnapshotBlock(index, term, configuration, offset, block, value[-1] == 1)
