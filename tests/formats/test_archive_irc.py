"""Logs of irssi and weechat become entries; events are skipped; other lines name file and line."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_TEXT_SIZE_MAX
from appliance.formats.archive import irc, months
from appliance.formats.archive.entry import Entry, microseconds
from appliance.formats.archive.naming import Naming

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
        ("--- Day changed Mon Foo 41 2004\n", "line 1: no month is called 'Foo'"),
        ("--- Day changed Mon Feb 41 2004\n", "line 1: expected a date"),
        ("--- Day changed yesterday\n", "line 1: expected a date .* not 'yesterday'"),
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
    ("log_of", "file_name", "log"),
    [
        (irc.irssi_log, "#chess.log", ("chess", "#chess", "")),
        (irc.irssi_log, "chess", ("chess", "chess", "")),
        (irc.irssi_log, "##c++.log", ("c++", "##c++", "")),
        (irc.weechat_log, "irc.libera.#chess.weechatlog", ("chess", "#chess", "libera")),
        (irc.weechat_log, "irc.libera.##c.weechatlog", ("c", "##c", "libera")),
        (irc.weechat_log, "irc.libera.ann.weechatlog", ("ann", "ann", "libera")),
        (irc.weechat_log, "#chess.log", ("chess", "#chess", "")),
        (irc.weechat_log, "irc.my.net.#chess.weechatlog", ("chess", "#chess", "my.net")),
        (irc.weechat_log, "irc.a.b.example.##c.weechatlog", ("c", "##c", "a.b.example")),
        (
            irc.weechat_log,
            "irc.my.net.#chess.ops.weechatlog",
            ("chess.ops", "#chess.ops", "my.net"),
        ),
        (irc.weechat_log, "irc.libera.#a.#b.weechatlog", ("a.#b", "#a.#b", "libera")),
        (irc.weechat_log, "irc.my.net.#x.log.weechatlog", ("x.log", "#x.log", "my.net")),
        (irc.weechat_log, "irc.my-net.6667.#c++.weechatlog", ("c++", "#c++", "my-net.6667")),
        (irc.weechat_log, "my.net.#chess.log", ("chess", "#chess", "my.net")),
        (irc.weechat_log, "#chess.ops.log", ("chess.ops", "#chess.ops", "")),
        (irc.weechat_log, "irc.my.net.ann.weechatlog", ("ann", "ann", "my.net")),
        (irc.weechat_log, "irc.server.my.net.weechatlog", ("my.net", "my.net", "server")),
        (irc.irssi_log, "#chess.ops.log", ("chess.ops", "#chess.ops", "")),
    ],
)
def test_a_log_is_named_after_its_channel_and_server(
    log_of: Callable[[str], irc.Log], file_name: str, log: tuple[str, str, str]
) -> None:
    assert log_of(file_name) == log
    assert log_of(file_name).is_channel == ("#" in file_name)


@pytest.mark.parametrize("sign", ["#", "&", "+", "!", "##", "#&"])
@pytest.mark.parametrize("server", ["libera", "my.net", "a.b.c.example", "+odd.net"])
@pytest.mark.parametrize("name", ["chess", "chess.ops", "c.+d", "x.y.z"])
def test_a_channel_of_weechat_is_told_from_any_server(sign: str, server: str, name: str) -> None:
    log = irc.weechat_log(f"irc.{server}.{sign}{name}.weechatlog")
    assert log.is_channel
    if not server.startswith("+"):
        assert log == (name, f"{sign}{name}", server)


def day(date: str) -> int:
    """Of the one message behind a change of day to this date."""
    (entry,) = irssi(f"--- Day changed {date}\n12:00 <ann> x\n")
    return entry.time_us


@pytest.mark.parametrize(
    "date",
    [
        "Sat Oct 03 2026",
        "Sa Okt 03 2026",
        "sam. oct. 03 2026",
        "sáb oct 03 2026",
        "sab ott 03 2026",
        "za okt 03 2026",
        "lör okt 03 2026",
        "sob paź 03 2026",
        "so říj 03 2026",
        "Сб окт 03 2026",
        "Cts Eki 03 2026",
        "土 10月 03 2026",
        "토 10월 03 2026",
        "Saturday October 3 2026",
        "Sat 3 Oct 2026",
        "2026-10-03",
    ],
)
def test_irssi_writes_dates_in_the_words_of_its_language(date: str) -> None:
    assert day(date) == at(2026, 10, 3, 12)


@pytest.mark.parametrize("word", ["lis", "srp", "lip", "brumaire", "octopus"])
def test_a_month_that_nobody_knows_or_that_means_two_is_refused_by_its_name(word: str) -> None:
    with pytest.raises(ArchiveError, match=f"line 1: no month is called '{word}'"):
        irssi(f"--- Day changed Fri {word} 27 2026\n12:00 <ann> x\n")


def test_each_name_of_a_month_means_one() -> None:
    rows = [row.split() for row in months._ROWS.strip().split("\n")]
    assert all(len(row) == 12 for row in rows) and len(rows) > 20
    assert all(
        months.month_of(name.upper()) == months.month_of(f"{name}.") == number
        for row in rows
        for number, name in enumerate(row, 1)
        if name != "."
    )


CLOCKS = [
    ("16:59 {}", at(2020, 2, 29, 16, 59)),
    ("16:59{}", at(2020, 2, 29, 16, 59)),
    ("16:59:05 {}", at(2020, 2, 29, 16, 59, 5)),
    ("16:59:05{}", at(2020, 2, 29, 16, 59, 5)),
    ("[16:59] {}", at(2020, 2, 29, 16, 59)),
    ("[16:59:05] {}", at(2020, 2, 29, 16, 59, 5)),
    ("[16:59:05]{}", at(2020, 2, 29, 16, 59, 5)),
    ("(16:59) {}", at(2020, 2, 29, 16, 59)),
    ("16.59.05 {}", at(2020, 2, 29, 16, 59, 5)),
    ("2021-03-04 16:59:05 {}", at(2021, 3, 4, 16, 59, 5)),
    ("[2021-03-04 16:59] {}", at(2021, 3, 4, 16, 59)),
    ("2021-03-04T16:59:05 {}", at(2021, 3, 4, 16, 59, 5)),
]
LINES_SAID = [
    ("<@ann> hi", "ann", "hi"),
    ("< ann> hi", "ann", "hi"),
    ("<ann:@#chess> for operators", "ann", "for operators"),
    ("<@ann:+#chess> for voices", "ann", "for voices"),
    ("* ann waves", "ann", "* ann waves"),
    ("* ann:@#chess waves", "ann", "* ann waves"),
    ("-ann:#chess- notice", "ann", "notice"),
    ("-ann:@#chess- notice", "ann", "notice"),
    ("[notice(#chess)] one of our own", "unknown", "one of our own"),
    ("[msg(@#chess)] to operators", "unknown", "to operators"),
    ("<ann> 10:00 <bob> quoted: [notice(x)]", "ann", "10:00 <bob> quoted: [notice(x)]"),
]


@pytest.mark.parametrize(("clock", "time_us"), CLOCKS)
def test_each_clock_of_irssi_goes_with_each_kind_of_line(clock: str, time_us: int) -> None:
    head = "--- Log opened Sat Feb 29 09:59:00 2020\n"
    events = ("-!- bob [b@example.org] has joined #chess", "[Users #chess]", "-!- mode/#chess")
    for line, author, text in LINES_SAID:
        (entry,) = irssi(head + clock.format(line) + "\n")
        assert (entry.time_us, entry.author, entry.text) == (time_us, author, text), line
    assert irssi(head + "".join(f"{clock.format(event)}\n" for event in events)) == []


@pytest.mark.parametrize(
    ("time", "time_us"),
    [
        ("2004-03-01 10:00:00", at(2004, 3, 1, 10)),
        ("2004-03-01T10:00:00", at(2004, 3, 1, 10)),
        ("2004-03-01 10:00:00Z", at(2004, 3, 1, 10)),
        ("2004-03-01 10:00:00.5", at(2004, 3, 1, 10) + 500_000),
        ("2004-03-01 10:00:00,25Z", at(2004, 3, 1, 10) + 250_000),
        ("2004-03-01 10:00:00.123456Z", at(2004, 3, 1, 10) + 123_456),
        ("2004-03-01T10:00:00.123456789Z", at(2004, 3, 1, 10) + 123_456),
        ("2004-03-01 10:00:00+0100", at(2004, 3, 1, 9)),
        ("2004-03-01 10:00:00 -0530", at(2004, 3, 1, 15, 30)),
        ("2004-03-01T10:00:00.000001+01:00", at(2004, 3, 1, 9) + 1),
    ],
)
def test_each_time_of_weechat_is_that_instant(time: str, time_us: int) -> None:
    old = f"2004-02-29 00:00:00\tbob\told form\n{time}\tann\tnew form\n"
    assert [(entry.author, entry.time_us) for entry in weechat(old)] == [
        ("bob", at(2004, 2, 29)),
        ("ann", time_us),
    ]


@pytest.mark.parametrize(
    ("columns", "author", "text"),
    [
        ("--\tNotice(ann) -> #chess: hello", "ann", "hello"),
        ("--\tNotice(@ann) -> @#chess: to operators", "ann", "to operators"),
        ("--\tPvNotice(ann): welcome", "ann", "welcome"),
        ("--\tMsg(ann) -> @#chess: to operators", "ann", "to operators"),
        ("--\tMsg(+ann) -> +#chess: a: b", "ann", "a: b"),
        ("--\tNotiz(ann) -> #chess: hallo", "ann", "hallo"),
        ("--\tAction -> @#chess: @ann waves", "ann", "* @ann waves"),
        ("--\tNotice -> #chess: our own", "unknown", "our own"),
        ("<ann>\thello", "ann", "hello"),
        ("<@ann>\thello", "ann", "hello"),
        ("@ann\thello", "ann", "hello"),
        (" *\t@ann waves", "ann", "* @ann waves"),
    ],
)
def test_weechat_tells_notices_and_what_operators_alone_read(
    columns: str, author: str, text: str
) -> None:
    (entry,) = weechat(f"2004-03-01 10:00:00\t{columns}\n")
    assert (entry.author, entry.text) == (author, text)


HEAD = "--- Log opened Mon Mar 01 09:59:00 2004\n"
# What stands in the log of #chess: in whose room it belongs, by whom, what.
IRSSI_APART = [
    ("[msg(NickServ)] identify secret", "direct/nickserv", "unknown", "identify secret"),
    ("[msg(bob)] to him alone", "direct/bob", "unknown", "to him alone"),
    ("[notice(bob)] to him alone", "direct/bob", "unknown", "to him alone"),
    ("[dcc(bob)] to him alone", "direct/bob", "unknown", "to him alone"),
    ("[bob(b@host.example)] to me", "direct/bob", "bob", "to me"),
    ("[b[o]b(b@host.example)] to me", "direct/b[o]b", "b[o]b", "to me"),
    ("[bob(dcc)] to me", "direct/bob", "bob", "to me"),
    ("-bob(b@host.example)- to me", "direct/bob", "bob", "to me"),
    ("-NickServ(NickServ@services.)- identify", "direct/nickserv", "NickServ", "identify"),
    ("-bob- in a theme without hosts", "direct/bob", "bob", "in a theme without hosts"),
    ("* me:bob waves at him", "direct/bob", "me", "* me waves at him"),
    (" (*) bob waves at me", "direct/bob", "bob", "* bob waves at me"),
    (" (*dcc*) bob waves at me", "direct/bob", "bob", "* bob waves at me"),
    ("[msg(#secret)] elsewhere", "private/secret", "unknown", "elsewhere"),
    ("[notice(@#secret)] elsewhere", "private/secret", "unknown", "elsewhere"),
    ("<@ann:#secret> elsewhere", "private/secret", "ann", "elsewhere"),
    ("* ann:#secret waves", "private/secret", "ann", "* ann waves"),
    ("-ann:#secret- elsewhere", "private/secret", "ann", "elsewhere"),
    ("[msg(##chess)] elsewhere", "private/chess", "unknown", "elsewhere"),
    ("[msg(#chess-ops)] elsewhere", "private/chess-ops", "unknown", "elsewhere"),
    ("[msg(chess)] a person", "direct/chess", "unknown", "a person"),
]
WEECHAT_APART = [
    ("MSG(bob): to him alone", "direct/bob", "unknown", "to him alone"),
    ("MSG(NickServ): identify *", "direct/nickserv", "unknown", "identify *"),
    ("Msg -> bob: to him alone", "direct/bob", "unknown", "to him alone"),
    ("Notice -> bob: to him alone", "direct/bob", "unknown", "to him alone"),
    ("Hinweis -> bob: nur er", "direct/bob", "unknown", "nur er"),
    ("Action -> bob: ann waves", "direct/bob", "ann", "* ann waves"),
    ("Msg(bob) -> me: to me", "direct/bob", "bob", "to me"),
    ("Notice(bob) -> me: to me", "direct/bob", "bob", "to me"),
    ("PvNotice(ChanServ): to me", "direct/chanserv", "ChanServ", "to me"),
    ("bob (b@host.example): to me", "direct/bob", "bob", "to me"),
    ("MSG(#secret): elsewhere", "private/secret", "unknown", "elsewhere"),
    ("Notice -> #secret: elsewhere", "private/secret", "unknown", "elsewhere"),
    ("Notice(ann) -> @#secret: elsewhere", "private/secret", "ann", "elsewhere"),
    ("Notice:@#secret(ann): elsewhere", "private/secret", "ann", "elsewhere"),
    ("Msg -> ##chess: elsewhere", "private/chess", "unknown", "elsewhere"),
    ("Msg -> chess: a person", "direct/chess", "unknown", "a person"),
]


def of_chess(line: str, log: str) -> list[tuple[str, str, str, bool]]:
    """What a line says in a log of that name."""
    program = irc.read_weechat if "weechat" in log else irc.read_irssi
    head = HEAD + "10:00 " if program is irc.read_irssi else "2004-03-01 10:00:00\t--\t"
    found = program(io.BytesIO(f"{head}{line}\n".encode()), f"/logs/{log}", "chess")
    return [(entry.room, entry.author, entry.text, entry.private) for entry in found]


@pytest.mark.parametrize(
    ("log", "line", "room", "author", "text"),
    [("#chess.log", *each) for each in IRSSI_APART]
    + [("irc.libera.#chess.weechatlog", *each) for each in WEECHAT_APART],
)
def test_what_one_person_or_another_channel_was_told_is_private_and_in_a_room_apart(
    log: str, line: str, room: str, author: str, text: str
) -> None:
    assert of_chess(line, log) == [(room, author, text, True)]


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("#chess.log", "[notice(#Chess)] x"),
        ("#chess.log", "[msg(@#chess)] x"),
        ("#chess.log", "<ann:@+#CHESS> x"),
        ("#chess.2004-03-01.log", "[msg(#chess)] x"),
        ("#chess.03-01.log", "-ann:#chess- x"),
        ("#a_b.log", "[notice(#a/b)] x"),
        ("+chess.log", "[msg(+chess)] x"),
        ("+chess.log", "[msg(@+chess)] x"),
        ("&chess.log", "[msg(%&chess)] x"),
        ("chess.log", "[msg(#chess)] x"),
        ("bob.log", "[msg(Bob)] x"),
        ("bob.log", "[bob(b@host)] x"),
        ("bob.log", "-Bob(b@host)- x"),
        ("irc.libera.bob.weechatlog", "MSG(Bob): x"),
        ("irc.libera.bob.weechatlog", "Msg(bob) -> me: x"),
        ("irc.libera.bob.weechatlog", "bob (b@host): x"),
        ("irc.my.net.#chess.weechatlog", "Notice -> @#chess: x"),
        ("irc.my.net.#chess.weechatlog", "Notice(ann): x"),
        ("irc.my.net.#chess.weechatlog", "Notice:@(ann): x"),
        ("irc.my.net.#chess.weechatlog", "Msg:@(@ann): x"),
        ("irc.my.net.#chess.weechatlog", "NoticeOp -> #chess: x"),
    ],
)
def test_what_a_log_s_own_conversation_was_told_stays_in_its_room(log: str, line: str) -> None:
    ((room, _, text, private),) = of_chess(line, log)
    assert (room, text, private) == ("chess", "x", False)


def test_a_person_told_from_two_logs_of_a_server_has_one_room_and_of_two_servers_two() -> None:
    naming, found = Naming(), []
    for server, name in (("a", "#x.log"), ("a", "#y.log"), ("b", "#x.log"), ("a", "carl.log")):
        rooms = irc.Rooms("x", irc.irssi_log(name), server, naming)
        log = io.BytesIO(f"{HEAD}10:00 [msg(Bob)] hi\n".encode())
        found += [entry.room for entry in irc.read_irssi(log, name, "x", rooms=rooms)]
    assert found == ["direct/bob", "direct/bob", "direct/bob (bob of b)", "direct/bob"]
    assert naming.of("a bob", "direct/bob", "bob of a") == "direct/bob"  # as of its own log


def test_lines_that_go_on_with_what_one_person_was_told_are_as_private() -> None:
    told = "2004-03-01 10:00:00\t--\tMsg -> bob: one\ntwo\n2004-03-01 10:00:01\tann\tpublic\n"
    found = irc.read_weechat(io.BytesIO(told.encode()), "#chess.log", "chess")
    assert [(entry.room, entry.text, entry.private) for entry in found] == [
        ("direct/bob", "one\ntwo", True),
        ("chess", "public", False),
    ]


UNREADABLE = [
    "--- Day changed Tue Foo 02 2004",
    "--- Day changed Sat lis 02 2004",
    "--- Day changed Tue Feb 30 2004",
    "--- Day changed yesterday",
    "--- Day changed ",
    "--- Day changed",
    "--- Day chan",
    "--- Log opened Tue Mar 02 09:59:00",
    "--- Log opened 02/03/2004",
    "--- Tag gewechselt Die Mär 02 2004",
    "=== Day changed Tue Mar 02 2004",
    "-- Tue Mar 02 2004",
    "2004-03-02",
    "--- Log closed Mon Mar 01 23:00:00 2004",
]


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_day_ends_where_a_line_may_tell_another_one_that_cannot_be_read(line: str) -> None:
    """What follows is named, not dated by the day before, until a day is told again."""
    complaints: list[ArchiveError] = []
    found = irssi(
        f"{HEAD}10:00 <ann> first\n{line}\n00:01 <ann> lost\n2004-03-05 00:02 <ann> dated\n"
        "00:03 <bob> lost\n--- Day changed Wed Mar 03 2004\n00:04 <ann> last\n",
        on_broken=complaints.append,
    )
    assert [(entry.time_us, entry.text) for entry in found] == [
        (at(2004, 3, 1, 10), "first"),
        (at(2004, 3, 5, 0, 2), "dated"),
        (at(2004, 3, 3, 0, 4), "last"),
    ]
    assert [error.line for error in complaints if error.line != 3] == [4, 6]


@pytest.mark.parametrize("line", ["noise", "29:00 <ann> x", "10:00 <ann no nick 2004", "x" * 500])
def test_a_broken_line_that_tells_no_day_leaves_the_day(line: str) -> None:
    complaints: list[ArchiveError] = []
    found = irssi(f"{HEAD}{line}\n10:01 <ann> x\n", on_broken=complaints.append)
    assert [entry.time_us for entry in found] == [at(2004, 3, 1, 10, 1)]
    assert [error.line for error in complaints] == [2]


@pytest.mark.parametrize(
    ("log", "line"),
    [("#chess.log", line) for line, *_ in LINES_SAID]
    + [("#chess.log", line) for line, *_ in IRSSI_APART]
    + [("irc.x.#chess.weechatlog", line) for line, *_ in WEECHAT_APART],
)
@pytest.mark.parametrize("broken", [False, True])
def test_each_line_that_is_no_event_is_an_entry_or_is_named(
    log: str, line: str, broken: bool
) -> None:
    weechat_log = "weechat" in log
    text = f"2004-{'13' if broken else '03'}-01 10:00:00\t--\t{line}\n"
    if not weechat_log:
        text = f"{'' if broken else HEAD}10:00 {line}\n"
    read = irc.read_weechat if weechat_log else irc.read_irssi
    complaints: list[ArchiveError] = []
    found = list(read(io.BytesIO(text.encode()), log, "chess", complaints.append))
    assert (len(found), len(complaints)) == ((0, 1) if broken else (1, 0))


@pytest.mark.parametrize(
    "event",
    ["--\tMode #chess [+o ann]", "--\tCTCP -> #chess: PING", "--\tTopic for #chess is \"x: y\"",
     "--\tCTCP query to bob: PING 1", "--\tWallops from ann (a@host): x", "--\tserver: welcome",
     "--\t[ann] (a@host): Ann Example", "-->\tann has joined", "<--\tann has quit",
     "=!=\tan error", "\tno nick"],
)  # fmt: skip
def test_weechat_skips_events(event: str) -> None:
    assert weechat(f"2004-03-01 10:00:00\t{event}\n") == []


def test_a_line_without_a_time_goes_on_with_the_message_above_it() -> None:
    first = "2004-03-01 10:00:00\tann\tone\ntwo\n\n  three\twith a tab\n"
    found = weechat(first + "2004-03-01 10:00:01\tbob\tlast\n\n")
    assert [entry.text for entry in found] == ["one\ntwo\n\n  three\twith a tab", "last"]


@pytest.mark.parametrize(
    ("text", "lines", "texts"),
    [
        ("first\n2004-03-01 10:00:00\tann\tx\n", [1], ["x"]),
        ("2004-03-01 10:00:00\t-->\tann joined\nwhose line\n", [2], []),
        ("2004-03-01 10:00:00\tann\tx\n10:00:01\tbob\ty\nof bob\n", [2, 3], ["x"]),
        ("2004-03-01 10:00:00\tann\tx\n[01/03/04 10:00]\tbob\ty\n", [2], ["x"]),
        ("2004-03-01 10:00:00\tann\tx\n1078135200\tbob\ty\n", [2], ["x"]),
        ("2004-03-01 10:00:00\tann\tx\n2004-02-30 10:00:01\tbob\ty\n", [2], ["x"]),
    ],
)
def test_lines_of_weechat_that_belong_to_no_message_are_counted_and_named(
    text: str, lines: list[int], texts: list[str]
) -> None:
    complaints: list[ArchiveError] = []
    found = weechat(text, on_broken=complaints.append)
    assert [error.line for error in complaints] == lines
    assert [entry.text for entry in found] == texts


def test_a_message_of_too_many_lines_is_named_by_its_first_and_the_next_is_read() -> None:
    line = "x" * 999
    log = "2004-03-01 10:00:00\tann\tx\n" + f"{line}\n" * (ARCHIVE_TEXT_SIZE_MAX // 1000 + 1)
    complaints: list[ArchiveError] = []
    found = weechat(log + "2004-03-01 10:00:01\tbob\ty\n", on_broken=complaints.append)
    assert [error.line for error in complaints][:1] == [1] and found[-1].text == "y"


LINES = st.one_of(st.binary(max_size=50), st.sampled_from((IRSSI + WEECHAT).encode().splitlines()))


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=40), st.sampled_from([irc.read_irssi, irc.read_weechat]))
def test_irc_logs_of_arbitrary_lines_give_entries_or_typed_errors(
    lines: list[bytes], read: Callable[..., object]
) -> None:
    complaints = []
    for entry in read(io.BytesIO(b"\n".join(lines)), "x", "x", on_broken=complaints.append):
        entry.text.encode(), entry.author.encode()
        assert "\n" not in entry.author and not entry.text.endswith("\n")
