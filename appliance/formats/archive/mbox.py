"""Mail folders in mbox form, as mailing lists publish them.

A message starts at the file's start, and at a line `From SENDER DATE` behind an empty line or
before a header. A line without a date, `From bob@example.org`, needs headers behind it that mails
have; `From now on` and `From Paris` are words of a mail. `>From ` inside a body is `From ` (mboxrd:
one `>` is taken off).

Room: the first label of `List-Id`, else the file's name. Time: `Date`, else the line `From `, else
the newest `Received`. Author: the name in `From`, decoded after the header was taken apart (RFC
2047, section 6.2), else the address. Text: the subject, an empty line, the words of all parts in
order; of alternatives the plain one, unless it is blank, else the HTML one without its tags. What
stands behind the last part is one more; what stands before the first is for readers without MIME,
and shown when there are no other words. A body that was announced as parts and has none is shown as
it is. Other parts are named in a line each.
"""

import email.errors
import email.feedparser
import email.header
import email.utils
import re
from collections import deque
from collections.abc import Iterator
from email.message import Message
from typing import BinaryIO, NamedTuple

from appliance.base.errors import ArchiveError
from appliance.base.limits import (
    ARCHIVE_CONTAINERS_MAX,
    ARCHIVE_DESCRIPTION_SIZE_MAX,
    ARCHIVE_ENTRY_SIZE_MAX,
    ARCHIVE_HEADER_SIZE_MAX,
    ARCHIVE_PARTS_MAX,
)
from appliance.formats.archive.dates import instant, stamped
from appliance.formats.archive.entry import Entry, OnBroken, clean, decode, refuse, too_large
from appliance.formats.archive.hypertext import words_of
from appliance.formats.archive.lines import numbered
from appliance.formats.archive.naming import Naming

_MESSAGE_ID = re.compile(r"<([^<>\s]{1,995})>")
_LIST_LABEL = re.compile(r"<?(?P<whole>(?P<label>[^<>\s.]{1,100})\.(?P<rest>[^<>\s]+))>?\s*$")
_QUOTED_FROM = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_SEPARATOR = b"From "
# as a program writes it: whose mail, when, in which the day of the week comes first
_SEPARATOR_DATED = re.compile(
    r"From \S.{0,319}? (?P<time>(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,?"
    r" (?:[a-z]{3,10}\.? \d|\d{1,2}[ -][a-z]).{6,70}?)(?: remote from \S{1,100})?$",
    re.IGNORECASE,
)
_SEPARATOR_BARE = re.compile(rb"From(?: +\S{1,320})? *\r?\n?$")
_SEPARATOR_TIME = re.compile(r"From +(?:\S{1,320} +)?(?P<time>\w{3},? .*)$")
_HEADER_LINES = 24  # behind a line `From ` that are looked at
_FIELD = re.compile(rb">?(?P<name>[!-9;-~]{1,100}):")
# a name of plain words, or in quotes, and its address: what the library finds as well, in ten times
# the time
_FROM_USUAL = re.compile(
    r"(?:(?P<plain>[\w!#$%&'*+/=?^`{|}~-]+(?: [\w!#$%&'*+/=?^`{|}~-]+){0,9})"
    r'|"(?P<quoted>[^"\\\x00-\x1f\x7f]{1,320})")'
    r" <(?P<address>[\w+-]+(?:\.[\w+-]+){0,9}@[\w-]+(?:\.[\w-]+){0,9})>",
    re.ASCII,
)
_AUTHORS = ("from", "sender", "reply-to")
_FIELDS_OF_MAIL = frozenset((b"from", b"date", b"received", b"message-id"))
_FIELDS_KNOWN = re.compile(
    rb">?(?:from|to|cc|date|subject|sender|reply-to|message-id|received|return-path|delivered-to"
    rb"|mime-version|content-[a-z-]{1,60}|list-[a-z-]{1,60}|x-[!-9;-~]{1,90}|status|references"
    rb"|in-reply-to|newsgroups|dkim-signature|authentication-results|envelope-to|path):",
    re.IGNORECASE,
)
# the headers that describe a part, with the end of the line before them, by which they are found
# fast, and the lines that they are folded into
_DESCRIPTION = re.compile(
    rb"[\r\n]content-(?:type|disposition):[^\r\n]*+(?:(?:\r\n|\r|\n)[ \t][^\r\n]*+)*+",
    re.IGNORECASE,
)
# a part as nearly all are: the library finds no other set of letters, in ten times the time
_TYPE_USUAL = re.compile(
    r'text/[a-z]{1,20}; ?charset=(?P<quote>"?)(?P<charset>[A-Za-z0-9_-]{1,40})(?P=quote)'
)
_CONTAINER = re.compile(rb"[\r\n]content-type:\s*multipart/", re.IGNORECASE)


