"""Mail folders become entries with their threads; broken ones name file and line."""

import email
import email.utils
import io
import time
from collections.abc import Callable
from email.message import Message
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_LINE_SIZE_MAX
from appliance.formats.archive import mbox
from appliance.formats.archive.entry import Entry
from appliance.formats.archive.hypertext import words_of

FOLDER = b"""From alice@example.org Mon Mar  1 10:00:00 2004
From: =?utf-8?q?Al=C3=AFce?= <alice@example.org>
Date: Mon, 1 Mar 2004 11:00:00 +0100
Subject: Opening
Message-ID: <one@example.org>
List-Id: Chess players <chess.example.org>

1. e4
>From the book
>>From deeper

From bob@example.org Mon Mar  1 10:05:00 2004
From: bob@example.org
Date: Mon, 1 Mar 2004 10:05:00 +0000
Subject: Re: Opening
Message-ID: <two@example.org>
In-Reply-To: <one@example.org>

1... c5
From here on it is a body, no empty line before.

From carol@example.org Mon Mar  1 10:06:00 2004
From: carol@example.org
Date: Mon, 1 Mar 2004 10:06:00 +0000
References: <one@example.org> <two@example.org>
Message-ID: <three@example.org>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/html; charset=latin-1
Content-Transfer-Encoding: quoted-printable

<p>Gr=FCn &amp; good</p><script>no()</script>
--x
Content-Type: image/png
Content-Disposition: attachment; filename="board.png"
Content-Transfer-Encoding: base64

AAAA
--x--
"""


def entries(data: bytes, **options: Any) -> list[Entry] | None:
    return list(mbox.read(io.BytesIO(data), "f.mbox", "fallback", **options))


def test_mbox_keeps_room_author_time_thread_and_text() -> None:
    one, two, three = entries(FOLDER)
    assert (one.room, one.author, one.time_us) == ("chess", "Alïce", 1_078_135_200_000_000)
    assert one.text == "Opening\n\n1. e4\nFrom the book\n>From deeper"
    assert (two.room, two.parent, two.key) == ("fallback", one.key, "two@example.org")
    assert "From here on" in two.text
    assert three.parent == two.key
    assert (
        three.text == "Grün & good\n[attachment board.png, image/png, 3 bytes: left in the archive]"
    )


def test_mbox_without_a_separator_is_refused_with_file_and_line() -> None:
    with pytest.raises(ArchiveError, match=r"f\.mbox, line 2: .*From"):
        entries(b"\nSubject: x\n\nbody\n")


def test_mbox_with_a_broken_date_names_the_line_and_the_caller_may_go_on() -> None:
    broken = FOLDER.replace(b"Mon, 1 Mar 2004 10:05:00 +0000", b"yesterday")
    broken = broken.replace(
        b"From bob@example.org Mon Mar  1 10:05:00 2004", b"From bob@example.org"
    )
    with pytest.raises(ArchiveError, match=r"line 13: .*yesterday"):
        entries(broken)
    complaints = []
    assert [entry.author for entry in entries(broken, on_broken=complaints.append)] == [
        "Alïce",
        "carol@example.org",
    ]
    assert len(complaints) == 1 and complaints[0].line == 13


MARCH_1 = 1_078_135_200_000_000  # 2004-03-01T10:00:00Z
MINUTE = 60_000_000


def mail(*heads: str, separator: str = "From ann@example.org", body: str = "words\n") -> bytes:
    return "\n".join([separator, *heads, "", body]).encode()


