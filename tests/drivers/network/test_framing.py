"""Frames in streams: every cut gives the same frames, memory follows what was checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.signature import CONTEXT_ENVELOPE, SIGNATURE_SIZE, SigningKey, verify
from appliance.drivers.network.framing import POOLED_MIN, FrameReader, Signer
from appliance.formats.envelope import PREPARE, make
from appliance.formats.geometry import HEADER_SIZE

SIZE_MAX = 1 << 20
KEY = SigningKey(b"k" * 32)
CLUSTER = b"c" * 16


def frame(op: int, body: bytes, signer: Signer) -> bytes:
    return signer.frame(make(PREPARE, cluster=CLUSTER, shard=0, op=op, body=body), body)


class Stream:
    """A reader and what it found."""

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        self.found: list[bytes] = []
        self.reader = FrameReader(size_max, lambda *parts: self.found.append(b"".join(parts)))

    def feed(self, data: bytes, piece: int) -> str:
        while data:
            space = self.reader.space()
            count = min(piece, len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            wrong = self.reader.advance(count)
            if wrong:
                return wrong
        return ""


@given(
    sizes=st.lists(st.sampled_from([0, 1, 63, 4096, 70_000, 200_000]), min_size=1, max_size=6),
    piece=st.sampled_from([1_000, 8_191, 65_536, 262_144]),
)
def test_frames_are_the_same_however_the_stream_is_cut(sizes: list[int], piece: int) -> None:
    signer = Signer(sender=0, key=None)
    frames = [frame(op, bytes([op + 1]) * size, signer) for op, size in enumerate(sizes)]
    stream = Stream()
    assert stream.feed(b"".join(frames), piece) == ""
    assert stream.found == frames


def test_frames_are_found_byte_by_byte() -> None:
    signer = Signer(sender=0, key=None)
    frames = [frame(op, b"x" * op, signer) for op in range(5)]
    stream = Stream()
    assert stream.feed(b"".join(frames), 1) == ""
    assert stream.found == frames


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    signer = Signer(sender=0, key=None)
    largest = bytes(frame(1, b"b" * (SIZE_MAX - HEADER_SIZE), signer))
    stream = Stream()
    assert stream.feed(largest + largest, 1 << 18) == ""
    assert stream.found == [largest, largest]
    too_large = frame(1, b"b" * (SIZE_MAX - HEADER_SIZE + 1), signer)
    assert stream.feed(too_large[:HEADER_SIZE], 1 << 18) == "length"


def test_memory_is_bounded_by_one_frame_whatever_is_announced() -> None:
    stream = Stream()
    before = len(stream.reader.space())
    lie = bytearray(frame(1, b"", Signer(sender=0, key=None))[:HEADER_SIZE])
    lie[68:72] = (1 << 31).to_bytes(4, "little")
    assert stream.feed(bytes(lie), HEADER_SIZE) == "length"
    assert len(stream.reader.space()) <= before
    honest = Stream()
    signer = Signer(sender=0, key=None)
    for op in range(20):
        assert honest.feed(frame(op, b"b" * (SIZE_MAX - HEADER_SIZE), signer), 100_000) == ""
        assert len(honest.reader.space()) <= SIZE_MAX + HEADER_SIZE + SIGNATURE_SIZE + (64 << 10)


@pytest.mark.parametrize(("at", "name"), [(0, "magic"), (3, "magic"), (4, "version")])
def test_a_stream_of_something_else_is_named(at: int, name: str) -> None:
    data = bytearray(frame(1, b"", Signer(sender=0, key=None)))
    data[at] ^= 1
    assert Stream().feed(bytes(data), 64) == name


@given(version=st.integers(2, 0xFFFF), rest=st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE))
def test_another_version_is_named_whatever_it_calls_a_size(version: int, rest: bytes) -> None:
    data = bytearray(rest)
    data[:4] = frame(1, b"", Signer(sender=0, key=None))[:4]
    data[4:6] = version.to_bytes(2, "little")
    stream = Stream()
    assert stream.feed(bytes(data), HEADER_SIZE) == "version"
    assert stream.reader.version == version


def test_a_broadcast_is_signed_over_its_header_as_sent() -> None:
    signer = Signer(sender=4, key=KEY, incarnation=9)
    header = make(PREPARE, cluster=CLUSTER, shard=0, op=1, body=b"body")
    sent = signer.frame(header, b"body", route=5)
    head, signature = sent[:HEADER_SIZE], sent[-SIGNATURE_SIZE:]
    assert verify(KEY.public, CONTEXT_ENVELOPE, head, signature)
    assert (head[64], head[65]) == (4, 5)
    assert int.from_bytes(head[16:24], "little") == (9 << 32) + 1


def test_nonces_grow_and_a_later_incarnation_starts_above() -> None:
    signer = Signer(sender=0, key=None, incarnation=7)
    nonces = [int.from_bytes(frame(1, b"", signer)[16:24], "little") for _ in range(3)]
    assert nonces == [(7 << 32) + 1, (7 << 32) + 2, (7 << 32) + 3]
    assert signer.left() == (1 << 32) - 1 - 3
    signer.renew(8)
    assert int.from_bytes(frame(1, b"", signer)[16:24], "little") == (8 << 32) + 1


def test_a_large_frame_gets_memory_that_no_other_frame_is_held_in() -> None:
    signer = Signer(sender=0, key=None)
    held = [frame(op, bytes([op]) * POOLED_MIN, signer) for op in range(20)]
    for op, large in enumerate(held):
        body = large[HEADER_SIZE : HEADER_SIZE + POOLED_MIN]
        assert body == bytes([op]) * POOLED_MIN
    assert len({id(large.obj) for large in held}) == len(held)


def test_the_memory_of_a_large_frame_is_used_again_once_nobody_holds_it() -> None:
    signer = Signer(sender=0, key=None)
    first = frame(1, b"a" * (POOLED_MIN + 1), signer)
    part, memory = first[HEADER_SIZE:][:4], id(first.obj)
    first.release()
    while_held = frame(2, b"b" * POOLED_MIN, signer)
    assert id(while_held.obj) != memory and part == b"aaaa"
    part.release()
    assert id(frame(3, b"c" * POOLED_MIN, signer).obj) == memory
