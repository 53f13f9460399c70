"""Requests whose end two readers could see at different places, with another request inside.

`statuses` are those of all answers that may come: none beside them, the hidden request's least of
all, and the connection ends.
"""

from collections.abc import Iterator
from typing import NamedTuple

HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HOST = b"Host: 127.0.0.1\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(HIDDEN)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
REFUSED = (400,)


class Smuggling(NamedTuple):
    name: str
    sent: bytes
    statuses: tuple[int, ...] = REFUSED


def post(name: str, *fields: bytes, body: bytes = b"") -> Smuggling:
    head = b"POST / HTTP/1.1\r\n" + HOST + b"".join(fields) + b"\r\n"
    return Smuggling(name, head + body + HIDDEN)


def raw(name: str, sent: bytes, statuses: tuple[int, ...] = REFUSED) -> Smuggling:
    return Smuggling(name, sent + HIDDEN, statuses)


def by_length() -> Iterator[Smuggling]:
    yield post("two lengths", b"Content-Length: 0\r\n", LENGTH)
    yield post("two lengths, the other way", LENGTH, b"Content-Length: 0\r\n")
    yield post("two lengths in one field", b"Content-Length: 0, 43\r\n")
    for name, value in (
        ("negative", b"-1"), ("with a sign", b"+0"), ("hexadecimal", b"0x0"),
        ("with a point", b"0.0"),
        ("with a space", b"4 3"), ("without a value", b""), ("in words", b"none"),
        ("in Arabic digits", "\u0660".encode()), ("with a comma", b"0,"), ("huge", b"9" * 400),
        ("behind a tab in it", b"0\t3"), ("with an underscore", b"1_0"),
    ):  # fmt: skip
        yield post(f"a length {name}", b"Content-Length: " + value + b"\r\n")
    yield post("a space before the colon", b"Content-Length : 0\r\n")
    yield post("a tab before the colon", b"Content-Length\t: 0\r\n")
    yield post("a zero byte in a length", b"Content-Length: 0\x00\r\n")
    yield post("a bare CR in a length", b"Content-Length: 0\rX: y\r\n")
    yield post("a line folded into a length", b"Content-Length:\r\n 0\r\n 3\r\n")


def by_coding() -> Iterator[Smuggling]:
    last = b"0\r\n\r\n"
    yield post("a length and chunks", LENGTH, CHUNKED, body=last)
    yield post("chunks and a length", CHUNKED, LENGTH, body=last)
    yield post("chunks and no length", CHUNKED, b"Content-Length: 0\r\n", body=last)
    for name, value in (
        ("identity", b"identity"), ("chunked twice", b"chunked, chunked"),
        ("gzip, chunked", b"gzip, chunked"), ("chunked, identity", b"chunked, identity"),
        ("xchunked", b"xchunked"), ("chunked with a parameter", b"chunked;a=b"),
        ("chunked in quotes", b'"chunked"'), ("nothing", b""),
        ("chunked behind a vertical tab", b"\x0bchunked"),
        ("chunked behind a zero byte", b"\x00chunked"),
    ):  # fmt: skip
        yield post(f"coding {name}", b"Transfer-Encoding: " + value + b"\r\n", body=last)
    yield post("two codings", CHUNKED, b"Transfer-Encoding: identity\r\n", body=last)
    yield post("a space before the coding's colon", b"Transfer-Encoding : chunked\r\n", body=last)
    yield raw(
        "chunks in HTTP/1.0", b"POST / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n" + last, (405,)
    )


def by_chunk() -> Iterator[Smuggling]:
    for name, body in (
        ("with a sign", b"+0\r\n\r\n"), ("negative", b"-1\r\n\r\n"), ("with 0x", b"0x0\r\n\r\n"),
        ("without a size", b"\r\n\r\n"), ("behind a space", b" 0\r\n\r\n"),
        ("with an underscore", b"1_0\r\n\r\n"), ("of too many digits", b"f" * 21 + b"\r\n\r\n"),
        ("longer than it says", b"1\r\nabc\r\n0\r\n\r\n"),
        ("that ends in two CR", b"0\r\r\n\r\n"),
    ):  # fmt: skip
        yield post(f"a chunk {name}", CHUNKED, body=body)


def by_line() -> Iterator[Smuggling]:
    yield raw("no host", b"POST / HTTP/1.1\r\n" + LENGTH + b"\r\n")
    yield raw("two hosts", b"POST / HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n" + b"\r\n")
    yield raw("a space before the first field", b"POST / HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n")
    yield raw("a line without a colon", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length\r\n\r\n")
    yield raw("a field without a name", b"POST / HTTP/1.1\r\n" + HOST + b": 0\r\n\r\n")
    yield raw("version 1.2 of three digits", b"POST / HTTP/1.12\r\n" + HOST + b"\r\n")
    yield raw("a version with a space", b"POST / HTTP/ 1.1\r\n" + HOST + b"\r\n")
    yield raw("a method with a zero byte", b"PO\x00ST / HTTP/1.1\r\n" + HOST + b"\r\n")
    yield raw("a path with a space", b"POST / x HTTP/1.1\r\n" + HOST + b"\r\n")
    yield raw("HTTP/2 in the clear", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (421, 400))


CASES = [*by_length(), *by_coding(), *by_chunk(), *by_line()]
