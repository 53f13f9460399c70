"""Logs of IRC clients: irssi and weechat, one file a conversation, one line a message.

irssi    `--- Log opened Mon Mar 01 10:00:00 2004`   the date of the lines that follow, in the
         `--- Day changed Tue Mar 02 2004`           words of the language that it ran in
         `10:00 <@alice> hello`    `10:01  * alice waves`    `10:02 -alice:#chess- a notice`
         `10:00 <@alice:@#chess> only operators read this`   `10:02 [notice(#chess)] one of our own`
         `10:03 -!- bob [..] has joined #chess`              an event, no message
weechat  `2004-03-01 10:00:00<tab>@alice<tab>hello`, ` *<tab>alice waves`; `-->`, `<--`, `--`, `=!=`
         are events, but `--<tab>Notice(alice) -> #chess: hello` is none, nor is `Msg(alice) -> ...`
         a line without a time goes on with the message above it

The clock of an irssi line may stand in brackets, have seconds and a date before it, and no space
behind it. A time of weechat may have a fraction and a zone. What names no zone is taken as UTC.
Events (joins, quits, modes) are not messages: skipped, with the lines that go on with them.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO, NamedTuple

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_TEXT_SIZE_MAX
from appliance.formats.archive.entry import Entry, OnBroken, clean, decode, microseconds, refuse
from appliance.formats.archive.lines import numbered
from appliance.formats.archive.months import month_of

CHANNEL_SIGNS = "#&!+"
NOBODY = "unknown"  # who wrote a log is not named in what he says himself

_DAY = r"(?:(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[ T])?"
_CLOCK = (
    rf"[\[(]?{_DAY}"
    r"(?P<hour>[0-2]\d)[:.](?P<minute>[0-5]\d)(?:[:.](?P<second>[0-5]\d|60))?[\])]?:? {0,2}"
)
# The target behind a colon says that it was said to some of the channel alone.
_NICK = r"(?P<nick>[^>\s:]{1,64})(?::[^>\s]{1,200})?"
_IRSSI_SAID = re.compile(_CLOCK + rf"<[ @+%&~!]?{_NICK}> ?(?P<text>.*)$")
_IRSSI_DID = re.compile(
    _CLOCK + r"\* (?P<nick>[^\s:]{1,64})(?::[@+%&~!]?[#&!+]\S*)? ?(?P<text>.*)$"
)
_IRSSI_NOTICE = re.compile(
    _CLOCK + r"-(?!!-)(?P<nick>[^\s:()\[\]]{1,64})(?:[:(\[]\S*)?- ?(?P<text>.*)$"
)
_IRSSI_OWN = re.compile(_CLOCK + r"\[(?:notice|msg)\([^()\s]{1,200}\)\] ?(?P<text>.*)$")
_IRSSI_EVENT = re.compile(_CLOCK + r"(?:-!-|!|\[|-!)")
_IRSSI_DATE = re.compile(r"--- (?:Log (?P<log>opened|closed)|Day changed) (?P<date>.*)$")
_DATE = re.compile(
    r"(?:\S{1,20},? +)?(?:(?P<month>[^\W\d]\S{0,20}|\d{1,2}[月월]) +(?P<day>\d{1,2})\.?"
    r"|(?P<day_first>\d{1,2})\.? +(?P<month_last>[^\W\d]\S{0,20})),?"
    r"(?: (?P<clock>\d\d:\d\d:\d\d))? +(?P<year>\d{4})$"
)
_DATE_NUMBERS = re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?:[ T].*)?$", re.ASCII)

_WEECHAT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r" ?(?P<zone>Z|[+-]\d\d:?\d\d)?\t(?P<nick>[^\t]{0,100})\t(?P<text>.*)$",
    re.ASCII,
)
# Of another setting of its time: what goes on with a message above it has none.
_WEECHAT_TIMED = re.compile(r"[\[(]?\d[^\t]{0,40}\t[^\t]{0,100}\t")
_WEECHAT_EVENTS = frozenset(("--", "-->", "<--", "=!=", ""))
_WEECHAT_TOLD = re.compile(
    r"[^\W\d_]{1,20}\([@+%&~!]?(?P<nick>[^()\s]{1,64})\)(?: -> \S{1,200})?: (?P<text>.*)$"
)
_WEECHAT_SENT = re.compile(r"(?P<what>[^\W\d_]{1,20}) -> (?P<target>\S{1,200}): (?P<text>.*)$")
_WEECHAT_FILE = re.compile(r"(?:irc\.(?P<server>[^.]+)\.)?(?P<channel>.+?)(?:\.weechatlog|\.log)?$")
_IRSSI_FILE = re.compile(r"(?P<channel>.+?)(?:\.log)?$")


class Log(NamedTuple):
    """What the name of a log says: the room that it is called after, its channel with its signs,
    and its server; "" where the name has none."""

    room: str
    channel: str
    server: str

    @property
    def is_channel(self) -> bool:
        """Whether everybody may join, and not two people talk to each other."""
        return self.channel.startswith(tuple(CHANNEL_SIGNS))


def irssi_log(file_name: str) -> Log:
    """Room of the log `#chess.log`: chess."""
    return _log(_IRSSI_FILE, file_name)


def weechat_log(file_name: str) -> Log:
    """Room of the log `irc.libera.#chess.weechatlog`: chess."""
    return _log(_WEECHAT_FILE, file_name)


def _log(form: re.Pattern[str], file_name: str) -> Log:
    found = form.match(file_name)
    channel = found["channel"] if found else file_name
    server = (found.groupdict().get("server") or "") if found else ""
    return Log(channel.lstrip(CHANNEL_SIGNS) or "irc", channel, server)


# --- irssi ----------------------------------------------------------------------------------------


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
    text = changed["date"].strip()
    numbers = _DATE_NUMBERS.match(text)
    found = numbers or _DATE.match(text)
    try:
        if found is None:
            raise ValueError
        if numbers:
            month, day = int(numbers["month"]), int(numbers["day"])
        else:
            word = found["month"] or found["month_last"]
            month, day = month_of(word), int(found["day"] or found["day_first"])
            if not month:
                raise ArchiveError(
                    name, number, f"no month is called {word!r} in any language known here"
                )
        return datetime(int(found["year"]), month, day, tzinfo=UTC)
    except ValueError:
        raise ArchiveError(
            name, number, f"expected a date such as 'Mon Mar 01 2004', not {text[:60]!r}"
        ) from None


def _irssi_entry(
    line: str, day: datetime | None, name: str, number: int, room: str
) -> Entry | None:
    """The entry of a line; None for an event or an empty line."""
    if not line.strip():
        return None
    own = _IRSSI_OWN.match(line)
    if own is None and _IRSSI_EVENT.match(line):
        return None
    did = _IRSSI_DID.match(line)
    found = own or _IRSSI_SAID.match(line) or did or _IRSSI_NOTICE.match(line)
    if found is None or int(found["hour"]) > 23:
        raise ArchiveError(name, number, f"not a line of an irssi log: {line[:60]!r}")
    if found["year"]:
        try:
            day = datetime(int(found["year"]), int(found["month"]), int(found["day"]), tzinfo=UTC)
        except ValueError:
            raise ArchiveError(name, number, f"no such day: {line[:60]!r}") from None
    if day is None:
        raise ArchiveError(name, number, "a message before the first date ('--- Log opened ...')")
    clock = day.replace(
        hour=int(found["hour"]),
        minute=int(found["minute"]),
        second=min(59, int(found["second"] or 0)),
    )
    if found is own:
        return Entry(room, NOBODY, microseconds(clock), "", "", found["text"])
    nick, text = found["nick"], found["text"]
    if did is found:
        text = f"* {nick} {text}"
    return Entry(room, nick, microseconds(clock), "", "", text)


# --- weechat --------------------------------------------------------------------------------------


class _Message:
    """What was said, of one line or several."""

    too_long = f"a text of more than {ARCHIVE_TEXT_SIZE_MAX} bytes"

    def __init__(self, entry: Entry, number: int) -> None:
        self.entry, self.number = entry, number
        self.lines, self.size = [entry.text], len(entry.text.encode())

    def add(self, line: str) -> bool:
        """One more line; False: the text is longer than a text may be."""
        self.size += 1 + len(line.encode())
        if self.size <= ARCHIVE_TEXT_SIZE_MAX:
            self.lines.append(line)
            return True
        return False

    def whole(self) -> Entry:
        return self.entry._replace(text="\n".join(self.lines).rstrip("\n"))


def read_weechat(
    file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse
) -> Iterator[Entry]:
    """Entries of one weechat log."""
    said: _Message | None = None  # which a line without a time goes on with
    for number, raw in numbered(file, name):
        line = clean(decode(raw)).rstrip("\n")
        found = _WEECHAT.match(line)
        if found is None and said is not None and not _WEECHAT_TIMED.match(line):
            if not said.add(line):
                on_broken(ArchiveError(name, said.number, said.too_long))
                said = None
            continue
        if said is not None:
            yield said.whole()
            said = None
        try:
            if found is not None:
                entry = _weechat_entry(found, name, number, room)
                said = _Message(entry, number) if entry is not None else None
            elif line.strip():
                raise ArchiveError(name, number, f"not a line of a weechat log: {line[:60]!r}")
        except ArchiveError as error:
            on_broken(error)
    if said is not None:
        yield said.whole()


def _weechat_entry(found: re.Match[str], name: str, number: int, room: str) -> Entry | None:
    """The entry that begins with a line; None for an event."""
    try:
        moment = datetime.fromisoformat(found["time"].replace("T", " "))
        if found["zone"] and found["zone"] != "Z":
            zone = datetime.strptime(found["zone"].replace(":", ""), "%z").tzinfo
            moment = moment.replace(tzinfo=zone)
        time_us = microseconds(moment) + int((found["fraction"] or "0").ljust(6, "0")[:6])
    except ValueError:
        raise ArchiveError(name, number, f"no such time: {found['time']}") from None
    nick, text = found["nick"].strip(), found["text"]
    if nick == "--":
        told = _told(text)
        return Entry(room, told[0], time_us, "", "", told[1]) if told else None
    if nick in _WEECHAT_EVENTS:
        return None
    if nick == "*":
        nick, _, did = text.partition(" ")
        return Entry(room, _bare(nick), time_us, "", "", f"* {nick} {did}")
    return Entry(room, _bare(nick), time_us, "", "", text)


def _bare(nick: str) -> str:
    """A nick without the signs of its mode, and without the brackets that a setting adds."""
    if len(nick) > 2 and (nick[0], nick[-1]) in (("<", ">"), ("[", "]"), ("(", ")")):
        nick = nick[1:-1].strip()
    return nick.lstrip("@+%&~!") or nick


def _told(text: str) -> tuple[str, str] | None:
    """(who, what) of a notice, or of what was said to some of the channel alone; None: an event."""
    told = _WEECHAT_TOLD.match(text)
    if told is not None:
        return told["nick"], told["text"]
    sent = _WEECHAT_SENT.match(text)
    if sent is None or sent["what"] == "CTCP":
        return None
    if sent["what"] == "Action":
        nick = sent["text"].partition(" ")[0]
        return _bare(nick), f"* {sent['text']}"
    return NOBODY, sent["text"]
