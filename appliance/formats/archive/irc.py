"""Logs of IRC clients: irssi and weechat, one file a conversation, one line a message.

irssi    `--- Log opened Mon Mar 01 10:00:00 2004`   the date of the lines that follow, in the
         `--- Day changed Tue Mar 02 2004`           words of the language that it ran in
         `10:00 <@alice> hello`    `10:01  * alice waves`    `10:02 -alice:#chess- a notice`
         `10:00 <@alice:@#chess> only operators read this`   `10:02 [notice(#chess)] one of our own`
         `10:02 [msg(bob)] to him alone`   `10:02 [bob(b@host)] to me`   `10:02 -bob(b@host)- to me`
         `10:03 -!- bob [..] has joined #chess`              an event, no message
weechat  `2004-03-01 10:00:00<tab>@alice<tab>hello`, ` *<tab>alice waves`; `-->`, `<--`, `--`, `=!=`
         are events, but `--<tab>Notice(alice): hello`, `Notice:@(alice)`, `Msg -> @#chess` are none
         `MSG(bob): to him alone`, `Notice -> bob: ..`, `PvNotice(bob): ..`, `bob (b@host): to me`
         a line without a time goes on with the message above it

A client writes what one person is told into the log of the window that was looked at. That is no
part of the log's own conversation: it is private, and has a room apart (`Rooms`).

A day is known from a line that says so until the next line that should, also when that one cannot
be read. The clock of an irssi line may stand in brackets, have seconds and a date before it, and no
space behind it. A time of weechat may have a fraction and a zone. What names no zone is taken as
UTC. Events (joins, quits, modes) are not messages: skipped, with the lines that go on with them.
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
from appliance.formats.archive.naming import Naming

CHANNEL_SIGNS = "#&!+"
STATUS_SIGNS = "@+%&~!"  # before a channel's name: those with such a sign alone read it
NOBODY = "unknown"  # who wrote a log is not named in what he says himself

_DAY = r"(?:(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[ T])?"
_CLOCK = (
    rf"[\[(]?{_DAY}"
    r"(?P<hour>[0-2]\d)[:.](?P<minute>[0-5]\d)(?:[:.](?P<second>[0-5]\d|60))?[\])]?:? {0,2}"
)
# The target behind a colon: another channel of the window, or some of the channel alone.
_IRSSI_SAID = re.compile(
    _CLOCK + r"<[ @+%&~!]?(?P<nick>[^>\s:]{1,64})(?::(?P<target>[^>\s]{1,200}))?> ?(?P<text>.*)$"
)
_IRSSI_DID = re.compile(
    _CLOCK + r"\* (?P<nick>[^\s:]{1,64})(?::(?P<target>\S{1,200}))? ?(?P<text>.*)$"
)
_IRSSI_NOTICE = re.compile(
    _CLOCK + r"-(?!!-)(?P<nick>[^\s:()\[\]]{1,64})"
    r"(?::(?P<target>\S{0,200})|[(\[]\S*)?- ?(?P<text>.*)$"
)
_IRSSI_OWN = re.compile(
    _CLOCK + r"\[(?:notice|msg|dcc)\((?P<target>[^()\s]{1,200})\)\] ?(?P<text>.*)$"
)
_IRSSI_TOLD = re.compile(
    _CLOCK + r"\[(?P<nick>[^()\s]{1,64})\((?:dcc|[^()\s]*@[^()\s]*)\)\] ?(?P<text>.*)$"
)
_IRSSI_DID_APART = re.compile(
    _CLOCK + r"\(\*(?:dcc\*)?\) (?P<nick>\S{1,64}) ?(?P<text>.*)$", re.ASCII
)
_IRSSI_EVENT = re.compile(_CLOCK + r"(?:-!-|!|\[|-!)")
# What may be a line that tells the day, in whatever words: no message, and a year.
_IRSSI_DATED = re.compile(rf"--|(?!{_CLOCK}).*(?<!\d)(?:19|20)\d\d(?!\d)")
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
    r"(?P<what>[^\W\d_]{1,20})(?::(?P<some>\S{1,200}))?"
    r"\([@+%&~!]?(?P<nick>[^()\s]{1,64})\)(?: -> (?P<target>\S{1,200}))?: (?P<text>.*)$"
)
_WEECHAT_SENT = re.compile(r"(?P<what>[^\W\d_]{1,20}) -> (?P<target>\S{1,200}): (?P<text>.*)$")
# A notice to oneself. In brackets a nick begins a line of /whois.
_WEECHAT_NOTICE = re.compile(r"(?!\[)(?P<nick>[^()\s]{1,64}) \([^()\s]*@[^()\s]*\): (?P<text>.*)$")
# A nick has no dot; the name of a server may have several, and that of a channel.
_WEECHAT_FILES = (
    re.compile(r"(?:(?:irc\.)?(?P<server>(?![#&!+]).+?)\.)?(?P<channel>[#&!+].*)$"),
    re.compile(r"irc\.(?P<server>server)\.(?P<channel>.+)$"),  # what the server itself says
    re.compile(r"irc\.(?P<server>.+)\.(?P<channel>[^.]+)$"),
)
_FILE_END = {
    "irssi": re.compile(r"(?<=.)\.log$"),
    "weechat": re.compile(r"(?<=.)\.(?:weechat)?log$"),
}
# What logs are called that begin anew each day or month: the rest of the channel's name.
_FILE_DATE = re.compile(r"[._-](?:\d[._-]?){4,8}$", re.ASCII)


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
    return _log(_FILE_END["irssi"].sub("", file_name), "")


def weechat_log(file_name: str) -> Log:
    """Room of the log `irc.libera.#chess.weechatlog`: chess."""
    name = _FILE_END["weechat"].sub("", file_name)
    for form in _WEECHAT_FILES:
        found = form.match(name)
        if found is not None:
            return _log(found["channel"], found["server"] or "")
    return _log(name, "")


def _log(channel: str, server: str) -> Log:
    return Log(channel.lstrip(CHANNEL_SIGNS) or "irc", channel, server)


def _channels(target: str) -> set[str]:
    """The channels that a target may mean, some or all of them; none when it is a person."""
    return {
        target[at:]
        for at, sign in enumerate(target)
        if sign in CHANNEL_SIGNS and not target[:at].strip(STATUS_SIGNS)
    }


def _folded(name: str) -> str:
    """As names of files have it: IRC knows no case, a path no slash within a name."""
    return name.lower().replace("/", "_")


class Rooms:
    """Where messages of one log belong: to its own conversation, or to one apart from it.

    A log of a channel holds what was said to all of the channel, or to its operators. What another
    target was told is private: the room `direct/NICK`, or `private/NAME` of another channel. A log
    of no channel by its name is taken for the log of any channel, and of the person it names.
    """

    def __init__(self, room: str, log: Log, server: str = "", naming: Naming | None = None) -> None:
        self.room, self._log, self._server = room, log, server or log.server
        self._naming = naming or Naming()
        name = _folded(log.channel)
        self._names = {name, _FILE_DATE.sub("", name)}

    def entry(self, time_us: int, said: "_Said") -> Entry:
        """The entry of what was said."""
        if self._own(said.to):
            return Entry(self.room, said.who, time_us, "", "", said.text)
        return Entry(self._apart(said.to), said.who, time_us, "", "", said.text, private=True)

    def _own(self, to: str) -> bool:
        channels = _channels(to)
        if not to or (channels and not self._log.is_channel):
            return True
        return any(_folded(name) in self._names for name in channels or (to,))

    def _apart(self, to: str) -> str:
        name, server = _folded(to), self._server
        if not _channels(to):
            # of a folder, the log of that conversation has this room, too
            return self._naming.of(f"{server} {name}", f"direct/{name}", f"{name} of {server}")
        bare = name.lstrip(STATUS_SIGNS + CHANNEL_SIGNS) or "irc"
        return self._naming.of(f"{server} apart {name}", f"private/{bare}", f"{name} of {server}")


class _Said(NamedTuple):
    """What a line says. `to`: the channel that was told, or the person whom the writer of the log
    talked with; "" when it was the log's own conversation."""

    who: str
    to: str
    text: str


