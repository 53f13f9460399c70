"""The 301 cases of the Autobahn test suite that need no compression, under its own numbers.

What a client sends to a server that echoes messages, and what has to come back: sections 1 (data),
2 (pings), 3 (reserved bits), 4 (reserved opcodes), 5 (fragments), 6 (UTF-8), 7 (closing), 9 (large
and many) and 10 (a message that is sent in parts by itself).

`Heard(n)` among what is sent waits until n messages and pongs have come.
"""

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
CASE_COUNT = 301
NORMAL = (1000).to_bytes(2, "big")
BROKEN, NOT_UTF8 = frozenset({1002}), frozenset({1007})
KIB, MIB = 1 << 10, 1 << 20
_MASKS = random.Random(6455)


class Heard(NamedTuple):
    """Go on when so many messages and pongs have come."""

    count: int


class Event(NamedTuple):
    """A message or a pong that comes."""

    opcode: int
    data: bytes


class Case(NamedTuple):
    """`fails`: how the server ends it, if not the client does with `closing`, which is answered
    alike; 0: it just ends the connection. `breaks_off`: not all need to come."""

    id: str
    sent: Iterable[bytes | Heard]
    heard: tuple[Event, ...] = ()
    fails: frozenset[int] = frozenset()
    closing: bytes = NORMAL
    breaks_off: bool = False


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, reserved: int = 0) -> bytes:
    """As a client sends it: masked."""
    size = len(data)
    head = bytes([fin << 7 | reserved << 4 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    mask = _MASKS.randbytes(4)
    masks = int.from_bytes(mask * (size // 4 + 1), "big") >> 8 * (4 - size % 4)
    return head + mask + (int.from_bytes(data, "big") ^ masks).to_bytes(size, "big")


def chopped(data: bytes, size: int = 1) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def in_parts(opcode: int, data: bytes, size: int) -> Iterator[bytes]:
    """One message in fragments of that size."""
    for start in range(0, len(data), size):
        yield frame(
            CONT if start else opcode, data[start : start + size], fin=start + size >= len(data)
        )


def parts(opcode: int, *pieces: bytes) -> tuple[bytes, ...]:
    """One message in these fragments."""
    last = len(pieces) - 1
    return tuple(
        frame(CONT if index else opcode, piece, fin=index == last)
        for index, piece in enumerate(pieces)
    )


def every_case(scale: int = 1) -> Iterator[Case]:
    """All of them; what section 9 sends is divided by `scale`."""
    yield from _data()
    yield from _pings()
    yield from _reserved_bits()
    yield from _reserved_opcodes()
    yield from _fragments()
    yield from _utf8_fragments()
    yield from _utf8()
    yield from _closings()
    yield from _codes()
    yield from _large(scale)
    yield from _many(scale)
    text = b"*" * 65536
    yield Case("10.1.1", in_parts(TEXT, text, 1300), (Event(TEXT, text),))


def _data() -> Iterator[Case]:
    for number, opcode, letter in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for index, size in enumerate((0, 125, 126, 127, 128, 65535, 65536, 65536), 1):
            whole = frame(opcode, letter * size)
            sent = chopped(whole, 997) if index == 8 else (whole,)
            yield Case(f"1.{number}.{index}", sent, (Event(opcode, letter * size),))


def _pings() -> Iterator[Case]:
    text, other, long = b"Hello, world!", b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125
    for index, payload in enumerate((b"", text, other, long), 1):
        yield Case(f"2.{index}", (frame(PING, payload),), (Event(PONG, payload),))
    yield Case("2.5", (frame(PING, b"\xfe" * 126),), fails=BROKEN)
    yield Case("2.6", chopped(frame(PING, long)), (Event(PONG, long),))
    yield Case("2.7", (frame(PONG),))
    yield Case("2.8", (frame(PONG, b"unsolicited pong payload"),))
    pong, payload = frame(PONG, b"unsolicited pong payload"), b"ping payload"
    yield Case("2.9", (pong, frame(PING, payload)), (Event(PONG, payload),))
    payloads = [b"payload-%d" % index for index in range(10)]
    pongs = tuple(Event(PONG, payload) for payload in payloads)
    pings = b"".join(frame(PING, payload) for payload in payloads)
    yield Case("2.10", (pings,), pongs)
    yield Case("2.11", chopped(pings), pongs)


def _reserved_bits() -> Iterator[Case]:
    text, other = b"Hello, world!", b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
    echoed = (Event(TEXT, text),)
    yield Case("3.1", (frame(TEXT, text, reserved=1),), fails=BROKEN)
    for number in (2, 3, 4):
        frames = frame(TEXT, text), frame(TEXT, text, reserved=number), frame(PING)
        sent = {2: (b"".join(frames),), 3: frames, 4: chopped(b"".join(frames))}[number]
        yield Case(f"3.{number}", sent, echoed, BROKEN)
    yield Case("3.5", (frame(BINARY, other, reserved=5),), fails=BROKEN)
    yield Case("3.6", (frame(PING, text, reserved=6),), fails=BROKEN)
    yield Case("3.7", (frame(CLOSE, NORMAL, reserved=7),), fails=BROKEN)


def _reserved_opcodes() -> Iterator[Case]:
    text, unknown = b"Hello, world!", b"reserved opcode payload"
    for number, first in ((1, 3), (2, 11)):
        yield Case(f"4.{number}.1", (frame(first),), fails=BROKEN)
        yield Case(f"4.{number}.2", (frame(first + 1, unknown),), fails=BROKEN)
        for index in (3, 4, 5):
            payload = b"" if index == 3 else unknown
            frames = frame(TEXT, text), frame(first + index - 1, payload), frame(PING)
            sent = chopped(b"".join(frames)) if index == 5 else (b"".join(frames),)
            yield Case(f"4.{number}.{index}", sent, (Event(TEXT, text),), BROKEN)


def _ways(first: int, *frames: bytes) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Three cases: all at once, frame by frame, byte by byte."""
    for index, sent in enumerate(((b"".join(frames),), frames, chopped(b"".join(frames)))):
        yield f"5.{first + index}", sent


def _fragments() -> Iterator[Case]:
    one, two = b"fragment1", b"fragment2"
    whole, ping = Event(TEXT, one + two), b"ping payload"
    yield Case("5.1", parts(PING, one, two), fails=BROKEN)
    yield Case("5.2", parts(PONG, one, two), fails=BROKEN)
    for name, sent in _ways(3, *parts(TEXT, one, two)):
        yield Case(name, sent, (whole,))
    first, last = parts(TEXT, one, two)
    for name, sent in _ways(6, first, frame(PING, ping), last):
        yield Case(name, sent, (Event(PONG, ping), whole))
    hello = frame(TEXT, b"Hello, world!")
    for start, fin in ((9, True), (12, False)):
        stray = frame(CONT, b"non-continuation payload", fin=fin)
        for name, sent in _ways(start, stray, hello):
            yield Case(name, sent, fails=BROKEN)
    stray = frame(CONT, b"fragment3", fin=False)
    yield Case("5.15", (first + last + stray + frame(TEXT, b"fragment4"),), (whole,), BROKEN)
    for name, fin in (("5.16", False), ("5.17", True)):
        yield Case(name, (frame(CONT, one, fin=fin), first, last) * 2, fails=BROKEN)
    yield Case("5.18", (first, frame(TEXT, two)), fails=BROKEN)
    pieces = [b"fragment%d" % index for index in range(1, 6)]
    a, b, c, d, e = parts(TEXT, *pieces)
    pongs = Event(PONG, b"pongme 1!"), Event(PONG, b"pongme 2!")
    pings = [frame(PING, pong.data) for pong in pongs]
    heard = (*pongs, Event(TEXT, b"".join(pieces)))
    yield Case("5.19", (a + b + pings[0], Heard(1), c + d + pings[1] + e), heard)
    yield Case("5.20", (a, b, pings[0], Heard(1), c, d, pings[1], Heard(2), e), heard)


_GREEK = "\u03ba\u1f79\u03c3\u03bc\u03b5".encode()  # the second has an accent of its own
_LATIN = "Hello-µ@ßöäüàá-UTF-8!!".encode()


def _utf8_fragments() -> Iterator[Case]:
    yield Case("6.1.1", (frame(TEXT),), (Event(TEXT, b""),))
    yield Case("6.1.2", parts(TEXT, b"", b"", b""), (Event(TEXT, b""),))
    middle = b"middle frame payload"
    yield Case("6.1.3", parts(TEXT, b"", middle, b""), (Event(TEXT, middle),))
    latin = (Event(TEXT, _LATIN),)
    yield Case("6.2.1", (frame(TEXT, _LATIN),), latin)
    cut = len("Hello-µ@ßöä".encode())
    yield Case("6.2.2", parts(TEXT, _LATIN[:cut], _LATIN[cut:]), latin)
    yield Case("6.2.3", in_parts(TEXT, _LATIN, 1), latin)
    yield Case("6.2.4", in_parts(TEXT, _GREEK, 1), (Event(TEXT, _GREEK),))
    surrogate = _GREEK + b"\xed\xa0\x80" + b"edited"
    yield Case("6.3.1", (frame(TEXT, surrogate),), fails=NOT_UTF8)
    yield Case("6.3.2", in_parts(TEXT, surrogate, 1), fails=NOT_UTF8)
    wholes = _GREEK, b"\xf4\x90\x80\x80", b"edited"
    splits = _GREEK + b"\xf4", b"\x90", b"\x80\x80edited"
    yield Case("6.4.1", parts(TEXT, *wholes), fails=NOT_UTF8)
    yield Case("6.4.2", parts(TEXT, *splits), fails=NOT_UTF8)
    for name, pieces in (("6.4.3", wholes), ("6.4.4", splits)):
        whole, end = frame(TEXT, b"".join(pieces)), 6 + len(pieces[0])
        next_end = end + len(pieces[1])
        yield Case(name, (whole[:end], whole[end:next_end], whole[next_end:]), fails=NOT_UTF8)


def _incomplete() -> list[bytes]:
    """Sequences without their last byte."""
    return [bytes.fromhex(one) for one in
            "c0 e080 f08080 f8808080 fc80808080 df efbf f7bfbf fbbfbfbf fdbfbfbfbf".split()
            ]  # fmt: skip


def _utf8_sequences() -> Iterator[list[bytes]]:
    """By section, from 6.5 on: after Markus Kuhn's file for stress of decoders."""
    yield [b"hello" + one.encode() + b"world" for one in ("$", "¢", "€", "\U00024b62")] + [_GREEK]
    yield [_GREEK[:size] for size in range(1, len(_GREEK) + 1)]
    yield [one.encode() for one in ("\0", "\x80", "\u0800", "\U00010000")]
    yield [bytes.fromhex(one) for one in ("f888808080", "fc8480808080")]
    yield [bytes.fromhex(one) for one in ("7f", "dfbf", "efbfbf", "f48fbfbf")]
    yield [bytes.fromhex(one) for one in ("f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf")]
    yield [bytes.fromhex(one) for one in ("ed9fbf", "ee8080", "efbfbd", "f48fbfbf", "f4908080")]
    strays = b"\x80\xbf" * 3 + b"\x80"
    yield [b"\x80", b"\xbf", *[strays[:size] for size in range(2, 7)], bytes(range(0x80, 0xBF))]
    starts = ((0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD))
    yield [b"".join(bytes([one]) + b" " for one in range(*ends)) for ends in starts]
    yield _incomplete()
    yield [b"".join(_incomplete())]
    yield [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]
    for column in ("c0af e080af f08080af f8808080af fc80808080af",
                   "c1bf e09fbf f08fbfbf f887bfbfbf fc83bfbfbfbf",
                   "c080 e08080 f0808080 f880808080 fc8080808080",
                   "eda080 edadbf edae80 edafbf edb080 edbe80 edbfbf"):  # fmt: skip
        yield [bytes.fromhex(one) for one in column.split()]
    yield [bytes.fromhex("ed" + high + "ed" + low)
           for high in ("a080", "adbf", "ae80", "afbf") for low in ("b080", "bfbf")]  # fmt: skip
    yield [chr(plane << 16 | 0xFFFE | last).encode() for plane in range(17) for last in (0, 1)]
    yield [chr(code).encode() for code in range(0xFFF9, 0x10000)]


def _utf8() -> Iterator[Case]:
    for section, payloads in enumerate(_utf8_sequences(), 5):
        for index, payload in enumerate(payloads, 1):
            heard: tuple[Event, ...] = (Event(TEXT, payload),)
            try:
                payload.decode()
            except UnicodeDecodeError:
                heard = ()
            fails = frozenset() if heard else NOT_UTF8
            yield Case(f"6.{section}.{index}", (frame(TEXT, payload),), heard, fails)


def _closings() -> Iterator[Case]:
    hello, ended = frame(TEXT, b"Hello World!"), frame(CLOSE, NORMAL)
    echoed = (Event(TEXT, b"Hello World!"),)
    normal = frozenset({1000})
    yield Case("7.1.1", (hello,), echoed)
    yield Case("7.1.2", (ended + ended,), fails=normal)
    yield Case("7.1.3", (ended + frame(PING),), fails=normal)
    yield Case("7.1.4", (ended + hello,), fails=normal)
    first, last = parts(TEXT, b"fragment1", b"fragment2")
    yield Case("7.1.5", (first + ended + last,), fails=normal)
    large = b"BAsd7&jh23" * (256 * KIB // 10)
    sent = (frame(TEXT, large), hello, ended, frame(PING))
    heard = Event(TEXT, large), *echoed
    yield Case("7.1.6", sent, heard, normal | {0}, breaks_off=True)  # the suite takes any end
    yield Case("7.3.1", (), closing=b"")
    yield Case("7.3.2", (frame(CLOSE, b"a"),), fails=BROKEN)
    yield Case("7.3.3", (), closing=NORMAL)
    yield Case("7.3.4", (), closing=NORMAL + b"Hello World!")
    yield Case("7.3.5", (), closing=NORMAL + b"*" * 123)
    yield Case("7.3.6", (frame(CLOSE, NORMAL + b"*" * 124),), fails=BROKEN)
    yield Case("7.5.1", (frame(CLOSE, NORMAL + _GREEK + b"\xed\xa0\x80edited"),), fails=NOT_UTF8)


def _codes() -> Iterator[Case]:
    good = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for index, code in enumerate(good, 1):
        yield Case(f"7.7.{index}", (), closing=code.to_bytes(2, "big"))
    for index, code in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        yield Case(f"7.9.{index}", (frame(CLOSE, code.to_bytes(2, "big")),), fails=BROKEN)
    for index, code in enumerate((5000, 65535), 1):  # and of these
        ends = BROKEN | {0}
        yield Case(f"7.13.{index}", (frame(CLOSE, code.to_bytes(2, "big")),), fails=ends)


def _large(scale: int) -> Iterator[Case]:
    kinds = ((TEXT, b"*"), (BINARY, b"\xfe"))
    for number, (opcode, letter) in enumerate(kinds, 1):
        for index, size in enumerate((64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB), 1):
            data = letter * (size // scale)
            yield Case(f"9.{number}.{index}", (frame(opcode, data),), (Event(opcode, data),))
    for number, (opcode, letter) in enumerate(kinds, 3):
        data = letter * (4 * MIB // scale)
        for index in range(1, 10):
            sent = in_parts(opcode, data, 16 << 2 * index)
            yield Case(f"9.{number}.{index}", sent, (Event(opcode, data),))
    for number, (opcode, letter) in enumerate(kinds, 5):
        data = letter * (MIB // scale)
        for index in range(1, 7):
            sent = chopped(frame(opcode, data), 32 << index)
            yield Case(f"9.{number}.{index}", sent, (Event(opcode, data),))


def _many(scale: int) -> Iterator[Case]:
    for number, opcode, letter in ((7, TEXT, b"*"), (8, BINARY, b"\xfe")):
        for index, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            count, data = 1000 // scale, letter * size
            sent = _one_by_one(frame(opcode, data), count)
            yield Case(f"9.{number}.{index}", sent, (Event(opcode, data),) * count)


def _one_by_one(message: bytes, count: int) -> Iterator[bytes | Heard]:
    for index in range(count):
        yield message
        yield Heard(index + 1)
