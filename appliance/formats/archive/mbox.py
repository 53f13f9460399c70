"""Mail folders in mbox form, as mailing lists publish them.

A message starts at a line `From ` at the file's start or after an empty line; `>From ` inside a
body is `From ` (mboxrd: one `>` is taken off). Room: the first label of `List-Id`, else the file's
name. Text: the subject, an empty line, the first plain part, else the HTML part without its tags;
other parts are named in a line each.
"""

import email
import email.errors
import email.header
import email.utils
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from typing import BinaryIO

from appliance.base.errors import ArchiveError
from appliance.base.limits import (
    ARCHIVE_CONTAINERS_MAX,
    ARCHIVE_DESCRIPTION_SIZE_MAX,
    ARCHIVE_ENTRY_SIZE_MAX,
    ARCHIVE_HEADER_SIZE_MAX,
    ARCHIVE_PARTS_MAX,
)
from appliance.formats.archive.entry import (
    Entry,
    OnBroken,
    clean,
    decode,
    microseconds,
    refuse,
    too_large,
)
from appliance.formats.archive.hypertext import words_of
from appliance.formats.archive.lines import numbered

_MESSAGE_ID = re.compile(r"<([^<>\s]{1,995})>")
_LIST_LABEL = re.compile(r"<?([^<>\s.]{1,100})\.[^<>\s]+>?\s*$")
_QUOTED_FROM = re.compile(rb"^>(?=>*From )", re.MULTILINE)
# the headers that describe a part, with the lines that they are folded into
_DESCRIPTION = re.compile(
    rb"(?:^|(?<=[\r\n]))content-(?:type|disposition):[^\r\n]*+(?:(?:\r\n|\r|\n)[ \t][^\r\n]*+)*+",
    re.IGNORECASE,
)
_CONTAINER = re.compile(rb"content-type:\s*multipart/", re.IGNORECASE)


def read(file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse) -> Iterator[Entry]:
    """Entries of a mail folder; `name` is for errors, `room` for mails that name no list."""
    for line, raw in _split(file, name, on_broken):
        try:
            yield _entry(raw, name, line, room)
        except ArchiveError as error:
            on_broken(error)


def _split(file: BinaryIO, name: str, on_broken: OnBroken) -> Iterator[tuple[int, bytes]]:
    """(line its headers start at, bytes without the separator) of each message."""
    start, size, empty_before = 0, 0, True
    held: list[bytes] = []
    for number, line in numbered(file, name):
        if line.startswith(b"From ") and empty_before:
            if start and size <= ARCHIVE_ENTRY_SIZE_MAX:
                yield start, b"".join(held)
            start, size = number + 1, 0
            held.clear()
        elif not start:
            if line.strip():
                raise ArchiveError(name, number, "a mail folder starts with a line 'From ...'")
        else:
            held.append(line)
            size += len(line)
            if size > ARCHIVE_ENTRY_SIZE_MAX and held:
                on_broken(
                    ArchiveError(name, start, f"a mail of more than {ARCHIVE_ENTRY_SIZE_MAX} bytes")
                )
                held.clear()
        empty_before = not line.strip(b"\r\n")
    if start and size <= ARCHIVE_ENTRY_SIZE_MAX:
        yield start, b"".join(held)


def _entry(raw: bytes, name: str, line: int, room: str) -> Entry:
    wrong = _costly(raw)
    if wrong:
        raise ArchiveError(name, line, wrong)
    try:
        mail = email.message_from_bytes(_QUOTED_FROM.sub(b"", raw))
    except RecursionError:
        raise ArchiveError(name, line, "a mail with parts nested too deeply") from None
    label = _LIST_LABEL.search(_header(mail, "List-Id"))
    subject = _header(mail, "Subject")
    text = "\n\n".join(part for part in (subject, _text(mail, name, line)) if part)
    if too_large(text):
        raise ArchiveError(name, line, too_large(text))
    return Entry(
        room=label.group(1) if label else room,
        author=_author(mail),
        time_us=_time_us(mail, name, line),
        key=_first_id(_header(mail, "Message-ID")),
        parent=_parent(mail),
        text=text,
    )