def _to(nick: str, target: str | None) -> str:
    """With whom `nick` talks who told `target`: one of both wrote the log."""
    if not target or _channels(target):
        return target or ""
    return nick


# --- irssi ----------------------------------------------------------------------------------------


def read_irssi(
    file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse, rooms: Rooms | None = None
) -> Iterator[Entry]:
    """Entries of one irssi log; without `rooms` it is called after the file."""
    rooms = rooms or Rooms(room, irssi_log(name.rpartition("/")[2]))
    day: datetime | None = None
    for number, raw in numbered(file, name):
        line = clean(decode(raw)).rstrip("\n")
        if _IRSSI_DATED.match(line):
            day = None
        try:
            changed = _IRSSI_DATE.match(line)
            if changed:
                day = _irssi_day(changed, name, number) if changed["log"] != "closed" else None
                continue
            entry = _irssi_entry(line, day, name, number, rooms)
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
    line: str, day: datetime | None, name: str, number: int, rooms: Rooms
) -> Entry | None:
    """The entry of a line; None for an event or an empty line."""
    if not line.strip():
        return None
    own, told = _IRSSI_OWN.match(line), _IRSSI_TOLD.match(line)
    if own is None and told is None and _IRSSI_EVENT.match(line):
        return None
    did, apart = _IRSSI_DID.match(line), _IRSSI_DID_APART.match(line)
    notice = _IRSSI_NOTICE.match(line)
    found = own or told or _IRSSI_SAID.match(line) or did or apart or notice
    if found is None or int(found["hour"]) > 23:
        raise ArchiveError(name, number, f"not a line of an irssi log: {line[:60]!r}")
    if found["year"]:
        try:
            day = datetime(int(found["year"]), int(found["month"]), int(found["day"]), tzinfo=UTC)
        except ValueError:
            raise ArchiveError(name, number, f"no such day: {line[:60]!r}") from None
    if day is None:
        raise ArchiveError(
            name, number, "a message before the first date, or behind one that cannot be read "
            "('--- Log opened ...')",
        )  # fmt: skip
    clock = day.replace(
        hour=int(found["hour"]),
        minute=int(found["minute"]),
        second=min(59, int(found["second"] or 0)),
    )
    target = found.groupdict().get("target") or ""
    if found is own:
        return rooms.entry(microseconds(clock), _Said(NOBODY, target, found["text"]))
    nick, text = found["nick"], found["text"]
    if found in (did, apart):
        text = f"* {nick} {text}"
    if found in (told, apart) or (found is notice and not target):
        to = nick
    elif found is did:
        to = target  # one's own: with a target it names whom one talks to
    else:
        to = _to(nick, target)
    return rooms.entry(microseconds(clock), _Said(nick, to, text))


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
    file: BinaryIO, name: str, room: str, on_broken: OnBroken = refuse, rooms: Rooms | None = None
) -> Iterator[Entry]:
    """Entries of one weechat log; without `rooms` it is called after the file."""
    rooms = rooms or Rooms(room, weechat_log(name.rpartition("/")[2]))
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
                entry = _weechat_entry(found, name, number, rooms)
                said = _Message(entry, number) if entry is not None else None
            elif line.strip():
                raise ArchiveError(name, number, f"not a line of a weechat log: {line[:60]!r}")
        except ArchiveError as error:
            on_broken(error)
    if said is not None:
        yield said.whole()