@pytest.mark.parametrize(
    ("date", "time_us"),
    [
        ("Mon, 1 Mar 2004 10:00:00 +0000", MARCH_1),
        ("1 Mar 2004 11:00:00 +0100", MARCH_1),
        ("Mon, 01 Mar 04 05:00 EST", MARCH_1),
        ("Mon, 1 Mar 2004 12:00:00 CEST", MARCH_1),
        ("Mon, 1 Mar 2004 11:00:00 MET (Middle of Europe)", MARCH_1),
        ("Mon, 1 Mar 2004 10:00:00 GMT+00:00", MARCH_1),
        ("Mon, 1 Mar 2004 10:00:00 -0000", MARCH_1),
        ("Mon Mar  1 10:00:00 2004", MARCH_1),
        ("Mon Mar  1 11:00:00 MEZ 2004", MARCH_1),
        ("Mon, 1 Mar 2004 09:59:60 +0000", MARCH_1),
        ("1 Mar 104 10:00:00 UT", MARCH_1),
        ("2004-03-01T10:00:00Z", MARCH_1),
        ("March 1, 2004 02:00:00 -0800", MARCH_1),
        ("1-Mar-2004 10:00:00 AM GMT", MARCH_1),
        ("1 Mar 04 10:00:00 PM", MARCH_1 + 720 * MINUTE),
        ("1 Mar 2004 12:00:00 AM UTC", MARCH_1 - 600 * MINUTE),
        ("1 Mar 2004 12:00:00 p.m.", MARCH_1 + 120 * MINUTE),
        ("Mon, 1 Mar 2004 11:00:00 (CET)", MARCH_1),
        ("Mon, 1 Mar 2004 12:00:00 ( cest )", MARCH_1),
        ("Mon, 1 Mar 2004 05:00:00 (EST) (EST)", MARCH_1),
        ("Mon, 1 Mar 2004 11:00:00 (+0100)", MARCH_1),
        ("Mon, 1 Mar 2004 12:00:00 (GMT+2)", MARCH_1),
        ("Mon Mar  1 11:00:00 2004 (MEZ)", MARCH_1),
        ("1 Mar 2004 (Mon) 10:00:00", MARCH_1),
        ("1 Mar 2004 10:00:00 ()", MARCH_1),
        ("1 Mar 2004 15:30:00 +0530 (IST)", MARCH_1),
        ("1 Mar 2004 15:30:00 (IST) +0530", MARCH_1),
        ("1 Mar 2004 10:00:00 GMT (a guess)", MARCH_1),
        ("Mon, 1 Mar 2004 11:00:00" + " " * 300 + "+0100", MARCH_1),
        ("Mon, 1 March 2004 10:00:00 GMT", MARCH_1),
        ("lun, 1 Mars 2004 10:00:00 GMT", MARCH_1),
        ("1 marras 2004 10:00:00 GMT", MARCH_1 + 245 * 1440 * MINUTE),
        ("Mon, 1 Nov. 2004 10:00:00 GMT", MARCH_1 + 245 * 1440 * MINUTE),
        ("Wed, 1 September 2004 10:00:00 GMT", MARCH_1 + 184 * 1440 * MINUTE),
    ],
)
def test_a_date_is_that_instant(date: str, time_us: int) -> None:
    (entry,) = entries(mail(f"Date: {date}"))
    assert entry.time_us == time_us


NO_DATES = (
    "", "yesterday", "Mon, 1 Mar 2004", "Mon, 31 Feb 2004 10:00:00 +0000", "1 Mar 2004 25:00 GMT",
    "1 Mar 2004 10:00:00 IST", "1 Mar 2004 10:00:00 BST", "1 Mar 2004 10:00:00 A",
    "1 Mar 2004 10:00:00 +2500", "1 Mar 2004 14:00:00 AM", "1 Mar 1904 10:00:00 GMT",
    "1 Mar 2004 10:00:00 (IST)", "1 Mar 2004 10:00:00 (BST)", "1 Mar 2004 10:00:00 (Europe/Paris)",
    "1 Mar 2004 10:00:00 (Pacific Standard Time)", "1 Mar 2004 10:00:00 (EST) (CET)",
    "Mon Mar  1 10:00:00 2004 (ist)", "March 1, 2004 10:00 (IST)", "2004-03-01T10:00:00 (IST)",
    "1 Mar 2004 10:00:00 IST (CET)", "1 Mar 2004 10:00:00 (+2500)", "1 Mar 2004 10:00:00 GMT+1:0",
    "1 Marx 2004 10:00:00 GMT",
    "1 Marchand 2004 10:00:00 GMT", "1 lis 2004 10:00:00 GMT", "1 Decade 2004 10:00:00 GMT",
    "1 Mayday 2004 10:00:00 GMT", "1 juni-or 2004 10:00:00 GMT", "1 Juneau 2004 10:00:00 GMT",
    "1 Mars 2004 10:00:00 Europe/Paris", "32 Mar 2004 10:00:00 GMT", "1 Foo 2004 10:00:00 GMT",
)  # fmt: skip


