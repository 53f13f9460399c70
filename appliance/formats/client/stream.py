"""Frames on a stream of bytes: size u32, little-endian, then the frame."""

SIZE_SIZE = 4


def framed(payload: bytes) -> bytes:
    """A frame behind its size."""
    return len(payload).to_bytes(SIZE_SIZE, "little") + payload


def size_at(data: bytearray, start: int) -> int:
    """Bytes of the frame whose size stands at `start`; -1 while that has not come whole."""
    if len(data) - start < SIZE_SIZE:
        return -1
    return int.from_bytes(data[start : start + SIZE_SIZE], "little")
