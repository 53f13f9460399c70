"""Export zips of Slack workspaces.

    channels.json, groups.json, dms.json, mpims.json   the rooms: lists of {id, name}
    users.json                                         names of the people: {id, name, profile:
    {display_name}} <room>/<year>-<month>-<day>.json                   what was said: lists of
    {type, user, text, ts, thread_ts}

Members are read from the zip into memory, never unpacked: names inside it reach no file system.
What a member unpacks to is bounded, and so is the sum of all, also as a multiple of the zip's own
size: a bomb is an error. Rooms come in the order of their names,
days in order of their dates.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from appliance.base.errors import ArchiveError
from appliance.base.limits import (
    ARCHIVE_ENTRY_SIZE_MAX,
    ARCHIVE_MEMBERS_MAX,
    ARCHIVE_RATIO_MAX,
    ARCHIVE_UNPACKED_SIZE_MAX,
)
from appliance.formats.archive.entry import Entry, OnBroken, clean, refuse, too_large
from appliance.formats.archive.hypertext import unescape

_DAY = re.compile(r"(?P<folder>[^/\\]{1,200})/(?P<date>\d{4}-\d\d-\d\d)\.json$", re.ASCII)
_TS = re.compile(r"(?P<seconds>\d{1,11})\.(?P<fraction>\d{1,6})$", re.ASCII)
_MARK = re.compile(r"<([@#!]?)([^<>|]{1,2000})(?:\|([^<>]{0,2000}))?>")
_TIME_MAX_SECONDS = 253_370_764_800  # the year 9999
_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")


class _Export:
    """An open zip and what may still be unpacked from it. Invariant: `left` is never negative."""

    def __init__(self, archive: zipfile.ZipFile, name: str, size: int) -> None:
        self.archive, self.name = archive, name
        self.members = frozenset(archive.namelist())
        # small files may shrink as far as they like: one member more is always allowed
        self.left = min(
            ARCHIVE_UNPACKED_SIZE_MAX, ARCHIVE_RATIO_MAX * size + ARCHIVE_ENTRY_SIZE_MAX
        )

    def unpack(self, member: str) -> bytes:
        """The bytes of a member; ArchiveError with why not, of one that is broken or too large."""
        where = f"{self.name}:{member}"
        try:
            with self.archive.open(member) as stream:
                raw = stream.read(min(ARCHIVE_ENTRY_SIZE_MAX, self.left) + 1)
        except (
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
            OSError,
            EOFError,
            zlib.error,
        ) as error:
            raise ArchiveError(where, 1, f"cannot be unpacked: {error}") from None
        if len(raw) > self.left:
            raise _TooMuch(
                where,
                1,
                f"the zip unpacks to too much: at most {ARCHIVE_RATIO_MAX} times its own size and "
                f"{ARCHIVE_UNPACKED_SIZE_MAX} bytes in all",
            )
        self.left -= len(raw)
        if len(raw) > ARCHIVE_ENTRY_SIZE_MAX:
            raise ArchiveError(where, 1, f"unpacks to more than {ARCHIVE_ENTRY_SIZE_MAX} bytes")
        return raw


class _TooMuch(ArchiveError):
    """The whole zip is refused; nobody goes on behind this member."""


def read(file: BinaryIO, name: str, on_broken: OnBroken = refuse) -> Iterator[Entry]:
    """Entries of an export zip, room by room, each in order of time."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ArchiveError(name, 1, f"not a zip file: {error}") from None
    with archive:
        if len(archive.namelist()) > ARCHIVE_MEMBERS_MAX:
            raise ArchiveError(name, 1, f"a zip of more than {ARCHIVE_MEMBERS_MAX} files")
        days = sorted(member for member in archive.namelist() if _DAY.match(member))
        if "channels.json" not in archive.namelist() and not days:
            raise ArchiveError(
                name, 1, "not an export of Slack: no channels.json and no day of a channel"
            )
        export = _Export(archive, name, file.seek(0, io.SEEK_END))
        rooms, people = _rooms(export), _people(export)
        for member in days:
            yield from _day(export, member, rooms, people, on_broken)


def _load(export: _Export, member: str) -> tuple[list, bytes]:
    """The JSON of one member, which must be a list, and its bytes."""
    where = f"{export.name}:{member}"
    raw = export.unpack(member)
    try:
        items = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveError(where, _line_of(raw, str(error)), f"broken JSON: {error}") from None
    if not isinstance(items, list):
        raise ArchiveError(where, 1, "expected a list")
    return items, raw


def _line_of(raw: bytes, message: str) -> int:
    """Line of the byte that a decoder's message names; the last line when it names none."""
    found = re.search(r"byte (\d+)", message)
    return raw.count(b"\n", 0, int(found.group(1)) if found else len(raw)) + 1


