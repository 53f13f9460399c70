"""The head of an HTTP/1.1 request or answer: bounded, strict, without a body."""

import re
from dataclasses import dataclass

from appliance.base.errors import Reasoned
from appliance.base.limits import FARM_HEAD_LINES_MAX, FARM_HEAD_SIZE_MAX

END = b"\r\n\r\n"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) ([\x21-\x7e]{1,1024}) HTTP/1\.1")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")


class HeadMalformed(Reasoned):
    """No head of HTTP, or past a bound."""


@dataclass(slots=True, frozen=True)
class Fields:
    """Header fields in their order, names in lower case."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        return [value for other, value in self.pairs if other == name]

    def one(self, name: str) -> str | None:
        """The value of a field that may stand there once. HeadMalformed: more often."""
        found = self.all(name)
        if len(found) > 1:
            raise HeadMalformed("field_repeated")
        return found[0] if found else None

    def words(self, name: str) -> list[str]:
        """The comma-separated words of all fields of that name, in lower case."""
        joined = ",".join(self.all(name))
        return [word.strip().lower() for word in joined.split(",") if word.strip()]


@dataclass(slots=True, frozen=True)
class RequestHead:
    method: str
    target: str
    fields: Fields


@dataclass(slots=True, frozen=True)
class AnswerHead:
    status: int
    fields: Fields


class HeadBuffer:
    """Collects bytes until a head is whole; what came behind it is kept."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """The head without its blank line, or None until more has come."""
        self._buffer += data
        end = self._buffer.find(END)
        if end > FARM_HEAD_SIZE_MAX or (end < 0 and len(self._buffer) > FARM_HEAD_SIZE_MAX):
            raise HeadMalformed("head_too_large")
        if self._buffer.count(b"\n", 0, end if end >= 0 else None) >= FARM_HEAD_LINES_MAX:
            raise HeadMalformed("head_too_many_lines")
        if end < 0:
            return None
        head = bytes(self._buffer[:end])
        del self._buffer[: end + len(END)]
        return head

    @property
    def rest(self) -> bytes:
        """What came behind the head."""
        return bytes(self._buffer)


def parse_request(head: bytes) -> RequestHead:
    """HeadMalformed when it is none, or announces a body."""
    lines = _lines(head)
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise HeadMalformed("request_line_malformed")
    fields = _fields(lines[1:])
    if fields.all("transfer-encoding") or fields.one("content-length") not in (None, "0"):
        raise HeadMalformed("body_refused")
    return RequestHead(match[1], match[2], fields)


def parse_answer(head: bytes) -> AnswerHead:
    """HeadMalformed when it is none."""
    lines = _lines(head)
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise HeadMalformed("status_line_malformed")
    return AnswerHead(int(match[1]), _fields(lines[1:]))


def _lines(head: bytes) -> list[str]:
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError:
        raise HeadMalformed("not_ascii") from None
    lines = text.split("\r\n")
    if any(ord(c) < 0x20 and c != "\t" or c == "\x7f" for line in lines for c in line):
        raise HeadMalformed("control_character")
    return lines


def _fields(lines: list[str]) -> Fields:
    pairs = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or _NAME.fullmatch(name) is None:
            raise HeadMalformed("field_malformed")  # a folded line too: it begins with a blank
        pairs.append((name.lower(), value.strip(" \t")))
    return Fields(tuple(pairs))


def encode_head(first: str, fields: list[tuple[str, str]]) -> bytes:
    """A whole head with its blank line."""
    lines = [first, *(f"{name}: {value}" for name, value in fields)]
    assert not any("\r" in line or "\n" in line for line in lines)
    return "\r\n".join(lines).encode("ascii") + END
