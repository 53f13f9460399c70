"""Frames in a stream: found in what arrives, one copy for each; signed for what leaves."""

from collections.abc import Callable, Sequence

from appliance.base.layout import picked
from appliance.base.limits import KIB
from appliance.base.signature import SIGNATURE_SIZE, SigningKey
from appliance.formats.envelope import HEADER, MAGIC, VERSION, Header, frame
from appliance.formats.geometry import HEADER_SIZE

Buffer = bytes | bytearray | memoryview
OnFrame = Callable[[bytes, bytes, bytes], None]  # header as sent, body, signature

_ANNOUNCED = picked(HEADER, "magic", "version", "body_size")
_SPACE_MIN = 32 * KIB  # offered to a read at least: two records of TLS
_CAPACITY = 2 * _SPACE_MIN  # of a fresh reader
_NONCES_PER_INCARNATION = 1 << 32
POOLED_MIN = 32 * KIB  # bytes of a body whose frame gets memory that was used before
BUFFERS_KEPT_MAX = 4  # of one signer, each of its largest frame so far


class FrameReader:
    """Finds the frames of one stream in whatever pieces it arrives.

    The buffer starts small and grows to one frame of the largest size plus what one read may add;
    an announced size is checked before memory is given, and the version before that: what another
    one calls a size nobody knows. Bodies are copied out once, so that they
    may live as long as anybody wants.
    """

    __slots__ = ("_on_frame", "_size_max", "_view", "_start", "_end", "version")

    def __init__(self, message_size_max: int, on_frame: OnFrame) -> None:
        self._on_frame, self._size_max = on_frame, message_size_max
        self._view = memoryview(bytearray(_CAPACITY))
        self._start = self._end = 0  # what has arrived and is not parsed
        self.version = VERSION  # another one's, once that has ended the stream

    def release(self) -> None:
        """The stream has ended: give the memory back now, not when cycles are collected."""
        self._view = memoryview(b"")
        self._on_frame = _ended
        self._start = self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._end :]

    def advance(self, count: int) -> str:
        """Parse after `count` bytes were put into `space()`. Not "" = the check that ended this
        stream."""
        self._end += count
        assert self._end <= len(self._view)
        start, end, view = self._start, self._end, self._view
        needed = HEADER_SIZE
        while end - start >= HEADER_SIZE:
            magic, version, body_size = _ANNOUNCED.unpack_from(view, start)
            if magic != MAGIC:
                return "magic"
            if version != VERSION:
                self.version = version
                return "version"
            if body_size > self._size_max - HEADER_SIZE:
                return "length"
            needed = HEADER_SIZE + body_size + SIGNATURE_SIZE
            if end - start < needed:
                break
            body_end = start + HEADER_SIZE + body_size
            self._on_frame(
                bytes(view[start : start + HEADER_SIZE]),
                bytes(view[start + HEADER_SIZE : body_end]),
                bytes(view[body_end : body_end + SIGNATURE_SIZE]),
            )
            start += needed
            needed = HEADER_SIZE
        self._make_room(start, end, needed)
        return ""

    def _make_room(self, start: int, end: int, needed: int) -> None:
        """Move what is left to the front, or to a larger buffer, when the rest of its frame would
        not fit."""
        view, left = self._view, end - start
        if left == 0:
            self._start = self._end = 0
            return
        if start + needed > len(view) or len(view) - end < _SPACE_MIN:
            if needed + _SPACE_MIN > len(view):
                self._view = memoryview(bytearray(needed + _SPACE_MIN))
            self._view[:left] = bytes(view[start:end])
            start, end = 0, left
        self._start, self._end = start, end


def _ended(head: bytes, body: bytes, signature: bytes) -> None:
    raise AssertionError("a frame after the end of its stream")


class FrameBuffers:
    """Memory for large frames, used again as soon as nobody holds the frame that is in it.

    Where the heap gives back what is large (`knobs.return_memory`), each new frame of a megabyte
    would be mapped, zeroed and unmapped page by page, which costs more than to fill it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def join(self, parts: Sequence[bytes | memoryview]) -> memoryview:
        """One buffer of them all; it lives as long as anybody wants."""
        size = sum(map(len, parts))
        kept = self._kept
        buffer = next((old for old in kept if len(old) >= size and _is_free(old)), None)
        if buffer is None:
            kept[:] = [old for old in kept if not _is_free(old)][: BUFFERS_KEPT_MAX - 1]
            buffer = bytearray(size)
            kept.append(buffer)
        view, end = memoryview(buffer), 0
        for part in parts:
            start, end = end, end + len(part)
            view[start:end] = part
        return view[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is left: else it could not change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


class Signer:
    """Turns messages into frames of one sender; without a key (within a node) the signature is
    zero.

    Invariant: no nonce is used twice; they grow, from `incarnation << 32` on.
    """

    __slots__ = ("sender", "_key", "_nonce", "_nonce_end", "_buffers")

    def __init__(self, *, sender: int, key: SigningKey | None, incarnation: int = 0) -> None:
        self.sender, self._key = sender, key
        self._buffers = FrameBuffers()
        self.renew(incarnation)

    def renew(self, incarnation: int) -> None:
        """Start the nonces of a later incarnation, which must be durable already."""
        self._nonce = incarnation * _NONCES_PER_INCARNATION
        self._nonce_end = self._nonce + _NONCES_PER_INCARNATION - 1

    @property
    def nonce(self) -> int:
        """The last one that was used."""
        return self._nonce

    def left(self) -> int:
        """Frames that may still be made under this incarnation."""
        return self._nonce_end - self._nonce

    def frame(self, header: Header, body: Buffer, route: int = 0) -> bytes | memoryview:
        """One frame with the next nonce: the same bytes for everybody it is sent to."""
        assert self._nonce < self._nonce_end
        self._nonce += 1
        body = body if isinstance(body, (bytes, memoryview)) else memoryview(body)
        parts = frame(
            header, body, sender=self.sender, route=route, nonce=self._nonce, key=self._key
        )
        return b"".join(parts) if len(body) < POOLED_MIN else self._buffers.join(parts)
