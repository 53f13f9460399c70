"""Archives of ten thousand messages that other programs wrote themselves are imported whole."""

import mailbox
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta, timezone
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance.formats.archive.irc import NOBODY
from tests.commands import chat_programs
from tests.commands.conftest import Chat
from tests.commands.irc_server import IrcServer
from tests.commands.test_import import messages

COUNT = 10_000
SECOND = 1_000_000
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
EVERY = timedelta(seconds=7)
LAST = "that was all"


class Told(NamedTuple):
    """A line of the server, and what a log of it has to say: room, author, text; or nothing."""

    line: str
    room: str = ""
    who: str = ""
    text: str = ""


# `%` is the number of the message, `~` the program, by which it has rooms of its own in one site.
TOLD = [
    Told(":ann!a@h PRIVMSG #of-~ :hello %", "of-~", "ann", "hello %"),
    Told(":bob!b@h PRIVMSG #of-~ :\x01ACTION waves %\x01", "of-~", "bob", "* bob waves %"),
    Told(":Zoë!z@h NOTICE #of-~ :note %", "of-~", "Zoë", "note %"),
    Told(":carl_!c@h PRIVMSG #of-~ :\x02bold\x02 \x0304red\x03 %", "of-~", "carl_", "bold red %"),
    Told(":d-e-f!d@h PRIVMSG @#of-~ :ops only %", "of-~", "d-e-f", "ops only %"),
    Told(":d-e-f!d@h NOTICE #of-~ :of dashes %", "of-~", "d-e-f", "of dashes %"),
    Told(":ann!a@h PRIVMSG #of-~ :  two  spaces\tand a tab %", "of-~", "ann",
         "  two  spaces\tand a tab %"),
    Told(":bob!b@h PRIVMSG #of-~ :10:00 <ann> no line %", "of-~", "bob", "10:00 <ann> no line %"),
    Told(":bob!b@h PRIVMSG #of-~ :--- Day changed Mon Mar 01 2004", "of-~", "bob",
         "--- Day changed Mon Mar 01 2004"),
    Told(":e|f[2]!e@h PRIVMSG #of-~ :Grüße <>& % 日本語 -!- --> *", "of-~", "e|f[2]",
         "Grüße <>& % 日本語 -!- --> *"),
    Told(":pat_~!p@h PRIVMSG {nick} :psst %", "direct/pat_~", "pat_~", "psst %"),
    Told(":pat_~!p@h PRIVMSG {nick} :\x01ACTION nods %\x01", "direct/pat_~", "pat_~",
         "* pat_~ nods %"),
    Told(":quin_~!q@h NOTICE {nick} :to you alone %", "direct/quin_~", "quin_~", "to you alone %"),
    Told(":dan!d@h JOIN #of-~"),
    Told(":dan!d@h NICK daniel"),
    Told(":daniel!d@h NICK dan"),
    Told(":dan!d@h PART #of-~ :bye 10:00 <dan> %"),
    Told(":ann!a@h TOPIC #of-~ :topic %"),
    Told(":ann!a@h MODE #of-~ +v carl_"),
    Told(":gus!g@h JOIN #of-~"),
    Told(":gus!g@h QUIT :one.test two.test"),
    Told(":hal!h@h JOIN #of-~"),
    Told(":ann!a@h KICK #of-~ hal :<hal> said %"),
]  # fmt: skip
TOLD_LAST = Told(":ann!a@h PRIVMSG #of-~ :all is told", "of-~", "ann", "all is told")
# What the person types: to all of the channel, and to one person.
TYPED = [
    Told("/msg #of-~ mine, to all", "of-~", "me", "mine, to all"),
    Told("/notice #of-~ mine, a notice", "of-~", NOBODY, "mine, a notice"),
    Told("/msg pat_~ mine, to her", "direct/pat_~", "me", "mine, to her"),
    Told("/notice pat_~ mine, a notice to her", "direct/pat_~", NOBODY, "mine, a notice to her"),
    Told(f"/msg #of-~ {LAST}", "of-~", "me", LAST),
]
Program = Callable[[Path, int], AbstractContextManager[chat_programs.Type]]


def served(kind: str, messages_wanted: int) -> list[tuple[datetime, Told]]:
    """Lines of the server with times, so many of them messages."""
    found: list[tuple[datetime, Told]] = []
    number = said = 0
    while said < messages_wanted:
        told = of(kind, TOLD[number % len(TOLD)], number)
        found.append((BEGIN + number * EVERY, told))
        number, said = number + 1, said + bool(told.room)
    return found


