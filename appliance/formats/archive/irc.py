"""Logs of IRC clients: irssi and weechat, one file a channel, one line a message.

irssi    `--- Log opened Mon Mar 01 10:00:00 2004`   the date of the lines that follow
         `--- Day changed Tue Mar 02 2004`
         `10:00 <@alice> hello`    `10:01  * alice waves`    `10:02 -alice:#chess- a notice`
         `10:03 -!- bob [..] has joined #chess`              an event, no message
weechat  `2004-03-01 10:00:00<tab>@alice<tab>hello`, ` *<tab>alice waves`; `-->`, `<--`, `--`, `=!=`
are events

The logs name no time zone: their times are taken as UTC. Events (joins, quits, modes) are not
messages: skipped.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO

from appliance.base.errors import ArchiveError
from appliance.formats.archive.entry import Entry, OnBroken, clean, decode, microseconds, refuse
from appliance.formats.archive.lines import numbered

_CLOCK = r"(?P<hour>[0-2]\d):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))? "
_IRSSI_SAID = re.compile(_CLOCK + r"<[ @+%&~!]?(?P<nick>[^>\s]{1,64})> ?(?P<text>.*)$")
_IRSSI_DID = re.compile(_CLOCK + r" ?\* (?P<nick>\S{1,64}) ?(?P<text>.*)$")
_IRSSI_NOTICE = re.compile(
    _CLOCK + r"-(?!!-)(?P<nick>[^\s:()\[\]]{1,64})(?:[:(\[]\S*)?- ?(?P<text>.*)$"
)
_IRSSI_EVENT = re.compile(_CLOCK + r"(?:-!-|!|\[|-!)")
_IRSSI_DATE = re.compile(r"--- (?:Log (?P<log>opened|closed)|Day changed) (?P<date>.*)$")
_MONTHS = {
    name: i for i, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}
_DATE = re.compile(
    r"\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2}) (?:(?P<clock>\d\d:\d\d:\d\d) )?(?P<year>\d{4})$",
    re.ASCII,
)

_WEECHAT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\t(?P<nick>[^\t]{0,100})\t(?P<text>.*)$", re.ASCII
)
_WEECHAT_EVENTS = frozenset(("--", "-->", "<--", "=!=", ""))
_WEECHAT_FILE = re.compile(r"(?:irc\.[^.]+\.)?(?P<channel>.+?)(?:\.weechatlog|\.log)?$")
_IRSSI_FILE = re.compile(r"(?P<channel>.+?)(?:\.log)?$")


def irssi_room(file_name: str) -> str:
    """Room of the log `#chess.log`: chess."""
    return _channel(_IRSSI_FILE, file_name)


def weechat_room(file_name: str) -> str:
    """Room of the log `irc.libera.#chess.weechatlog`: chess."""
    return _channel(_WEECHAT_FILE, file_name)


def _channel(form: re.Pattern[str], file_name: str) -> str:
    found = form.match(file_name)
    return (found.group("channel") if found else file_name).lstrip("#&!+") or "irc"


def read_irssi(
    file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse
) -> Iterator[Entry]:
    """Entries of one irssi log."""
    day: datetime | None = None
    for number, raw in numbered(file, name):
        line = clean(decode(raw)).rstrip("\n")
        try:
            changed = _IRSSI_DATE.match(line)
            if changed:
                day = _irssi_day(changed, name, number) if changed.group("log") != "closed" else day
                continue
            entry = _irssi_entry(line, day, name, number, room)
        except ArchiveError as error:
            on_broken(error)
            continue
        if entry is not None:
            yield entry


def _irssi_day(changed: re.Match[str], name: str, number: int) -> datetime:
    found = _DATE.match(changed.group("date"))
    try:
        if found is None:
            raise ValueError
        return datetime(int(found["year"]), _MONTHS[found["month"]], int(found["day"]), tzinfo=UTC)
    except (ValueError, KeyError):
        raise ArchiveError(name, number, "expected a date such as 'Mon Mar 01 2004'") from None


def _irssi_entry(
    line: str, day: datetime | None, name: str, number: int, room: str
) -> Entry | None:
    """The entry of a line; None for an event or an empty line."""
    if not line.strip() or _IRSSI_EVENT.match(line):
        return None
    did = _IRSSI_DID.match(line)
    found = _IRSSI_SAID.match(line) or did or _IRSSI_NOTICE.match(line)
    if found is None or int(found["hour"]) > 23:
        raise ArchiveError(name, number, f"not a line of an irssi log: {line[:60]!r}")
    if day is None:
        raise ArchiveError(name, number, "a message before the first date ('--- Log opened ...')")
    clock = day.replace(
        hour=int(found["hour"]), minute=int(found["minute"]), second=int(found["second"] or 0)
    )
    nick, text = found["nick"], found["text"]
    if did is found:
        text = f"* {nick} {text}"
    return Entry(room, nick, microseconds(clock), "", "", text)


def read_weechat(
    file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse
) -> Iterator[Entry]:
    """Entries of one weechat log."""
    for number, raw in numbered(file, name):
        line = clean(decode(raw)).rstrip("\n")
        if not line.strip():
            continue
        try:
            entry = _weechat_entry(line, name, number, room)
        except ArchiveError as error:
            on_broken(error)
            continue
        if entry is not None:
            yield entry


def _weechat_entry(line: str, name: str, number: int, room: str) -> Entry | None:
    found = _WEECHAT.match(line)
    if found is None:
        raise ArchiveError(name, number, f"not a line of a weechat log: {line[:60]!r}")
    try:
        moment = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise ArchiveError(name, number, f"no such time: {found['time']}") from None
    nick, text = found["nick"].strip(), found["text"]
    if nick in _WEECHAT_EVENTS:
        return None
    if nick == "*":
        nick, _, did = text.partition(" ")
        text = f"* {nick} {did}"
    return Entry(room, nick.lstrip("@+%&~!") or nick, microseconds(moment), "", "", text)