def _lines_of_items(raw: bytes) -> list[int]:
    """Lines at which the items of the list in `raw` start."""
    lines, line, offset = [], 1, 0
    end = raw.index(b"[") + 1
    for item in msgspec.json.decode(raw, type=list[msgspec.Raw]):
        text = bytes(item)
        start = raw.index(text, end)
        line += raw.count(b"\n", offset, start)
        lines.append(line)
        offset, end = start, start + len(text)
    return lines


def _text_of(item: dict, field: str) -> str:
    value = item.get(field)
    return value if isinstance(value, str) else ""


def _rooms(export: _Export) -> dict[str, str]:
    """Folder or id -> name of the room."""
    rooms = {}
    for member in _LISTS:
        if member not in export.members:
            continue
        for item in _load(export, member)[0]:
            if isinstance(item, dict) and _text_of(item, "id"):
                rooms[item["id"]] = _text_of(item, "name") or item["id"]
    return rooms


def _people(export: _Export) -> dict[str, str]:
    """Id -> name as others see it."""
    if "users.json" not in export.members:
        return {}
    people = {}
    for item in _load(export, "users.json")[0]:
        if not isinstance(item, dict) or not _text_of(item, "id"):
            continue
        profile = item.get("profile")
        shown = _text_of(profile, "display_name") if isinstance(profile, dict) else ""
        people[item["id"]] = clean(shown or _text_of(item, "name") or item["id"])
    return people


def _day(
    export: _Export,
    member: str,
    rooms: dict[str, str],
    people: dict[str, str],
    on_broken: OnBroken,
) -> Iterator[Entry]:
    found = _DAY.match(member)
    assert found is not None
    folder = found["folder"]
    room = rooms.get(folder, folder)
    try:
        items, raw = _load(export, member)
    except _TooMuch:
        raise
    except ArchiveError as error:
        on_broken(error)
        return
    entries = []
    lines: list[int] = []  # found out when a first item is broken
    for position, item in enumerate(items):
        try:
            entry = _entry(item, room, folder, rooms, people)
        except _BrokenItem as broken:
            lines = lines or _lines_of_items(raw)
            on_broken(ArchiveError(f"{export.name}:{member}", lines[position], str(broken)))
            continue
        if entry is not None:
            entries.append(entry)
    yield from sorted(entries, key=lambda entry: entry.time_us)


class _BrokenItem(Exception):
    """An item of a day's list that is no message; an ArchiveError where its line is known."""


def _time_us(ts: str) -> int:
    found = _TS.match(ts)
    seconds = int(found["seconds"]) if found else -1
    if found is None or not 0 <= seconds < _TIME_MAX_SECONDS:
        raise _BrokenItem(f"a message without a time in 'ts': {ts[:40]!r}")
    return seconds * 1_000_000 + int(found["fraction"].ljust(6, "0"))


def _entry(
    item: Any, room: str, folder: str, rooms: dict[str, str], people: dict[str, str]
) -> Entry | None:
    if not isinstance(item, dict):
        raise _BrokenItem("expected an object with a message")
    if item.get("type") != "message":
        return None
    ts, thread = _text_of(item, "ts"), _text_of(item, "thread_ts")
    time_us = _time_us(ts)
    text = clean(_plain(_text_of(item, "text"), rooms, people))
    text = "\n".join([text, *_attached(item)]).strip("\n")
    if too_large(text):
        raise _BrokenItem(too_large(text))
    return Entry(
        room=room,
        author=_author(item, people),
        time_us=time_us,
        key=f"{folder}/{ts}",
        parent=f"{folder}/{thread}" if thread and thread != ts else "",
        text=text,
    )


def _author(item: dict, people: dict[str, str]) -> str:
    user = _text_of(item, "user") or _text_of(item, "bot_id")
    profile = item.get("user_profile")
    shown = _text_of(profile, "display_name") if isinstance(profile, dict) else ""
    return clean(people.get(user) or shown or _text_of(item, "username") or user or "unknown")


def _attached(item: dict) -> list[str]:
    files = item.get("files")
    if not isinstance(files, list):
        return []
    names = (_text_of(file, "name") or "without a name" for file in files if isinstance(file, dict))
    return [clean(f"[attachment {name}: not in the export]") for name in names]


def _plain(text: str, rooms: dict[str, str], people: dict[str, str]) -> str:
    """`text` with Slack's marks as people read them: names for ids, links beside their labels."""

    def replace(found: re.Match[str]) -> str:
        sign, target, label = found.group(1), found.group(2), found.group(3) or ""
        if sign == "@":
            return "@" + (label or people.get(target, target))
        if sign == "#":
            return "#" + (label or rooms.get(target, target))
        if sign == "!":
            return "@" + (label or target).lstrip("@")
        return f"{label} ({target})" if label and label != target else target

    return unescape(_MARK.sub(replace, text))