def of(kind: str, form: Told, number: int = 0) -> Told:
    return Told(*(part.replace("%", str(number)).replace("~", kind) for part in form))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root may make a tree of Debian's packages")
    return chat_programs.tree_of_programs(tmp_path_factory.mktemp("programs"))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "program"), [("irssi", chat_programs.irssi), ("weechat", chat_programs.weechat)]
)
def test_ten_thousand_messages_that_a_chat_program_logged_itself_are_imported_whole(
    chat: Chat, tree: Path, kind: str, program: Program
) -> None:
    lines = [*served(kind, COUNT), (BEGIN - EVERY, of(kind, TOLD_LAST))]
    timed = kind == "weechat"  # it knows when something was said from the server
    sent = [
        f"@time={at:%Y-%m-%dT%H:%M:%S.000Z} {it.line}" if timed else it.line for at, it in lines
    ]
    typed = [of(kind, each) for each in TYPED]
    first = datetime.now(UTC).replace(second=0, microsecond=0)
    with IrcServer(f"#of-{kind}", sent) as server, program(tree, server.port) as write:
        chat_programs.wait_for_line(tree, TOLD_LAST.text)
        for each in typed:
            write(each.line)
        chat_programs.wait_for_line(tree, LAST)
    last = datetime.now(UTC)
    wanted: dict[str, list[tuple[str, str, datetime | None]]] = {}
    for at, it in [
        *((at if timed else None, it) for at, it in lines),
        *((None, it) for it in typed),
    ]:
        if it.room:
            wanted.setdefault(it.room, []).append((it.who, it.text, at))
    total = COUNT + 1 + len(typed)
    printed = chat("import", kind, tree / chat_programs.HOME / "logs", "--private")
    assert f"{total:,} entries, {total:,} messages in {len(wanted)} rooms; 0 were there" in printed
    assert "skipped" not in printed
    for room, said in wanted.items():
        stored = messages(chat, room)
        assert [(row["said_by"], row["body"]) for row in stored] == [it[:2] for it in said], room
        for row, (_, _, at) in zip(stored, said, strict=True):
            found = datetime.fromtimestamp(row["said_at"] / SECOND, UTC)
            assert found == at if at else first <= found <= last


def mail_of(number: int) -> tuple[EmailMessage, tuple[str, datetime, str]]:
    """A mail in one of many forms, and who said what in it when."""
    moment = (BEGIN + number * EVERY).astimezone(timezone(timedelta(hours=number % 25 - 12)))
    who = ["Ann Example", "Doe, Jane", "Jörg Weiß", "日本 太郎", "x@example.org"][number % 5]
    subject = f"Subject {number}" + " grün" * (number % 3)
    text = f"From line {number}\n\n\nFrom now on\n> quoted\n" + "Grüße, 日本.\n" * (number % 4)
    mail = EmailMessage()
    mail["From"] = formataddr(("" if "@" in who else who, f"of{number % 7}@example.org"))
    if "@" in who:
        del mail["From"]
        mail["From"] = who
    mail["Date"] = format_datetime(moment)
    mail["Message-ID"] = f"<{number}@example.org>"
    mail["Subject"] = subject
    mail.set_content(text, cte=("8bit", "quoted-printable", "base64")[number % 3])
    if number % 4 == 1:
        mail.add_alternative(f"<p>page of {number}</p>", subtype="html")
    if number % 4 == 2:
        mail.add_attachment(b"\0\1\2", maintype="image", subtype="png", filename="x.png")
        text += "[attachment x.png, image/png, 3 bytes: left in the archive]"
    return mail, (who, moment, f"{subject}\n\n{text.strip()}")


@pytest.mark.soak
def test_ten_thousand_mails_that_another_library_filed_are_imported_whole(
    chat: Chat, tmp_path: Path
) -> None:
    place = tmp_path / "of-mail.mbox"
    folder = mailbox.mbox(place)
    wanted = []
    for number in range(COUNT):
        mail, said = mail_of(number)
        folder.add(mail)
        wanted.append(said)
    folder.close()
    printed = chat("import", "mbox", place, "--room", "of-mail")
    assert f"{COUNT:,} entries, {COUNT:,} messages in 1 room; 0 were there" in printed
    assert "skipped" not in printed
    found = [
        (row["said_by"], datetime.fromtimestamp(row["said_at"] / SECOND, UTC), row["body"].strip())
        for row in messages(chat, "of-mail")
    ]
    assert found == wanted
