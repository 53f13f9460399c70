"""What every reader yields, and the rules all share: decoding, cleaning, splitting into bodies."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_TEXT_SIZE_MAX, BODY_SIZE_MAX
from appliance.formats.imported import encode_head

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

OnBroken = Callable[[ArchiveError], None]


class Entry(NamedTuple):
    """One message of an archive."""

    room: str  # name of the room it was said in
    author: str  # as the archive shows it
    time_us: int  # microseconds since the epoch, UTC
    key: str  # names this entry in its archive; "" when the format has no names
    parent: str  # key of the message it answers; "" = top level
    text: str
    private: bool = False  # said where not everybody of the archive could read it


def refuse(error: ArchiveError) -> None:
    """The strict `on_broken`: the first broken place ends the reading."""
    raise error


def decode(raw: bytes) -> str:
    """Text of a line whose encoding nobody wrote down: UTF-8, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")


def clean(text: str) -> str:
    """`text` with one kind of newline and without control characters (IRC colours among them)."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def too_large(text: str) -> str:
    """ "" for a text within the bound, else the complaint."""
    size = len(text.encode())
    return (
        f"a text of {size} bytes, at most {ARCHIVE_TEXT_SIZE_MAX} allowed"
        if size > ARCHIVE_TEXT_SIZE_MAX
        else ""
    )


def microseconds(moment: datetime) -> int:
    """Microseconds since the epoch; a moment without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def bodies_of(entry: Entry) -> list[bytes]:
    """The bodies of the records that hold an entry, each with author and time of then."""
    head = encode_head(entry.time_us, entry.author)
    return [head + piece for piece in pieces(entry.text, BODY_SIZE_MAX - len(head))]


def pieces(text: str, size_max: int = BODY_SIZE_MAX) -> list[bytes]:
    """`text` as UTF-8 bodies of at most `size_max` bytes, split between characters; one or more.

    A split goes after the last newline or space of a body's last quarter, if there is one: joined,
    the bodies are the text again, byte for byte.
    """
    assert size_max >= 4
    raw = text.encode()
    bodies, start = [], 0
    while len(raw) - start > size_max:
        end = start + size_max
        while raw[end] & 0xC0 == 0x80:  # never inside a character
            end -= 1
        floor = start + size_max - size_max // 4
        cut = max(raw.rfind(b"\n", floor, end), raw.rfind(b" ", floor, end))
        end = cut + 1 if cut >= floor else end
        bodies.append(raw[start:end])
        start = end
    bodies.append(raw[start:])
    assert all(0 < len(body) <= size_max for body in bodies) or not raw
    return bodies
