"""Export zips of Slack workspaces.

    channels.json                           public conversations: lists of {id, name}
    groups.json, dms.json, mpims.json       private ones; those of dms have members and no name
    users.json                              people: {id, name, profile: {display_name, real_name}}
    <room>/<year>-<month>-<day>.json        what was said: lists of {type, user, text, ts,
    <room>/<year>-<month>-<day>-<n>.json    thread_ts, attachments, blocks, files}

A room is called as its channel; `private/ops` is a private channel, `direct/ann, bob` are people
who write to each other. What no list names is private, and so is what one list calls public and
another one does not. Rooms of one name are told apart by id. What a message says beside its text,
in blocks and attachments (so write programs), follows it, unless the text says it too.

All may lie in one folder of the zip, and names may have backslashes, as some programs of Windows
write them. A day that lies deeper is read if its folder is that of a room in a list and no other
place has one of that name. Any other file that is called as a day is is broken, and told of.

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
from appliance.formats.archive.naming import Naming
from appliance.formats.archive.slack_blocks import files_named, moment, words_beside

_DAY = re.compile(
    r"(?P<folder>[^/]{1,200})/(?P<date>\d{4}-\d\d-\d\d)(?:[-_](?P<number>\d{1,4}))?\.json", re.ASCII
)
_DAY_LIKE = re.compile(r"(?:^|/)\d{4}-\d{1,2}-\d{1,2}[^/]*\.json$", re.ASCII | re.IGNORECASE)
_TS = re.compile(r"(?P<seconds>\d{1,11})\.(?P<fraction>\d{1,6})$", re.ASCII)
_MARK = re.compile(r"<([@#!]?)([^<>|]{1,2000})(?:\|([^<>]{0,2000}))?>")
_TIME_MAX_SECONDS = 253_370_764_800  # the year 9999
_PUBLIC, _PRIVATE, _DIRECT = "channels.json", "groups.json", ("dms.json", "mpims.json")
_LISTS = (_PUBLIC, _PRIVATE, *_DIRECT)
# What conversations of a newer kind say of themselves, in whichever list.
_NOT_PUBLIC = ("is_private", "is_group", "is_im", "is_mpim")
# What programs that zip add of their own.
_FOREIGN = re.compile(r"(?:^|/)(?:__MACOSX/|\.DS_Store$|\._|Thumbs\.db$|desktop\.ini$)")
_NAMES_SHOWN = 8  # of the people in a room's name


class _Export:
    """An open zip and what may still be unpacked from it. Invariant: `left` is never negative."""

    def __init__(self, archive: zipfile.ZipFile, name: str, size: int) -> None:
        self.archive, self.name = archive, name
        own = [member for member in archive.namelist() if not _FOREIGN.search(_slashed(member))]
        folder = _enclosing({_slashed(member) for member in own})  # in which everything lies, or ""
        self.members: dict[str, str] = {}  # as it is called in that folder -> in the zip
        self.astray = []  # files that are called as days, in places of which nothing is known
        for member in own:
            called = _slashed(member)
            inside = called.startswith(folder) and called.removeprefix(folder) not in self.members
            if inside:
                self.members[called.removeprefix(folder)] = member
            elif _DAY_LIKE.search(called):
                self.astray.append(member)
        # small files may shrink as far as they like: one member more is always allowed
        self.left = min(
            ARCHIVE_UNPACKED_SIZE_MAX, ARCHIVE_RATIO_MAX * size + ARCHIVE_ENTRY_SIZE_MAX
        )

    def unpack(self, member: str) -> bytes:
        """The bytes of a member; ArchiveError with why not, of one that is broken or too large."""
        where = f"{self.name}:{member}"
        try:
            with self.archive.open(self.members[member]) as stream:
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


def _slashed(member: str) -> str:
    """A name of the zip with the separators that zips should have."""
    return member.replace("\\", "/").removeprefix("./")


def _enclosing(members: set[str]) -> str:
    """The one folder, with its slash, in which all of an export lies; "" when it lies flat."""
    if members.intersection(_LISTS):
        return ""
    folders = {
        member.rpartition("/")[0] for member in members if member.rpartition("/")[2] in _LISTS
    }
    return f"{folders.pop()}/" if len(folders) == 1 else ""


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
        export = _Export(archive, name, file.seek(0, io.SEEK_END))
        days = {member: found for member in export.members if (found := _DAY.fullmatch(member))}
        if not days and not export.members.keys() & set(_LISTS):
            raise ArchiveError(
                name,
                1,
                "not an export of Slack: no channels.json and no day of a channel, at its top or "
                "in one folder",
            )
        people = _people(export)
        rooms = _rooms(export, people, {found["folder"] for found in days.values()})
        for folder, member in _in_order(export, days, rooms, on_broken):
            yield from _day(export, member, folder, rooms, people, on_broken)


def _in_order(
    export: _Export, days: dict[str, re.Match[str]], rooms: "_Rooms", on_broken: OnBroken
) -> list[tuple[str, str]]:
    """(folder of a room, member) of all days, room by room; what is none is told of."""
    found = [
        (day["folder"], day["date"], int(day["number"] or 0), member)
        for member, day in days.items()
        if day["folder"] not in (".", "..")
    ]
    parents: dict[str, set[str]] = {}  # last part of a folder -> what stands before it
    deeper: dict[str, re.Match[str]] = {}
    for member in export.members:
        before, _, rest = member.rpartition("/")
        before, _, folder = before.rpartition("/")
        day = _DAY.fullmatch(f"{folder}/{rest}")
        if day is not None:
            parents.setdefault(folder, set()).add(before)
            if before and not {"", ".", ".."} & set(before.split("/")) and rooms.knows(folder):
                deeper[member] = day
    found += [
        (day["folder"], day["date"], int(day["number"] or 0), member)
        for member, day in deeper.items()
        if len(parents[day["folder"]]) == 1
    ]
    read = {member for *_, member in found}
    left = [name for member, name in export.members.items() if member not in read]
    for name in sorted([*export.astray, *filter(_called_as_a_day, left)]):
        on_broken(
            ArchiveError(
                f"{export.name}:{name}",
                1,
                "a day in a place where an export has none: it belongs into the folder of its "
                "channel, as YEAR-MONTH-DAY.json",
            )
        )
    return [(folder, member) for folder, _, _, member in sorted(found)]


def _called_as_a_day(name: str) -> bool:
    return _DAY_LIKE.search(_slashed(name)) is not None


def _load(export: _Export, member: str) -> tuple[list[Any], bytes]:
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


def _text_of(item: dict[str, Any], field: str) -> str:
    value = item.get(field)
    return value if isinstance(value, str) else ""


class _Rooms:
    """The conversations of an export."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # id -> as people write it
        self._naming = Naming()
        self._folders: dict[str, tuple[str, bool]] = {}  # -> (room, whether it is private)

    def add(self, id_: str, folders: list[str], shown: str, room: str, *, private: bool) -> None:
        """One conversation, with the names that its folder may have: whoever is first has one."""
        self.names.setdefault(id_, shown)
        named = self._naming.of(id_, room, id_), private
        for folder in folders:
            self._folders.setdefault(folder, named)

    def knows(self, folder: str) -> bool:
        """Whether a list names the room of a folder."""
        return folder in self._folders

    def of(self, folder: str) -> tuple[str, bool]:
        """The room of a folder, and whether it is private. What no list names is."""
        found = self._folders.get(folder)
        if found is None:
            room = self._naming.of(f"folder {folder}", f"private/{folder}", "no list names it")
            found = self._folders[folder] = room, True
        return found


