"""What was said is what is read: archives of every form that their programs write, made from known
messages, give these messages back, no more and no fewer."""

import html
import io
import json
import mailbox
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.formats.archive import irc, mbox, slack
from appliance.formats.archive.entry import microseconds

SECOND = 1_000_000


class Said(NamedTuple):
    """One message, as somebody said it."""

    author: str
    moment: datetime
    lines: list[str]


PEOPLE = st.sampled_from(["ann", "bob", "carl_", "d-e-f", "Zoë"])
WORDS = st.sampled_from(
    ["hello", "see 10:00 <bob> there", "From now on", "From Paris", "> quoted", "* no action",
     "a\ttab", "Grüße", "-!- no event", "--- Day changed", "2004-03-01",
     "Subject: none", "-- ", "[notice]"]
)  # fmt: skip
MOMENTS = st.integers(1, 2_000_000_000 * SECOND).map(
    lambda time_us: datetime.fromtimestamp(time_us // SECOND, UTC).replace(
        microsecond=time_us % SECOND
    )
)


def messages(lines_max: int, words: st.SearchStrategy[str] = WORDS) -> st.SearchStrategy:
    said = st.builds(Said, PEOPLE, MOMENTS, st.lists(words, min_size=1, max_size=lines_max))
    return st.lists(said, min_size=1, max_size=12)


def seconds(moment: datetime) -> int:
    return microseconds(moment.replace(microsecond=0))


IRSSI_CLOCKS = ["%H:%M:%S ", "%H:%M:%S", "[%H:%M:%S] ", "[%H:%M:%S]", "(%H:%M:%S) ", "%H.%M.%S "]
IRSSI_LINES: list[Callable[[str, str], str]] = [
    lambda nick, text: f"<@{nick}> {text}",
    lambda nick, text: f"< {nick}> {text}",
    lambda nick, text: f"<{nick}> {text}",
    lambda nick, text: f"<+{nick}:@#room> {text}",
    lambda nick, text: f"-{nick}:#room- {text}",
]


@settings(deadline=None)
@given(
    messages(1),
    st.sampled_from(IRSSI_CLOCKS),
    st.lists(st.sampled_from(IRSSI_LINES), min_size=1, max_size=5),
    st.booleans(),
)
def test_irssi(
    said: list[Said], clock: str, forms: list[Callable[[str, str], str]], events: bool
) -> None:
    log = []
    for number, message in enumerate(said):
        log.append(f"--- Day changed {message.moment:%a %b %d %Y}")
        stamp = message.moment.strftime(clock)
        if events:
            log.append(f"{stamp}-!- {message.author} [x@y] has joined #room")
        nick = message.author.replace("d-e-f", "def")  # a notice has no room for its dashes
        log.append(stamp + forms[number % len(forms)](nick, message.lines[0]))
    found = list(irc.read_irssi(io.BytesIO("\n".join(log).encode()), "x", "room"))
    assert [(entry.author, entry.time_us, entry.text) for entry in found] == [
        (each.author.replace("d-e-f", "def"), seconds(each.moment), each.lines[0]) for each in said
    ]


WEECHAT_TIMES: list[Callable[[datetime], str]] = [
    lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}",
    lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}Z",
    lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z",
    lambda moment: f"{moment.astimezone(timezone(timedelta(hours=2))):%Y-%m-%d %H:%M:%S%z}",
    lambda moment: f"{moment.astimezone(timezone(-timedelta(hours=5))):%Y-%m-%d %H:%M:%S.%f %z}",
]


@settings(deadline=None)
@given(
    messages(4, st.sampled_from(["hello", "", "  indented", "--> arrow", "a\ttab", "<b> said"])),
    st.lists(st.sampled_from(WEECHAT_TIMES), min_size=1, max_size=4),
    st.sampled_from(["", "@", "+"]),
)
def test_weechat(said: list[Said], times: list[Callable[[datetime], str]], sign: str) -> None:
    log, expected = [], []
    for number, message in enumerate(said):
        stamp = times[number % len(times)](message.moment)
        log.append(f"{stamp}\t{sign}{message.author}\t" + "\n".join(message.lines))
        log.append(f"{stamp}\t<--\t{message.author} has quit")
        whole = ".%f" in stamp or "." in stamp
        time_us = microseconds(message.moment) if whole else seconds(message.moment)
        expected.append((message.author, time_us, "\n".join(message.lines).rstrip("\n")))
    found = list(irc.read_weechat(io.BytesIO("\n".join(log).encode()), "x", "room"))
    assert [(entry.author, entry.time_us, entry.text) for entry in found] == expected


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages(4), st.sampled_from(["7bit", "quoted-printable", "base64"]), st.booleans())
def test_mail_that_another_program_wrote(
    tmp_path: Path, said: list[Said], encoding: str, page: bool
) -> None:
    place = tmp_path / "folder.mbox"
    place.unlink(missing_ok=True)
    folder = mailbox.mbox(place)
    for message in said:
        mail = EmailMessage()
        mail["From"] = f"{message.author}, of the team <{message.author.encode().hex()}@x.org>"
        mail["Date"] = format_datetime(message.moment)
        text = "\n".join(message.lines)
        mail.set_content(text, cte="8bit" if encoding == "7bit" else encoding)
        if page:
            mail.add_alternative(f"<p>{text}</p>", subtype="html", cte="base64")
        folder.add(mail)
    folder.close()
    found = list(mbox.read(io.BytesIO(place.read_bytes()), "x", "room"))
    assert [(entry.time_us, entry.text) for entry in found] == [
        (seconds(each.moment), "\n".join(each.lines)) for each in said
    ]


@settings(deadline=None)
@given(messages(3), st.sampled_from(["", "export/"]), st.sampled_from(["text", "block", "both"]))
def test_slack(said: list[Said], folder: str, where: str) -> None:
    days: dict[str, list[dict]] = {}
    for message in said:
        text = "\n".join(message.lines)
        item = {"user": message.author, "ts": f"{microseconds(message.moment) / SECOND:.6f}"}
        block = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
        item |= {"text": html.escape(text, quote=False) if where != "block" else ""}
        item |= {} if where == "text" else {"blocks": [{"type": "rich_text", "elements": [block]}]}
        days.setdefault(f"{message.moment:%Y-%m-%d}", []).append(item)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{folder}channels.json", json.dumps([{"id": "C1", "name": "room"}]))
        for day, items in days.items():
            archive.writestr(f"{folder}room/{day}.json", json.dumps(items))
    found = sorted((entry.author, entry.text) for entry in slack.read(out, "x.zip"))
    assert found == sorted((each.author, "\n".join(each.lines)) for each in said)