_Fields = dict[str, str]  # the first header of each name, in small letters


class _Raw(NamedTuple):
    """A message as it stands in the folder."""

    line: int  # its headers start at
    separator: str
    content: bytes


def read(
    file: BinaryIO,
    name: str,
    room: str,
    on_broken: OnBroken = refuse,
    naming: Naming | None = None,
) -> Iterator[Entry]:
    """Entries of a mail folder; `name` is for errors, `room` for mails that name no list."""
    rooms = _Rooms(room, name, naming or Naming())
    for raw in _split(file, name, on_broken):
        try:
            yield _entry(raw, name, rooms)
        except ArchiveError as error:
            on_broken(error)


class _Rooms:
    """Of one folder: lists whose names begin alike keep rooms of their own."""

    def __init__(self, room: str, file: str, naming: Naming) -> None:
        self._room, self._file, self._naming = room, file, naming
        self._own = ""  # the list that is called as the folder is, and has its room

    def of(self, fields: _Fields) -> str:
        found = _LIST_LABEL.search(_header(fields, "list-id"))
        if found is None:
            return self._naming.of(f"file {self._file}", self._room, self._file)
        whole = found["whole"].lower()
        if found["label"] == self._room and self._own in ("", whole):
            self._own = whole
            return self._naming.of(f"file {self._file}", self._room, self._file)
        return self._naming.of(f"list {whole}", found["label"], found["rest"])


def _begins_mail(separator: bytes, following: list[bytes], *, empty_before: bool) -> bool:
    """Whether a line `From ` begins a mail, by it and the lines behind it."""
    if _date_of(separator) is not None:
        return empty_before or (bool(following) and _FIELD.match(following[0]) is not None)
    names = _field_names(following)
    if not names or not _FIELDS_KNOWN.match(following[0]) or _FIELDS_OF_MAIL.isdisjoint(names):
        return False
    bare = _SEPARATOR_BARE.match(separator) is not None
    if bare and b"@" in separator:
        return True
    return (bare or empty_before) and len(names) > 1


def _date_of(separator: bytes) -> str | None:
    """The date in a line `From ` as a program writes it."""
    if len(separator) > ARCHIVE_HEADER_SIZE_MAX:
        return None
    found = _SEPARATOR_DATED.match(" ".join(decode(separator).split()))
    return found["time"] if found is not None and stamped(found["time"]) else None


def _field_names(lines: list[bytes]) -> list[bytes]:
    """The names of the headers that these lines begin with."""
    names: list[bytes] = []
    for line in lines:
        found = _FIELD.match(line)
        if found is not None:
            names.append(found["name"].lower())
        elif not names or not line.strip() or line[:1] not in (b" ", b"\t"):
            break
    return names


