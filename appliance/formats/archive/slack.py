"""Export zips of Slack workspaces.

    channels.json, groups.json, dms.json, mpims.json   the rooms: lists of {id, name}
    users.json                                         names of the people: {id, name, profile:
    {display_name}} <room>/<year>-<month>-<day>.json                   what was said: lists of
    {type, user, text, ts, thread_ts}

Members are read from the zip into memory, never unpacked: names inside it reach no file system.
What a member unpacks to is bounded, so a bomb is an error. Rooms come in the order of their names,
days in order of their dates.
"""

import html
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_ENTRY_SIZE_MAX, ARCHIVE_MEMBERS_MAX
from appliance.formats.archive.entry import Entry, OnBroken, clean, refuse, too_large

_DAY = re.compile(r"(?P<folder>[^/\\]{1,200})/(?P<date>\d{4}-\d\d-\d\d)\.json$", re.ASCII)
_TS = re.compile(r"(?P<seconds>\d{1,11})\.(?P<fraction>\d{1,6})$", re.ASCII)
_MARK = re.compile(r"<([@#!]?)([^<>|]{1,2000})(?:\|([^<>]{0,2000}))?>")
_TIME_MAX_SECONDS = 253_370_764_800  # the year 9999
_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")


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
        rooms, people = _rooms(archive, name), _people(archive, name)
        for member in days:
            yield from _day(archive, name, member, rooms, people, on_broken)


def _load(archive: zipfile.ZipFile, name: str, member: str) -> tuple[list, bytes]:
    """The JSON of one member, which must be a list, and its bytes."""
    where = f"{name}:{member}"
    try:
        with archive.open(member) as stream:
            raw = stream.read(ARCHIVE_ENTRY_SIZE_MAX + 1)
    except (
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        raise ArchiveError(where, 1, f"cannot be unpacked: {error}") from None
    if len(raw) > ARCHIVE_ENTRY_SIZE_MAX:
        raise ArchiveError(where, 1, f"unpacks to more than {ARCHIVE_ENTRY_SIZE_MAX} bytes")
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


def _line_of_item(raw: bytes, position: int) -> int:
    """Line at which item `position` (from 0) of the list in `raw` starts."""
    offset = raw.index(b"[") + 1
    for item in msgspec.json.decode(raw, type=list[msgspec.Raw])[: position + 1]:
        start = raw.index(bytes(item), offset)
        offset = start + len(bytes(item))
    return raw.count(b"\n", 0, start) + 1


def _text_of(item: dict, field: str) -> str:
    value = item.get(field)
    return value if isinstance(value, str) else ""


def _rooms(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Folder or id -> name of the room."""
    rooms = {}
    for member in _LISTS:
        if member not in archive.namelist():
            continue
        for item in _load(archive, name, member)[0]:
            if isinstance(item, dict) and _text_of(item, "id"):
                rooms[item["id"]] = _text_of(item, "name") or item["id"]
    return rooms


def _people(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Id -> name as others see it."""
    if "users.json" not in archive.namelist():
        return {}
    people = {}
    for item in _load(archive, name, "users.json")[0]:
        if not isinstance(item, dict) or not _text_of(item, "id"):
            continue
        profile = item.get("profile")
        shown = _text_of(profile, "display_name") if isinstance(profile, dict) else ""
        people[item["id"]] = clean(shown or _text_of(item, "name") or item["id"])
    return people


def _day(
    archive: zipfile.ZipFile,
    name: str,
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
        items, raw = _load(archive, name, member)
    except ArchiveError as error:
        on_broken(error)
        return
    entries = []
    for position, item in enumerate(items):
        try:
            entry = _entry(item, room, folder, rooms, people)
        except _BrokenItem as broken:
            on_broken(ArchiveError(f"{name}:{member}", _line_of_item(raw, position), str(broken)))
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

    return html.unescape(_MARK.sub(replace, text))