@pytest.mark.parametrize("date", NO_DATES)
def test_a_date_that_could_be_several_instants_or_none_is_not_guessed(date: str) -> None:
    """The line `From ` comes next, then what the last server noted; without both it is named."""
    separator = "From ann@example.org Mon Mar  1 10:00:00 2004"
    received = "Received: from a by b;\n Mon, 1 Mar 2004 12:01:00 +0200 (EET)"
    older = "Received: from c by a; Mon, 1 Mar 2004 09:00:00 +0000"
    (first,) = entries(mail(f"Date: {date}", received, separator=separator))
    (second,) = entries(mail(f"Date: {date}", received, older))
    assert (first.time_us, second.time_us) == (MARCH_1, MARCH_1 + MINUTE)
    with pytest.raises(ArchiveError, match=r"f\.mbox, line 2: a mail whose Date cannot be read"):
        entries(mail(f"Date: {date}", "Received: by hand"))


@pytest.mark.parametrize(
    ("written", "author"),
    [
        ("ann@example.org", "ann@example.org"),
        ("Ann Example <ann@example.org>", "Ann Example"),
        ('"Example, Ann" <ann@example.org>', "Example, Ann"),
        ("=?utf-8?q?Example=2C_Ann?= <ann@example.org>", "Example, Ann"),
        ("=?utf-8?b?RXhhbXBsZSwg?=\n =?utf-8?b?QW5u?= <ann@example.org>", "Example, Ann"),
        ("=?utf-8?q?Ann_=3Cteam=3E?= <ann@example.org>", "Ann <team>"),
        ("=?iso-8859-1?q?Andr=E9?= Example <a@example.org>", "André Example"),
        ("=?utf-8?q?ann=40example=2Eorg?= <list@example.org>", "ann@example.org"),
        ("=?utf-8?q?Ann_=28team=29?= <ann@example.org>", "Ann (team)"),
        ("=?utf-8?q?=22Ann=22?= <ann@example.org>", '"Ann"'),
        ("ann@example.org (Ann Example)", "Ann Example"),
        ("=?no-such-charset?q?Ann?= <ann@example.org>", "=?no-such-charset?q?Ann?="),
    ],
)
def test_an_author_s_header_is_taken_apart_before_it_is_decoded(written: str, author: str) -> None:
    (entry,) = entries(mail(f"From: {written}", "Date: Mon, 1 Mar 2004 10:00:00 +0000"))
    assert entry.author == author


# pieces of an author's header and of a mail, as the borders of a shortcut meet them
PIECES_OF_AUTHOR = (
    *'"<>@.,;:\\ ()', "Ann", "Jörg", "ann@example.org", " <", '" <', "=?utf-8?q?=2C?=",
)  # fmt: skip
PIECES_OF_MAIL = (
    b"From: a", b"Subject: \xe4", b"Content-Type: multipart/mixed; boundary=b",
    b"Content-Type: TEXT/plain", b" folded", b"--b", b"--b--", b"", b"words", b"\xff\x00",
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(("{}", "{} <ann@example.org>", '"{}" <ann@example.org>', "Ann <{}>")),
    st.lists(st.sampled_from(PIECES_OF_AUTHOR), max_size=4).map("".join),
)
def test_an_author_is_whom_the_library_of_mail_finds(form: str, inner: str) -> None:
    raw = " ".join(form.format(inner).split())
    shown, address = email.utils.parseaddr(raw)
    found = mbox._FROM_USUAL.fullmatch(raw)
    if found is not None:
        assert (found["plain"] or found["quoted"], found["address"]) == (shown, address)


def test_usual_authors_take_the_short_way() -> None:
    for written in ("Ann Example <ann@example.org>", '"Example, Ann" <ann.e@mail.example.org>'):
        assert mbox._FROM_USUAL.fullmatch(written), written


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES_OF_MAIL), max_size=14),
    st.lists(st.sampled_from((b"\n", b"\r\n", b"\r")), min_size=14, max_size=14),
)
def test_a_mail_is_taken_apart_as_the_library_does(pieces: list[bytes], ends: list[bytes]) -> None:
    raw = b"".join(piece + end for piece, end in zip(pieces, ends, strict=False))
    assert _shape(mbox._parsed(raw)) == _shape(email.message_from_bytes(raw))


def _shape(part: Message) -> list[Any]:
    inner = part.get_payload()
    parts = [_shape(each) for each in inner] if isinstance(inner, list) else inner
    headers = [(name, str(value)) for name, value in part.items()]
    return [headers, part.preamble, part.epilogue, list(map(repr, part.defects)), parts]


