#!/usr/bin/env python3
"""Verify a room's signed file with nothing of TigerChat: the file and the nodes' public keys.

    pip install PyNaCl crc32c
    python3 verify_room.py FILE HEX [HEX ...]

Prints one line for each message and a summary; ends with 1 and a reason when anything is wrong.
The layout is in formats.md: "Snapshot" and "Record".
"""

import hashlib
import struct
import sys

from crc32c import crc32c
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

HEAD = struct.Struct("<QH6s16sQQ")  # magic, version, zero, room, last number, count
MAGIC, RECORD, SIGNATURE = 0x0054_4947_534E_4150, 2240, 64
CONTEXT = b"tigerchat v1 snapshot"
ROOM_AT, SIZE_AT, BODY_AT, CRC_AT, HASH_AT, SEQ_AT = 0, 72, 76, 2124, 2128, 2224
CHECKED_FROM = 16  # the checksum is over what lies from here to itself; all is little-endian
SIZE, CRC, SEQ = struct.Struct("<I"), struct.Struct("<I"), struct.Struct("<Q")


class Wrong(Exception):
    """Why the file must not be trusted."""


def signed(raw: bytes, keys: list[str]) -> str:
    """The key that signed all of the file."""
    digest = hashlib.sha256(raw[:-SIGNATURE]).digest()
    for key in keys:
        try:
            VerifyKey(bytes.fromhex(key)).verify(CONTEXT + digest, raw[-SIGNATURE:])
            return key
        except (BadSignatureError, ValueError):
            continue
    raise Wrong("none of these keys signed this file as it is")


def records(raw: bytes) -> "list[bytes]":
    """Those of the file, each checked."""
    magic, version, zero, room, last, count = HEAD.unpack_from(raw)
    if (magic, version, zero) != (MAGIC, 1, bytes(6)):
        raise Wrong("not a snapshot of version 1")
    if len(raw) != HEAD.size + count * RECORD + SIGNATURE or not count:
        raise Wrong(f"{len(raw)} bytes cannot hold {count} records")
    starts = range(HEAD.size, HEAD.size + count * RECORD, RECORD)
    found = [raw[start : start + RECORD] for start in starts]
    before = None
    for record in found:
        check(record, room, before)
        before = record
    if SEQ.unpack_from(found[-1], SEQ_AT)[0] != last:
        raise Wrong("the last message is not the one that the head names")
    return found


def check(record: bytes, room: bytes, before: "bytes | None") -> None:
    """It is whole, of this room, and follows the one before: number and hash."""
    number = SEQ.unpack_from(record, SEQ_AT)[0]
    if CRC.unpack_from(record, CRC_AT)[0] != crc32c(record[CHECKED_FROM:CRC_AT]):
        raise Wrong(f"message {number} does not fit its checksum")
    if record[ROOM_AT : ROOM_AT + 16] != room:
        raise Wrong(f"message {number} is of another room")
    if before is not None:
        if number != SEQ.unpack_from(before, SEQ_AT)[0] + 1:
            raise Wrong(f"message {number} does not follow the one before it")
        if record[HASH_AT : HASH_AT + 32] != hashlib.sha256(before).digest():
            raise Wrong(f"message {number} is not chained to the one before it")
    elif number == 1 and record[HASH_AT : HASH_AT + 32] != bytes(32):
        raise Wrong("the first message of the room names one before it")


def main(path: str, *keys: str) -> int:
    with open(path, "rb") as file:
        raw = file.read()
    try:
        if len(raw) < HEAD.size + SIGNATURE:
            raise Wrong(f"{len(raw)} bytes are no snapshot")
        key, found = signed(raw, list(keys)), records(raw)
    except Wrong as error:
        print(f"{path}: {error}")
        return 1
    for record in found:
        size = SIZE.unpack_from(record, SIZE_AT)[0]
        body = record[BODY_AT : BODY_AT + size].decode(errors="replace")
        print(SEQ.unpack_from(record, SEQ_AT)[0], repr(body))
    print(f"{path}: whole; {len(found)} records, signed by {key[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