def _with_following(
    lines: Iterator[tuple[int, bytes]],
) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Each line with its number, and a line `From ` with those that follow."""
    waiting: deque[tuple[int, bytes]] = deque()
    while True:
        number, line = waiting.popleft() if waiting else next(lines, (0, b""))
        if not number:
            return
        if not line.startswith(_SEPARATOR):
            yield number, line, []
            continue
        while len(waiting) < _HEADER_LINES and (following := next(lines, None)) is not None:
            waiting.append(following)
        yield number, line, [each for _, each in waiting]


def _split(file: BinaryIO, name: str, on_broken: OnBroken) -> Iterator[_Raw]:
    """Each message."""
    start, size, empty_before = 0, 0, True
    separator = ""
    held: list[bytes] = []
    for number, line, following in _with_following(numbered(file, name)):
        begins = line.startswith(_SEPARATOR) and (
            (not start and not held) or _begins_mail(line, following, empty_before=empty_before)
        )
        if begins:
            if start and size <= ARCHIVE_ENTRY_SIZE_MAX:
                yield _Raw(start, separator, b"".join(held))
            start, size, separator = number + 1, 0, decode(line).rstrip("\r\n")
            held.clear()
        elif not start:
            if line.strip():
                raise ArchiveError(name, number, "a mail folder starts with a line 'From ...'")
        else:
            fitted = size <= ARCHIVE_ENTRY_SIZE_MAX
            size += len(line)
            if size <= ARCHIVE_ENTRY_SIZE_MAX:
                held.append(line)
            elif fitted:
                on_broken(
                    ArchiveError(name, start, f"a mail of more than {ARCHIVE_ENTRY_SIZE_MAX} bytes")
                )
                held.clear()
        empty_before = not line.strip(b"\r\n")
    if start and size <= ARCHIVE_ENTRY_SIZE_MAX:
        yield _Raw(start, separator, b"".join(held))


def _entry(raw: _Raw, name: str, rooms: _Rooms) -> Entry:
    line = raw.line
    wrong = _costly(raw.content)
    if wrong:
        raise ArchiveError(name, line, wrong)
    try:
        mail = _parsed(_QUOTED_FROM.sub(b"", raw.content))
    except RecursionError:
        raise ArchiveError(name, line, "a mail with parts nested too deeply") from None
    leaves = list(_leaves(mail))
    if any(_swallowed(part, raw.content) for part, _ in leaves):
        raise ArchiveError(name, line, "a mail with a part that ends before it begins")
    fields = _fields(mail)
    subject = _header(fields, "subject")
    text = "\n\n".join(part for part in (subject, _text(leaves, name, line)) if part)
    if too_large(text):
        raise ArchiveError(name, line, too_large(text))
    return Entry(
        room=rooms.of(fields),
        author=_author(fields),
        time_us=_time_us(fields, raw.separator, name, line),
        key=_first_id(_header(fields, "message-id")),
        parent=_parent(fields),
        text=text,
    )


def _parsed(raw: bytes) -> Message:
    """As `email.message_from_bytes` does, without a file in between."""
    parser: email.feedparser.FeedParser[Message] = email.feedparser.FeedParser()
    parser.feed(raw.decode("ascii", "surrogateescape"))
    return parser.close()


def _costly(raw: bytes) -> str:
    """What in this mail would take the parser more than its share of time; "" = nothing."""
    containers = 0
    for found in _DESCRIPTION.finditer(b"\n" + raw):
        if len(found[0]) - 1 > ARCHIVE_DESCRIPTION_SIZE_MAX:
            return f"a mail with a Content header of more than {ARCHIVE_DESCRIPTION_SIZE_MAX} bytes"
        containers += _CONTAINER.match(found[0]) is not None
    if containers > ARCHIVE_CONTAINERS_MAX:
        return f"a mail of more than {ARCHIVE_CONTAINERS_MAX} containers"
    return ""


def _swallowed(part: Message, raw: bytes) -> bool:
    """Whether the parser dropped words: those behind the last border of parts without a first."""
    if "multipart" not in str(part.get("content-type", "")).lower():
        return False  # as nearly all: the library takes longer to say so
    if part.get_content_maintype() != "multipart":
        return False
    border = part.get_boundary() or ""
    return bool(border) and f"--{border}--".encode("utf-8", "replace") in raw


def _fields(mail: Message) -> _Fields:
    """All at once: the library looks at every header for each that it is asked for."""
    fields: _Fields = {}
    for name, value in mail.items():
        fields.setdefault(name.lower(), value)
    return fields


def _header(fields: _Fields, name: str) -> str:
    """One header, decoded and on one line; "" when absent; unknown encodings stay."""
    value = fields.get(name)
    return "" if value is None else _words(str(value)[:ARCHIVE_HEADER_SIZE_MAX])


def _words(whole: str) -> str:
    """What a header, or a piece of it, says; on one line."""
    if whole.isascii() and whole.isprintable() and "=?" not in whole:  # as most are
        return " ".join(whole.split())
    try:
        text = whole
        if "=?" in whole or not whole.isascii():  # most are plain, and decoding is dear
            text = str(email.header.make_header(email.header.decode_header(whole)))
    except (LookupError, ValueError, email.errors.MessageError):
        text = whole
    return " ".join(clean(text.encode("utf-8", "replace").decode()).split())


def _author(fields: _Fields) -> str:
    """The header is taken apart before its words are decoded: what is encoded in a name (commas,
    brackets) is part of the name."""
    value = next((fields[name] for name in _AUTHORS if name in fields), "")
    raw = " ".join(str(value)[:ARCHIVE_HEADER_SIZE_MAX].split())
    try:
        usual = _FROM_USUAL.fullmatch(raw)
        if usual:
            shown, address = usual["plain"] or usual["quoted"], usual["address"]
        else:
            shown, address = email.utils.parseaddr(raw)
    except RecursionError:  # comments in comments in comments
        return _words(raw[:80])
    return _words(shown) or _words(address) or _words(raw[:80]) or "unknown"


def _time_us(fields: _Fields, separator: str, name: str, line: int) -> int:
    """The first of these that says when, beyond doubt."""
    written = _header(fields, "date")
    found = instant(written)
    if found is None:
        told = _SEPARATOR_TIME.match(separator)
        dated = _date_of(separator.encode()) or (told["time"] if told else "")
        found = instant(dated)
    if found is None:
        received = _header(fields, "received")  # each server puts its own on top
        found = instant(received.rpartition(";")[2])
    if found is None:
        raise ArchiveError(
            name,
            line,
            f"a mail whose Date cannot be read, with none in its line 'From ' or in Received: "
            f"{written[:80]!r}",
        )
    return found


def _first_id(value: str) -> str:
    found = _MESSAGE_ID.search(value)
    return found.group(1) if found else ""


def _parent(fields: _Fields) -> str:
    """In-Reply-To, else the last of References."""
    parent = _first_id(_header(fields, "in-reply-to"))
    if parent:
        return parent
    references = _MESSAGE_ID.findall(_header(fields, "references"))
    return references[-1] if references else ""


def _text(leaves: list[tuple[Message, int]], name: str, line: int) -> str:
    """The message's words, then a line for each part that is not text."""
    said: list[_Said] = []
    spare: list[str] = []
    others = []
    count = 0
    for part, choice in leaves:
        count += choice >= 0
        if count > ARCHIVE_PARTS_MAX:
            raise ArchiveError(name, line, f"a mail of more than {ARCHIVE_PARTS_MAX} parts")
        whole = part.get_content_type()
        kind = whole.partition("/")[0]
        if choice == _PREAMBLE:
            text = clean(_decoded(part))
            spare += [text] if "mime" not in text.lower() else []
        elif part.get_content_disposition() == "attachment" or kind not in ("text", "multipart"):
            others.append(_attachment(part))
        else:
            text = _decoded(part)
            plain = whole != "text/html"
            said.append(_Said(choice, plain, clean(text if plain else words_of(text))))
    joined = _joined(said) or "\n\n".join(each.strip() for each in spare)
    return "\n".join([joined.strip("\n"), *others]).strip("\n")


