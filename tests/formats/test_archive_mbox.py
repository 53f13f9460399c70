"""Mail folders become entries with their threads; broken ones name file and line."""

import io
import time
from collections.abc import Callable
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
    with pytest.raises(ArchiveError, match=r"line 13: .*yesterday"):
        entries(broken)
    complaints = []
    assert [entry.author for entry in entries(broken, on_broken=complaints.append)] == [
        "Alïce",
        "carol@example.org",
    ]
    assert len(complaints) == 1 and complaints[0].line == 13


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