WHEN = "Date: Mon, 1 Mar 2004 10:00:00 +0000"
SECOND = f"Subject: second\n{WHEN}\n\nsecond words\n"
BORDERS = (
    "From bob@example.org Mon Mar  1 10:05:00 2004",
    "From bob@example.org  Mon Mar 01 10:05:00 +0100 2004",
    "From - Mon Mar 01 10:05:00 2004",
    "From MAILER-DAEMON Mon Mar 1 10:05:00 2004",
    "From bob at example.org Mon Mar  1 10:05:00 2004",
    "From bob@example.org",
    "From ",
)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("gap", ["\n", "", "\n\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_from_before_headers_begins_a_mail(border: str, gap: str, end: str) -> None:
    folder = f"From ann@example.org\nSubject: first\n{WHEN}\n\nfirst words\n{gap}{border}\n{SECOND}"
    first, second = entries(folder.replace("\n", end).encode())
    assert (first.text, second.text) == ("first\n\nfirst words", "second\n\nsecond words")


@pytest.mark.parametrize(
    "words",
    [
        "From now on we meet on Mondays.\nBring tea.",
        "From Monday, 1 Mar 2004 on we meet.\nBring tea: there is none.",
        "From here:\nthe door is to the left",
        "From bob\nto ann",
        "From the minutes:\nAgenda: tea",
        "From 10:00:00 to 2004 o'clock\nnothing",
        "From the manual:\nNote: tea\nis hot",
        "From \nnobody",
        "From",
        "Fromage:\nSubject: cheese",
    ],
)
@pytest.mark.parametrize("before", ["Hello,\n\n", "Hello,\n"])
def test_a_line_from_among_words_begins_none(words: str, before: str) -> None:
    folder = mail("Subject: first", WHEN, body=f"{before}{words}\n\n") + (
        f"From bob@example.org Mon Mar  1 10:05:00 2004\n{SECOND}".encode()
    )
    first, second = entries(folder)
    assert first.text == f"first\n\n{before}{words}"
    assert second.text == "second\n\nsecond words"


DATED = "From bob@example.org Mon Mar  1 10:05:00 2004"


@pytest.mark.parametrize(
    "separator",
    [
        DATED,
        "From bob@example.org Mon Mar  1 10:05 2004",
        "From bob@example.org Mon Mar  1 10:05:00 IST 2004",
        "From bob@example.org  Mon Mar 01 10:05:00 +0100 2004  ",
        "From bob@example.org Mon Mar  1 10:05:00 2004 remote from host",
        "From bob at example.org  Mon Mar  1 10:05:00 2004",
        "From bob@example.org Mon, 1 Mar 2004 10:05:00 +0000",
        "From bob@example.org Mon, 31 Feb 2004 10:05:00 +0000",
        "From 1234@xxx Mon Mar 01 10:05:00 +0000 2004",
        "From - Mon Mar  1 10:05:00 2004",
        "From ???@??? Mon Mar 01 10:05:00 2004",
        "From Sun Microsystems Mon Mar  1 10:05:00 2004",
    ],
)
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", "Lines: 3\n{WHEN}\n\nsecond words\n"),
        ("", "Foo-Bar: 3\n\t4\n{WHEN}\n\nsecond words\n"),
        ("", ">X: 3\n{WHEN}\n\nsecond words\n"),
        ("\n", "Lines: 3\n{WHEN}\n\nsecond words\n"),
        ("\n", "\nsecond words\n"),
        ("\n", "second words\n"),
        ("\n", ">From carl Mon Mar  1 10:05:00 2004\n{WHEN}\n\nsecond words\n"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_from_with_sender_and_date_begins_a_mail_behind_a_blank_or_before_any_header(
    separator: str, before: str, behind: str, end: str
) -> None:
    first = f"From ann@example.org\n{WHEN}\n\nfirst words\n{before}"
    raw = (f"{first}{separator}\n" + behind.format(WHEN=WHEN)).replace("\n", end).encode()
    texts: list[str] = []
    complaints: list[ArchiveError] = []
    texts = [entry.text for entry in entries(raw, on_broken=complaints.append)]
    dated = "31 Feb" not in separator and "IST" not in separator
    if dated or "{WHEN}" in behind:
        assert len(texts) == 2 and not complaints
        assert (texts[0], texts[1].endswith("second words")) == ("first words", True)
    else:  # nobody knows when it was
        assert (texts, len(complaints)) == (["first words"], 1)


@pytest.mark.parametrize(
    "words",
    [
        "From Paris",
        "From Paris ",
        "From Paris\nTo: Rome",
        "From Paris\nDate: tomorrow",
        "From here on\nTo: the station\n\nall walk",
        "From Paris, Mon 1 March 2004:",
        "From Monday, 1 Mar 2004 10:00",
        "From Paris Monday, 1 Mar 2004 10:00 on\nwe meet",
        "From Paris Monday, 1 Marx 2004 10:00",
        "From ann@example.org",
        "From ann@example.org\nI heard: nothing",
        "From ann@example.org\nNote: nothing",
        "From",
        "From ",
        "From 10:00 to 11:00, 2004",
        "From the minutes of 1 Mar 10:00:00 2004\nSubject: tea",
        "From bob Mon Mar  1 2004",
    ],
)
@pytest.mark.parametrize("before", ["Hello,\n\n", "Hello,\n"])
@pytest.mark.parametrize("behind", ["\n\nBye", "\n\n"])
def test_a_line_from_without_a_date_is_of_the_body_unless_headers_of_a_mail_follow(
    words: str, before: str, behind: str
) -> None:
    folder = mail("Subject: first", WHEN, body=f"{before}{words}{behind}\n")
    first, second = entries(folder + f"{DATED}\n{SECOND}".encode())
    assert first.text.rstrip() == f"first\n\n{before}{words}{behind}".rstrip()
    assert second.text == "second\n\nsecond words"


@pytest.mark.parametrize("separator", [DATED, "From bob@example.org", "From bob", "From "])
@pytest.mark.parametrize("others", [0, 5, 20])
def test_a_mail_is_found_behind_headers_that_nobody_knows(separator: str, others: int) -> None:
    heads = "".join(f"X-Other: {number}\n" for number in range(others))
    first = f"From ann@example.org\n{WHEN}\n\nfirst words\n"
    found = entries(f"{first}{separator}\n{heads}{SECOND}".encode())
    assert [entry.text for entry in found] == ["first words", "second\n\nsecond words"]


def test_a_date_in_a_line_from_counts_behind_a_sender_of_several_words() -> None:
    (entry,) = entries(mail("Subject: x", separator="From a at b.org  Mon Mar  1 10:00:00 2004"))
    assert entry.time_us == MARCH_1


def test_a_mail_past_the_bound_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbox, "ARCHIVE_ENTRY_SIZE_MAX", 1000)
    folder = mail(WHEN, body="word\n" * 2000) + mail(WHEN, body="last", separator=f"\n{DATED}")
    complaints: list[ArchiveError] = []
    assert [entry.text for entry in entries(folder, on_broken=complaints.append)] == ["last"]
    assert [error.line for error in complaints] == [2]


def multipart(kind: str, *parts: tuple[str, str]) -> bytes:
    bodies = "".join(f"--b\nContent-Type: {type_}\n\n{body}\n" for type_, body in parts)
    head = f'Content-Type: multipart/{kind}; boundary="b"'
    return mail(WHEN, "MIME-Version: 1.0", head, body=f"{bodies}--b--\n")


PLAIN, PAGE = "text/plain; charset=utf-8", "text/html; charset=utf-8"
NESTED = f"--c\nContent-Type: {PLAIN}\n\nplain\n--c\nContent-Type: {PAGE}\n\n<p>page</p>\n--c--"


@pytest.mark.parametrize(
    ("kind", "parts", "text"),
    [
        ("alternative", [(PLAIN, "plain"), (PAGE, "<p>page</p>")], "plain"),
        ("alternative", [(PAGE, "<p>page</p>"), (PLAIN, "plain")], "plain"),
        ("alternative", [(PLAIN, " \n\t"), (PAGE, "<p>page</p>")], "page"),
        ("alternative", [(PLAIN, ""), (PAGE, "<p>page</p>")], "page"),
        ("alternative", [(PLAIN, "plain"), (PAGE, " ")], "plain"),
        ("alternative", [(PLAIN, " "), (PAGE, " ")], ""),
        ("mixed", [(PLAIN, "one"), (PAGE, "<p>two</p>")], "one\n\ntwo"),
        ("mixed", [(PAGE, "<p>one</p>"), (PAGE, "<p>two</p>")], "one\n\ntwo"),
        ("mixed", [(PLAIN, "one"), (PLAIN, ""), (PLAIN, "three")], "one\n\nthree"),
        ("related", [(PAGE, "<p>page</p>"), ("image/png", "AAAA")],
         "page\n[attachment without a name, image/png, 4 bytes: left in the archive]"),
        ("mixed", [("message/rfc822", "Subject: within\n\nforwarded words")], "forwarded words"),
        ("mixed", [('multipart/alternative; boundary="c"', NESTED), (PAGE, "<p>foot</p>")],
         "plain\n\nfoot"),
    ],
)  # fmt: skip
def test_all_words_of_a_mail_are_shown_and_of_alternatives_one(
    kind: str, parts: list[tuple[str, str]], text: str
) -> None:
    (entry,) = entries(multipart(kind, *parts))
    assert entry.text == text


PART = f"--b\nContent-Type: {PLAIN}\n\nwords\n"
PAGE_PART = f"--b\nContent-Type: {PAGE}\n\n<p>page</p>\n"
BLANK_PART = f"--b\nContent-Type: {PLAIN}\n\n\n"
PICTURE_PART = "--b\nContent-Type: image/png\n\nAAAA\n"
PICTURE = "[attachment without a name, image/png, 4 bytes: left in the archive]"
MIME = "This is a multi-part message in MIME format.\n"
INNER = 'Content-Type: multipart/mixed; boundary="c"'


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ('mixed; boundary="b"', "only words\n", "only words"),
        ('mixed; boundary="b"', "one\n\n--other\ntwo\n--other--\n",
         "one\n\n--other\ntwo\n--other--"),
        ('mixed; boundary="b"', "grün\n", "grün"),
        ("mixed", "only words\n", "only words"),
        ('alternative; boundary="b"', "only words\n", "only words"),
        ('signed; boundary=""', "only words\n", "only words"),
        ('mixed; boundary="b"', f"{PART}--b--\nfooter\n", "words\n\nfooter"),
        ('mixed; boundary="b"', f"{PART}--b--\n\n  \n", "words"),
        ('alternative; boundary="b"', f"{PART}{PAGE_PART}--b--\nfuß\n", "words\n\nfuß"),
        ('mixed; boundary="b"', f"{PICTURE_PART}--b--\nfooter\n", f"footer\n{PICTURE}"),
        ('mixed; boundary="b"', f"{BLANK_PART}--b--\nfooter\n", "footer"),
        ('mixed; boundary="b"',
         f"--b\n{INNER}\n\n--c\n\none\n--c--\nfoot\n{PART}--b--\n", "one\n\nfoot\n\nwords"),
        ('mixed; boundary="b"', f"--b\n{INNER}\n\nno border\n{PART}--b--\n",
         "no border\n\nwords"),
        ('mixed; boundary="b"', f"words before\n{PICTURE_PART}--b--\n", f"words before\n{PICTURE}"),
        ('mixed; boundary="b"', f"words before\n{BLANK_PART}--b--\n", "words before"),
        ('mixed; boundary="b"', f"words before\n{PART}--b--\n", "words"),
        ('mixed; boundary="b"', f"{MIME}{PICTURE_PART}--b--\n", PICTURE),
        ('mixed; boundary="b"', f"{MIME}{PART}--b--\n", "words"),
    ],
)  # fmt: skip
def test_no_mail_that_holds_words_is_stored_without(kind: str, body: str, text: str) -> None:
    (entry,) = entries(
        mail(WHEN, "MIME-Version: 1.0", f"Content-Type: multipart/{kind}", body=body)
    )
    assert entry.text == text


