"""Records with the long header whatever their size, as Go writes D and V; ours are as short as they
can be, and both are read."""

import struct


def long_record(letter: str, body: bytes) -> bytes:
    return struct.pack("<cI", letter.encode(), len(body)) + body