def _rooms(export: _Export, people: dict[str, str], folders: set[str]) -> _Rooms:
    """The conversations in the lists; `folders`: those that hold days."""
    rooms = _Rooms()
    listed = {member: _listed(export, member) for member in _LISTS}
    public = [item for item in listed[_PUBLIC] if not any(item.get(flag) for flag in _NOT_PUBLIC)]
    hidden = [item for item in listed[_PUBLIC] if any(item.get(flag) for flag in _NOT_PUBLIC)]
    others = [item for member in _LISTS if member != _PUBLIC for item in listed[member]]
    private_ids = {item["id"] for item in (*hidden, *others)}
    # a folder with a name that a public and a private conversation have is the private one's
    for member in (_PRIVATE, *_DIRECT, _PUBLIC):
        for item in listed[member]:
            id_, name = item["id"], _text_of(item, "name") or item["id"]
            if member == _PUBLIC and id_ not in private_ids:
                continue
            room = f"private/{name}"
            if member in _DIRECT:
                room = f"direct/{_together(item, people) or name}"
            own = [id_] if id_ in folders and member != _PUBLIC else [id_, name]
            rooms.add(id_, own, name, room, private=True)
    for item in public:
        id_, name = item["id"], _text_of(item, "name") or item["id"]
        if id_ not in private_ids:
            rooms.add(id_, [name, id_], name, name, private=False)
    for item in (*others, *hidden):  # what is left of the names of those that have their id's
        name = _text_of(item, "name")
        if name:
            rooms.add(item["id"], [name], name, f"private/{name}", private=True)
    return rooms