@pytest.mark.parametrize(
    "body",
    [
        "words before\n--b--\nwords behind\n",
        "--b--\nwords behind\n",
        f"\n--b--\n{PART}--b--\n",
        f"--b\n{INNER}\n\nbefore\n--c--\nbehind\n{PART}--b--\n",
    ],
)
def test_a_mail_of_which_the_parser_drops_words_is_named(body: str) -> None:
    complaints: list[ArchiveError] = []
    raw = mail(WHEN, "MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="b"', body=body)
    found = entries(raw, on_broken=complaints.append)
    assert (found, [error.line for error in complaints]) == ([], [2])


def test_lists_whose_names_begin_alike_keep_rooms_of_their_own() -> None:
    lists = ["<dev.a.example>", "<dev.b.example>", "Dev <dev.a.example>", "<f.c.example>"]
    folder = b"".join(mail(f"List-Id: {each}", WHEN, body="x\n\n") for each in [*lists, "none"])
    found = list(mbox.read(io.BytesIO(folder), "f.mbox", "f"))
    rooms = [entry.room for entry in found]
    assert rooms == ["dev", "dev (b.example)", "dev", "f", "f"]


def test_mbox_refuses_a_line_past_the_bound() -> None:
    with pytest.raises(ArchiveError, match="line 2: a line of more than"):
        entries(b"From x\n" + b"a" * (ARCHIVE_LINE_SIZE_MAX + 1))


def test_mbox_refuses_parts_nested_without_end() -> None:
    nested = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(3000)
    )
    with pytest.raises(ArchiveError, match="line 2"):
        entries(b"From x\nDate: Mon, 1 Mar 2004 10:05:00 +0000\n" + nested)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=60), st.sampled_from(FOLDER.splitlines())), max_size=60)
)
def test_mbox_of_arbitrary_lines_gives_entries_or_a_typed_error(lines: list[bytes]) -> None:
    complaints = []
    try:
        found = entries(b"From x\n" + b"\n".join(lines), on_broken=complaints.append)
    except ArchiveError as error:
        complaints.append(error)
        found = []
    for entry in found:
        entry.text.encode(), entry.author.encode(), entry.room.encode()