def _costly(raw: bytes) -> str:
    """What in this mail would take the parser more than its share of time; "" = nothing."""
    containers = 0
    for found in _DESCRIPTION.finditer(raw):
        if len(found[0]) > ARCHIVE_DESCRIPTION_SIZE_MAX:
            return f"a mail with a Content header of more than {ARCHIVE_DESCRIPTION_SIZE_MAX} bytes"
        containers += _CONTAINER.match(found[0]) is not None
    if containers > ARCHIVE_CONTAINERS_MAX:
        return f"a mail of more than {ARCHIVE_CONTAINERS_MAX} containers"
    return ""


def _header(mail: Message, field: str) -> str:
    """One header, decoded and on one line; "" when absent; unknown encodings stay."""
    value = mail.get(field)
    if value is None:
        return ""
    try:
        whole = str(value)[:ARCHIVE_HEADER_SIZE_MAX]
        text = str(email.header.make_header(email.header.decode_header(whole)))
    except (LookupError, ValueError, email.errors.MessageError):
        text = whole
    return " ".join(clean(text.encode("utf-8", "replace").decode()).split())


def _author(mail: Message) -> str:
    value = _header(mail, "From")
    try:
        shown, address = email.utils.parseaddr(value)
    except RecursionError:  # comments in comments in comments
        return value[:80]
    return shown or address or "unknown"


def _time_us(mail: Message, name: str, line: int) -> int:
    value = _header(mail, "Date")
    try:
        moment = email.utils.parsedate_to_datetime(value)
        time_us = microseconds(moment)
    except (TypeError, ValueError, IndexError, OverflowError):
        raise ArchiveError(
            name, line, f"a mail whose Date cannot be read: {value[:80]!r}"
        ) from None
    if not 0 <= time_us <= microseconds(datetime(9999, 1, 1, tzinfo=UTC)):
        raise ArchiveError(name, line, f"a Date outside 1970 to 9998: {value[:80]!r}")
    return time_us


def _first_id(value: str) -> str:
    found = _MESSAGE_ID.search(value)
    return found.group(1) if found else ""


def _parent(mail: Message) -> str:
    """In-Reply-To, else the last of References."""
    parent = _first_id(_header(mail, "In-Reply-To"))
    if parent:
        return parent
    references = _MESSAGE_ID.findall(_header(mail, "References"))
    return references[-1] if references else ""


def _text(mail: Message, name: str, line: int) -> str:
    """The message's words, then a line for each part that is not text."""
    plain: list[str] = []
    hypertext, others = None, []
    for index, part in enumerate(_leaves(mail)):
        if index >= ARCHIVE_PARTS_MAX:
            raise ArchiveError(name, line, f"a mail of more than {ARCHIVE_PARTS_MAX} parts")
        kind = part.get_content_type()
        if part.get_content_disposition() == "attachment" or part.get_content_maintype() != "text":
            others.append(_attachment(part))
        elif kind == "text/html" and hypertext is None:
            hypertext = _decoded(part)
        elif kind != "text/html":
            plain.append(_decoded(part))
    joined = "\n\n".join([*(text.rstrip() for text in plain[:-1]), *plain[-1:]])
    words = joined if plain else words_of(hypertext or "")
    return "\n".join([clean(words).strip("\n"), *others]).strip("\n")


def _leaves(mail: Message) -> Iterator[Message]:
    """Parts that are not containers, in order, without recursion."""
    stack = [mail]
    while stack:
        part = stack.pop()
        payload = part.get_payload()
        if isinstance(payload, list):
            stack.extend(item for item in reversed(payload) if isinstance(item, Message))
        else:
            yield part


def _decoded(part: Message) -> str:
    payload = part.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else b""
    charset = part.get_content_charset() or "utf-8"
    try:
        return raw.decode(charset)
    except (LookupError, UnicodeError, ValueError):
        return decode(raw)


def _attachment(part: Message) -> str:
    payload = part.get_payload(decode=True)
    size = len(payload) if isinstance(payload, bytes) else 0
    try:
        name = part.get_filename() or "without a name"
    except (LookupError, UnicodeError, ValueError):
        name = "with a broken name"
    return clean(
        f"[attachment {name}, {part.get_content_type()}, {size} bytes: left in the archive]"
    )
