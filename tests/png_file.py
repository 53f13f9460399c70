"""PNG files as small as a test needs them."""

import base64
import struct
import zlib
from collections.abc import Callable

Colour = tuple[int, int, int]


def png_of(
    width: int,
    height: int,
    colour: Callable[[int, int], Colour],
    *,
    claims: tuple[int, int] | None = None,
) -> bytes:
    """The file; `claims`: the width and height that its head says instead of its own."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    rows = [b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height)]
    head = struct.pack(">IIBBBBB", *(claims or (width, height)), 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def url_of(data: bytes, kind: str = "png") -> str:
    """As a profile has it."""
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()