def _weechat_entry(found: re.Match[str], name: str, number: int, rooms: Rooms) -> Entry | None:
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
        return rooms.entry(time_us, told) if told else None
    if nick in _WEECHAT_EVENTS:
        return None
    if nick == "*":
        nick, _, did = text.partition(" ")
        text = f"* {nick} {did}"
    return rooms.entry(time_us, _Said(_bare(nick), "", text))


def _bare(nick: str) -> str:
    """A nick without the signs of its mode, and without the brackets that a setting adds."""
    if len(nick) > 2 and (nick[0], nick[-1]) in (("<", ">"), ("[", "]"), ("(", ")")):
        nick = nick[1:-1].strip()
    return nick.lstrip("@+%&~!") or nick


def _told(text: str) -> _Said | None:
    """A notice, or what was said to some of the channel, or to one person; None: an event."""
    sent = _WEECHAT_SENT.match(text)
    if sent is not None:
        return _sent(sent)
    notice = _WEECHAT_NOTICE.match(text)
    if notice is not None:
        return _Said(notice["nick"], notice["nick"], notice["text"])
    told = _WEECHAT_TOLD.match(text)
    if told is None:
        return None
    nick, target = told["nick"], told["target"]
    if told["what"] == "MSG":  # one's own, to whom it names
        return _Said(NOBODY, nick, told["text"])
    if told["what"] == "PvNotice":
        return _Said(nick, nick, told["text"])
    if told["some"] and _channels(told["some"]):  # `Notice:@(alice)` is to operators of here
        target = target or told["some"]
    return _Said(nick, _to(nick, target), told["text"])


def _sent(sent: re.Match[str]) -> _Said | None:
    """What the writer of the log said, somewhere."""
    if sent["what"] == "CTCP":
        return None
    if sent["what"] == "Action":
        nick = sent["text"].partition(" ")[0]
        return _Said(_bare(nick), sent["target"], f"* {sent['text']}")
    return _Said(NOBODY, sent["target"], sent["text"])
