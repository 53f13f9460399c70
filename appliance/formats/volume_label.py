"""The label of a volume on a raw device: what format decided and measured, beside each copy of the
superblock.

    0     digest       BLAKE2b-256 of all that follows
    32    magic        "TIGRLABL"
    40    version      u16
    42    size         u16, of the text
    44    text         the facts as JSON; zeros up to the sector

A file volume keeps the same facts in `volume.json`. A label is written once, at format.
"""

import json
import struct
from typing import Any

from appliance.base.checksum import blake2b_256
from appliance.base.json_text import parse_json
from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE

MAGIC = b"TIGRLABL"
VERSION = 1
LABEL_SIZE = SECTOR_SIZE
# After each copy of the superblock, which leaves the rest of its stride empty.
LABEL_OFFSETS = tuple(
    copy * SUPERBLOCK_COPY_STRIDE + SUPERBLOCK_COPY_SIZE for copy in range(SUPERBLOCK_COPIES)
)
_HEAD = struct.Struct("<32s8sHH")
_DIGEST_SIZE = 32
TEXT_SIZE_MAX = LABEL_SIZE - _HEAD.size


def encode_label(facts: dict[str, Any]) -> bytes:
    """4096 bytes."""
    text = json.dumps(facts, sort_keys=True).encode()
    assert len(text) <= TEXT_SIZE_MAX
    tail = _HEAD.pack(b"", MAGIC, VERSION, len(text))[_DIGEST_SIZE:] + text
    tail = tail.ljust(LABEL_SIZE - _DIGEST_SIZE, b"\0")
    return blake2b_256(tail) + tail


def decode_label(raw: bytes | memoryview | None) -> dict[str, Any] | None:
    """The facts of one copy; None when anything in it is wrong."""
    if raw is None or len(raw) != LABEL_SIZE:
        return None
    digest, magic, version, size = _HEAD.unpack_from(raw)
    if magic != MAGIC or version != VERSION or size > TEXT_SIZE_MAX:
        return None
    if blake2b_256(memoryview(raw)[_DIGEST_SIZE:]) != digest:
        return None
    try:
        facts = parse_json(bytes(raw[_HEAD.size : _HEAD.size + size]))
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