def _joined(said: list["_Said"]) -> str:
    """What is shown of it, in order."""
    has_plain = {each.choice for each in said if each.plain and each.words.strip()}
    chosen = [
        each.words
        for each in said
        if each.words.strip() and (each.plain or each.choice <= 0 or each.choice not in has_plain)
    ]
    return "\n\n".join([*(text.rstrip() for text in chosen[:-1]), *chosen[-1:]])


class _Said(NamedTuple):
    """The words of one part. `choice`: of which alternatives it is one; at most 0: of none."""

    choice: int
    plain: bool
    words: str


_PREAMBLE, _EPILOGUE = -1, -2  # in place of a choice: before the first part, behind the last


def _leaves(mail: Message) -> Iterator[tuple[Message, int]]:
    """Parts that are not containers, in order, without recursion; and of which alternatives, the
    outermost, each is a part."""
    stack, choices = [(mail, 0)], 0
    while stack:
        part, choice = stack.pop()
        payload = part.get_payload()
        if not isinstance(payload, list):
            yield part, choice
            continue
        if not choice and part.get_content_subtype() == "alternative":
            choices += 1
            choice = choices
        stack.extend((each, _EPILOGUE) for each in _beside(part.epilogue))
        stack.extend((item, choice) for item in reversed(payload) if isinstance(item, Message))
        stack.extend((each, _PREAMBLE) for each in _beside(part.preamble))


def _beside(text: str | None) -> list[Message]:
    """A part of its own for words beside the parts; none for a blank."""
    if not text or not text.strip():
        return []
    part = Message()
    part.set_payload(text)
    return [part]


def _decoded(part: Message) -> str:
    payload = part.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else b""
    usual = _TYPE_USUAL.fullmatch(str(part.get("content-type", "")))
    charset = usual["charset"].lower() if usual else part.get_content_charset() or "utf-8"
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