HEAD = b"From x\nDate: Mon, 1 Mar 2004 10:05:00 +0000\n"
HTML = HEAD + b"Content-Type: text/html; charset=utf-8\n\n"


def test_mbox_shows_html_mail_as_its_words() -> None:
    page = (
        b'<p class="a>b">first &amp; <b>bold</b></p><style>p { x: "</p>" }</style>'
        b"<!-- <p>hidden</p> -->1 < 2<br>last &#x41; &#99999999999;<script>f('<p>')</script>"
    )
    (entry,) = entries(HTML + page)
    assert entry.text == "first & bold\n1 < 2\nlast A \ufffd"


def work_on(raw: bytes) -> float:
    """CPU seconds that a mail takes, whatever comes of it."""
    begun = time.process_time()
    entries(raw, on_broken=[].append)
    return time.process_time() - begun


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(lambda size: HTML + b"<style\n" * (size // 7), id="unclosed tags"),
        pytest.param(lambda size: HTML + b"<style>" * (size // 7), id="unclosed styles"),
        pytest.param(lambda size: HTML + b"<!--\n" * (size // 5), id="unclosed comments"),
        pytest.param(lambda size: HTML + b'<a x="\n' * (size // 7), id="unclosed quotes"),
        pytest.param(lambda size: HTML + b"&#9" * (size // 3), id="references"),
        pytest.param(
            lambda size: HEAD + b'Content-Type: text/plain; "' + b";" * size + b"\n\nx",
            id="parameters",
        ),
        pytest.param(
            lambda size: HEAD + b"List-Id: " + b"a." * (size // 2) + b" x\n\nx", id="list"
        ),
        pytest.param(lambda size: HEAD + b"From: " + b"(" * size + b"\n\nx", id="comments"),
    ],
)
def test_mbox_takes_time_in_proportion_to_the_size_of_a_hostile_mail(
    hostile: Callable[..., object],
) -> None:
    small = min(work_on(hostile(20_000)) for _ in range(2))
    large = work_on(hostile(160_000))
    assert large < 24 * small + 1.0  # in the square of the size it is 64 times, of seconds


def test_mbox_refuses_more_containers_than_a_mail_can_need() -> None:
    nested = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\r--b%d\r" % (i, i) for i in range(101)
    )
    with pytest.raises(ArchiveError, match="100 containers"):
        entries(HEAD + nested)


def test_mbox_joins_many_text_parts_in_order() -> None:
    parts = b"".join(b"--b\n\npart %d\n" % i for i in range(5))
    mail = HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n" + parts + b"--b--\n"
    (entry,) = entries(mail)
    assert entry.text == "\n\n".join(f"part {i}" for i in range(5))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<", ">", "</", "<p", "<style>", "</style ", '"', "=", "!--", "-->", "&#", "x", " "]
        )
    )
)
def test_words_of_any_html_are_found_in_one_pass_and_hold_no_whole_tag(pieces: list[str]) -> None:
    text = "".join(pieces)
    words = words_of(text)
    assert len(words) <= len(text) + text.count("<")
    assert "<style>" not in words and "<p>" not in words