def _listed(export: _Export, member: str) -> list[dict[str, Any]]:
    """The conversations that a list names."""
    if member not in export.members:
        return []
    items = _load(export, member)[0]
    return [item for item in items if isinstance(item, dict) and _text_of(item, "id")]


def _together(item: dict[str, Any], people: dict[str, str]) -> str:
    """The people of a conversation that has no name of its own."""
    members = item.get("members")
    if not isinstance(members, list):
        return ""
    names = [people.get(each, each) for each in members if isinstance(each, str)]
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown


def _people(export: _Export) -> dict[str, str]:
    """Id -> name as others see it."""
    if "users.json" not in export.members:
        return {}
    people = {}
    for item in _load(export, "users.json")[0]:
        if not isinstance(item, dict) or not _text_of(item, "id"):
            continue
        shown = _shown(item.get("profile")) or _text_of(item, "real_name")
        people[item["id"]] = clean(shown or _text_of(item, "name") or item["id"])
    return people


def _shown(profile: Any) -> str:
    """A name as the program shows it: the one that somebody chose, else the whole one."""
    if not isinstance(profile, dict):
        return ""
    return _text_of(profile, "display_name").strip() or _text_of(profile, "real_name").strip()


def _day(
    export: _Export,
    member: str,
    folder: str,
    rooms: _Rooms,
    people: dict[str, str],
    on_broken: OnBroken,
) -> Iterator[Entry]:
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
            entry = _entry(item, folder, rooms, people)
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


def _entry(item: Any, folder: str, rooms: _Rooms, people: dict[str, str]) -> Entry | None:
    if not isinstance(item, dict):
        raise _BrokenItem("expected an object with a message")
    if item.get("type", "message") != "message":
        if _text_of(item, "text").strip():
            raise _BrokenItem(f"words in an item of type {str(item['type'])[:40]!r}, no message")
        return None
    ts, thread = _text_of(item, "ts"), _text_of(item, "thread_ts")
    time_us = _time_us(ts)
    text = _plain(_text_of(item, "text"), rooms.names, people)
    beside = words_beside(item, text, lambda words: _plain(words, rooms.names, people))
    text = "\n".join(
        [clean(text), *map(clean, beside), *map(clean, files_named(item.get("files")))]
    ).strip("\n")
    if too_large(text):
        raise _BrokenItem(too_large(text))
    room, private = rooms.of(folder)
    return Entry(
        room=room,
        author=_author(item, people),
        time_us=time_us,
        key=f"{folder}/{ts}",
        parent=f"{folder}/{thread}" if thread and thread != ts else "",
        text=text,
        private=private,
    )


def _author(item: dict[str, Any], people: dict[str, str]) -> str:
    user = _text_of(item, "user") or _text_of(item, "bot_id")
    bot = item.get("bot_profile")
    shown = (
        people.get(user)
        or _shown(item.get("user_profile"))
        or _text_of(item, "username").strip()
        or (_text_of(bot, "name") if isinstance(bot, dict) else "")
    )
    return clean(shown or user or "unknown")


def _plain(text: str, rooms: dict[str, str], people: dict[str, str]) -> str:
    """`text` with Slack's marks as people read them: names for ids, links beside their labels."""

    def replace(found: re.Match[str]) -> str:
        sign, target, label = found.group(1), found.group(2), found.group(3) or ""
        if sign == "@":
            return "@" + (people.get(target) or label or target)
        if sign == "#":
            return "#" + (rooms.get(target) or label or target)
        if sign == "!" and target.startswith("date^"):
            when, _, rest = target.removeprefix("date^").partition("^")
            address = rest.partition("^")[2]
            words = label or moment(when)
            return f"{words} ({address})" if address else words
        if sign == "!":
            return "@" + (label or target.removeprefix("subteam^")).lstrip("@")
        return f"{label} ({target})" if label and label != target else target

    return unescape(_MARK.sub(replace, text))
