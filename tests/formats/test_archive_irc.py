"""Logs of irssi and weechat become entries; events are skipped; other lines name file and line."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import ArchiveError
from appliance.formats.archive import irc
from appliance.formats.archive.entry import Entry, microseconds

IRSSI = """--- Log opened Mon Mar 01 09:59:00 2004
09:59 -!- alice [a@example.org] has joined #chess
09:59 [Users #chess]
10:00 <@alice> hello: 10:00 <bob> is a quote
10:01:07 < bob> hi
10:02  * carol waves
10:03 -alice:#chess- a notice
--- Day changed Tue Mar 02 2004
00:01 <+alice>\x0304 after midnight\x03
00:02 <alice>
--- Log closed Tue Mar 02 00:03:00 2004
"""
WEECHAT = """2004-03-01 09:59:00\t-->\talice (a@example.org) has joined #chess
2004-03-01 10:00:00\t@alice\thello\twith a tab
2004-03-01 10:00:01\t *\tcarol waves
2004-03-01 10:00:02\t--\tMode #chess [+o alice]
2004-03-01 10:00:03\tbob\t
"""


def at(*moment: int) -> int:
    return microseconds(datetime(*moment, tzinfo=UTC))


def irssi(text: str, **options: Any) -> list[Entry] | None:
    return list(irc.read_irssi(io.BytesIO(text.encode()), "#chess.log", "chess", **options))


def weechat(text: str, **options: Any) -> list[Entry] | None:
    return list(irc.read_weechat(io.BytesIO(text.encode()), "w.log", "chess", **options))


def test_irssi_keeps_nicks_times_and_words() -> None:
    found = [(entry.author, entry.time_us, entry.text) for entry in irssi(IRSSI)]
    assert found == [
        ("alice", at(2004, 3, 1, 10, 0), "hello: 10:00 <bob> is a quote"),
        ("bob", at(2004, 3, 1, 10, 1, 7), "hi"),
        ("carol", at(2004, 3, 1, 10, 2), "* carol waves"),
        ("alice", at(2004, 3, 1, 10, 3), "a notice"),
        ("alice", at(2004, 3, 2, 0, 1), "04 after midnight"),
        ("alice", at(2004, 3, 2, 0, 2), ""),
    ]


def test_weechat_keeps_nicks_times_and_words() -> None:
    found = [(entry.author, entry.time_us, entry.text) for entry in weechat(WEECHAT)]
    assert found == [
        ("alice", at(2004, 3, 1, 10, 0), "hello\twith a tab"),
        ("carol", at(2004, 3, 1, 10, 0, 1), "* carol waves"),
        ("bob", at(2004, 3, 1, 10, 0, 3), ""),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10:00 <alice> too early\n", r"#chess\.log, line 1: a message before the first date"),
        (
            "--- Log opened Mon Mar 01 09:59:00 2004\n\ngarbage\n",
            r"line 3: not a line of an irssi log: 'garbage'",
        ),
        ("--- Day changed Mon Foo 41 2004\n", "line 1: expected a date"),
        ("--- Log opened Mon Mar 01 09:59:00 2004\n29:00 <a> x\n", "line 2: not a line"),
    ],
)
def test_irssi_line_that_does_not_fit_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        irssi(text)
    complaints = []
    irssi(text, on_broken=complaints.append)
    assert len(complaints) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2004-03-01 10:00\talice\tx\n", r"w\.log, line 1: not a line of a weechat log"),
        ("\n2004-02-30 10:00:00\talice\tx\n", "line 2: no such time"),
    ],
)
def test_weechat_line_that_does_not_fit_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        weechat(text)


@pytest.mark.parametrize(
    ("room_of", "file_name", "room"),
    [
        (irc.irssi_room, "#chess.log", "chess"),
        (irc.irssi_room, "chess", "chess"),
        (irc.irssi_room, "##c++.log", "c++"),
        (irc.weechat_room, "irc.libera.#chess.weechatlog", "chess"),
        (irc.weechat_room, "irc.libera.##c.weechatlog", "c"),
        (irc.weechat_room, "#chess.log", "chess"),
    ],
)
def test_room_of_a_log_is_its_channel(
    room_of: Callable[..., object], file_name: str, room: str
) -> None:
    assert room_of(file_name) == room


LINES = st.one_of(st.binary(max_size=50), st.sampled_from((IRSSI + WEECHAT).encode().splitlines()))


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=40), st.sampled_from([irc.read_irssi, irc.read_weechat]))
def test_irc_logs_of_arbitrary_lines_give_entries_or_typed_errors(
    lines: list[bytes], read: Callable[..., object]
) -> None:
    complaints = []
    for entry in read(io.BytesIO(b"\n".join(lines)), "x", "x", on_broken=complaints.append):
        entry.text.encode(), entry.author.encode()
        assert "\n" not in entry.text
